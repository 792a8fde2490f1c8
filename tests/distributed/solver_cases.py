"""Problems, multigrid and what is summed over the mesh: as on one process."""

import tempfile
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cpu.runtime.vectors import CpuVectors
from hpfem.backends.shared_vectors import SharedVectors
from hpfem.backends.sharing import Messages
from hpfem.memory import HOST
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.multigrid.energies import cell_energies
from hpfem.solvers.multigrid.irregular import entity_numbers, irregular
from hpfem.solvers.multigrid.lines import SharedLayers
from hpfem.solvers.preconditioners import jacobi, make_preconditioner
from tests.assembly.test_interfaces import CONDITIONS, bar, heated
from tests.assembly.test_points_and_edges import with_sets
from tests.distributed.host_device import host_iterates_as_a_device
from tests.distributed.meshes import BOXES, bent, by_cell, by_first, difference, exact, partitions, random_owners, whole
from tests.distributed.operator_cases import as_many
from tests.solvers.test_rigid_motions import elastic


def source(x, *y):
    """-laplace(exact) + exact."""
    return (5 - 0.09 * len(y)) * exact(x, *y)


def gradient(x, *y):
    """Of the function."""
    e = np.exp(0.3 * sum(y))
    return [2 * np.cos(2 * x) * e, *([0.3 * np.sin(2 * x) * e] * len(y))]


def both(mesh, part, comm, close, backend="numpy", **options):
    """Solve on the whole mesh, alone, and on parts of it; what the one reports, and the other's solution."""
    order, more = options.pop("order", 3), options.pop("more", 1)

    def solved(own):
        space = hp.Space(own, order, options.get("basis", "modified"), backend=backend)
        given = {key: value for key, value in options.items() if key != "basis"}
        u = hp.solve_helmholtz(space, **{"lam": 1.0, "f": source, "bar": False, "tol": 1e-10, **given})
        return by_cell(u, comm), u

    def alone():
        cells, u = solved(mesh)
        return cells, u.info

    wanted, info = by_first(comm, alone)
    cells, v = solved(part)
    assert as_many(info, v.info, more), (info.iterations, v.info.iterations)
    assert info.size == v.info.size
    found = difference(wanted, cells)
    assert found < close, found
    return info, v


def on_beams(comm):
    """Rigid motions in the vertices, other coefficients: as many iterations on a slender beam, wherever it is cut."""
    mesh = hp.box("hex", (20, 2, 2), upper=(10.0, 1.0, 1.0), comm=hp.ALONE)

    def count(own):
        c0 = hp.C0Space(hp.Space(own, 2, backend="numpy"))
        bc = hp.BoundaryConditions(c0, {"xmin": 0.0, "xmax": (None, 0.0, None)}, components=3)
        form = hp.WeakForm(c0.space, elastic(3), trial="grad", test="grad", components=3)
        A, one = hp.GlobalOperator(form, c0, bc), c0.gather(hp.IProductWRTBase(c0.space)(c0.space.evaluate(exact)))
        b = A.right_hand_side(np.stack([0 * one, one, one]))
        return hp.cg(A, b, make_preconditioner("multigrid", A)[0], tol=1e-8, bar=False)[1].iterations

    def taking(own):
        """Iterations of multigrid that takes other coefficients."""
        space = hp.Space(own, 3, backend="numpy")
        c0, k = hp.C0Space(space), space.evaluate(lambda x, y, z: 1 + x)
        A = hp.GlobalOperator(hp.Helmholtz(space, 1.0, k), c0, hp.BoundaryConditions(c0, {"xmin": 0.0}))
        M, b = Multigrid(A), c0.gather(hp.IProductWRTBase(space)(space.evaluate(exact))) * A.bc.free
        for values in k.arrays:
            values[...] = 1 / values
        M.refresh()
        return hp.cg(A, b, M, tol=1e-8, bar=False)[1].iterations

    wanted, found = by_first(comm, lambda: taking(mesh)), taking(hp.distribute(mesh, comm))
    assert abs(found - wanted) <= 1 and wanted <= 12, (found, wanted)
    wanted = by_first(comm, lambda: count(mesh))
    for owners in (None, random_owners(mesh, comm, 3)):
        found = count(hp.distribute(mesh, comm, owners=owners))
        assert abs(found - wanted) <= 1 and wanted <= 20, (found, wanted)


