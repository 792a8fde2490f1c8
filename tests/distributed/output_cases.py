"""What processes write together is what one process writes; values at points are those of the whole mesh."""

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from tests.distributed.meshes import BOXES, bent, by_cell, by_first, difference, exact, partitions, random_owners, whole
from tests.distributed.operator_cases import check
from tests.distributed.solver_cases import gradient, source

CLOSE = 1e-12


@contextmanager
def folder(comm):
    """One for all processes."""
    with tempfile.TemporaryDirectory() as own:
        yield Path(comm.bcast(own))
        comm.allgather(None)  # all are done with it


def parts(comm, seed=0):
    """Meshes of all shapes, curved ones among them, whole and cut in all ways."""
    for number, name in enumerate(BOXES):
        mesh = whole(name).elevated(2).transformed(bent) if number % 2 else whole(name)
        ranks = [None, range(1, comm.size), [0]][number % 3]
        yield name, mesh, hp.distribute(mesh, comm, owners=random_owners(mesh, comm, seed + number, ranks))


def of_vtk(path):
    """Points and values of the cells of a file, as VTK reads them: {number and kind of cell: rows}."""
    import vtk
    from vtk.util.numpy_support import vtk_to_numpy

    kind = vtk.vtkXMLPUnstructuredGridReader if path.suffix == ".pvtu" else vtk.vtkXMLUnstructuredGridReader
    reader, complaints = kind(), []
    for event in ("ErrorEvent", "WarningEvent"):
        reader.AddObserver(event, lambda caller, name: complaints.append(name))
    reader.SetFileName(str(path))
    reader.Update()
    assert complaints == []
    grid = reader.GetOutput()
    values = [grid.GetPointData().GetArray(i) for i in range(grid.GetPointData().GetNumberOfArrays())]
    names = [array.GetName() for array in values]
    assert names == ["u", "v"]
    rows = np.column_stack([vtk_to_numpy(grid.GetPoints().GetData()), *map(vtk_to_numpy, values)])
    facts = {name: vtk_to_numpy(grid.GetCellData().GetArray(name)) for name in ("cell", "shape", "order", "region")}
    found = {}
    for i in range(grid.GetNumberOfCells()):
        cell = grid.GetCell(i)
        ids = [cell.GetPointId(k) for k in range(cell.GetNumberOfPoints())]
        known = tuple(int(column[i]) for column in facts.values())
        found.setdefault((grid.GetCellType(i), *known), []).append(rows[ids])
    fields = grid.GetFieldData()
    regions = {fields.GetArrayName(i): fields.GetArray(i).GetTuple(0) for i in range(fields.GetNumberOfArrays())}
    return found, regions


def as_one(comm, place, mesh, part, order=3, subdivide=None):
    """Whether VTK reads from the files of processes what one process writes."""
    for own, stem in ((mesh, "one"), (part, "all")):
        space = hp.Space(own, order)
        u, v = space.project(exact), space.evaluate(lambda *x: [exact(*x), x[1]])
        if own is part or comm.rank == 0:
            hp.write_vtu(place / f"{stem}.vtu", {"u": u, "v": v}, subdivide)
    assert not (place / "all.vtu").exists()
    if comm.rank == 0:
        assert not [file for file in place.iterdir() if file.name.startswith(".")]
        one, regions = of_vtk(place / "one.vtu")
        other, names = of_vtk(place / "all.pvtu")
        assert one.keys() == other.keys() and regions == names
        assert all(np.abs(np.array(one[key]) - other[key]).max() < CLOSE for key in one)


def vtu(comm):
    """Files of all shapes, read by VTK: cells, points, values and regions are those that one process writes."""
    with folder(comm) as place:
        for name, mesh, part in parts(comm):
            for subdivide in (None, 2) if name == "mixed" else (None,):
                as_one(comm, place, mesh, part, subdivide=subdivide)


def any_partition_in_vtu(comm):
    """The same whatever cells a process has."""
    with folder(comm) as place:
        partitions(comm, lambda *given: as_one(comm, place, *given))


