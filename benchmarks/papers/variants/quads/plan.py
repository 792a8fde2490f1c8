"""The variants of quads.h: switches, shared memory, and the bytes that go through near memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from ..gpu import WARP, filled

MEMORIES = ("global", "constant", "shared")
# Threads of a block where each has an element; loops over more modes than these are the compiler's to unroll.
THREADS, UNROLLED = 128, 25


@dataclass(frozen=True)
class QuadPlan:
    """A variant at an order."""

    block: bool  # whether a block of threads takes an element, and not a thread
    stride: int  # 1 or `WARP`: elements that are interleaved
    tables: str  # one of `MEMORIES`
    # Along a direction.
    modes: int
    points: int
    affine: bool  # whether the elements are

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.points**2 if self.block else THREADS

    @property
    def elements(self) -> int:
        """Elements of a block of threads."""
        return 1 if self.block else THREADS

    @property
    def table_size(self) -> int:
        """Numbers of all tables."""
        return 2 * self.modes * self.points + self.points

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        n, q = self.modes, self.points
        arrays = n * n + 2 * n * q + 3 * q * q
        return 8 * (arrays * self.block + self.table_size * (self.tables == "shared"))

    def near_traffic(self) -> dict[str, int]:
        """Count the bytes that the block of an element reads and writes in near memory, each thread's own counted."""
        n, q = self.modes, self.points
        tables = 4 * n * n * q + 4 * n * q * q + 2 * q * q * self.affine
        arrays = n * n + n * n * q + 4 * n * q + 2 * n * q * q + 3 * q * q + 3 * n * q * q + 2 * n * n * q
        moved = {"shared": 8 * arrays, "L1": 0}
        if self.tables == "shared":
            moved["shared"] += 8 * (tables + self.table_size)
        elif self.tables == "global":
            moved["L1"] += 8 * tables
        return moved

    def constants(self) -> dict[str, Any]:
        """Tell the constants of quads.h."""
        return {
            "N1": self.modes,
            "Q": self.points,
            "BLOCK_AN_ELEMENT": self.block,
            "THREADS": self.threads,
            "TABLES": self.tables.upper(),
            "STRIDE": self.stride,
            "AFFINE": self.affine,
            "LOOP": '_Pragma("unroll")' if self.block or self.modes**2 <= UNROLLED else "",
        }

    def source(self) -> str:
        """Source of the kernel."""
        return filled("quads/quads.h", **self.constants())


# Name -> block, stride, tables. Blocks have the layout of stride 1, as in the paper.
VARIANTS: dict[str, tuple[bool, int, str]] = {
    **{f"thread, stride {s}, {where}": (False, s, where) for s, where in product((1, WARP), MEMORIES)},
    **{f"block, {where}": (True, 1, where) for where in MEMORIES},
}
