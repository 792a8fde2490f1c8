"""Checks of the arguments of iterative methods: tolerances, vectors, and operators that must be symmetric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfem.shapes.arguments import integer, real, shown, takes

from ..assembly import GlobalOperator
from ..assembly.symmetry import asymmetry, random_pair
from ..backends.vectors import VectorSpace
from ..errors import ArgumentError
from .breakdown import not_symmetric

# Calls of a user's function before it is tested for symmetry.
_DOUBTFUL = 50


@dataclass(frozen=True, eq=False)
class Iteration:
    """When to stop, and the record of the iterations so far.

    Attributes
    ----------
    scale, tol : float
        Norm of the right-hand side, and the ratio to it at which to stop.
    most : int
        Number of iterations, with earlier ones.
    name : str
        For messages.
    advance : callable
        Steps of a progress bar.
    residuals : list of float
        Residuals of the earlier iterations, over `scale`; new ones are added.
    """

    scale: float
    tol: float
    most: int
    name: str
    advance: Callable[..., None]
    residuals: list[float]


def checked_limits(tol: float | None, most: int | None, name: str) -> tuple[Any, int | None]:
    """Check when to stop."""
    tol = None if tol is None else real(tol, f"the tolerance of {name}", above=0, below=1)
    return tol, None if most is None else integer(most, 0, f"the number of iterations of {name}")


def checked_vector(vectors: VectorSpace, given: Any, what: str) -> Any:
    """Take a vector of floats, where it is; given [n] -> [n]."""
    given = vectors.checked(given, what)
    if given.ndim != 1:
        raise ArgumentError(f"{what} must be an array [n], got {shown(given)}")
    return given


def checked_functions(apply: Any, precondition: Any, rhs: Any, name: str) -> None:
    """Check that operator and preconditioner are functions; rhs [n]."""
    if precondition is not None and not takes(precondition, rhs):
        raise ArgumentError(f"the preconditioner of {name} must be a function of vectors, got {shown(precondition)}")
    there = getattr(precondition, "vectors", None)
    if isinstance(there, VectorSpace) and not there.has(rhs):
        raise ArgumentError(
            f"{name}: the preconditioner is on {there.device.name}, the right-hand side is not; "
            "give A.vectors.from_host(b)"
        )
    if not isinstance(apply, GlobalOperator):
        if not takes(apply, rhs):
            raise ArgumentError(f"the operator of {name} must be a function of vectors, got {shown(apply)}")
        return
    if apply.shape[1] != len(rhs):
        raise ArgumentError(f"{name}: the operator takes vectors of {apply.shape[1]} entries, b has {len(rhs)}")


class Doubted:
    """A user's function x -> A x, tested for symmetry after some calls, before which most solves end.

    Parameters
    ----------
    function : callable
    vectors : VectorSpace
    name : str
        Of the solve, for the message.

    Raises
    ------
    SolverError
        From that call, if (u, A v) and (v, A u) differ for random u and v by more than rounding explains.
    """

    def __init__(self, function: Callable[[Any], Any], vectors: VectorSpace, name: str) -> None:
        self.function, self.vectors, self.name, self.calls = function, vectors, name, 0

    def __call__(self, vector: Any) -> Any:
        """Apply."""
        self.calls += 1
        if self.calls == _DOUBTFUL:
            self._check(len(vector), vector.dtype)
        return self.function(vector)

    def _check(self, n: int, dtype: Any) -> None:
        vectors = self.vectors
        u, v = random_pair(vectors, n, dtype)
        allowed = float(np.finfo(dtype).eps) ** 0.4 * min(vectors.dot(u, u), vectors.dot(v, v)) ** 0.5
        if asymmetry(vectors, self.function, u, v) > allowed:
            raise not_symmetric(self.name)


def name_of_preconditioner(precondition: Any) -> str:
    """Name of a preconditioner in the record of a solve."""
    own = getattr(precondition, "name", "user")
    return "none" if precondition is None else own if isinstance(own, str) else "user"
