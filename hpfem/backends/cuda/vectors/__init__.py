"""Vectors and index tables of the iterations."""