def multigrid(comm):
    """Multigrid takes as many iterations, on all shapes; `any_partition` has each alone."""
    for name in ("quad", "tri", "mixed"):
        mesh = whole(name)
        for order, owners in ((3, None), (2, random_owners(mesh, comm)))[: 2 if name == "mixed" else 1]:
            part = hp.distribute(mesh, comm, owners=owners)
            both(mesh, part, comm, 1e-6, f=1.0, dirichlet=0.0, preconditioner="multigrid", order=order)
    on_beams(comm)


def stretched(comm):
    """Stretched cells, whose functions are solved for in groups: as many iterations wherever a mesh is cut."""
    given = {"f": 1.0, "dirichlet": {"ymin": 0.0}, "preconditioner": "multigrid"}
    for shape, n, order in (("hex", 3, 3), ("quad", 6, 4)):
        mesh = hp.box(shape, n, comm=hp.ALONE)
        centres = mesh.points[mesh.cells[0].nodes].mean(axis=1)
        mesh = mesh.transformed(lambda x: x * np.array([0.01] + [1] * (x.shape[1] - 1)))
        stacks = np.minimum((centres * comm.size).astype(int), comm.size - 1)
        for owners in (stacks[:, 0], stacks[:, 1], random_owners(mesh, comm, 5))[: 3 if shape == "hex" else 1]:
            part = hp.distribute(mesh, comm, owners=owners)
            info, v = both(mesh, part, comm, 1e-6, order=order, **given)
            assert info.iterations < 14
            M, _ = make_preconditioner("multigrid", hp.GlobalOperator(hp.Helmholtz(v.space, 1.0), v.c0))
            assert comm.any(any(isinstance(own, SharedLayers) for own in M.levels[0].smoothers[0].lines))
    # One process has all stretched cells, or they end where it ends.
    mesh = hp.box("hex", (8, 2, 2), comm=hp.ALONE)
    centres = mesh.points[mesh.cells[0].nodes].mean(axis=1)
    mesh = mesh.transformed(lambda x: x * np.where(x[:, :1] <= 0.5, [0.02, 1, 1], 1))
    for last in (0.75, 0.5):
        part = hp.distribute(mesh, comm, owners=np.where(centres[:, 0] < last, 0, comm.size - 1))
        both(mesh, part, comm, 1e-6, order=2, **given)
    # Prisms share the traces of stretched tets on other processes.
    mesh = hp.box(("prism", "tet"), (2, 1, 3), upper=(1.0, 1.0, 0.05), comm=hp.ALONE)
    both(mesh, hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 1)), comm, 1e-6, order=2, **given)


def thin_pyramids(comm):
    """What is beside groups is eliminated wherever a mesh is cut: else 16 and 30 iterations on two processes."""
    # Vertices are not continued to edges that processes share.
    given = {"f": 1.0, "dirichlet": {"ymin": 0.0}, "preconditioner": "multigrid", "order": 2, "more": 2}
    for shapes, n, height in (("pyramid", (2, 2, 1), 0.02), (("hex", "pyramid", "tet"), (3, 2, 2), 0.04)):
        mesh = hp.box(shapes, n, upper=(1.0, 1.0, height), comm=hp.ALONE)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 2))
        info, _ = both(mesh, part, comm, 1e-6, **given)
        assert info.iterations < 14


def classes(comm):
    """Cells have the classes of the whole mesh, also where a process has none of a shape."""
    mesh = whole("mixed").transformed(lambda x: np.column_stack([x[:, 0] ** 3, x[:, 1], x[:, 2] ** 2 / 10]))
    for owners in (random_owners(mesh, comm, 4), np.zeros(mesh.n_cells, dtype=int), None):
        part = hp.distribute(mesh, comm, owners=owners)

        def found(own):
            space = hp.Space(own, 1, backend="numpy")
            energies = cell_energies(hp.Helmholtz(space, lambda x, y, z: np.exp(9 * x)), 0, np)
            of_shape = {}
            for block, some in zip(space.blocks, energies, strict=True):
                S = np.array([some.classes[k][0] for k in some.class_of]).reshape(len(some.class_of), 9)
                m = [some.classes[k][1] for k in some.class_of]
                numbers = block.elements if own.part is None else own.part.cells[block.elements]
                of_shape.setdefault(block.shape.name, []).append(np.column_stack([numbers, S, m]))
            return np.concatenate([np.empty((0, 11)), *(part for parts in of_shape.values() for part in parts)])

        wanted = by_first(comm, lambda mesh=mesh, found=found: found(mesh))
        rows = np.concatenate(comm.allgather(found(part)))
        wanted, rows = (own[np.argsort(own[:, 0])] for own in (wanted, rows))
        assert len(np.unique(wanted[:, 1:].round(9), axis=0)) > 6
        assert np.abs(rows - wanted)[:, 1:10].max() < 1e-9 * np.abs(wanted).max()
        # The middle reaction, in the first class, is found by quantiles.
        assert np.mean(np.abs(rows - wanted)[:, 10] < 1e-9 * wanted[:, 10]) > 0.5


