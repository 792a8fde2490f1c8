"""Processors that kernels are compiled for, beside this machine's."""

from hpfem.backends.cpu.runtime.target import Target, host


def narrower(vector_bytes):
    """This machine as if its vectors were shorter: 32 is AVX2 with FMA, 16 the least of its architecture."""
    if vector_bytes >= host().vector_bytes:
        return host()
    return Target("haswell", "", 32) if vector_bytes == 32 else Target("generic", "", 16)
