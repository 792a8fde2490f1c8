"""Read a mesh file of any format, and make a mesh that passed all checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfem.errors import ArgumentError, MeshError
from hpfem.shapes.arguments import flag, shown
from hpfem.shapes.arrays import Array, Indices, frozen

from ...support.communicator import ALONE, Communicator, communicator
from ...support.files import file_path, opened, part_path, path_text, read_file
from ...support.log import warn
from ...support.optional import needed
from ...support.progress import progress_if_long
from ...support.reuse import memory_kept
from ..cells import CellArray, Labels, merged, ordered, used_points
from ..coincident import JOINED, first_points
from ..distribute import distribute, made_on_first
from ..gathered import common_arrays, part_of
from ..mesh import Mesh, fitting_order, mesh_of
from ..named_sets import looked_up
from ..serendipity import completed
from ..sorting import marked, places, unique
from ..topology import numbered
from . import formats
from .mesh_file import Elements, ForLibrary, MeshFile, joined, regions_by_number
from .msh import Bytes, content_of_model, partitions_of_msh, read_msh_partitions
from .other_formats import converted, read_by_library, read_other
from .vtk_xml import pieces_of_pvtu

if TYPE_CHECKING:
    import meshio

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_mesh(
    path: str | PathLike[str],
    periodic: bool = False,
    comm: Any = None,
    *,
    join: bool | None = None,
    regions: str | None = None,
) -> Mesh:
    """Read a mesh of any of the shapes from a file.

    gmsh 2.2 and 4.1, text and binary, of order 1 to 9; VTK legacy and XML with linear, quadratic and Lagrange cells;
    netgen's .vol; MFEM's .mesh of order 1 to 10; Abaqus, Nastran, SU2, and every other format that meshio reads, with
    linear and second-order cells; where gmsh or VTK is installed, MSH 1 and 4.0, UNV, CGNS, Exodus and VTK's other
    grids. Serendipity cells get the nodes that they lack from their own map (`completed`).

    Cells of the highest dimension make the mesh. Groups of elements become `Mesh.regions`, `Mesh.boundaries`,
    `Mesh.edge_sets` (in 3-D) and `Mesh.point_sets` under their names, or their numbers where they have none; sets of
    nodes become sets of points, and what these cover (`Mesh.from_cells`); numbers of cells become `Mesh.cell_data`.
    Cells that are mirrored (det J < 0 everywhere) are renumbered.

    Parameters
    ----------
    path : str or path
        The file. If cube.msh does not exist, but gmsh's files of its partitions, cube_1.msh, cube_2.msh, ..., all of
        these are read.
    periodic : bool
        Whether to identify the vertices that a gmsh file pairs; by default the pairs are ignored.
    comm : Communicator or mpi4py.MPI.Comm, optional
        Processes that get a part each (`distribute`); all that `mpirun` has started when left out, `hpfem.ALONE` for
        the whole mesh. The first process reads the file. Of files that gmsh has partitioned (version 4.1), each process
        reads its own partitions, and of .pvtu files its own pieces.
    join : bool, optional
        Whether coincident points become one point. By default those of VTK's and XDMF's formats do, which have points
        of each cell or piece, and nodes with numbers of their own stay apart, as along a crack. False also says that
        cells are meant to be apart there, and spaces do not warn of it.
    regions : str, optional
        Name of integer data of the file's elements: their values name the regions and boundaries, instead of the groups
        of elements. What nothing uses is told.

    Returns
    -------
    Mesh

    Raises
    ------
    ArgumentError
        If `path` is not a path, or the file has no integer data named `regions`.
    MeshError
        If the file cannot be read (as pipes and devices), or its mesh is unusable; the message names the file, the
        element and the reason.
    """
    comm, given = communicator(comm), (path, periodic, join, regions)
    found = None
    with comm.together():
        if comm.rank == 0:
            found = _partitions(file_path(path))
    files, count = comm.bcast(found)
    if count and (comm.size > 1 or files[0] != file_path(path)):
        comm.same(given, "the file")
        with comm.together():
            join = None if join is None else flag(join, "join")
            if flag(periodic, "periodic"):
                raise MeshError(f"{path_text(path)}: periodic nodes of partitioned files are not read")
            of_vtk = file_path(path).suffix.lower() == ".pvtu"
            if regions is not None and not of_vtk:
                raise MeshError(f"{path_text(path)}: regions={regions!r} of partitioned files are not read")
            if join and not of_vtk:
                raise MeshError(f"{path_text(path)}: coincident nodes of partitioned files are not joined")
        if of_vtk:
            return _read_pieces(file_path(path), files, join, regions, comm)
        return replace(_read_partitions(file_path(path), files, count, comm), apart=join is False)

    def make() -> Mesh:
        file, pairs, joins = file_path(path), flag(periodic, "periodic"), None if join is None else flag(join, "join")
        with _naming(file), memory_kept(), progress_if_long(f"reading {file.name}"):
            content = regions_by_number(_content(file), regions)
            _tell(file, content.warnings)
            return _mesh(content, str(file), pairs, joins)

    return made_on_first(comm, make, given, "the file")


def _partitions(file: Path) -> tuple[list[Path], int]:
    """Files of partitions or pieces, or the one of all of them; and how many there are, 0 for a file without any."""
    if file.suffix.lower() == ".pvtu":
        with _naming(file):
            pieces = [file.parent / name for name in pieces_of_pvtu(_bytes(file))]
        return pieces, len(pieces)
    split = file.suffix.lower() == ".msh" and not os.path.exists(file)
    first = part_path(file, 1) if split else file
    if first.suffix.lower() != ".msh" or not os.path.isfile(first):
        return [file], 0
    try:
        with _mapped(first) as data:
            count = partitions_of_msh(data)
    except (MeshError, OSError):  # reading it reports the error
        count = 1
    if count == 1:
        return [file], 0
    return [part_path(file, number) for number in range(1, count + 1)] if split else [file], count


@contextmanager
def _mapped(file: Path) -> Iterator[Bytes]:
    """The bytes of a file, mapped into memory."""
    with opened(file, whole=False) as stream:
        if not os.fstat(stream.fileno()).st_size:
            yield b""
            return
        with mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
            yield data


def _bytes(file: Path) -> bytes:
    """The bytes of a file."""
    return read_file(file).removeprefix(_BYTE_ORDER_MARK).lstrip()


def _read_partitions(path: Path, files: Sequence[Path], count: int, comm: Communicator) -> Mesh:
    """The mesh of all partitions; each process reads some of them; collective."""
    mine = [number for number in range(1, count + 1) if (number - 1) * comm.size // count == comm.rank]
    parts = []
    with comm.together():
        # One file for each partition, or one file for all.
        split = len(files) == count
        wanted = [(files[number - 1], [number]) for number in mine] if split else [(files[0], mine)][: len(mine)]
        for file, chosen in wanted:
            with _naming(file), _mapped(file) as data:
                parts.append(read_msh_partitions(data, frozenset(chosen)))
        ids, points, elements = _joined(parts)
    _tell(path, [sentence for _, content in parts for sentence in content.warnings], comm)
    mesh = _of_parts(path, points, elements, lambda points, *given: (points, ids, *given), comm)
    return mesh if comm.size <= count else distribute(mesh, comm)


def _read_pieces(path: Path, files: Sequence[Path], join: bool | None, regions: str | None, comm: Communicator) -> Mesh:
    """The mesh of all files of pieces; each process reads some of them; collective."""
    parts = []
    with comm.together():
        for number, file in enumerate(files):
            if number * comm.size // len(files) == comm.rank:
                with _naming(file):
                    parts.append(_content(file))
    known = join is None and comm.all(all(part.ids is not None for part in parts))
    n_cells = [max((int(own.indices.max(initial=0)) for own in part.elements), default=0) for part in parts]
    first, n_points, elements = sum(comm.allgather(sum(n_cells))[: comm.rank]), 0, []
    for part, n in zip(parts, n_cells, strict=True):
        elements += [replace(own, nodes=own.nodes + n_points, indices=own.indices + first) for own in part.elements]
        first, n_points = first + n, n_points + len(part.points)
    points = np.concatenate([np.empty((0, 3)), *(part.points for part in parts)])
    keys = joined([part.ids for part in parts if part.ids is not None]) if known else None
    told = [sentence for part in parts for sentence in part.warnings]
    with _naming(path):
        content = regions_by_number(MeshFile(points, elements, by_piece=True, ids=keys, warnings=told), regions, comm)
    _tell(path, content.warnings, comm)
    if comm.size == 1:
        with _naming(path):
            return _mesh(content, str(path), False, join)

    n_given = 0

    def met(points: Array, arrays: list[CellArray], sides: dict[Any, list[Indices]]) -> tuple[Any, ...]:
        nonlocal n_given
        used, counts = marked(len(points), (array.nodes for array in arrays)), comm.allgather(len(points))
        # Points of cells come before those that only elements of sides have.
        own = sum(counts[: comm.rank]) + np.arange(len(points)) + np.where(used, 0, sum(counts))
        found, where = own, points
        if join is not False:
            corners = [rows for blocks in sides.values() for rows in blocks]
            found, where = first_points(points, numbered(arrays, len(points))[0], corners, own, keys, comm)
            n_joined = int(comm.sum(np.count_nonzero(found[used] != own[used])))
            if n_joined and comm.rank == 0:
                warn(f"{path}: {n_joined} {JOINED}")
        # Any process may have the cells of a side.
        given: dict[Any, list[Indices]] = {}
        for each in comm.allgather({name: [found[rows] for rows in blocks] for name, blocks in sides.items()}):
            for name, blocks in each.items():
                given.setdefault(name, []).extend(blocks)
        for blocks in given.values():
            rows = [np.pad(np.sort(own, axis=1), ((0, 0), (4 - own.shape[1], 0))) for own in blocks]
            n_given += len(np.unique(np.concatenate(rows), axis=0))
        found, at, row = np.unique(found, return_index=True, return_inverse=True)
        arrays = [replace(array, nodes=row[array.nodes]) for array in arrays]
        where, arrays, new_number = used_points(where[at], arrays, flat=False)
        ids = found[new_number >= 0]
        return where, ids, arrays, {name: [places(ids, rows) for rows in blocks] for name, blocks in given.items()}

    mesh = _of_parts(path, points, [own for own in content.elements if len(own)], met, comm)
    n_found = comm.sum(sum(map(len, mesh.entity_sets.values())))
    mesh = _told_of_stray(replace(mesh, apart=join is False, n_stray=n_given - int(n_found)), path)
    return mesh if comm.size <= len(files) else distribute(mesh, comm)


def _of_parts(
    path: Path, points: Array, elements: list[Elements], numbered: Callable[..., tuple[Any, ...]], comm: Communicator
) -> Mesh:
    """The mesh of what each process has read; `numbered` adds the numbers of points in the whole mesh; collective."""
    with comm.together():
        points, elements = completed(points, elements)
    dim = int(comm.max(max((own.shape.dim for own in elements), default=0)))
    cells = [own for own in elements if own.shape.dim == dim]
    arrays = _arrays(cells)
    labels, corners = Labels(str(path), frozen(joined([own.indices for own in cells]))), _corners(elements, dim)
    with comm.together():
        of_cells: dict[str, Any] = {"regions": _regions(cells), "cell_data": _cell_data(cells)}
    if comm.size == 1:
        return mesh_of(points, arrays, labels, **of_cells, **_sides(corners, dim), periodic=())
    arrays = common_arrays(arrays, comm)
    with comm.together():
        if not arrays:
            raise labels.error("there are no cells")
    points, ids, arrays, corners = numbered(points, arrays, corners)
    return part_of(comm, points, ids, arrays, labels, **of_cells, **_sides(corners, dim))


def _joined(parts: Sequence[tuple[Indices, MeshFile]]) -> tuple[Indices, Array, list[Elements]]:
    """Numbers of points, the points, and elements of several partitions."""
    ids, first = np.unique(joined([own for own, _ in parts]), return_index=True)
    points = np.concatenate([np.empty((0, 3)), *(content.points for _, content in parts)])[first]
    elements = []
    for own, content in parts:
        rows = np.searchsorted(ids, own)
        elements += [replace(each, nodes=looked_up(rows, each.nodes)) for each in content.elements if len(each)]
    return ids, points, elements


def _tell(path: Path | str, sentences: Sequence[str], comm: Communicator = ALONE) -> None:
    """Give the warnings of all processes, once each, on the first one; collective."""
    told = dict.fromkeys(sentence for own in comm.allgather(list(sentences)) for sentence in own)
    for sentence in told if comm.rank == 0 else ():
        warn(f"{path_text(path)}: {sentence}")


def _told_of_stray(mesh: Mesh, path: Path | str) -> Mesh:
    """A mesh, with a warning of what has a name and is no part of it; collective."""
    what = "elements or points with a name that are no facet, edge or vertex of a cell"
    _tell(path, [f"{what}: {mesh.n_stray}"] * (mesh.n_stray > 0), mesh.comm)
    return mesh


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Add the name of the file to errors of reading it."""
    try:
        yield
    except OSError as error:
        raise MeshError(f"{path_text(file)}: the file cannot be read: {error.strerror or error}") from error
    except MeshError as error:
        message = str(error).removeprefix(f"{file}: ")
        raise MeshError(f"{path_text(file)}: {message}") from error.__cause__
    except MemoryError:
        raise MeshError(f"{path_text(file)}: there is not enough memory to read it") from None


