"""Continuous interpolation of functions, entity by entity: first the values at the vertices, then the remainder on the
edges, the faces and in the cells, each by an L2 projection in the entity's own coordinates (Demkowicz' projection-based
interpolation with L2 throughout). Boundary values are computed in the same way, on the boundary's entities only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np

from hpfem.shapes import Basis, Shape, make_basis, quadrature
from hpfem.shapes.arguments import is_real, real
from hpfem.shapes.arrays import Array, Indices, Mask
from hpfem.shapes.low_energy import interior_modes

from ..errors import ArgumentError
from ..geometry.element_map import ElementMap, chunks
from ..mesh.sorting import distinct, turned
from ..mesh.symmetry import entity_nodes, lattice_permutations, symmetries
from ..space.evaluation import evaluated
from ..support.tables import on_disk
from .numbering import Numbering

Function = Callable[..., Any] | float


@dataclass(frozen=True, eq=False)
class Patch:
    """Edges, faces or cells of one shape and geometry order, as `Cells`; nodes [n, n_nodes] are rows of mesh.points."""

    shape: Shape
    order: int
    nodes: Indices


@dataclass(frozen=True, eq=False)
class Piece:
    """A function and the entities it is for: masks for each dimension up to the last that is needed, None for all."""

    function: Function
    masks: Sequence[Mask] | None = None


def values_of(function: Function, x: Array, what: str) -> Array:
    """Values of a user's function or number, all finite; x [D, ...] -> [components, ...]."""
    if is_real(function):
        found = np.full((1, *x.shape[1:]), real(function, what))
    else:
        found = evaluated(cast(Callable[..., Any], function), list(x), x.shape[1:])
    bad = ~np.isfinite(found).all(axis=0)
    if bad.any():
        where = ", ".join(f"{c:.6g}" for c in x[(slice(None), *np.argwhere(bad)[0])])
        raise ArgumentError(f"{what} is not finite at ({where})")
    return found


def oriented_patch(numbering: Numbering, group: int, rows: Indices, dim: int, number: int) -> tuple[Patch, Indices]:
    """Entities of some cells of a group, seen in their global vertex order; rows [n] -> [n, n_vertices]."""
    cells = numbering.cells[group]
    entity = cells.shape.entities[dim][number]
    codes = numbering.of_group(group, dim).codes[rows, number]
    nodes = cells.nodes[rows][:, entity_nodes(cells.shape, cells.order, dim, number)]
    nodes = turned(nodes, lattice_permutations(entity.shape, cells.order), codes)
    vertices = cells.vertices[rows][:, entity.vertices]
    vertices = turned(vertices, symmetries(entity.shape), codes)
    return Patch(entity.shape, cells.order, nodes), vertices


# Entities that are prepared at a time, and those of another number with them.
_AT_ONCE = 100_000
# Additional points by dimension: enough that values of a smooth function do not depend on an entity's rotation.
_MORE = {1: 10, 2: 8, 3: 4}


@cache
@on_disk
def _fit(basis: Basis, moments: bool) -> tuple[Array, Array, Array]:
    """Points xi, modes at them, and a projection of values there on the interior modes, [Q, n_inside]: in L2, or one
    with the same `moments`, integrals times polynomials up to order - 2, or fewer if there are fewer modes.
    """
    shape = basis.shape
    rule = quadrature(shape, [basis.order + _MORE[shape.dim]] * shape.dim, ["gauss"] * shape.dim)
    xi = shape.collapse(rule.eta)
    values = basis.evaluate(xi)
    root = np.sqrt(rule.weights)
    left, upper = np.linalg.qr((values[interior_modes(basis)] * root).T)
    # By the inverse: threads of SciPy's BLAS would wait for those of NumPy's, entity by entity.
    projection = (left * root[:, None]) @ np.linalg.inv(upper).T
    if moments:
        powers = np.array(sorted(np.ndindex((basis.order,) * shape.dim), key=sum))
        counts = np.cumsum(np.bincount(powers.sum(axis=1)))[: basis.order - 1]
        powers = powers[: counts[counts <= projection.shape[1]].max(initial=0)]
        tests = (xi[:, None] ** powers).prod(axis=2) * rule.weights[:, None]
        of_modes = tests.T @ values[interior_modes(basis)].T
        projection = projection + (tests - projection @ of_modes.T) @ np.linalg.pinv(of_modes).T
    return xi, values, projection


@cache
def _map_values(of_map: Basis, basis: Basis) -> Array:
    """Modes of an element map at the points of `_fit`."""
    return of_map.evaluate(_fit(basis, False)[0])


