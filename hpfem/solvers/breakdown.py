"""Why conjugate gradients stop without a solution, in words."""

from __future__ import annotations

from ..errors import SolverError


def no_convergence(name: str, residual: float, tol: float, done: int) -> SolverError:
    """Too many iterations."""
    return SolverError(
        f"{name} did not converge: residual {residual:.2e}, wanted {tol:.1e}, after {done} iterations;"
        " allow more iterations, take a stronger preconditioner or a larger tolerance"
    )


def bad_preconditioner(name: str, rho: float, done: int) -> SolverError:
    """The residual's norm in the preconditioner is not positive."""
    return SolverError(
        f"{name}: the preconditioner is not positive definite (r.z = {rho:.3e} after {done} iterations);"
        " one that is made from the operator is not where lam < 0 makes that indefinite"
    )


def bad_operator(name: str, curvature: float, done: int) -> SolverError:
    """The direction's norm in the operator is not positive."""
    return SolverError(
        f"{name}: the operator is not positive definite (p.Ap = {curvature:.3e} after {done} iterations);"
        " lam must be >= 0, a diffusivity > 0, and a pure Neumann problem with lam = 0 has a constant to take out"
    )


def not_symmetric(name: str) -> SolverError:
    """The operator differs from its transpose."""
    return SolverError(
        f"{name}: the operator is not symmetric, and conjugate gradients take a symmetric one; SciPy solves it with"
        " x, failed = scipy.sparse.linalg.gmres(A, b, rtol=1e-10, restart=100), where A is the GlobalOperator (on the"
        " host) or a LinearOperator of the function"
    )


def not_finite(name: str, done: int) -> SolverError:
    """A scalar is infinite or no number."""
    return SolverError(f"{name}: a number is not finite after {done} iterations; look at the coefficients")