def any_partition_in_checkpoints(comm):
    """What processes save, whatever cells they have, they and one process alone load, bit by bit."""

    def same(mesh, part, order):
        space = hp.Space(part, order)
        saved = {"u": space.project(exact), "v": space.evaluate(both)}
        hp.save(place / "u.h5", saved)
        for key, old in saved.items():
            rows = by_cell(old, comm)
            for readers in (comm, hp.ALONE):
                found = by_cell(hp.load(place / "u.h5", comm=readers)[key], readers)
                assert found.keys() == rows.keys() == set(range(mesh.n_cells))
                assert all(np.array_equal(rows[cell], found[cell]) for cell in rows)
        comm.allgather(None)

    with folder(comm) as place:
        partitions(comm, same)


def checkpoints(comm):
    """What processes save they load, bit by bit, and go on with."""
    with folder(comm) as place:
        path = place / "u.h5"
        for _, _, part in parts(comm, 10):
            space = hp.Space(part, 3)
            u, w = space.project(exact), hp.Space(part, 2, "lagrange", dtype="float32").project(exact)
            hp.save(path, {"u": u, "w": w})
            found = hp.load(path, comm=comm)
            for old, new in ((u, found["u"]), (w, found["w"])):
                assert all(np.array_equal(a, b) for a, b in zip(old.arrays, new.arrays, strict=True))
            v = found["u"]
            f, g = (own.c0.project(exact) for own in map(operator, (space, v.space)))
            assert np.array_equal(f, g)
            assert np.array_equal(operator(space).apply(f), operator(v.space).apply(g))
            assert hp.l2_error(u, exact) == hp.l2_error(v, exact)
            assert part.summary() == v.space.mesh.summary()
        pieces = [place / f"u_{rank}.h5" for rank in range(comm.size)]
        if comm.rank == 0:
            old = pieces[1].read_bytes()
        hp.save(path, u)
        if comm.rank == 0:
            pieces[1].write_bytes(old)
        with pytest.raises(hp.ArgumentError, match=r"u_1\.h5 belongs to another save than"):
            hp.load(path, comm=comm)
        comm.allgather(None)
        if comm.rank == 0:
            pieces[1].unlink()
        with pytest.raises(hp.ArgumentError, match=r"u_1\.h5 cannot be loaded: No such file"):
            hp.load(path, comm=comm)


def checkpoints_of_others(comm):
    """What processes save any number of them loads, bit by bit, and goes on with."""
    from mpi4py import MPI

    from hpfem.support.communicator import communicator

    some = {n: communicator(MPI.COMM_WORLD.Split(int(comm.rank < n))) for n in range(1, comm.size + 1)}
    closed = hp.box(("hex", "tet"), (6, 3, 3), periodic=("x", "y"), comm=hp.ALONE)
    with folder(comm) as place:
        for number, (name, mesh) in enumerate([*((n, m) for n, m, _ in parts(comm)), ("closed", closed)]):
            for n, writers in some.items():
                if (n + number) % comm.size:
                    continue
                wanted = None
                if comm.rank < n:
                    whole_of = mesh if n == 1 else hp.distribute(mesh, writers, owners=random_owners(mesh, writers))
                    space = hp.Space(whole_of, 3)
                    low = hp.Space(whole_of, 2, "lagrange", dtype="float32")
                    saved = {"u": space.project(exact), "w": low.project(exact), "v": space.evaluate(both)}
                    hp.save(place / f"{n}.h5", saved)
                    wanted = {key: by_cell(field, writers) for key, field in saved.items()}
                wanted = comm.bcast(wanted)
                for m, readers in some.items():
                    if comm.rank >= m:
                        continue
                    found = hp.load(place / f"{n}.h5", comm=readers)
                    assert list(found) == list(wanted)
                    u = found["u"]
                    assert u.space is found["v"].space and u.space.mesh is found["w"].space.mesh
                    for key, field in found.items():
                        rows = by_cell(field, readers)
                        assert rows.keys() == wanted[key].keys(), (name, n, m)
                        assert all(np.array_equal(row, wanted[key][cell]) for cell, row in rows.items())
                        assert field.dtype == (np.float32 if key == "w" else np.float64)
                    assert readers.size == 1 or readers.max(u.space.mesh.n_cells) < 0.9 * mesh.n_cells
                    if name == "closed":
                        continue
                    if m > 1:
                        check(mesh, u.space.mesh, readers)
                    assert abs(hp.l2_error(u, exact) / hp.l2_error(hp.Space(mesh, 3).project(exact), exact) - 1) < CLOSE
                comm.allgather(None)
        hp.save(place / "all.h5", {"u": u_of(hp.distribute(mesh, comm)), "v": u_of(mesh)})
        if comm.rank == 0:
            with pytest.raises(hp.ArgumentError, match="on a mesh that each has alone, and cannot be loaded by 1"):
                hp.load(place / "all.h5", comm=hp.ALONE)


