"""Write fields to a VTU file: cell by cell, as VTK Lagrange cells, so that programs see the functions as they are.

If processes share the mesh, each writes a file, and the first one an index (.pvtu). All are written before any gets its
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from hpfem.shapes.arguments import flag

from ..errors import ArgumentError
from ..space import Field
from ..space.field import shared_by
from ..support.files import atomic_path, file_path, path_text
from .grid import grid_of
from .xml import write_index, write_unstructured_grid


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
    pieces = [target] if comm.size == 1 else [target.with_stem(f"{target.stem}_{rank}") for rank in range(comm.size)]
    with (
        atomic_path(pieces[comm.rank], comm=comm) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        write_unstructured_grid(
            file, grid.points, grid.cells, grid.point_data, grid.cell_data, grid.field_data, compress
        )
    if comm.size > 1:
        with comm.together():
            if comm.rank == 0:
                with atomic_path(target.with_suffix(".pvtu")) as temporary:
                    with open(temporary, "w", encoding="utf-8", newline="\n") as file:
                        write_index(file, [piece.name for piece in pieces], grid.point_data, grid.cell_data)