def interpolate(numbering: Numbering, pieces: Sequence[Piece], components: int = 1) -> Array:
    """Global vector of given functions on given entities, zero elsewhere; -> [components, size]."""
    if all(is_real(piece.function) and piece.function == 0 for piece in pieces):
        return np.zeros((components, numbering.size))
    mesh = numbering.mesh
    result: Array | None = None
    for dim in range(mesh.dim + 1):
        done = np.zeros(len(numbering.offsets[dim]), dtype=bool)
        for piece in pieces:
            if piece.masks is not None and dim >= len(piece.masks):
                continue
            for places in _together(numbering, dim, None if piece.masks is None else piece.masks[dim], done):
                for columns, values in _fitted(numbering, piece.function, dim, places, result):
                    if result is None:
                        result = np.zeros((len(values), numbering.size))
                    if len(values) != len(result):
                        raise ArgumentError(f"functions of {len(result)} and of {len(values)} components on one field")
                    result[:, columns] = values
    return np.zeros((components, numbering.size)) if result is None else result


@dataclass(frozen=True, eq=False)
class _Place:
    """Entities with one number in some cells of a group."""

    group: int
    number: int
    rows: Indices  # of the cells, [n]
    ids: Indices  # of the entities, [n]


def _together(numbering: Numbering, dim: int, mask: Mask | None, done: Mask) -> Iterator[list[_Place]]:
    """Entities that are not done, which are done then: those of one shape and order of maps, so many at a time."""
    found: dict[tuple[Shape, int], list[_Place]] = {}
    for group, cells in enumerate(numbering.cells):
        ids = numbering.of_group(group, dim).ids
        for number, entity in enumerate(cells.shape.entities[dim]):
            rows = np.flatnonzero((~done if mask is None else mask & ~done)[ids[:, number]])
            own = ids[rows, number]
            first, _ = distinct(own.copy(), len(done))
            done[own] = True
            some = found.setdefault((entity.shape, cells.order), [])
            for part in chunks(len(first), 1, most=_AT_ONCE):
                some.append(_Place(group, number, rows[first[part]], own[first[part]]))
                if sum(len(place.ids) for place in some) > _AT_ONCE:
                    yield some[:]
                    some.clear()
    yield from (some for some in found.values() if some)


def with_moments(numbering: Numbering, values: Array, given: Sequence[tuple[float, Mask]]) -> Array:
    """A function with other modes inside facets, so that it has the moments of numbers there; masks of facets."""
    dim, result = numbering.mesh.dim - 1, values.copy()
    for number, mask in given:
        for places in _together(numbering, dim, mask, np.zeros_like(mask)):
            for columns, found in _fitted(numbering, number, dim, places, values[None], moments=True):
                result[columns] = found[0]
    return result


def _fitted(
    numbering: Numbering,
    function: Function,
    dim: int,
    places: Sequence[_Place],
    below: Array | None,
    moments: bool = False,
) -> list[tuple[Indices, Array]]:
    """Columns [n, n_inside] and values [components, n, n_inside] of entities whose boundary values are known."""
    mesh, ids = numbering.mesh, np.concatenate([place.ids for place in places])
    offsets, orders = numbering.offsets[dim][ids], numbering.orders[dim][ids]
    if dim == 0:
        cells = [(numbering.cells[place.group], place) for place in places]
        corner = [entity_nodes(own.shape, own.order, 0, place.number)[0] for own, place in cells]
        nodes = np.concatenate([own.nodes[p.rows, node] for (own, p), node in zip(cells, corner, strict=True)])
        return [(offsets[:, None], values_of(function, mesh.points[nodes].T[:, :, None], "a value"))]
    patches, corners = zip(*(oriented_patch(numbering, p.group, p.rows, dim, p.number) for p in places), strict=True)
    nodes, vertices = np.concatenate([own.nodes for own in patches]), np.concatenate(corners)
    shape, found = patches[0].shape, []
    for order in np.unique(orders):
        of_order = np.flatnonzero(orders == order)
        basis = make_basis(numbering.name, shape, int(order))
        inside = interior_modes(basis)
        if len(inside) == 0:
            continue
        xi, values, projection = _fit(basis, moments)
        # Coordinates, values, and the part that is known already, of a few entities at a time.
        for part in chunks(len(of_order), (mesh.points.shape[1] + 2) * len(xi)):
            chosen = of_order[part]
            elements = ElementMap.of(Patch(shape, patches[0].order, nodes[chosen]), mesh.points)
            rest = values_of(function, elements.positions(_map_values(elements.basis, basis)), "a value")
            if below is not None:
                seen = [numbering.of_vertices(shape, vertices[chosen], d) for d in range(dim)]
                local = numbering.local_to_global(basis, seen).matrix @ below.T
                local = local.reshape(len(chosen), basis.n_modes, -1)
                rest = rest - np.einsum("emc,mq->ceq", local, values, optimize=True)
            found.append((offsets[chosen][:, None] + np.arange(len(inside)), rest @ projection))
    return found
