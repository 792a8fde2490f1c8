"""The machine's limits, measured in the run whose throughput is held against them.

    throughput <= min(bandwidth / bytes per degree of freedom, flop rate / flops per degree of freedom)

Bytes and operations are those of `hpfem.kernels.models`. A problem that fits a cache can beat the bandwidth bound,
which is memory's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import get_blas_funcs

from ..registry import Registry
from .timing import HostTimer, Timer, measure

MIB = 1 << 20


@dataclass(frozen=True)
class Roofline:
    """Limits of a device.

    Attributes
    ----------
    bandwidth : float
        Bytes per second: the best of the kinds below.
    flops : float
        Operations per second of a large matrix product.
    details : dict
        What was measured: "read", "copy", "axpy" in bytes per second, sizes in bytes.
    """

    bandwidth: float
    flops: float
    details: dict[str, float]

    def bound(self, nbytes: float, flops: float) -> tuple[float, str]:
        """Least seconds for work of so many bytes and operations, and which of both it is bound by."""
        memory, arithmetic = nbytes / self.bandwidth, flops / self.flops
        return (memory, "bandwidth") if memory >= arithmetic else (arithmetic, "flops")

    def as_dict(self) -> dict[str, Any]:
        """For result files."""
        return asdict(self)


def last_level_cache() -> int:
    """Size of the largest cache in bytes, 32 MiB where the system does not tell."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes, default=32 * MIB)


def host_roofline(dtype: DTypeLike = np.float64, quick: bool = False) -> Roofline:
    """Measure the host with NumPy, with as many threads as its BLAS may use now.

    Parameters
    ----------
    dtype : dtype
        float64 or float32.
    quick : bool
        Smaller arrays and fewer repeats, for tests and demonstrations.

    Returns
    -------
    Roofline
    """
    size = np.dtype(dtype).itemsize
    array_bytes = 64 * MIB if quick else int(np.clip(4 * last_level_cache(), 128 * MIB, 512 * MIB))
    n = array_bytes // size
    repeats = 3 if quick else 7
    a, b = np.full(n, 1.0, dtype), np.full(n, 2.0, dtype)
    axpy = get_blas_funcs("axpy", (a,))
    # BLAS dot reads both arrays and writes nothing: the pattern of operators, whose factors are read and forgotten.
    kinds = {
        "read": (lambda: np.dot(a, b), 2),
        "copy": (lambda: np.copyto(a, b), 2),
        "axpy": (lambda: axpy(b, a, a=1e-9), 3),
    }
    rates = {name: count * n * size / measure(call, repeats=repeats).best for name, (call, count) in kinds.items()}
    m = 512 if quick else 1536
    left, right, out = np.ones((m, m), dtype), np.ones((m, m), dtype), np.empty((m, m), dtype)
    product = measure(lambda: np.matmul(left, right, out=out), repeats=repeats)
    details = {**rates, "array_bytes": float(array_bytes), "matrix_size": float(m)}
    return Roofline(max(rates.values()), 2 * m**3 / product.best, details)


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
