"""Small files of every format for docs/formats.md, written from the formats' manuals or by other libraries.

A writer takes a path, a `Case`, the format's name of its cells, and whether the names of the case are written too.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import meshio
import numpy as np
from scipy.io import netcdf_file

from hpfem.mesh import Mesh, box
from hpfem.mesh.node_order import gmsh_nodes, permutation, vtk_nodes
from hpfem.shapes import SHAPES, equispaced_nodes
from meshes import generate
from tests.lazy import h5py, numpy_support, vtk
from tests.mesh import decks
from tests.mesh.examples import bent, corners_of
from tests.mesh.test_mfem import mfem_text
from tests.mesh.test_serendipity import at_nodes, places

DATA = Path(__file__).with_name("data")
ORDERS = ("1", "2, serendipity", "2, complete", "3")
COUNTS = {"quad": (4, 2), "tri": (2, 1), "hex": (4, 2, 1), "tet": (2, 1, 1), "prism": (2, 1, 1), "pyramid": (2, 1, 1)}
REGIONS, SIDES, PINS, DATA_NAME = ("left", "right"), {"hot": "xmin", "cold": "xmax"}, "pins", "grade"


@dataclass(frozen=True)
class Case:
    """A bent mesh of one shape: its cells in two regions, two named sides, two named points, a number for each cell."""

    mesh: Mesh
    order: str

    @property
    def shape(self) -> str:
        return self.mesh.cells[0].shape.name

    @property
    def points(self) -> np.ndarray:
        """Points of three coordinates."""
        return np.pad(self.mesh.points, ((0, 0), (0, 3 - self.mesh.dim)))

    def rows(self, rules: str = "vtk") -> np.ndarray:
        """Nodes of the cells in the order of VTK or gmsh, [E, n], from 0."""
        group = self.mesh.cells[0]
        if self.order == "2, serendipity":
            return group.nodes[:, places(rules, self.shape)]
        ours = equispaced_nodes(group.shape, group.order)
        if rules == "vtk" and self.shape == "pyramid" and group.order == 2:
            middle = np.flatnonzero((ours == [0, 0, -1]).all(axis=1))
            return group.nodes[:, [*places(rules, self.shape), *middle]]
        # VTK has no pyramids of order 3.
        by_gmsh = rules == "gmsh" or (self.shape == "pyramid" and group.order > 2)
        theirs = (gmsh_nodes if by_gmsh else vtk_nodes)(group.shape, group.order)
        return group.nodes[:, permutation(ours, theirs, group.order)]

    @property
    def regions(self) -> dict[str, np.ndarray]:
        return dict(zip(REGIONS, np.array_split(np.arange(self.mesh.n_cells), 2)))

    @property
    def tags(self) -> np.ndarray:
        """Numbers of the regions of the cells, 1 and 2."""
        return np.repeat([1, 2], [len(cells) for cells in self.regions.values()])

    @property
    def grade(self) -> np.ndarray:
        """Numbers that are no region, 5, 7 and 9."""
        return 5 + 2 * (np.arange(self.mesh.n_cells) % 3)

    @property
    def sides(self) -> list[tuple[str, str, np.ndarray]]:
        """Name, shape, and corners around the sides, [n, n_corners]."""
        found = []
        for name, boundary in SIDES.items():
            for corners in corners_of(self.mesh, self.mesh.boundaries[boundary]):
                shape = "segment" if self.mesh.dim == 2 else {3: "tri", 4: "quad"}[corners.shape[1]]
                found.append((name, shape, corners[:, [0, 1, 3, 2]] if shape == "quad" else corners))
        return found

    @property
    def pins(self) -> np.ndarray:
        """Two points, at the first and the last corner."""
        return self.mesh.cells[0].corners[[0, -1], [0, -1]]

    def deck(self, edges: dict[str, str] = decks.EDGES) -> decks.Deck:
        """The case with numbers from 1 and names, for the writers of decks.py."""
        nodes = self.rows() + 1
        corners = len(set("".join(decks.SIDES[self.shape].split())))
        own = [decks.EDGES[self.shape].split().index(edge) for edge in edges[self.shape].split()]
        if nodes.shape[1] > corners:
            nodes = np.column_stack([nodes[:, :corners], nodes[:, corners:][:, own], nodes[:, corners + len(own) :]])
        deck = decks.Deck(self.mesh, self.points, np.arange(1, len(self.points) + 1), [])
        deck.cells = [(self.shape, number, row) for number, row in enumerate(nodes, 1)]
        deck.regions = {name: [int(cell) + 1 for cell in cells] for name, cells in self.regions.items()}
        deck.sides = {name: self.numbered_sides(name, decks.SIDES[self.shape].split()) for name in SIDES}
        deck.points_of = {PINS: [int(pin) + 1 for pin in self.pins]}
        return deck

    def numbered_sides(self, name: str, sides: list[str]) -> list[tuple[int, int]]:
        """Cells and their sides from 1 on, where a format counts the sides so."""
        rows = self.rows()
        sets = [[{int(row[int(digit) - 1]) for digit in side} for side in sides] for row in rows]
        found = []
        for own, _, corners in self.sides:
            for side in corners.tolist() if own == name else ():
                cell = next(number for number, known in enumerate(sets) if set(side) in known)
                found.append((cell + 1, sets[cell].index(set(side)) + 1))
        return found


@cache
def case(shape: str, order: str) -> Case:
    """A case; nodes that serendipity cells lack are where their map has them, others at the sides' own bend."""
    mesh = box(shape, COUNTS[shape]).elevated(int(order[0])).transformed(bent)
    if order == "2, serendipity":
        points, nodes = mesh.points.copy(), mesh.cells[0].nodes
        points[nodes] = at_nodes(shape, points[nodes[:, places("vtk", shape)]], equispaced_nodes(SHAPES[shape], 2))
        mesh = Mesh(**{**mesh.__getstate__(), "points": points})
    return Case(mesh, order)