def start(comm):
    """The vector from which the largest eigenvalue is estimated is that of the whole mesh."""
    for name in BOXES:
        mesh = whole(name)
        cells = []
        for own in (mesh, hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 3))):
            c0 = hp.C0Space(hp.Space(own, 4, backend="numpy"))
            A = hp.GlobalOperator(hp.Helmholtz(c0.space, 1.0), c0, components=2)
            rows = irregular(A, entity_numbers(c0.numbering, np)).reshape(2, -1)
            assert np.array_equal(A.vectors.agreed(rows.copy()), rows)
            assert own is not mesh or (len(np.unique(rows)) > 0.99 * rows.size and 0.2 < rows.std() < 0.4)
            cells.append(by_cell(c0.scatter(rows), comm))
        assert difference(*cells) < 1e-12


def vertices_everywhere(comm):
    """All processes solve for the vertices, as GPUs do: as many iterations, the same bits, also without cells."""
    module = import_module("hpfem.solvers.multigrid.shared_vertices")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "solved_everywhere", lambda vectors: True)
        for name in ("quad", "mixed"):
            mesh = whole(name)
            for order, owners in ((3, None), (2, np.zeros(mesh.n_cells, dtype=int))):
                part = hp.distribute(mesh, comm, owners=owners)
                both(mesh, part, comm, 1e-6, f=1.0, dirichlet={"xmin": 0.0}, preconditioner="multigrid", order=order)
        part = hp.distribute(whole("mixed"), comm)
        c0 = hp.C0Space(hp.Space(part, 3, backend="numpy"))
        A = hp.GlobalOperator(hp.Helmholtz(c0.space, 1.0), c0, components=2)
        M, _ = make_preconditioner("multigrid", A)
        r = np.tile(c0.vectors_on().agreed(c0.project(exact)), 2)
        z = M(r)
        assert M.vertices.everywhere and M.on_devices
        assert np.array_equal(A.vectors.agreed(z.copy()), z)
    assert not make_preconditioner("multigrid", A)[0].on_devices
    with host_iterates_as_a_device(), pytest.MonkeyPatch.context() as patch:
        # Devices aggregate: the first process for all, which get the same matrices.
        patch.setattr("hpfem.solvers.multigrid.algebraic._ON_HOSTS", 0)
        patch.setattr("hpfem.solvers.multigrid.aggregation.SMALLEST", 4)
        c0 = hp.C0Space(c0.space)
        A = hp.GlobalOperator(A.operator, c0, components=2)
        again, _ = make_preconditioner("multigrid", A)
        assert comm.all(again.vertices._finest is not None)
        for _ in range(2):
            y = again(r)
            assert np.array_equal(A.vectors.agreed(y.copy()), y)
            assert 0.7 < A.vectors.dot(r, y) / A.vectors.dot(r, z) < 1.4
            again.refresh()