def both(*x):
    """A function of two components."""
    return exact(*x), 2 * x[0]


def u_of(mesh):
    """A field of low order."""
    return hp.Space(mesh, 1).project(exact)


def operator(space):
    c0 = hp.C0Space(space)
    return hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, hp.BoundaryConditions(c0, dirichlet=exact))


def failing(comm):
    """Where one process cannot write its file none is written, and all say so; old files stay."""
    part = hp.distribute(whole("mixed"), comm)
    u = hp.Space(part, 2).project(exact)
    with folder(comm) as place:
        for write, name in ((hp.write_vtu, "u.vtu"), (hp.save, "u.h5")):
            write(place / name, u)
            comm.allgather(None)
            old = {file: file.read_bytes() for file in place.iterdir() if file.is_file()}
            comm.allgather(None)
            bad = u.copy()
            if comm.rank == comm.size - 1:
                bad.arrays[0][:] = np.nan
            if write is hp.write_vtu:
                with pytest.raises(hp.ArgumentError, match="field 'u' is not finite in element"):
                    write(place / name, bad)
            taken = Path(name).with_stem(f"{Path(name).stem}x_{comm.size - 1}").name
            if comm.rank == 0:
                (place / taken).mkdir()
            comm.allgather(None)
            with pytest.raises(hp.ArgumentError, match="it is a folder; give a file name"):
                write(place / name.replace("u.", "ux."), u)
            comm.allgather(None)
            found = {file: file.read_bytes() for file in place.iterdir() if file.is_file()}
            assert found == old
            comm.allgather(None)
        with pytest.raises(hp.ArgumentError, match="there is no folder"):
            hp.write_vtu(place / "absent" / "u.vtu", u)


def points(comm):
    """Values at points, of the same ones on all processes or of others on each, and what is made of them."""
    for name, mesh, part in parts(comm, 20):
        dim = mesh.dim
        one, own = (hp.Space(given, 3).project(exact) for given in (mesh, part))
        same = np.random.default_rng(1).random((30, dim)) * 1.1
        found = own(same)
        assert all(np.array_equal(found, other, equal_nan=True) for other in comm.allgather(found))
        for x in (same, np.random.default_rng(comm.rank).random((10 * comm.rank, dim))):
            assert np.allclose(one(x), own(x), rtol=0, atol=CLOSE, equal_nan=True)
        assert np.allclose(one(*x.T), own(*x.T), rtol=0, atol=CLOSE, equal_nan=True)
        # From one mesh to another, both cut in another way, or one of them whole.
        other = hp.box(*BOXES[name], comm=hp.ALONE)
        other = other.elevated(2).transformed(bent) if max(group.order for group in mesh.cells) > 1 else other
        cut = hp.distribute(other, comm, owners=random_owners(other, comm, 5))
        wanted = hp.Space(other, 2).interpolate(one)
        assert difference(by_cell(wanted, comm), by_cell(hp.Space(cut, 2).interpolate(own), comm)) < CLOSE
        assert difference(by_cell(wanted, comm), by_cell(hp.Space(other, 2).interpolate(own), comm)) < CLOSE
        assert difference(by_cell(wanted, comm), by_cell(hp.Space(cut, 2).interpolate(one), comm)) < CLOSE
    far = hp.distribute(hp.box("hex", 2, upper=(2, 1, 1), comm=hp.ALONE), comm)
    with pytest.raises(hp.ArgumentError, match="are outside box"):
        hp.Space(far, 2).interpolate(own)
    bad = [[0.1] * dim] if comm.rank == 0 else [[np.nan] * dim]
    with pytest.raises(hp.ArgumentError, match="point 0 is not finite"):
        own(bad)
    # A function of the coordinates is called as often as a process has cells.
    for use in (own.space.evaluate, lambda f: hp.l2_error(own, f), lambda f: hp.C0Space(own.space).project(f)):
        with pytest.raises(hp.ArgumentError, match=r"use space\.interpolate\(field\) first"):
            use(lambda *x: own(*x) + 1)


