"""Compiled code on the processor: target, cache, threads, kernels, limits."""
