"""Declarations of experiments, a module for each paper."""
