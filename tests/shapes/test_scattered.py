"""Modes at scattered points: those of the basis, by other means."""

import numpy as np

from hpfem.shapes import make_basis
from hpfem.shapes.scattered import gradients_at, modes_at
from tests.cases import cases


@cases()
def test_modes_are_those_of_the_basis(shape, order, basis, rng):
    modes = make_basis(basis, shape, order)
    eta = rng.uniform(-1, 1, (50, shape.dim))
    eta[0], eta[1] = -1, 1
    values, gradient = modes.evaluate_eta(eta), modes.gradient_eta(eta)
    assert np.abs(modes_at(modes, eta) - values).max() < 1e-12 * np.abs(values).max()
    assert np.abs(gradients_at(modes, eta) - gradient).max() < 1e-12 * np.abs(gradient).max()