def exchanges(comm):
    """What a cycle exchanges: once for each step of the smoother, and once at its end; its passes over vectors."""
    part = hp.distribute(whole("hex"), comm)
    counts = Counter()

    def counted(patch, kind, name, given):
        def call(*arguments, **options):
            counts[name] += 1
            return given(*arguments, **options)

        patch.setattr(kind, name, call, raising=False)

    with host_iterates_as_a_device(), pytest.MonkeyPatch.context() as patch:
        c0 = hp.C0Space(hp.Space(part, 4, backend="numpy"))
        A = hp.GlobalOperator(hp.Helmholtz(c0.space, 1.0), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
        r = A.vectors.agreed(c0.project(exact))
        for name in ("started", "combine", "total"):
            counted(patch, Messages, name, getattr(Messages, name))
        counted(patch, SharedVectors, "run", CpuVectors.run)
        for degree in (1, 2):
            M = Multigrid(A, degree)
            assert len(M.levels) == 3 and M.on_devices
            M(r)
            counts.clear()
            M(r)
            steps = 2 * (len(M.levels) - 1) * degree
            assert counts["started"] == counts["combine"] == steps + 1, counts
            # Hosts add what is shared in a pass, there, and back to a vector that is there; devices as they multiply.
            passes = 2 * (len(M.levels) - 1) * (degree - 1) + steps + (degree == 1) * (len(M.levels) - 1)
            assert counts["total"] == 1 and counts["run"] == passes, counts


def kept(comm):
    """Another solve takes graphs and vectors again, where nothing has changed; also where a process has no cells."""
    mesh = whole("quad")
    part = hp.distribute(mesh, comm, owners=np.arange(mesh.n_cells) % 2)
    with host_iterates_as_a_device() as captured:
        for make in (lambda A: None, jacobi, Multigrid):
            c0 = hp.C0Space(hp.Space(part, 4, backend="numpy"))
            bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0})
            A = hp.GlobalOperator(hp.Helmholtz(c0.space, 1.5), c0, bc)
            M = make(A)
            b, c = (A.vectors.agreed(c0.project(f) * bc.free) for f in (exact, lambda x, y: 1.0 + x * y))

            def solved(b, tol=1e-10, A=A, M=M, **more):
                del captured[:]
                x, info = hp.cg(A, b, M, tol=tol, bar=False, **more)
                assert A.vectors.norm(b - A.apply(x)) <= 2 * tol * A.vectors.norm(b) and info.iterations > 3
                return x, captured.count("conjugate gradients")

            first, count = solved(b)
            before = first.copy()
            assert count == (2 if make is Multigrid else 1)  # with and without the product
            assert [solved(c, **more)[1] for more in ({}, {"start": first}, {"tol": 1e-6})] == [0, 0, 0]
            with pytest.raises(hp.SolverError, match="after 3 iterations"):
                hp.cg(A, c, M, tol=1e-10, max_iterations=3, bar=False)
            again, count = solved(b)
            assert count == 0 and np.array_equal(before, first) and np.allclose(again, first, atol=1e-8)
            if make is not Multigrid:
                A.operator.parameters["lam"] = 40.0
                assert solved(b)[1] == 1


def on_nodes(comm):
    """Processes on two nodes: kernels are compiled, and the vertices of multigrid solved on the first."""
    assert len(set(comm.allgather(comm.host))) == 2
    assert sorted(comm.allgather(comm.local_rank)) == [0, 0, 1, 1]
    mesh = whole("mixed")
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 11))
    both(mesh, part, comm, 1e-6, backend="cpu", f=1.0, dirichlet=exact, preconditioner="multigrid")


def any_partition(comm):
    """Multigrid takes as many iterations whatever cells a process has."""

    def same(mesh, part, order):
        both(mesh, part, comm, 1e-6, f=1.0, dirichlet=exact, preconditioner="multigrid", order=order)

    partitions(comm, same)


def conditions(comm):
    """All kinds of conditions, with multigrid and Jacobi, both bases, several components, curved cells."""
    mesh = whole("mixed")
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 5))
    curved, bits = mesh.elevated(2).transformed(bent), part.elevated(2).transformed(bent)
    robin = {"xmax": (1.0, exact), "ymin": (0.5, 1.0)}
    for preconditioner, basis in (("multigrid", "modified"), ("multigrid", "lagrange"), ("jacobi", "modified")):
        given = {"preconditioner": preconditioner, "basis": basis, "order": 3 if preconditioner == "multigrid" else 2}
        both(mesh, part, comm, 1e-6, dirichlet={"xmin": exact}, robin=robin, **given)
        both(curved, bits, comm, 1e-6, neumann=gradient, **given)
    both(mesh, part, comm, 1e-6, dirichlet=exact, order=2)  # values from the domain
    both(mesh, part, comm, 1e-6, dirichlet=exact, order={"hex": 2, "prism": 3, "pyramid": 3, "tet": 4})
    differ = {"xmin": (0.0, None), "ymin": (None, 1.0)}
    for dirichlet in (differ, {"xmin": (0.0, 1.0)}):
        both(mesh, part, comm, 1e-6, f=[1.0, 2.0], dirichlet=dirichlet, components=2, preconditioner="multigrid")
    lam = {"hex": 1.0, "prism": 2.0, "pyramid": 1.0, "tet": 0.0}
    given = {"lam": lam, "diffusivity": lambda x, y, z: 1 + x, "preconditioner": "multigrid"}
    both(mesh, part, comm, 1e-6, f=1.0, dirichlet={"xmax": 0.0}, **given)


def rotated(comm):
    """Faces of tris that cells see rotated: an unstructured, curved mesh."""
    mesh, name = hp.read_mesh("meshes/curved_mixed.msh", comm=hp.ALONE), "multigrid"
    assert not hp.C0Space(hp.Space(mesh, 3)).signed
    for owners in (None, random_owners(mesh, comm, 9, range(comm.size - 1)), random_owners(mesh, comm, 10)):
        part = hp.distribute(mesh, comm, owners=owners)
        _, v = both(mesh, part, comm, 1e-6, dirichlet=exact, preconditioner=name, order=3)
        one, other = (
            by_cell(c0.scatter(c0.average(c0.space.project(exact))), comm)
            for c0 in (hp.C0Space(hp.Space(mesh, 3, backend="numpy")), v.c0)
        )
        assert difference(one, other) < 1e-12
    both(mesh, part, comm, 1e-6, robin=(1.0, exact), preconditioner=name, order=3)


