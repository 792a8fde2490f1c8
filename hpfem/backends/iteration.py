"""What a device offers that makes the iterations of conjugate gradients without its host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol


class Stop(IntEnum):
    """Why conjugate gradients stopped on a device."""

    RUNNING, CONVERGED, PRECONDITIONER, NOT_FINITE, OPERATOR, EXHAUSTED = range(6)


class ConjugateVectors(Protocol):
    """Vectors and scalars of conjugate gradients that stay on a device; its methods do not wait for it.

    x, r, p, q [n] are solution, residual, direction and its product; `partials` are for the sums of p.q, in float64;
    `stop` is the address of a number on the device that is zero while it iterates.
    """

    x: Any
    r: Any
    p: Any
    q: Any
    partials: Any
    stop: Any

    def begin(self, scale: float, tolerance: float, most: int) -> None:
        """Begin a solve from x and r as they are now, with at most so many iterations."""

    def copy_residual(self, out: Any, taken: Any) -> None:
        """Let `update_residual` also write r to `out`, of any type, zero where `taken` is not true (None: it is)."""

    def measure_product(self, q: Any) -> None:
        """Make the sums of a product that came without them; q [n]."""

    def update_residual(self) -> None:
        """After a product: r -= alpha q."""

    def update_direction(self, z: Any = None, free: Any = None, agree: Callable[[], Any] | None = None) -> None:
        """After `update_residual`, and at the start: x += alpha p, p = z + beta p; z [n], of any type, is r where it is
        not `free` [n], and until `agree` was called known only to those who own its entries.
        """

    def stop_if_done(self) -> None:
        """After `update_residual`, and at the start: if the iterations end here, x += alpha p, else nothing."""

    def finish(self) -> None:
        """Wait for all launched work."""

    def read(self) -> Any:
        """Request the scalars, without waiting."""


class DeviceIteration(ABC):
    """The tools of a device that iterates without its host: scalars on the device, and graphs of launches."""

    # The restriction of such a device also takes an array for sums, the address of a number that stops it, and what
    # results are added to.

    @abstractmethod
    def conjugate_vectors(self, x: Any, r: Any, inverse: Any, blocks: int | None) -> ConjugateVectors:
        """Make the vectors of solves beside x and r; x, r, inverse [n]."""

    @abstractmethod
    def shared(self, sharing: Any) -> DeviceIteration | None:
        """Make the tools for vectors that processes share; collective."""

    @abstractmethod
    def capture(self, step: Callable[[], None], count: int, what: str) -> Any:
        """Capture the launches of some steps; nothing runs."""