def lines(rows, before: str = "", after: str = "") -> str:
    """Rows of numbers or words as lines."""
    return "".join(before + " ".join(map(_text, row)) + after + "\n" for row in rows)


def _text(value) -> str:
    return f"{value:.17g}" if isinstance(value, float | np.floating) else str(value)


def counted(rows, first: int = 1) -> list[list]:
    """Rows behind their numbers."""
    return [[number, *row] for number, row in enumerate(rows, first)]


def msh(version: str):
    """MSH as text of a version."""
    types = {"point": 15, "segment": 1, "tri": 2, "quad": 3}

    def write(path, case, kind, named):
        dim = case.mesh.dim
        blocks = [(dim, tag, kind, case.rows("gmsh")[case.tags == tag]) for tag in (1, 2)]
        names = [(dim, 1, REGIONS[0]), (dim, 2, REGIONS[1])]
        for name, shape, corners in case.sides if named else ():
            blocks.append((dim - 1, 3 + list(SIDES).index(name), types[shape], corners))
            names.append((dim - 1, blocks[-1][1], name))
        if named:
            blocks.append((0, 5, 15, case.pins[:, None]))
            names.append((0, 5, PINS))
        elements = [(d, tag, k, row + 1) for d, tag, k, rows in blocks for row in rows]
        points, count = case.points, len(case.points)
        body = [f"$MeshFormat\n{version} 0 8\n$EndMeshFormat\n" if version != "1" else ""]
        if named and version != "1":
            body.append(f"$PhysicalNames\n{len(names)}\n" + lines((d, t, f'"{n}"') for d, t, n in names))
            body.append("$EndPhysicalNames\n")
        if version == "1":
            rows = [(number, k, t, t, len(row), *row) for number, (_, t, k, row) in enumerate(elements, 1)]
            body += [f"$NOD\n{count}\n", lines(counted(points)), "$ENDNOD\n"]
            body += [f"$ELM\n{len(rows)}\n", lines(rows), "$ENDELM\n"]
        elif version == "2.2":
            rows = [(number, k, 2, t, t, *row) for number, (_, t, k, row) in enumerate(elements, 1)]
            body += [f"$Nodes\n{count}\n", lines(counted(points)), "$EndNodes\n"]
            body += [f"$Elements\n{len(rows)}\n", lines(rows), "$EndElements\n"]
        else:
            new = version == "4.1"
            low, high = points.min(axis=0), points.max(axis=0)
            body += ["$Entities\n", lines([[sum(own == d for own, *_ in blocks) for d in range(4)]])]
            for d, tag, _, rows in sorted(blocks, key=lambda own: own[0]):
                place = points[rows[0, 0]] if new and d == 0 else [*low, *high]
                body.append(lines([[tag, *place, 1, tag, *([0] if d else [])]]))
            body += ["$EndEntities\n$Nodes\n", lines([[1, count, *([1, count] if new else [])]])]
            body += [lines([[dim, 1, 0, count] if new else [1, dim, 0, count]])]
            body += [lines([k] for k in range(1, count + 1)) + lines(points) if new else lines(counted(points))]
            body += ["$EndNodes\n$Elements\n", lines([[len(blocks), len(elements)] + [1, len(elements)] * new])]
            number = 1
            for d, tag, k, rows in blocks:
                body += [lines([[d, tag, k, len(rows)] if new else [tag, d, k, len(rows)]])]
                body += [lines(counted(rows + 1, number))]
                number += len(rows)
            body.append("$EndElements\n")
        path.write_text("".join(body))

    return write


