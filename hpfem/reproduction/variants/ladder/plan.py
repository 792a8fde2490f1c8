"""The rungs of the ladders: which switches of ladder.h each has on, and what its kernel takes of shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..gpu import filled

# Threads -> the rungs from below, each of which has the switches of all before it; names -> switches.
COLUMNS, NODES = "2-D threads", "3-D threads"
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
    NODES: {  # in the paper's order
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
    """A rung of a ladder at an order.

    Attributes
    ----------
    threads : str
        `COLUMNS` or `NODES`.
    name : str
        In `LADDERS`.
    points : int
        Nq, along a direction.
    """

    threads: str
    name: str
    points: int

    @property
    def switches(self) -> set[str]:
        """What is switched on."""
        rungs = list(LADDERS[self.threads])
        return {LADDERS[self.threads][name] for name in rungs[: rungs.index(self.name) + 1]}

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
        element = self.points * plane
        if self.threads == NODES:
            arrays = 4 * element if "FEW_BARRIERS" in on else element
        else:
            arrays = 3 * element if "FEW_BARRIERS" in on else 3 * plane
        return 8 * (plane + arrays * ("SHARED" in on))

    @property
    def shared_traffic(self) -> int:
        """Bytes that a block reads from shared memory and writes there, each thread's own counted."""
        on, n = self.switches, self.points
        at_node = 6 * n  # entries of D
        if self.threads == NODES:
            at_node += (6 * n + 4) * ("SHARED" in on)
        elif "FEW_BARRIERS" in on:  # of D a column takes six halves or wholes
            at_node = 15 + 6 * ((n + 1) // 2 if "SYMMETRIC" in on else n)
        else:
            at_node += (4 * n + 3) * ("SHARED" in on)
        return 8 * (n**2 + n**3 * at_node)

    def constants(self) -> dict[str, Any]:
        """Tell the constants of ladder.h.

        Returns
        -------
        dict
            Rungs that differ in nothing at this order have the same.
        """
        on = self.switches
        return {
            "NQ": self.points,
            "THREAD_A_NODE": self.threads == NODES,
            "PADDED": self.pitch > self.points,
            **{name: name in on for name in ("SHARED", "REGISTERS", "FEW_BARRIERS", "SYMMETRIC")},
            "LOOP": '_Pragma("unroll")' if "UNROLLED" in on else "",
        }

    def source(self) -> str:
        """Source of the kernel.

        Returns
        -------
        str
        """
        return filled("ladder/ladder.h", **self.constants())
