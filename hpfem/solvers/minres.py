"""The minimal residual method for symmetric operators, definite or not; the preconditioner is definite [Paige].

Lanczos' method makes vectors v with A z = v' + (delta / gamma) v + (gamma / gamma_before) v_before, z = M v / gamma;
rotations solve the least-squares problem of the tridiagonal matrix. It makes the residual small in the norm of M; the
residual itself is a combination of the one before and the new v, so that its norm is known without a product. These
relations hold whatever M does to rounding: M may compute in single precision.

The host needs four numbers an iteration, which it reads at once.
"""

from __future__ import annotations

from math import hypot, inf, isfinite, isnan, sqrt
from typing import Any

from ..backends.vectors import VectorSpace
from .breakdown import ROUNDING, bad_preconditioner, no_convergence, not_finite, singular
from .krylov import Iteration, Method, Timed, read_only, rounding

# Interval of iterations at which the rounding of A x is checked: where there is no solution x grows without end.
_OFTEN = 200


def _iterate(vectors: VectorSpace, A: Timed, M: Timed | None, x: Any, r: Any, run: Iteration) -> None:
    """Iterate on x and r in place, and add to the residuals."""
    residuals, name = run.residuals, run.name
    v, v_before = r * 1, r * 0
    w, w_before = r * 0, r * 0
    z = v if M is None else M(read_only(v))
    rr, rho = vectors.dots((r, r), (v, z))
    residuals.append(sqrt(rr) / run.scale)
    first = len(residuals) - 1
    gamma_before, eta = 1.0, sqrt(max(rho, 0.0))
    c, c_before, s, s_before = 1.0, 1.0, 0.0, 0.0
    while not residuals[-1] <= run.tol:
        done = len(residuals) - 1
        if isnan(residuals[-1]):
            raise not_finite(name, done)
        if done >= run.most:
            raise no_convergence(name, residuals[-1], run.tol, done)
        if rho == 0 and done > first:
            raise singular(name, residuals[-1], done)
        if not 0 < rho < inf:
            raise bad_preconditioner(name, rho, done)
        gamma = sqrt(rho)
        z = z / gamma
        p = A(read_only(z))
        delta = vectors.inner(p, z)
        v, v_before = p - v * (delta / gamma) - v_before * (gamma / gamma_before), v
        following = v if M is None else M(read_only(v))
        products = (vectors.inner(*pair) for pair in ((v, following), (r, v), (v, v)))
        diagonal, rho, rv, vv = vectors.numbers(delta, *products)
        if not isfinite(diagonal + rho + rv + vv):
            raise not_finite(name, done)
        gamma_after = sqrt(max(rho, 0.0))
        # The new column of the triangular matrix, and the rotation that makes it one.
        a0 = c * diagonal - c_before * s * gamma
        a1, a2, a3 = hypot(a0, gamma_after), s * diagonal + c_before * c * gamma, s_before * gamma
        if a1 == 0 or (done % _OFTEN == _OFTEN - 1 and residuals[-1] * run.scale <= ROUNDING * rounding(vectors, A, x)):
            raise singular(name, residuals[-1], done)
        c, c_before, s, s_before = a0 / a1, c, gamma_after / a1, s
        w, w_before = (z - w_before * a3 - w * a2) / a1, w
        vectors.combine((1.0, c * eta), (x, w), x)
        eta *= -s
        share = c * eta / gamma_after if gamma_after else 0.0
        r *= s**2
        vectors.combine((1.0, share), (r, v), r)
        rr = s**4 * rr + 2 * s**2 * share * rv + share**2 * vv
        residuals.append(sqrt(rr) / run.scale if rr >= 0 else 0.0)
        z, gamma_before = following, gamma
        run.advance(description=f"{name} {residuals[-1]:.1e}")


minres = Method("minres", True, _iterate)
