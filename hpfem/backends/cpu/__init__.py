"""Compiled kernels for the processor: LLVM IR written from the mode tree, one element per SIMD lane."""
