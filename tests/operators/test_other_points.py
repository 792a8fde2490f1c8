"""Coefficients at the points of another space on the same cells, and products by its rule, against the basis there."""

import pickle
from functools import partial

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, StateError
from hpfem.memory import count_transfers
from tests.cases import SHAPES_2D, SHAPES_3D
from tests.operators.reference import random_field
from tests.operators.ways import special, ways
from tests.samples import curved, norm_error, straight

NAMES = [shape.name for shape in SHAPES_2D + SHAPES_3D]


def expected(u, target):
    """Values at the points of another space, mode by mode."""
    for array, block, other in zip(u.arrays, u.space.blocks, target.blocks, strict=True):
        yield array.astype(np.float64) @ block.basis.evaluate(block.shape.collapse(other.rule.eta))


@pytest.mark.parametrize("basis", ["modified", "orthogonal", "lagrange"])
@pytest.mark.parametrize("bent", [False, True], ids=["straight", "curved"])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_the_basis(name, bent, basis, backend, rng):
    mesh = curved(name) if bent else straight(name)
    for order, quadrature in ((1, 3), (3, "gauss"), (4, -1)):
        space = hp.Space(mesh, order, basis, backend=backend)
        target = hp.Space(mesh, order + 1, quadrature=quadrature)
        u = random_field(space, rng, components=2)
        make = partial(hp.BwdTrans, space, target)
        made = [make(**way) for way in ways(backend, gradients=False)]
        made += [operator for _, operator in special(backend, make)]
        for operator in made:
            found = operator(u)
            assert found.space is target and found.state == "phys" and operator.target is target
            for ours, theirs in zip(found.arrays, expected(u, target), strict=True):
                assert norm_error(ours, theirs) < 1e-12


@pytest.mark.parametrize("basis", ["modified", "orthogonal", "lagrange"])
@pytest.mark.parametrize("bent", [False, True], ids=["straight", "curved"])
@pytest.mark.parametrize("name", NAMES)
def test_products_by_a_finer_rule(name, bent, basis, backend, rng):
    """Against the rule itself: sums of values and modes, and of vectors and gradients, at the points."""
    mesh = curved(name) if bent else straight(name)
    for order in (3, 8) if bent else (1, 3):
        space = hp.Space(mesh, order, basis, backend=backend)
        fine = space.at(quadrature=2)
        f = fine.evaluate(lambda *x: np.exp(x[0] - x[1]))
        make = partial(hp.IProductWRTBase, fine, space)
        made = [make()]
        if order == 3:
            made += [make(**way) for way in ways(backend, gradients=False)]
            made += [operator for _, operator in special(backend, make)]
        for operator in made:
            found = operator(f)
            assert found.space is space and found.state == "dual"
            for ours, values, block, other in zip(found.arrays, f.arrays, space.blocks, fine.blocks, strict=True):
                modes = block.basis.evaluate(block.shape.collapse(other.rule.eta))
                assert norm_error(ours, (values * other.geometry.weights()) @ modes.T) < 1e-12
        u, g = random_field(space, rng), fine.evaluate(lambda *x: [np.cos(x[0] + i * x[1]) for i in range(len(x))])
        slopes = hp.PhysDeriv(fine)(hp.BwdTrans(space, fine)(u))
        weights = [block.geometry.weights() for block in fine.blocks]
        terms = [a * b * w for a, b, w in zip(slopes.arrays, g.arrays, weights, strict=True)]
        found = hp.IProductWRTDerivBase(fine, space)(g).dot(u)
        size = sum(np.abs(term).sum() for term in terms)
        assert abs(found - sum(term.sum() for term in terms)) < 1e-12 * size


@pytest.mark.parametrize("name", NAMES)
def test_in_float32(name, backend, rng):
    mesh = curved(name)
    space, target = (hp.Space(mesh, 3, quadrature=q, dtype="float32", backend=backend) for q in (None, 2))
    u = random_field(space, rng)
    for ours, theirs in zip(hp.BwdTrans(space, target)(u).arrays, expected(u, target), strict=True):
        assert ours.dtype == np.float32 and norm_error(ours, theirs) < 2e-6


def test_results_go_where_they_are_wanted(backend, rng):
    space = hp.Space(straight("prism"), 2, backend=backend)
    target = hp.Space(space.mesh, 2, quadrature=3)
    u = random_field(space, rng)
    operator = hp.BwdTrans(space, target)
    out = target.empty("phys")
    assert operator(u, out=out) is out
    again = pickle.loads(pickle.dumps(operator))
    arrays = [np.array(array) for array in u.arrays]
    for one, two, three in zip(out.arrays, operator(arrays if len(arrays) > 1 else [arrays[0]]), expected(u, target)):
        assert norm_error(one, three) < 1e-12 and norm_error(np.asarray(two), three) < 1e-12
    assert again.target.blocks[0].rule.counts == target.blocks[0].rule.counts
    assert "BwdTrans" in operator.explain()
    operator(u, out=out)  # u was read on the host
    with count_transfers() as count:
        operator(u, out=out)
    assert count.total == 0


def test_what_does_not_fit():
    space = hp.Space(straight("tet"), 2, backend="numpy")
    with pytest.raises(ArgumentError, match="on the same mesh"):
        hp.BwdTrans(space, hp.Space(straight("tet"), 2))
    with pytest.raises(ArgumentError, match="of the same dtype"):
        hp.BwdTrans(space, hp.Space(space.mesh, 2, dtype="float32"))
    with pytest.raises(ArgumentError, match="is a Space"):
        hp.BwdTrans(space, 3)
    finer = hp.Space(space.mesh, 2, quadrature=2)
    for operator in (hp.IProductWRTBase, hp.IProductWRTDerivBase):
        with pytest.raises(ArgumentError, match="on the same mesh"):
            operator(space, hp.Space(straight("tet"), 2))
    with pytest.raises(StateError, match="another space"):
        hp.IProductWRTBase(finer, space)(space.zeros("phys"))
    with pytest.raises(StateError, match="same space"):
        hp.BwdTrans(space, finer)(space.zeros("coeff"), out=space.empty("phys"))
