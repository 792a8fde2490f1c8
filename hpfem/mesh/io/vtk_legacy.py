"""The legacy VTK format (.vtk), text and binary, of versions 1 to 5.1: unstructured grids."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import MeshError
from hpfem.shapes.arrays import Indices

from .mesh_file import ForLibrary, MeshFile
from .text import as_integers, count_in, parsed_numbers
from .vtk_cells import NUMBER_TYPES, cell_blocks

# By lower-case name; binary data are big-endian.
_INTEGERS = {"char": 1, "short": 2, "int": 4, "long": 8}
_TYPES = {
    **{name: f">i{size}" for name, size in _INTEGERS.items()},
    **{f"unsigned_{name}": f">u{size}" for name, size in _INTEGERS.items()},
    **{f"vtktype{name.lower()}": f">{kind}" for name, kind in NUMBER_TYPES.items() if "Int" in name},
    "vtkidtype": ">i4",
    "float": ">f4",
    "double": ">f8",
}
_FOR_VTK = {f"DATASET {kind}" for kind in ("POLYDATA", "STRUCTURED_GRID", "RECTILINEAR_GRID", "STRUCTURED_POINTS")}
# Attributes of points and cells: number of components.
_ATTRIBUTES = {"VECTORS": 3, "NORMALS": 3, "TENSORS": 9, "TENSORS6": 6, "GLOBAL_IDS": 1, "PEDIGREE_IDS": 1}


class _Cursor:
    """A place in the file, from which lines and arrays are taken."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.binary = False

    def line(self) -> str:
        """The next line that is not blank, stripped; "" at the end."""
        while self.position < len(self.data):
            end = self.data.find(b"\n", self.position)
            end = len(self.data) if end < 0 else end
            line = self.data[self.position : end].decode("latin-1").strip()
            self.position = end + 1
            if line:
                return line
        return ""

    def skip_to_blank_line(self) -> None:
        """Skip the lines of a METADATA section."""
        found = re.compile(rb"\n[ \t\r]*(\n|\Z)").search(self.data, max(self.position - 1, 0))
        self.position = found.end() if found else len(self.data)

    def numbers(self, type_name: str, count: int) -> NDArray[np.generic]:
        """The next `count` numbers of a type that VTK names."""
        if type_name.lower() not in _TYPES:
            raise MeshError(f"data of type {type_name[:20]!r} are not known")
        dtype = np.dtype(_TYPES[type_name.lower()])
        least = dtype.itemsize if self.binary else 1
        if count < 0 or count * least > len(self.data) - self.position:
            raise MeshError(f"the file is cut short: {count} numbers are announced where there are fewer")
        if self.binary:
            values = np.frombuffer(self.data, dtype, count, self.position)
            self.position += count * dtype.itemsize
            return values.astype(dtype.newbyteorder("="))
        values, used = parsed_numbers(self.data[self.position : self.position + 40 * count + 40], count)
        if len(values) != count:
            raise MeshError(f"the file is cut short: {count} numbers are announced, {len(values)} found")
        self.position += used
        return as_integers(values) if dtype.kind in "iu" else values


def read_vtk(data: bytes) -> MeshFile:
    """Read the content of a legacy VTK file."""
    cursor = _Cursor(data)
    header = re.match(r"# vtk DataFile Version ([0-9]{1,4})\.([0-9]{1,4})", cursor.line())
    if not header:
        raise MeshError("this is not a VTK file: it does not begin with '# vtk DataFile Version'")
    version = (int(header[1]), int(header[2]))
    cursor.position = data.find(b"\n", data.find(b"\n") + 1) + 1  # the title may be blank
    encoding = cursor.line().upper()
    if encoding not in ("ASCII", "BINARY"):
        raise MeshError(f"the third line must be ASCII or BINARY, not {encoding[:30]!r}")
    cursor.binary = encoding == "BINARY"
    found: dict[str, Any] = {}
    attributes: dict[str, dict[str, NDArray[np.generic]]] = {"CELL_DATA": {}, "POINT_DATA": {}, "": {}}
    section, count = "", 0
    while line := cursor.line():
        words = line.split()
        name = words[0].upper()
        if name == "DATASET":
            if line.upper() in _FOR_VTK:
                raise ForLibrary(f"a VTK file with {line.upper()}", "vtk")
            if len(words) != 2 or words[1].upper() != "UNSTRUCTURED_GRID":
                raise MeshError(f"only unstructured grids can be read, not {line[:60]!r}")
        elif name == "POINTS":
            n_points = _count(words, 1)
            values = cursor.numbers(words[2] if len(words) > 2 else "float", 3 * n_points)
            found[name] = values.astype(np.float64).reshape(n_points, 3)
        elif name == "CELLS":
            found[name] = _read_cells(cursor, _count(words, 1), _count(words, 2), version)
        elif name == "CELL_TYPES":
            found[name] = as_integers(cursor.numbers("int", _count(words, 1)))
        elif name in ("CELL_DATA", "POINT_DATA"):
            section, count = name, _count(words, 1)
        else:
            attributes[section].update(_read_attribute(cursor, words, count))
    missing = [name for name in ("POINTS", "CELLS", "CELL_TYPES") if name not in found]
    if missing:
        raise MeshError(f"there is no section {', '.join(missing)}")
    types = found["CELL_TYPES"]
    points, (connectivity, offsets) = found["POINTS"], found["CELLS"]
    of_cells, of_points = (
        {unquote(name): values for name, values in attributes[section].items() if len(values) == count}
        for section, count in (("CELL_DATA", len(types)), ("POINT_DATA", len(points)))
    )
    cells = cell_blocks(connectivity, offsets, types, of_cells, before_2_1=version < (5, 1), point_data=of_points)
    return MeshFile(points, cells, by_piece=True)


