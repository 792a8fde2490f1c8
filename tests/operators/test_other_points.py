"""Coefficients at the points of another space on the same cells, against the basis evaluated there."""

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
    with pytest.raises(StateError, match="same space"):
        hp.BwdTrans(space, finer)(space.zeros("coeff"), out=space.empty("phys"))
