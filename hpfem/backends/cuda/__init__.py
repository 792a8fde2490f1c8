"""CUDA kernels: C++ files specialised by a generated prelude, compiled by NVRTC."""
