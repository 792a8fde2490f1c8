"""Checks that a mesh can be used; each raises a `MeshError` that names the element and the reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpfem.shapes.arrays import Array, Indices, Mask

from ..geometry.element_map import CACHED, ElementMap, Quality, check_gradient, chunks, elevated_nodes
from .cells import CellArray, Labels
from .lattice import inner_points, lattice_numbering
from .sorting import sorted_rows
from .symmetry import mirror, outward_signs, parities
from .topology import Topology, classes

# Neighbours must agree on their common points up to this fraction of the cell's size.
GAP_TOLERANCE = 1e-9


def dimensions(arrays: Sequence[CellArray], n_coordinates: int, labels: Labels) -> None:
    """There are cells, of one dimension, 2 or 3, and points of at least as many coordinates."""
    if not arrays:
        raise labels.error("no cells")
    dims = {array.shape.dim for array in arrays}
    if len(dims) > 1:
        raise labels.error(f"cells of dimensions {sorted(dims)} in one mesh")
    dim = dims.pop()
    if dim == 1:
        raise labels.error("only line cells; a mesh needs 2-D or 3-D cells")
    if dim > n_coordinates:
        raise labels.error(f"{dim}-D cells whose points have {n_coordinates} coordinates")


def nodes(arrays: Sequence[CellArray], points: Array, labels: Labels) -> None:
    """Node numbers exist and do not repeat within a cell; the coordinates in use are finite; points [n, D]."""
    # Squares of areas must be finite too.
    finite = np.asarray((np.abs(points) < 1e50).all(axis=1))
    for array in arrays:
        outside, repeated, infinite = np.zeros((3, len(array)), dtype=bool)
        for part in chunks(len(array), 2 * array.nodes.shape[1], most=CACHED):
            rows = array.nodes[part]
            outside[part] = (rows.min(axis=1) < 0) | (rows.max(axis=1) >= len(points))
            repeated[part] = _repeats(rows)
            infinite[part] = ~finite.take(rows, mode="clip").all(axis=1)
        if outside.any():
            who = labels.first(array, outside)
            raise labels.error(f"{who} refers to a node that does not exist; there are {len(points)} nodes")
        if repeated.any():
            raise labels.error(f"{labels.first(array, repeated)} has the same node twice")
        if infinite.any():
            own = array.nodes[np.argmax(infinite)]
            place = points[own[~finite[own]][0]].tolist()
            raise labels.error(f"{labels.first(array, infinite)} has a node at {place}; coordinates must be finite")


def _repeats(rows: Indices) -> np.ndarray:
    """Which rows have a number twice."""
    ordered = np.sort(rows, axis=1)
    return np.asarray((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))


def tangling(arrays: Sequence[CellArray], found: Sequence[Quality], labels: Labels) -> None:
    """No cell has det J of both signs, or zero; the worst one is named."""
    worst: tuple[float, str, str] | None = None
    count = 0
    for array, quality in zip(arrays, found, strict=True):
        bad = np.flatnonzero(~(quality.positively_oriented | quality.mirrored))
        count += len(bad)
        if len(bad):
            # The largest |det J| of the rarer sign.
            depth = np.minimum(-quality.least_scaled[bad], quality.most_scaled[bad])
            where = bad[np.argmax(depth)]
            low, high = quality.smallest[where], quality.largest[where]
            sign = "of mixed sign" if depth.max() > quality.noise[where] else "zero"
            reason = f"its Jacobian determinant is {sign}, from {low:.3g} to {high:.3g}"
            if worst is None or depth.max() > worst[0]:
                worst = (float(depth.max()), labels.cell([array], int(array.indices[where])), reason)
    if worst is not None:
        others = f" ({count} such elements, this is the worst)" if count > 1 else ""
        raise labels.error(f"{worst[1]} is tangled or flat: {worst[2]}{others}")


def positively_oriented(
    points: Array, arrays: Sequence[CellArray], labels: Labels
) -> tuple[list[CellArray], list[Mask]]:
    """Renumber the nodes of mirrored cells so that det J > 0; points [n, D] -> mirrored [E]."""
    mirrored, unsure, found = [], [], []
    for array in arrays:
        gradient = check_gradient(array.shape, array.order)
        signs = np.concatenate([own.sure_signs(gradient) for own in ElementMap.parts(array, points)])
        rest = np.flatnonzero(signs == 0)
        unsure.append(CellArray(array.shape, array.order, array.nodes[rest], array.indices[rest]))
        found.append(ElementMap.of(unsure[-1], points).quality())
        mirrored.append(signs < 0)
        mirrored[-1][rest] = found[-1].mirrored
    tangling(unsure, found, labels)
    result = list(arrays)
    for position, (array, own) in enumerate(zip(arrays, mirrored, strict=True)):
        if own.any():
            nodes = array.nodes.copy()
            nodes[own] = nodes[own][:, mirror(array.shape, array.order)]
            result[position] = CellArray(array.shape, array.order, nodes, array.indices)
    return result, mirrored


def neighbours(topology: Topology, labels: Labels, *, oriented: bool) -> None:
    """A facet has two cells at most, on opposite sides, with the same corners in matching order."""
    facets, sides = topology.facets, topology.sides
    if len(facets.non_manifold):
        here = [(ids == facets.non_manifold[0]).any(axis=1) for ids in sides.ids]
        cells = sorted(c for array, own in zip(topology.cells, here, strict=True) for c in array.indices[own])
        who = ", ".join(labels.cell(topology.cells, int(cell)) for cell in cells[:5])
        who += f" and {len(cells) - 5} more" if len(cells) > 5 else ""
        raise labels.error(f"{who} share one facet; a facet has two elements at most")
    _same_cyclic_order(topology, labels)
    if not oriented:
        return
    total = np.zeros(len(facets), dtype=np.int8)
    for position, number, facet in topology.local_entities(topology.dim - 1):
        codes, ids = sides.orientation[position][:, number], sides.ids[position][:, number]
        signs = (outward_signs(topology.cells[position].shape)[number] * parities(facet.shape)).astype(np.int8)
        np.add.at(total, ids, signs[codes])
    wrong = facets.interior[total[facets.interior] != 0]
    if len(wrong):
        first, second = (labels.cell(topology.cells, int(cell)) for cell in facets.cells[wrong[0]])
        raise labels.error(f"{first} and {second} overlap: they lie on the same side of their common facet")


def _same_cyclic_order(topology: Topology, labels: Labels) -> None:
    """Quads with the same corners must have them in the same cyclic order."""
    opposite = np.full(topology.sides.count, -1, dtype=np.int64)
    for position, number, facet in topology.local_entities(topology.dim - 1):
        if facet.shape.n_vertices != 4:
            continue
        corners = topology.vertices[position][:, facet.vertices]
        smallest = np.argmin(corners, axis=1)
        far = np.take_along_axis(corners, 3 - smallest[:, None], axis=1)[:, 0]
        ids = topology.sides.ids[position][:, number]
        known = opposite[ids]
        wrong = (known >= 0) & (known != far)
        if wrong.any():
            cells = topology.facets.cells[ids[np.argmax(wrong)]]
            who = " and ".join(labels.cell(topology.cells, int(cell)) for cell in cells if cell >= 0)
            raise labels.error(f"{who} have the corners of their common face in different cyclic order")
        opposite[ids] = far


def conformity(topology: Topology, points: Array, labels: Labels) -> None:
    """Neighbours share whole sides: no side meets parts of other sides, and there are no gaps; points [n, D]."""
    neighbours(topology, labels, oriented=topology.dim == points.shape[1])
    _split_quads(topology, labels)
    _gaps(topology, points, labels)


def _split_quads(topology: Topology, labels: Labels) -> None:
    """No quad face without a neighbour holds the corners of a triangle without one."""
    if topology.dim == 2:
        return
    is_open = topology.facets.on_boundary
    for position, number, facet in topology.local_entities(2):
        if facet.shape.n_vertices != 4:
            continue
        quads = is_open[topology.sides.ids[position][:, number]]
        corners = topology.vertices[position][quads][:, facet.vertices]
        threes = np.concatenate([np.delete(corners, skipped, axis=1) for skipped in range(4)])
        triangle = topology.sides.index.find(sorted_rows(threes)).reshape(4, -1)
        bad = ((triangle >= 0) & is_open[triangle]).any(axis=0)
        if bad.any():
            cell = topology.cells[position].indices[quads][np.argmax(bad)]
            raise labels.error(
                f"the mesh is not conforming: a quad face of {labels.cell(topology.cells, int(cell))} meets "
                "triangles of its neighbours; put pyramids between"
            )


def _gaps(topology: Topology, points: Array, labels: Labels) -> None:
    """Cells with the same corners on a side have all points of that side in common."""
    arrays = topology.cells
    highest = max(array.order for array in arrays)
    if highest == 1:
        return
    if all(array.order == highest for array in arrays) and _same_nodes(topology, highest):
        return
    numbering, count = lattice_numbering(topology, highest)
    place = np.empty((count, points.shape[1]))
    own = [elevated_nodes(array, points, highest) for array in arrays]
    for coordinates, numbers in zip(own, numbering, strict=True):
        place[numbers] = coordinates
    for array, coordinates, numbers in zip(arrays, own, numbering, strict=True):
        size = np.ptp(coordinates, axis=1).max(axis=1)
        apart = np.abs(place.take(numbers, axis=0) - coordinates).max(axis=1).max(axis=1) / size
        if apart.max(initial=0) > GAP_TOLERANCE:
            raise labels.error(
                f"{labels.first(array, apart == apart.max())} and a neighbour with the same corners do not meet: "
                f"their common nodes are {apart.max():.2g} of the element's size apart"
            )


def _same_nodes(topology: Topology, order: int) -> bool:
    """Whether cells that share an edge or a face, and are all of this order, share its nodes."""
    for dim in range(1, topology.dim):
        (points, count), (again, _) = (inner_points(topology, order, dim) for _ in range(2))
        node_of = np.empty(count, dtype=np.int64)
        for position, inside, numbers in points:
            node_of[numbers] = topology.cells[position].nodes[:, inside]
        for position, inside, numbers in again:
            if not np.array_equal(node_of.take(numbers), topology.cells[position].nodes[:, inside]):
                return False
    return True


def periodicity(topology: Topology, before: Topology, images: Sequence[Indices], labels: Labels) -> None:
    """Identified vertices do not make other edges or faces equal; images [n, 2]."""
    for array, vertices in zip(topology.cells, topology.vertices, strict=True):
        repeated = _repeats(vertices)
        if repeated.any():
            who = labels.first(array, repeated)
            raise labels.error(f"{who} touches itself across a periodic side; use three or more cells there")
    both = {1: (before.edges, topology.edges), topology.dim - 1: (before.sides, topology.sides)}
    for dim, (old, new) in both.items():
        rows = np.full((old.count, 2 if dim == 1 else 4), -1, dtype=np.int64)
        for position, number, entity in before.local_entities(dim):
            corners = before.vertices[position][:, entity.vertices]
            rows[old.ids[position][:, number], -len(entity.vertices) :] = sorted_rows(corners)
        pairs = [np.empty((0, 2), dtype=np.int64)]
        for sides in images:
            image = np.full(before.n_vertices + 1, -2, dtype=np.int64)
            image[sides[:, 0]] = sides[:, 1]
            image[-1] = -1  # the padding of shorter rows
            moved = np.sort(image[rows], axis=1)
            found = np.flatnonzero((moved > -2).all(axis=1))
            partner = old.index.find(moved[found])
            pairs.append(np.column_stack([found, partner])[partner >= 0])
        if classes(old.count, np.concatenate(pairs))[0] != new.count:
            raise labels.error(
                "too few cells across a periodic direction: different edges or faces would have the same vertices; "
                "use three or more"
            )
