"""Maps of the cells: coefficients, Jacobians, affine or not, volumes, quality."""

from __future__ import annotations

import numpy as np
import pytest

from hpfem.geometry.element_map import (
    affine_elements,
    determinant,
    elevated_nodes,
    geometry_coefficients,
    jacobian,
    positions,
    quality,
    volumes,
)
from hpfem.mesh import Mesh, box
from hpfem.mesh.cells import CellArray
from hpfem.shapes import SHAPES, equispaced_nodes, make_basis
from tests.cases import SHAPES_2D, SHAPES_3D, each_shape
from tests.mesh.examples import BOXES, bent, flux, sample

CELLS = SHAPES_2D + SHAPES_3D


def one_cell(shape, order: int) -> tuple[CellArray, np.ndarray]:
    nodes = equispaced_nodes(shape, order)
    return CellArray(shape, order, np.arange(len(nodes))[None], np.zeros(1, dtype=np.int64)), nodes


def inside(shape, rng: np.random.Generator, count: int = 20) -> np.ndarray:
    return shape.collapse(rng.uniform(-0.9, 0.9, (count, shape.dim)))


@each_shape(CELLS)
@pytest.mark.parametrize("order", [1, 2, 3, 6, 9])
def test_the_map_goes_through_its_nodes(shape, order: int) -> None:
    part, nodes = one_cell(shape, order)
    points = bent(nodes)
    coefficients = geometry_coefficients(part, points)
    at_nodes = positions(coefficients, make_basis("orthogonal", shape, order).evaluate(nodes))[0]
    np.testing.assert_allclose(at_nodes.T, points, atol=1e-11)


@each_shape(CELLS)
def test_jacobian_against_differences(shape, rng: np.random.Generator) -> None:
    part, nodes = one_cell(shape, 3)
    coefficients = geometry_coefficients(part, bent(nodes))
    basis, xi, step = make_basis("orthogonal", shape, 3), inside(shape, rng), 1e-6
    J = jacobian(coefficients, basis.gradient(xi))[0]
    for j, direction in enumerate(np.eye(shape.dim)):
        ahead, behind = (positions(coefficients, basis.evaluate(xi + s * step * direction))[0] for s in (1, -1))
        np.testing.assert_allclose(J[:, j], (ahead - behind) / (2 * step), atol=1e-8)
    np.testing.assert_allclose(determinant(J[None])[0], np.linalg.det(np.moveaxis(J, -1, 0)), rtol=1e-12)


def test_determinant_of_surfaces_and_curves(rng: np.random.Generator) -> None:
    J = rng.normal(size=(4, 3, 2, 5))
    area = np.linalg.norm(np.cross(J[:, :, 0], J[:, :, 1], axis=1), axis=1)
    np.testing.assert_allclose(determinant(J), area, rtol=1e-12)
    np.testing.assert_allclose(determinant(J[:, :, :1]), np.linalg.norm(J[:, :, 0], axis=1), rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("name", BOXES)
def test_affine_cells_are_told_from_others(name: str, order: int) -> None:
    straight = box(*BOXES[name]).elevated(order)
    matrix = np.array([[1.0, 0.4, 0.1], [-0.7, 1.3, 0.2], [0.3, -0.2, 0.8]])[: straight.dim, : straight.dim]
    for group in straight.transformed(lambda x: 1e3 * x @ matrix + 7).cells:
        assert straight.affine(group).all()
    simplices = {"tri", "tet"}
    curved = straight.transformed(bent)
    for group in curved.cells:
        if order > 1 or group.shape.name not in simplices:
            assert not curved.affine(group).any()
        else:
            assert curved.affine(group).all()


def test_affine_has_a_tolerance(rng: np.random.Generator) -> None:
    part, nodes = one_cell(SHAPES["hex"], 2)
    for size in (1e-11, 1e-9):
        points = nodes + size * rng.uniform(-1, 1, nodes.shape)
        assert affine_elements(part, geometry_coefficients(part, points)).tolist() == [size == 1e-11]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("name", BOXES)
def test_volume_is_the_flux_through_the_boundary(name: str, order: int) -> None:
    mesh = sample(name, order)
    assert mesh.summary().volume == pytest.approx(flux(mesh), rel=1e-12)


@each_shape(CELLS)
@pytest.mark.parametrize("order", [1, 3])
def test_volume_of_the_reference_shape(shape, order: int) -> None:
    part, nodes = one_cell(shape, order)
    assert volumes(part, nodes)[0] == pytest.approx(shape.volume, rel=1e-13)


def test_area_of_a_sphere() -> None:
    """Six quads of order 8 blown up from a cube: the area converges to 4 pi."""
    cube = box("hex", (2, 2, 2), lower=(-1, -1, -1))
    sphere = skin(cube).elevated(8).transformed(lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))
    assert sphere.dim == 2
    assert sphere.points.shape[1] == 3
    assert sphere.summary().volume == pytest.approx(4 * np.pi, rel=1e-6)


def skin(mesh: Mesh) -> Mesh:
    """The boundary of a mesh of hexes as a mesh of quads in space."""
    group = mesh.cells[0]
    cells, local = mesh.facets.cells[mesh.facets.boundary, 0], mesh.facets.local[mesh.facets.boundary, 0]
    vertices = group.nodes[:, [0, 4, 2, 6, 1, 5, 3, 7]]
    corners = np.array([vertices[c][list(group.shape.facets[k].vertices)] for c, k in zip(cells, local, strict=True)])
    return Mesh.from_cells(mesh.points, [("quad", 1, corners[:, [0, 2, 1, 3]])])


@pytest.mark.parametrize("to", [2, 3, 5])
@each_shape(CELLS)
def test_elevated_nodes_lie_on_the_same_map(shape, to: int) -> None:
    part, nodes = one_cell(shape, 2)
    points = bent(nodes)
    expected = positions(
        geometry_coefficients(part, points), make_basis("orthogonal", shape, 2).evaluate(equispaced_nodes(shape, to))
    )
    np.testing.assert_allclose(elevated_nodes(part, points, to)[0], expected[0].T, atol=1e-12)


@each_shape(CELLS)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_quality_of_good_mirrored_flat_and_tangled_cells(shape, order: int) -> None:
    part, nodes = one_cell(shape, order)
    flipped, flat = nodes.copy(), nodes.copy()
    flipped[:, 0] *= -1
    flat[:, -1] = 0.3
    good = quality(part, 5 * nodes)
    assert good.upright[0]
    assert not good.mirrored[0]
    assert good.scaled_jacobian[0] == pytest.approx(1)
    assert good.smallest[0] == pytest.approx(5.0**shape.dim)
    assert quality(part, flipped).mirrored[0]
    assert not quality(part, flat).upright[0]
    assert not quality(part, flat).mirrored[0]


@pytest.mark.parametrize("name", ["quad", "hex", "prism", "pyramid"])
def test_a_corner_pushed_through_tangles(name: str) -> None:
    shape = SHAPES[name]
    part, nodes = one_cell(shape, 1)
    moved = nodes.copy()
    moved[0, :2] = 0.8
    found = quality(part, moved)
    assert not found.upright[0]
    assert not found.mirrored[0]
    assert found.smallest[0] < 0 < found.largest[0]


@each_shape(CELLS)
def test_thin_cells_are_not_flat_but_rounding_is(shape) -> None:
    part, nodes = one_cell(shape, 2)
    thin = np.ones(shape.dim)
    for size, upright in ((1e-9, True), (1e-16, False)):
        thin[-1] = size
        assert quality(part, 5 + nodes * thin).upright.tolist() == [upright]
