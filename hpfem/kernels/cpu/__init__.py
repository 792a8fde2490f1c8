"""Compiled kernels for the processor: LLVM IR written from the mode tree, one element per SIMD lane."""

from .cache import cache_clear, cache_info
from .kernel import CpuKernel
from .target import missing

__all__ = ["CpuKernel", "cache_clear", "cache_info", "missing"]
