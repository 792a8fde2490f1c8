"""The limits of a device, measured in the same run as the throughput that is compared with them.

    throughput <= min(bandwidth / bytes per degree of freedom, flop rate / flops per degree of freedom)

Bytes and operations are those of `hpfem.forms.cost`. A problem that fits a cache can beat the bandwidth bound,
which is memory's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

MIB = 1 << 20


@dataclass(frozen=True)
class Roofline:
    """Limits of a device: on a host the best of what was measured, on a GPU of copying and of multiply-adds."""

    bandwidth: float  # bytes per second
    flops: float  # per second
    details: dict[str, float]  # "read", "copy", "axpy", "compiled_read"; "gemm", "fma"; "array_bytes"

    def bound(self, nbytes: float, flops: float) -> tuple[float, str]:
        """Find the least seconds of some work, and the limit: "bandwidth" or "flops"."""
        memory, arithmetic = nbytes / self.bandwidth, flops / self.flops
        return (memory, "bandwidth") if memory >= arithmetic else (arithmetic, "flops")

    def as_dict(self) -> dict[str, Any]:
        """Make a record for result files; see `document`."""
        return asdict(self)

    @classmethod
    def best(cls, found: Sequence[Roofline]) -> Roofline:
        """Take the best of each limit of a device on which several backends were measured, and all details."""
        details = {name: rate for limits in found for name, rate in limits.details.items()}
        return cls(max(limits.bandwidth for limits in found), max(limits.flops for limits in found), details)


def array_bytes(quick: bool) -> int:
    """Size of arrays that are far larger than the host's caches."""
    return 64 * MIB if quick else int(np.clip(4 * last_level_cache(), 128 * MIB, 512 * MIB))


@cache
def last_level_cache() -> int:
    """Size of the host's largest cache."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if text[:-1].isdigit() and text[-1] in "KM":
            sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes, default=32 * MIB)