def by_gmsh(path, case, kind, named):
    """What gmsh makes of MSH 2.2."""
    gmsh = generate.import_gmsh()
    source = path.with_suffix(".msh")
    msh("2.2")(source, case, kind, named)
    gmsh.initialize(readConfigFiles=False)
    try:
        gmsh.option.setNumber("General.Terminal", 0)
        gmsh.merge(str(source))
        gmsh.write(str(path))
    finally:
        gmsh.finalize()


# Second-order cells whose nodes go around their edges in a file, then up, then around the top.
AROUND = {
    6: [0, 3, 1, 4, 2, 5],
    8: [0, 4, 1, 5, 2, 6, 3, 7],
    10: [0, 4, 1, 5, 2, 6, 7, 8, 9, 3],
    15: [0, 6, 1, 7, 2, 8, 12, 13, 14, 3, 9, 4, 10, 5, 11],
    20: [0, 8, 1, 9, 2, 10, 3, 11, 16, 17, 18, 19, 4, 12, 5, 13, 6, 14, 7, 15],
}


def around(case):
    """Nodes of the cells, from 1; those of second order around their edges."""
    rows = case.rows() + 1
    return rows if case.order == "1" else rows[:, AROUND[rows.shape[1]]]


def unv(path, case, kind, named):
    """Datasets of nodes, elements, and groups of elements and nodes."""

    def dataset(number, text):
        return f"    -1\n{number:6d}\n{text}    -1\n"

    def numbers(row):
        return "".join("".join(f"{k:10d}" for k in row[at : at + 8]) + "\n" for at in range(0, len(row), 8))

    points = "".join(
        f"{n:10d}{1:10d}{1:10d}{11:10d}\n" + "".join(f"{x:25.16E}" for x in row) + "\n"
        for n, row in enumerate(case.points, 1)
    )
    groups = {name: [(8, cell + 1) for cell in cells] for name, cells in case.regions.items()}
    cells = [(kind, row) for row in around(case)]
    for name, shape, corners in case.sides if named else ():
        first = len(cells) + 1
        cells += [({"segment": 11, "tri": 41, "quad": 44}[shape], row) for row in corners + 1]
        groups.setdefault(name, []).extend((8, k) for k in range(first, len(cells) + 1))
    groups[PINS] = [(7, pin + 1) for pin in case.pins]
    text = dataset(2411, points)
    elements = ""
    for number, (own, row) in enumerate(cells, 1):
        more = f"{0:10d}{0:10d}{0:10d}\n" if own == 11 else ""
        head = f"{number:10d}{own:10d}{1:10d}{1:10d}{1:10d}{len(row):10d}\n"
        elements += head + more + numbers(row)
    text += dataset(2412, elements)
    members = ""
    for number, (name, own) in enumerate(groups.items() if named else (), 1):
        members += numbers([number, 0, 0, 0, 0, 0, 0, len(own)]) + f"{name}\n"
        members += numbers([value for kind, k in own for value in (kind, k, 0, 0)])
    path.write_text(text + (dataset(2467, members) if named else ""))


def grid_of(case, kind, named):
    """The case as VTK's unstructured grid, the sides being cells too; "material" has the regions."""
    grid, points = vtk.vtkUnstructuredGrid(), vtk.vtkPoints()
    points.SetDataTypeToDouble()
    points.SetData(numpy_support.numpy_to_vtk(case.points, deep=True))
    grid.SetPoints(points)
    for row in case.rows() if isinstance(kind, int) else case.rows()[:, np.arange(kind[1]) % case.rows().shape[1]]:
        grid.InsertNextCell(kind if isinstance(kind, int) else kind[0], len(row), row.tolist())
    material, grade = case.tags.tolist(), case.grade.tolist()
    for name, shape, corners in case.sides if named else ():
        for row in corners.tolist():
            grid.InsertNextCell({"segment": 3, "tri": 5, "quad": 9}[shape], len(row), row)
            material.append(3 + list(SIDES).index(name))
            grade.append(0)
    for name, values in {"material": material, DATA_NAME: grade}.items() if named else ():
        array = numpy_support.numpy_to_vtkIdTypeArray(np.array(values, dtype=np.int64), deep=True)
        array.SetName(name)
        grid.GetCellData().AddArray(array)
    return grid


