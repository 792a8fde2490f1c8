"""Which cell a point is in, and where: the inverse of the cells' maps, for many points at once.

1. A tree of bounding boxes over all cells gives the candidate (point, cell) pairs.
2. Each pair gets a first guess from the affine map closest to the cell's; pairs are tried in the order of how far that
   guess lies outside the reference shape, so that most points are found in the first cell tried.
3. Newton's method with halved steps, kept inside the reference shape, minimises |x(xi) - point|. A point is in the
   first cell where nothing but rounding is left, else in the closest one within the tolerance. On a surface in space
   this gives the closest point.

The step is delta xi = C (J_eta^T J_eta)^-1 J_eta^T r with J_eta the Jacobian in collapsed coordinates eta and
C = d xi/d eta, taken at an eta held a little below the collapsed vertices and edges, where J_eta is singular: that
costs Newton's method a step or two, and no accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpfem.shapes import Basis, equispaced_nodes
from hpfem.shapes.arguments import as_array, real, reals, shown
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError
from ..geometry.block_geometry import BlockGeometry
from ..geometry.element_map import chunks
from ..geometry.jacobians import determinant_and_inverse, solve
from ..mesh.curve import along_curve

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

TOLERANCE = 1e-10
_EPS = float(np.finfo(np.float64).eps)
_BELOW_COLLAPSE = 1e-6  # how far below eta = 1 the Jacobian is taken in a collapsed direction
_BULGE = 0.1  # by how much a curved cell may bulge out of the box of its nodes, relative to its size
_FANOUT = 4  # children of a node of the tree of boxes
_ROUNDINGS = 16  # what is left of a distance by rounding, in units of the last place of the coordinates
_MAX_STEPS = 50
_SMALLEST_STEP = 1.0 / 32
_POINTS_AT_A_TIME = 20_000


class Locatable(Protocol):
    """What a locator needs of a space."""

    @property
    def blocks(self) -> Sequence[Any]:
        """Blocks of the space, each with a basis and a geometry."""
        ...

    @property
    def dim(self) -> int:
        """Dimension of the coordinates."""
        ...


class Locator:
    """Finds points in the cells of a space and evaluates fields there.

    Parameters
    ----------
    space : Space
    tolerance : float
        How far from a cell a point may be and still count as in it, relative to the size of the cell. On a surface in
        space this is the distance from the surface; take a larger one there for points that are only close to it.

    Raises
    ------
    ArgumentError
        If the tolerance is not a number >= 0.
    """

    def __init__(self, space: Locatable, tolerance: float = TOLERANCE) -> None:
        self.tolerance = real(tolerance, "the tolerance of a locator", least=0)
        if not hasattr(space, "blocks"):
            raise ArgumentError(f"a Locator is made on a Space, got {type(space).__name__}")
        self.dim = space.dim
        self._bases: list[Basis] = [block.basis for block in space.blocks]
        self._maps = [_BlockMap(block.geometry, self.tolerance) for block in space.blocks]
        self._first = np.cumsum([0, *(len(own.lower) for own in self._maps)])

    @cached_property
    def _tree(self) -> _BoxTree:
        lower = np.concatenate([block.lower for block in self._maps])
        upper = np.concatenate([block.upper for block in self._maps])
        return _BoxTree(lower, upper)

    def find(self, points: ArrayLike) -> tuple[Indices, Indices, Array]:
        """Find the cells that points are in.

        Parameters
        ----------
        points : array_like, [n, D]
            Coordinates.

        Returns
        -------
        block : ndarray of int, [n]
            Number of the block; -1 for a point in no cell. A point that cells share is in one of them.
        element : ndarray of int, [n]
            Element within the block; -1 for a point in no cell.
        xi : ndarray, [n, d]
            Local coordinates, inside the reference shape; NaN for a point in no cell.

        Raises
        ------
        ArgumentError
            If the points are not [n, D] finite numbers.
        """
        x = self._checked(points)
        dim = self._maps[0].geometry.dim if self._maps else 0
        cell, xi = np.full(len(x), -1, dtype=np.int64), np.full((len(x), dim), np.nan)
        for part in chunks(len(x), 1, most=_POINTS_AT_A_TIME):
            self._find_part(x[part], cell[part], xi[part])
        block = np.where(cell >= 0, np.searchsorted(self._first, cell, side="right") - 1, -1)
        element = np.where(cell >= 0, cell - self._first[block], -1)
        return block, element, xi

    def evaluate(self, arrays: Sequence[NDArray[Any]], points: ArrayLike) -> Array:
        """Evaluate a field at points.

        Parameters
        ----------
        arrays : sequence of ndarray, [components, E, n_modes]
            Coefficients, one array per block.
        points : array_like, [n, D]
            Coordinates.

        Returns
        -------
        ndarray, [components, n]
            NaN at points in no cell. At a point that cells share, the value in one of them.

        Raises
        ------
        ArgumentError
            If the points are not [n, D] finite numbers, or the arrays not those of the blocks.
        """
        block, element, xi = self.find(points)
        wanted = [(len(own.lower), basis.n_modes) for own, basis in zip(self._maps, self._bases, strict=True)]
        given = isinstance(arrays, (list, tuple)) and [np.shape(as_array(a, "coefficients")) for a in arrays]
        if not given or [shape[1:] for shape in given] != wanted or len({shape[0] for shape in given}) > 1:
            raise ArgumentError(f"a field is arrays [components, *{wanted}], one per block, got {shown(arrays)}")
        values = np.full((len(arrays[0]) if len(arrays) else 1, len(block)), np.nan)
        for number, (basis, coefficients) in enumerate(zip(self._bases, arrays, strict=True)):
            chosen = np.flatnonzero(block == number)
            for part in (chosen[rows] for rows in chunks(len(chosen), (len(values) + 2) * basis.n_modes)):
                modes = basis.evaluate(xi[part])
                own = np.asarray(coefficients)[:, element[part]]
                values[:, part] = np.einsum("cnm,mn->cn", own, modes, optimize=True)
        return values

    def _checked(self, points: ArrayLike) -> Array:
        x = reals(points, "points")
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ArgumentError(
                f"points must be an array [n, {self.dim}], one row of coordinates per point, got {list(x.shape)}"
            )
        bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
        if len(bad):
            raise ArgumentError(f"point {bad[0]} is not finite: {x[bad[0]].tolist()}; {len(bad)} point(s) are not")
        return x

    def _find_part(self, x: Array, cell: Indices, xi: Array) -> None:
        """Fill in the cell (over all blocks) and the local coordinates of each point that is in one."""
        point, candidate = self._tree.pairs(x)
        block = np.searchsorted(self._first, candidate, side="right") - 1
        excess = np.empty(len(point))
        for number, own in enumerate(self._maps):
            for pairs in own.parts(np.flatnonzero(block == number)):
                excess[pairs] = own.excess(candidate[pairs] - self._first[number], x[point[pairs]])
        order = np.lexsort((excess, point))
        point, candidate, block = point[order], candidate[order], block[order]
        rank = np.arange(len(point)) - np.searchsorted(point, point)
        best = np.full(len(x), np.inf)
        for closest_node in (False, True):
            for turn in range(int(rank.max(initial=-1)) + 1):
                # A point that is only close to a cell may be in another one.
                open_points = cell < 0 if closest_node else best > 0
                open_pairs = np.flatnonzero((rank == turn) & open_points[point])
                for number, own in enumerate(self._maps):
                    if closest_node and own.geometry.affine:
                        continue
                    for pairs in own.parts(open_pairs[block[open_pairs] == number]):
                        elements = candidate[pairs] - self._first[number]
                        distance, local = own.invert(elements, x[point[pairs]], closest_node)
                        better = (distance < best[point[pairs]]) & (distance <= own.reach[elements])
                        taken = pairs[better]
                        best[point[taken]] = distance[better]
                        cell[point[taken]], xi[point[taken]] = candidate[taken], local[better]


class _Iterate(NamedTuple):
    """Where Newton's method is, for n points: collapsed coordinates, what is left of the way, and how long that is."""

    eta: Array
    residual: Array
    distance: Array