def alone(comm):
    """What one process may ask for while the others do something else."""
    mesh = hp.read_mesh("meshes/curved_mixed.msh", comm=comm)
    space = hp.Space(mesh, 3)
    c0 = hp.C0Space(space)
    again = c0.at(space.at(quadrature=2))
    u = c0.scatter(c0.project(exact))
    if comm.rank == comm.size - 1:
        for own in (c0, again):
            assert own.multiplicity.max() > 1 and own.face_correction is not None
            assert own.whole_size > own.size and own.owned.any() and len(own.coordinates) == own.size
            assert own.counts and own.matrix.shape == (space.n_dofs, own.size)
        assert mesh.boundaries and mesh.facets.boundary.size and repr(mesh) and str(mesh) and len(mesh.hanging) == 0
        assert str(space) and space.memory_report() and str(u) and u.copy().size
    comm.allgather(None)


def disagreeing(comm):
    """What is not the same on all processes is said."""
    last = comm.rank == comm.size - 1
    for call, what in (
        (lambda: hp.box("tet" if last else "hex", 3), "the box: process 0 has ('hex', 3"),
        (lambda: hp.box("hex", 3 + last), "the box: process 0 has ('hex', 3"),
        (lambda: hp.read_mesh(f"meshes/cube_{'tet' if last else 'mixed'}.msh"), "the file: process 0 has"),
        (lambda: hp.C0Space(hp.Space(hp.box("hex", 3), 2 + last)), "mesh, order, basis or dtype: process 0 has"),
    ):
        with pytest.raises(hp.ArgumentError) as found:
            call()
        assert f"processes disagree on {what}" in str(found.value)
        assert f"process {comm.size - 1} has" in str(found.value) and "\n" not in str(found.value)


def numbers_of(mesh):
    """What is summed over a mesh."""
    space = hp.Space(mesh, 3, backend="numpy")
    u, both = space.project(exact), space.evaluate(lambda *x: [exact(*x), x[1]])
    side = "zmax" if mesh.dim == 3 else "ymax"
    values = [space.integrate(u), *space.integrate(both), space.norm(u), both.norm(), u.dot(hp.Mass(space)(u))]
    values += [space.integrate_boundary(u, side), space.integrate_boundary(exact, "xmin")]
    values += [space.integrate_boundary(lambda *x: x[0] * x[len(x) // 2], "xmax"), mesh.summary().volume]
    values += [hp.l2_error(u, exact), hp.l2_error(u, exact, relative=False)]
    values += [hp.h1_error(u, exact, gradient), hp.h1_error(u, exact, gradient, relative=False)]
    single = hp.Space(mesh, 2, dtype="float32", backend="numpy")
    values += [float(hp.l2_error(single.project(exact), exact) > 0), hp.C0Space(space).whole_size]
    given = {"dirichlet": {"xmin": exact}, "neumann": {"xmax": 1.0}, "robin": {"ymin": (2.0, 1.0)}}
    problem = hp.Problem(space, 1.0, **given, bar=False, tol=1e-13)
    v = problem.solve(source)
    values += [problem.flux(v, at, source) for at in ("xmin", "xmax", "ymin", "ymax")]
    return np.array(values)


def numbers(comm):
    """What is summed over the mesh, on all shapes: as on one process."""
    for name, mesh, part in parts(comm, 30):
        one, found = by_first(comm, partial(numbers_of, mesh)), numbers_of(part)
        assert all(np.array_equal(found, other) for other in comm.allgather(found))
        apart = np.abs(found - one) / np.maximum(1, np.abs(one))
        assert apart.max() < CLOSE, (name, apart)
