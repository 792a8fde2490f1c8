"""Read a mesh file of any format: what it says, made into a mesh that passed all checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import meshio
import numpy as np

from hpfem.errors import ArgumentError, MeshError
from hpfem.shapes.arguments import flag

from ...support.files import file_path, opened, path_text, read_file
from ..mesh import Mesh
from ..node_order import vertex_positions
from ..parts import Labels
from ..symmetry import Indices
from .mesh_file import Block, MeshFile, joined
from .msh import read_msh
from .other_formats import converted, read_other
from .vtk_legacy import read_vtk
from .vtk_xml import read_vtu

# How the files begin that we read ourselves.
_BEGINNINGS: tuple[tuple[bytes, Callable[[bytes], MeshFile]], ...] = (
    (b"$MeshFormat", read_msh),
    (b"$Comments", read_msh),
    (b"$NOD", read_msh),
    (b"# vtk DataFile", read_vtk),
    (b"<VTKFile", read_vtu),
)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SUFFIXES: dict[str, Callable[[bytes], MeshFile]] = {".msh": read_msh, ".vtk": read_vtk, ".vtu": read_vtu}


def read_mesh(path: str | PathLike[str], periodic: bool = False) -> Mesh:
    """Read a mesh of any of the shapes from a file.

    gmsh 2.2 and 4.1, text and binary, of order 1 to 9; VTK legacy and XML with linear, complete quadratic and Lagrange
    cells; the linear and complete second-order cells of every other format that meshio reads. Cells of the highest
    dimension make the mesh; those one dimension below name its boundaries, others are left out. Groups of elements
    become `Mesh.regions` and `Mesh.boundaries` under their names, or their numbers where they have none. Cells that
    are mirrored (det J < 0 everywhere) are renumbered.

    Parameters
    ----------
    path : str or path
        The file.
    periodic : bool
        Whether to identify the vertices that a gmsh file pairs; by default the pairs are ignored.

    Returns
    -------
    Mesh

    Raises
    ------
    ArgumentError
        If `path` is no path of a file.
    MeshError
        If the file cannot be read, as pipes and devices cannot, or its mesh cannot be computed on; the message names
        the file, the element and the reason.
    """
    file = file_path(path)
    periodic = flag(periodic, "periodic")
    try:
        content = _content(file)
        return _mesh(content, str(file), periodic)
    except MeshError as error:
        message = str(error).removeprefix(f"{file}: ")
        raise MeshError(f"{path_text(file)}: {message}") from error.__cause__
    except MemoryError:
        raise MeshError(f"{path_text(file)}: there is not enough memory to read it") from None


def from_meshio(mesh: meshio.Mesh) -> Mesh:
    """Make a mesh of one that meshio holds in memory, with the checks of `read_mesh`.

    Parameters
    ----------
    mesh : meshio.Mesh
        Linear and complete second-order cells.

    Returns
    -------
    Mesh

    Raises
    ------
    ArgumentError
        If it is no `meshio.Mesh`.
    MeshError
        If it cannot be computed on; the message names the element and the reason.
    """
    if not isinstance(mesh, meshio.Mesh):
        raise ArgumentError(f"from_meshio takes a meshio.Mesh, got {type(mesh).__name__}; files go to read_mesh")
    return _mesh(converted(mesh), "", periodic=False)


def _content(file: Path) -> MeshFile:
    """What the file says, by the reader that its beginning or its suffix asks for."""
    try:
        with opened(file) as stream:
            beginning = stream.read(4096).removeprefix(_BYTE_ORDER_MARK).lstrip()
        if not beginning:
            raise MeshError("the file is empty")
        reader = next((reader for begin, reader in _BEGINNINGS if beginning.startswith(begin)), None)
        if reader is None and beginning.startswith(b"<?xml") and b"<VTKFile" in beginning:
            reader = read_vtu
        reader = reader or _SUFFIXES.get(file.suffix.lower())
        if reader is None:
            return read_other(file)
        data = read_file(file)
    except OSError as error:
        raise MeshError(f"the file cannot be read: {error.strerror or error}") from error
    return reader(data.removeprefix(_BYTE_ORDER_MARK).lstrip())


def _mesh(content: MeshFile, name: str, periodic: bool) -> Mesh:
    blocks = [block for block in content.blocks if len(block.nodes)]
    if not blocks:
        raise MeshError("the file has no elements")
    dim = max(block.shape.dim for block in blocks)
    if dim < 2:
        raise MeshError("the file has elements of dimension 0 and 1 only; a mesh needs 2-D or 3-D cells")
    cells = [block for block in blocks if block.shape.dim == dim]
    sides = [block for block in blocks if block.shape.dim == dim - 1]
    if periodic and not content.periodic:
        raise MeshError("the file pairs no periodic nodes; read it with periodic=False")
    cells = _distinct(cells)
    return Mesh.from_cells(
        content.points,
        [(block.shape.name, block.order, block.nodes) for block in cells],
        regions=_regions(cells),
        boundaries=_boundaries(sides),
        periodic=content.periodic if periodic else (),
        name=name,
        numbers=joined([block.numbers for block in cells]),
    )


def _regions(cells: Sequence[Block]) -> dict[str, Indices]:
    """Cell numbers by name."""
    regions: dict[str, list[Indices]] = {}
    start = 0
    for block in cells:
        for name, rows in block.sets.items():
            regions.setdefault(name, []).append(start + rows)
        start += len(block.nodes)
    return {name: joined(rows) for name, rows in regions.items()}


def _boundaries(sides: Sequence[Block]) -> dict[str, list[Indices]]:
    """Corner points of boundary elements by name."""
    boundaries: dict[str, list[Indices]] = {}
    for block in sides:
        corners = block.nodes[:, vertex_positions(block.shape, block.order)]
        missing = (block.nodes < 0).any(axis=1)
        if missing.any():
            who = Labels("", block.numbers).cell(block.shape, int(np.argmax(missing)))
            raise MeshError(f"{who} refers to a node that does not exist")
        for name, rows in block.sets.items():
            boundaries.setdefault(name, []).append(corners[rows])
    return boundaries


def _distinct(cells: Sequence[Block]) -> list[Block]:
    """Cells once each: MSH 2.2 repeats those that are in several physical groups."""
    result: list[Block] = []
    for kind in dict.fromkeys((block.shape, block.order) for block in cells):
        same = [block for block in cells if (block.shape, block.order) == kind]
        nodes = np.concatenate([block.nodes for block in same])
        with np.errstate(over="ignore"):
            keys = nodes @ np.random.default_rng(0).integers(2**62, size=nodes.shape[1])
        if len(np.unique(keys)) == len(keys):
            result += same
            continue
        _, first, copy = np.unique(nodes, axis=0, return_index=True, return_inverse=True)
        kept = np.sort(first)
        new_row = np.searchsorted(kept, first[copy.ravel()])
        sets = {name: np.unique(new_row[rows]) for name, rows in _regions(same).items()}
        result.append(Block(*kind, nodes[kept], joined([block.numbers for block in same])[kept], sets))
    return result
