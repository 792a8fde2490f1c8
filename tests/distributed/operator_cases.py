"""Operators, products and conjugate gradients: equal to those of one process."""

import warnings

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.base import Backend
from hpfem.backends.roofline import Roofline
from hpfem.benchmarks.expected import expected_throughput
from hpfem.memory import HOST
from hpfem.solvers.preconditioners import jacobi
from tests.distributed.meshes import BOXES, bent, by_cell, by_first, difference, exact, partitions, random_owners, whole

CLOSE = 1e-12
# Boxes that are closed in some directions.
CLOSED = (("hex", ("z",)), ("prism", ("x", "z")), ("tet", ("x", "y", "z")), ("tri", ("x",)), ("quad", ("x", "y")))


def problem(mesh, order=3, basis="modified", orders=None, function=exact, backend="auto", ends=None):
    """An operator with all kinds of conditions, and its right-hand side."""
    space = hp.Space(mesh, orders or order, basis, backend=backend)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(
        c0,
        dirichlet={"xmin": function, "ymin": function} if ends is None else {f"{ends}min": function},
        neumann={"xmax": function} if ends is None else None,
        robin={f"{ends or 'y'}max": (2.0, function)},
    )
    A = hp.GlobalOperator(hp.Helmholtz(space, 1.5), c0, bc)
    f = c0.gather(hp.IProductWRTBase(space)(space.evaluate(function)))
    return A, A.right_hand_side(f)


def with_boundary_terms(mesh, order=3, basis="modified", function=exact):
    """A sum with a matrix of one boundary and Nitsche's method on another, and its right-hand side."""
    space = hp.Space(mesh, order, basis)
    c0 = hp.C0Space(space)

    def terms(u, du, n, g):
        return 200.0 * (u - g) - du.dot(n), [-(u - g) * own for own in n]

    weak, data = (hp.WeakForm(space, terms, fields={"g": g}, on="xmin") for g in (0.0, function))
    spring = hp.WeakForm(space, lambda u, k: k * u, test="value", fields={"k": 3.0}, on="ymax")
    bc = hp.BoundaryConditions(c0, dirichlet={"xmax": function}, neumann={"ymin": function})
    A = hp.GlobalOperator(hp.Mass(space) + hp.Laplacian(space) + weak + 0.5 * spring, c0, bc)
    spring.parameters["k"] = 4.0
    A.operator.parameters["0"] = 1.5
    assert A.symmetric and not A.is_positive() and A.matrix is not None and len(A.matrix_free) == 1
    return A, A.right_hand_side(-c0.gather(data(space.zeros("coeff"))))


def boundary_terms(comm):
    """Forms on boundaries, where a process has no facets of one of them, where it has no cells, and others."""
    for name, basis in (("quad", "lagrange"), ("mixed", "modified")):
        mesh, options = whole(name), {"make": with_boundary_terms, "basis": basis}
        at_xmin = np.zeros(mesh.n_cells, dtype=int)
        at_xmin[mesh.facets.cells[mesh.boundaries["xmin"], 0]] = 1
        for owners in (
            (at_xmin, random_owners(mesh, comm, 4, [0])) if name == "quad" else (random_owners(mesh, comm, 4),)
        ):
            A, b, P, c = check(mesh, hp.distribute(mesh, comm, owners=owners), comm, **options)
            solved(A, b, P, c, comm)
            settings = {"preconditioner": "multigrid", "definite": True, "bar": False}
            one = by_first(comm, lambda A=A, b=b, settings=settings: hp.solve(A, b, **settings)[1])
            assert as_many(one, hp.solve(P, c, **settings)[1])


def with_tangent(mesh, function=exact):
    """The tangent of an energy with a part on a boundary, and its residual."""
    space = hp.Space(mesh, 3)
    c0 = hp.C0Space(space)
    wall = hp.Energy(space, lambda u: u**4 / 4, on="xmin")
    E = hp.Energy(space, lambda u, du, p: (1 + du.dot(du)) ** (p / 2) + u * u, fields={"p": 1.5}) + 2 * wall
    u = c0.scatter(c0.project(function))
    J = E.linearised(0 * u).at(u)
    bc = hp.BoundaryConditions(c0, dirichlet={"xmax": function}, neumann={"ymin": function})
    A = hp.GlobalOperator(J, c0, bc)
    return A, A.right_hand_side(c0.gather(E.residual(u)))