def vtk_file(writer):
    """By a writer of VTK."""

    def write(path, case, kind, named):
        own = getattr(vtk, writer)()
        own.SetInputData(grid_of(case, kind, named) if isinstance(kind, int | tuple) else kind(case, named))
        own.SetFileName(str(path))
        if hasattr(own, "SetFileTypeToBinary"):
            own.SetFileTypeToBinary()
        assert own.Write()

    return write


def pvtu(path, case, kind, named):
    vtk_file("vtkXMLUnstructuredGridWriter")(path.with_suffix(".vtu"), case, kind, named)
    piece = f'<PUnstructuredGrid><Piece Source="{path.stem}.vtu"/></PUnstructuredGrid>'
    path.write_text(f'<?xml version="1.0"?>\n<VTKFile type="PUnstructuredGrid" version="0.1">{piece}</VTKFile>\n')


def poly_data(case, named):
    grid = grid_of(case, {"tri": 5, "quad": 9}[case.shape], named)
    cut = vtk.vtkGeometryFilter()
    cut.SetInputData(grid)
    cut.Update()
    return cut.GetOutput()


def structured(case, named):
    """A structured grid; the points of a box come in the order of their coordinates in it."""
    grid, points = vtk.vtkStructuredGrid(), vtk.vtkPoints()
    straight = box(case.shape, COUNTS[case.shape]).points
    points.SetDataTypeToDouble()
    points.SetData(numpy_support.numpy_to_vtk(case.points[np.lexsort(np.round(straight, 9).T)], deep=True))
    grid.SetDimensions(*(count + 1 for count in (*COUNTS[case.shape], 0)[:3]))
    grid.SetPoints(points)
    for name, values in {"material": case.tags, DATA_NAME: case.grade}.items() if named else ():
        middles = box(case.shape, COUNTS[case.shape])
        middles = middles.points[middles.cells[0].corners].mean(axis=1)
        array = numpy_support.numpy_to_vtkIdTypeArray(
            values[np.lexsort(np.round(middles, 9).T)].astype(np.int64), deep=True
        )
        array.SetName(name)
        grid.GetCellData().AddArray(array)
    return grid


def xdmf(path, case, kind, named):
    def item(values, kind):
        text = (
            f'<DataItem DataType="{kind}" Dimensions="{" ".join(map(str, values.shape))}" Precision="8" Format="XML">'
        )
        return text + "\n" + lines(np.atleast_2d(values)) + "</DataItem>"

    rows = case.rows()
    text = f'<Topology TopologyType="{kind}" NumberOfElements="{len(rows)}">{item(rows, "Int")}</Topology>'
    text += f'<Geometry GeometryType="XYZ">{item(case.points, "Float")}</Geometry>'
    if named:
        text += (
            f'<Attribute Name="{DATA_NAME}" AttributeType="Scalar" Center="Cell">{item(case.grade, "Int")}</Attribute>'
        )
    path.write_text(f'<Xdmf Version="3.0"><Domain><Grid Name="Grid">{text}</Grid></Domain></Xdmf>')


def abaqus(path, case, kind, named):
    """One table of elements, and all kinds of sets."""
    rows = case.deck()
    text = "*NODE\n" + lines(([f"{n},", *(f"{x:.17g}," for x in row)] for n, row in enumerate(rows.points, 1)))
    text += f"*ELEMENT, TYPE={kind}\n"
    for _, number, nodes in rows.cells:
        values = [str(number), *map(str, nodes)]
        text += (
            "".join(",".join(values[k : k + 15]) + ",\n" for k in range(0, len(values), 15)).removesuffix(",\n") + "\n"
        )
    for name, cells in rows.regions.items() if named else ():
        text += f"*ELSET, ELSET={name}\n" + "".join(f"{cell},\n" for cell in cells)
    for name, sides in rows.sides.items() if named else ():
        text += f"*SURFACE, NAME={name}\n" + "".join(f"{cell}, S{side}\n" for cell, side in sides)
    if named:
        text += f"*NSET, NSET={PINS}\n" + "".join(f"{pin},\n" for pin in rows.points_of[PINS])
    path.write_text(text)


