"""The VTU file format: XML with arrays in base64, compressed by zlib in blocks.

Version 2.1 of VTK's XML files is the first that lists the nodes on the vertical edges of Lagrange hexes in the order
that `hpfem.mesh.vtk_nodes` has.
"""

from __future__ import annotations

import re
import sys
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..mesh.io.vtk_cells import NUMBER_TYPES

VERSION = "2.1"
_BLOCK = 1 << 20  # bytes compressed at a time
_NOT_XML = re.compile("[\x00-\x1f\ud800-\udfff\ufffe\uffff]")
_LEVEL = 1  # values of fields hardly compress further
_NAMES = {dtype: name for name, dtype in NUMBER_TYPES.items()}


def write_unstructured_grid(
    file: TextIO,
    points: NDArray[np.float64],
    cells: Sequence[tuple[int, NDArray[np.int64]]],
    point_data: Mapping[str, NDArray[Any]],
    cell_data: Mapping[str, NDArray[Any]],
    field_data: Mapping[str, NDArray[Any]],
    compress: bool = True,
) -> None:
    """Write a grid of one piece; points [n, 3], cells [n_cells, n_points of the cell], data [n, components]."""
    n_cells = sum(len(rows) for _, rows in cells)
    widths = np.concatenate([np.full(len(rows), rows.shape[1], dtype=np.int64) for _, rows in cells])
    types = np.concatenate([np.full(len(rows), cell_type, dtype=np.uint8) for cell_type, rows in cells])
    file.write(_opening("UnstructuredGrid", ' compressor="vtkZLibDataCompressor"' if compress else ""))
    file.write("<UnstructuredGrid>\n")
    if field_data:
        _write_section(file, "FieldData", field_data, compress, of_grid=True)
    file.write(f'<Piece NumberOfPoints="{len(points)}" NumberOfCells="{n_cells}">\n')
    _write_section(file, "Points", {"Points": points}, compress)
    connectivity = np.concatenate([rows.ravel() for _, rows in cells])
    arrays = {"connectivity": connectivity, "offsets": np.cumsum(widths), "types": types}
    _write_section(file, "Cells", arrays, compress)
    _write_section(file, "PointData", point_data, compress, _active(point_data))
    _write_section(file, "CellData", cell_data, compress)
    file.write("</Piece>\n</UnstructuredGrid>\n</VTKFile>\n")


def write_index(
    file: TextIO, pieces: Sequence[str], point_data: Mapping[str, NDArray[Any]], cell_data: Mapping[str, NDArray[Any]]
) -> None:
    """Write the index of a grid whose pieces are in files of their own."""
    file.write(_opening("PUnstructuredGrid", ""))
    file.write('<PUnstructuredGrid GhostLevel="0">\n<PPoints>\n')
    file.write(f"<PDataArray{_declared('Points', np.empty((0, 3)))}/>\n</PPoints>\n")
    for section, arrays, attributes in (("PPointData", point_data, _active(point_data)), ("PCellData", cell_data, "")):
        declared = [f"<PDataArray{_declared(name, array)}/>\n" for name, array in arrays.items()]
        file.write(f"<{section}{attributes}>\n{''.join(declared)}</{section}>\n")
    file.write("".join(f"<Piece Source={_quoted(name)}/>\n" for name in pieces))
    file.write("</PUnstructuredGrid>\n</VTKFile>\n")


def _opening(grid: str, attributes: str) -> str:
    """How a file of VTK begins."""
    order = "LittleEndian" if sys.byteorder == "little" else "BigEndian"
    return (
        '<?xml version="1.0"?>\n'
        f'<VTKFile type="{grid}" version="{VERSION}" byte_order="{order}" header_type="UInt64"{attributes}>\n'
    )


def _declared(name: str, array: NDArray[Any]) -> str:
    """Type, name and number of components of an array, as attributes."""
    components = f' NumberOfComponents="{array.shape[1]}"' if array.ndim == 2 and array.shape[1] > 1 else ""
    return f' type="{_NAMES[f"{array.dtype.kind}{array.dtype.itemsize}"]}" Name={_quoted(name)}{components}'


def _active(point_data: Mapping[str, NDArray[Any]]) -> str:
    """Attributes with the names of the first scalar and the first vector, which programs show first."""
    found: dict[str, str] = {}
    for name, array in point_data.items():
        found.setdefault({1: "Scalars", 3: "Vectors"}.get(array.shape[1], ""), name)
    return "".join(f" {role}={_quoted(name)}" for role, name in found.items() if role)


def _write_section(
    file: TextIO,
    section: str,
    arrays: Mapping[str, NDArray[Any]],
    compress: bool,
    attributes: str = "",
    of_grid: bool = False,
) -> None:
    file.write(f"<{section}{attributes}>\n")
    for name, array in arrays.items():
        # The piece's header does not have their number.
        count = f' NumberOfTuples="{len(array)}"' if of_grid else ""
        file.write(f'<DataArray{_declared(name, array)}{count} format="binary">\n')
        file.write(encoded(array, compress))
        file.write("\n</DataArray>\n")
    file.write(f"</{section}>\n")


def encoded(array: NDArray[Any], compress: bool) -> str:
    """Base64 of an array with VTK's header before it."""
    data = np.ascontiguousarray(array).tobytes()
    if not compress:
        return b64encode(np.array([len(data)], dtype=np.uint64).tobytes() + data).decode("ascii")
    blocks = [zlib.compress(data[start : start + _BLOCK], _LEVEL) for start in range(0, len(data), _BLOCK)]
    header = [len(blocks), _BLOCK, len(data) % _BLOCK, *map(len, blocks)]
    return (b64encode(np.array(header, dtype=np.uint64).tobytes()) + b64encode(b"".join(blocks))).decode("ascii")


def _quoted(name: str) -> str:
    """A name as the value of an attribute."""
    from xml.sax.saxutils import quoteattr  # imports many modules that nothing else needs

    if _NOT_XML.search(name):
        raise ArgumentError(f"a VTU file cannot hold the name {name!r}: leave out the characters that are no text")
    return quoteattr(name)