def linearised(comm):
    """Tangents of energies, which have values, on parts of a mesh."""
    mesh = whole("mixed")
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm))
    A, b, P, c = check(mesh, part, comm, make=with_tangent)
    solved(A, b, P, c, comm)
    energies = [hp.Energy(hp.Space(m, 2), lambda u, x: u + x[0], on="ymin") for m in (part, mesh)]
    one = by_first(comm, lambda: energies[1](energies[1].space.project(exact)))
    assert abs(energies[0](energies[0].space.project(exact)) - one) < 1e-12


def by_nodes(comm):
    """Derivatives by nodes, the same to the bit where processes share a node; an error on one process is one on all."""

    def derivative(mesh, along=None):
        space = hp.Space(mesh, 2, backend="numpy")
        energy = hp.Energy(space, lambda u, du, x: u**2 * x[0] + du.dot(du))
        energy = energy + hp.Energy(space, lambda u, n: u**2 * n[0], on="xmax")
        return hp.node_gradient(energy, space.project(exact), along=along)

    def along(mesh):
        return np.stack([np.sin(mesh.points), mesh.points**2])

    for name in ("hex", "tri", "quad"):
        closed = {"periodic": ("y",)} if name == "quad" else {}
        mesh = whole(name, **closed).elevated(2).transformed(bent)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm))
        expected, found = by_first(comm, lambda mesh=mesh: derivative(mesh)), derivative(part)
        place = {tuple(x): i for i, x in enumerate(np.round(mesh.points, 9) + 0.0)}
        own = np.array([place[tuple(x)] for x in np.round(part.points, 9) + 0.0])
        assert np.abs(found - expected[own]).max() < CLOSE * np.abs(expected).max()
        values = {}
        for numbers, given in comm.allgather((own, found)):
            for number, row in zip(numbers, given, strict=True):
                assert np.array_equal(values.setdefault(number, row), row)
        # Each process counts its cells alone.
        expected = by_first(comm, lambda mesh=mesh: derivative(mesh, along(mesh)))
        assert np.abs(derivative(part, along(part)) / expected - 1).max() < 1e-10
    space = hp.Space(part, 2, backend="numpy")
    u = space.project(exact)
    form = hp.WeakForm(space, lambda u: np.log(u + 5.0), test="value")
    if comm.rank == 1:
        u.arrays[0][...] = -10.0
    with pytest.raises(hp.HpfemError, match="not finite"):
        hp.node_gradient(form, u, u)


def vectors_of(A, b, function):
    """What an operator makes: all vectors are the same on the whole mesh and on its parts."""
    x = A.c0.project(function)
    return [x, b, A.diagonal(), A.c0.multiplicity * 1.0, A.bc.values, A.bc.load, A.apply(x)]


def check(mesh, part, comm, function=exact, make=problem, **options):
    """Everything that an operator does is the same on the whole mesh and on its parts; operators and vectors of both.

    The first process alone has those of the whole mesh.
    """
    A = b = None

    def alone():
        nonlocal A, b
        A, b = make(mesh, function=function, **options)
        vectors = vectors_of(A, b, function)
        return A.c0.size, [(by_cell(A.c0.scatter(v), comm), A.vectors.dot(v, v), A.vectors.norm(v)) for v in vectors]

    size, wanted = by_first(comm, alone)
    P, c = make(part, function=function, **options)
    if comm.rank == comm.size - 1:  # one process may ask alone
        assert P.c0.whole_size == size
    assert comm.sum(P.c0.owned.sum()) == size
    vectors = vectors_of(P, c, function)
    for (cells, square, norm), own in zip(wanted, vectors, strict=True):
        assert difference(cells, by_cell(P.c0.scatter(own), comm)) < CLOSE
        agreed = P.vectors.agreed(own.copy())
        assert np.array_equal(agreed, own)  # to the last bit on all processes
        assert abs(P.vectors.dot(own, own) / square - 1) < CLOSE
        assert abs(P.vectors.norm(own) / norm - 1) < CLOSE
        assert P.vectors.max_norm(own) == P.vectors.max_norm(agreed)
    field = P.c0.scatter(vectors[0])
    assert np.abs(P.c0.average(field) - vectors[0]).max(initial=0.0) < CLOSE
    return A, b, P, c


