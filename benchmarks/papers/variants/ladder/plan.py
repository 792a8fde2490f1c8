"""The rungs of the ladders: which switches of ladder.h each has on, and what its kernel takes of shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..gpu import filled

# Problem -> whether nodes are interpolated to other points, and whether the operator differentiates.
PROBLEMS = {"BP1.0": (True, False), "BP3.5": (False, True), "BP3.0": (True, True)}
# Threads -> the rungs from below, each of which has the switches of all before it; names -> switches.
COLUMNS, POINTS = "2-D threads", "3-D threads"
LADDERS: Mapping[str, Mapping[str, str]] = {
    COLUMNS: {
        "global scratch": "",
        "shared memory": "SHARED",
        "registers": "REGISTERS",
        "padding": "PADDED",
        "unrolling": "UNROLLED",
        "fewer barriers": "FEW_BARRIERS",
        "symmetry": "SYMMETRIC",
    },
    POINTS: {  # in the paper's order
        "global scratch": "",
        "unrolling": "UNROLLED",
        "registers": "REGISTERS",
        "shared memory": "SHARED",
        "padding": "PADDED",
        "fewer barriers": "FEW_BARRIERS",
    },
}
# Threads of a block at most.
MOST_THREADS = 1024


@dataclass(frozen=True)
class Rung:
    """A rung of a ladder at an order."""

    problem: str  # in `PROBLEMS`
    threads: str  # `COLUMNS` or `POINTS`
    name: str  # in `LADDERS`
    order: int

    @property
    def switches(self) -> set[str]:
        """What is switched on."""
        rungs = list(LADDERS[self.threads])
        return {LADDERS[self.threads][name] for name in rungs[: rungs.index(self.name) + 1]}

    @property
    def nodes(self) -> int:
        """Nodes along a direction, Nq."""
        return self.order + 1

    @property
    def points(self) -> int:
        """Points along a direction."""
        return self.nodes + PROBLEMS[self.problem][0]

    @property
    def block(self) -> int:
        """Threads of a block."""
        return int(self.points ** (2 if self.threads == COLUMNS else 3))

    @property
    def pitch(self) -> int:
        """Distance of rows in shared memory."""
        return self.points | ("PADDED" in self.switches)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        on, plane = self.switches, self.points * self.pitch
        interpolates, differentiates = PROBLEMS[self.problem]
        element = self.points * plane
        if "SHARED" not in on:
            arrays = 0
        elif self.threads == POINTS:
            arrays = element * (1 if "FEW_BARRIERS" not in on else 4 if differentiates else 2)
        elif "FEW_BARRIERS" in on:
            arrays = element * (3 if differentiates else 1)
        else:
            arrays = plane * (3 if differentiates else 2)
        return 8 * (plane * (interpolates + differentiates) + arrays)

    @property
    def shared_traffic(self) -> int:
        """Bytes that a block reads from shared memory and writes there, each thread's own counted."""
        interpolates, differentiates = PROBLEMS[self.problem]
        moved = 0
        if interpolates:
            moved += self.points * self.nodes + self._interpolation
        if differentiates:
            moved += self.points**2 + self.points**3 * self._at_point
        if not differentiates and self.threads == POINTS and "SHARED" in self.switches:
            moved += 2 * self.points**3  # values are scaled where they are
        return 8 * moved

    @property
    def _interpolation(self) -> int:
        """Numbers that interpolation and its transpose move: entries of the table, and what they multiply."""
        on, n, q = self.switches, self.nodes, self.points
        products = n**3 * q + n**2 * q**2 + n * q**3  # of each of the two
        if "SHARED" not in on:
            return 2 * products
        if self.threads == POINTS:  # the first reads global memory, as the last writes it
            there, back = n**2 * q**2 + n * q**3, products
            return 2 * products + there + back + (n**2 * q + n * q**2 + q**3) + (n * q**2 + n**2 * q) + self._sums
        if "FEW_BARRIERS" not in on:
            return 2 * products + 2 * (n**2 * q**2 + n * q**3) + (n**2 * q + n * q**2) + (q**3 + n * q**2)
        rows = [(size + 1) // 2 if "SYMMETRIC" in on else size for size in (q, n)]
        entries = (n**2 + n * q + q**2) * (rows[0] * n + rows[1] * q)
        return entries + 2 * (2 * n**2 * q + 2 * n * q**2)

    @property
    def _sums(self) -> int:
        """Results at the points that threads of points write before they are projected."""
        return self.points**3 if PROBLEMS[self.problem][1] else 0

    @property
    def _at_point(self) -> int:
        """Numbers that differentiation and its transpose move, for each point."""
        on, q = self.switches, self.points
        if "SHARED" not in on:
            return 6 * q  # entries of D
        if self.threads == POINTS:
            return 12 * q + 4 + (not PROBLEMS[self.problem][0])  # values are stored first
        if "FEW_BARRIERS" in on:  # of D a column takes six halves or wholes
            return 15 + 6 * ((q + 1) // 2 if "SYMMETRIC" in on else q)
        return 10 * q + 3

    def constants(self) -> dict[str, Any]:
        """Tell the constants of ladder.h."""
        on = self.switches
        interpolates, differentiates = PROBLEMS[self.problem]
        return {
            "N": self.nodes,
            "Q": self.points,
            "INTERPOLATES": interpolates,
            "DIFFERENTIATES": differentiates,
            "THREAD_A_POINT": self.threads == POINTS,
            "PADDED": self.pitch > self.points,
            **{name: name in on for name in ("SHARED", "REGISTERS", "FEW_BARRIERS", "SYMMETRIC")},
            "LOOP": '_Pragma("unroll")' if "UNROLLED" in on else "",
        }

    def source(self) -> str:
        """Source of the kernel."""
        return filled("ladder/ladder.h", **self.constants())