class _BlockMap:
    """The map of the elements of one block, to be inverted.

    Parameters
    ----------
    geometry : BlockGeometry
    tolerance : float
        Relative to the size of an element.
    """

    def __init__(self, geometry: BlockGeometry, tolerance: float) -> None:
        self.geometry = geometry
        self.basis = geometry.basis
        self.shape = geometry.shape
        self.collapsed = np.array([direction.collapsed for direction in self.shape.directions])
        # Straight-sided cells lie within the box of their vertices; the others are sampled more finely.
        curved = geometry.order > 1 and not geometry.affine
        self.nodes = equispaced_nodes(self.shape, 2 * geometry.order if curved else 1)
        self.node_values = self.basis.evaluate(self.nodes)
        linear = np.column_stack([np.ones(len(self.nodes)), self.nodes])
        to_affine = self.node_values @ np.linalg.pinv(linear).T
        E, D, d = geometry.n_elements, geometry.space_dim, geometry.dim
        self.lower, self.upper, self.centre = np.empty((E, D)), np.empty((E, D)), np.empty((D, E))
        self.to_local = np.empty((d, D, E))
        for part in chunks(E, D * len(self.nodes)):
            x = geometry.positions(self.node_values, part)
            self.lower[part], self.upper[part] = x.min(axis=2).T, x.max(axis=2).T
            near = np.moveaxis(geometry.positions(to_affine, part), 2, 0)  # [1 + d, D, E]
            self.centre[:, part] = near[0]
            self.to_local[:, :, part] = determinant_and_inverse(near[1:].swapaxes(0, 1))[1]
        self.to_local[~np.isfinite(self.to_local)] = 0
        size = (self.upper - self.lower).max(axis=1)
        self.reach = tolerance * size
        self.rounding = _EPS * np.maximum(np.abs(self.lower), np.abs(self.upper)).max(axis=1)
        margin = self.reach + _ROUNDINGS * self.rounding + (_BULGE * size if curved else 0.0)
        self.lower -= margin[:, None]
        self.upper += margin[:, None]

    def parts(self, pairs: Indices) -> Iterator[Indices]:
        """Go through (point, element) pairs, a number at a time for which the map can be inverted."""
        D, d, m = self.geometry.space_dim, self.geometry.dim, self.basis.n_modes
        for part in chunks(len(pairs), m * (D + 2 * d + 2) + D * len(self.nodes)):
            yield pairs[part]

    def _guess(self, elements: Indices, x: Array) -> Array:
        """Local coordinates by the affine map closest to the element's, [n, d]."""
        return np.einsum("ain,in->na", self.to_local[:, :, elements], x.T - self.centre[:, elements])

    def _clipped(self, xi: Array) -> Array:
        """Collapsed coordinates of local ones, brought into the reference shape."""
        return np.clip(self.shape.inverse_collapse(xi), -1.0, 1.0)

    def excess(self, elements: Indices, x: Array) -> Array:
        """How far the affine guess lies outside the reference shape, [n]."""
        return np.maximum(-self.shape.depth(self._guess(elements, x)), 0.0)

    def _closest_node(self, elements: Indices, x: Array) -> Array:
        """Local coordinates of the node of the element that is closest to the point, [n, d]."""
        nodes = self.geometry.positions(self.node_values, elements)
        return self.nodes[np.argmin(((nodes - x.T[:, :, None]) ** 2).sum(axis=0), axis=1)]

    def _at(self, elements: Indices, x: Array, eta: Array) -> _Iterate:
        residual = x - self.geometry.paired_positions(self.basis.evaluate_eta(eta), elements).T
        return _Iterate(eta, residual, np.sqrt((residual**2).sum(axis=1)))

    def _step(self, elements: Indices, now: _Iterate) -> Array:
        """Newton's step in local coordinates, [n, d]."""
        eta = np.where(self.collapsed, np.minimum(now.eta, 1 - _BELOW_COLLAPSE), now.eta)
        J = self.geometry.paired_jacobian(self.basis.gradient_eta(eta), elements)
        return np.einsum("nab,bn->na", self.shape.collapse_matrix(eta), solve(J, now.residual.T))

    def invert(self, elements: Indices, x: Array, closest_node: bool = False) -> tuple[Array, Array]:
        """Find the points of elements that are closest to points.

        Parameters
        ----------
        elements : ndarray of int, [n]
            Which element to look in, for each point.
        x : ndarray, [n, D]
            Points.
        closest_node : bool
            Start at the closest node of a lattice instead of the affine guess.

        Returns
        -------
        distance : ndarray, [n]
            What is left, without what may be rounding.
        xi : ndarray, [n, d]
            Local coordinates, inside the reference shape.
        """
        start = self._closest_node(elements, x) if closest_node else self._guess(elements, x)
        goal, rounding = 2 * self.rounding[elements], _ROUNDINGS * self.rounding[elements]
        state = self._at(elements, x, self._clipped(start))
        length = np.ones(len(x))
        active = np.flatnonzero(state.distance > goal)
        for _ in range(_MAX_STEPS):
            if not len(active):
                break
            now = _Iterate(*(array[active] for array in state))
            step = self._step(elements[active], now) * length[active, None]
            xi = self.shape.collapse(now.eta)
            trial = self._at(elements[active], x[active], self._clipped(xi + step))
            better = trial.distance < now.distance
            moved = np.abs(self.shape.collapse(trial.eta) - xi).max(axis=1) > 2 * _EPS
            for array, new in zip(state, trial, strict=True):
                array[active[better]] = new[better]
            length[active] = np.where(better, np.minimum(1.0, 2 * length[active]), length[active] / 2)
            stuck = ~moved | (~better & ((now.distance <= rounding[active]) | (length[active] < _SMALLEST_STEP)))
            active = active[~stuck & (state.distance[active] > goal[active])]
        distance = np.maximum(state.distance - rounding, 0.0)
        return distance, self.shape.collapse(state.eta)


