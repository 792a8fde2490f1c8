"""Which cell a point is in, and where: the inverse of the cells' maps, for many points at once.

1. Points are sorted along a space-filling curve. A tree of bounding boxes over all cells, asked about the box of a few
   points at a time, gives the candidate (point, cell) pairs.
2. Each pair gets a first guess from the affine map closest to the cell's. Where that lies further outside the reference
   shape than the cell's map departs from the affine one, the point is not in the cell. The others are tried in the
   order of how far that is, so that most points are found in the first cell tried.
3. A few steps of Newton's method find the points that are inside a cell, a Jacobian serving several of them. Where they
   end outside, and the map is so close to the affine one that it must be one to one, the point is not in the cell.
4. For the few pairs that are left, Newton's method with halved steps, kept inside the reference shape, minimises
   |x(xi) - point|. A point is in the first cell where nothing but rounding is left, else in the closest one within the
   tolerance. On a surface in space this gives the closest point.

The step is delta xi = C (J_eta^T J_eta)^-1 J_eta^T r with J_eta the Jacobian in collapsed coordinates eta and
C = d xi/d eta, taken at an eta held a little below the collapsed vertices and edges, where J_eta is singular: that
costs Newton's method a step or two, and no accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpfem.shapes import Basis, equispaced_nodes
from hpfem.shapes.arguments import as_array, real, reals, shown
from hpfem.shapes.arrays import Array, Indices, Mask
from hpfem.shapes.cached import cached_property
from hpfem.shapes.scattered import gradients_at, modes_at

from ..errors import ArgumentError
from ..geometry.block_geometry import BlockGeometry
from ..geometry.element_map import check_gradient, chunks
from ..geometry.jacobians import determinant_and_inverse
from ..mesh.curve import along_curve
from ..mesh.sorting import run_starts
from ..support.communicator import Communicator

TOLERANCE = 1e-10
_EPS = float(np.finfo(np.float64).eps)
_BELOW_COLLAPSE = 1e-6  # how far below eta = 1 the Jacobian is taken in a collapsed direction
_BULGE = 0.1  # by how much a curved cell may bulge out of the box of its nodes, relative to its size
_FANOUT = 4  # children of a node of the tree of boxes
_ROUNDINGS = 16  # what is left of a distance by rounding, in units of the last place of the coordinates
_MAX_STEPS = 50
_QUICK_STEPS = 12
_STALE = 1e-3  # what part of the way a step may leave before the Jacobian is made anew
_SMALLEST_STEP = 1.0 / 32
_SLID = 1e-6  # by what part a step along facets must bring a point closer
_POINTS_AT_A_TIME = 100_000
_POINTS_OF_A_BOX = 16  # at most
_POINTS_OF_A_GROUP = 16  # at most
_DEPARTURE = 1.5  # by how much more than at its nodes a cell's map may depart from the affine one
_SLOPE = 0.5  # below which, at some points, the slope of a map's departure is below 1 everywhere
_FAR = 10.0  # local coordinates where Newton's method has left
_CACHED = 1 << 20  # numbers held at a time where a core's cache shall hold them


class Locator:
    """Finds points in cells of a space, up to a tolerance relative to the cell's size, and evaluates fields there."""

    def __init__(self, space: Any, tolerance: float = TOLERANCE) -> None:
        self.tolerance = real(tolerance, "the tolerance of a locator", least=0)
        if not hasattr(space, "blocks"):
            raise ArgumentError(f"a Locator is made on a Space, got {type(space).__name__}")
        self.dim: int = space.dim
        self._bases: list[Basis] = [block.basis for block in space.blocks]
        self._maps = [_BlockMap(block.geometry, self.tolerance) for block in space.blocks]
        self._first = np.cumsum([0, *(len(own.lower) for own in self._maps)])

    @cached_property
    def _tree(self) -> _BoxTree:
        lower = np.concatenate([block.lower for block in self._maps])
        upper = np.concatenate([block.upper for block in self._maps])
        return _BoxTree(lower, upper)

    def find(self, points: ArrayLike) -> tuple[Indices, Indices, Array]:
        """Find the cells that points are in; points [n, D] -> block [n], element [n], xi [n, d]."""
        return self._located(points)[:3]

    def _located(self, points: ArrayLike) -> tuple[Indices, Indices, Array, Array]:
        """As `find`, and how far off the cell each point is."""
        x = self._checked(points)
        dim = self._maps[0].geometry.dim if self._maps else 0
        cell, xi = np.full(len(x), -1, dtype=np.int64), np.full((len(x), dim), np.nan)
        best = np.full(len(x), np.inf)
        for part in chunks(len(x), 1, most=_POINTS_AT_A_TIME):
            self._find_part(x[part], cell[part], xi[part], best[part])
        block = np.where(cell >= 0, np.searchsorted(self._first, cell, side="right") - 1, -1)
        element = np.where(cell >= 0, cell - self._first[block], -1)
        return block, element, xi, best

    def evaluate(self, arrays: Sequence[NDArray[Any]], points: ArrayLike) -> Array:
        """Evaluate a field at points; arrays [components, E, n_modes], points [n, D] -> [components, n]."""
        return self._evaluated(arrays, points)[:-1]

    def _evaluated(self, arrays: Sequence[NDArray[Any]], points: ArrayLike) -> Array:
        """As `evaluate`, with a row more: how far off the cell each point is."""
        block, element, xi, best = self._located(points)
        wanted = [(len(own.lower), basis.n_modes) for own, basis in zip(self._maps, self._bases, strict=True)]
        given = isinstance(arrays, (list, tuple)) and [np.shape(as_array(a, "coefficients")) for a in arrays]
        if not given or [shape[1:] for shape in given] != wanted or len({shape[0] for shape in given}) > 1:
            raise ArgumentError(f"a field is arrays [components, *{wanted}], one per block, got {shown(arrays)}")
        values = np.full((len(arrays[0]) if len(arrays) else 1, len(block)), np.nan)
        for number, (basis, coefficients) in enumerate(zip(self._bases, arrays, strict=True)):
            chosen = np.flatnonzero(block == number)
            # Points of an element one after the other: its coefficients stay in the cache.
            chosen = chosen[np.argsort(element[chosen], kind="stable")]
            for rows in chunks(len(chosen), (len(values) + 3) * basis.n_modes, most=_CACHED):
                part = chosen[rows]
                modes = np.ascontiguousarray(modes_at(basis, basis.shape.inverse_collapse(xi[part])).T)
                for own, found in zip(coefficients, values, strict=True):
                    found[part] = np.einsum("nm,nm->n", np.asarray(own).take(element[part], axis=0), modes)
        return np.concatenate([values, best[None]])

    def evaluate_anywhere(self, arrays: Sequence[NDArray[Any]], points: ArrayLike, comm: Communicator) -> Array:
        """Evaluate a field at points of this process, in cells of any process; collective; -> [components, n]."""
        if comm.size == 1:
            return self.evaluate(arrays, points)
        with comm.together():
            x = self._checked(points)
        lower, upper = self._tree.bounds()
        asked = {}
        for rank, (low, high) in enumerate(comm.allgather((lower, upper))):
            near = np.flatnonzero(((x >= low) & (x <= high)).all(axis=1))
            if len(near):
                asked[rank] = near
        others = comm.alltoall({rank: x[near] for rank, near in asked.items()})
        with comm.together():
            answers = {rank: self._evaluated(arrays, own) for rank, own in others.items()}
        found = np.full((len(arrays[0]) + 1, len(x)), np.nan)
        found[-1] = np.inf
        for rank, values in sorted(comm.alltoall(answers).items()):
            near = asked[rank]
            found[:, near] = np.where(values[-1] < found[-1, near], values, found[:, near])
        return found[:-1]

    def _checked(self, points: ArrayLike) -> Array:
        x = reals(points, "points")
        if x.ndim != 2 or x.shape[1] != self.dim:
            one = f"; for one point give its {self.dim} coordinates, or [[x, ...]]" if x.shape == (self.dim,) else ""
            raise ArgumentError(
                f"points must be an array [n, {self.dim}], one row of coordinates per point, got {list(x.shape)}{one}"
            )
        bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
        if len(bad):
            raise ArgumentError(f"point {bad[0]} is not finite: {x[bad[0]].tolist()}; {len(bad)} point(s) are not")
        return x

    def _find_part(self, x: Array, cell: Indices, xi: Array, best: Array) -> None:
        """Fill in the cell (over all blocks) and the local coordinates of each point that is in one."""
        point, candidate = self._tree.pairs(x)
        block = np.searchsorted(self._first, candidate, side="right") - 1
        excess = np.full(len(point), np.inf)
        for number, own in enumerate(self._maps):
            every = np.flatnonzero(block == number)
            for pairs in (every[rows] for rows in chunks(len(every), (self.dim + 3) ** 2, most=_CACHED)):
                elements = candidate[pairs] - self._first[number]
                found = own.excess(elements, x[point[pairs]])
                excess[pairs] = np.where(found <= own.departure[elements], found, np.inf)
        near = np.flatnonzero(excess < np.inf)
        point, candidate, block, excess = point[near], candidate[near], block[near], excess[near]
        # Most points are in the first cell tried, so that candidates are sorted for the others only.
        left = np.ones(len(point), dtype=bool)
        least = np.full(len(x), np.inf)
        np.minimum.at(least, point, excess)
        first = np.full(len(x), -1)
        closest = np.flatnonzero(excess == least[point])[::-1]
        first[point[closest]] = closest
        self._find_inside(first[first >= 0], point, candidate, block, x, (best, cell, xi, left))
        rest = np.flatnonzero(left & (best[point] > 0))
        rest = rest[np.lexsort((excess[rest], point[rest]))]
        point, candidate, block, left = point[rest], candidate[rest], block[rest], left[rest]
        starts = np.where(run_starts(point), np.arange(len(point)), 0)
        rank = np.arange(len(point)) - np.maximum.accumulate(starts)
        for turn in range(int(rank.max(initial=-1)) + 1):
            chosen = np.flatnonzero((rank == turn) & left & (best[point] > 0))
            self._find_inside(chosen, point, candidate, block, x, (best, cell, xi, left))
        for closest_node in (False, True):
            # All candidates of the few points that are left at once: of equally close cells the first one counts.
            chosen = np.flatnonzero(left & ((cell < 0) if closest_node else (best > 0))[point])
            distance, local = np.full(len(chosen), np.inf), np.empty((len(chosen), xi.shape[1]))
            for number, own in enumerate(self._maps):
                if closest_node and own.geometry.affine:
                    continue
                every = np.flatnonzero(block[chosen] == number)
                for part in chunks(len(every), own.held + self.dim * len(own.nodes)):
                    rows = every[part]
                    elements = candidate[chosen[rows]] - self._first[number]
                    found, local[rows] = own.invert(elements, x[point[chosen[rows]]], closest_node)
                    distance[rows] = np.where(found <= own.reach[elements], found, np.inf)
            order = np.lexsort((rank[chosen], distance, point[chosen]))
            first = order[run_starts(point[chosen[order]])]
            first = first[distance[first] < best[point[chosen[first]]]]
            at = point[chosen[first]]
            best[at], cell[at], xi[at] = distance[first], candidate[chosen[first]], local[first]

    def _find_inside(
        self,
        chosen: Indices,
        point: Indices,
        candidate: Indices,
        block: Indices,
        x: Array,
        found: tuple[Array, Indices, Array, Mask],
    ) -> None:
        """Fill in the points that are inside of cells, of some of the pairs; and which pairs are possible still."""
        best, cell, xi, left = found
        for number, own in enumerate(self._maps):
            mine = chosen[block[chosen] == number]
            groups = _groups(candidate[mine])
            for rows in chunks(len(groups), own.held * groups.shape[1], most=_CACHED):
                pairs = mine[groups[rows].ravel()]
                elements, at = candidate[pairs] - self._first[number], point[pairs]
                inside, local, outside = own.quick(elements, x[at], groups.shape[1])
                left[pairs] = ~outside & ~inside
                best[at[inside]], cell[at[inside]], xi[at[inside]] = 0, candidate[pairs[inside]], local[inside]


