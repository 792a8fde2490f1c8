"""Node orders against the programs that define them: gmsh and VTK."""

import json
from pathlib import Path

import numpy as np
import pytest

from hpfem.errors import ArgumentError
from hpfem.mesh.node_order import (
    canonical_order,
    gmsh_nodes,
    permutation,
    serendipity_nodes,
    vertex_positions,
    vtk_nodes,
)
from hpfem.shapes import SHAPES, equispaced_nodes
from tests.lazy import vtk

RECORDED = json.loads(Path(__file__).with_name("gmsh_nodes.json").read_text())["cells"]


@pytest.mark.parametrize("order", range(1, 10))
@pytest.mark.parametrize("name", RECORDED)
def test_gmsh(name: str, order: int) -> None:
    lattice = np.reshape(RECORDED[name][str(order)]["lattice"], (-1, SHAPES[name].dim))
    np.testing.assert_allclose(gmsh_nodes(name, order), 2 * lattice / order - 1, atol=1e-14)


VTK_CELL = {
    "segment": "vtkLagrangeCurve", "tri": "vtkLagrangeTriangle", "quad": "vtkLagrangeQuadrilateral",
    "tet": "vtkLagrangeTetra", "hex": "vtkLagrangeHexahedron", "prism": "vtkLagrangeWedge",
}  # fmt: skip
VTK_QUADRATIC = {
    "segment": "vtkQuadraticEdge", "tri": "vtkQuadraticTriangle", "quad": "vtkBiQuadraticQuad",
    "tet": "vtkQuadraticTetra", "hex": "vtkTriQuadraticHexahedron", "prism": "vtkBiQuadraticQuadraticWedge",
}  # fmt: skip


def functions_at_own_nodes(cell: object, nodes: np.ndarray) -> np.ndarray:
    """VTK's shape functions at the nodes we claim it has."""
    parametric = np.zeros((len(nodes), 3))
    parametric[:, : nodes.shape[1]] = (nodes + 1) / 2
    values = np.zeros((len(nodes), len(nodes)))
    for row, point in zip(values, parametric, strict=True):
        weights = [0.0] * len(nodes)
        cell.InterpolateFunctions(list(point), weights)
        row[:] = weights
    return values


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", VTK_CELL)
def test_vtk_lagrange(name: str, order: int) -> None:
    nodes = vtk_nodes(name, order)
    cell = getattr(vtk, VTK_CELL[name])()
    cell.GetPointIds().SetNumberOfIds(len(nodes))
    cell.GetPoints().SetNumberOfPoints(len(nodes))
    if hasattr(cell, "SetUniformOrderFromNumPoints"):
        cell.SetUniformOrderFromNumPoints(len(nodes))
    cell.Initialize()
    np.testing.assert_allclose(functions_at_own_nodes(cell, nodes), np.eye(len(nodes)), atol=1e-9)


@pytest.mark.parametrize("name", VTK_QUADRATIC)
def test_vtk_quadratic(name: str) -> None:
    nodes = vtk_nodes(name, 2)
    cell = getattr(vtk, VTK_QUADRATIC[name])()
    assert cell.GetNumberOfPoints() == len(nodes)
    np.testing.assert_allclose(functions_at_own_nodes(cell, nodes), np.eye(len(nodes)), atol=1e-12)


def test_old_vtk_hexes_swap_two_vertical_edges() -> None:
    new, old = vtk_nodes("hex", 3), vtk_nodes("hex", 3, before_2_1=True)
    moved = np.flatnonzero(np.any(new != old, axis=1))
    assert moved.tolist() == [28, 29, 30, 31]
    np.testing.assert_array_equal(old[28:30, :2], [[-1, 1], [-1, 1]])
    np.testing.assert_array_equal(old[30:32, :2], [[1, 1], [1, 1]])


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("name", SHAPES)
def test_permutation_to_the_canonical_order(name: str, order: int) -> None:
    shape = SHAPES[name]
    ours, theirs = equispaced_nodes(shape, order), gmsh_nodes(name, order)
    np.testing.assert_allclose(theirs[permutation(theirs, ours, order)], ours, atol=1e-14)
    np.testing.assert_array_equal(ours[vertex_positions(shape, order)], shape.vertices)


def test_cgns() -> None:
    """The middles of the faces, in the order of CGNS's HEXA_27, PENTA_18 and PYRA_14; and that of the cell."""
    inside = {
        "hex": [(0, 0, -1), (0, -1, 0), (1, 0, 0), (0, 1, 0), (-1, 0, 0), (0, 0, 1), (0, 0, 0)],
        "prism": [(0, -1, 0), (0, 0, 0), (-1, 0, 0)],
        "pyramid": [(0, 0, -1)],
    }
    for name, nodes in inside.items():
        ours = equispaced_nodes(SHAPES[name], 2)
        theirs = np.empty_like(ours)
        theirs[canonical_order("cgns", SHAPES[name], 2)] = ours
        np.testing.assert_array_equal(theirs[: -len(nodes)], serendipity_nodes("cgns", name))
        np.testing.assert_array_equal(theirs[-len(nodes) :], nodes)
    with pytest.raises(ArgumentError, match="'cgns' has cells of order 1 and 2, no hex of order 3"):
        canonical_order("cgns", SHAPES["hex"], 3)


@pytest.mark.parametrize("nodes", [gmsh_nodes, vtk_nodes])
def test_bad_requests(nodes) -> None:
    with pytest.raises(ArgumentError, match="at least 1"):
        nodes("hex", 0)
    with pytest.raises(ArgumentError, match="heptagon"):
        nodes("heptagon", 2)
    with pytest.raises(ArgumentError, match="pyramid"):
        vtk_nodes("pyramid", 2)
    with pytest.raises(ArgumentError, match="same points"):
        permutation(gmsh_nodes("tri", 3), gmsh_nodes("tri", 2), 3)
