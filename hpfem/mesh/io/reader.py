"""Read a mesh file of any format: what it says, made into a mesh that passed all checks."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfem.errors import ArgumentError, MeshError
from hpfem.shapes.arguments import flag

from ...support.files import file_path, opened, path_text, read_file
from ...support.immutable import frozen
from ..cells import CellArray, Labels, merged
from ..distribute import made_on_first
from ..mesh import Mesh, mesh_of
from ..symmetry import Indices
from . import formats
from .mesh_file import Elements, MeshFile, joined
from .other_formats import converted, read_other

if TYPE_CHECKING:
    import meshio

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_mesh(path: str | PathLike[str], periodic: bool = False, comm: Any = None) -> Mesh:
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
    comm : Communicator or mpi4py.MPI.Comm, optional
        Processes that get a part each (`distribute`), of which the first one reads; all that `mpirun` has started when
        left out, `hpfem.ALONE` for the whole mesh.

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
    given = (path, periodic)
    return made_on_first(comm, lambda: _read(file_path(path), flag(periodic, "periodic")), given, "the file")


def _read(file: Path, periodic: bool) -> Mesh:
    """The whole mesh of a file."""
    try:
        return _mesh(_content(file), str(file), periodic)
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
    import meshio

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
        known = formats.format_of(beginning, file.suffix.lower())
        if known is None:
            return read_other(file, [own.suffix for own in formats.FORMATS])
        data = read_file(file)
    except OSError as error:
        raise MeshError(f"the file cannot be read: {error.strerror or error}") from error
    return known.read(data.removeprefix(_BYTE_ORDER_MARK).lstrip())


def _mesh(content: MeshFile, name: str, periodic: bool) -> Mesh:
    elements = [own for own in content.elements if len(own)]
    if not elements:
        raise MeshError("the file has no elements")
    dim = max(own.shape.dim for own in elements)
    if dim < 2:
        raise MeshError("the file has elements of dimension 0 and 1 only; a mesh needs 2-D or 3-D cells")
    if periodic and not content.periodic:
        raise MeshError("the file pairs no periodic nodes; read it with periodic=False")
    cells = _distinct([own for own in elements if own.shape.dim == dim])
    ends = np.cumsum([len(own) for own in cells])
    arrays = [
        CellArray(own.shape, own.order, own.nodes, np.arange(end - len(own), end))
        for own, end in zip(cells, ends, strict=True)
    ]
    return mesh_of(
        content.points,
        merged(arrays),
        Labels(name, frozen(joined([own.indices for own in cells]))),
        regions=_regions(cells),
        boundaries=_boundaries([own for own in elements if own.shape.dim == dim - 1]),
        periodic=content.periodic if periodic else (),
    )


def _regions(cells: Sequence[Elements]) -> dict[str, Indices]:
    """Positions of the cells by name."""
    regions: dict[str, list[Indices]] = {}
    start = 0
    for own in cells:
        for name, rows in own.sets.items():
            regions.setdefault(name, []).append(start + rows)
        start += len(own)
    return {name: joined(rows) for name, rows in regions.items()}


def _boundaries(sides: Sequence[Elements]) -> dict[str, list[Indices]]:
    """Points at the corners of boundary elements by name."""
    boundaries: dict[str, list[Indices]] = {}
    for own in sides:
        corners, missing = own.corners, (own.nodes < 0).any(axis=1)
        if missing.any():
            who = f"element {own.indices[np.argmax(missing)]} ({own.shape.name})"
            raise MeshError(f"{who} refers to a node that does not exist")
        for name, rows in own.sets.items():
            boundaries.setdefault(name, []).append(corners[rows])
    return boundaries


def _distinct(cells: Sequence[Elements]) -> list[Elements]:
    """Cells once each: MSH 2.2 repeats those that are in several physical groups."""
    result: list[Elements] = []
    for kind in dict.fromkeys((own.shape, own.order) for own in cells):
        same = [own for own in cells if (own.shape, own.order) == kind]
        nodes = np.concatenate([own.nodes for own in same])
        with np.errstate(over="ignore"):
            keys = nodes @ np.random.default_rng(0).integers(2**62, size=nodes.shape[1])
        keys.sort()
        if not (keys[1:] == keys[:-1]).any():
            result += same
            continue
        _, first, copy = np.unique(nodes, axis=0, return_index=True, return_inverse=True)
        kept = np.sort(first)
        new_row = np.searchsorted(kept, first[copy.ravel()])
        sets = {name: np.unique(new_row[rows]) for name, rows in _regions(same).items()}
        result.append(Elements(*kind, nodes[kept], joined([own.indices for own in same])[kept], sets))
    return result