def from_meshio(mesh: meshio.Mesh, *, regions: str | None = None) -> Mesh:
    """Make a mesh from a mesh of meshio of linear and second-order cells, otherwise as `read_mesh`.

    Parameters
    ----------
    mesh : meshio.Mesh
    regions : str, optional
        Name of integer cell data; see `read_mesh`.

    Returns
    -------
    Mesh
    """
    import meshio

    if not isinstance(mesh, meshio.Mesh):
        raise ArgumentError(f"from_meshio takes a meshio.Mesh, got {type(mesh).__name__}; files go to read_mesh")
    content = regions_by_number(converted(mesh), regions)
    _tell("from_meshio", content.warnings)
    return _mesh(content, "meshio's mesh", periodic=False)


def from_gmsh(model: Any = None, *, periodic: bool = False, comm: Any = None) -> Mesh:
    """Make a mesh from a model that gmsh has meshed in this program, without a file, otherwise as `read_mesh`.

    Physical groups become regions and boundaries. Cells in no group are left out if others are in one.

    Parameters
    ----------
    model : gmsh.model, optional
        gmsh's current model when left out; that of the first process.
    periodic, comm
        See `read_mesh`; `gmsh.model.mesh.setPeriodic` pairs vertices.

    Returns
    -------
    Mesh

    Raises
    ------
    ArgumentError
        If gmsh is not installed or not initialized, or the model is none.
    MeshError
        If the model has no elements, or they make no mesh, as for `read_mesh`.
    """

    def make() -> Mesh:
        pairs, own = flag(periodic, "periodic"), model
        if own is None:
            gmsh = needed("gmsh", "from_gmsh", "gmsh")
            if not gmsh.isInitialized():
                raise ArgumentError("from_gmsh: gmsh has no model; make one after gmsh.initialize()")
            own = gmsh.model
        if not hasattr(own, "getPhysicalGroups"):
            raise ArgumentError(f"from_gmsh takes gmsh.model, got {shown(own)}; files go to read_mesh")
        content = content_of_model(own)
        if not content.elements:
            raise MeshError("from_gmsh: the model has no elements; call gmsh.model.mesh.generate(3) first")
        _tell("from_gmsh", content.warnings)
        return _mesh(content, "gmsh's model", pairs)

    return made_on_first(comm, make, periodic, "from_gmsh")