def as_many(one, other, more=1):
    """Whether two solves took as many iterations: one more or less by multigrid, and after many what rounding does.

    Without a preconditioner that is up to 7 % on one process, too, when sums are made in another order.
    """
    share = {"multigrid": 0.0, "none": 0.1}.get(one.preconditioner, 0.07)
    return abs(one.iterations - other.iterations) <= max(more, share * one.iterations)


def solved(A, b, P, c, comm, tol=1e-6):
    """Conjugate gradients take as many iterations, and find the same."""

    def alone():
        u, info = hp.cg(A, b, jacobi(A), tol=tol, bar=False)
        assert info.size == len(b)
        return by_cell(A.c0.scatter(u), comm), info

    cells, one = by_first(comm, alone)
    v, other = hp.cg(P, c, jacobi(P), tol=tol, bar=False)
    assert as_many(one, other), (one.residuals[-5:], other.residuals[-5:])
    assert one.size == other.size
    assert abs(other.residual - one.residual) < tol
    assert difference(cells, by_cell(P.c0.scatter(v), comm)) < 1e-3


def shapes(comm):
    """All shapes, cut at random; all in one mesh by METIS, too."""
    for name in BOXES:
        mesh = whole(name)
        for owners in (random_owners(mesh, comm), None)[: 2 if name == "mixed" else 1]:
            solved(*check(mesh, hp.distribute(mesh, comm, owners=owners), comm), comm)


def overlapped(comm):
    """What is exchanged while the rest is gathered is, to the last bit, what is exchanged after that."""
    for name in BOXES:
        mesh = whole(name)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 6))
        c0 = hp.C0Space(hp.Space(part, 3, backend="numpy"))
        bc = hp.BoundaryConditions(c0, dirichlet={"xmin": exact})
        product = hp.GlobalOperator(hp.Helmholtz(c0.space, 1.5), c0, bc).product_on(HOST)
        x = c0.project(exact)
        rows = product.vectors.summed(product._own(x[None], False))
        rows[:, bc.constrained] = x[bc.constrained]
        assert np.array_equal(rows[0], product(x))


def orders(comm):
    """Orders 1 to 8, different ones that meet, and nodes."""
    mesh = whole("mixed")
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 1))
    for order in (1, 2, 5, 8):
        check(mesh, part, comm, order=order)
    check(mesh, part, comm, orders={"hex": 4, "prism": 2, "pyramid": 3, "tet": 5})
    check(mesh, part, comm, order=4, basis="lagrange")


def curved_and_periodic(comm):
    """Curved cells, and boxes closed in themselves."""
    for name in ("tri", "hex", "mixed"):
        mesh = whole(name)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 2))
        check(mesh.elevated(2).transformed(bent), part.elevated(2).transformed(bent), comm)
    for name in ("hex", "tet"):
        mesh = hp.box(name, (2, 2, 3), periodic=("z",), comm=hp.ALONE)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 3))
        solved(*check(mesh, part, comm, function=lambda x, y, z: exact(x, y) * np.cos(2 * np.pi * z)), comm)


def empty(comm):
    """Processes without cells, and one with all of them."""
    for name in ("quad", "mixed"):
        mesh = whole(name)
        for ranks in ([0], [comm.size - 1], range(1, comm.size)):
            solved(*check(mesh, hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 4, ranks)), comm), comm)


def generated(comm):
    """What every process makes by itself: boxes and files, with and without naming the processes."""
    part = hp.box("hex", 4)
    assert part.part is not None
    assert comm.sum(part.n_cells) == 64
    assert hp.box("hex", 4, comm=hp.ALONE).part is None
    read = hp.read_mesh("meshes/cube_mixed.msh", comm=comm)
    alone = hp.read_mesh("meshes/cube_mixed.msh", comm=hp.ALONE)
    assert comm.sum(read.n_cells) == alone.n_cells
    for name, facets in alone.boundaries.items():
        assert comm.sum(len(read.boundaries[name])) == len(facets)
    for name, cells in alone.regions.items():
        assert comm.sum(len(read.regions[name])) == len(cells)
    assert comm.sum(len(read.facets.boundary)) == len(alone.facets.boundary)
    work = comm.allgather(hp.Space(read, 4).n_dofs)
    assert max(work) <= 1.1 * np.mean(work)


