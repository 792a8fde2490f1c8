"""Boxes of which each process makes its block: they are the whole box."""

import tracemalloc

import numpy as np

import hpfem as hp
from hpfem.mesh.aligned import vertex_ranks
from tests.distributed.meshes import BOXES, bent, exact
from tests.distributed.operator_cases import check, solved
from tests.mesh.test_box import MIXES, PERIODIC


def common(comm, values):
    """The set of all processes, which have nothing in common."""
    found = [value for own in comm.allgather(list(map(tuple, values))) for value in own]
    assert len(set(found)) == len(found)
    return set(found)


def same(comm, *given, **options):
    """Cells, names and orders of the whole box."""
    mesh, part = (hp.box(*given, comm=own, **options) for own in (hp.ALONE, comm))
    assert comm.size == 1 or not {"edges", "faces", "facets"} & {*part.topology.__dict__}
    shared_in_order(comm, part)
    numbers = part.part.cells
    assert np.array_equal(numbers, np.sort(numbers))
    assert common(comm, numbers[:, None]) == {(cell,) for cell in range(mesh.n_cells)}
    assert np.array_equal(part.numbers, numbers + 1)
    assert [(g.shape, g.order) for g in part.cells] == [(g.shape, g.order) for g in mesh.cells]
    for whole, own in zip(mesh.cells, part.cells, strict=True):
        rows = np.searchsorted(whole.indices, numbers[own.indices])
        assert np.array_equal(whole.indices[rows], numbers[own.indices])
        assert np.array_equal(mesh.points[whole.nodes[rows]], part.points[own.nodes])
        assert np.array_equal(whole.vertices[rows], part.part.vertices[own.vertices])
    assert np.array_equal(np.unique(np.concatenate([g.nodes.ravel() for g in part.cells])), np.arange(len(part.points)))
    assert list(part.regions) == list(mesh.regions) and list(part.boundary_sides) == list(mesh.boundary_sides)
    for name, cells in mesh.regions.items():
        assert common(comm, numbers[part.regions[name], None]) == {(cell,) for cell in cells}
    for name, sides in mesh.boundary_sides.items():
        own = part.boundary_sides[name]
        assert common(comm, np.column_stack([numbers[own[:, 0]], own[:, 1]])) == set(map(tuple, sides))
    ranks = vertex_ranks(mesh.topology)[part.part.vertices]
    assert np.array_equal(np.argsort(ranks), np.argsort(part.part.ranks))
    assert comm.sum(len(part.facets.boundary)) == len(mesh.facets.boundary)
    assert len(part.hanging) == 0 and part.periodic == mesh.periodic and part.name == mesh.name
    one, other = mesh.summary(), part.summary()
    assert one.counts == other.counts and one.n_vertices == other.n_vertices
    return mesh, part


def shared_in_order(comm, mesh):
    """The vertices, edges and faces that two processes have, and in what order."""
    for dim, shared in enumerate(mesh.shared):
        ids = {}
        for position, number, entity in mesh.topology.local_entities(dim):
            group = mesh.cells[position]
            rows = np.sort(mesh.part.vertices[group.vertices[:, list(entity.vertices)]])
            ids.update(zip(map(tuple, rows.tolist()), group.ids(dim)[:, number].tolist()))
        for rank, theirs in enumerate(comm.allgather(set(ids))):
            wanted = sorted(theirs & {*ids}, key=lambda row: (len(row), row)) if rank != comm.rank else []
            assert shared.get(rank, np.empty(0)).tolist() == [ids[row] for row in wanted]


def boxes(comm):
    """All shapes and mixes, closed or not, smaller than the number of processes too."""
    for names, counts in [*MIXES, *BOXES.values(), ("hex", 1), (("hex", "tet"), (7, 1, 1))]:
        corners = {"lower": (1, 2, 3), "upper": (3.1, 3.3, 6.7)} if np.size(counts) != 2 else {}
        same(comm, names, counts, **(corners if names not in ("quad", "tri") else {}))
    for names, counts, directions in PERIODIC:
        same(comm, names, counts, periodic=directions)


def operators(comm):
    """Operators and conjugate gradients are those of the whole box; some curved, or closed; so is multigrid."""
    for name in BOXES:
        mesh, part = (hp.box(*BOXES[name], comm=own) for own in (hp.ALONE, comm))
        found = check(mesh, part, comm, backend="numpy")
        solved(*found, comm)
        if name in ("tri", "mixed"):
            check(*(own.elevated(2).transformed(bent) for own in (mesh, part)), comm, order=2, backend="numpy")
    for names, counts, directions in (("prism", 3, ("x", "z")), (("hex", "tet"), (6, 3, 3), ("x", "z"))):
        mesh, part = (hp.box(names, counts, periodic=directions, comm=own) for own in (hp.ALONE, comm))
        solved(*check(mesh, part, comm, function=around, ends="y", backend="numpy"), comm)
    solutions = [
        hp.solve_helmholtz(
            hp.Space(hp.box(*BOXES["mixed"], comm=own), 3), f=1.0, lam=1.0, dirichlet=exact, tol=1e-14, bar=False
        )
        for own in (hp.ALONE, comm)
    ]
    one, other = (hp.l2_error(u, exact) for u in solutions)
    assert abs(other / one - 1) < 1e-12, other / one - 1


def around(x, y, z):
    """A function on boxes that are closed in x and z."""
    return np.cos(2 * np.pi * x) * (1 + y) * np.sin(2 * np.pi * z)


def made(comm, *given):
    """Points, and most bytes held, while a box and its sides are made."""
    tracemalloc.start()
    mesh = hp.box(*given, comm=comm)
    assert len(mesh.facets) and mesh.edges.count
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return np.array([len(mesh.points), most])


def memory(comm):
    """What a process makes goes with its block: as much as it makes alone of a box of that size."""
    for names, n in (("hex", 16), ("tet", 8), (("hex", "prism", "pyramid", "tet"), 8)):
        hp.box(names, n, comm=comm)  # fills caches
        alone = made(hp.ALONE, names, (n, n, n))
        points, most = np.max(comm.allgather(made(comm, names, (n, n, n * comm.size))), axis=0)
        assert points == alone[0]
        assert most < 1.3 * alone[1], (names, most, alone)
