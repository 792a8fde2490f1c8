"""Serendipity cells: files of gmsh, and generated curved meshes against shape functions written here."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.io import netcdf_file

from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import Mesh, read_mesh
from hpfem.mesh.cells import CellArray
from hpfem.mesh.symmetry import entity_nodes
from hpfem.shapes import SHAPES, equispaced_nodes, make_basis
from tests.lazy import numpy_support, vtk
from tests.mesh.examples import flux, sample

# Nodes of serendipity cells in our coordinates, as VTK and gmsh list them: corners, then edges by their corners.
CORNERS = {
    "tri": [(-1, -1), (1, -1), (-1, 1)],
    "quad": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    "tet": [(-1, -1, -1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)],
    "hex": [(x, y, z) for z in (-1, 1) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))],
    "prism": [(x, y, z) for z in (-1, 1) for x, y in ((-1, -1), (1, -1), (-1, 1))],
    "pyramid": [(-1, -1, -1), (1, -1, -1), (1, 1, -1), (-1, 1, -1), (-1, -1, 1)],
}
EDGES = {
    "vtk": {
        "tri": "01 12 20",
        "quad": "01 12 23 30",
        "tet": "01 12 20 03 13 23",
        "hex": "01 12 23 30 45 56 67 74 04 15 26 37",
        "prism": "01 12 20 34 45 53 03 14 25",
        "pyramid": "01 12 23 30 04 14 24 34",
    },
    "gmsh": {
        "tri": "01 12 20",
        "quad": "01 12 23 30",
        "tet": "01 12 20 30 23 13",
        "hex": "01 03 04 12 15 23 26 37 45 47 56 67",
        "prism": "01 02 03 12 14 25 34 35 45",
        "pyramid": "01 03 04 12 14 23 24 34",
    },
    "cgns": {
        "tri": "01 12 20",
        "quad": "01 12 23 30",
        "tet": "01 12 20 03 13 23",
        "hex": "01 12 23 30 04 15 26 37 45 56 67 74",
        "prism": "01 12 20 03 14 25 34 45 53",
        "pyramid": "01 12 23 30 04 14 24 34",
    },
}
VTK_TYPES = {"tri": 22, "quad": 23, "tet": 24, "hex": 25, "prism": 26, "pyramid": 27}
GMSH_TYPES = {"tri": 9, "quad": 16, "tet": 11, "hex": 17, "prism": 18, "pyramid": 19}


def file_nodes(rules: str, shape: str) -> np.ndarray:
    corners = np.array(CORNERS[shape], dtype=float)
    middles = [corners[[int(k) for k in edge]].mean(axis=0) for edge in EDGES[rules][shape].split()]
    return np.concatenate([corners, middles])


def functions(shape: str, xi: np.ndarray) -> np.ndarray:
    """A basis of the serendipity functions at points, [n_points, n_functions]."""
    if len(xi[0]) == 2:
        x, y = xi.T
        more = {"tri": [], "quad": [x**2 * y, x * y**2]}[shape]
        return np.stack([x**0, x, y, x**2, x * y, y**2, *more], axis=1)
    x, y, z = xi.T
    quadratic = [x**0, x, y, z, x * x, y * y, z * z, x * y, y * z, z * x]
    if shape == "pyramid":  # rational functions, with the apex above the middle
        height = (1 + z) / 2
        a, b, below = x + height, y + height, 1 - height
        product = a * b / np.where(below == 0, 1, below)
        quadratic += [product, product * a, product * b]
    if shape == "prism":
        quadratic += [x * y * z, x * x * z, y * y * z, x * z * z, y * z * z]
    if shape == "hex":
        quadratic += [x * y * z] + [p * p * q for p in (x, y, z) for q in (x, y, z) if p is not q]
        quadratic += [p * p * q * r for p, q, r in ((x, y, z), (y, z, x), (z, x, y))]
    return np.stack(quadratic, axis=1)


def at_nodes(shape: str, values: np.ndarray, xi: np.ndarray) -> np.ndarray:
    """The serendipity map of cells at points: from values at the nodes in VTK's order, [E, n_nodes, D]."""
    return functions(shape, xi) @ np.linalg.solve(functions(shape, file_nodes("vtk", shape)), values)


def generated(name: str, seed: int) -> tuple[Mesh, dict[str, dict[str, np.ndarray]]]:
    """A mesh with edges bent at random; rows of its points as files of these orders have them."""
    mesh, rng = sample(name, 2), np.random.default_rng(seed)
    points = mesh.points + rng.uniform(-0.01, 0.01, mesh.points.shape)
    rows: dict[str, dict[str, np.ndarray]] = {rules: {} for rules in EDGES}
    for rules, own in rows.items():
        for group in mesh.cells:
            own[group.shape.name] = group.nodes[:, places(rules, group.shape.name)]
    return Mesh(**{**mesh.__getstate__(), "points": points}), rows