def _groups(elements: Indices) -> Indices:
    """Rows [groups, width] of points of one element each, so that matrices serve; its last point fills up a row."""
    order = np.argsort(elements, kind="stable")
    starts = np.flatnonzero(run_starts(elements[order]))
    counts = np.diff(starts, append=len(order))
    # Few are there twice.
    width = int(np.clip(len(order) // (4 * max(1, len(counts))), 1, _POINTS_OF_A_GROUP))
    groups = -(-counts // width)
    run = np.repeat(np.arange(len(counts)), groups)
    place = width * (np.arange(len(run)) - (np.cumsum(groups) - groups)[run])
    return order[starts[run][:, None] + np.minimum(place[:, None] + np.arange(width), counts[run][:, None] - 1)]


def _whole(chosen: Mask, width: int) -> Mask:
    """All points of groups of which some are chosen, [n]."""
    return np.repeat(chosen.reshape(-1, width).any(axis=1), width)


def _combined(coefficients: Array, elements: Indices, modes: Array, width: int) -> Array:
    """Expansions at points, every `width` in one element: coefficients [E, r, m], modes [.., m, n] -> [.., r, n]."""
    own = coefficients[elements[::width]]
    found = np.empty((*modes.shape[:-2], own.shape[1], len(own), width))
    by_group = modes.reshape(*modes.shape[:-1], len(own), width).swapaxes(-2, -3)
    np.matmul(own, by_group, out=found.swapaxes(-2, -3))
    return found.reshape(*found.shape[:-2], -1)


class _Iterate(NamedTuple):
    """Where Newton's method is, for n points: collapsed coordinates, what is left of the way, and how long that is."""

    eta: Array
    residual: Array
    distance: Array


class _BlockMap:
    """The map of the elements of one block, to be inverted; the tolerance is relative to the size of an element."""

    def __init__(self, geometry: BlockGeometry, tolerance: float) -> None:
        self.geometry = geometry
        self.basis = geometry.basis
        self.shape = geometry.shape
        self.collapsed = np.array([direction.collapsed for direction in self.shape.directions])
        # Numbers for each point whose local coordinates are looked for.
        self.held = self.basis.n_modes * (geometry.space_dim + 2 * geometry.dim + 2)
        # Straight-sided cells lie within the box of their vertices; the others are sampled more finely.
        curved = geometry.order > 1 and not geometry.affine
        self.nodes = equispaced_nodes(self.shape, 2 * geometry.order if curved else 1)
        self.node_values = self.basis.evaluate(self.nodes)
        linear = np.column_stack([np.ones(len(self.nodes)), self.nodes])
        to_affine = self.node_values @ np.linalg.pinv(linear).T
        from_affine = self.node_values - to_affine @ linear.T
        E, D, d = geometry.n_elements, geometry.space_dim, geometry.dim
        self.lower, self.upper, self.centre = np.empty((E, D)), np.empty((E, D)), np.empty((D, E))
        self.to_local, away = np.empty((d, D, E)), np.empty((d, E))
        for part in chunks(E, D * len(self.nodes)):
            x = geometry.positions(self.node_values, part)
            self.lower[part], self.upper[part] = x.min(axis=2).T, x.max(axis=2).T
            near = np.moveaxis(geometry.positions(to_affine, part), 2, 0)  # [1 + d, D, E]
            self.centre[:, part] = near[0]
            to_local = determinant_and_inverse(near[1:].swapaxes(0, 1))[1]
            to_local[~np.isfinite(to_local)] = 0
            self.to_local[:, :, part] = to_local
            apart = geometry.positions(from_affine, part)
            away[:, part] = np.abs(np.einsum("aie,ieq->aeq", to_local, apart)).max(axis=2)
        size = (self.upper - self.lower).max(axis=1)
        self.reach, self.tolerance = tolerance * size, tolerance
        self.rounding = _EPS * np.maximum(np.abs(self.lower), np.abs(self.upper)).max(axis=1)
        blurred = self.reach + _ROUNDINGS * self.rounding
        # How far outside the reference shape the guess for a point of the element may lie: each facet's inequality is
        # of the sum of the local coordinates at most. Where there is no affine map nothing is known.
        lengths = np.sqrt((self.to_local**2).sum(axis=1))
        self.blur = (lengths * blurred).sum(axis=0)
        self.departure = (_DEPARTURE * away).sum(axis=0) + self.blur + (_BULGE if curved else 0.0)
        self.departure[(lengths == 0).any(axis=0)] = np.inf
        self.one_to_one = self._one_to_one() if D == d else np.zeros(E, dtype=bool)
        margin = blurred + (_BULGE * size if curved else 0.0)
        self.lower -= margin[:, None]
        self.upper += margin[:, None]

    def _one_to_one(self) -> Mask:
        """Whether the map departs so little from the affine one that it is one to one around each element, [E]."""
        gradient = check_gradient(self.shape, self.geometry.order)
        result = np.empty(self.geometry.n_elements, dtype=bool)
        for part in chunks(len(result), 3 * self.geometry.dim**2 * gradient.shape[2]):
            J = np.einsum("aie,ibeq->abeq", self.to_local[:, :, part], self.geometry.jacobian(gradient, part))
            J -= np.eye(len(J))[:, :, None, None]
            result[part] = (J**2).sum(axis=(0, 1)).max(axis=1) < _SLOPE**2
        return result

    def _guess(self, elements: Indices, x: Array) -> Array:
        """Local coordinates by the affine map closest to the element's, [n, d]."""
        return np.einsum("ain,in->na", self.to_local.take(elements, axis=2), x.T - self.centre.take(elements, axis=1))

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

    def _at(self, elements: Indices, x: Array, eta: Array, width: int = 1) -> _Iterate:
        """Where collapsed coordinates lead to; `width` as of `_combined`."""
        residual = x - _combined(self.geometry.coefficients, elements, modes_at(self.basis, eta), width).T
        return _Iterate(eta, residual, np.sqrt((residual**2).sum(axis=1)))

    def _inverse(self, elements: Indices, eta: Array, width: int = 1) -> Array:
        """Inverses of the maps' Jacobians by local coordinates, [d, D, n]; 0 where they are singular."""
        collapsed = self.collapsed.any()
        eta = np.where(self.collapsed, np.minimum(eta, 1 - _BELOW_COLLAPSE), eta) if collapsed else eta
        J = _combined(self.geometry.coefficients, elements, gradients_at(self.basis, eta), width).swapaxes(0, 1)
        inverse = determinant_and_inverse(J)[1]
        inverse[~np.isfinite(inverse)] = 0
        return np.einsum("nab,bin->ain", self.shape.collapse_matrix(eta), inverse) if collapsed else inverse

    def quick(self, elements: Indices, x: Array, width: int) -> tuple[Mask, Array, Mask]:
        """Find points inside of elements by a few Newton steps; x [n, D] -> inside [n], xi [n, d], outside [n]."""
        goal, rounding = 2 * self.rounding[elements], _ROUNDINGS * self.rounding[elements]
        xi = self._guess(elements, x)
        if not self.geometry.affine:
            with np.errstate(all="ignore"):
                self._iterate(elements, x, width, xi, goal)
        clipped = self._clipped(xi)
        state = self._at(elements, x, clipped, width)
        inside = state.distance <= rounding
        rest = np.flatnonzero(~inside & self.one_to_one[elements])
        outside = np.zeros(len(x), dtype=bool)
        if len(rest):
            depth, eta = self.shape.depth(xi[rest]), self.shape.inverse_collapse(xi[rest])
            there = self._at(elements[rest], x[rest], eta).distance <= rounding[rest]
            outside[rest] = there & (depth < -self.blur[elements[rest]]) & (depth > -1)
        return inside, self.shape.collapse(clipped), outside

    def _iterate(self, elements: Indices, x: Array, width: int, xi: Array, goal: Array) -> None:
        """Take steps towards points from local coordinates xi, which are overwritten."""
        inverse, active, local = self.to_local.take(elements, axis=2), np.arange(len(x)), xi
        before, fresh = np.full(len(x), np.nan), np.zeros(len(x), dtype=bool)
        for _ in range(_QUICK_STEPS):
            eta = self.shape.inverse_collapse(local)
            _, residual, distance = self._at(elements, x, eta, width)
            # Where a step of Newton's method itself does not bring the point half as far it takes more care.
            moves = (distance > goal) & ~(fresh & (distance >= 0.5 * before))
            fresh = _whole(moves & (distance > _STALE * before), width)
            if fresh.any():
                rows = np.flatnonzero(fresh)
                inverse[:, :, rows] = self._inverse(elements[rows], eta[rows], width)
            step = np.einsum("ain,ni->na", inverse, residual)
            moves &= np.abs(step).max(axis=1) < _FAR
            local = local + np.where(moves[:, None], step, 0.0)
            # The next step would leave as small a part of the way, or a smaller one.
            rows = np.flatnonzero(_whole(moves & ~(distance**2 <= goal * before), width))
            before = distance
            if len(rows) < len(active):
                xi[active] = local
                inverse = inverse.take(rows, axis=2)
                active, elements, fresh = active.take(rows), elements.take(rows), fresh.take(rows)
                local, x, goal, before = (array.take(rows, axis=0) for array in (local, x, goal, before))
            if not len(rows):
                return
        xi[active] = local

    def invert(self, elements: Indices, x: Array, closest_node: bool = False) -> tuple[Array, Array]:
        """Find the points of elements that are closest to points; elements [n], x [n, D] -> distance [n], xi [n, d]."""
        start = self._closest_node(elements, x) if closest_node else self._guess(elements, x)
        goal, rounding = 2 * self.rounding[elements], _ROUNDINGS * self.rounding[elements]
        state = self._at(elements, x, self._clipped(start))
        length = np.ones(len(x))
        active = np.flatnonzero(state.distance > goal)
        for _ in range(_MAX_STEPS):
            if not len(active):
                break
            now = _Iterate(*(array[active] for array in state))
            inverse = self._inverse(elements[active], now.eta)
            step = np.einsum("ain,ni->na", inverse, now.residual) * length[active, None]
            xi = self.shape.collapse(now.eta)
            trial = self._at(elements[active], x[active], self._clipped(xi + step))
            better = trial.distance < now.distance
            moved = np.abs(self.shape.collapse(trial.eta) - xi).max(axis=1) > 2 * _EPS
            for array, new in zip(state, trial, strict=True):
                array[active[better]] = new[better]
            length[active] = np.where(better, np.minimum(1.0, 2 * length[active]), length[active] / 2)
            stuck = ~moved | (~better & ((now.distance <= rounding[active]) | (length[active] < _SMALLEST_STEP)))
            active = active[~stuck & (state.distance[active] > goal[active])]
        if self.tolerance > TOLERANCE:
            self._slide(elements, x, state, np.flatnonzero(state.distance > goal))
        distance = np.maximum(state.distance - rounding, 0.0)
        return distance, self.shape.collapse(state.eta)

    def _slide(self, elements: Indices, x: Array, state: _Iterate, active: Indices) -> None:
        """Move from where Newton's method was stopped by facets along these, as long as points come closer."""
        length = np.ones(len(active))
        for _ in range(_MAX_STEPS):
            if not len(active):
                return
            eta, residual, distance = (array[active] for array in state)
            below = np.where(self.collapsed, np.minimum(eta, 1 - _BELOW_COLLAPSE), eta)
            J = _combined(self.geometry.coefficients, elements[active], gradients_at(self.basis, below), 1).T
            held = (np.abs(eta) >= 1) & (np.einsum("nDa,nD->na", J, residual) * eta > 0)
            step = np.einsum("naD,nD->na", np.linalg.pinv(np.where(held[:, None], 0.0, J)), residual)
            step *= length[:, None]
            trial = self._at(elements[active], x[active], np.clip(eta + step, -1.0, 1.0))
            # At a collapsed vertex or edge it has to turn first.
            turned = ((trial.eta != eta) & (self.collapsed & (eta == 1)).any(axis=1)[:, None]).any(axis=1)
            better = trial.distance < np.where(turned, 1 + _SLID, 1 - _SLID) * distance
            for array, new in zip(state, trial, strict=True):
                array[active[better]] = new[better]
            length = np.where(better, np.minimum(1.0, 2 * length), length / 2)
            active, length = active[length >= _SMALLEST_STEP], length[length >= _SMALLEST_STEP]


class _BoxTree:
    """A tree of boxes: the leaves are the cells' along a space-filling curve, each node above bounds its children's."""

    def __init__(self, lower: Array, upper: Array) -> None:
        self.cells = order = along_curve((lower + upper) / 2)
        levels = [(lower.T.take(order, axis=1), upper.T.take(order, axis=1))]
        while levels[-1][0].shape[1] > 1:
            low, high = levels[-1]
            starts = np.arange(0, low.shape[1], _FANOUT)
            levels.append((np.minimum.reduceat(low, starts, axis=1), np.maximum.reduceat(high, starts, axis=1)))
        self.levels = levels[::-1]

    def bounds(self) -> tuple[Array, Array]:
        """Corners of the box around all, [D] each; the least is above the largest where there is none."""
        lower, upper = self.levels[0]
        return lower.min(axis=1, initial=np.inf), upper.max(axis=1, initial=-np.inf)

    def pairs(self, x: Array) -> tuple[Indices, Indices]:
        """Points and the cells whose boxes they are in; x [n, D] -> point, cell [n_pairs]."""
        if not len(self.cells) or not len(x):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        order = along_curve(x)
        # Boxes that are not much larger than a cell, if points lie as dense everywhere.
        together = int(np.clip(4 * len(x) / len(self.cells), 1, _POINTS_OF_A_BOX))
        starts = np.arange(0, len(x), together)
        columns = x.T.take(order, axis=1)
        least, most = (ends.reduceat(columns, starts, axis=1) for ends in (np.minimum, np.maximum))
        box, node = np.arange(len(starts)), np.zeros(len(starts), dtype=np.int64)
        for depth, (lower, upper) in enumerate(self.levels):
            if depth:
                node = (node[:, None] * _FANOUT + np.arange(_FANOUT)).ravel()
                box = np.repeat(box, _FANOUT)
                exists = node < lower.shape[1]
                box, node = box[exists], node[exists]
            for low, high, first, last in zip(lower, upper, least, most, strict=True):
                within = np.flatnonzero((low.take(node) <= last.take(box)) & (first.take(box) <= high.take(node)))
                box, node = box.take(within), node.take(within)
        counts = np.diff(starts, append=len(x))[box]
        node = np.repeat(node, counts)
        place = np.arange(len(node)) + np.repeat(starts[box] - (np.cumsum(counts) - counts), counts)
        for low, high, column in zip(*self.levels[-1], columns, strict=True):
            at = column.take(place)
            within = np.flatnonzero((low.take(node) <= at) & (at <= high.take(node)))
            place, node = place.take(within), node.take(within)
        return order.take(place), self.cells.take(node)
