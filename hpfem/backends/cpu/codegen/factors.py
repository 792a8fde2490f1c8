"""Geometry at a point, inside the kernel: stored factors of deformed elements, or an affine element's few numbers and
the collapse of its shape, applied on the fly.

The inverse collapse d eta_a/d xi_i is s_a r_ai with r_aa = 1, where the entries depend on few directions: an entry that
is constant along the fiber is read once a fiber, one that varies along the fiber alone is a constant of the code.
Weights of affine elements are part of the matrices that test (`generator`), so that nothing is left of them here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....forms.form import BlockProblem
from ....geometry.block_geometry import symmetric_pairs
from ....geometry.jacobians import inverse_collapse
from .ir import Builder, Index, Pack, Where

Array = NDArray[np.floating[Any]]


class PointTable:
    """A number per point of the reference shape, read where a fiber is.

    Parameters
    ----------
    b : Builder
    values : ndarray, [Q_1, ..., Q_d]
    direction : int
        Of the fibers.
    """

    def __init__(self, b: Builder, values: Array, direction: int) -> None:
        self.b = b
        rows = np.moveaxis(values, direction, -1).reshape(-1, values.shape[direction])  # [outer, fiber]
        size = np.abs(rows).max()
        self.rows = rows
        self.along = bool(np.ptp(rows, axis=1).max() > 1e-14 * size)
        self.across = bool(np.ptp(rows, axis=0).max() > 1e-14 * size)
        self.zero = bool(size < 1e-14)
        self._fiber: Pack | None = None

    @property
    def one(self) -> bool:
        """Whether it is 1 everywhere."""
        return not self.along and not self.across and abs(self.rows[0, 0] - 1) < 1e-14

    def start(self) -> None:
        """Forget what was read for the last fiber."""
        self._fiber = None

    def get(self, outer: Where, k: int) -> Pack | float:
        """The number at point k of a fiber."""
        if not self.across:
            return float(self.rows[0, k])
        if self.along:
            return self.b.load_scalar(self.b.real_table(self.rows), (outer, self.rows.shape[1]), (k, 1))
        if self._fiber is None:
            self._fiber = self.b.load_scalar(self.b.real_table(self.rows[:, 0]), (outer, 1))
        return self._fiber


class Factors:
    """Geometric factors of a form at the points of fibers.

    Parameters
    ----------
    b : Builder
    problem : BlockProblem
    direction : int
        Of the fibers: 0, or the last one.
    """

    def __init__(self, b: Builder, problem: BlockProblem, direction: int) -> None:
        self.b, self.affine = b, problem.geometry.affine
        self.kind = problem.form.factor_kind
        self.dim, self.space_dim = problem.shape.dim, problem.geometry.space_dim
        self.counts, self.direction = problem.tabulation.rule.counts, direction
        self.n = 0 if self.kind is None else problem.geometry.n_factors(self.kind)
        self.pairs = {}
        for number, (a, c) in enumerate(symmetric_pairs(self.dim)):
            self.pairs[a, c] = self.pairs[c, a] = number
        self.scale: list[PointTable] = []
        self.ratio: dict[tuple[int, int], PointTable] = {}
        if self.affine and self.kind in ("metric", "jacobian"):
            inverse = inverse_collapse(problem.shape, problem.tabulation.rule.eta)
            entries = inverse.reshape(*self.counts, self.dim, self.dim)
            self.scale = [PointTable(b, entries[..., a, a], direction) for a in range(self.dim)]
            for a in range(self.dim):
                for i in range(self.dim):
                    table = PointTable(b, entries[..., a, i] / entries[..., a, a], direction)
                    if i != a and not table.zero:
                        self.ratio[a, i] = table
        self._group: Pack = ()
        self._element: list[Pack] = []
        self._fiber: Pack = ()
        self._outer: Where = 0

    @property
    def fiber_points(self) -> int:
        """Points of a fiber."""
        return self.counts[self.direction]

    @property
    def per_group(self) -> int:
        """Vectors of a group."""
        return self.n if self.affine else self.n * int(np.prod(self.counts))

    def start_group(self, pointer: str, group: Index) -> None:
        """Go to a group of elements."""
        if self.kind is None:
            return
        self._group = self.b.at(pointer, (group, self.per_group))
        if self.affine:
            self._element = [self.b.load(self._group, q) for q in range(self.n)]

    def start_fiber(self, outer: Where) -> None:
        """Go to a fiber: the index of its point 0 among the points across its direction."""
        self._outer = outer
        for table in [*self.scale, *self.ratio.values()]:
            table.start()
        if not self.affine and self.kind is not None:
            self._fiber = self.b.at(self._group, (outer, self.n * self.fiber_points))

    def _factor(self, k: int, q: int) -> Pack:
        return self._element[q] if self.affine else self.b.load(self._fiber, k * self.n + q)

    def element(self, q: int) -> Pack:
        """Factor q of an affine element."""
        return self._element[q]

    def weight(self, k: int) -> Pack:
        """Weight w |J|, or |J| of an affine element."""
        return self._factor(k, self.n - 1)

    def _times(self, table: PointTable, k: int, value: Pack) -> Pack:
        return value if table.one else self.b.mul(table.get(self._outer, k), value)

    def to_local(self, k: int, derivatives: Sequence[Pack]) -> list[Pack]:
        """Derivatives by xi from those by eta, of an affine element; unchanged for deformed ones."""
        if not self.affine:
            return list(derivatives)
        scaled = [self._times(table, k, derivative) for table, derivative in zip(self.scale, derivatives)]
        out = list(scaled)
        for (a, i), table in self.ratio.items():
            out[i] = self.b.add(out[i], scaled[a]) if table.one else self._fma(table, k, scaled[a], out[i])
        return out

    def from_local(self, k: int, fluxes: Sequence[Pack]) -> list[Pack]:
        """Fluxes that multiply derivatives by eta from those for derivatives by xi: transpose of `to_local`."""
        if not self.affine:
            return list(fluxes)
        out = list(fluxes)
        for (a, i), table in self.ratio.items():
            out[a] = self.b.add(out[a], fluxes[i]) if table.one else self._fma(table, k, fluxes[i], out[a])
        return [self._times(table, k, flux) for table, flux in zip(self.scale, out)]

    def _fma(self, table: PointTable, k: int, x: Pack, y: Pack) -> Pack:
        return self.b.fma(table.get(self._outer, k), x, y)

    def metric(self, k: int, derivatives: Sequence[Pack]) -> list[Pack]:
        """Fluxes of a gradient through the symmetric metric; both of derivatives by eta."""
        local = self.to_local(k, derivatives)
        fluxes = []
        for a in range(self.dim):
            total: Pack | None = None
            for c in range(self.dim):
                total = self.b.fma(self._factor(k, self.pairs[a, c]), local[c], total)
            fluxes.append(total or ())
        return self.from_local(k, fluxes)

    def physical(self, k: int, derivatives: Sequence[Pack]) -> list[Pack]:
        """Derivatives by x from those by eta."""
        local = self.to_local(k, derivatives)
        out = []
        for i in range(self.space_dim):
            total: Pack | None = None
            for a in range(self.dim):
                total = self.b.fma(self._factor(k, a * self.space_dim + i), local[a], total)
            out.append(total or ())
        return out

    def pull_back(self, k: int, flux: Sequence[Pack | float]) -> list[Pack]:
        """Fluxes that multiply derivatives by eta from one in x, weights included."""
        weight = self.weight(k)
        weighted = [self.b.mul(weight, component) for component in flux]
        fluxes = []
        for a in range(self.dim):
            total: Pack | None = None
            for i in range(self.space_dim):
                total = self.b.fma(self._factor(k, a * self.space_dim + i), weighted[i], total)
            fluxes.append(total or ())
        return self.from_local(k, fluxes)


def stored(problem: BlockProblem, kind: str, lanes: int, direction: int, make: Callable[..., Array]) -> Array:
    """Factors in the order in which a kernel reads them.

    Parameters
    ----------
    problem : BlockProblem
    kind : str
        See `hpfem.geometry.block_geometry`.
    lanes : int
    direction : int
        Of the fibers along which the kernel visits points.
    make : callable
        (shape, dtype) -> the array that is filled.

    Returns
    -------
    ndarray, [group, fiber, point of the fiber, factor, lane]
        The fiber's number is split by direction; affine factors: [group, factor, lane].
    """
    made = problem.geometry.factors(kind, lanes, problem.dtype)
    if problem.geometry.n_points(kind) == 1:
        ordered = made[:, :, 0]
    else:
        shaped = made.reshape(*made.shape[:2], *problem.tabulation.rule.counts, lanes)
        ordered = np.moveaxis(np.moveaxis(shaped, 1, -2), 1 + direction, -3)
    out = make(ordered.shape, problem.dtype)
    out[...] = ordered
    return out
