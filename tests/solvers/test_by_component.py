"""Conditions component by component: those of the components one by one, and of forms that couple them."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.forms.linear import is_symmetric
from hpfem.mesh import box
from hpfem.solvers import make_preconditioner
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.norms import load
from tests.samples import NAMES, curved, norm_error
from tests.solvers.test_components import PARTS, compare, space_on, together

# What each of three components has; the last has no values at all.
FREE = {"xmin": (0.0, None, None), "xmax": (PARTS[0], 2.0, None), "ymin": (None, PARTS[1], None)}


def of_component(conditions, number):
    """What a condition by component says of one."""
    return {name: given[number] for name, given in conditions.items() if given[number] is not None} or None


@pytest.mark.filterwarnings("ignore:.*(rounding|must sum to|meet at):UserWarning")
@pytest.mark.parametrize(("name", "preconditioner"), [("mixed", "multigrid"), ("tet", "jacobi"), ("hex", "none")])
@pytest.mark.parametrize("lam", [1.5, 0.0])
def test_it_is_the_components_one_by_one(name, lam, preconditioner, backend):
    """With lam = 0 nothing fixes the last component's constant."""
    space = space_on(name, backend, 2)
    c0, options = hp.C0Space(space), {"tol": 1e-13, "preconditioner": preconditioner}
    flux, robin = (1.0, -2.0, 0.5), (lambda x, y, z: 0 * x + 2.0, together)
    given = {"neumann": {"zmin": flux}} | ({"robin": {"zmax": robin}} if lam else {})
    problem = hp.Problem(space, lam, FREE, c0=c0, components=3, **given, **options)
    u = problem.solve(together)
    assert problem.conditions.constrained.shape == (3, c0.size)
    for c, f in enumerate(PARTS):
        own = {"neumann": {"zmin": flux[c]}} | ({"robin": {"zmax": (robin[0], f)}} if lam else {})
        alone = hp.Problem(space, lam, of_component(FREE, c), c0=c0, **own, **options)
        v = alone.solve(f)
        compare(u=type(u).of(u.vector[[c]], u.pair.home, c0, u.info), alone=[v], tolerance=1e-9)
        for boundary in space.mesh.boundaries:
            expected = alone.flux(v, boundary, f)
            assert problem.flux(u, boundary, together)[c] == pytest.approx(expected, rel=1e-8, abs=1e-9)
    again = problem.solve(together, start=u)
    assert again.info.iterations <= 3
    other = problem.solve(together, dirichlet=FREE | {"xmin": (1.0, None, None)})
    assert np.abs(other.vector[1] - u.vector[1]).max() < 1e-9 and np.abs(other.vector[0] - u.vector[0]).max() > 0.1


def test_fluxes_balance_through_every_kind_of_boundary(backend):
    space = space_on("mixed", backend, 3)
    problem = hp.Problem(
        space, 0.0, {"xmin": 1.0}, neumann={"xmax": lambda x, y, z: y * z}, robin={"ymin": (2.0, lambda x, y, z: x)}
    )
    u = problem.solve(3.0)
    fluxes = {name: problem.flux(u, name, 3.0) for name in space.mesh.boundaries}
    assert fluxes["xmax"] == pytest.approx(0.25) and fluxes["zmin"] == fluxes["ymax"] == 0
    assert sum(fluxes.values()) == pytest.approx(-3.0, rel=1e-9)


def elastic(lam=1.0, mu=1.0):
    """A form of linear elasticity: what multiplies the gradients of the test function's components."""

    def stress(du, lam, mu):
        d = len(du)
        divergence = sum(du[i][i] for i in range(d))
        return [[mu * (du[i][j] + du[j][i]) + (lam * divergence if i == j else 0) for j in range(d)] for i in range(d)]

    return stress, {"lam": lam, "mu": mu}