def _count(words: list[str], position: int) -> int:
    count = count_in(words[position]) if len(words) > position else None
    if count is None:
        raise MeshError(f"a count is missing in {' '.join(words)[:60]!r}")
    return count


def _read_cells(cursor: _Cursor, first: int, second: int, version: tuple[int, int]) -> tuple[Indices, Indices]:
    """Connectivity and offsets."""
    if version < (5, 0):
        table = as_integers(cursor.numbers("int", second))
        return _without_counts(table, first)
    arrays = {}
    for wanted, count in (("OFFSETS", first), ("CONNECTIVITY", second)):
        words = cursor.line().split()
        if len(words) != 2 or words[0].upper() != wanted:
            raise MeshError(f"{wanted} was expected, not {' '.join(words)[:60]!r}")
        arrays[wanted] = as_integers(cursor.numbers(words[1], count))
    return arrays["CONNECTIVITY"], arrays["OFFSETS"]


def _without_counts(table: Indices, n_cells: int) -> tuple[Indices, Indices]:
    """Connectivity and offsets of rows that start with their length."""
    starts, at = [], 0
    flat = table.tolist()
    for cell in range(n_cells):
        if at >= len(flat) or flat[at] < 0 or at + flat[at] >= len(flat):
            raise MeshError(f"element {cell + 1} goes beyond the end of CELLS")
        starts.append(at)
        at += flat[at] + 1
    if at != len(flat):
        raise MeshError(f"CELLS has {len(flat)} numbers, its {n_cells} elements {at}")
    lengths = np.zeros(len(table), dtype=bool)
    lengths[starts] = True
    offsets = np.append(0, np.cumsum(table[lengths])) if n_cells else np.zeros(1, dtype=np.int64)
    return table[~lengths], offsets


def _read_attribute(cursor: _Cursor, words: list[str], count: int) -> dict[str, NDArray[np.generic]]:
    """Arrays of point or cell data; nothing for colours and texture coordinates."""
    name = words[0].upper()
    color = "unsigned_char" if cursor.binary else "float"
    if name == "FIELD":
        return _read_field(cursor, _count(words, 2))
    if name == "SCALARS" and len(words) > 2:
        components = _count(words, 3) if len(words) > 3 else 1
        before = cursor.position
        if not cursor.line().upper().startswith("LOOKUP_TABLE"):
            cursor.position = before
        return {words[1]: cursor.numbers(words[2], count * components).reshape(count, components)}
    if name == "METADATA":
        cursor.skip_to_blank_line()
    elif name == "LOOKUP_TABLE":
        cursor.numbers(color, 4 * _count(words, 2))
    elif name == "COLOR_SCALARS":
        cursor.numbers(color, count * _count(words, 2))
    elif name == "TEXTURE_COORDINATES" and len(words) > 3:
        cursor.numbers(words[3], count * _count(words, 2))
    elif name in _ATTRIBUTES and len(words) > 2:
        return {words[1]: cursor.numbers(words[2], count * _ATTRIBUTES[name]).reshape(count, _ATTRIBUTES[name])}
    else:
        raise MeshError(f"section {' '.join(words)[:60]!r} is not known or cut short")
    return {}


def _read_field(cursor: _Cursor, n_arrays: int) -> dict[str, NDArray[np.generic]]:
    arrays: dict[str, NDArray[np.generic]] = {}
    while len(arrays) < n_arrays:
        words = cursor.line().split()
        if words[:1] == ["METADATA"]:
            cursor.skip_to_blank_line()
            continue
        if len(words) != 4:
            raise MeshError(f"a field array was expected, not {' '.join(words)[:60]!r}")
        columns, rows = _count(words, 1), _count(words, 2)
        arrays[words[0]] = cursor.numbers(words[3], columns * rows).reshape(rows, columns)
    return arrays