def hidden(comm):
    """Constants that nothing fixes, on meshes of one and of several parts, which lie on several processes."""
    one = whole("hex")
    two = two_boxes()
    for mesh in (one, two):
        for owners in (random_owners(mesh, comm, 6), np.zeros(mesh.n_cells, dtype=int)):
            part = hp.distribute(mesh, comm, owners=owners)
            info, v = both(mesh, part, comm, 1e-6, lam=0.0, f=lambda x, *y: np.cos(np.pi * x), order=3)
            assert info.incompatibility.keys() == v.info.incompatibility.keys()
            assert hp.C0Space(hp.Space(part, 2)).parts.count == (2 if mesh is two else 1)


def two_boxes():
    """Two boxes side by side that share nothing."""
    box = hp.box("tet", 2, comm=hp.ALONE)
    points = np.concatenate([box.points, box.points + np.array([2.0, 0, 0])])
    nodes = box.cells[0].nodes
    return hp.Mesh.from_cells(points, [("tet", 1, np.concatenate([nodes, nodes + len(box.points)]))])


def sums(comm):
    """What is summed over the mesh, and values at points."""
    mesh = whole("mixed")
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 7, range(comm.size - 1)))
    found = []
    for own in (mesh, part):
        space = hp.Space(own, 3, backend="numpy")
        problem = hp.Problem(space, 1.0, {"xmin": exact}, {"xmax": 1.0}, {"ymin": (2.0, 1.0)}, bar=False)
        u = problem.solve(source)
        two = space.project(lambda x, y, z: [x * y, z])
        w = hp.Helmholtz(space, 1.0)(u)
        numbers = [space.integrate(u), *space.integrate(two), space.norm(u), two.norm(), u.dot(w), w.dot(u)]
        numbers += [space.integrate_boundary(u, "xmin"), *space.integrate_boundary(two, "zmax")]
        numbers += [space.integrate_boundary(lambda x, y, z, nx, ny, nz: x * nx, "xmax")]
        numbers += [hp.l2_error(u, exact), hp.l2_error(u, exact, relative=False), hp.h1_error(u, exact, gradient)]
        numbers += [problem.flux(u, name, source) for name in ("xmin", "xmax", "ymin", "zmin")]
        numbers += [u.flux(name) - problem.flux(u, name, source) for name in own.boundaries]
        # Common residuals are divided, for which unknowns at facets are shared; names may overlap.
        sides = dict(own.boundary_sides)
        named = own.with_sides(sides | {"all": np.concatenate(list(sides.values())), "more": sides["ymin"]})
        for order in (1, 2, 3):
            there = hp.Space(named, order, backend="numpy")
            fixed = hp.Problem(there, 0.0, dict.fromkeys(own.boundaries, exact), bar=False)
            numbers += map(fixed.solve(source).flux, named.boundaries)
        points = np.random.default_rng(0).random((20, 3)) * 1.1
        x = points.T
        numbers += [*np.nan_to_num(u(points)), *np.nan_to_num(u(*x)), *np.nan_to_num(two(points)).ravel()]
        numbers += [*np.nan_to_num(u(points, tolerance=0.1))]
        numbers += [problem.c0.whole_size, hp.l2_project(problem.c0, exact)[:0].sum()]
        found.append(np.array(numbers))
    assert np.abs(found[0] - found[1]).max() < 1e-10, np.abs(found[0] - found[1])
    assert all(np.array_equal(found[1], other) for other in comm.allgather(found[1]))


