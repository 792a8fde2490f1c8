"""Meshes that processes read together, each its partitions, and parts that are cut anew."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.shapes import SHAPES
from tests.distributed.meshes import BOXES, bent, exact, random_owners, whole
from tests.distributed.operator_cases import check
from tests.distributed.output_cases import folder
from tests.mesh.examples import partitioned
from tests.mesh.recorded_model import RecordedModel
from tests.mesh.test_coincident import in_vtk, index_of_pieces, write_pieces, write_vtk
from tests.mesh.test_msh import with_data

DATA = Path(__file__).parent.parent / "mesh" / "data"


def numbers(mesh):
    """What does not depend on how a mesh is cut."""
    space = hp.Space(mesh, 2)
    found = [space.integrate(space.evaluate(exact))]
    for name in sorted(mesh.boundaries):
        found += [space.integrate_boundary(1.0, name)]
        found += [abs(space.integrate_boundary(lambda *x: x[len(x) // 2] * (1 + x[0]), name))]
    c0 = hp.C0Space(space)
    u = hp.solve_helmholtz(
        space, f=1.0, lam=1.0, dirichlet={"xmin": exact}, preconditioner="multigrid", tol=1e-12, bar=False
    )
    found += [space.norm(u), hp.l2_error(c0.scatter(c0.project(exact)), exact), c0.whole_size]
    return np.array(found), u.info.iterations


def around(x, y, z):
    """A function on boxes that are closed in x and z."""
    return np.cos(2 * np.pi * x) * (1 + y) * np.sin(2 * np.pi * z)


def partitions(comm):
    """Files that gmsh has cut, text and binary, one of all partitions and one of each: the mesh is the whole one."""
    # On more processes than partitions the parts are cut anew.
    for name in ("solid", "curved") if comm.size == 2 else ("flat",):
        alone = partitioned(name)
        wanted, iterations = numbers(alone)
        one = hp.read_mesh(DATA / f"{name}_split.msh", comm=hp.ALONE)
        assert one.n_cells == alone.n_cells and one.part is None
        for kind in ("split", "single"):
            part = hp.read_mesh(DATA / f"{name}_{kind}.msh", comm=comm)
            assert part.part is not None and comm.sum(part.n_cells) == alone.n_cells
            assert 0 < part.n_cells < alone.n_cells
            assert sorted(n for own in comm.allgather(part.numbers) for n in own) == list(range(1, alone.n_cells + 1))
            assert part.dim == alone.dim and part.points.shape[1] == alone.points.shape[1]
            for names in ("regions", "boundaries"):
                sizes = {key: comm.sum(len(own)) for key, own in getattr(part, names).items()}
                assert sizes == {key: len(own) for key, own in getattr(alone, names).items()}, (names, sizes)
            assert comm.sum(len(part.facets.boundary)) == len(alone.facets.boundary)
            assert len(part.hanging) == 0
            again = hp.distribute(part, comm)
            for own in (part, again) if kind == "split" else (part,):
                found, other = numbers(own)
                assert np.abs(found / wanted - 1).max() < 1e-10, (name, found, wanted)
                # Vertices are in another order, which aggregates depend on.
                assert abs(other - iterations) <= 2, (name, other, iterations)
            one, two = alone.summary(), again.summary()
            assert one.n_vertices == two.n_vertices and one.counts == two.counts
    with folder(comm) as place:
        if comm.rank == 0:
            values = {n: [n**2.0] for n in range(1, alone.n_cells + 1)}
            (place / "data.msh").write_bytes(
                with_data(DATA / f"{name}_single.msh", [("k", 0, values)], name == "curved")
            )
        comm.allgather(None)
        part = hp.read_mesh(place / "data.msh", comm=comm)
        assert part.cell_data["k"].tolist() == (part.numbers**2.0).tolist()
        with pytest.raises(hp.MeshError, match="regions='k' of partitioned files are not read"):
            hp.read_mesh(place / "data.msh", comm=comm, regions="k")
    # gmsh's model of the first process.
    part = hp.from_gmsh(RecordedModel("model_cube_order2") if comm.rank == 0 else None, comm=comm)
    assert 0 <= part.n_cells < comm.sum(part.n_cells) and abs(part.summary().volume - 1) < 1e-12
    with pytest.raises(hp.ArgumentError, match=r"from_gmsh takes gmsh\.model, got 1"):
        hp.from_gmsh(1 if comm.rank == 0 else None, comm=comm)
    # This file has periodic sides too.
    part, alone = (hp.read_mesh(DATA / f"cube_serendipity{end}.msh", comm=comm) for end in ("_partitioned", ""))
    assert part.summary().orders == alone.summary().orders == {"hex": (2,), "prism": (2,)}
    assert abs(part.summary().volume - 1) < 1e-12
    assert comm.sum(len(part.facets.boundary)) == comm.sum(len(alone.facets.boundary))
    assert hp.read_mesh(DATA / "flat_split.msh", comm=comm, join=False).apart
    with pytest.raises(hp.MeshError, match="coincident nodes of partitioned files are not joined"):
        hp.read_mesh(DATA / "flat_split.msh", join=True, comm=comm)
    with pytest.raises(hp.MeshError, match="periodic nodes of partitioned files are not read"):
        hp.read_mesh(DATA / "flat_split.msh", periodic=True, comm=comm)
    with folder(comm) as place:
        if comm.rank == 0:
            shutil.copy(DATA / "flat_split_1.msh", place)
        comm.allgather(None)
        with pytest.raises(hp.MeshError, match=r"flat_split_2\.msh: the file cannot be read: No such file"):
            hp.read_mesh(place / "flat_split.msh", comm=comm)


def pieces(comm):
    """Files that processes wrote, each its piece, and meshes with coincident points: as one process reads them."""
    mesh = hp.box(("hex", "prism"), (4, 2, 1), comm=hp.ALONE).elevated(2).transformed(bent)
    with folder(comm) as place:
        space = hp.Space(hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 0)), 2)
        hp.write_vtu(place / "u.vtu", space.zeros("coeff"))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            alone = hp.read_mesh(place / "u.pvtu", comm=hp.ALONE)
            count = len(told)
            part = hp.read_mesh(place / "u.pvtu", comm=comm)
        assert count == 1 and str(told[0].message) == str(comm.bcast(told[-1].message))
        assert len(told) == (2 if comm.rank == 0 else 1)
        one, two = alone.summary(), part.summary()
        assert (one.n_vertices, one.counts, one.regions) == (two.n_vertices, two.counts, two.regions)
        assert one.n_vertices == mesh.n_vertices and two.n_coincident == one.n_coincident == 0
        assert sorted(n for own in comm.allgather(part.numbers) for n in own) == list(range(1, mesh.n_cells + 1))
        norms = []
        for own in (mesh, part):
            space = hp.Space(own, 2, quadrature=5)  # the default depends on the order of vertices
            u = hp.solve_helmholtz(space, f=1.0, lam=0.0, dirichlet=0.0, tol=1e-13, bar=False)
            norms.append(u.space.norm(u))
        assert abs(norms[1] / norms[0] - 1) < 1e-9, norms
        apart = hp.read_mesh(place / "u.pvtu", comm=comm, join=False)
        assert (
            apart.apart
            and apart.summary().n_coincident
            == hp.read_mesh(place / "u.pvtu", comm=hp.ALONE, join=False).summary().n_coincident
        )
        # Pieces of serendipity cells, whose points have numbers that are the same in all pieces.
        plate = hp.box("quad", (3, 2), comm=hp.ALONE).elevated(2)
        if comm.rank == 0:
            write_pieces(place / "plate.pvtu", plate, 3, lambda k, used: used, serendipity=True)
        comm.allgather(None)
        part = hp.read_mesh(place / "plate.pvtu", comm=comm, regions="owner")
        assert {name: comm.sum(len(own)) for name, own in part.regions.items()} == {"0": 2, "1": 2, "2": 2}
        found, whole_plate = part.summary(), plate.summary()
        assert (found.n_cells, found.n_vertices, found.n_coincident) == (6, 12, 0) and found.volume == pytest.approx(1)
        assert found.counts == whole_plate.counts and part.facing[0] == 0
    whole_mesh = hp.box("tet", (2, 2, 2), comm=hp.ALONE)
    nodes = whole_mesh.cells[0].nodes
    apart = hp.Mesh.from_cells(whole_mesh.points[nodes.ravel()], [("tet", 1, np.arange(nodes.size).reshape(-1, 4))])
    part = hp.distribute(apart, comm, owners=random_owners(apart, comm, 1))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            hp.C0Space(hp.Space(part, 1))
    assert len(told) == (1 if comm.rank == 0 else 0)
    assert part.facing[0] == apart.facing[0] == len(whole_mesh.facets.interior)
    assert part.summary().n_coincident == apart.summary().n_coincident == nodes.size - whole_mesh.n_vertices


def named_beside(comm):
    """Pieces with named sides, edges and points of cells in other pieces: names and warnings are those of one process.

    Each has points of its own. One side and one edge are of no cell; one piece has cells only, and one has none.
    """
    mesh = hp.box("hex", (6, 3, 3), comm=hp.ALONE)
    ((_, _, cells),) = in_vtk(mesh)
    owners = 2 * (mesh.points[cells, 0].mean(axis=1) > 0.5)
    sides = np.arange(len(mesh.facets))
    ends = np.stack([mesh.facets.cells[sides, 0], mesh.facets.local[sides, 0]], axis=1)
    quads = [(mesh.cells[0].corners[c][list(SHAPES["hex"].facets[f].vertices)][[0, 1, 3, 2]], c, f) for c, f in ends]
    edges = [(mesh.cells[0].corners[c][list(SHAPES["hex"].edges[0].vertices)], c, 20) for c in range(54)]
    points = [(mesh.cells[0].corners[c][:1], c, 30) for c in range(54)]
    stray = [(np.arange(4), 10, 0), (np.array([0, len(mesh.points) - 1]), 11, 20)]
    elements = [*quads, *edges, *points, *stray]
    with folder(comm) as place:
        if comm.rank == 0:
            for k in range(3):
                own = [row for row, cell, _ in elements if k == (1, 0, 0)[owners[cell]]]
                tags = [tag for _, cell, tag in elements if k == (1, 0, 0)[owners[cell]]]
                tags = np.array([0] * sum(owners == k) + tags)
                kinds = {4: "quad", 2: "segment", 1: "point"}
                blocks, start = [("hex", 1, cells[owners == k])], len(mesh.points)
                for row in own:
                    blocks.append((kinds[len(row)], 1, np.arange(start, start + len(row))[None]))
                    start += len(row)
                where = np.concatenate([mesh.points, *(mesh.points[row] for row in own)])
                write_vtk(place / f"beside_{k}.vtu", where, blocks, of_cells=[("tag", tags), ("piece", 0 * tags + k)])
            index_of_pieces(place / "beside.pvtu", 3)
        comm.allgather(None)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            alone, part = (hp.read_mesh(place / "beside.pvtu", comm=own, regions="tag") for own in (hp.ALONE, comm))
            count = len(told)
            for own in (hp.ALONE, comm):
                hp.read_mesh(place / "beside.pvtu", comm=own)
        with pytest.raises(hp.ArgumentError, match="no such integer data; there are 'material', 'piece', 'tag'"):
            hp.read_mesh(place / "beside.pvtu", comm=comm, regions="other")
        messages = [str(own.message) for own in told]
        assert any("integer data of elements that nothing uses: 'piece', 'tag'" in own for own in messages[count:])
        if comm.rank == 0:
            assert messages[: count // 2] == messages[count // 2 : count]
            half = (len(messages) + count) // 2
            assert messages[count:half] == messages[half:]
    for kind in ("regions", "boundaries", "edge_sets", "point_sets"):
        wanted = {name: len(own) for name, own in getattr(alone, kind).items()}
        assert {name: comm.sum(len(own)) for name, own in getattr(part, kind).items()} == wanted and wanted, kind
    assert (
        [len(alone.boundaries[str(k)]) for k in range(6)] and len(alone.edge_sets["20"]) and len(alone.point_sets["30"])
    )
    assert sum(map(len, alone.boundaries.values())) == len(sides)
    assert part.n_stray == alone.n_stray == len(stray)
    for name in alone.boundaries:
        both = [hp.Space(own, 1).integrate_boundary(lambda x, y, z: 1 + x + y * z, name) for own in (alone, part)]
        assert both[1] == pytest.approx(both[0], rel=1e-12)


def again(comm):
    """Parts cut anew, in any way, of meshes of all shapes, periodic and curved ones: operators are the same."""
    for number, name in enumerate(BOXES):
        mesh = whole(name).elevated(2).transformed(bent) if number % 2 else whole(name)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, number))
        owners = random_owners(mesh, comm, number + 10, [range(comm.size), [0], range(1, comm.size)][number % 3])
        new = hp.distribute(part, comm, owners=owners[part.part.cells] if number < 5 else None)
        check(mesh, new, comm, order=2)
        for key, own in mesh.regions.items():
            assert sorted(c for at in comm.allgather(new.part.cells[new.regions[key]]) for c in at) == sorted(own)
        for key, own in mesh.boundaries.items():
            assert comm.sum(len(new.boundaries[key])) == len(own)
    part = hp.distribute(whole("mixed"), comm, owners=random_owners(whole("mixed"), comm, 3, [0, comm.size - 1]))
    weights = hp.Helmholtz(hp.Space(part, 3), lam=1.0).cell_weights()
    new = hp.distribute(part, comm, weights=weights)
    check(whole("mixed"), new, comm, order=2)
    work = comm.allgather(hp.Helmholtz(hp.Space(new, 3), lam=1.0).cell_weights().sum())
    assert max(work) < 1.2 * np.mean(work), work
    mesh = hp.box("prism", 3, periodic=("x", "z"), comm=hp.ALONE)
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 3))
    for own in (part, hp.distribute(part, comm)):
        check(mesh, own, comm, order=3, function=around, ends="y")
    with pytest.raises(hp.ArgumentError, match="owners are .* numbers of processes"):
        hp.distribute(part, comm, owners=[comm.size])
    mixed = part if comm.rank else mesh
    with pytest.raises(hp.ArgumentError, match="or a part of one on each of them"):
        hp.distribute(mixed, comm)
