"""Maps of the cells: coefficients, Jacobians, affine or not, volumes, quality."""

import numpy as np
import pytest

from hpfem.geometry.element_map import ElementMap, Quality, check_gradient, elevated_nodes
from hpfem.geometry.jacobians import determinant, determinant_and_inverse, normal, solve
from hpfem.mesh import Mesh, box
from hpfem.mesh.cells import CellArray
from hpfem.shapes import SHAPES, equispaced_nodes
from tests.cases import SHAPES_2D, SHAPES_3D, each_shape
from tests.mesh.examples import BOXES, bent, flux, sample

CELLS = SHAPES_2D + SHAPES_3D


def one_cell(shape, order: int) -> tuple[CellArray, np.ndarray]:
    nodes = equispaced_nodes(shape, order)
    return CellArray(shape, order, np.arange(len(nodes))[None], np.zeros(1, dtype=np.int64)), nodes


def quality(part: CellArray, points: np.ndarray) -> Quality:
    return ElementMap.of(part, points).quality()


def inside(shape, rng: np.random.Generator, count: int = 20) -> np.ndarray:
    return shape.collapse(rng.uniform(-0.9, 0.9, (count, shape.dim)))


@each_shape(CELLS)
@pytest.mark.parametrize("order", [1, 2, 3, 6, 9])
def test_the_map_goes_through_its_nodes(shape, order: int) -> None:
    part, nodes = one_cell(shape, order)
    points = bent(nodes)
    elements = ElementMap.of(part, points)
    at_nodes = elements.positions(elements.basis.evaluate(nodes))[:, 0]
    np.testing.assert_allclose(at_nodes.T, points, atol=1e-11)


@each_shape(CELLS)
def test_jacobian_against_differences(shape, rng: np.random.Generator) -> None:
    part, nodes = one_cell(shape, 3)
    elements = ElementMap.of(part, bent(nodes))
    basis, xi, step = elements.basis, inside(shape, rng), 1e-6
    J = elements.jacobian(basis.gradient(xi))
    for j, direction in enumerate(np.eye(shape.dim)):
        ahead, behind = (elements.positions(basis.evaluate(xi + s * step * direction)) for s in (1, -1))
        np.testing.assert_allclose(J[:, j], (ahead - behind) / (2 * step), atol=1e-8)
    matrices = np.moveaxis(J[:, :, 0], -1, 0)
    np.testing.assert_allclose(determinant(J)[0], np.linalg.det(matrices), rtol=1e-12)
    inverse = np.moveaxis(determinant_and_inverse(J)[1][:, :, 0], -1, 0)
    np.testing.assert_allclose(inverse, np.linalg.inv(matrices), rtol=1e-10, atol=1e-10)


@each_shape(CELLS)
def test_a_point_in_each_element(shape, rng: np.random.Generator) -> None:
    nodes = equispaced_nodes(shape, 3)
    two = CellArray(shape, 3, np.arange(2 * len(nodes)).reshape(2, -1), np.arange(2))
    elements = ElementMap.of(two, np.concatenate([bent(nodes), 2 * nodes]))
    xi, which = inside(shape, rng), rng.integers(0, 2, 20)
    values, gradient = elements.basis.evaluate(xi), elements.basis.gradient(xi)
    each = np.arange(20)
    np.testing.assert_allclose(
        elements.paired_positions(values, which), elements.positions(values)[:, which, each], atol=1e-13
    )
    np.testing.assert_allclose(
        elements.paired_jacobian(gradient, which), elements.jacobian(gradient)[:, :, which, each], atol=1e-12
    )


def test_determinant_of_surfaces_and_curves(rng: np.random.Generator) -> None:
    J = rng.normal(size=(3, 2, 4, 5))
    area = np.linalg.norm(np.cross(J[:, 0], J[:, 1], axis=0), axis=0)
    np.testing.assert_allclose(determinant(J), area, rtol=1e-12)
    np.testing.assert_allclose(determinant(J[:, :1]), np.linalg.norm(J[:, 0], axis=0), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(normal(J), axis=0), area, rtol=1e-12)
    np.testing.assert_allclose(normal(J[:2, :1]), [J[1, 0], -J[0, 0]])


