"""Preconditioned conjugate gradients on host or device arrays [HS].

A device that iterates without its host keeps the scalars too (`device_cg`). The host reads them some iterations later,
but the solution, the number of iterations and the residuals are those of the iteration that met the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, isnan, sqrt
from typing import Any

from ..assembly import GlobalOperator
from ..backends.passes import DIRECTION, RESIDUAL
from ..backends.vectors import VectorSpace
from .breakdown import bad_operator, bad_preconditioner, no_convergence, not_finite
from .device_cg import KEPT, iterate_on_device
from .info import SolveInfo
from .krylov import Iteration, Method, Timed, read_only
from .preconditioners import Jacobi


def cg(
    apply: Callable[[Any], Any] | GlobalOperator,
    rhs: Any,
    precondition: Callable[[Any], Any] | None = None,
    *,
    tol: float | None = None,
    max_iterations: int | None = None,
    start: Any | None = None,
    name: str = "CG",
    bar: bool = True,
    shared: VectorSpace | None = None,
) -> tuple[Any, SolveInfo]:
    """Solve A x = b with a symmetric positive definite A.

    Parameters
    ----------
    apply : GlobalOperator or callable
        An operator with vectors on its own device, which is fastest on a GPU, where it keeps vectors and CUDA graphs
        for the next solve if there are up to 2e7 unknowns a process; or a function x -> A x that returns a new array.
    rhs : array, [n]
        b, an array of NumPy or of a device; float64 or float32 on a GPU.
    precondition : callable, optional
        r -> M^-1 r, a new array or r itself; symmetric positive definite. On a GPU it is called a few times more often
        than there are iterations.
    tol : float, optional
        Ratio of the residual's norm to that of b at which to stop, > 0. By default 1e-12, or 1.2e-6 in float32, or the
        ratio that rounding allows if that is at most a hundred times larger.
    max_iterations : int, optional
        10 n + 100 when left out.
    start : array, [n], optional
        First guess; zero when left out.
    name : str
        For messages and the progress bar.
    bar : bool
        Whether to show one; do not if a solve is one of many.
    shared : VectorSpace, optional
        `C0Space.vectors_on`, if `apply` is a function and processes share its vectors; a GlobalOperator knows them.

    Returns
    -------
    x : array, [n]
    SolveInfo

    Raises
    ------
    SolverError
        If it does not converge, the operator is not symmetric, it or the preconditioner is not positive definite, a
        number is not finite, the true residual misses the tolerance by more than rounding explains, or x is out of the
        type's range.
    ArgumentError
        For bad tolerances or numbers of iterations, vectors of another type than float64 and float32, or functions that
        write into their argument or do not return vectors.

    Warns
    -----
    HpfemWarning
        If rounding keeps the true residual above the tolerance.
    """
    options: dict[str, Any] = {"start": start, "name": name, "bar": bar}
    options["shared"] = None if isinstance(apply, GlobalOperator) else shared
    return CG(apply, rhs, precondition, tol=tol, max_iterations=max_iterations, **options)


def _iterate(vectors: VectorSpace, A: Timed, M: Timed | None, x: Any, r: Any, run: Iteration) -> None:
    """Iterate where the vectors are, with the scalars there if possible, else on the host."""
    if vectors.iteration is None:
        _iterate_on_host(vectors, A, M, x, r, run)
        return
    operator = A.operator
    product = None if operator is None else operator.product_on(operator.device)
    if operator is None or product is None or not product.alone or product.dtype != r.dtype:
        iterate_on_device(vectors, A, None, M, x, r, run)
        return
    few = operator.components * operator.c0.whole_size <= KEPT * vectors.comm.size
    iterate_on_device(vectors, A, product, M, x, r, run, few)


def _iterate_on_host(vectors: VectorSpace, A: Timed, M: Timed | None, x: Any, r: Any, run: Iteration) -> None:
    """Iterate with the scalars on the host, x and r in place, and add to the residuals."""
    first, name, inverse = len(run.residuals), run.name, list[Any]()
    if M is not None and isinstance(M.function, Jacobi):
        inverse.append(vectors.xp.asarray(M.function.inverse, r.dtype))
    residual, direction = RESIDUAL[len(inverse)], DIRECTION[len(inverse)]
    p, before = r * 1, inf
    seen_r, seen_p = read_only(r), read_only(p)
    rr, *of_diagonal = vectors.dots((r, r), *[(r, own * r) for own in inverse])
    while True:
        run.residuals.append(sqrt(rr) / run.scale)
        size, done = run.residuals[-1], len(run.residuals) - 1
        if done > first:
            run.advance(description=f"{name} {size:.1e}")
        if size <= run.tol:
            return
        if isnan(size):
            raise not_finite(name, done)
        if done >= run.most:
            raise no_convergence(name, size, run.tol, done)
        z, rho = r, of_diagonal[0] if of_diagonal else rr
        if M is not None and not inverse:
            z = M(seen_r)
            rho = vectors.dot(r, z)
        if not 0 < rho < inf:
            raise bad_preconditioner(name, rho, done)
        vectors.run(direction, (p, z, *inverse), (rho / before,))
        q = A(seen_p)
        curvature = vectors.dot(p, q)
        if not 0 < curvature < inf:
            raise bad_operator(name, curvature, done) if isfinite(curvature) else not_finite(name, done)
        rr, *of_diagonal = vectors.run(residual, (x, p, r, q, *inverse), (rho / curvature,))
        before = rho


CG = Method("cg", True, _iterate)