def _content(file: Path) -> MeshFile:
    """Content of a file, by the reader that its beginning or its suffix asks for."""
    with opened(file) as stream:
        beginning = stream.read(4096).removeprefix(_BYTE_ORDER_MARK).lstrip()
    if not beginning:
        raise MeshError("the file is empty")
    known = formats.format_of(beginning, file.suffix.lower())
    if known is None or known.read is None:
        suffix = file.suffix.lower() if known is None else known.suffix
        return read_other(file, suffix, [own.suffix for own in formats.FORMATS if own.read])
    try:
        return known.read(_bytes(file))
    except ForLibrary as error:
        return read_by_library(file, error)


def _mesh(content: MeshFile, name: str, periodic: bool, join: bool | None = None) -> Mesh:
    """The mesh of a file; an error says if it is fine in another order of the nodes than that of the format."""

    def made(ordering: str) -> Mesh:
        other = [_in_other_order(own, ordering) for own in content.elements]
        if all(new is old for new, old in zip(other, content.elements, strict=True)):
            raise MeshError("the order is the same")
        return _made(replace(content, elements=other), name, periodic, join)

    try:
        mesh = _made(content, name, periodic, join)
    except MeshError as error:
        if (better := fitting_order(made)) is None:
            raise
        message = f"{error}; it is fine if its nodes are in the order {better!r}, not in that of the format"
        raise MeshError(message) from None
    return _told_of_stray(mesh, name)


