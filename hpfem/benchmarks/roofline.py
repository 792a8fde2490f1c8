"""The machine's limits, measured in the run whose throughput is held against them.

    throughput <= min(bandwidth / bytes per degree of freedom, flop rate / flops per degree of freedom)

Bytes and operations are those of `hpfem.kernels.models`. A problem that fits a cache can beat the bandwidth bound,
which is memory's.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import get_blas_funcs

from ..kernels.cpu import missing
from ..kernels.cpu.limits import measure_fma, measure_read
from ..kernels.cpu.threads import thread_count
from ..registry import Registry
from ..tuning import HostTimer, Timer
from .timing import measure

MIB = 1 << 20
MATRIX_SIZE = 768


@dataclass(frozen=True)
class Roofline:
    """Limits of a device.

    Attributes
    ----------
    bandwidth : float
        Bytes per second: on a host the best of the kinds below, on a GPU of copying.
    flops : float
        Operations per second: on a host the better of a large matrix product and of multiply-adds in registers, on a
        GPU of multiply-adds in registers.
    details : dict
        What was measured: "read", "copy", "axpy", "compiled_read" in bytes per second, "gemm", "fma" in operations per
        second, "array_bytes".
    """

    bandwidth: float
    flops: float
    details: dict[str, float]

    def bound(self, nbytes: float, flops: float) -> tuple[float, str]:
        """Least time for some work.

        Parameters
        ----------
        nbytes : float
            Bytes to move.
        flops : float
            Operations.

        Returns
        -------
        tuple
            Seconds, and what they are bound by: "bandwidth" or "flops".
        """
        memory, arithmetic = nbytes / self.bandwidth, flops / self.flops
        return (memory, "bandwidth") if memory >= arithmetic else (arithmetic, "flops")

    def as_dict(self) -> dict[str, Any]:
        """Make a record for result files.

        Returns
        -------
        dict
        """
        return asdict(self)


def last_level_cache() -> int:
    """Tell the size of the largest cache.

    Returns
    -------
    int
        Bytes; 32 MiB where the system does not tell.
    """
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes, default=32 * MIB)


def host_roofline(dtype: DTypeLike = np.float64, quick: bool = False) -> Roofline:
    """Measure the host on the threads that hpfem's kernels and BLAS may use now (`thread_limit`).

    Parameters
    ----------
    dtype : dtype
        float64 or float32.
    quick : bool
        Smaller arrays and fewer repeats, for tests and demonstrations.

    Returns
    -------
    Roofline
        The best of what NumPy and BLAS reach and, where kernels can be compiled, of what those reach.
    """
    array_bytes = 64 * MIB if quick else int(np.clip(4 * last_level_cache(), 128 * MIB, 512 * MIB))
    rates = _numpy_rates(np.dtype(dtype), array_bytes, repeats=3 if quick else 7)
    if missing() is None:
        rates |= _compiled_rates(dtype, array_bytes, seconds=0.05 if quick else 0.3)
    flops = max(rates.get(kind, 0.0) for kind in ("gemm", "fma"))
    bandwidth = max(rate for kind, rate in rates.items() if kind not in ("gemm", "fma"))
    return Roofline(bandwidth, flops, {**rates, "array_bytes": float(array_bytes)})


def _numpy_rates(dtype: np.dtype[Any], array_bytes: int, repeats: int) -> dict[str, float]:
    """Bytes per second of reading, copying and updating arrays, operations per second of a matrix product."""
    a, b = np.full(array_bytes // dtype.itemsize, 1.0, dtype), np.full(array_bytes // dtype.itemsize, 2.0, dtype)
    axpy = get_blas_funcs("axpy", (a,))
    # BLAS dot reads both arrays and writes nothing: the pattern of operators, whose factors are read and forgotten.
    kinds: dict[str, tuple[Callable[[], object], int]] = {
        "read": (lambda: np.dot(a, b), 2),
        "copy": (lambda: np.copyto(a, b), 2),
        "axpy": (lambda: axpy(b, a, a=1e-9), 3),
    }
    rates = {name: count * a.nbytes / measure(call, repeats=repeats).best for name, (call, count) in kinds.items()}
    left, right = np.ones((2, MATRIX_SIZE, MATRIX_SIZE), dtype)
    out = np.empty_like(left)
    product = measure(lambda: np.matmul(left, right, out=out), repeats=3 * repeats)
    return {**rates, "gemm": 2 * MATRIX_SIZE**3 / product.best}


def _compiled_rates(dtype: DTypeLike, array_bytes: int, seconds: float) -> dict[str, float]:
    """Operations per second in registers and bytes per second of reading, of all threads together."""
    threads = thread_count()
    with ThreadPoolExecutor(threads) as pool:
        fma = sum(pool.map(lambda _: measure_fma(dtype, seconds), range(threads)))
        read = sum(pool.map(lambda _: measure_read(array_bytes, seconds), range(threads)))
    return {"fma": fma, "compiled_read": read}


@dataclass(frozen=True)
class Target:
    """What measuring on a backend needs.

    Attributes
    ----------
    timer : callable
        () -> Timer.
    roofline : callable
        (dtype, quick) -> Roofline.
    """

    timer: Callable[[], Timer]
    roofline: Callable[[DTypeLike, bool], Roofline]


# By backend name; a backend on another device adds its own clock and limits.
TARGETS: Registry[Target] = Registry("benchmark target")
TARGETS.add("numpy", Target(HostTimer, host_roofline))
TARGETS.add("cpu", Target(HostTimer, host_roofline))
