"""Time integrators as data: coefficients of Runge-Kutta and backward differentiation methods, and where they are from.

A method is a row of `METHODS`. Explicit and diagonally implicit ones have a (below and on the diagonal), b if it is not
the last row of a, and with an embedded method, its b; low-storage ones have the two columns of Williamson's form; the
others have alpha alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Method:
    """A time integrator; `low` are A and B of q = A q + h f(u), u = u + B q; `alpha` belong to u_n+1, u_n, ...."""

    order: int
    a: Rows = ()
    b: tuple[float, ...] = ()
    embedded: tuple[float, ...] = ()  # of order - 1
    low: Rows = ()
    alpha: tuple[float, ...] = ()
    first: str = ""  # the method of the first steps
    second: bool = False  # for M u'' + r(t, u) = 0

    @property
    def implicit(self) -> bool:
        """Whether a step solves systems."""
        return not self.second and (bool(self.alpha) or any(len(row) > i for i, row in enumerate(self.a)))

    def matrices(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Runge-Kutta's a, [stages, stages], and b."""
        if not self.low:
            a = np.zeros((len(self.a),) * 2)
            for i, row in enumerate(self.a):
                a[i, : len(row)] = row
            return a, np.array(self.b or a[-1])
        n = len(self.low[0])
        rows, q = np.zeros((n + 1, n)), np.zeros(n)
        for i, (A, B) in enumerate(zip(*self.low, strict=True)):
            q = A * q + np.eye(n)[i]
            rows[i + 1] = rows[i] + B * q
        return rows[:-1], rows[-1]

    def reach(self) -> float:
        """Radius of the largest half disc left of 0, less 10 degrees at both sides, where the method is stable."""
        if self.second:
            return 2.0
        a, b = self.matrices()
        z = np.outer(np.linspace(0.02, 12, 600), np.exp(1j * np.linspace(5 / 9 * np.pi, np.pi, 17)))
        powers, growth = np.ones(len(b)), np.ones_like(z)
        for k in range(1, len(b) + 1):
            growth += z**k * (b @ powers)
            powers = a @ powers
        stable = np.all(abs(growth) <= 1 + 1e-9, axis=1)
        return float(abs(z[np.argmin(stable) - 1, 0])) if stable[0] else 0.0


def _row(text: str) -> tuple[float, ...]:
    """Numbers as they are printed in papers."""
    return tuple(float(Fraction(number)) for number in text.split())


def _lower(text: str) -> Rows:
    """Rows of a, one a line, the first of which may be empty."""
    return tuple(_row(line) for line in text.split("\n"))


_HALF = 1 - sqrt(0.5)

METHODS = {
    # J. H. Williamson: Low-storage Runge-Kutta schemes, J. Comput. Phys. 35 (1980) 48-56.
    "low3": Method(3, low=(_row("0 -5/9 -153/128"), _row("1/3 15/16 8/15"))),
    # M. H. Carpenter, C. A. Kennedy: Fourth-order 2N-storage Runge-Kutta schemes, NASA TM-109112 (1994).
    "low4": Method(
        4,
        low=(
            _row("""0 -567301805773/1357537059087 -2404267990393/2016746695238 -3550918686646/2091501179385
                -1275806237668/842570457699"""),
            _row("""1432997174477/9575080441755 5161836677717/13612068292357 1720146321549/2090206949498
                3134564353537/4481467310338 2277821191437/14882151754819"""),
        ),
    ),
    # C.-W. Shu, S. Osher: Efficient implementation of essentially non-oscillatory shock-capturing schemes, J. Comput.
    # Phys. 77 (1988) 439-471; the embedded one is theirs of second order.
    "ssp3": Method(3, ((), (1,), (1 / 4, 1 / 4)), _row("1/6 1/6 2/3"), (1 / 2, 1 / 2, 0)),
    # J. F. B. M. Kraaijevanger: Contractivity of Runge-Kutta methods, BIT 31 (1991) 482-528.
    "ssp43": Method(3, _lower("\n1/2\n1/2 1/2\n1/6 1/6 1/6"), _row("1/6 1/6 1/6 1/2"), (1 / 4,) * 4),
    # P. Bogacki, L. F. Shampine: A 3(2) pair of Runge-Kutta formulas, Appl. Math. Lett. 2 (1989) 321-325.
    "bs3": Method(3, _lower("\n1/2\n0 3/4\n2/9 1/3 4/9"), embedded=_row("7/24 1/4 1/3 1/8")),
    # J. R. Dormand, P. J. Prince: A family of embedded Runge-Kutta formulae, J. Comput. Appl. Math. 6 (1980) 19-26.
    "dp5": Method(
        5,
        _lower("""
            1/5
            3/40 9/40
            44/45 -56/15 32/9
            19372/6561 -25360/2187 64448/6561 -212/729
            9017/3168 -355/33 46732/5247 49/176 -5103/18656
            35/384 0 500/1113 125/192 -2187/6784 11/84"""),
        embedded=_row("5179/57600 0 7571/16695 393/640 -92097/339200 187/2100 1/40"),
    ),
    # R. Alexander: Diagonally implicit Runge-Kutta methods for stiff o.d.e.'s, SIAM J. Numer. Anal. 14 (1977).
    "sdirk2": Method(2, ((_HALF,), (1 - _HALF, _HALF))),
    # C. A. Kennedy, M. H. Carpenter: Additive Runge-Kutta schemes for convection-diffusion-reaction equations, Appl.
    # Numer. Math. 44 (2003) 139-181: the implicit halves of ARK3(2)4L[2]SA and ARK4(3)6L[2]SA, of stage order 2.
    "esdirk3": Method(
        3,
        _lower("""
            1767732205903/4055673282236 1767732205903/4055673282236
            2746238789719/10658868560708 -640167445237/6845629431997 1767732205903/4055673282236
            1471266399579/7840856788654 -4482444167858/7529755066697 11266239266428/11593286722821 \
            1767732205903/4055673282236"""),
        embedded=_row("""2756255671327/12835298489170 -10771552573575/22201958757719 9247589265047/10645013368117
            2193209047091/5459859503100"""),
    ),
    "esdirk4": Method(
        4,
        _lower("""
            1/4 1/4
            8611/62500 -1743/31250 1/4
            5012029/34652500 -654441/2922500 174375/388108 1/4
            15267082809/155376265600 -71443401/120774400 730878875/902184768 2285395/8070912 1/4
            82889/524892 0 15625/83664 69875/102672 -2260/8211 1/4"""),
        embedded=_row(
            "4586570599/29645900160 0 178811875/945068544 814220225/1159782912 -3700637/11593932 61727/225920"
        ),
    ),
    # C. F. Curtiss, J. O. Hirschfelder: Integration of stiff equations, Proc. Natl. Acad. Sci. 38 (1952) 235-243.
    "bdf2": Method(2, alpha=(3 / 2, -2, 1 / 2), first="sdirk2"),
    "bdf3": Method(3, alpha=(11 / 6, -3, 3 / 2, -1 / 3), first="esdirk3"),
    # L. Verlet: Computer experiments on classical fluids, Phys. Rev. 159 (1967) 98-103.
    "leapfrog": Method(2, alpha=(1, -2, 1), second=True),
}