class _BoxTree:
    """A tree of boxes: the leaves are the cells' along a space-filling curve, each node above bounds its children's.

    Parameters
    ----------
    lower, upper : ndarray, [n, D]
        Corners of the boxes.
    """

    def __init__(self, lower: Array, upper: Array) -> None:
        self.cells = order = along_curve((lower + upper) / 2)
        levels = [(lower[order], upper[order])]
        while len(levels[-1][0]) > 1:
            low, high = levels[-1]
            starts = np.arange(0, len(low), _FANOUT)
            levels.append((np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)))
        self.levels = levels[::-1]

    def pairs(self, x: Array) -> tuple[Indices, Indices]:
        """Points and the cells whose boxes they are in.

        Parameters
        ----------
        x : ndarray, [n, D]
            Points.

        Returns
        -------
        point, cell : ndarray of int, [n_pairs] each
        """
        if not len(self.cells):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        point, node = np.arange(len(x)), np.zeros(len(x), dtype=np.int64)
        for depth, (lower, upper) in enumerate(self.levels):
            if depth:
                node = (node[:, None] * _FANOUT + np.arange(_FANOUT)).ravel()
                point = np.repeat(point, _FANOUT)
                exists = node < len(lower)
                point, node = point[exists], node[exists]
            for axis in range(x.shape[1]):
                at = x[point, axis]
                within = (lower[node, axis] <= at) & (at <= upper[node, axis])
                point, node = point[within], node[within]
        return point, self.cells[node]
