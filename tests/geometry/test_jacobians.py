"""Projections onto the columns of small matrices, against NumPy's least squares."""

import numpy as np
import pytest

from hpfem.geometry.jacobians import project


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (3, 3)])
@pytest.mark.parametrize("aspect", [1.0, 1e6])
def test_projections(shape, aspect, rng):
    D, d = shape
    scales = np.geomspace(1.0, aspect, d)
    J, r = rng.standard_normal((50, D, d)) * scales, rng.standard_normal((50, D))
    y, rest = project(r.T, J.transpose(1, 2, 0))
    for own, b, found, left in zip(J, r, y.T, rest.T, strict=True):
        wanted = np.linalg.lstsq(own, b)[0]
        assert np.abs((found - wanted) * scales).max() < 1e-9 * max(1.0, np.abs(wanted * scales).max())
        assert np.abs(b - own @ wanted - left).max() < 1e-9


def test_columns_that_depend_on_others():
    J = np.array([[[1.0, 0.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    y, rest = project(np.array([[3.0, 1.0], [4.0, 1.0], [0.0, 0.0]]), J)
    assert np.array_equal(y, [[3.0, 0.0], [0.0, 0.0]]) and np.array_equal(rest, [[0.0, 1.0], [4.0, 1.0], [0.0, 0.0]])
