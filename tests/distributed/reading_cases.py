"""Meshes that processes read together, each its partitions, and parts that are cut anew."""

import numpy as np
import pytest

import hpfem as hp
from tests.distributed.meshes import BOXES, bent, exact, random_owners, whole
from tests.distributed.operator_cases import check
from tests.distributed.output_cases import folder

CLOSE = 1e-12


def written(place, count, order=1, plane=False, binary=False, shape="tet"):
    """Two boxes with names, whole and in partitions, by gmsh: in one file, and in one each."""
    import gmsh

    gmsh.initialize(interruptible=False)
    try:
        gmsh.option.setNumber("General.Terminal", 0)
        dim, occ = 2 if plane else 3, gmsh.model.occ
        if plane:
            boxes = [occ.addRectangle(x, 0, 0, 1, 1) for x in (0, 1)]
        else:
            boxes = [occ.addBox(x, 0, 0, 1, 1, 1) for x in (0, 1)]
        occ.fragment([(dim, boxes[0])], [(dim, boxes[1])])
        occ.synchronize()
        for name, (_, tag) in zip(("left", "right"), gmsh.model.getEntities(dim), strict=True):
            gmsh.model.addPhysicalGroup(dim, [tag], name=name)
        for name, x in (("in", 0.0), ("middle", 1.0), ("out", 2.0)):
            sides = [t for d, t in gmsh.model.getEntities(dim - 1) if abs(occ.getCenterOfMass(d, t)[0] - x) < 1e-9]
            gmsh.model.addPhysicalGroup(dim - 1, sides, name=name)
        gmsh.option.setNumber("Mesh.MeshSizeMax", 0.5)
        if shape == "quad":
            gmsh.option.setNumber("Mesh.RecombineAll", 1)
        if shape == "prism":
            gmsh.clear()
            flat = occ.addRectangle(0, 0, 0, 2, 1)
            occ.extrude([(2, flat)], 0, 0, 1, [3], recombine=True)
            occ.synchronize()
            gmsh.model.addPhysicalGroup(3, [1], name="left")
            gmsh.model.addPhysicalGroup(2, [1], name="in")
        gmsh.model.mesh.generate(dim)
        gmsh.model.mesh.setOrder(order)
        gmsh.option.setNumber("Mesh.Binary", int(binary))
        gmsh.write(str(place / "whole.msh"))
        gmsh.model.mesh.partition(count)
        gmsh.write(str(place / "single.msh"))
        gmsh.option.setNumber("Mesh.PartitionSplitMeshFiles", 1)
        gmsh.write(str(place / "split.msh"))
    finally:
        gmsh.finalize()


def numbers(mesh):
    """What does not depend on how a mesh is cut."""
    space = hp.Space(mesh, 2)
    found = [space.integrate(space.evaluate(exact))]
    for name in sorted(mesh.boundaries):
        found += [space.integrate_boundary(1.0, name)]
        found += [abs(space.integrate_boundary(lambda *x: x[len(x) // 2] * (1 + x[0]), name))]
    c0 = hp.C0Space(space)
    u = hp.solve_helmholtz(
        space, f=1.0, lam=1.0, dirichlet={"in": exact}, preconditioner="multigrid", tol=1e-12, bar=False
    )
    found += [space.norm(u), hp.l2_error(c0.scatter(c0.project(exact)), exact), c0.whole_size]
    return np.array(found), u.info.iterations


def around(x, y, z):
    """A function on boxes that are closed in x and z."""
    return np.cos(2 * np.pi * x) * (1 + y) * np.sin(2 * np.pi * z)


def partitioned(comm):
    """Files of gmsh, text and binary, of one file and of several: the mesh is that of the whole file."""
    # On more processes than partitions the parts are cut anew.
    few = [{"order": 2, "binary": True}, {"shape": "prism"}]
    kinds = few if comm.size == 2 else [{"plane": True, "shape": "quad"}]
    with folder(comm) as place:
        for options in kinds:
            if comm.rank == 0:
                for old in place.iterdir():
                    old.unlink()
                written(place, 3 if comm.size == 2 else 2, **options)
            comm.all(None)
            alone = hp.read_mesh(place / "whole.msh", comm=hp.ALONE)
            wanted, iterations = numbers(alone)
            one = hp.read_mesh(place / "split.msh", comm=hp.ALONE)
            assert one.n_cells == alone.n_cells and one.part is None
            for name in ("split.msh", "single.msh"):
                part = hp.read_mesh(place / name, comm=comm)
                assert part.part is not None and comm.sum(part.n_cells) == alone.n_cells
                assert 0 < part.n_cells < alone.n_cells
                assert sorted(n for own in comm.all(part.numbers.tolist()) for n in own) == sorted(alone.numbers)
                assert part.dim == alone.dim and part.points.shape[1] == alone.points.shape[1]
                for kind in ("regions", "boundaries"):
                    sizes = {key: comm.sum(len(own)) for key, own in getattr(part, kind).items()}
                    assert sizes == {key: len(own) for key, own in getattr(alone, kind).items()}, (kind, sizes)
                assert comm.sum(len(part.facets.boundary)) == len(alone.facets.boundary)
                assert len(part.hanging) == 0
                again = hp.distribute(part, comm)
                for own in (part, again) if name == "split.msh" else (part,):
                    found, other = numbers(own)
                    assert np.abs(found / wanted - 1).max() < 1e-10, (options, found, wanted)
                    # Vertices are in another order, which aggregates depend on.
                    assert abs(other - iterations) <= 2, (options, other, iterations)
                one, two = alone.summary(), again.summary()
                assert one.n_vertices == two.n_vertices and one.counts == two.counts
        with pytest.raises(hp.MeshError, match="periodic nodes of partitioned files are not read"):
            hp.read_mesh(place / "split.msh", periodic=True, comm=comm)
        comm.all(None)
        if comm.rank == 0:
            (place / "split_2.msh").unlink()
        comm.all(None)
        with pytest.raises(hp.MeshError, match=r"split_2\.msh: the file cannot be read: No such file"):
            hp.read_mesh(place / "split.msh", comm=comm)


def again(comm):
    """Parts cut anew, in any way, of meshes of all shapes, periodic and curved ones: operators are the same."""
    for number, name in enumerate(BOXES):
        mesh = whole(name).elevated(2).transformed(bent) if number % 2 else whole(name)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, number))
        owners = random_owners(mesh, comm, number + 10, [range(comm.size), [0], range(1, comm.size)][number % 3])
        new = hp.distribute(part, comm, owners=owners[part.part.cells] if number < 5 else None)
        check(mesh, new, comm, order=2)
        for key, own in mesh.regions.items():
            assert sorted(c for at in comm.all(new.part.cells[new.regions[key]]) for c in at) == sorted(own)
        for key, own in mesh.boundaries.items():
            assert comm.sum(len(new.boundaries[key])) == len(own)
    mesh = hp.box("prism", 3, periodic=("x", "z"), comm=hp.ALONE)
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 3))
    for own in (part, hp.distribute(part, comm)):
        check(mesh, own, comm, order=3, function=around, ends="y")
    with pytest.raises(hp.ArgumentError, match="owners are .* numbers of processes"):
        hp.distribute(part, comm, owners=[comm.size])
    mixed = part if comm.rank else mesh
    with pytest.raises(hp.ArgumentError, match="or a part of one on each of them"):
        hp.distribute(mixed, comm)
