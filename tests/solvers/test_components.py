"""Problems of several components: those of the components one by one, and what does not fit."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from tests.samples import NAMES_3D, long

PARTS = (lambda x, y, z: np.sin(x) * np.exp(y) + z, lambda x, y, z: x * y - z**2, lambda x, y, z: np.cos(x + 2 * y) * z)


def together(*x):
    return [part(*x) for part in PARTS]


def space_on(name, backend, order):
    """On a small box, of a shape or of all."""
    return hp.Space(box(*(NAMES_3D, (4, 1, 1)) if name == "mixed" else (name, (2, 2, 2))), order, backend=backend)


def compare(u, alone, tolerance=1e-12):
    for found, expected in zip(u.vector, alone, strict=True):
        assert np.abs(found - expected.vector).max() < tolerance * np.abs(expected.vector).max()


@pytest.mark.filterwarnings("ignore:.*rounding:UserWarning")
@pytest.mark.parametrize(
    ("name", "order", "preconditioner"),
    [
        ("mixed", 2, "multigrid"),
        ("mixed", 2, "jacobi"),
        ("tet", 3, "multigrid"),
        ("hex", 1, "jacobi"),
        ("hex", 1, "none"),
        *long(("mixed", 2, "none"), ("tet", 3, "jacobi"), ("tet", 3, "none"), ("hex", 1, "multigrid")),
    ],
)
def test_it_is_the_components_one_by_one(name, order, preconditioner, backend):
    space = space_on(name, backend, order)
    c0, k = hp.C0Space(space), space.evaluate(lambda x, y, z: 1 + x)
    options = {
        "diffusivity": k,
        "tol": 1e-14 if preconditioner == "none" else 1e-15,
        "preconditioner": preconditioner,
        "c0": c0,
    }
    flux, sides = (1.0, -2.0, 0.5), {"xmin": together, "xmax": together}
    problem = hp.Problem(
        space, 1.5, sides, neumann={"ymin": flux}, robin={"zmax": (2.0, together)}, components=3, **options
    )
    u = problem.solve(together)
    single = [
        hp.Problem(space, 1.5, dict.fromkeys(sides, g), neumann={"ymin": n}, robin={"zmax": (2.0, g)}, **options)
        for g, n in zip(PARTS, flux, strict=True)
    ]
    alone = [own.solve(g) for own, g in zip(single, PARTS, strict=True)]
    assert u.vector.shape == (3, c0.size) and u.components == 3 and u.info.size == 3 * c0.size
    accuracy = 1e-10 if preconditioner == "none" else 1e-12
    compare(u, alone, accuracy)
    for c, array in enumerate(u.arrays[0]):
        assert np.abs(array - alone[c].arrays[0][0]).max() < accuracy * np.abs(array).max()
    fluxes = problem.flux(u, "xmin", together)
    expected = [own.flux(v, "xmin", g) for own, v, g in zip(single, alone, PARTS, strict=True)]
    assert fluxes == pytest.approx(expected, rel=1e-9, abs=1e-10)
    errors = [hp.l2_error(v, g, relative=False) for v, g in zip(alone, PARTS, strict=True)]
    assert hp.l2_error(u, together, relative=False) == pytest.approx(np.linalg.norm(errors), rel=1e-9)
    # Numbers, fields and other values; a first guess.
    field = space.evaluate(together)
    numbers = problem.solve(field, dirichlet={"xmin": 2.0, "xmax": (1.0, 2.0, 3.0)}, start=u)
    alone = [
        own.solve(space.evaluate(g), dirichlet={"xmin": 2.0, "xmax": c + 1.0}, start=v)
        for c, (own, g, v) in enumerate(zip(single, PARTS, alone, strict=True))
    ]
    compare(numbers, alone, 10 * accuracy)
    again = problem.solve(field, dirichlet={"xmin": 2.0, "xmax": (1.0, 2.0, 3.0)}, start=numbers.vector)
    assert np.abs(again.vector - numbers.vector).max() < 1e-10 and again.info.iterations < u.info.iterations


def test_constants_of_each_component(backend):
    space = space_on("hex", backend, 3)
    problem = hp.Problem(space, 0.0, components=2, tol=1e-14)
    sources = [lambda x, y, z: np.cos(np.pi * x), lambda x, y, z: 3 * np.cos(np.pi * y)]
    u = problem.solve(lambda *x: [f(*x) for f in sources])
    compare(u, [hp.solve_helmholtz(space, 0.0, f, tol=1e-14) for f in sources], 1e-11)
    assert [name.rpartition(", ")[2] for name in u.info.incompatibility] == ["component 0", "component 1"]
    with pytest.warns(hp.HpfemWarning, match="must sum to 0"):
        problem.solve((0.0, 1.0))


def test_one_call_and_dual_fields():
    space = space_on("prism", "numpy", 2)
    u = hp.solve_helmholtz(space, 2.0, (1.0, 2.0), 0.0, components=2, bar=False)
    one = hp.solve_helmholtz(space, 2.0, 1.0, 0.0)
    assert np.abs(u.vector - np.outer([1, 2], one.vector)).max() < 1e-9 * np.abs(one.vector).max()
    moments = hp.IProductWRTBase(space)(space.evaluate(lambda *x: (1.0, 2.0)))
    v = hp.solve_helmholtz(space, 2.0, moments, 0.0, components=2)
    assert np.abs(u.vector - v.vector).max() < 1e-9 * np.abs(u.vector).max()


def test_what_does_not_fit():
    space = space_on("hex", "numpy", 2)
    with pytest.raises(hp.ArgumentError, match="dirichlet functions have 2 components, not 3"):
        hp.Problem(space, 1.0, together, components=2)
    with pytest.raises(hp.ArgumentError, match="dirichlet for 2 components is a number, 2 numbers or a function"):
        hp.Problem(space, 1.0, (1.0, 2.0, 3.0), components=2)
    with pytest.raises(hp.ArgumentError, match="neumann: the function has 3 components, not 2"):
        hp.Problem(space, 1.0, neumann=together, components=2)
    problem = hp.Problem(space, 1.0, {"xmin": 0.0}, components=2)
    for f, said in (
        (together, "f has 3 components, 2 are wanted"),
        ((1.0, 2.0, 3.0), "f for 2 components is a number, 2 numbers or a function"),
        (space.evaluate(PARTS[0]), "f has 1 components, 2 are wanted"),
        ("one", "f for 2 components is .*, got 'one'"),
    ):
        with pytest.raises(hp.ArgumentError, match=said):
            problem.solve(f)
    with pytest.raises(hp.ArgumentError, match=r"give a finite vector of 2 x \d+ unknowns"):
        problem.solve(1.0, start=np.zeros(problem.c0.size))
    with pytest.raises(hp.ArgumentError, match="components"):
        hp.Problem(space, lam=1.0, components=0)
    with pytest.raises(hp.ArgumentError, match="f has 3 components, one is wanted"):
        hp.Problem(space, 1.0, 0.0).solve(together)


def test_boundaries_that_meet_with_other_values_in_a_component():
    space = space_on("hex", "numpy", 2)
    with pytest.warns(hp.HpfemWarning, match="meet at .* with the values 1 and 2"):
        hp.BoundaryConditions(hp.C0Space(space), {"xmin": (0.0, 1.0), "ymin": (0.0, 2.0)}, components=2)
