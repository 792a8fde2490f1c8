"""The LLVM IR of a kernel, written pass by pass."""
