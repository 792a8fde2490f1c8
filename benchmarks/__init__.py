"""Measurements: scripts, and the papers' experiments."""
