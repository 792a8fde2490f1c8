"""InverseMass: the inverse of Mass, for any basis, geometry and number of components."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import StateError
from hpfem.mesh import box
from hpfem.operators import InverseMass
from tests.operators.reference import random_field
from tests.samples import NAMES, curved, skewed, straight


@pytest.mark.parametrize("basis", ["modified", "orthogonal", "lagrange"])
@pytest.mark.parametrize("mesh", [lambda name: skewed(straight(name)), curved], ids=["affine", "curved"])
@pytest.mark.parametrize("name", NAMES)
def test_it_inverts_the_mass(name, mesh, basis, rng):
    space = hp.Space(mesh(name), 3, basis=basis)
    u = random_field(space, rng)
    functional = hp.Mass(space)(u)
    operator = InverseMass(space)
    for found in (operator(functional), operator(functional, out=space.empty("coeff")), InverseMass(space)(functional)):
        assert found.state == "coeff"
        for got, expected in zip(found.arrays, u.arrays, strict=True):
            assert np.abs(got - expected).max() < 1e-10 * np.abs(expected).max()
    again = pickle.loads(pickle.dumps(operator))
    assert again.space.n_dofs == space.n_dofs


def test_components_are_solved_one_by_one(rng):
    space = hp.Space(curved("prism"), 2)
    u = space.field("coeff", [rng.normal(size=(3, *array.shape[1:])) for array in space.zeros("coeff").arrays])
    for got, expected in zip(InverseMass(space)(hp.Mass(space)(u)).arrays, u.arrays, strict=True):
        assert np.abs(got - expected).max() < 1e-11 * np.abs(expected).max()


def test_only_functionals_on_the_space_are_accepted(rng):
    space, other = hp.Space(straight("quad"), 2), hp.Space(straight("quad"), 2)
    operator = InverseMass(space)
    with pytest.raises(hp.StateError, match="takes a 'dual' field, got 'coeff'; apply Mass"):
        operator(space.zeros("coeff"))
    for wrong in (other.zeros("dual"), 3):
        with pytest.raises(hp.StateError, match="a [Ff]ield on its own space"):
            operator(wrong)
    for out in (space.zeros("dual"), space.zeros("coeff", 2), other.zeros("coeff")):
        with pytest.raises(hp.StateError, match="out of InverseMass must be a 'coeff' field"):
            operator(space.zeros("dual"), out=out)


@pytest.mark.parametrize("make", [hp.FwdTrans, InverseMass])
def test_out_that_is_no_field_is_refused(make):
    space = hp.Space(box("tri", (1, 1)), 2)
    operator = make(space)
    with pytest.raises(StateError, match=f"out of {make.__name__} must be a Field, got ndarray"):
        operator(space.zeros(operator.input_state), out=np.zeros(3))
