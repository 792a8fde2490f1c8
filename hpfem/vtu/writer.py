"""Write fields to a VTU file: cell by cell, as VTK Lagrange cells, so that programs see the functions as they are.

If processes share the mesh, each writes a file, and the first one an index (.pvtu). All are written before any gets its
name.
"""

from __future__ import annotations

import re
import sys
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import flag

from ..errors import ArgumentError
from ..mesh.io.vtk_cells import NUMBER_TYPES
from ..space import Field
from ..space.field import shared_by
from ..support.files import atomic_path, file_path, part_path, path_text
from .grid import Grid, grid_of

# The first version of VTK's XML files that lists the nodes on the vertical edges of Lagrange hexes in the order of
# `hpfem.mesh.vtk_nodes`.
_VERSION = "2.1"
_BLOCK = 1 << 20  # bytes compressed at a time
_NOT_XML = re.compile("[\x00-\x1f\ud800-\udfff\ufffe\uffff]")
_LEVEL = 1  # values of fields hardly compress further
_NAMES = {dtype: name for name, dtype in NUMBER_TYPES.items()}


def write_vtu(
    path: str | PathLike[str],
    fields: Field | Mapping[str, Field],
    subdivide: int | None = None,
    *,
    compress: bool = True,
) -> None:
    """Write fields to a VTU file, which ParaView, pyvista and VTK open.

    Each cell has points of its own, so that the file keeps jumps between cells. The order of a cell in the file is the
    larger of P and the geometry order: the file holds the functions and the curved cells exactly. VTK has no pyramids
    above order 1 and no cells above order 10: these are cut into linear cells on their lattice of points. Programs that
    draw Lagrange cells in pieces cut the neighbours' faces at the same points, so that no gaps are visible. Vectors of
    two components get a third one, zero, as VTK's vectors have three.

    Cell data: "cell" (number in the mesh), "shape" (VTK's number for the linear cell of that shape), "order" (P),
    "geometry_order", "block", and if the mesh has regions "region": the number of the first region with the cell,
    from 1, or 0 for none. The file's field data has (number, dimension) under each region's name.

    Parameters
    ----------
    path : path
        File to write, ending in .vtu. Written whole or not at all.
    fields : Field or mapping of str to Field
        Fields of one space in state "coeff" or "phys", the latter being projected first; a single field is called "u".
    subdivide : int, optional
        Write linear cells instead, this many along each edge, for programs without Lagrange cells.
    compress : bool
        Whether to compress the arrays.

    Raises
    ------
    StateError
        For a "dual" field, or fields on different spaces.
    ArgumentError
        For no fields, anything that is no field, a value that is not finite, a bad number of subdivisions, a path that
        does not end in .vtu, or a file that cannot be written.

    Notes
    -----
    If processes share the mesh this is collective: each writes its cells to a file "u_0.vtu", "u_1.vtu", .... Programs
    open "u.pvtu", which names these files. Cells have their numbers in the whole mesh, and "process" is the number of
    their process.
    """
    target = file_path(path)
    # Programs choose their reader by the suffix.
    if target.suffix != ".vtu":
        raise ArgumentError(f"cannot write {path_text(path)}: give a name that ends in .vtu")
    compress = flag(compress, "compress")
    comm = shared_by(fields)
    with comm.together():
        grid = grid_of(fields, subdivide)
    pieces = [target] if comm.size == 1 else [part_path(target, rank) for rank in range(comm.size)]
    with (
        atomic_path(pieces[comm.rank], comm=comm) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        _write_grid(file, grid, compress)
    if comm.size > 1:
        with comm.together():
            if comm.rank == 0:
                with atomic_path(target.with_suffix(".pvtu")) as temporary:
                    with open(temporary, "w", encoding="utf-8", newline="\n") as file:
                        _write_index(file, [piece.name for piece in pieces], grid)


def _write_grid(file: TextIO, grid: Grid, compress: bool) -> None:
    """Write a grid of one piece."""
    widths = np.concatenate([np.full(len(rows), rows.shape[1], dtype=np.int64) for _, rows in grid.cells])
    types = np.concatenate([np.full(len(rows), cell_type, dtype=np.uint8) for cell_type, rows in grid.cells])
    file.write(_opening("UnstructuredGrid", ' compressor="vtkZLibDataCompressor"' if compress else ""))
    file.write("<UnstructuredGrid>\n")
    if grid.field_data:
        _write_section(file, "FieldData", grid.field_data, compress, of_grid=True)
    file.write(f'<Piece NumberOfPoints="{len(grid.points)}" NumberOfCells="{len(types)}">\n')
    _write_section(file, "Points", {"Points": grid.points}, compress)
    connectivity = np.concatenate([rows.ravel() for _, rows in grid.cells])
    arrays = {"connectivity": connectivity, "offsets": np.cumsum(widths), "types": types}
    _write_section(file, "Cells", arrays, compress)
    _write_section(file, "PointData", grid.point_data, compress, _active(grid.point_data))
    _write_section(file, "CellData", grid.cell_data, compress)
    file.write("</Piece>\n</UnstructuredGrid>\n</VTKFile>\n")


def _write_index(file: TextIO, pieces: Sequence[str], grid: Grid) -> None:
    """Write the index of a grid whose pieces are in files of their own."""
    file.write(_opening("PUnstructuredGrid", ""))
    file.write('<PUnstructuredGrid GhostLevel="0">\n<PPoints>\n')
    file.write(f"<PDataArray{_declared('Points', np.empty((0, 3)))}/>\n</PPoints>\n")
    sections = (("PPointData", grid.point_data, _active(grid.point_data)), ("PCellData", grid.cell_data, ""))
    for section, arrays, attributes in sections:
        declared = [f"<PDataArray{_declared(name, array)}/>\n" for name, array in arrays.items()]
        file.write(f"<{section}{attributes}>\n{''.join(declared)}</{section}>\n")
    file.write("".join(f"<Piece Source={_quoted(name)}/>\n" for name in pieces))
    file.write("</PUnstructuredGrid>\n</VTKFile>\n")


def _opening(grid: str, attributes: str) -> str:
    """How a file of VTK begins."""
    order = "LittleEndian" if sys.byteorder == "little" else "BigEndian"
    return (
        '<?xml version="1.0"?>\n'
        f'<VTKFile type="{grid}" version="{_VERSION}" byte_order="{order}" header_type="UInt64"{attributes}>\n'
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
        file.write(_encoded(array, compress))
        file.write("\n</DataArray>\n")
    file.write(f"</{section}>\n")


def _encoded(array: NDArray[Any], compress: bool) -> str:
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
