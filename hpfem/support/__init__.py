"""Helpers for all floors: registries, files, caches, logging, progress, the machine."""