def other_methods(comm):
    """MINRES and GMRES, with and without multigrid; CG of a function."""
    mesh = whole("prism")
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 8))
    for velocity, lam in (([0.0, 0.0, 0.0], -30.0), ([3.0, 1.0, 0.0], 0.0)):
        for preconditioner in ("multigrid", "jacobi"):
            found = []
            for own in (mesh, part):
                space = hp.Space(own, 3)
                c0 = hp.C0Space(space)
                flow = hp.AdvectionDiffusionReaction(space, velocity=velocity, diffusivity=0.5, reaction=lam)
                A = hp.GlobalOperator(flow, c0, hp.BoundaryConditions(c0, dirichlet=exact))
                b = A.right_hand_side(c0.gather(hp.IProductWRTBase(space)(space.evaluate(source))))
                u, info = hp.solve(A, b, preconditioner, tol=1e-9, bar=False)
                found.append((by_cell(c0.scatter(u), comm), info.iterations, info.method))
            assert found[0][2] == found[1][2]
            # Rounding, of the levels in float32 too, moves the iterations of indefinite systems: they are 38 to 44 with
            # multigrid, by the partition, where levels in float64 take 35 with each.
            allowed = 1 if preconditioner == "multigrid" and lam == 0 else 0.2 * found[0][1]
            assert abs(found[0][1] - found[1][1]) <= allowed, (preconditioner, found[0][1:], found[1][1:])
            assert difference(found[0][0], found[1][0]) < 1e-6
    x, info = hp.cg(A.elliptic_part().apply, b, make_preconditioner("jacobi", A.elliptic_part())[0], shared=A.vectors)
    assert A.vectors.norm(A.elliptic_part().apply(x) - b) < 1e-11 * A.vectors.norm(b)


def found_by_all(comm):
    """Processes, one of them without cells, find the same: a singular system, and that multigrid does not suit."""
    mesh = hp.box("quad", (4, 2), comm=hp.ALONE)
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 1, range(comm.size - 1)))
    space = hp.Space(part, 1, backend="numpy")
    c0 = hp.C0Space(space)
    b = c0.gather(hp.IProductWRTBase(space)(space.evaluate(lambda x, y: 1 + x)))
    with pytest.raises(hp.SolverError, match="singular: it maps constants to zero on the mesh"):
        hp.solve(hp.GlobalOperator(hp.Laplacian(space), c0), b, bar=False)
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 1))
    space = hp.Space(part, 1, backend="numpy")
    c0 = hp.C0Space(space)
    b = c0.gather(hp.IProductWRTBase(space)(space.evaluate(lambda x, y: 1 + x)))
    A = hp.GlobalOperator(hp.Helmholtz(space, 1e-3, [1e3, 1.0]), c0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Multigrid, "__call__", lambda M, r: -r if comm.rank == 0 else r)
        x, info = hp.solve(A, b, "multigrid", bar=False)
    u = hp.solve_helmholtz(space, 1e-3, lambda x, y: 1 + x, diffusivity=[1e3, 1.0], preconditioner="multigrid")
    assert (info.preconditioner, u.info.preconditioner) == ("jacobi", "multigrid")
    assert np.abs(u.vector - x).max(initial=0.0) < 1e-6 * A.vectors.max_norm(x)
    tiny = hp.solve_helmholtz(hp.Space(part, 2, backend="numpy"), 1e-12, lambda x, y: 1 + x, bar=False)
    assert 1e-8 < tiny.info.residual < 1e-1 and len(set(comm.allgather(tiny.info.residual))) == 1


def newtons_method(comm):
    """The steps of one process; values that are not finite on one process, and errors, are those of all."""
    mesh = whole("mixed")

    def residual(own, function=lambda u, du, lam: (-lam * np.exp(u), du)):
        c0 = hp.C0Space(hp.Space(own, 3, backend="numpy"))
        return hp.WeakForm(c0.space, function, fields={"lam": 0.5}), c0, hp.BoundaryConditions(c0, {"xmin": 0.0})

    def solved(own):
        u, info = hp.newton(*residual(own), bar=False, preconditioner="multigrid", tol=1e-10)
        return by_cell(u, hp.ALONE if own is mesh else comm), info.steps

    # Without cells, one process, too.
    for ranks in (range(comm.size), range(comm.size - 1)):
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 2, ranks))
        wanted, steps = by_first(comm, lambda: solved(mesh))
        cells, found = solved(part)
        assert difference(wanted, cells) < 1e-8 and len(steps) == len(found), (steps, found)
    # The logarithm is not finite in some cells, not on all processes.
    halved, c0, _ = residual(
        hp.distribute(mesh, comm), lambda u, du, x, lam: (np.where(x[0] < 0.2, np.log(u) + 3, u - np.exp(-3)), du)
    )
    _, info = hp.newton(halved, c0, start=1.0, bar=False)
    assert info.steps[0].length < 1 and len(set(comm.allgather(str(info.residuals)))) == 1
    with pytest.raises(hp.NewtonError, match="first guess is not finite") as caught:
        hp.newton(halved, c0, start=-1.0, bar=False)
    assert len(set(comm.allgather(str(caught.value)))) == 1 and np.isfinite(caught.value.u.vector).all()


