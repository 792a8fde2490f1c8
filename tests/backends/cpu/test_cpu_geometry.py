"""Compiled geometric factors against those of NumPy: every kind, shape, order, dtype, processor, number of elements."""

import numpy as np
import pytest

from hpfem.backends.cpu.runtime.geometry import stored_factors, volume_factors
from hpfem.benchmarks.repeated import RepeatedGeometry
from hpfem.geometry.block_geometry import BlockGeometry
from hpfem.geometry.element_map import ElementMap
from hpfem.geometry.factors import KINDS
from hpfem.geometry.kinds import AFFINE, GENERAL
from hpfem.mesh.cells import CellArray
from hpfem.shapes import SHAPES as BY_NAME
from hpfem.shapes import default_counts, equispaced_nodes, quadrature
from tests.backends.cpu.processors import narrower
from tests.cases import SHAPES, each_shape
from tests.mesh.examples import bent

some_shapes = each_shape([shape for shape in SHAPES if shape.dim > 0])


def geometry_of(shape, order, kind, rng, *, count=11, space_dim=None, points=3):
    """Elements that are all different."""
    nodes = equispaced_nodes(shape, order)
    cells = CellArray(shape, order, np.arange(count * len(nodes)).reshape(count, -1), np.arange(count))
    d, space_dim = shape.dim, space_dim or shape.dim
    matrices = np.eye(space_dim, d) + 0.2 * rng.uniform(-1, 1, (count, space_dim, d))
    places = np.einsum("eia,na->eni", matrices, nodes if kind is AFFINE or (order == 1 and d == 1) else bent(nodes))
    elements = ElementMap.of(cells, places.reshape(-1, space_dim) + 3)
    return BlockGeometry(shape, order, elements.coefficients, quadrature(shape, default_counts(shape, points)), kind)


def in_order(geometry, kind, lanes, dtype, direction):
    """Factors of NumPy, in the order of kernels."""
    made = geometry.factors(kind, lanes, dtype).transpose(0, 2, 1, 3)
    if kind == "map" and (rest := geometry.n_elements % lanes):
        made = made.copy()
        made[-1, ..., rest:] = made[-1, ..., rest - 1 : rest]  # past the last element, that one's
    if made.shape[1] == 1:
        return made
    points = np.moveaxis(np.arange(made.shape[1]).reshape(geometry.rule.counts), direction, -1).ravel()
    return made[:, points]


def check(geometry, dtype=np.float64, target=None, arithmetic=None):
    target = target or narrower(64)
    lanes = target.lanes(arithmetic or dtype)
    for kind in KINDS:
        for direction in {0, geometry.dim - 1}:
            found = stored_factors(geometry, kind, dtype, lanes, direction, target)
            expected = in_order(geometry, kind, lanes, dtype, direction)
            assert found.shape == expected.shape and found.dtype == expected.dtype
            size = np.abs(expected).max(axis=(0, 1, 3), keepdims=True)
            assert (np.abs(found - expected) <= (1e-14 if dtype == np.float64 else 1e-7) * 10 * size).all(), kind
    for some in (slice(0, geometry.n_elements), slice(geometry.n_elements // 3, geometry.n_elements // 2)):
        found, expected = volume_factors(geometry, some), geometry.volume_factors(some)
        assert found.shape == expected.shape and np.allclose(found, expected, rtol=1e-13, atol=0)


@some_shapes
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("kind", [AFFINE, GENERAL], ids=["affine", "deformed"])
def test_every_shape_and_order(shape, order, kind, rng):
    check(geometry_of(shape, order, kind, rng))


@some_shapes
def test_in_more_dimensions(shape, rng):
    for space_dim in range(shape.dim + 1, 4):
        for kind in (AFFINE, GENERAL):
            check(geometry_of(shape, 2, kind, rng, space_dim=space_dim))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_width_and_number_of_elements(vector_bytes, dtype, rng):
    for count in (1, 7, 8, 9, 16, 17, 24, 40):
        check(geometry_of(BY_NAME["prism"], 2, GENERAL, rng, count=count), dtype, narrower(vector_bytes))
        # Of mixed precision: rounded factors for the lanes of float64.
        check(geometry_of(BY_NAME["prism"], 2, GENERAL, rng, count=count), dtype, narrower(vector_bytes), np.float64)


@pytest.mark.parametrize("points", [1, 4, 8])
def test_other_rules(points, rng):
    check(geometry_of(BY_NAME["tet"], 2, GENERAL, rng, points=points))


@pytest.mark.parametrize("moved", [False, True])
def test_copies_without_coefficients(moved, rng):
    patch = geometry_of(BY_NAME["prism"], 2, GENERAL, rng, count=3)
    check(RepeatedGeometry(patch, 29, moved=moved))
    check(RepeatedGeometry(geometry_of(BY_NAME["hex"], 1, AFFINE, rng, count=4), 29, moved=moved))


def test_threads_change_nothing(rng, monkeypatch):
    monkeypatch.setattr("hpfem.backends.cpu.runtime.geometry.THREAD_FLOPS", 1)
    geometry, found = geometry_of(BY_NAME["hex"], 2, GENERAL, rng, count=100), []
    for threads in ("1", "3", "64"):
        monkeypatch.setenv("HPFEM_NUM_THREADS", threads)
        found.append(stored_factors(geometry, "metric", np.float64, 8, 0, narrower(64)))
    assert all(np.array_equal(found[0], other) for other in found)


def test_no_elements(rng):
    geometry = geometry_of(BY_NAME["tri"], 2, GENERAL, rng).part(0)
    assert stored_factors(geometry, "metric", np.float64, 8, 0, narrower(64)).size == 0
