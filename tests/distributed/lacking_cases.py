"""Processes that lack something: cells, facets with a condition, a region, a shape, a class of cells.

All uses of a part of a mesh are compared with those of the whole mesh. A process that takes another way than the others
waits for ever.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest

import hpfem as hp
from hpfem.solvers import point_source
from hpfem.solvers.norms import load
from tests.distributed.host_device import host_iterates_as_a_device
from tests.distributed.meshes import by_first, exact
from tests.distributed.output_cases import folder

CLOSE = 1e-8


def with_regions(mesh):
    """The mesh with its cells in two regions, by their middles."""
    cells = [(own.shape.name, own.order, own.nodes) for own in mesh.cells]
    left = np.concatenate([mesh.points[nodes].mean(axis=1)[:, 0] for *_, nodes in cells]) < 0.5
    named = {"left": np.flatnonzero(left), "right": np.flatnonzero(~left)}
    return hp.Mesh.from_cells(mesh.points, cells, regions=named).with_sides(mesh.boundary_sides)


def partly_bent(points):
    """Coordinates of a box whose left part stays as it is."""
    return points + np.outer(0.1 * np.maximum(points[:, 0] - 0.4, 0) ** 2, [0, 1])


def pieces(n):
    """Meshes by name, and the process of each cell: some have none, some have one kind of everything alone."""
    one, two = (hp.box("hex", sizes, comm=hp.ALONE) for sizes in ((1, 1, 1), (2, 1, 1)))
    mixed = hp.box(("hex", "prism", "pyramid", "tet"), (4, 1, 1), comm=hp.ALONE)
    shape = np.concatenate([np.full(len(own), i) for i, own in enumerate(mixed.cells)])
    strip = hp.box("quad", (2 * n, 2), comm=hp.ALONE)
    place = (n * strip.points[strip.cells[0].nodes].mean(axis=1)[:, 0]).astype(int)
    found = {
        "one": (one, np.full(1, n - 1)), "two": (two, np.array([n - 1, 0])), "together": (two, np.full(2, n - 1)),
        "shapes": (mixed, shape % n), "strip": (strip, place),
        "curved": (strip.elevated(2).transformed(partly_bent), place),
        "thin": (strip.transformed(lambda x: np.where(x < 0.5, 1e-2 * x, x - 0.495) * [1, 0] + x * [0, 1]), place),
    }  # fmt: skip
    return {name: (with_regions(mesh), owners) for name, (mesh, owners) in found.items()}


def vector(*x):
    """A function of two components."""
    return [exact(*x), x[0]]


def tensor(*x):
    """A symmetric tensor."""
    return [[2.0 + x[0] if i == j else 0.1 * x[i] * x[j] for j in range(len(x))] for i in range(len(x))]


def skew(*x):
    """A tensor that is symmetric on the left only."""
    return [[2.0 if i == j else (i - j) * np.where(x[0] > 0.5, 0.3, 0.0) for j in range(len(x))] for i in range(len(x))]


# Conditions of all kinds, on few facets.
CONDITIONS = (
    {"dirichlet": {"xmax": exact}, "robin": {"xmin": (2.0, exact)}},
    {"dirichlet": {"xmin": exact}, "neumann": {"ymax": 1.0}},
    {"robin": {"xmax": (lambda *x: 1 + x[0], 1.0)}},
    {"robin": (1.0, exact), "lam": 0.0},
    {"lam": 0.0, "data_tol": 1.0},
    {"dirichlet": {"xmin": [0.0, None], "xmax": [1.0, exact]}, "components": 2},
)
COEFFICIENTS = (
    {"diffusivity": lambda *x: 1 + x[0], "lam": lambda *x: x[0]},
    {"diffusivity": tensor, "lam": {"left": 0.0, "right": 2.0}, "robin": {"xmax": (1.0, 0.0)}},
    {"diffusivity": {"left": 1.0, "right": lambda *x: [1 + x[0]] * len(x)}},
)


def numbers_of(u):
    """Numbers of a field of one component or several."""
    space = u.space
    points = np.full((1, space.dim), 0.4)
    return np.concatenate([
        np.ravel(own) for own in (space.norm(u), space.integrate(u), space.integrate_boundary(u, "xmax"), u.at(points))
    ])  # fmt: skip


def solve(mesh, backend, preconditioner, dtype=np.float64, components=1, **given):
    """A problem, its fluxes, and the same with other data."""
    space = hp.Space(mesh, 2, backend=backend, dtype=dtype)
    given = {"lam": 1.0, "preconditioner": preconditioner, "bar": False, "components": components, **given}
    problem = hp.Problem(space, **given)
    u = problem.solve([1.0, 2.0][:components] if components > 1 else exact)
    fluxes = [problem.flux(u, name, 1.0) for name in mesh.boundaries]
    again = problem.solve(1.0, start=u)
    return [*numbers_of(u), *np.ravel(fluxes), *numbers_of(again)]


def lagrange(mesh, backend, preconditioner):
    """Nodes as unknowns."""
    space = hp.Space(mesh, 2, "lagrange", backend=backend)
    given = {"dirichlet": {"xmin": 1.0}, "robin": {"xmax": (1.0, 0.0)}}
    return numbers_of(hp.solve_helmholtz(space, 1.0, exact, preconditioner=preconditioner, bar=False, **given))


def other_methods(mesh, backend, preconditioner, velocity, k, reaction):
    """MINRES and GMRES."""
    space = hp.Space(mesh, 2, backend=backend)
    c0 = hp.C0Space(space)
    flow = hp.AdvectionDiffusionReaction(space, [velocity] * space.dim, k, reaction)
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": exact}, robin={"xmax": (1.0, 0.0)})
    A = hp.GlobalOperator(flow, c0, bc)
    u, info = hp.solve(A, A.right_hand_side(load(c0, exact)), preconditioner, bar=False)
    return [*numbers_of(c0.scatter(A.vectors.to_host(u))), float(info.method == "minres")]


def wave(mesh, backend):
    """Some steps."""
    straight = {own.shape.name for own in mesh.cells} <= {"quad", "hex"}
    options = ("lagrange", "collocated") if straight else ("modified",)
    c0 = hp.C0Space(hp.Space(mesh, 2, *options, backend=backend))
    form, bc = hp.Helmholtz(c0.space, 0.0, lambda *x: 1 + x[0]), hp.BoundaryConditions(c0, {"xmin": 0.0})
    source, heard = point_source(c0, [0.4] * mesh.dim), list[float]()
    vectors = c0.vectors_on(form.device)
    listening = vectors.from_host(source)

    def watch(t, u):
        heard.append(vectors.dot(listening, u))

    run = hp.march(
        form,
        c0.project(exact),
        (0, 3e-3),
        c0,
        bc,
        method="leapfrog",
        dt=None if straight else 1e-3,
        load=lambda t: source,
        watch=watch,
        bar=False,
    )
    return [run.dt, *heard[-1:], *numbers_of(run.u)]


def functions(mesh, backend):
    """Functions and fields, on the mesh and on its boundary."""
    space = hp.Space(mesh, 2, backend=backend)
    c0, two = hp.C0Space(space), space.project(vector)
    u = c0.scatter(c0.project(exact))
    on = hp.WeakForm(space, lambda u, n, k: k * n[0] * u, test="value", fields={"k": vector_first}, on="xmax")
    plain = hp.WeakForm(space, lambda u, du, k: (k * u, du), fields={"k": {"left": 1.0, "right": vector_first}})
    doubled = hp.AtPoints(space, lambda u, k: k * u, fields={"k": exact})(u)
    duals = c0.gather(hp.IProductWRTBase(space)(space.evaluate(vector)))
    sums = [c0.vectors_on().dot(row, row) for row in duals]
    numbers = [two.norm(), u.dot(on(u)), u.dot(plain(u)), space.norm(doubled), *sums, hp.l2_error(u, exact)]
    numbers += [hp.l2_error(two, vector), hp.h1_error(u, exact, lambda *x: [exact(*x)] * len(x)), mesh.summary().volume]
    numbers += [space.norm(space.interpolate(u)), space.integrate_boundary(vector_first, "xmin")]
    for given in (c0.project(vector), c0.average(two), hp.l2_project(c0, exact)):
        numbers += [*numbers_of(c0.scatter(given))]
    assert hp.Helmholtz(space, exact, tensor).cell_weights().shape == (mesh.n_cells,)
    with pytest.raises(hp.ArgumentError, match="other boundaries"):
        hp.BoundaryConditions(c0, dirichlet={"xmin": 1.0}).values_of({"xmax": 1.0})
    return numbers


def vector_first(*x):
    """A function of one component."""
    return 1 + x[0]


def files(mesh, backend):
    """What is written and read again."""
    comm = mesh.comm
    space = hp.Space(mesh, 2, backend=backend)
    fields = {"u": space.project(exact), "v": space.project(vector)}
    with folder(comm) as path:
        hp.write_vtu(path / "all.vtu", fields)
        hp.save(path / "all.h5", fields)
        read = hp.load(path / "all.h5", backend, comm=comm)
    return np.concatenate([numbers_of(own) for own in read.values()])


USES = {
    **{f"conditions {i} {p}": partial(solve, preconditioner=p, **own)
       for (i, own), p in product(enumerate(CONDITIONS), ("none", "jacobi", "multigrid"))},
    **{f"coefficients {i} {p}": partial(solve, preconditioner=p, **own)
       for (i, own), p in product(enumerate(COEFFICIENTS), ("jacobi", "multigrid"))},
    **{f"single {p}": partial(solve, preconditioner=p, dtype=np.float32, dirichlet={"ymin": exact}, tol=1e-5)
       for p in ("jacobi", "multigrid")},
    **{f"lagrange {p}": partial(lagrange, preconditioner=p) for p in ("jacobi", "multigrid")},
    **{f"other methods {v} {p}": partial(other_methods, preconditioner=p, velocity=v, k=k, reaction=c)
       for (v, k, c), p in product(((0.0, tensor, -2.0), (1.0, skew, 1.0), (0.0, skew, 1.0)), ("jacobi", "multigrid"))},
    **{own.__name__: own for own in (wave, functions, files)},
}  # fmt: skip


def check(comm, chosen, backend="auto"):
    """Each use of each mesh gives the numbers of the whole mesh."""
    meshes = pieces(comm.size)
    parts = {name: hp.distribute(*own[:1], comm, owners=own[1]) for name, own in meshes.items()}
    for name, use in chosen:
        wanted = by_first(comm, partial(USES[use], meshes[name][0], backend))
        found = USES[use](parts[name], backend)
        close = 1e-3 if use.startswith("single") else 1e-7
        assert np.allclose(wanted, found, rtol=close, atol=close), (name, use, wanted, found)


# Uses of conjugate gradients, which devices iterate; and the others.
ITERATED = [use for use in USES if use.startswith(("conditions", "lagrange"))]
OTHERS = [use for use in USES if use not in ITERATED]


def each_use(comm):
    """Uses and meshes in turn."""
    names = ("together", "two", "one", "curved", "shapes", "thin", "strip")
    check(comm, [(names[i % 7], use) for i, use in enumerate([*OTHERS[1:-3:4], *OTHERS[-3:]])])


def as_devices(comm):
    """Where devices iterate without their hosts: no process captures alone."""
    names = ("strip", "two", "one", "curved", "thin")
    with host_iterates_as_a_device() as captured:
        check(comm, [(names[i % 5], use) for i, use in enumerate(ITERATED[1::6])], "numpy")
        assert {"conjugate gradients", "multigrid"} <= set(captured)


def everything(comm):
    """All uses of all meshes."""
    check(comm, product(pieces(comm.size), USES))
    with host_iterates_as_a_device():
        check(comm, product(pieces(comm.size), USES), "numpy")


def bad(*x):
    """A function that is not finite on the right."""
    return np.where(x[0] > 0.8, np.nan, 1.0)


def negative(*x):
    """A function that is negative on the right."""
    return np.where(x[0] > 0.8, -1.0, 1.0)


def refused(comm):
    """An error of one process is one of all, in all collective calls."""
    mesh, owners = pieces(comm.size)["strip"]
    space = hp.Space(hp.distribute(mesh, comm, owners=owners), 3, "lagrange", "collocated")
    c0 = hp.C0Space(space)
    problem, u = hp.Problem(space, lam=1.0, bar=False), space.project(exact)
    problem.solve(1.0)
    start = np.where(c0.coordinates[:, 0] > 0.8, np.nan, 0.0)
    for call in (
        lambda: hp.Problem(space, bad),
        lambda: hp.Problem(space, lam=1.0, diffusivity=negative),
        lambda: hp.Problem(space, lam=1.0, dirichlet={"ymin": bad, "ymax": 0.0}),
        lambda: hp.Problem(space, lam=1.0, neumann={"ymin": bad}),
        lambda: hp.Problem(space, lam=1.0, robin={"ymin": (bad, 1.0)}),
        lambda: hp.Problem(space, {"left": 1.0}),
        lambda: problem.solve(bad),
        lambda: problem.solve(1.0, start=start),
        lambda: hp.march(hp.Laplacian(space), bad, (0, 1), c0),
        lambda: hp.march(
            hp.Laplacian(space), 0.0, (0, 1), c0, dt=1e-4, load=lambda t: np.zeros(c0.size + (comm.rank == 1))
        ),
        lambda: hp.l2_error(u, bad),
        lambda: hp.h1_error(u, exact, lambda *x: [bad(*x)] * 2),
        lambda: hp.l2_project(c0, bad),
        lambda: c0.project(bad),
        lambda: space.integrate_boundary(bad, "ymin"),
        lambda: hp.WeakForm(space, lambda u, k: k * u, test="value", fields={"k": bad}, on="ymin"),
    ):
        with pytest.raises(hp.ArgumentError):
            call()
    # A function that is meant on the boundary only is taken there, though one process cannot project it.
    inside = hp.Space(hp.distribute(mesh, comm, owners=owners), 1)
    hole = hp.solve_helmholtz(
        inside, lam=1.0, dirichlet=lambda x, y: np.where((x > 0.6) & (x < 1) & (y > 0) & (y < 1), np.nan, x)
    )
    assert np.isfinite(hole.norm())
