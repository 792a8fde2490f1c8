"""Errors in H1, and right-hand sides."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.errors import ArgumentError, StateError
from hpfem.geometry import BlockGeometry
from hpfem.memory import as_numpy
from hpfem.solvers import norms
from hpfem.solvers.norms import Loads, load
from tests.samples import NAMES, Polynomial, box_integral, dimension, norm_error, skewed, straight


@pytest.mark.parametrize("name", NAMES)
def test_the_norm_of_a_polynomial(name, rng):
    d = dimension(name)
    p = Polynomial(rng, d, 3)
    space = hp.Space(straight(name), 3)

    def gradient(*x):
        return [p.derivative(i, *x) for i in range(d)]

    u = space.project(p)
    assert hp.h1_error(u, p, gradient) < 1e-12
    zero = space.zeros("coeff")
    squares = box_integral(lambda *x: p(*x) ** 2 + sum(g**2 for g in gradient(*x)), d)
    assert hp.h1_error(zero, p, gradient, relative=False) == pytest.approx(np.sqrt(squares), rel=1e-12)
    assert hp.h1_error(zero, p, gradient) == pytest.approx(1)
    both = space.project(lambda *x: [p(*x), 2 * p(*x)])
    wanted = (lambda *x: [p(*x), 2 * p(*x)], lambda *x: [*gradient(*x), *(2 * g for g in gradient(*x))])
    assert hp.h1_error(both, *wanted) < 1e-12


@pytest.mark.parametrize("order", [1, 2, 4])
def test_it_falls_with_order_p(order):
    errors = []
    for count in (4, 8):
        space = hp.Space(hp.box(("quad", "tri"), count), order)
        u = space.project(lambda x, y: np.sin(2 * x + y))
        errors.append(
            hp.h1_error(u, lambda x, y: np.sin(2 * x + y), lambda x, y: [2 * np.cos(2 * x + y), np.cos(2 * x + y)])
        )
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.2)


@pytest.mark.parametrize("name", NAMES)
def test_right_hand_sides_are_exact_for_polynomials(name, backend, rng):
    for order in (1, 2, 4, 8, 9):  # there is no simplex rule for the last one
        f = Polynomial(rng, dimension(name), order + 4)
        c0, exact = (hp.C0Space(hp.Space(skewed(straight(name)), order, quadrature=q, backend=backend)) for q in (0, 6))
        wanted = exact.gather(hp.IProductWRTBase(exact.space)(exact.space.evaluate(f)))
        assert norm_error(as_numpy(load(c0, f)), as_numpy(wanted)) < 1e-12


def test_measures_are_kept_on_a_device_alone(backend, monkeypatch):
    c0 = hp.C0Space(hp.Space(skewed(straight("prism")), 2, backend=backend))
    loads, wanted = Loads(c0, 1), as_numpy(load(c0, lambda x, y, z: x - y * z))
    for own in loads._of_blocks(True):
        assert (own._room > 0) == (own.xp is not np)
        own._room = 1 << 20
    assert np.array_equal(as_numpy(loads(lambda x, y, z: x - y * z)), wanted)
    monkeypatch.setattr(BlockGeometry, "volume_factors", None)
    assert np.allclose(as_numpy(loads(lambda x, y, z: 2 * (x - y * z))), 2 * wanted, rtol=1e-14, atol=0)


def test_what_does_not_fit():
    space = hp.Space(hp.box("quad", 1), 1)
    u = space.zeros("coeff")
    with pytest.raises(ArgumentError, match="2 values or derivatives are compared, but 1 are given"):
        hp.h1_error(u, lambda x, y: x, lambda x, y: x)
    with pytest.raises(StateError):
        hp.h1_error(space.zeros("phys"), lambda x, y: x, lambda x, y: [x, y])
    with pytest.raises(ArgumentError, match="zero everywhere; give relative=False"):
        hp.l2_error(u, lambda x, y: 0)
    assert hp.l2_error(u, lambda x, y: 0, relative=False) == 0


def test_kernels_of_functions_are_begun_with_a_problem(monkeypatch):
    """Where others compile them; who gives numbers, and orders without a finer rule, notices nothing."""
    space, refused = hp.Space(hp.box(("quad", "tri"), 2), 3, backend="cpu"), []
    for apart in (False, True):
        monkeypatch.setattr(BACKENDS["cpu"].__class__, "apart", apart)
        problem = hp.Problem(space, lam=1.0)
        assert list(problem._loads._tests) == [True] * apart
        begun = problem._loads._of_blocks(True)
        problem.solve(lambda x, y: x * y)
        assert problem._loads._of_blocks(True) is begun

    def finer_blocks(space, more):
        refused.append(more)
        raise ArgumentError("too many points")

    monkeypatch.setattr(norms, "finer_blocks", finer_blocks)
    assert hp.Problem(space, lam=1.0).solve(2.0)(0.5, 0.5) == pytest.approx(2) and len(refused) == 1