def summaries(comm):
    """What a mesh says of itself is of all of it."""
    for name in ("meshes/cube_mixed.msh", "meshes/curved_mixed.msh"):
        alone, part = (hp.read_mesh(name, comm=own) for own in (hp.ALONE, comm))
        one, other = alone.summary(), part.summary()
        assert all(str(other) == text for text in comm.allgather(str(other)))
        assert str(one).split("worst")[0] == str(other).split("worst")[0] or "curved" in name
        assert abs(other.volume / one.volume - 1) < CLOSE
        assert other.n_vertices == one.n_vertices and other.counts == one.counts and other.n_unnamed == one.n_unnamed
    # Limits of the machine are measured by one process, which has it to itself.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backend, "roofline", lambda *_, **__: Roofline(1e9 / (1 + 9 * comm.rank), 1e9, {}))
        found = [expected_throughput(mesh, 2, "numpy") for mesh in (alone, part)]
    assert comm.rank or str(found[0]["dofs_per_second"]) == str(found[1]["dofs_per_second"])
    assert len(set(comm.allgather(str(found[1]["dofs_per_second"])))) == 1
    # Points on shared edges and faces are counted once, those of closed directions in all of their places.
    closed = [hp.box(name, 3, periodic=directions, comm=hp.ALONE) for name, directions in CLOSED]
    for number, mesh in enumerate([alone, *map(whole, BOXES), *closed]):
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, number))
        for one, other in ((mesh, part), (mesh.elevated(3), part.elevated(3))):
            assert other.summary().n_vertices == one.n_vertices
            assert other.summary().n_points == len(one.points), mesh.name
    for call in (part.refined, lambda: part.write("a.msh")):
        with pytest.raises(hp.ArgumentError, match="distribute"):
            call()
    with pytest.raises(hp.ArgumentError, match=r"hp\.write_vtu for other programs"):
        part.plot("a.png")
    refined = hp.distribute(alone.refined(), comm)
    check(alone.refined(), refined, comm, order=2)


def unsuitable(comm):
    """An algorithm that suits no cell of a process is refused if it suits none at all; one process has none."""
    mesh = whole("mixed")
    tets = np.concatenate([np.full(len(own), own.shape.name == "tet") for own in mesh.cells])
    for owners in (tets * 1, 1 - tets):
        space = hp.Space(hp.distribute(mesh, comm, owners=owners), 2, quadrature={"tet": "simplex"})
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            operator = hp.Laplacian(space, algorithm="collocated")
            hp.FwdTrans(space, strategy="sumfac")
        said = [str(own.message) for own in given if own.category is hp.HpfemWarning]
        assert len(said) == 2 * (comm.rank == 0) and all("affine tet, P=2: " in text for text in said[:1])
        assert all(text.startswith("FwdTrans: some blocks take what 'auto' takes") for text in said[1:])
        for block, choice in zip(space.blocks, operator.choices, strict=True):
            assert choice.algorithm == ("noncollocated" if block.shape.name == "tet" else "collocated")
        one, other = (hp.GlobalOperator(own, hp.C0Space(space)) for own in (operator, hp.Laplacian(space)))
        x = one.vectors.agreed(np.random.default_rng(0).random(one.c0.size))
        assert np.allclose(one(x), other(x), rtol=0, atol=CLOSE)
    few = hp.Space(hp.distribute(mesh, comm, owners=tets * 1), 4, quadrature={"tet": -1})
    with pytest.raises(hp.ArgumentError, match="Laplacian on tet: collocated derivatives of order 4"):
        hp.Laplacian(few, algorithm="collocated")
    assert comm.allgather(comm.rank) == list(range(comm.size))
    mesh = whole("tet")
    space = hp.Space(hp.distribute(mesh, comm, owners=np.arange(mesh.n_cells) % 2), 2, quadrature="simplex")
    with pytest.raises(hp.NotSuitable, match="Laplacian on tet: a simplex rule has no directions"):
        hp.Laplacian(space, algorithm="collocated")
    with pytest.raises(hp.NotSuitable, match="Mass on tet: sumfac factorises along directions"):
        hp.FwdTrans(space, strategy={"tet": "sumfac"})


def any_partition(comm):
    """Operators and conjugate gradients."""

    def same(mesh, part, order):
        found = check(mesh, part, comm, order=order)
        if order == 3:
            solved(*found, comm)

    partitions(comm, same)