def places(rules: str, shape: str) -> np.ndarray:
    """Positions of a file's nodes among ours."""
    ours = equispaced_nodes(SHAPES[shape], 2)
    return np.abs(file_nodes(rules, shape)[:, None] - ours).max(axis=2).argmin(axis=1)


def written_by_vtk(
    path: Path, points: np.ndarray, rows: dict[str, np.ndarray], numbers: np.ndarray | None = None
) -> None:
    grid, own = vtk.vtkUnstructuredGrid(), vtk.vtkPoints()
    own.SetDataTypeToDouble()
    own.SetData(numpy_support.numpy_to_vtk(np.pad(points, ((0, 0), (0, 3 - points.shape[1]))), deep=True))
    grid.SetPoints(own)
    for shape, nodes in rows.items():
        for row in nodes.tolist():
            grid.InsertNextCell(VTK_TYPES[shape], len(row), row)
    kinds = np.repeat(np.arange(len(rows)), [len(nodes) for nodes in rows.values()])
    material = numpy_support.numpy_to_vtkIdTypeArray(kinds.astype(np.int64), deep=True)
    material.SetName("material")
    grid.GetCellData().AddArray(material)
    if numbers is not None:
        grid.GetPointData().AddArray(known := numpy_support.numpy_to_vtkIdTypeArray(numbers, deep=True))
        known.SetName("GlobalNodeIds")
    writer = vtk.vtkXMLUnstructuredGridWriter() if path.suffix == ".vtu" else vtk.vtkUnstructuredGridWriter()
    if path.suffix == ".vtk":
        writer.SetFileTypeToBinary()
    writer.SetFileName(str(path))
    writer.SetInputData(grid)
    writer.Write()


def written_as_exodus(path: Path, points: np.ndarray, rows: dict[str, np.ndarray]) -> None:
    """A classic netCDF file: coordinates, and a block for each shape."""
    kinds = {"tri": "TRI6", "quad": "QUAD8", "tet": "TETRA10", "hex": "HEX20"}
    kinds |= {"prism": "WEDGE15", "pyramid": "PYRAMID13"}
    with netcdf_file(path, "w") as file:
        file.title, file.api_version, file.version = "x", np.float32(5.1), np.float32(5.1)
        file.floating_point_word_size, file.file_size = np.int32(8), np.int32(1)
        sizes = {"time_step": None, "len_string": 33, "len_line": 81, "four": 4, "num_dim": points.shape[1]}
        sizes |= {"num_nodes": len(points), "num_elem": sum(map(len, rows.values())), "num_el_blk": len(rows)}
        for name, size in sizes.items():
            file.createDimension(name, size)
        file.createVariable("time_whole", "d", ("time_step",))
        for axis, own in zip("xyz", points.T, strict=False):
            file.createVariable(f"coord{axis}", "d", ("num_nodes",))[:] = own
        file.createVariable("eb_prop1", "i", ("num_el_blk",))[:] = np.arange(1, len(rows) + 1)
        file.variables["eb_prop1"].name = "ID"
        file.createVariable("eb_status", "i", ("num_el_blk",))[:] = 1
        for number, (shape, nodes) in enumerate(rows.items(), 1):
            own = f"num_el_in_blk{number}", f"num_nod_per_el{number}"
            for name, size in zip(own, nodes.shape, strict=True):
                file.createDimension(name, size)
            block = file.createVariable(f"connect{number}", "i", own)
            block[:] = nodes + 1
            block.elem_type = kinds[shape]


def written_as_msh(path: Path, mesh: Mesh, rows: dict[str, np.ndarray]) -> None:
    """MSH 2.2 with a region for each shape, and the boundary as elements in the same kind, called "skin"."""
    dim, lines = mesh.dim, []
    for tag, (shape, nodes) in enumerate(rows.items(), 1):
        lines += [(GMSH_TYPES[shape], tag, row + 1) for row in nodes]
    for group, local, cells in sides(mesh):
        facet = group.shape.facets[local].shape.name
        inside = entity_nodes(group.shape, 2, dim - 1, local)
        order = places("gmsh", facet) if dim == 3 else [0, 2, 1]
        lines += [({"segment": 8, **GMSH_TYPES}[facet], 9, row + 1) for row in group.nodes[cells][:, inside][:, order]]
    names = [(dim, tag, shape) for tag, shape in enumerate(rows, 1)] + [(dim - 1, 9, "skin")]
    points = np.pad(mesh.points, ((0, 0), (0, 3 - dim)))
    sections = {
        "PhysicalNames": [f'{d} {tag} "{name}"' for d, tag, name in names],
        "Nodes": [f"{k} {x!r} {y!r} {z!r}" for k, (x, y, z) in enumerate(points.tolist(), 1)],
        "Elements": [
            f"{k} {kind} 2 {tag} {tag} {' '.join(map(str, row))}" for k, (kind, tag, row) in enumerate(lines, 1)
        ],
    }
    text = "".join(f"${key}\n{len(own)}\n" + "\n".join(own) + f"\n$End{key}\n" for key, own in sections.items())
    path.write_text(f"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n{text}")


