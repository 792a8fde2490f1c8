"""The GPU: device, compiler, libraries, scratch, kernels."""