def marching(comm):
    """Steps of every kind are those of one process; a run that continues from the checkpoints has the same bits."""
    mesh = hp.box("quad", 2, comm=hp.ALONE)
    part, folder = hp.distribute(mesh, comm), Path(comm.bcast(tempfile.mkdtemp()))
    ways = {"ssp43": {"dt": None, "tol": 1e-3}, "low3": {"dt": 5e-4}, "bdf2": {}, "leapfrog": {"dt": 5e-4}}
    ways["esdirk3"] = {"tol": 1e-3, "preconditioner": "multigrid"}

    def marched(own, method, **options):
        # Masses are diagonal, or solved for.
        given = ("lagrange", "collocated") if method in ("low3", "leapfrog") else ()
        c0 = hp.C0Space(hp.Space(own, 2, *given))
        form = hp.WeakForm(c0.space, lambda u, du, s: (u**3 - s, du), fields={"s": 0.0})
        bc = hp.BoundaryConditions(c0, {"xmin": 0.0}, robin={"xmax": (1.0, 2.0)})
        data = {"parameters": {"s": np.cos}, "dirichlet": lambda t: {"xmin": t}, "method": method, "bar": False}
        options |= {"save": [2e-3], "dt": 1e-3, **ways[method]}
        return hp.march(form, lambda x, y: x, (0, 3e-3), c0, bc, **data, **options)

    for method in ways:
        path = folder / f"{method}.npz"
        alone = by_first(comm, lambda own=method: [(run := marched(mesh, own)).steps, by_cell(run.u, hp.ALONE)])
        run = marched(part, method, checkpoint=path)
        assert run.steps == alone[0] and difference(alone[1], by_cell(run.u, comm)) < 1e-2 * ways[method].get(
            "tol", 1e-6
        ), method
        again = marched(part, method, checkpoint=path)
        assert np.array_equal(run.u.vector, again.u.vector) and again.times == [2e-3], method
    if comm.rank == 1:
        path.with_suffix(f".1of{comm.size}.npz").unlink()
    with pytest.raises(hp.ArgumentError, match="no checkpoint"):
        marched(part, method, checkpoint=path)


def maps(comm):
    """Derivatives of solutions, also in PyTorch, are those of one process; one process has no cells."""
    mesh = whole("mixed")

    def found(own):
        c0 = hp.C0Space(hp.Space(own, 2, backend="numpy"))
        k, cells = c0.space.evaluate(lambda *x: 1 + x[0]), np.arange(mesh.n_cells) if own is mesh else own.part.cells
        form = hp.WeakForm(c0.space, lambda u, du, k, a: (a * u**3 + du[0], k * du), fields={"k": k, "a": 0.5})
        inputs = {"k": "cells", "a": "number", "f": "points", "dirichlet": "function", "robin": "xmax"}
        solution = hp.SolutionMap(form, inputs, c0, hp.BoundaryConditions(c0, {"xmin": 0.0}), tol=1e-12)
        data = {"k": 1 + 1.0 * cells / mesh.n_cells, "a": 0.5}
        data["f"] = np.concatenate([array.ravel() for array in k.arrays])
        data["dirichlet"] = data["robin"] = c0.project(lambda *x: x[1])
        w, every, values = c0.one * c0.owned, comm if own is not mesh else hp.ALONE, []
        change = {"k": data["k"], "a": 1.0, "f": -data["f"], "dirichlet": 2 * data["dirichlet"], "robin": c0.one}
        for along in (None, change):
            slopes, du = solution.pullback(data, w, along=along), solution.forward(data, change, along=along)
            terms = [np.sum(slopes[name] * change[name]) for name in ("k", "f")]
            terms += [np.sum((slopes[name] * change[name])[c0.owned]) for name in ("dirichlet", "robin")]
            terms.append(-np.sum(w * du))
            assert abs(every.sum(np.array(terms)).sum() + float(slopes["a"])) < 1e-9
            values += [float(slopes["a"]), *every.sum(np.array(terms))]
        if find_spec("torch"):
            import torch

            given = {name: torch.tensor(array, dtype=torch.float64, requires_grad=True) for name, array in data.items()}
            first = torch.autograd.grad(
                (hp.torch.wrap(solution)(given) * torch.tensor(w)).sum(), [*given.values()], create_graph=True
            )
            second = torch.autograd.grad(
                sum((g * torch.tensor(change[n])).sum() for n, g in zip(given, first)), [*given.values()]
            )
            assert all(np.allclose(g, slopes[name], rtol=1e-8, atol=1e-10) for name, g in zip(given, second))
        form = hp.WeakForm(c0.space, lambda u, du, x: (u - x[0], du))
        moving = hp.SolutionMap(form, {"nodes": "mesh"}, c0, hp.BoundaryConditions(c0, {"xmin": 0.0}), tol=1e-12)
        du = du + moving.forward({"nodes": own.points}, {"nodes": np.sin(own.points)})
        return by_cell(c0.scatter(du), every), values

    wanted = by_first(comm, lambda: found(mesh))
    got = found(hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 2, range(comm.size - 1))))
    assert difference(wanted[0], got[0]) < 1e-8 and np.allclose(wanted[1], got[1], rtol=1e-8)
    problem = hp.Problem(hp.Space(hp.distribute(mesh, comm), 1, backend="numpy"), 1.0, bar=False)
    with pytest.raises(hp.ArgumentError, match=r"hp\.jax\.wrap is for one process; use hp\.SolutionMap"):
        hp.jax.wrap(problem, {"lam": "number"})