def _in_other_order(own: Elements, ordering: str) -> Elements:
    """Elements with their nodes taken in another order than that of the format; the same ones if it does not differ."""
    if own.columns is None:
        return own
    other = ordered(replace(own, nodes=own.nodes[:, np.argsort(own.columns)]), ordering)
    return own if np.array_equal(other.nodes, own.nodes) else other


def _made(content: MeshFile, name: str, periodic: bool, join: bool | None) -> Mesh:
    points, elements = completed(content.points, [own for own in content.elements if len(own)])
    if not elements:
        raise MeshError("the file has no elements")
    dim = max(own.shape.dim for own in elements)
    if dim < 2:
        raise MeshError("the file has elements of dimension 0 and 1 only; a mesh needs 2-D or 3-D cells")
    if periodic and not content.periodic:
        raise MeshError("the file pairs no periodic nodes; read it with periodic=False")
    for own in elements:
        missing = (own.nodes < 0).any(axis=1)
        if own.shape.dim < dim and missing.any():
            who = f"element {own.indices[np.argmax(missing)]} ({own.shape.name})"
            raise MeshError(f"{who} refers to a node that does not exist")
    cells = _distinct([own for own in elements if own.shape.dim == dim])
    return mesh_of(
        points,
        _arrays(cells),
        Labels(name, frozen(joined([own.indices for own in cells]))),
        regions=_regions(cells),
        cell_data=_cell_data(cells),
        **_sides(_corners(elements, dim), dim),
        nodes=content.point_sets,
        periodic=content.periodic if periodic else (),
        join=True if join is None and content.by_piece else join,
        keys=content.ids if join is None else None,
    )


