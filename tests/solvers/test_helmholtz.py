"""Helmholtz solves: exponential convergence on every mesh, with every condition, however the cells are numbered."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpfem as hp
from hpfem.mesh import box, read_mesh
from hpfem.solvers import make_preconditioner
from tests.assembly.meshes import OURS, THEIRS, ours, rotated

PI = np.pi


def exact(x, y, z):
    return np.sin(PI * x) * np.cos(PI * y) * np.exp(z)


def source(x, y, z):
    """-laplace(u) + u."""
    return 2 * PI**2 * exact(x, y, z)


def gradient(x, y, z):
    return [
        PI * np.cos(PI * x) * np.cos(PI * y) * np.exp(z),
        -PI * np.sin(PI * x) * np.sin(PI * y) * np.exp(z),
        exact(x, y, z),
    ]


def robin_data(x, y, z, nx, ny, nz):
    dx, dy, dz = gradient(x, y, z)
    return dx * nx + dy * ny + dz * nz + (1 + x) * exact(x, y, z)


CONDITIONS = {
    "dirichlet": {"dirichlet": exact},
    "neumann": {"neumann": gradient},
    "robin": {"robin": (lambda x, y, z: 1 + x, robin_data)},
}


def errors(mesh, orders, conditions="dirichlet", **options):
    return [
        hp.l2_error(hp.solve_helmholtz(hp.Space(mesh, p, **options), 1.0, source, **CONDITIONS[conditions]), exact)
        for p in orders
    ]


def warped(mesh, order=3):
    """All cells deformed by a smooth map of the unit cube."""

    def move(p):
        x, y, z = p.T
        wave = [np.sin(PI * y) * np.cos(PI * z), np.sin(PI * z) * np.cos(PI * x), np.sin(PI * x) * np.cos(PI * y)]
        return p + 0.05 * np.stack(wave, axis=1)

    return mesh.elevated(order).transformed(move)


def test_the_numbers_of_the_mixed_cube(shared_meshes):
    mesh = read_mesh(shared_meshes / "nektar/cube_all.msh")
    found = errors(mesh, (1, 2, 3, 4))
    assert np.all(np.array(found) <= (9.7e-2, 1.3e-2, 1.7e-3, 1.6e-4)), found
    named = hp.solve_helmholtz(hp.Space(mesh, 1), 1.0, source, dirichlet=dict.fromkeys(mesh.boundaries, exact))
    assert hp.l2_error(named, exact) == pytest.approx(found[0], rel=1e-9)


def test_nine_digits_at_order_nine(shared_meshes):
    mesh = read_mesh(shared_meshes / "nektar/cube_all.msh")
    u = hp.solve_helmholtz(hp.Space(mesh, 9), 1.0, source, dirichlet=exact)
    assert hp.l2_error(u, exact) < 2e-10
    assert u.info.iterations < 70
    assert u.info.residuals[-1] < 1e-12 and len(u.info.residuals) == u.info.iterations + 1


@pytest.mark.parametrize("conditions", ["neumann", "robin"])
def test_fluxes_converge_alike(conditions, shared_meshes):
    mesh = read_mesh(shared_meshes / "nektar/cube_all.msh")
    found = errors(mesh, (2, 3, 5), conditions)
    assert np.all(np.array(found) <= (1.5e-2, 1.7e-3, 1.3e-5)), found


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_all_shapes_deformed(conditions, shared_meshes):
    mesh = warped(read_mesh(shared_meshes / "nektar/cube_all.msh"))
    assert not any(mesh.affine(group).all() for group in mesh.cells)
    found = errors(mesh, (2, 3, 4), conditions)
    assert np.all(np.array(found) <= (1.5e-2, 1.7e-3, 1.6e-4)), found


@pytest.mark.parametrize("name", ["ball.msh", "pipe_mixed.msh", "curved_mixed.msh", "cube_distorted.msh"])
def test_our_curved_meshes(name):
    found = errors(ours(name), (1, 3, 5))
    assert found[1] < found[0] / 20 and found[2] < found[1] / 25, found


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_nodal_basis(conditions):
    mesh = ours("cube_mixed.msh")
    nodal, modal = errors(mesh, (3, 4), conditions, basis="lagrange"), errors(mesh, (3, 4), conditions)
    # The same space; Dirichlet values, being projected, are the same too.
    assert np.allclose(nodal, modal, rtol=1e-6)


def pipe(order):
    """A quarter of a pipe of all four shapes, radii 1 and 2, length 1, by isoparametric cells."""

    def bend(p):
        r, angle = 1 + p[:, 0], p[:, 1] * PI / 2
        return np.stack([r * np.cos(angle), r * np.sin(angle), p[:, 2]], axis=1)

    return box(("hex", "prism", "pyramid", "tet"), (4, 2, 1)).elevated(order).transformed(bend)


def test_isoparametric_pipe():
    """The domain is only approximated: volume, surface and solution converge with the geometry."""
    volume, area = 3 * PI / 4, 3 * PI / 2 + 3 * PI / 2 + 2

    def smooth(x, y, z):
        return np.exp(x / 2) * np.sin(y) * (1 + z)

    found = []
    for order in (2, 4):
        mesh = pipe(order)
        space = hp.Space(mesh, order, quadrature=2)
        c0 = hp.C0Space(space)
        surface = hp.BoundaryConditions(c0, neumann=1.0).load @ c0.project(1.0)
        u = hp.solve_helmholtz(space, 1.0, lambda x, y, z: 1.75 * smooth(x, y, z), dirichlet=smooth, c0=c0)
        of_volume = abs(space.integrate(space.evaluate(lambda *x: 1.0)) / volume - 1)
        found.append([of_volume, abs(surface / area - 1), hp.l2_error(u, smooth)])
    assert np.all(np.array(found[0]) > 40 * np.array(found[1])), found


def test_pure_neumann_has_mean_zero():
    """lam = 0 and fluxes everywhere: the solution of mean zero, the mean of the data taken out."""
    mesh = ours("cube_distorted.msh")

    def u(x, y, z):
        return np.cos(PI * x) * np.cos(PI * y)

    for basis, shift, said in (
        ("modified", 3.0, pytest.warns(hp.HpfemWarning, match="mean")),
        ("lagrange", 0.0, nullcontext()),
    ):
        space = hp.Space(mesh, 4, basis)
        with said:
            found = hp.solve_helmholtz(space, 0.0, lambda x, y, z, s=shift: 2 * PI**2 * u(x, y, z) + s)
        assert hp.l2_error(found, u) < 1.1e-4
        assert abs(space.integrate(found)) < 1e-12


def test_named_conditions_and_coefficients():
    """-div(k grad u) + lam u = f with everything variable and three kinds of conditions."""
    mesh = box(("tet", "pyramid", "hex"), (3, 2, 2))

    def u(x, y, z):
        return np.exp(x) * (1 + y * z)

    def k(x, y, z):
        return 1 + x * y

    def lam(x, y, z):
        return 2 + z

    def f(x, y, z):
        # k laplace(u) + grad k . grad u
        return -(k(x, y, z) * u(x, y, z) + y * u(x, y, z) + x * np.exp(x) * z) + lam(x, y, z) * u(x, y, z)

    found = hp.solve_helmholtz(
        hp.Space(mesh, 8),
        lam,
        f,
        diffusivity=k,
        dirichlet={"xmin": u, "ymax": u, "zmin": u},
        neumann={"xmax": lambda x, y, z: k(x, y, z) * u(x, y, z)},
        robin={
            "ymin": (2.0, lambda x, y, z: -k(x, y, z) * np.exp(x) * z + 2 * u(x, y, z)),
            "zmax": (lambda x, y, z: x, lambda x, y, z: k(x, y, z) * np.exp(x) * y + x * u(x, y, z)),
        },
    )
    assert hp.l2_error(found, u) < 1e-10


def test_two_dimensions_and_surfaces():
    def u(x, y):
        return np.sin(2 * x) * np.exp(y)

    mesh = ours("curved_mixed_2d.msh")
    found = hp.solve_helmholtz(hp.Space(mesh, 9), 1.0, lambda x, y: 4 * u(x, y), dirichlet=u)
    assert hp.l2_error(found, u) < 1e-8

    # On the unit sphere's cap z = sqrt(1 - x^2 - y^2) coordinates are eigenfunctions of the Laplacian: lap z = -2 z.
    cap = box(("quad", "tri"), (4, 4), lower=(-0.5, -0.5), upper=(0.5, 0.5)).elevated(6)
    cap = cap.transformed(lambda p: np.column_stack([p, np.sqrt(1 - np.sum(p**2, axis=1))]))
    found = hp.solve_helmholtz(hp.Space(cap, 6), 1.0, lambda x, y, z: 3 * z, dirichlet=lambda x, y, z: z)
    assert hp.l2_error(found, lambda x, y, z: z) < 1e-5


def test_periodic(shared_meshes):
    mesh = read_mesh(shared_meshes / "mfem/periodic-torus-sector.msh", periodic=True)
    u = hp.solve_helmholtz(hp.Space(mesh, 3), 1.0, 1.0)
    one = u.c0.project(1.0)
    assert np.abs(u.vector - one).max() < 1e-8


def test_dirichlet_data_that_jump_into_the_domain():
    """Values that mean something on the boundary only are taken there, at low order too."""
    mesh = box("hex", (3, 3, 3))

    def lid(x, y, z):
        return np.where(z > 1 - 1e-9, 1.0, 0.0)

    for order in (1, 2, 3):
        u = hp.solve_helmholtz(hp.Space(mesh, order), 0.0, 0.0, dirichlet=lid)
        v = hp.solve_helmholtz(
            hp.Space(mesh, order), 0.0, 0.0,
            dirichlet={"zmax": 1.0, **dict.fromkeys(("xmin", "xmax", "ymin", "ymax", "zmin"), lid)},
        )  # fmt: skip
        assert np.abs(u.at([[0.5, 0.5, 0.5]]) - v.at([[0.5, 0.5, 0.5]])) < 2e-2

    def inside_out(x, y, z):
        return np.sqrt(np.maximum(np.abs(x - 0.5), np.maximum(np.abs(y - 0.5), np.abs(z - 0.5))) - 0.5 + 1e-15) + 1

    u = hp.solve_helmholtz(hp.Space(mesh, 1), 0.0, 0.0, dirichlet=inside_out)
    assert abs(u.at([[0.5, 0.5, 0.5]]) - 1) < 1e-6


MESH = box(("hex", "prism", "pyramid", "tet"), (4, 1, 2))
POINTS = np.random.default_rng(5).uniform(0.05, 0.95, (40, 3))  # in no face


def solution(mesh, basis="modified"):
    # Enough points to integrate the right-hand side to rounding, however cells are turned.
    space = hp.Space(mesh, 3, basis, quadrature=4)
    u = hp.solve_helmholtz(space, 1.0, source, dirichlet={"xmin": exact, "zmax": exact}, tol=1e-13)
    return u.at(POINTS)


REFERENCE = {}


@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["modified", "lagrange"]))
def test_numbering_and_orientation_do_not_matter(seed, basis):
    if basis not in REFERENCE:
        REFERENCE[basis] = solution(MESH, basis)
    found = solution(rotated(MESH, np.random.default_rng(seed)), basis)
    assert np.abs(found - REFERENCE[basis]).max() < 1e-10


@pytest.mark.long
def test_numbering_does_not_matter_on_curved_cells(rng):
    # The rules of collapsed shapes are not symmetric: enough points to integrate on curved cells to rounding.
    mesh = ours("curved_mixed.msh")
    reference, found = (
        hp.solve_helmholtz(hp.Space(m, 4, quadrature=6), 1.0, source, dirichlet=exact, tol=1e-13)
        for m in (mesh, rotated(mesh, rng))
    )
    points = rng.uniform(0.2, 0.8, (40, 3))
    assert np.abs(found.at(points) - reference.at(points)).max() < 1e-10


def check_numbering(mesh, rng):
    """The same problem on a mesh and a permuted copy of it; points enough to integrate on curved cells to rounding."""
    order = 2 if mesh.n_cells < 500 else 1
    reference, found = (
        hp.solve_helmholtz(hp.Space(m, order, quadrature=6), 1.0, lambda *x: np.cos(x[0]) * (1 + x[-1]), tol=1e-13)
        for m in (mesh, rotated(mesh, rng))
    )
    for block in reference.space.blocks:
        x = np.moveaxis(block.geometry.coordinates(), 0, -1).reshape(-1, mesh.points.shape[1])
        points = rng.choice(x, 20)
        values = reference.at(points)
        assert np.abs(found.at(points) - values).max() < 1e-10 * np.abs(values).max()


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.stem)
def test_numbering_does_not_matter_on_our_meshes(path, rng):
    check_numbering(read_mesh(path), rng)


@pytest.mark.parametrize("name", THEIRS)
def test_numbering_does_not_matter_on_meshes_of_others(name, shared_meshes, rng):
    check_numbering(read_mesh(shared_meshes / name), rng)


def test_orders_may_differ_between_shapes():
    mesh = ours("cube_mixed.msh")
    orders = {"hex": 4, "prism": 5, "pyramid": 6, "tet": 4}
    mixed = hp.solve_helmholtz(hp.Space(mesh, orders), 1.0, source, dirichlet=exact)
    low = hp.solve_helmholtz(hp.Space(mesh, 4), 1.0, source, dirichlet=exact)
    assert hp.l2_error(mixed, exact) <= hp.l2_error(low, exact)


def test_right_hand_sides_of_all_kinds():
    space = hp.Space(ours("cube_mixed.msh"), 3)
    by_function = hp.solve_helmholtz(space, 1.0, lambda x, y, z: 2.0, dirichlet=0.0)
    for f in (2.0, space.evaluate(lambda x, y, z: 2.0), hp.IProductWRTBase(space)(space.evaluate(lambda x, y, z: 2.0))):
        found = hp.solve_helmholtz(space, 1.0, f, dirichlet=0.0)
        assert np.abs(found.vector - by_function.vector).max() < 1e-10


def test_right_hand_sides_that_are_none():
    space = hp.Space(box("tri", (1, 1)), 2)
    other = hp.Space(space.mesh, 2)
    for f, error, message in (
        ("x", hp.ArgumentError, "f is 'x'; give a finite number, a function or a field"),
        (10**400, hp.ArgumentError, "f must be a finite number"),
        (np.nan, hp.ArgumentError, "f must be a finite number"),
        (lambda x, y: [x, y], hp.ArgumentError, "f has 2 components, one is wanted"),
        (space.evaluate(lambda x, y: [x, y]), hp.ArgumentError, "f has 2 components, one is wanted"),
        (other.evaluate(lambda x, y: x), hp.StateError, "on another space"),
        (space.project(lambda x, y: x), hp.StateError, "coeff"),
    ):
        with pytest.raises(error, match=message):
            hp.solve_helmholtz(space, 1.0, f)


def test_float32():
    mesh = ours("cube_mixed.msh")
    u = hp.solve_helmholtz(hp.Space(mesh, 4, dtype=np.float32), 1.0, source, dirichlet=exact, tol=1e-6)
    assert u.dtype == np.float32
    assert hp.l2_error(u, exact) < 1e-3


def pulse(x, y):
    """One half of the square has no diffusion."""
    return np.where(x < 0.5, 0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"diffusivity": -1.0}, "^diffusivity must be > 0, got -1$"),
        ({"diffusivity": pulse, "lam": 0.0}, r"diffusivity must be > 0 everywhere, it is 0 at \(.*\) in element \d+"),
        ({"f": lambda x, y: [x, y]}, "f has 2 components, one is wanted"),
        ({"f": np.arange(5.0)}, "give a finite number, a function or a field"),
        ({"tol": "a"}, "tolerance of Helmholtz must be a finite number > 0 and < 1, got 'a'"),
        ({"max_iterations": -5}, "iterations of Helmholtz must be an integer >= 0, got -5"),
        ({"preconditioner": None}, "unknown preconditioner None; valid: auto, none, jacobi, multigrid"),
    ],
)
def test_arguments_that_cannot_be(arguments, message):
    space = hp.Space(box("quad", (2, 2)), 2)
    with pytest.raises(hp.ArgumentError, match=message):
        hp.solve_helmholtz(space, **{"lam": 1.0, "dirichlet": 0.0, **arguments})


def test_a_right_hand_side_field_has_one_component():
    space = hp.Space(box("quad", (2, 2)), 2)
    with pytest.raises(hp.ArgumentError, match="f has 2 components, one is wanted"):
        hp.solve_helmholtz(space, lam=1.0, f=space.evaluate(lambda x, y: [x, y]))


def test_reasons_of_a_singular_operator_are_reported():
    c0 = hp.C0Space(hp.Space(box("quad", (4, 4)), 3))
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, 0.0, pulse), c0)
    with pytest.raises(hp.SolverError, match="is singular on a part of the mesh: is a coefficient zero there"):
        make_preconditioner("multigrid", A)
