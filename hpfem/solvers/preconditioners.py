"""Preconditioners by name: functions r -> M^-1 r of global vectors, on the device of the operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpfem.shapes.arguments import flag, instance, name_of

from ..assembly import C0Space, GlobalOperator
from ..backends import choose_backend
from ..backends.vectors import VectorSpace
from ..errors import NotFinite, NotSuitable, SolverError
from ..memory import every
from ..support.communicator import Communicator
from ..support.log import report_once, warn
from .breakdown import BadPreconditioner
from .multigrid import Multigrid

Preconditioner = Callable[[Any], Any]

NAMES = ("auto", "none", "jacobi", "multigrid")
# Iterations by digit with the diagonal from which on multigrid is faster where its set-up serves many systems: it takes
# one or two, of some seven applications each.
_DIAGONAL = 15


class Jacobi:
    """Division by a diagonal, whose inverse is an array [n] on the device of the vectors."""

    name = "jacobi"

    def __init__(self, inverse: Any, vectors: VectorSpace) -> None:
        self.inverse, self.vectors = inverse, vectors

    def __call__(self, r: Any) -> Any:
        """Apply to a residual."""
        return r * self.inverse


def jacobi(A: GlobalOperator, definite: bool = True) -> Jacobi:
    """Division by the diagonal, which is made without assembling."""
    diagonal = A.diagonal_on_device() if definite else _positive_diagonal(A)
    finite, on_all = A.vectors.xp.isfinite(diagonal), A.vectors.comm.all
    if not on_all(every(finite & (diagonal > 0))):
        if not on_all(every(finite)):
            raise NotFinite("the diagonal of the operator is not finite; look at the coefficients")
        raise SolverError("the diagonal of the operator is not positive; the operator is not positive definite")
    return Jacobi((1.0 / diagonal).astype(A.dtype, copy=False), A.vectors)


def _positive_diagonal(A: GlobalOperator) -> Any:
    diagonal, xp = A.diagonal_on_device(elliptic=True), A.vectors.xp
    if A.vectors.comm.all(every(diagonal > 0)):
        return diagonal
    return without_zeros(xp.where(diagonal > 0, diagonal, A.diagonal_on_device()), xp)


def without_zeros(diagonal: Any, xp: Any = np) -> Any:
    """Absolute values of a diagonal, with 1 for zeros; diagonal [n] -> [n]."""
    return xp.where(diagonal == 0, xp.ones_like(diagonal), abs(diagonal))


def checked_preconditioner(name: Any, none: bool = False) -> Any:
    """Check a preconditioner: a function, its name or, if `none`, None for "none"."""
    if callable(name):
        return name
    if none and name is None:
        return "none"
    return name_of(name, NAMES, "preconditioner")


def taken(name: str, c0: C0Space, components: int = 1, symmetric: bool = True) -> str:
    """What "auto" stands for: multigrid, if possible, from the size on where a single solve with set-up gains by it."""
    if name != "auto":
        return name
    space = c0.space
    limit = choose_backend(space.backend).solve_sizes.limit(space.mesh.dim, max(space.orders.values()), symmetric)
    return "multigrid" if components * c0.whole_size > limit else "jacobi"


def make_preconditioner(name: str, A: GlobalOperator, *, definite: bool = True) -> tuple[Preconditioner | None, str]:
    """Make a preconditioner.

    Parameters
    ----------
    name : str
        "none", "jacobi", "multigrid" (`Multigrid`), or "auto": multigrid where it is possible, but jacobi for problems
        so small that a single solve takes less time with it (`taken`).
    A : GlobalOperator
    definite : bool
        Whether the operator is symmetric positive definite. For another operator, multigrid uses its diffusion and
        reaction (`GlobalOperator.elliptic_part`), and jacobi their diagonal, so that the preconditioner is symmetric
        positive definite.

    Returns
    -------
    callable or None
    str
        Name of the preconditioner that "auto" chose.

    Raises
    ------
    ArgumentError
        For an unknown name.
    NotSuitable
        If "multigrid" is asked for and not possible.
    SolverError
        If the operator is singular on a part of the mesh.
    """
    name = checked_preconditioner(instance(name, str, "the name of a preconditioner"))
    instance(A, GlobalOperator, "the operator of a preconditioner")
    definite = flag(definite, "definite")
    if name == "none":
        return None, name
    if taken(name, A.c0, A.components, definite or A.symmetric) == "multigrid":
        try:
            return Multigrid(A if definite else A.elliptic_part()), "multigrid"
        except (NotSuitable, SolverError) as reason:
            if name == "multigrid" or (definite and isinstance(reason, SolverError)):
                raise
            report_once(f"preconditioner/{reason}", f"preconditioner: jacobi instead of multigrid: {reason}")
    return jacobi(A, definite), "jacobi"


def instead_of_multigrid(solve: Callable[[], Any], used: str, make: Callable[[str], None], comm: Communicator) -> Any:
    """Solve; again with the diagonal where multigrid is found not to be positive definite, as all processes find.

    It is not where the operator's condition is beyond the type inside the cycle.
    """
    try:
        return solve()
    except BadPreconditioner as reason:
        if used != "multigrid":
            raise
        found = str(reason).partition(";")[0]
    if comm.rank == 0:
        warn(f"{found}: multigrid does not suit these coefficients, the Jacobi preconditioner is used instead")
    make("jacobi")
    return solve()


class Measured:
    """The preconditioner M of systems that come one after the other: a function, one by name, or "measured", which is
    multigrid from when the diagonal takes many iterations. Where multigrid does not suit, the diagonal serves from then
    on.
    """

    M: Any = None
    used, rate = "none", 0.0  # the last system took so many iterations by digit

    def __init__(self, asked: Any, maker: Callable[..., Any] = make_preconditioner) -> None:
        self.asked, self.maker = asked, maker

    def make(self, A: Any, definite: bool = True, name: str | None = None) -> None:
        """Make it for a system, of another name from now on if one is given."""
        self.asked = name or self.asked
        if callable(self.asked):
            self.M, self.used = self.asked, "user"
            return
        measured = "multigrid" if self.rate > _DIAGONAL else "jacobi"
        name = measured if self.asked == "measured" else self.asked
        try:
            self.M, self.used = self.maker(name, A, definite=definite)
        except NotSuitable:
            if self.asked != "measured":
                raise
            self.make(A, definite, "jacobi")

    def solve(self, run: Callable[[Any], Any], comm: Communicator, A: Any, definite: bool = True) -> Any:
        """What a function makes with it."""
        return instead_of_multigrid(lambda: run(self.M), self.used, partial(self.make, A, definite), comm)


def each_component(functions: Sequence[Callable[[Any], Any]], vectors: VectorSpace) -> Callable[[Any], Any]:
    """Apply to each component of a vector [components * size] its function of vectors [size]."""
    if len(functions) == 1:
        return functions[0]
    if all(function is functions[0] for function in functions) and isinstance(functions[0], Jacobi):
        return Jacobi(vectors.xp.tile(functions[0].inverse, len(functions)), vectors)
    return partial(_applied, functions, vectors)


def _applied(functions: Sequence[Callable[[Any], Any]], vectors: VectorSpace, vector: Any) -> Any:
    rows = vector.reshape(len(functions), -1)
    return vectors.xp.concatenate([function(row) for function, row in zip(functions, rows, strict=True)])
