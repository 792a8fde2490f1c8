"""Limits of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...roofline import MIB, Roofline
from ...timer import measure
from .device import CudaTimer, limits
from .lazy import cupy

_THREADS, _TRIPS, _CHAINS = 256, 512, 8

# A sum is stored only if it has an impossible value: the arrays are read, but nothing is written.
_SOURCE = """
extern "C" __global__ void read_all(const REAL* __restrict__ a, REAL* out, long long n) {
  REAL sum = 0;
  const long long stride = (long long)gridDim.x * blockDim.x;
  #pragma unroll 8
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum += a[i];
  if (sum == (REAL)-1) out[0] = sum;
}
extern "C" __global__ void multiply_add(REAL* out, REAL factor) {
  REAL s[CHAINS];
  #pragma unroll
  for (int c = 0; c < CHAINS; c++) s[c] = factor + c;
  for (int i = 0; i < TRIPS; i++) {
    #pragma unroll
    for (int c = 0; c < CHAINS; c++) s[c] = s[c] * factor + factor;
  }
  REAL sum = 0;
  #pragma unroll
  for (int c = 0; c < CHAINS; c++) sum += s[c];
  if (sum == (REAL)-1) out[0] = sum;
}
"""


def measure_gpu(dtype: DTypeLike = np.float64, quick: bool = False) -> Roofline:
    """Measure the current GPU: reading and copying memory, multiply-adds in registers, a matrix product."""
    real = np.dtype(dtype)
    n = (256 if quick else 1024) * MIB // real.itemsize
    source, target = cupy.ones(n, real), cupy.empty(n, real)
    defines = {"REAL": {8: "double", 4: "float"}[real.itemsize], "TRIPS": _TRIPS, "CHAINS": _CHAINS}
    module = cupy.RawModule(code=_SOURCE, options=tuple(f"-D{name}={value}" for name, value in defines.items()))
    blocks = 32 * limits().multiprocessors
    read, multiply_add = module.get_function("read_all"), module.get_function("multiply_add")
    side = 4096 if quick else 8192
    left, right, product = (cupy.ones((side, side), real) for _ in range(3))
    fmas = 2 * _TRIPS * _CHAINS * _THREADS * blocks
    kinds: dict[str, tuple[Callable[[], Any], float]] = {
        "read": (partial(read, (blocks,), (_THREADS,), (source, target, np.int64(n))), source.nbytes),
        "copy": (partial(cupy.copyto, target, source), 2 * source.nbytes),
        "fma": (partial(multiply_add, (blocks,), (_THREADS,), (target, np.array(0.5, real)[()])), fmas),
        "gemm": (partial(cupy.matmul, left, right, out=product), 2 * side**3),
    }
    rates = {name: work / measure(call, CudaTimer()).best for name, (call, work) in kinds.items()}
    return Roofline(rates["copy"], rates["fma"], {**rates, "array_bytes": float(source.nbytes)})