@pytest.mark.parametrize(("space_dim", "dim"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
def test_solutions_of_small_systems(space_dim: int, dim: int, rng: np.random.Generator) -> None:
    J, r = rng.normal(size=(space_dim, dim, 6)), rng.normal(size=(space_dim, 6))
    J[:, 0, 0] = 0
    found = solve(J, r)
    assert not found[:, 0].any()
    for k in range(1, 6):
        np.testing.assert_allclose(found[:, k], np.linalg.lstsq(J[:, :, k], r[:, k])[0], rtol=1e-9, atol=1e-12)


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
        assert ElementMap.of(part, points).affine_elements.tolist() == [size == 1e-11]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("name", BOXES)
def test_volume_is_the_flux_through_the_boundary(name: str, order: int) -> None:
    mesh = sample(name, order)
    assert mesh.summary().volume == pytest.approx(flux(mesh), rel=1e-12)


@each_shape(CELLS)
@pytest.mark.parametrize("order", [1, 3])
def test_volume_of_the_reference_shape(shape, order: int) -> None:
    part, nodes = one_cell(shape, order)
    assert ElementMap.of(part, nodes).volumes()[0] == pytest.approx(shape.volume, rel=1e-13)


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
    elements = ElementMap.of(part, points)
    expected = elements.positions(elements.basis.evaluate(equispaced_nodes(shape, to)))
    np.testing.assert_allclose(elevated_nodes(part, points, to)[0], expected[:, 0].T, atol=1e-12)


@each_shape(CELLS)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_quality_of_good_mirrored_flat_and_tangled_cells(shape, order: int) -> None:
    part, nodes = one_cell(shape, order)
    flipped, flat = nodes.copy(), nodes.copy()
    flipped[:, 0] *= -1
    flat[:, -1] = 0.3
    good = quality(part, 5 * nodes)
    assert good.positively_oriented[0]
    assert not good.mirrored[0]
    assert good.ratio[0] == pytest.approx(1)
    assert good.smallest[0] == pytest.approx(5.0**shape.dim)
    assert quality(part, flipped).mirrored[0]
    assert not quality(part, flat).positively_oriented[0]
    assert not quality(part, flat).mirrored[0]


@pytest.mark.parametrize("name", ["quad", "hex", "prism", "pyramid"])
def test_a_corner_pushed_through_tangles(name: str) -> None:
    shape = SHAPES[name]
    part, nodes = one_cell(shape, 1)
    moved = nodes.copy()
    moved[0, :2] = 0.8
    found = quality(part, moved)
    assert not found.positively_oriented[0]
    assert not found.mirrored[0]
    assert found.smallest[0] < 0 < found.largest[0]


@each_shape(CELLS)
def test_thin_cells_are_not_flat_but_rounding_is(shape) -> None:
    part, nodes = one_cell(shape, 2)
    thin = np.ones(shape.dim)
    for size, oriented in ((1e-9, True), (1e-16, False)):
        thin[-1] = size
        assert quality(part, 5 + nodes * thin).positively_oriented.tolist() == [oriented]


@each_shape(CELLS)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_signs_are_sure_only_where_they_are_right(shape, order: int, rng: np.random.Generator) -> None:
    nodes = equispaced_nodes(shape, order)
    count = 400
    cells = CellArray(shape, order, np.arange(count * len(nodes)).reshape(count, -1), np.arange(count))
    amount = np.geomspace(1e-3, 3, count)[:, None, None]
    points = nodes * rng.choice([-1, 1], (count, 1, shape.dim)) + amount * rng.uniform(-1, 1, (count, *nodes.shape))
    points = points * np.geomspace(1, 1e-9, count)[rng.permutation(count)][:, None, None]
    for offset in (0.0, 1.0, 1e5):
        elements = ElementMap.of(cells, points.reshape(-1, shape.dim) + offset)
        found = elements.quality()
        signs = elements.sure_signs(check_gradient(shape, order))
        assert (found.positively_oriented | (signs <= 0)).all()
        assert (found.mirrored | (signs >= 0)).all()
        if offset == 0.0:
            assert (signs[: count // 20] != 0).all()


def test_signs_of_surfaces_are_never_sure() -> None:
    part, nodes = one_cell(SHAPES["quad"], 2)
    elements = ElementMap.of(part, np.column_stack([nodes, nodes[:, 0]]))
    assert not elements.sure_signs(check_gradient(SHAPES["quad"], 2)).any()
