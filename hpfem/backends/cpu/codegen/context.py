"""Data that the passes of a kernel share: problem, mode tree, scratch, one-dimensional matrices, the present group.

Level k of the tree holds, for every node, the points of directions k and above: node * block[k] + point.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np

from hpfem.shapes.arrays import Floats
from hpfem.shapes.cached import cached_property

from ....forms.form import BlockProblem
from .factors import Factors
from .indexed import Indexed
from .ir import Builder, Index, Where
from .levels import Integers, groups
from .line import Fiber, Line
from .pointwise import CalledExpressions, field_inputs
from .prefetch import Prefetch, input_streams


class Context:
    """State of writing a kernel that may `prefetch`, see `Prefetch`, or work on global vectors, if `indexed`."""

    def __init__(self, problem: BlockProblem, lanes: int, prefetch: int, indexed: Indexed = None) -> None:
        self.problem, self.form, self.trace = problem, problem.form, problem.form.trace
        self.from_modes, self.to_modes = problem.from_modes, problem.to_modes
        self.b = Builder(lanes, problem.dtype)
        self.dim, self.space_dim = problem.shape.dim, problem.geometry.space_dim
        self.tree, self.counts = problem.tabulation.basis.tree, problem.tabulation.rule.counts
        # Of each direction the points of those above it, and the vectors of a node of its level.
        self.rest = [int(np.prod(self.counts[k + 1 :])) for k in range(self.dim)]
        self.block = [q * rest for q, rest in zip(self.counts, self.rest)] + [1]
        if self.dim > 1:
            self.block[1] |= 1  # odd strides of eta_1 fibers: no two of their vectors in one cache set
            self.block[0] = self.counts[0] * self.block[1]
        self.plane, self.point_vectors = self.block[1], self.block[0]  # vectors of one point of eta_1, and of all
        # Where derivatives are collocated, the pointwise function is applied along the last direction.
        self.by_rows = self.form.gradients and problem.collocated
        self.direction = self.dim - 1 if self.by_rows else 0  # of the fibers along which points are visited
        self.factors = Factors(self.b, problem, self.direction)
        self.indexed, self.ahead = indexed, prefetch != 0
        inputs = input_streams(self.b, problem.n_input, problem.coupled, indexed)
        outputs = [] if indexed else [problem.n_output * self.b.nbytes] * problem.given
        self.prefetch = Prefetch(self.b, prefetch, [self.factors.group_bytes, *inputs], outputs)
        at_points = len(field_inputs(self.trace)) + self.space_dim * (self.trace is not None and self.trace.uses_point)
        # Bytes of a group that all applications of the form read.
        self.shared = self.factors.group_bytes + problem.n_points * at_points * self.b.nbytes
        self.group = Index("")
        self.parameters: dict[str, str] = {}
        self.coordinates = ""
        self._groups = [groups(self.tree, k) for k in range(self.dim)]
        self.root = self._groups[0][0].functions
        self._areas: dict[str, int] = {}  # vectors of each
        self._lines: dict[tuple[str, int, int, bool], Line] = {}

    def area(self, *name: Any, size: int) -> str:
        """Find a named area of the scratch buffer, as large as it was ever asked for."""
        pointer = "%a_" + "_".join(map(str, name))
        self._areas[pointer] = max(size | 1, self._areas.get(pointer, 0))
        return pointer

    @property
    def scratch_size(self) -> int:
        """Vectors of all areas so far."""
        return sum(self._areas.values())

    def area_pointers(self) -> list[str]:
        """Write the pointers to all areas."""
        places = zip(self._areas, accumulate(self._areas.values(), initial=0))
        return [f"  {name} = getelementptr {self.b.vector}, ptr %scratch, i64 {at}" for name, at in places]

    def level(self, k: int, chain: str, c: int) -> str:
        """Find level k of the tree."""
        size = self.tree.n_nodes(k) * self.block[k]
        if chain == "v":
            return self.stage(k, c, size)
        # Above level 1 components take turns.
        owner = (c,) if k == 1 else ()
        return self.area("level", k, chain, *owner, size=size)

    def stage(self, k: int, c: int, size: int) -> str:
        """Find room for a level of values: odd ones where the values at the points are, even ones where derivatives by
        eta_1 are, which only come when all components are past the tree. A stage takes from one and gives to the other,
        and level 1 becomes the values in place, fiber by fiber.
        """
        return self.area("u", c, size=size) if k % 2 else self.area("d0", 0, size=size)

    def values(self, c: int) -> str:
        """Find the values of a component at the points."""
        return self.area("u", c, size=self.point_vectors)

    def result(self, c: int) -> str:
        """Find a component of what comes out at the points; see `Context.values`."""
        own = self.form.trial_gradient and not self.form.to_modes and self.trace is None
        return self.area("x", c, size=self.point_vectors) if own else self.values(c)

    def weighted(self, values: Fiber, across: Where) -> Fiber:
        """Multiply values that are tested with functions of the points by the weights."""
        if not self.problem.geometry.affine:
            return values
        first, *rest = (self._weights(k) for k in range(self.dim))
        scaled = [self.b.mul(float(w), value) for w, value in zip(first, values, strict=True)]
        if not rest:
            return scaled
        table = self.b.real_table(reduce(np.multiply.outer, rest))
        weight = self.b.load_scalar(table, (across, 1))
        return [self.b.mul(weight, value) for value in scaled]

    def _weights(self, direction: int) -> Floats:
        """What the matrices that test carry: the rule's weights for affine elements."""
        if not self.problem.geometry.affine:
            return np.ones(self.counts[direction])
        return self.problem.tabulation.directions[direction].weights

    def line(self, kind: str, direction: int, functions: slice, test: bool = False) -> Line:
        """Table of some 1-D functions, points by functions."""
        key = (kind, direction, functions.start, test)
        if key not in self._lines:
            tabulation = self.problem.tabulation
            matrix = (tabulation.values if kind == "B" else tabulation.derivatives)[direction][functions].T
            self._lines[key] = Line(matrix * self._weights(direction)[:, None] if test else matrix)
        return self._lines[key]

    def differentiation(self, direction: int, test: bool = False) -> Line:
        """Differentiation matrix of the points of a direction."""
        key = ("points", direction, 0, test)
        if key not in self._lines:
            matrix, w = self.problem.tabulation.differentiation[direction], self._weights(direction)
            self._lines[key] = Line(w[:, None] * matrix / w[None, :] if test else matrix)
        return self._lines[key]

    @cached_property
    def called(self) -> CalledExpressions:
        """The pointwise function as a function of the module."""
        assert self.trace is not None
        return CalledExpressions(self.b, self.trace)

    @contextmanager
    def fibers(self, n: int) -> Iterator[Where]:
        """Run over n fibers, each of which prefetches its share of the next group."""
        with self.b.each(n) as i:
            self.prefetch.fetch()
            yield i

    def walk(self, k: int) -> Iterator[tuple[slice, Where, Where, Where]]:
        """Run over the fibers of level k."""
        alone = self.rest[k] == 1
        for group in self._groups[k]:
            nodes, children = Integers(self.b, group.nodes), Integers(self.b, group.children)
            with self.fibers(len(group.nodes)) if alone else self.b.each(len(group.nodes)) as t:
                node, child = nodes[t], children[t]
                with self.b.each(1) if alone else self.fibers(self.rest[k]) as across:
                    yield group.functions, node, child, across