def elasticity(space, lam=1.0, mu=1.0):
    form, fields = elastic(lam, mu)
    return hp.WeakForm(space, form, test="grad", components=space.dim, fields=fields)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_operators_and_matrices_agree(name, basis, backend, rng):
    space = hp.Space(curved(name, 2), 2, basis, backend=backend)
    c0, d = hp.C0Space(space), space.dim
    slide = (0.0,) + (None,) * (d - 1)
    bc = hp.BoundaryConditions(c0, {"xmin": slide, "ymin": slide[::-1]}, robin={"xmax": (2.0, 0.0)}, components=d)
    A = hp.GlobalOperator(elasticity(space), c0, bc)
    matrix, x = A.assemble(), rng.standard_normal(A.shape[0])
    assert bc.differ and A.symmetric and is_symmetric(A.operator.form.trace)
    assert norm_error(A @ x, matrix @ x) < 1e-11
    assert abs(matrix - matrix.T).max() < 1e-11 * abs(matrix).max()
    assert norm_error(A.diagonal(), matrix.diagonal()) < 1e-11
    fixed = bc.constrained.ravel()
    assert np.array_equal((A @ x)[fixed], x[fixed])
    # Components that are not coupled.
    B = hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0, bc, d)
    matrix = B.assemble()
    assert norm_error(B @ x, matrix @ x) < 1e-11 and norm_error(B.diagonal(), matrix.diagonal()) < 1e-11


def displacement(*x):
    """A smooth displacement."""
    return [np.sin(x[0] + 0.5 * x[-1]), x[0] * np.cos(x[1]), 0.3 * np.exp(-x[-1]) * x[0]][: len(x)]


def derivatives(*x, step=1e-20):
    """Its first derivatives, by complex steps: [i][j] of component i by x_j."""
    rows = [displacement(*[value + 1j * step * (k == j) for k, value in enumerate(x)]) for j in range(len(x))]
    return [[np.imag(rows[j][i]) / step for j in range(len(x))] for i in range(len(x))]


def stress(lam, mu, *x):
    return elastic()[0](derivatives(*x), lam, mu)


def traction(lam, mu, *x):
    """Of the stress, from the point and the normal."""
    d = len(x) // 2
    found = stress(lam, mu, *x[:d])
    return [sum(found[i][j] * x[d + j] for j in range(d)) for i in range(d)]


def tractions(lam, mu, d):
    """The same as a function that says how many arguments it takes."""
    if d == 2:
        return lambda x, y, nx, ny: traction(lam, mu, x, y, nx, ny)
    return lambda x, y, z, nx, ny, nz: traction(lam, mu, x, y, z, nx, ny, nz)


def solve(space, conditions, rhs, preconditioner="multigrid", **options):
    """A displacement and the record of the solve."""
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, **conditions, components=space.dim)
    A = hp.GlobalOperator(elasticity(space, **options), c0, bc)
    M, _ = make_preconditioner(preconditioner, A)
    x, info = hp.cg(A, A.right_hand_side(load(c0, rhs, space.dim)), M, tol=1e-11)
    return c0.scatter(np.asarray(A.vectors.to_host(x)).reshape(space.dim, -1)), info


