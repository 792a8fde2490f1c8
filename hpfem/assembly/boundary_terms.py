"""Integrals over sides of cells as parts of a global operator: matrices of values, and forms that are applied to cells.

A linear form that takes and tests values alone is a sparse matrix of the modes that do not vanish on its boundary, as a
Robin condition is. Others, with gradients or not linear, are applied to the cells that have the boundary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, kron

from hpfem.shapes import Shape
from hpfem.shapes.arrays import Array, Indices
from hpfem.shapes.cached import cached_property

from ..backends.restriction import BlockMatrix
from ..errors import NotSuitable
from ..forms.evaluate import evaluate
from ..forms.linear import coefficients
from ..forms.trace import Trace
from ..memory import as_numpy
from ..operators import BoundaryForm
from ..operators.sums import Summable
from ..space.sides import Side, facet_sides
from .c0 import C0Space
from .entries import block_diagonal, given_at, is_positive
from .numbering import Seen
from .traces import entity_modes


def entities_of(shape: Shape, of: int, place: int) -> Iterator[tuple[int, int]]:
    """Vertices, edges and faces of a facet, edge or vertex: their dimension and number in the shape."""
    corners = set(shape.entities[of][place].vertices)
    for dim in range(shape.dim):
        for number, entity in enumerate(shape.entities[dim]):
            if corners.issuperset(entity.vertices):
                yield dim, number


def sides_with_traces(c0: C0Space, facets: Indices) -> Iterator[tuple[Side, csr_array, Array]]:
    """Sides of cells on facets, and the modes that do not vanish there; facets [n]; see `traces_of`."""
    return traces_of(c0, facet_sides(c0.space, facets))


def traces_of(c0: C0Space, sides: Iterable[Side]) -> Iterator[tuple[Side, csr_array, Array]]:
    """Sides, and the modes that do not vanish there: matrix [element * n_trace + mode, size], values [n_trace, Q]."""
    for side in sides:
        basis = side.block.basis
        modes = np.concatenate(
            [entity_modes(basis, *place) for place in entities_of(basis.shape, basis.shape.dim - 1, side.facet)]
        )
        seen = [Seen(own.ids[side.rows], own.codes[side.rows]) for own in c0.seen(side.number)[:-1]]
        matrix = c0.numbering.local_to_global(basis, seen).matrix
        rows = np.arange(len(side.rows))[:, None] * basis.n_modes + modes
        yield side, matrix[rows.ravel()], side.block.tabulation.dense[modes]


def trace_mass(matrix: csr_array, modes: Array, scale: Array) -> csr_array:
    """The integrals of products of traces, times a function and the measure; scale [E, Q] -> [size, size]."""
    mass = np.einsum("mq,eq,nq->emn", modes, scale, modes, optimize=True)
    return csr_array(matrix.T @ block_diagonal(mass) @ matrix)


def is_linear_form(form: Summable) -> bool:
    """Whether a form has a matrix at each point."""
    try:
        return form.form.trace is not None and bool(coefficients(form.form.trace))
    except NotSuitable:
        return False


class BoundaryTerm:
    """A form on a boundary with its factor; `assembled` if linear and of values. Collective if `linear` is None."""

    def __init__(
        self, form: BoundaryForm, c0: C0Space, factors: Sequence[float], number: int, linear: bool | None = None
    ) -> None:
        self.form, self.c0, self._factors, self._number = form, c0, factors, number
        self._made: tuple[Any, Any] = None, None
        self.linear = c0.space.comm.all(is_linear_form(form)) if linear is None else linear
        self.assembled = self.linear and not form.form.gradients

    @property
    def factor(self) -> float:
        """The present factor."""
        return self._factors[self._number]

    @property
    def numbers(self) -> tuple[float, ...]:
        """The present factor and the numbers of the form; see `Operator.numbers`."""
        return self.factor, *self.form.inner.numbers

    def __repr__(self) -> str:
        return f"{self.factor:g} {self.form.name} on {self.form.on!r}"

    @cached_property
    def Q(self) -> BlockMatrix:
        """Local coefficients of the sides' cells from global ones."""
        Q = self.c0.block_matrix
        return BlockMatrix([Q.blocks[side.number].part(side.rows) for side in self.form.sides], Q.rows)

    def is_positive(self, xp: Any) -> bool:
        """Whether it adds nothing negative to (u, A u), as far as is known."""
        return self.factor == 0 or (self.factor > 0 and is_positive(self.form.inner, xp))

    def elliptic_part(self) -> BoundaryTerm:
        """The part that is symmetric and positive, for preconditioners (`hpfem.forms.linear.elliptic_part`)."""
        return BoundaryTerm(self.form.elliptic_part(), self.c0, [abs(self.factor)], 0, True)

    def at(self, c0: C0Space) -> BoundaryTerm:
        """The same on another space on the same cells, with the present numbers."""
        return BoundaryTerm(self.form.at(c0.space), c0, [self.factor], 0, self.linear)

    @property
    def values(self) -> csr_array:
        """The part of a linear form of values alone, without the factor; for n components [n size, n size]."""
        if self._made[0] != self.numbers[1:]:
            self._made = self.numbers[1:], self._integrated()
        return self._made[1]

    def _integrated(self) -> Any:
        operator, xp = self.form.inner, self.c0.vectors_on(self.form.device).xp
        trace, n, size = self.form.form.trace, self.form.form.components, self.c0.size
        assert trace is not None
        graph, K = coefficients(trace)
        step = 1 + trace.dim
        used = {(i // step, j // step): node for (i, j), node in K.items() if i % step == j % step == 0}
        entries, total = Trace(graph, trace.dim, len(used), tuple(used.values())), csr_array((n * size, n * size))
        for number, (side, matrix, modes) in enumerate(traces_of(self.c0, self.form.sides)):
            elements, geometry = slice(0, len(side.rows)), side.block.geometry
            x = geometry.coordinates(elements, xp) if entries.uses_point else None
            given = evaluate(entries, partial(given_at, operator, number, x=x, elements=elements))
            for (i, j), node in used.items():
                mass = trace_mass(matrix, modes, as_numpy(given[node.index]) * geometry.weights())
                total = total + kron(csr_array(([1.0], ([i], [j])), shape=(n, n)), mass)
        return csr_array(total)
