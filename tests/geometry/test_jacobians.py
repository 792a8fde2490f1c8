"""Projections onto the columns of small matrices, against NumPy's least squares."""

import numpy as np
import pytest

from hpfem.geometry.jacobians import determinant, metric, project, symmetric_pairs


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


def test_columns_that_depend_on_others(rng):
    first, r = rng.standard_normal((3, 50)), rng.standard_normal((3, 50))
    first[:, 0] = 0.0
    y, rest = project(r, np.stack([first, 0.3 * first], axis=1))
    share = (first[:, 1:] * r[:, 1:]).sum(axis=0) / (first[:, 1:] ** 2).sum(axis=0)
    assert np.all(y[:, 0] == 0) and np.all(rest[:, 0] == r[:, 0]) and np.all(y[1] == 0)
    assert np.allclose(y[0, 1:], share) and np.allclose(rest[:, 1:], r[:, 1:] - share * first[:, 1:])


class Fusing:
    """NumPy with a `fuse` like CuPy's."""

    def __init__(self):
        self.fused = []

    def __getattr__(self, name):
        return getattr(np, name)

    def fuse(self, function):
        self.fused.append(function.__name__)
        return function


@pytest.mark.parametrize(("space_dim", "dim"), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (3, 3)])
def test_one_kernel_is_the_same(space_dim, dim, rng):
    scale = 1e-80 if dim == space_dim else 1e-30
    unit = rng.normal(size=(7, 4, space_dim, dim))
    J = np.moveaxis(unit * scale, (-2, -1), (0, 1))
    weights, xp = rng.random(4), Fusing()
    found = metric(J, weights, xp)
    det = np.sqrt(np.linalg.det(np.swapaxes(unit, -1, -2) @ unit)) * scale**dim
    det *= np.sign(np.linalg.det(unit)) if dim == space_dim else 1
    inverse = np.linalg.pinv(unit) / scale
    products = inverse @ np.swapaxes(inverse, -1, -2) * (weights * det)[..., None, None]
    for (a, b), values in zip(symmetric_pairs(dim), found[:-1], strict=True):
        assert np.abs(values - products[..., a, b]).max() <= 1e-11 * np.abs(products).max()
    assert np.allclose(found[-1], weights * det, rtol=1e-11, atol=0)
    assert np.array_equal(determinant(J, xp), determinant(J))
    assert xp.fused == [*(["_metric"] if dim == space_dim else []), "_determinant"]  # tall ones: of J^T J
