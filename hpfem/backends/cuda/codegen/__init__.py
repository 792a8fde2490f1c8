"""What the sources of all CUDA kernels share: constants, tables, geometry, the pointwise function."""
