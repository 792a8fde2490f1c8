"""Jacobians along lines of points from an element's own coordinate map: how kernels recompute geometric factors.

On a line of points the derivatives of x by eta are sums of a few functions of the position (1 and eta for a map of the
first order), each times a vector: a row. Rows are sums over the map's coefficients times functions of the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from hpfem.shapes import Basis, ShapeRule, Tabulation
from hpfem.shapes.arrays import Array


@dataclass(frozen=True, eq=False)
class MapLines:
    """Tables that make the derivatives of the map by eta, and the weights w of w |det dx/deta|, at points of lines."""

    directions: list[int]  # per row the direction of eta that its derivative is by, ascending
    along: Array  # the rows' functions at the n points of a line, [n_rows, n]
    terms: list[tuple[int, int, int]]  # row, coefficient without the constant one, function of `across`
    across: Array  # functions of the line, the first is 1, [n_functions, n_lines]
    weights_along: Array  # [n]
    weights_across: Array  # [n_lines]

    @classmethod
    def of(cls, basis: Basis, rule: ShapeRule, axes: Sequence[int]) -> MapLines:
        """Tables of a basis of coordinates on a rule, on lines along axes[0]; axes[1:] are the rest, slowest first."""
        tabulation, tree, counts = Tabulation(basis, rule), basis.tree, rule.counts
        rows: list[tuple[int, Array]] = []
        across = [(0, np.ones(len(rule) // counts[axes[0]]))]
        terms: list[tuple[int, int, int]] = []
        for a in range(tree.dim):
            tables = [(tabulation.derivatives if k == a else tabulation.values)[k] for k in range(tree.dim)]
            for mode, functions in zip(tree.leaf_to_mode, tree.leaf_functions, strict=True):
                along, *others = (tables[k][functions[k]] for k in axes)
                line = reduce(np.multiply.outer, others, np.ones(())).ravel()
                if min(np.abs(along).max(), np.abs(line).max()) > 1e-14:
                    row, scale = _place(rows, a, along)
                    function = _place(across, 0, scale * line, exactly=True)[0]
                    terms.append((row, int(mode) - 1, function))
        weights = rule.weights / np.linalg.det(basis.shape.collapse_matrix(rule.eta))
        by_line = weights.reshape(counts).transpose(axes).reshape(counts[axes[0]], -1)
        tables = [np.array([own for _, own in found]) for found in (rows, across)]
        return cls([a for a, _ in rows], tables[0], terms, tables[1], by_line[:, 0] / by_line[0, 0], by_line[0])

    @property
    def one(self) -> list[bool]:
        """Per row, whether its function is 1."""
        return [bool(np.all(own == 1)) for own in self.along]

    def flops(self, dim: int) -> tuple[int, int]:
        """Operations for the rows of a line, and from these for the Jacobian at a point, of D = dim coordinates."""
        on_line = sum(1 + (function > 0) for _, _, function in self.terms) - len(self.directions)
        at_point = sum(2 - one for one in self.one) - len(set(self.directions))
        return dim * on_line, dim * at_point


def _place(found: list[tuple[int, Array]], number: int, own: Array, exactly: bool = False) -> tuple[int, float]:
    """Position of a function, up to the factor that is returned too, in a list; appended if missing, constants as 1."""
    largest = int(np.argmax(np.abs(own)))
    for place, (other, function) in enumerate(found):
        scale = 1.0 if exactly or function[largest] == 0 else float(own[largest] / function[largest])
        if number == other and np.abs(own - scale * function).max() <= 1e-15 * np.abs(own[largest]):
            return place, scale
    constant = not exactly and np.ptp(own) <= 1e-15 * np.abs(own[largest])
    found.append((number, np.ones_like(own) if constant else own))
    return len(found) - 1, float(own[0]) if constant else 1.0
