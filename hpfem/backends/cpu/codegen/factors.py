"""Geometry at a point, inside the kernel: stored factors of deformed elements, or such that are recomputed from their
maps, or an affine element's few numbers and the collapse of its shape, applied on the fly.

The inverse collapse d eta_a/d xi_i is s_a r_ai with r_aa = 1, where the entries depend on few directions: an entry that
is constant along the fiber is read once a fiber, one that varies along the fiber alone is a constant of the code.
Weights of affine elements are part of the matrices that test (`generator`), so that nothing is left of them here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpfem.shapes.arrays import Floats

from ....forms.form import BlockProblem
from ....geometry import MapLines
from ....geometry.jacobians import inverse_collapse, symmetric_pairs
from .geometry import Matrix, cofactor
from .ir import Builder, Index, Operand, Where


class _PointTable:
    """A number per point of the reference shape [Q_1, ..., Q_d], read where a fiber of a direction is."""

    def __init__(self, b: Builder, values: Floats, direction: int) -> None:
        self._b = b
        rows = np.moveaxis(values, direction, -1).reshape(-1, values.shape[direction])  # [outer, fiber]
        size = np.abs(rows).max()
        self._rows = rows
        self._along = bool(np.ptp(rows, axis=1).max() > 1e-14 * size)
        self._across = bool(np.ptp(rows, axis=0).max() > 1e-14 * size)
        self.zero = bool(size < 1e-14)
        self._one = not self._along and not self._across and abs(rows[0, 0] - 1) < 1e-14
        self._outer: Where = 0
        self._fiber: str | None = None

    def start(self, outer: Where) -> None:
        """Go to a fiber; see `Factors.start_fiber`."""
        self._outer, self._fiber = outer, None

    def _get(self, k: int) -> Operand:
        """The number at point k of the fiber."""
        if not self._across:
            return float(self._rows[0, k])
        if self._along:
            return self._b.load_scalar(self._b.real_table(self._rows), (self._outer, self._rows.shape[1]), (k, 1))
        if self._fiber is None:
            self._fiber = self._b.load_scalar(self._b.real_table(self._rows[:, 0]), (self._outer, 1))
        return self._fiber

    def times(self, k: int, x: str) -> str:
        """The number at point k of the fiber times x."""
        return x if self._one else self._b.mul(self._get(k), x)

    def times_onto(self, k: int, x: str, y: str) -> str:
        """The number at point k of the fiber times x, plus y."""
        return self._b.add(y, x) if self._one else self._b.fma(self._get(k), x, y)


class Factors:
    """Geometric factors of a form at the points of fibers, along direction 0 or the last one."""

    def __init__(self, b: Builder, problem: BlockProblem, direction: int) -> None:
        self.b, self.affine, self.unit = b, problem.geometry.affine, problem.geometry.unit
        self.kind = problem.form.factor_kind
        self.dim, self.space_dim = problem.shape.dim, problem.geometry.space_dim
        rule = problem.tabulation.rule
        # Without directions every point is a fiber of its own.
        self.counts, self.direction = (rule.counts, direction) if rule.tensor else ((len(rule), 1), 1)
        self.n = 0 if self.kind is None else problem.geometry.n_factors(self.kind)
        self.fiber_points = self.counts[self.direction]
        self._dtype = problem.factors_dtype
        self._unit = b.vector_of(self._dtype)
        self._per_group = self.n if self.affine else self.n * int(np.prod(self.counts))
        self.scale: list[_PointTable] = []
        self.ratio: dict[tuple[int, int], _PointTable] = {}
        if self.affine and self.kind in ("metric", "jacobian"):
            entries = inverse_collapse(problem.shape, rule.eta).reshape(*self.counts, self.dim, self.dim)
            self.scale = [_PointTable(b, entries[..., a, a], self.direction) for a in range(self.dim)]
            for a in range(self.dim):
                for i in range(self.dim):
                    table = _PointTable(b, entries[..., a, i] / entries[..., a, a], self.direction)
                    if i != a and not table.zero:
                        self.ratio[a, i] = table
        self._group = ""
        self._element: list[str] = []
        self._fiber = ""
        self._lines: MapLines | None = None
        self._map_at = 0
        if problem.source.recomputes:
            others = [a for a in range(self.dim) if a != direction]
            self._lines = problem.geometry.map_lines([direction, *others])
            self.n = problem.geometry.n_factors("scale") if problem.source.scales else 0
            self._map_at = self.n * int(np.prod(self.counts))  # behind the scales
            self._per_group = self._map_at + problem.geometry.n_factors("map")
        self.group_bytes = self._per_group * b.lanes * self._dtype.itemsize  # that a group reads
        self._rows: list[list[str]] = []
        self._weight = ""
        self._points: dict[int, tuple[Matrix, str, str]] = {}

    def start_group(self, group: Index) -> None:
        """Go to a group of elements."""
        if self.kind is None:
            return
        self._group = self.b.at("%geometry", (group, self._per_group), unit=self._unit)
        if self.unit:
            pairs = symmetric_pairs(self.dim) if self.kind == "metric" else np.ndindex(self.dim, self.dim)
            own = [float(a == c) for a, c in pairs] if self.n > 1 else []
            self._element = [self.b.operand(number) for number in (*own, 1.0)]
        elif self.affine:
            self._element = [self.b.load(self._group, q) for q in range(self.n)]

    def start_fiber(self, outer: Where) -> None:
        """Go to a fiber."""
        for table in [*self.scale, *self.ratio.values()]:
            table.start(outer)
        if self._lines is not None:
            self._start_map(self._lines, outer)
        if not self.affine and self.kind is not None and self.n:
            self._fiber = self.b.at(self._group, (outer, self.n * self.fiber_points), unit=self._unit)

    def _start_map(self, lines: MapLines, outer: Where) -> None:
        """Make the rows of a fiber from the elements' maps."""
        b = self.b
        rows: list[list[str | None]] = [[None] * self.dim for _ in lines.directions]
        functions: dict[int, str] = {}
        for row, mode, function in lines.terms:
            if function and function not in functions:
                functions[function] = b.load_scalar(b.real_table(lines.across[function]), (outer, 1))
            for x, total in enumerate(rows[row]):
                number = b.load(self._group, self._map_at + mode * self.dim + x)
                if function:
                    rows[row][x] = b.fma(functions[function], number, total)
                else:
                    rows[row][x] = number if total is None else b.add(total, number)
        self._rows = [[number for number in row if number is not None] for row in rows]
        self._weight = b.load_scalar(b.real_table(lines.weights_across), (outer, 1))
        self._points = {}

    def _recomputed(self, lines: MapLines, k: int) -> tuple[Matrix, str, str]:
        """Adjugate of dx/deta [a][x], weight w and determinant at a point, from the rows of its fiber."""
        if k not in self._points:
            b = self.b
            columns: dict[int, list[str]] = {}
            for a, row, along, one in zip(lines.directions, self._rows, lines.along[:, k], lines.one, strict=True):
                parts = row if one else [b.mul(float(along), number) for number in row]
                columns[a] = [b.add(*pair) for pair in zip(columns[a], parts)] if a in columns else parts
            J = [[columns[a][x] for a in range(self.dim)] for x in range(self.dim)]
            adjugate = [[cofactor(b, J, a, x) for x in range(self.dim)] for a in range(self.dim)]
            weight = b.mul(float(lines.weights_along[k]), self._weight)
            self._points[k] = adjugate, weight, b.dot((J[x][0], adjugate[0][x]) for x in range(self.dim))
        return self._points[k]

    def _read(self, k: int, q: int) -> str:
        """One of the numbers that are stored at a point."""
        return self.b.load(self._fiber, k * self.n + q, self._dtype)

    def factor(self, k: int, q: int) -> str:
        """One of the stored factors at a point, or of an affine element; of recomputed ones the weight alone."""
        if self._lines is not None:
            if self.n == 2:
                return self._read(k, 1)
            _, weight, det = self._recomputed(self._lines, k)
            weight = self.b.mul(self._read(k, 0), det) if self.n else weight
            return self.b.mul(weight, det)
        return self._element[q] if self.affine else self._read(k, q % self.n)

    def _to_local(self, k: int, derivatives: Sequence[str]) -> list[str]:
        """Derivatives by xi from those by eta, of an affine element; unchanged for deformed ones."""
        if not self.affine:
            return list(derivatives)
        scaled = [table.times(k, derivative) for table, derivative in zip(self.scale, derivatives)]
        out = list(scaled)
        for (a, i), table in self.ratio.items():
            out[i] = table.times_onto(k, scaled[a], out[i])
        return out

    def _from_local(self, k: int, fluxes: Sequence[str]) -> list[str]:
        """Fluxes that multiply derivatives by eta from those for derivatives by xi: transpose of `_to_local`."""
        if not self.affine:
            return list(fluxes)
        out = list(fluxes)
        for (a, i), table in self.ratio.items():
            out[a] = table.times_onto(k, fluxes[i], out[a])
        return [table.times(k, flux) for table, flux in zip(self.scale, out)]

    def metric(self, k: int, derivatives: Sequence[str]) -> list[str]:
        """Fluxes of a gradient through the symmetric metric; derivatives [d] -> [d]."""
        if self._lines is not None:  # w|J| J^-1 J^-T, with the adjugate in place of the inverse
            adjugate, weight, det = self._recomputed(self._lines, k)
            scale = self._read(k, 0) if self.n else self.b.div(weight, det)
            along = [self.b.mul(scale, own) for own in self._combined(adjugate, derivatives)]
            return [self.b.dot(zip(row, along, strict=True)) for row in adjugate]
        local, pairs = self._to_local(k, derivatives), symmetric_pairs(self.dim)
        if self.unit:
            return self._from_local(k, local)
        fluxes = [
            self.b.dot((self.factor(k, pairs.index((min(a, c), max(a, c)))), local[c]) for c in range(self.dim))
            for a in range(self.dim)
        ]
        return self._from_local(k, fluxes)

    def physical(self, k: int, derivatives: Sequence[str]) -> list[str]:
        """Derivatives by x from those by eta; derivatives [d] -> [D]."""
        if self._lines is not None:
            adjugate, _, det = self._recomputed(self._lines, k)
            scale = self.b.div(1.0, det)
            return [self.b.mul(scale, own) for own in self._combined(adjugate, derivatives)]
        local = self._to_local(k, derivatives)
        if self.unit:
            return local
        return [
            self.b.dot((self.factor(k, a * self.space_dim + i), local[a]) for a in range(self.dim))
            for i in range(self.space_dim)
        ]

    def _combined(self, matrix: Matrix, numbers: Sequence[str]) -> list[str]:
        """Product of the matrix, transposed, and a vector."""
        return [self.b.dot(zip(column, numbers, strict=True)) for column in zip(*matrix, strict=True)]

    def pull_back(self, k: int, flux: Sequence[Operand]) -> list[str]:
        """Fluxes that multiply derivatives by eta from one in x, weights included; flux [D] -> [d]."""
        if self._lines is not None:
            adjugate, weight, _ = self._recomputed(self._lines, k)
            weighted = [self.b.mul(weight, component) for component in flux]
            return [self.b.dot(zip(row, weighted, strict=True)) for row in adjugate]
        if self.unit:
            return self._from_local(k, [self.b.operand(component) for component in flux])
        weight = self.factor(k, -1)
        weighted = [self.b.mul(weight, component) for component in flux]
        fluxes = [
            self.b.dot((self.factor(k, a * self.space_dim + i), weighted[i]) for i in range(self.space_dim))
            for a in range(self.dim)
        ]
        return self._from_local(k, fluxes)