def nastran(path, case, kind, named):
    deck = case.deck(decks.NASTRAN_EDGES)
    text = "BEGIN BULK\n" + "".join(f"GRID,{n},,{x},{y},{z}\n" for n, (x, y, z) in enumerate(deck.points.tolist(), 1))
    for _, number, nodes in deck.cells:
        values = [str(number), str(case.tags[number - 1] if named else 1), *map(str, nodes)]
        text += ",\n,".join(",".join(values[k : k + 8]) for k in range(0, len(values), 8)).join((f"{kind},", "\n"))
    path.write_text(text + "ENDDATA\n")


def su2(path, case, kind, named):
    rows = case.rows()
    text = f"NDIME= {case.mesh.dim}\nNELEM= {len(rows)}\n" + lines([kind, *row] for row in rows)
    text += f"NPOIN= {len(case.points)}\n" + lines(case.mesh.points) + f"NMARK= {len(case.sides) if named else 0}\n"
    for name, shape, corners in case.sides if named else ():
        number = {"segment": 3, "tri": 5, "quad": 9}[shape]
        text += f"MARKER_TAG= {name}\nMARKER_ELEMS= {len(corners)}\n" + lines([number, *row] for row in corners)
    path.write_text(text)


def med(path, case, kind, named):
    """By means of h5py; cells and points have families, whose groups are the names."""
    with h5py.File(path, "w") as file:
        mesh = file.create_group("ENS_MAA/mesh")
        mesh.attrs["ESP"] = mesh.attrs["DIM"] = case.mesh.dim
        step = mesh.create_group("-0000000000000000001-0000000000000000001")
        step["NOE/COO"] = case.mesh.points.ravel(order="F")
        step["NOE/COO"].attrs["NBR"] = len(case.points)
        file.create_group("FAS/mesh/FAMILLE_ZERO").attrs["NUM"] = 0
        cells = {kind: (case.rows(), -case.tags)}
        for name, shape, corners in case.sides if named else ():
            known = {"segment": "SE2", "tri": "TR3", "quad": "QU4"}[shape]
            rows, families = cells.get(known, (corners[:0], np.empty(0, dtype=int)))
            family = np.full(len(corners), -3 - list(SIDES).index(name))
            cells[known] = np.concatenate([rows, corners]), np.concatenate([families, family])
        for known, (rows, families) in cells.items():
            step[f"MAI/{known}/NOD"] = (rows + 1).ravel(order="F")
            step[f"MAI/{known}/NOD"].attrs["NBR"] = len(rows)
            if named:
                step[f"MAI/{known}/FAM"] = families
        if named:
            step["NOE/FAM"] = np.isin(np.arange(len(case.points)), case.pins).astype(int)
            known = [("ELEME", -1 - k, name) for k, name in enumerate((*REGIONS, *SIDES))] + [("NOEUD", 1, PINS)]
            for where, number, name in known:
                group = file.create_group(f"FAS/mesh/{where}/F{number}")
                group.attrs["NUM"] = number
                group["GRO/NOM"] = np.frombuffer(name.ljust(80, "\0").encode(), dtype="i1")[None]
                group["GRO"].attrs["NBR"] = 1


