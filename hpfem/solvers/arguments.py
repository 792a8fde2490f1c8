"""What conjugate gradients are given: tolerances, vectors, and operators that must be symmetric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfem.shapes.arguments import integer, real, shown, takes

from ..assembly import GlobalOperator
from ..assembly.devices import array_module, as_vector, asymmetry
from ..errors import ArgumentError
from .breakdown import not_symmetric

# Applications of a function of the caller's before it is tested for symmetry.
DOUBTFUL = 50


def checked_limits(tol: float | None, most: int | None, name: str) -> tuple[Any, int | None]:
    """When to stop: the tolerance, and the number of iterations; None stays.

    Raises
    ------
    ArgumentError
        If they are no such numbers.
    """
    tol = None if tol is None else real(tol, f"the tolerance of {name}", above=0, below=1)
    return tol, None if most is None else integer(most, 0, f"the number of iterations of {name}")


def checked_vectors(rhs: Any, start: Any, name: str) -> tuple[Any, Any]:
    """Right-hand side and first guess as vectors of floats, where they are.

    Raises
    ------
    ArgumentError
        If they are no vectors of real numbers, or differ in size.
    """
    rhs = _vector(rhs, f"the right-hand side of {name}")
    if start is None:
        return rhs, None
    start = _vector(start, f"the first guess of {name}")
    if start.shape != rhs.shape:
        raise ArgumentError(f"{name}: the first guess has {len(start)} entries, the right-hand side {len(rhs)}")
    return rhs, start


def _vector(given: Any, what: str) -> Any:
    given = as_vector(given, what)
    if given.ndim != 1:
        raise ArgumentError(f"{what} must be an array [n], got {shown(given)}")
    return given


def checked_functions(apply: Any, precondition: Any, rhs: Any, name: str) -> None:
    """The operator and the preconditioner are functions, and the operator is symmetric as far as it says.

    Raises
    ------
    ArgumentError
        If they are no functions, or the operator is of another size.
    SolverError
        If it is a `GlobalOperator` of a form that is not symmetric.
    """
    if precondition is not None and not takes(precondition, rhs):
        raise ArgumentError(f"the preconditioner of {name} must be a function of vectors, got {shown(precondition)}")
    if not isinstance(apply, GlobalOperator):
        if not takes(apply, rhs):
            raise ArgumentError(f"the operator of {name} must be a function of vectors, got {shown(apply)}")
        return
    if apply.shape[1] != len(rhs):
        raise ArgumentError(f"{name}: the operator takes vectors of {apply.shape[1]} entries, b has {len(rhs)}")
    if not apply.symmetric:
        raise not_symmetric(name)


class Doubted:
    """A function x -> A x of the caller's, tested for symmetry at its `DOUBTFUL`th call: most solves end before.

    Parameters
    ----------
    function : callable
    name : str
        Of the solve, for the message.

    Raises
    ------
    SolverError
        From that call, if (u, A v) and (v, A u) differ for random u and v by more than rounding explains.
    """

    def __init__(self, function: Callable[[Any], Any], name: str) -> None:
        self.function, self.name, self.calls = function, name, 0

    def __call__(self, vector: Any) -> Any:
        """Apply."""
        self.calls += 1
        if self.calls == DOUBTFUL:
            self._check(vector)
        return self.function(vector)

    def _check(self, like: Any) -> None:
        module, rng = array_module(like), np.random.default_rng(0)
        u, v = (module.asarray(rng.standard_normal(len(like)), like.dtype) for _ in range(2))
        allowed = float(np.finfo(like.dtype).eps) ** 0.4 * min(float(u @ u), float(v @ v)) ** 0.5
        if asymmetry(self.function, u, v) > allowed:
            raise not_symmetric(self.name)


def name_of_preconditioner(precondition: Any) -> str:
    """What the record of a solve calls a preconditioner: "none", its own name, or "user"."""
    own = getattr(precondition, "name", "user")
    return "none" if precondition is None else own if isinstance(own, str) else "user"
