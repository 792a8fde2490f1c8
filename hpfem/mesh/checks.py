"""What a mesh must be to compute on it; each check raises one `MeshError` that names the element and the reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hpfem.errors import MeshError

from ..geometry.element_map import Quality, elevated_nodes
from .lattice import lattice_numbering
from .parts import Array, Labels, Part
from .symmetry import Indices, outward_signs, parities
from .topology import Topology

# Neighbours must agree on the points of what they share to this share of the cell's size.
GAP_TOLERANCE = 1e-9


def _join(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def dimensions(parts: Sequence[Part], n_coordinates: int, labels: Labels) -> None:
    """There are cells, of one dimension, 2 or 3, and points of at least as many coordinates."""
    if not parts:
        raise MeshError(f"{labels.name}: no cells")
    dims = {part.shape.dim for part in parts}
    if len(dims) > 1:
        raise MeshError(f"{labels.name}: cells of dimensions {sorted(dims)} in one mesh")
    dim = dims.pop()
    if dim == 1:
        raise MeshError(f"{labels.name}: only line cells; a mesh needs 2-D or 3-D cells")
    if dim > n_coordinates:
        raise MeshError(f"{labels.name}: {dim}-D cells whose points have {n_coordinates} coordinates")


def nodes(parts: Sequence[Part], points: Array, labels: Labels) -> None:
    """Node numbers exist and do not repeat within a cell; the coordinates in use are finite."""
    # Squares of areas must be finite too.
    finite = np.asarray((np.abs(points) < 1e50).all(axis=1))
    for part in parts:
        wrong = ((part.nodes < 0) | (part.nodes >= len(points))).any(axis=1)
        if wrong.any():
            where = int(np.argmax(wrong))
            who = labels.cell(part.shape, int(part.indices[where]))
            raise MeshError(f"{labels.name}: {who} refers to a node that does not exist; there are {len(points)} nodes")
        ordered = np.sort(part.nodes, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any():
            who = labels.cell(part.shape, int(part.indices[int(np.argmax(twice))]))
            raise MeshError(f"{labels.name}: {who} has the same node twice")
        bad = ~finite[part.nodes].all(axis=1)
        if bad.any():
            where = int(np.argmax(bad))
            place = points[part.nodes[where][~finite[part.nodes[where]]][0]].tolist()
            who = labels.cell(part.shape, int(part.indices[where]))
            raise MeshError(f"{labels.name}: {who} has a node at {place}; coordinates must be finite")


def tangling(parts: Sequence[Part], found: Sequence[Quality], labels: Labels) -> None:
    """No cell has det J of both signs, or zero; the worst one is named."""
    worst: tuple[float, str, str] | None = None
    count = 0
    for part, quality in zip(parts, found, strict=True):
        bad = np.flatnonzero(~(quality.positively_oriented | quality.mirrored))
        count += len(bad)
        if len(bad):
            # How deep the minority sign goes.
            depth = np.minimum(-quality.least_scaled[bad], quality.most_scaled[bad])
            where = bad[np.argmax(depth)]
            low, high = quality.smallest[where], quality.largest[where]
            sign = "of mixed sign" if depth.max() > quality.noise[where] else "zero"
            reason = f"its Jacobian determinant is {sign}, from {low:.3g} to {high:.3g}"
            if worst is None or depth.max() > worst[0]:
                worst = (float(depth.max()), labels.cell(part.shape, int(part.indices[where])), reason)
    if worst is not None:
        others = f" ({count} such elements, this is the worst)" if count > 1 else ""
        raise MeshError(f"{labels.name}: {worst[1]} is tangled or flat: {worst[2]}{others}")


def _cell_label(topology: Topology, cell: int, labels: Labels) -> str:
    for shape, indices in zip(topology.shapes, topology.indices, strict=True):
        if np.any(indices == cell):
            return labels.cell(shape, cell)
    raise AssertionError(f"no cell {cell}")


def neighbours(topology: Topology, labels: Labels, *, oriented: bool) -> None:
    """A facet has two cells at most, on opposite sides, with the same corners in matching order."""
    facets = topology.facets
    if len(facets.crowded):
        ids = topology.sides.ids
        cells = [c for g, own in enumerate(ids) for c in topology.indices[g][(own == facets.crowded[0]).any(axis=1)]]
        who = _join([_cell_label(topology, int(cell), labels) for cell in sorted(cells)])
        raise MeshError(f"{labels.name}: {who} share one facet; a facet has two elements at most")
    _twisted(topology, labels)
    if not oriented:
        return
    total = np.zeros(len(facets), dtype=np.int64)
    for group, shape in enumerate(topology.shapes):
        for number, (facet, outward) in enumerate(zip(shape.facets, outward_signs(shape), strict=True)):
            sign = outward * parities(facet.shape)[topology.sides.orientation[group][:, number]]
            np.add.at(total, topology.sides.ids[group][:, number], sign)
    wrong = facets.interior[total[facets.interior] != 0]
    if len(wrong):
        first, second = (_cell_label(topology, int(cell), labels) for cell in facets.cells[wrong[0]])
        raise MeshError(f"{labels.name}: {first} and {second} overlap: they lie on the same side of their common facet")


def _twisted(topology: Topology, labels: Labels) -> None:
    """Quads with the same corners must have them in the same cyclic order."""
    opposite = np.full(topology.sides.count, -1, dtype=np.int64)
    for group, shape in enumerate(topology.shapes):
        for number, facet in enumerate(shape.facets):
            if facet.shape.n_vertices != 4:
                continue
            corners = topology.vertices[group][:, facet.vertices]
            smallest = np.argmin(corners, axis=1)
            far = np.take_along_axis(corners, 3 - smallest[:, None], axis=1)[:, 0]
            ids = topology.sides.ids[group][:, number]
            known = opposite[ids]
            wrong = (known >= 0) & (known != far)
            if wrong.any():
                cells = topology.facets.cells[ids[np.argmax(wrong)]]
                who = " and ".join(_cell_label(topology, int(cell), labels) for cell in cells if cell >= 0)
                raise MeshError(f"{labels.name}: {who} have the corners of their common face in different cyclic order")
            opposite[ids] = far


def hanging(topology: Topology, labels: Labels) -> None:
    """No quad face without a neighbour holds the corners of a triangle without one."""
    if topology.dim == 2:
        return
    open_facets = topology.facets.boundary
    is_open = np.zeros(len(topology.facets), dtype=bool)
    is_open[open_facets] = True
    triangles, quads, owners = [], [], []
    for group, shape in enumerate(topology.shapes):
        for number, facet in enumerate(shape.facets):
            chosen = is_open[topology.sides.ids[group][:, number]]
            corners = np.sort(topology.vertices[group][chosen][:, facet.vertices], axis=1)
            if facet.shape.n_vertices == 3:
                triangles.append(corners)
            else:
                quads.append(corners)
                owners.append(topology.indices[group][chosen])
    if not triangles or not quads:
        return
    tri, quad, owner = np.concatenate(triangles), np.concatenate(quads), np.concatenate(owners)
    kinds = (tri[:, 0] * topology.n_vertices + tri[:, 1], tri[:, 2])
    order = np.lexsort(kinds[::-1])
    wanted = np.column_stack(kinds)[order]
    for skipped in range(4):
        three = np.delete(quad, skipped, axis=1)
        have = np.column_stack((three[:, 0] * topology.n_vertices + three[:, 1], three[:, 2]))
        both, inverse = np.unique(np.concatenate([wanted, have]), axis=0, return_inverse=True)
        present = np.zeros(len(both), dtype=bool)
        present[inverse[: len(wanted)]] = True
        bad = present[inverse[len(wanted) :]]
        if bad.any():
            who = _cell_label(topology, int(owner[np.argmax(bad)]), labels)
            raise MeshError(
                f"{labels.name}: the mesh is not conforming: a quad face of {who} meets triangles of its neighbours; "
                "put pyramids between"
            )


def gaps(topology: Topology, parts: Sequence[Part], points: Array, labels: Labels) -> None:
    """Cells that share corners agree on every other point of what they share."""
    highest = max(part.order for part in parts)
    if highest == 1:
        return
    numbering, count = lattice_numbering(topology, highest)
    if all(part.order == highest for part in parts):
        node_of = np.full(count, -1, dtype=np.int64)
        for part, numbers in zip(parts, numbering, strict=True):
            node_of[numbers] = part.nodes
        if all(np.array_equal(node_of[n], part.nodes) for part, n in zip(parts, numbering, strict=True)):
            return
    place = np.empty((count, points.shape[1]))
    own = [elevated_nodes(part, points, highest) for part in parts]
    for coordinates, numbers in zip(own, numbering, strict=True):
        place[numbers] = coordinates
    for part, coordinates, numbers in zip(parts, own, numbering, strict=True):
        size = np.ptp(coordinates, axis=1).max(axis=1)
        apart = np.abs(place[numbers] - coordinates).max(axis=(1, 2)) / size
        if apart.max() > GAP_TOLERANCE:
            where = int(np.argmax(apart))
            who = labels.cell(part.shape, int(part.indices[where]))
            raise MeshError(
                f"{labels.name}: {who} and a neighbour with the same corners do not meet: "
                f"their common nodes are {apart[where]:.2g} of the element's size apart"
            )


def periodicity(
    topology: Topology, images: Sequence[tuple[Indices, Indices]], before: Topology, labels: Labels
) -> None:
    """Identified vertices leave distinct what the identification does not pair.

    Parameters
    ----------
    topology, before : Topology
        With and without the identification.
    images : sequence of (vertices, vertices)
        The pairs of vertices of `before` that each pair of sides identifies.
    labels : Labels
        For messages.
    """
    for group, (shape, vertices) in enumerate(zip(topology.shapes, topology.vertices, strict=True)):
        ordered = np.sort(vertices, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any():
            who = labels.cell(shape, int(topology.indices[group][np.argmax(twice)]))
            raise MeshError(
                f"{labels.name}: {who} touches itself across a periodic side; use three or more cells there"
            )
    kinds = {1: (before.edges, topology.edges), topology.dim - 1: (before.sides, topology.sides)}
    for dim, (old, new) in kinds.items():
        rows = _entity_vertices(before, dim)
        pairs = [np.empty((0, 2), dtype=np.int64)]
        for source, target in images:
            image = np.full(before.n_vertices + 1, -2, dtype=np.int64)
            image[source] = target
            image[-1] = -1  # the padding of shorter rows
            moved = np.sort(image[rows], axis=1)
            found = np.flatnonzero((moved > -2).all(axis=1))
            partner = old.index.find(moved[found])
            pairs.append(np.column_stack([found, partner])[partner >= 0])
        links = np.concatenate(pairs)
        graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(old.count, old.count))
        classes = connected_components(graph, directed=False)[0]
        if classes != new.count:
            raise MeshError(
                f"{labels.name}: too few cells across a periodic direction: different edges or faces would have the "
                "same vertices; use three or more"
            )


def _entity_vertices(topology: Topology, dim: int) -> Indices:
    """Sorted vertices of each edge (dim 1) or facet, padded with -1 in front, [count, width]."""
    entities = topology.edges if dim == 1 else topology.sides
    rows = np.full((entities.count, 2 if dim == 1 else 4), -1, dtype=np.int64)
    for group, shape in enumerate(topology.shapes):
        for number, entity in enumerate(shape.entities[dim]):
            corners = np.sort(topology.vertices[group][:, entity.vertices], axis=1)
            rows[entities.ids[group][:, number], rows.shape[1] - corners.shape[1] :] = corners
    return rows