def exodus(path, case, kind, named):
    """A classic netCDF file: a block for each region, side sets, a node set."""
    sides = {"hex": "1265 2376 3487 1485 1432 5678"}
    # The manual's order: edges up the cell before those of its top, and the centre of a hex before those of its sides.
    orders = {"HEX20": [*range(12), 16, 17, 18, 19, 12, 13, 14, 15], "WEDGE15": [*range(9), 12, 13, 14, 9, 10, 11]}
    orders["HEX27"] = [*orders["HEX20"], 26, 24, 25, 20, 21, 22, 23]
    orders["WEDGE18"] = [*orders["WEDGE15"], 15, 16, 17]
    rows = case.rows()[:, orders.get(kind, slice(None))]
    blocks = [rows[case.tags == tag] for tag in (1, 2)]
    with netcdf_file(path, "w") as file:
        file.title, file.api_version, file.version = "x", np.float32(5.1), np.float32(5.1)
        file.floating_point_word_size, file.file_size = np.int32(8), np.int32(1)
        sizes = {"time_step": None, "len_string": 33, "len_line": 81, "four": 4, "num_dim": case.mesh.dim}
        sizes |= {"num_nodes": len(case.points), "num_elem": case.mesh.n_cells, "num_el_blk": 2}
        sizes |= {"num_side_sets": 2, "num_node_sets": 1, "num_nod_ns1": 2} if named else {}
        for name, size in sizes.items():
            file.createDimension(name, size)

        def add(name, values, *dimensions, kind="i"):
            values = np.asarray(values)
            for dimension, size in zip(dimensions, values.shape):
                if dimension not in file.dimensions:
                    file.createDimension(dimension, size)
            variable = file.createVariable(name, kind, dimensions)
            variable[:] = values
            return variable

        def names(name, texts, dimension):
            add(name, [list(text.ljust(33, "\0").encode()) for text in texts], dimension, "len_string", kind="b")
            file.variables[name]._typecode = "c"

        def ids(name, dimension, count):
            add(f"{name}_status", np.ones(count), dimension)
            # An attribute "name", which is a word of Python's objects too.
            add(f"{name}_prop1", np.arange(1, count + 1), dimension)._attributes["name"] = b"ID"

        file.createVariable("time_whole", "d", ("time_step",))
        for axis, own in zip("xyz", case.mesh.points.T):
            add(f"coord{axis}", own, "num_nodes", kind="d")
        ids("eb", "num_el_blk", 2)
        for number, rows in enumerate(blocks, 1):
            add(f"connect{number}", rows + 1, f"num_el_in_blk{number}", f"num_nod_per_el{number}").elem_type = kind
        if named:
            names("eb_names", REGIONS, "num_el_blk")
            ids("ss", "num_side_sets", 2)
            names("ss_names", SIDES, "num_side_sets")
            for number, name in enumerate(SIDES, 1):
                own = np.array(case.numbered_sides(name, sides[case.shape].split()))
                add(f"elem_ss{number}", own[:, 0], f"num_side_ss{number}")
                add(f"side_ss{number}", own[:, 1], f"num_side_ss{number}")
            ids("ns", "num_node_sets", 1)
            names("ns_names", [PINS], "num_node_sets")
            add("node_ns1", case.pins + 1, "num_nod_ns1")


def netgen(path, case, kind, named):
    solid = case.mesh.dim == 3
    rows = [
        [tag, len(row), *row] if solid else [tag, tag, 0, 0, len(row), *row]
        for tag, row in zip(case.tags, case.rows() + 1)
    ]
    text = f"mesh3d\ndimension\n{case.mesh.dim}\ngeomtype\n0\n"
    if not solid:
        text += f"surfaceelements\n{len(rows)}\n" + lines(rows)
    sides = [(list(SIDES).index(name) + 1, row) for name, _, corners in case.sides if named for row in corners + 1]
    if solid:
        text += f"surfaceelements\n{len(sides)}\n" + lines([n, n, 1, 0, len(row), *row] for n, row in sides)
        text += f"volumeelements\n{len(rows)}\n" + lines(rows)
    else:
        text += f"edgesegmentsgi2\n{len(sides)}\n" + lines([n, 0, *row, -1, -1, 1, 0, n, 0, 1, 0] for n, row in sides)
    text += f"points\n{len(case.points)}\n" + lines(case.points)
    if named:
        text += "materials\n2\n" + lines(counted([name] for name in REGIONS))
        text += "bcnames\n2\n" + lines(counted([name] for name in SIDES))
    path.write_text(text + "endmesh\n")


def mfem(path, case, kind, named):
    mesh = case.mesh
    if named:
        sides = {boundary: mesh.boundary_sides[boundary] for boundary in SIDES.values()}
        mesh = Mesh(**{**mesh.__getstate__(), "regions": case.regions, "boundary_sides": sides})
    path.write_text(mfem_text(mesh))


def medit(path, case, kind, named):
    words = {"segment": "Edges", "tri": "Triangles", "quad": "Quadrilaterals"}
    text = f"MeshVersionFormatted 2\nDimension {case.mesh.dim}\nVertices\n{len(case.points)}\n"
    text += lines(case.mesh.points, after=" 0")
    text += f"{kind}\n{case.mesh.n_cells}\n" + lines(
        [*row, tag if named else 1] for row, tag in zip(case.rows() + 1, case.tags)
    )
    sides: dict[str, list] = {}
    for name, shape, corners in case.sides if named else ():
        sides.setdefault(words[shape], []).extend([*row, 3 + list(SIDES).index(name)] for row in corners + 1)
    text += "".join(f"{word}\n{len(rows)}\n" + lines(rows) for word, rows in sides.items())
    path.write_text(text + "End\n")