def _arrays(cells: Sequence[Elements]) -> list[CellArray]:
    """The cells, numbered as they come."""
    starts = np.cumsum([0, *map(len, cells)])
    return merged([CellArray(c.shape, c.order, c.nodes, n + np.arange(len(c))) for c, n in zip(cells, starts)])


def _regions(cells: Sequence[Elements]) -> dict[str, Indices]:
    """Positions of the cells by name."""
    regions: dict[str, list[Indices]] = {}
    start = 0
    for own in cells:
        for name, rows in own.sets.items():
            regions.setdefault(name, []).append(start + rows)
        start += len(own)
    return {name: joined(rows) for name, rows in regions.items()}


def _corners(elements: Sequence[Elements], dim: int) -> dict[tuple[int, str], list[Indices]]:
    """Points at the corners of elements of dimensions below one, by their dimension and name."""
    found: dict[tuple[int, str], list[Indices]] = {}
    for own in elements:
        for name, rows in own.sets.items() if own.shape.dim < dim else ():
            corners = own.corners if own.shape.dim else own.nodes
            found.setdefault((own.shape.dim, name), []).append(corners[rows])
    return found


def _sides(corners: dict[tuple[int, str], list[Indices]], dim: int) -> dict[str, Any]:
    """The same as arguments of `mesh_of`."""
    boundaries = {name: blocks for (of, name), blocks in corners.items() if of == dim - 1}
    return {"boundaries": boundaries, "lower": {key: own for key, own in corners.items() if key[0] < dim - 1}}


def _cell_data(cells: Sequence[Elements]) -> dict[str, Array]:
    """Values of all cells by name; not a number in cells without."""
    shapes = {name: values.shape[1:] for own in cells for name, values in own.data.items()}
    result = {}
    for name, shape in shapes.items():
        parts = [own.data.get(name, np.full((len(own), *shape), np.nan)) for own in cells]
        if any(part.shape[1:] != shape for part in parts):
            raise MeshError(f"the data {name!r} have several numbers of components")
        result[name] = np.concatenate(parts)
    return result


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
        sets = {name: unique(new_row[rows]) for name, rows in _regions(same).items()}
        data = {name: values[kept] for name, values in _cell_data(same).items()}
        result.append(Elements(*kind, nodes[kept], joined([own.indices for own in same])[kept], sets, data))
    return result
