"""A solution knows the f, coefficients and conditions that it was solved with; other fields do not, and say so."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import hpfem as hp
from tests.solvers.test_components import space_on

SHAPES = ["tri", "quad", "tet", "hex", "prism", "pyramid", "mixed"]


def space_of(name, order=2, backend="numpy"):
    plane = name in ("tri", "quad")
    return hp.Space(hp.box(name, 2), order, backend=backend) if plane else space_on(name, backend, order)


@pytest.mark.parametrize("name", SHAPES)
def test_a_flux_takes_what_the_solution_was_solved_with(name):
    """-u'' = 1 + x between walls at 0: -5/6 and -2/3 leave through them, on every shape."""
    space = space_of(name, 3)
    problem = hp.Problem(space, 0.0, {"xmin": 0.0, "xmax": 0.0}, tol=1e-13, bar=False)
    u = problem.solve(lambda *x: 1.0 + x[0])
    names, wanted = ("xmin", "xmax", "ymin"), pytest.approx([-2 / 3, -5 / 6, 0.0], abs=1e-9)
    assert [u.flux(own) for own in names] == [problem.flux(u, own) for own in names] == wanted
    # Nothing of the problem is alive, or has to be.
    v = hp.solve_helmholtz(space, 0.0, 1.0, {"xmin": 0.0, "xmax": 0.0}, bar=False)
    assert v.flux("xmin") == pytest.approx(-0.5, abs=1e-9)
    gone = weakref.ref(problem)
    del problem
    gc.collect()
    assert gone() is None and u.flux("xmin") == pytest.approx(-2 / 3, abs=1e-9)


def test_later_changes_do_not_matter(backend):
    """Of the right-hand side's and the coefficient's fields, of numbers, and of other solves."""
    space = space_of("hex", 2, backend)
    f, lam = space.evaluate(lambda *x: 1.0 + x[0]), space.evaluate(lambda *x: 2.0 + x[1])
    problem = hp.Problem(space, lam, {"xmin": 1.0}, robin={"xmax": (2.0, 1.0)}, diffusivity=3.0, bar=False)
    u = problem.solve(f)
    before = [u.flux(name) for name in space.mesh.boundaries]
    assert problem.flux(u, "xmin", f) == pytest.approx(before[0], rel=1e-10)
    for array in (*f.arrays, *lam.arrays):
        array *= 7
    problem.update(diffusivity=1.0)
    problem.solve(5.0)
    assert [problem.flux(u, name) for name in space.mesh.boundaries] == before


def test_components_have_their_own(backend):
    space = space_of("quad", 2, backend)
    given = {"xmin": [0.0, None], "xmax": [0.0, 0.0]}
    problem = hp.Problem(space, 0.0, given, neumann={"xmin": 2.0}, components=2, bar=False)
    u = problem.solve([1.0, -3.0])
    assert u.flux("xmax") == pytest.approx([-0.5, 1.0], abs=1e-9)
    assert u.flux("xmin") == pytest.approx([-0.5, 2.0], abs=1e-9)


def test_what_is_no_solution_says_so():
    space = space_of("tri")
    problem = hp.Problem(space, 0.0, {"xmin": 0.0, "xmax": 0.0}, bar=False)
    u = problem.solve(1.0)
    twin = hp.Problem(space, 0.0, {"xmin": 0.0, "xmax": 0.0}, diffusivity=2.0, c0=problem.c0, bar=False)
    for other in (2 * u, u.copy(), u[0], copy.copy(u), pickle.loads(pickle.dumps(u))):
        with pytest.raises(hp.ArgumentError, match="a solution of this problem"):
            problem.flux(other, "xmin")
    with pytest.raises(hp.ArgumentError, match="a solution of this problem"):
        twin.flux(u, "xmin")
    with pytest.raises(hp.StateError, match="does not know its problem"):
        copy.copy(u).flux("xmin")
    b = hp.IProductWRTBase(space)(space.evaluate(lambda x, y: 1.0 + 0 * x))
    x, _ = hp.solve(problem.operator, b, bar=False)
    with pytest.raises(hp.StateError, match="does not know its problem"):
        x.flux("xmin")
    # With f it is a field like any other: twice the solution has twice the flux.
    assert problem.flux(2 * u, "xmin", 2.0) == pytest.approx(-1.0, abs=1e-9)
    assert twin.flux(u, "xmin", 2.0) == pytest.approx(-1.0, abs=1e-9)
    other = hp.Space(space.mesh, 3, backend="numpy").zeros("coeff")
    for wrong in (other, space.zeros("coeff", 2), u.vector):
        with pytest.raises(hp.ArgumentError, match="a solution of this problem"):
            problem.flux(wrong, "xmin", 1.0)
    with pytest.raises(hp.StateError, match="takes a 'coeff' field"):
        problem.flux(space.zeros("phys"), "xmin", 1.0)
    u.axpy(1.0, u)
    with pytest.raises(hp.StateError, match="changed"):
        problem.flux(u, "xmin")
    assert problem.flux(u, "xmin", 2.0) == pytest.approx(-1.0, abs=1e-9)


def test_a_robin_condition_of_another_component_is_refused():
    """It is in the residual of the component with Dirichlet values, too, which has no such condition."""
    given, robin = {"xmin": [0.0, None], "xmax": [0.0, 0.0]}, {"xmin": (1.0, 2.0)}
    u = hp.Problem(space_of("quad"), 0.0, given, robin=robin, components=2, bar=False).solve(1.0)
    with pytest.raises(hp.ArgumentError, match="'xmin' other components have a Robin condition"):
        u.flux("xmin")
    # -u'' = 1 with u = 0 at 1, and at 0 u = 0 or -u' + u = 2
    assert u.flux("xmax") == pytest.approx([-0.5, -1.75], abs=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3, 4, *(pytest.param(n, marks=pytest.mark.long) for n in range(5, 9))])
@pytest.mark.parametrize("name", SHAPES)
def test_boundaries_that_meet_divide_their_flux(name, order):
    """It is exact for fluxes that are polynomials of order P - 2, or P - 3 on triangles, and for constants."""
    space, quadratic = space_of(name, order), order > (2 if name in ("quad", "hex") else 3)

    def exact(x, y, *z):
        return 3 * x + y + (2 * x * y - x * x) * quadratic

    named = space.mesh.boundaries
    u = hp.Problem(space, 0.0, dict.fromkeys(named, exact), tol=1e-13, bar=False).solve(2.0 * quadratic)
    wanted = [-4.0, 2.0, -2.0, 2.0] if quadratic else [-3.0, 3.0, -1.0, 1.0]
    found = [u.flux(own) for own in ("xmin", "xmax", "ymin", "ymax")]
    if order > 1 or name not in ("tet", "prism", "mixed"):  # all vertices of triangles in corners are shared
        assert found == pytest.approx(wanted, abs=1e-9)
    assert sum(map(u.flux, named)) == pytest.approx(sum(wanted), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "order", "half"),
    [("quad", 1, 0), ("tri", 2, 1), ("quad", 3, 1), ("hex", 2, 1), ("tet", 2, 0), ("tet", 3, 1), ("prism", 3, 1)],
)
def test_boundaries_that_overlap_have_their_whole_flux(name, order, half):
    """Facets of two names were counted half for each."""
    mesh = hp.box(name, 3)
    sides = dict(mesh.boundary_sides)
    sides |= {"all": np.concatenate(list(sides.values())), "half": sides["xmin"][: half * len(sides["xmin"]) // 2]}
    space = hp.Space(mesh.with_sides(sides), order, backend="numpy")
    given = dict.fromkeys(mesh.boundaries, lambda x, y, *z: 1 + 3 * x + y)
    u = hp.Problem(space, 0.0, given, tol=1e-13, bar=False).solve()
    names, wanted = ("xmin", "xmax", "ymin", "ymax", "all"), pytest.approx([-3.0, 3.0, -1.0, 1.0, 0.0], abs=1e-9)
    assert [u.flux(own) for own in names] == wanted


@pytest.mark.parametrize(
    ("name", "order", "least"), [("quad", 1, 1.6), ("hex", 3, 2.7), ("tet", 2, 1.6), ("tet", 4, 2.7), ("tri", 3, 2.7)]
)
def test_divided_fluxes_converge(name, order, least):
    """On a bent body: the flux of a harmonic function is an integral over the side."""

    def bent(x):
        return np.column_stack([x[:, 0] + 0.2 * x[:, 1] ** 2, x[:, 1] - 0.1 * x[:, 0] * x[:, 1], *x.T[2:]])

    def exact(x, y, *_):
        return np.exp(x) * np.sin(y + 0.3)

    def flux(x, y, nx, ny):
        return np.exp(x) * (np.sin(y + 0.3) * nx + np.cos(y + 0.3) * ny)

    outwards, errors = (flux, lambda x, y, z, nx, ny, nz: flux(x, y, nx, ny)), []
    for n in (4, 8) if name in ("quad", "tri") else (2, 4):
        mesh = hp.box(name, n).elevated(2).transformed(bent)
        space = hp.Space(mesh, order)
        u = hp.Problem(space, 0.0, dict.fromkeys(mesh.boundaries, exact), tol=1e-12, bar=False).solve()

        through = [space.integrate_boundary(outwards[mesh.dim - 2], side) for side in ("xmin", "ymax")]
        errors.append(np.abs(np.subtract([u.flux("xmin"), u.flux("ymax")], through)).max())
    assert np.log2(errors[0] / errors[1]) > least, errors