def avs(path, case, kind, named):
    rows = [[tag if named else 1, kind, *row] for tag, row in zip(case.tags, case.rows() + 1)]
    for name, shape, corners in case.sides if named else ():
        word = {"segment": "line", "tri": "tri", "quad": "quad"}[shape]
        rows += [[3 + list(SIDES).index(name), word, *row] for row in corners + 1]
    if kind == "pyr":
        rows = [[*row[:2], row[6], *row[2:6]] for row in rows]
    text = f"{len(case.points)} {len(rows)} 0 {int(named)} 0\n" + lines(counted(case.points)) + lines(counted(rows))
    if named:
        text += f"1 1\n{DATA_NAME}, none\n" + lines(
            counted([*case.grade[:, None], *[[0]] * (len(rows) - case.mesh.n_cells)])
        )
    path.write_text(text)


def tecplot(path, case, kind, named):
    degenerate = {"prism": [0, 1, 4, 3, 2, 2, 5, 5], "pyramid": [0, 1, 2, 3, 4, 4, 4, 4]}
    rows = case.rows()[:, degenerate.get(case.shape, slice(None))] + 1
    variables = '"X" "Y" "Z"' + (f' "{DATA_NAME}"' if named else "")
    place = ", VARLOCATION=([4]=CELLCENTERED)" if named else ""
    text = f"VARIABLES = {variables}\nZONE NODES={len(case.points)}, ELEMENTS={len(rows)}, DATAPACKING=BLOCK, "
    text += f"ZONETYPE={kind}{place}\n" + lines(case.points.T) + (lines([case.grade]) if named else "") + lines(rows)
    path.write_text(text)


def flac3d(path, case, kind, named):
    """Nodes of zones go along the axes first."""
    orders = {"hex": [0, 1, 3, 4, 2, 7, 5, 6], "prism": [0, 1, 3, 2, 4, 5], "pyramid": [0, 1, 3, 4, 2]}
    letter = "Z" if case.mesh.dim == 3 else "F"
    rows = case.rows()[:, orders.get(case.shape, slice(None))] + 1
    text = lines(counted(case.points), "G ") + lines(counted(rows), f"{letter} {kind} ")
    sides = [(name, f"F {'T3' if shape == 'tri' else 'Q4'}", row) for name, shape, own in case.sides for row in own + 1]
    if named:
        text += lines([word, number, *row] for number, (_, word, row) in enumerate(sides, 1))
        for name, cells in case.regions.items():
            text += f'{letter}GROUP "{name}" SLOT 1\n' + lines([cells + 1])
        for name in SIDES:
            text += f'FGROUP "{name}" SLOT 1\n' + lines([[k for k, (own, *_) in enumerate(sides, 1) if own == name]])
    path.write_text(text)


def ugrid(path, case, kind, named):
    """Counts, points, sides, their numbers, cells."""
    counts = dict.fromkeys(("tri", "quad", "tet", "pyramid", "prism", "hex"), 0) | {case.shape: case.mesh.n_cells}
    rows = case.rows()[:, [0, 3, 4, 1, 2] if case.shape == "pyramid" else slice(None)] + 1
    sides = {shape: [] for shape in ("tri", "quad")}
    for name, shape, corners in case.sides if named and case.mesh.dim == 3 else ():
        sides[shape] += [(row, 3 + list(SIDES).index(name)) for row in corners + 1]
        counts[shape] = len(sides[shape])
    text = lines([[len(case.points), *counts.values()]]) + lines(case.points)
    if case.mesh.dim == 2:
        text += lines(rows) + lines(case.tags[:, None] if named else [[1]] * len(rows))
    else:
        found = [*sides["tri"], *sides["quad"]]
        text += lines(row for row, _ in found) + lines([number] for _, number in found) + lines(rows)
    path.write_text(text)


def tetgen(path, case, kind, named):
    path.with_suffix(".node").write_text(f"{len(case.points)} 3 0 0\n" + lines(counted(case.points)))
    rows = [[*row, tag][: len(row) + named] for row, tag in zip(case.rows() + 1, case.tags)]
    path.write_text(f"{len(rows)} {case.rows().shape[1]} {int(named)}\n" + lines(counted(rows)))
    sides = [[*row, 3 + list(SIDES).index(name)] for name, _, own in case.sides for row in own + 1]
    if named:
        path.with_suffix(".face").write_text(f"{len(sides)} 1\n" + lines(counted(sides)))