def failing(comm):
    """An error on one process, where others go on, is one on all."""
    mesh = hp.box("hex", 3)
    space = hp.Space(mesh, 2)

    def bad(x, y, z):
        return np.where(x > 0.9, np.nan, x)

    with pytest.raises(hp.ArgumentError, match="not finite"):
        hp.solve_helmholtz(space, lam=1.0, f=bad, dirichlet=0.0)
    with pytest.raises(hp.MeshError, match=r"absent\.msh"):
        hp.read_mesh("absent.msh")
    with pytest.raises(hp.NotSuitable, match="not elliptic"):
        c0 = hp.C0Space(space)
        k = hp.Helmholtz(space, 1.0, lambda x, y, z: [1.0, 1.0, np.where(x > 0.7, -1.0, 1.0)])
        make_preconditioner("multigrid", hp.GlobalOperator(k, c0))


def named_sets(comm):
    """Conditions, fluxes and integrals on interfaces, in any partition: each facet counts once."""
    for name, order in (("quad", 3), ("tet", 2)):
        mesh = bar(name)
        between = (mesh.points[mesh.cells[0].nodes].mean(axis=1)[:, 0] > 1).astype(int)
        owners = between if name == "quad" else random_owners(mesh, comm, 1)
        part = hp.distribute(mesh, comm, owners=owners)
        for kind in CONDITIONS.values():
            problem, u = heated(part, order, ("xmin", "xmax"), kind)
            assert hp.l2_error(u, lambda x, *_: np.minimum(x, 2 - x) / 2) < 1e-11
            fluxes = [problem.flux(u, name) for name in ("interface", "xmin", "xmax")]
            assert np.abs(np.array(fluxes) - [1.0, -0.5, -0.5]).max() < 1e-10
        assert abs(u.space.integrate_boundary(u, "interface") - 0.5) < 1e-11
        form = hp.WeakForm(u.space, lambda u: u**2, test="value", on="interface", backend="numpy")
        found = u.c0.vectors_on(HOST).dot(u.c0.gather(form(u)), u.c0.project(1.0))
        assert abs(found - 0.25) < 1e-11
        with pytest.raises(hp.ArgumentError, match="the normal is not unique between two cells"):
            heated(part, order, (), {"neumann": {"interface": lambda *x: x}})


def lower_sets(comm):
    """Values on points and edges, sources in points and data of cells, in any partition, also of parts cut anew."""
    mesh, found = with_sets("hex"), []
    part = hp.distribute(mesh, comm, owners=np.arange(mesh.n_cells) * 5 // 2 % comm.size)
    again = hp.distribute(part, comm, owners=(np.arange(part.n_cells) + comm.rank) % comm.size)
    assert len({str(own.summary()).partition("sets of")[2] for own in (mesh, part, again)}) == 1
    given = {"preconditioner": "jacobi", "bar": False}
    for own in (mesh, part, again):
        space, k = hp.Space(own, 2, backend="numpy"), own.cell_data["k"]
        one = hp.Problem(
            space, 0.0, {"xmin": 0.0}, {"middle": 3.0, "ends": 1.0}, diffusivity=space.evaluate(1 + k), **given
        )
        line = {"line": lambda x, *y: x, "ends": 2.0}
        two = hp.Problem(space, 1.0, line, c0=one.c0, diffusivity=own.cell_data["t"], **given)
        assert own.comm.sum(float((two.conditions.constrained & two.c0.owned).sum())) == 5
        u, v = one.solve(k), two.solve(1.0)
        found.append([space.integrate(u), space.norm(u), space.integrate(v), space.norm(v)])
        assert abs(one.flux(u, "xmin", k) + 5 + space.integrate(space.evaluate(k))) < 1e-9
    assert np.abs(np.array(found) / found[0] - 1).max() < 1e-9, found