def sides(mesh: Mesh) -> Iterator[tuple[CellArray, int, np.ndarray]]:
    """Groups, local numbers, and rows of the cells that have a side on the boundary there."""
    facets = mesh.facets.boundary
    group_of, row_of = mesh.locations
    cells, local = mesh.facets.cells[facets, 0], mesh.facets.local[facets, 0]
    for position, group in enumerate(mesh.cells):
        for number in range(len(group.shape.facets)):
            chosen = (group_of[cells] == position) & (local == number)
            if chosen.any():
                yield group, number, row_of[cells[chosen]]


def test_neighbours_share_the_centres_of_faces(tmp_path: Path) -> None:
    mesh, rows = generated("3-D mixed", 0)
    written_as_msh(tmp_path / "x.msh", mesh, rows["gmsh"])
    found = read_mesh(tmp_path / "x.msh")
    assert len(found.points) == len(mesh.points)
    assert len(np.unique(found.points, axis=0)) == len(mesh.points)


@pytest.mark.parametrize("numbered", [False, True])
def test_cells_with_points_of_their_own_are_joined(numbered: bool, tmp_path: Path) -> None:
    mesh, rows = generated("3-D mixed", 2)
    points, apart, count = [], {}, 0
    for shape, nodes in rows["vtk"].items():
        points.append(mesh.points[nodes].reshape(-1, 3))
        apart[shape] = np.arange(count, count + nodes.size).reshape(nodes.shape)
        count += nodes.size
    numbers = np.concatenate([nodes.ravel() for nodes in rows["vtk"].values()]) if numbered else None
    written_by_vtk(tmp_path / "x.vtu", np.concatenate(points), apart, numbers)
    with pytest.warns(HpfemWarning, match="points at the place of others were joined"):
        found = read_mesh(tmp_path / "x.vtu")
    assert len(found.points) == len(mesh.points)
    assert len(found.facets.boundary) == len(mesh.facets.boundary)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
@pytest.mark.parametrize("suffix", [".msh", ".vtk", ".vtu", ".exo"])
@pytest.mark.parametrize("name", ["2-D mixed", "3-D mixed"])
def test_generated_meshes(name: str, suffix: str, seed: int, tmp_path: Path) -> None:
    mesh, rows = generated(name, seed)
    path = tmp_path / f"x{suffix}"
    if suffix == ".msh":
        written_as_msh(path, mesh, rows["gmsh"])
    elif suffix == ".exo":
        written_as_exodus(path, mesh.points, rows["cgns"])
    else:
        written_by_vtk(path, mesh.points, rows["vtk"])
    found = read_mesh(path)
    assert found.n_mirrored == 0
    for group, (shape, nodes) in zip(found.cells, rows["vtk"].items(), strict=True):
        assert (group.shape.name, group.order) == (shape, 2)
        basis = make_basis("orthogonal", group.shape, 2)
        xi = group.shape.collapse(np.random.default_rng(seed).uniform(-1, 1, (20, mesh.dim)))
        ours = np.linalg.solve(basis.evaluate(equispaced_nodes(group.shape, 2)).T, found.points[group.nodes])
        ours = basis.evaluate(xi).T @ ours
        np.testing.assert_allclose(ours, at_nodes(shape, mesh.points[nodes], xi), rtol=0, atol=1e-12)
    assert flux(found) == pytest.approx(found.summary().volume, rel=1e-9)
    regions = {shape: len(nodes) for shape, nodes in rows["vtk"].items()}
    if suffix == ".msh":
        assert found.summary().regions == regions
        assert found.summary().boundaries == {"skin": len(mesh.facets.boundary)}
    else:
        assert list(found.summary().regions.values()) == list(regions.values())


@pytest.mark.parametrize(("suffix", "rules"), [(".msh", "vtk"), (".msh", "cgns"), (".vtu", "gmsh"), (".vtu", "cgns")])
@pytest.mark.parametrize("name", ["hex", "prism"])
def test_nodes_in_the_order_of_another_format(name: str, suffix: str, rules: str, tmp_path: Path) -> None:
    mesh, rows = generated(name, 3)
    path = tmp_path / f"x{suffix}"
    if suffix == ".msh":
        written_as_msh(path, mesh, rows[rules])
    else:
        written_by_vtk(path, mesh.points, rows[rules])
    match = rf"\({name}\) is tangled.*; it is fine if its nodes are in the order '{rules}', not in that of the format$"
    with pytest.raises(MeshError, match=match):
        read_mesh(path)


def test_tangled_cells_that_no_order_repairs(tmp_path: Path) -> None:
    mesh, rows = generated("hex", 4)
    written_by_vtk(tmp_path / "x.vtu", np.random.default_rng(0).random(mesh.points.shape), rows["vtk"])
    with pytest.raises(MeshError, match=r"\(hex\) is tangled.*this is the worst\)$"):
        read_mesh(tmp_path / "x.vtu")