def stl(path, case, kind, named):
    def facet(row):
        return "facet normal 0 0 1\nouter loop\n" + lines(case.points[row], "vertex ") + "endloop\nendfacet\n"

    names = REGIONS if named else ("all",)
    parts = [case.rows()[case.tags == tag] for tag in (1, 2)] if named else [case.rows()]
    path.write_text("".join(f"solid {n}\n{''.join(map(facet, own))}endsolid {n}\n" for n, own in zip(names, parts)))


def ply(path, case, kind, named):
    head = "".join(f"property double {axis}\n" for axis in "xyz")
    text = f"ply\nformat ascii 1.0\nelement vertex {len(case.points)}\n{head}element face {case.mesh.n_cells}\n"
    text += "property list uchar int vertex_indices\nend_header\n" + lines(case.points)
    path.write_text(text + lines(case.rows(), f"{case.rows().shape[1]} "))


def obj(path, case, kind, named):
    text = lines(case.points, "v ")
    for tag, name in enumerate(REGIONS, 1):
        text += (f"g {name}\n" if named else "") + lines(case.rows()[case.tags == tag] + 1, "f ")
    path.write_text(text)


def off(path, case, kind, named):
    rows = case.rows()
    path.write_text(f"OFF\n{len(case.points)} {len(rows)} 0\n" + lines(case.points) + lines(rows, f"{rows.shape[1]} "))


def permas(path, case, kind, named):
    rows = around(case)
    text = "$ENTER COMPONENT NAME=DFLT_COMP\n$STRUCTURE\n$COOR\n" + lines(counted(case.points))
    text += f"$ELEMENT TYPE={kind}\n" + lines(counted(rows))
    for name, cells in case.regions.items() if named else ():
        text += f"$ESET NAME={name}\n" + lines([cells + 1])
    if named:
        text += f"$NSET NAME={PINS}\n" + lines([case.pins + 1])
    path.write_text(text + "$END STRUCTURE\n$EXIT COMPONENT\n$FIN\n")


def mdpa(path, case, kind, named):
    orders = {"Hexahedra3D20": [*range(12), 16, 17, 18, 19, 12, 13, 14, 15]}  # as GiD numbers them
    orders["Hexahedra3D27"] = [*orders["Hexahedra3D20"], 24, 22, 21, 23, 20, 25, 26]
    rows = case.rows()[:, orders.get(kind, slice(None))] + 1
    rows = [[tag if named else 0, *row] for tag, row in zip(case.tags, rows)]
    text = "Begin Nodes\n" + lines(counted(case.points)) + f"End Nodes\n\nBegin Elements {kind}\n"
    text += lines(counted(rows)) + "End Elements\n\n"
    for name, cells in case.regions.items() if named else ():
        text += f"Begin SubModelPart {name}\nBegin SubModelPartElements\n" + lines(cells[:, None] + 1)
        text += "End SubModelPartElements\nEnd SubModelPart\n"
    path.write_text(text)


def dolfin(path, case, kind, named):
    def tags(word, names, rows):
        return "".join(
            f'<{word} index="{k}" ' + " ".join(f'{name}="{value!r}"' for name, value in zip(names, row)) + "/>\n"
            for k, row in enumerate(rows)
        )

    rows = case.rows().tolist()
    text = f'<dolfin><mesh celltype="{kind}" dim="{case.mesh.dim}"><vertices size="{len(case.points)}">'
    text += tags("vertex", "xyz", case.mesh.points.tolist()) + f'</vertices><cells size="{len(rows)}">'
    path.write_text(text + tags(kind, ("v0", "v1", "v2", "v3"), rows) + "</cells></mesh></dolfin>")


def wkt(path, case, kind, named):
    parts = [", ".join(" ".join(f"{x:.15f}" for x in case.points[k]) for k in [*row, row[0]]) for row in case.rows()]
    path.write_text("TIN (" + ", ".join(f"(({part}))" for part in parts) + ")")


def by_meshio(file_format):
    def write(path, case, kind, named):
        data = {DATA_NAME: [case.grade]} if named else {}
        meshio.Mesh(case.points, [(kind, case.rows())], cell_data=data).write(path, file_format=file_format)

    return write