@pytest.mark.parametrize("name", NAMES)
def test_a_manufactured_displacement(name, backend):
    """Values by component on two sides, tractions that follow from the normal on the others: on curved cells."""
    lam, mu = 1.3, 0.8
    space = hp.Space(curved(name, 2), 4, backend=backend)
    d = space.dim

    def body(*x):  # minus the divergence of the stress, by central differences of sixth order
        h, weights = 1e-2, {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
        total = [0.0] * d
        for j in range(d):
            for k, w in weights.items():
                for sign in (1, -1):
                    moved = stress(lam, mu, *[v + sign * k * h * (i == j) for i, v in enumerate(x)])
                    total = [t - sign * w / h * moved[i][j] for i, t in enumerate(total)]
        return total

    def part(c):
        return lambda *x: displacement(*x)[c]

    partly = tuple(part(c) if c == 0 else None for c in range(d))
    sides = [side for side in space.mesh.boundaries if side != "xmin"]
    conditions = {
        "dirichlet": {"xmin": displacement, "ymin": partly},
        "neumann": dict.fromkeys(sides, tractions(lam, mu, d)),
    }
    u, info = solve(space, conditions, body, lam=lam, mu=mu)
    assert hp.l2_error(u, displacement) < 1.3e-3
    assert info.iterations < 80, info.iterations


@pytest.mark.parametrize("shape", ["hex", "prism", "pyramid", "tet"])
def test_multigrid_by_components(shape, rng):
    """Nearly as many iterations at every order."""
    counts = []
    for order in (2, 4):
        space = hp.Space(box(shape, (4, 2, 2), upper=(2, 1, 1)), order)
        c0 = hp.C0Space(space)
        sides = {"xmin": (0.0, 0.0, 0.0), "ymin": (None, 0.0, None)}
        A = hp.GlobalOperator(elasticity(space), c0, hp.BoundaryConditions(c0, sides, components=3))
        M = Multigrid(A)
        b = rng.standard_normal(A.shape[0]) * A.bc.free.ravel()
        x, info = hp.cg(A, b, M, tol=1e-8)
        assert np.linalg.norm(A @ x - b) < 1.1e-8 * np.linalg.norm(b)
        assert np.array_equal(M(b + 1.0)[A.bc.constrained.ravel()], (b + 1.0)[A.bc.constrained.ravel()])
        counts.append(info.iterations)
    assert max(counts) <= 36 and counts[1] <= counts[0] + 8, counts


def test_equal_masks_are_shared():
    c0 = hp.C0Space(hp.Space(box("quad", (2, 1)), 2))
    bc = hp.BoundaryConditions(c0, {"xmin": (None, None), "xmax": (lambda x, y: y, 2.0)}, components=2)
    assert not bc.differ and bc.constrained.shape == (c0.size,) and bc.values.shape == (2, c0.size)
    assert bc.values.max() == 2.0
    whole = hp.BoundaryConditions(c0, (1.0, None), components=2)
    assert whole.differ and whole.constrained[0].any() and not whole.constrained[1].any()
    # A free component may have a flux, one that is not may not.
    bc = hp.BoundaryConditions(c0, {"xmin": (1.0, None)}, neumann={"xmin": (0.0, 3.0)}, components=2)
    assert bc.load[1] @ c0.project(1.0) == pytest.approx(3.0)
    with pytest.raises(hp.ArgumentError, match="another condition already"):
        hp.BoundaryConditions(c0, {"xmin": (1.0, lambda x, y: x)}, neumann={"xmin": (0.0, 3.0)}, components=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0.0, None, None), "dirichlet 'xmin' for 2 components is a number, a function, or as many of these or None"),
        ((0.0, "a"), "dirichlet 'xmin' for 2 components|must be a finite number"),
        ((None, "a"), "dirichlet 'xmin' for 2 components is a number"),
        ((None, float("nan")), "finite"),
        ((None, lambda x, y: [x, y]), "one component"),
        ((None, lambda x: x), "must take 2 arguments"),
        (None, "dirichlet 'xmin' for 2 components is a number, 2 numbers or a function"),
    ],
)
def test_what_is_refused(given, message):
    c0 = hp.C0Space(hp.Space(box("quad", (2, 1)), 2))
    with pytest.raises(hp.ArgumentError, match=message):
        hp.BoundaryConditions(c0, {"xmin": given}, components=2)


def test_what_does_not_fit():
    space = hp.Space(box("quad", (2, 1)), 2)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, {"xmin": (0.0, None)}, components=2)
    with pytest.raises(hp.ArgumentError, match="for 2 components, not for 1"):
        hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0, bc)
    with pytest.raises(hp.ArgumentError, match="components of|entries"):
        hp.GlobalOperator(elasticity(space), c0, bc).right_hand_side(np.zeros(3))
    with pytest.raises(hp.ArgumentError, match="names other boundaries"):
        hp.Problem(space, lam=1.0, dirichlet={"xmin": (0.0, None)}, components=2).solve(dirichlet={"xmin": (0.0, 0.0)})
    mixed = {"xmin": (0.0, None), "xmax": lambda x, y: x}
    with pytest.raises(hp.ArgumentError, match="have 2 components"):
        hp.BoundaryConditions(c0, mixed, components=2)
