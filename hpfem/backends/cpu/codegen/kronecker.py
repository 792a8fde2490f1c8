"""Affine hexes and quads by sparse matrices of one direction, one element per lane (`hpfem.forms.kronecker`).

Lines of coefficients along the first direction are multiplied by all S_ab; then, plane by plane, lines along the last
direction by what the terms have there, which sums up all that have S_ab in the second direction; then lines along that.
Quads have one plane and no line between.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpfem.shapes.arrays import Floats

from ....forms.form import BlockProblem
from ....forms.kronecker import check_kronecker, functions_of, kronecker_flops, matrices_of_directions
from .affine import Group, factors_of_terms, write_affine
from .indexed import Indexed
from .ir import Builder, Program
from .line import Fiber, matrix_product, summed_products

# Operations in the time in which a number is handed on from one direction to the next.
_HANDED_ON = 9.0


def kronecker_cost(problem: BlockProblem) -> float:
    """Operations and what is handed on."""
    check_kronecker(problem)
    handed_on = (4 if problem.form.test_gradient else 1) * (problem.shape.dim - 1) * problem.n_modes
    return kronecker_flops(problem) + _HANDED_ON * handed_on


def write_kronecker(problem: BlockProblem, lanes: int, prefetch: int = 0, indexed: Indexed = None) -> Program:
    """Write the kernel of a problem; see `write_affine`."""
    check_kronecker(problem)
    S = matrices_of_directions(problem.tabulation, problem.form.test_gradient)
    N, n, arrays, solid = functions_of(problem), problem.n_modes, S.shape[1], len(S) == 3
    plane = n // N
    # Vectors from one plane to the next: an odd number, so that lines do not meet in few sets of the cache.
    pitch = plane | 1 if solid else plane
    # The lines T of all planes of a hex, and R of one plane.
    sizes = [N * pitch] * (arrays * solid) + [plane | 1 if solid else n] * arrays

    def product_of(group: Group) -> None:
        b = group.b
        starts = [b.at(group.scratch, (sum(sizes[:k]), 1)) for k in range(len(sizes))]
        T, R = starts[:-arrays], starts[-arrays:]
        terms = _Terms(b, group.scales, len(S), arrays > 1)
        with b.each(plane) as line:
            group.prefetch.fetch()
            u = b.load_fiber(b.at(group.modes, (line, 1)), plane, N)
            lines = [matrix_product(b, matrix, u) for matrix in S[0]]
            for target, fiber in zip(starts[:arrays], lines if solid else terms.flat(lines), strict=True):
                b.store_fiber(fiber, b.at(target, (line, 1)), pitch)
        if not solid:
            with b.each(N) as i:
                rows = [b.load_fiber(b.at(start, (i, N)), 1, N) for start in R]
                b.store_fiber(summed_products(b, S[1], rows), b.at(group.results, (i, N)), 1)
            return
        with b.loop(N) as i:
            with b.each(N) as j:
                group.prefetch.fetch()
                given = [b.load_fiber(b.at(start, (i, pitch), (j, N)), 1, N) for start in T]
                for target, fiber in zip(R, terms.solid(S[2], given), strict=True):
                    b.store_fiber(fiber, b.at(target, (j, N)), 1)
            with b.each(N) as k:
                columns = [b.load_fiber(b.at(start, (k, 1)), N, N) for start in R]
                b.store_fiber(summed_products(b, S[1], columns), b.at(group.results, (i, plane), (k, 1)), N)

    return write_affine(problem, lanes, prefetch, indexed, sum(sizes), product_of)


class _Terms:
    """The factors G_ij and w of an element, as far as the form has them; see `factors_of_terms`."""

    def __init__(self, b: Builder, scales: dict[int, str], dim: int, gradients: bool) -> None:
        self._b, (self._w, self._G) = b, factors_of_terms(scales, dim, gradients)

    def flat(self, t: Sequence[Fiber]) -> list[Fiber]:
        """R_ab of a line of a quad along its first direction, from the lines T_ab."""
        if not self._G:
            return [self._scaled((self._w, t[0]))]
        first = self._scaled((self._G[0, 0], t[3]), (self._w, t[0]))
        others = (self._G[0, 1], t[2]), (self._G[1, 0], t[1]), (self._G[1, 1], t[0])
        return [first, *(self._scaled(term) for term in others)]

    def solid(self, S: Sequence[Floats], t: Sequence[Fiber]) -> list[Fiber]:
        """R_ab of a line of a hex along its last direction, from the lines T_ab."""
        b, G = self._b, self._G
        value = matrix_product(b, S[0], t[0])
        if not G:
            return [self._scaled((self._w, value))]
        crossed = matrix_product(b, S[2], t[1], matrix_product(b, S[1], t[2]))
        return [
            self._scaled(
                (self._w, value),
                (G[0, 0], matrix_product(b, S[0], t[3])),
                (G[2, 2], matrix_product(b, S[3], t[0])),
                (G[0, 2], crossed),
            ),
            self._scaled((G[0, 1], matrix_product(b, S[0], t[2])), (G[2, 1], matrix_product(b, S[2], t[0]))),
            self._scaled((G[1, 0], matrix_product(b, S[0], t[1])), (G[1, 2], matrix_product(b, S[1], t[0]))),
            self._scaled((G[1, 1], value)),
        ]

    def _scaled(self, *terms: tuple[str | None, Fiber]) -> Fiber:
        """Sum of fibers times factors; None: there is none."""
        there = [(factor, fiber) for factor, fiber in terms if factor is not None]
        return [self._b.dot((factor, fiber[x]) for factor, fiber in there) for x in range(len(there[0][1]))]
