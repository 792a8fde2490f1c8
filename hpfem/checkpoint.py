"""Fields with their spaces and meshes in HDF5 files, exact to the last bit, to continue later or elsewhere.

/                attributes "format" and "version"
/meshes/i        points, regions, named sides, cell data; /cells/j: shape, order, nodes, numbers, vertices
/spaces/i        mesh, orders, basis, quadrature, dtype; for each block what its coefficients refer to
/fields/i        name, space, state; an array for each block

If processes share a mesh, each process writes such a file with its cells; /meshes/i/part says how they fit into the
whole mesh. The file that the user names holds the number of these files. Another number of processes finds the
coefficients of a cell by the number of the cell in the whole mesh. They mean the same in any part, because vertices are
ranked in the whole mesh.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import SHAPES
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Indices, frozen

from .errors import ArgumentError, HpfemError
from .mesh import CellArray, Mesh, Topology
from .mesh.distribute import new_owners
from .mesh.gathered import moved, numbers_of, packed, unpacked
from .mesh.hanging import Hanging
from .mesh.mesh import groups_of, named_entities
from .mesh.part import Part
from .space import Block, Field, Space
from .space.arguments import named_rules
from .support.communicator import ALONE, Communicator, communicator
from .support.files import atomic_path, file_path, opened, part_path, path_text, plain
from .support.optional import needed
from .version import __version__

_FORMAT = "hpfem checkpoint 3"
# Options of a space and the attributes that hold them; attributes of a mesh that are numbers or texts.
_OPTIONS = {"order": "orders", "basis": "basis", "quadrature": "quadrature", "dtype": "dtype"}
_PLAIN = ("n_vertices", "name", "n_mirrored", "n_stray", "periodic", "apart")


def save(path: str | PathLike[str], fields: Field | Mapping[str, Field]) -> None:
    """Save fields with their spaces and meshes to an HDF5 file; `load` restores them bit by bit.

    If processes share a mesh, this is collective: beside "u.h5" each process writes a file, "u_0.h5", "u_1.h5", ...

    Parameters
    ----------
    path : path
        File to write. An old file is replaced only when the new one is complete.
    fields : Field or mapping of str to Field
        In any state, on one or several spaces. A single field gets the name "u".

    Raises
    ------
    ArgumentError
        If there are no fields, the file cannot be written, or h5py is not installed.
    """
    h5py = needed("h5py", "hp.save", "hpfem[checkpoint]")
    named = {"u": fields} if isinstance(fields, Field) else fields
    if not isinstance(named, Mapping) or not named or not all(isinstance(name, str) for name in named):
        raise ArgumentError(f"save takes a field, or a mapping from names to fields, got {shown(fields)}")
    for name, field in named.items():
        if not isinstance(field, Field):
            raise ArgumentError(f"save takes fields; {shown(name)} is a {type(field).__name__}")
        if "\0" in name:
            raise ArgumentError(f"a field cannot be called {shown(name)} in a file")
    arrays = {name: [pair.read() for pair in field.data] for name, field in named.items()}
    spaces = list(dict.fromkeys(field.space for field in named.values()))
    meshes = list(dict.fromkeys(space.mesh for space in spaces))
    comm, target = max((mesh.comm for mesh in meshes), key=lambda comm: comm.size), file_path(path)
    # Tells files of different saves apart.
    token = comm.bcast(secrets.token_hex(8))
    own = target if comm.size == 1 else part_path(target, comm.rank)
    with atomic_path(own, comm=comm) as temporary, _created(h5py, temporary, token) as file:
        for i, mesh in enumerate(meshes):
            _write_mesh(file.create_group(f"meshes/{i}"), mesh)
        for i, space in enumerate(spaces):
            _write_space(file.create_group(f"spaces/{i}"), space, meshes.index(space.mesh))
        for i, (name, field) in enumerate(named.items()):
            group = file.create_group(f"fields/{i}")
            group.attrs["name"], group.attrs["state"] = name, field.state
            group.attrs["space"] = spaces.index(field.space)
            for block, array in enumerate(arrays[name]):
                group[str(block)] = array
    if comm.size > 1:
        with comm.together():
            if comm.rank == 0:
                with atomic_path(target) as temporary, _created(h5py, temporary, token) as file:
                    file.attrs["processes"] = comm.size


def _created(h5py: Any, path: Path, token: str) -> Any:
    """A new file."""
    file = h5py.File(path, "w", track_order=True)
    file.attrs["format"], file.attrs["version"], file.attrs["token"] = _FORMAT, __version__, token
    return file


def load(path: str | PathLike[str], backend: str = "auto", comm: Any = None) -> dict[str, Field]:
    """Load the fields of a file that `save` wrote; collective.

    Parameters
    ----------
    path : path
        The file.
    backend : str
        Backend of the spaces; see `Space`.
    comm : Communicator or mpi4py.MPI.Comm, optional
        Processes that get a part each: by default all that `mpirun` has started; `hpfem.ALONE` for the whole mesh. If
        their number is that of the save, each loads its own part. Else METIS partitions the mesh again.

    Returns
    -------
    dict of str to Field
        By name, in the order of the save, on the host. Fields that shared a space share one again.

    Raises
    ------
    ArgumentError
        If the file cannot be read, was not written by `save` or is damaged, if h5py is not installed, or if another
        number of processes saved fields on a mesh that they do not share.
    DeviceError
        If the mesh must be partitioned again and pymetis is missing.
    """
    h5py = needed("h5py", "hp.load", "hpfem[checkpoint]")
    file, comm = file_path(path), communicator(comm)
    with comm.together(), _reading(file), _opened(h5py, file) as content:
        saved, token = int(content.attrs.get("processes", 1)), content.attrs.get("token")
    found = []
    with comm.together():
        for i in range(saved):
            if i * comm.size // saved != comm.rank:
                continue
            own = file if saved == 1 else part_path(file, i)
            with _reading(own), _opened(h5py, own) as content:
                if content.attrs.get("token") != token:
                    raise ArgumentError(f"{path_text(own)} belongs to another save than {path_text(file)}")
                found.append(_fields(content, backend, comm if saved == comm.size else ALONE))
        if saved not in (1, comm.size) and any(
            field.space.mesh.part is None for own in found for field in own.values()
        ):
            raise ArgumentError(
                f"{path_text(file)} was saved by {saved} processes, with fields on a mesh that each has alone, and"
                f" cannot be loaded by {comm.size}; start {saved}"
            )
    return found[0] if saved == comm.size else _cut_anew(found, backend, comm)


def _cut_anew(found: list[dict[str, Field]], backend: str, comm: Communicator) -> dict[str, Field]:
    """Move fields, as read from files, to a new partition; a process may have read none; collective."""
    meshes = [_meshes(own) for own in found]
    # Processes that have read no file learn the meshes, spaces and fields from the first process.
    empty, options, fields = comm.bcast(_outline(found[0]) if found else ([], [], {}))
    cut: list[tuple[Mesh, Indices, Indices]] = []
    for i, (nothing, hanging) in enumerate(empty):
        pieces = [packed(own[i], np.arange(own[i].n_cells)) for own in meshes] or [nothing]
        mesh = unpacked(pieces).mesh(comm, hanging)
        owners = np.zeros(mesh.n_cells, dtype=np.int64) if comm.size == 1 else new_owners(mesh)
        cut.append((mesh if comm.size == 1 else moved(mesh, owners), numbers_of(mesh), owners))
    spaces = [Space(cut[i][0], **own, backend=backend) for i, own in options]
    result = {}
    for name, (i, state, components) in fields.items():
        mesh, numbers, owners = cut[options[i][0]]
        given: dict[int, list[tuple[str, Indices, NDArray[Any]]]] = {rank: [] for rank in range(comm.size)}
        for field in (own[name] for own in found):
            for block, array in zip(field.space.blocks, field.arrays, strict=True):
                cells = numbers_of(field.space.mesh)[block.elements]
                owner = owners[np.searchsorted(numbers, cells)]
                for rank in np.unique(owner).tolist():
                    given[rank].append((block.shape.name, cells[owner == rank], array[:, owner == rank]))
        taken: dict[str, list[tuple[Indices, NDArray[Any]]]] = {}
        for parts in comm.alltoall(given).values():
            for shape, cells, values in parts:
                taken.setdefault(shape, []).append((cells, values))
        result[name] = field = spaces[i].zeros(state, components)
        for block, array in zip(field.space.blocks, field.arrays, strict=True):
            if block.n_elements:
                cells, values = zip(*taken[block.shape.name], strict=True)
                cells, values = np.concatenate(cells), np.concatenate(values, axis=1)
                order = np.argsort(cells)
                array[:] = values[:, order[np.searchsorted(cells, numbers_of(mesh)[block.elements], sorter=order)]]
    return result


def _meshes(fields: Mapping[str, Field]) -> list[Mesh]:
    """The meshes of fields, each once."""
    return list(dict.fromkeys(field.space.mesh for field in fields.values()))


def _outline(fields: Mapping[str, Field]) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Meshes without cells but with hanging vertices; mesh and options of each space; space, state and components."""
    meshes, spaces = _meshes(fields), list(dict.fromkeys(field.space for field in fields.values()))
    return (
        [(packed(mesh, np.arange(0)), mesh.hanging) for mesh in meshes],
        [(meshes.index(own.mesh), {key: getattr(own, name) for key, name in _OPTIONS.items()}) for own in spaces],
        {name: (spaces.index(own.space), own.state, own.components) for name, own in fields.items()},
    )


@contextmanager
def _opened(h5py: Any, file: Path) -> Iterator[Any]:
    """Open a file of `save`."""
    with opened(file), h5py.File(file, "r") as content:
        if content.attrs.get("format") != _FORMAT:
            raise ArgumentError(f"{path_text(file)} was not written by hp.save of this version")
        yield content


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn errors of the body into one that says that the file cannot be loaded."""
    try:
        yield
    except HpfemError:
        raise
    except (OSError, KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or f"it is not a complete file of hp.save ({str(error)[:100]})"
        raise ArgumentError(f"{path_text(file)} cannot be loaded: {reason}") from error


def _fields(content: Any, backend: str, comm: Communicator) -> dict[str, Field]:
    """The fields of an open file."""
    meshes = [_read_mesh(content[f"meshes/{i}"], comm) for i in range(len(content["meshes"]))]
    spaces = [_read_space(content[f"spaces/{i}"], meshes, backend) for i in range(len(content["spaces"]))]
    found = {}
    for i in range(len(content["fields"])):
        group = content[f"fields/{i}"]
        space = spaces[int(group.attrs["space"])]
        arrays = [group[str(block)][()] for block in range(len(space.blocks))]
        found[str(group.attrs["name"])] = space.field(str(group.attrs["state"]), arrays)
    return found


def _write_mesh(group: Any, mesh: Mesh) -> None:
    group["points"] = mesh.points
    for name in _PLAIN:
        group.attrs[name] = getattr(mesh, name)
    if mesh.numbers is not None:
        group["numbers"] = mesh.numbers
    named: dict[str, Mapping[Any, NDArray[Any]]] = {"regions": mesh.regions, "data": mesh.cell_data}
    for section, sets in {**named, "sides": mesh.entity_sets}.items():
        for i, (name, members) in enumerate(sets.items()):
            own = group.create_dataset(f"{section}/{i}", data=members)
            own.attrs["dim"], own.attrs["name"] = name if isinstance(name, tuple) else (-1, name)
    for i, cells in enumerate(mesh.cells):
        own = group.create_group(f"cells/{i}")
        own.attrs["shape"], own.attrs["order"] = cells.shape.name, cells.order
        own["nodes"], own["indices"], own["vertices"] = cells.nodes, cells.indices, cells.vertices
    if mesh.part is not None:
        _write_part(group.create_group("part"), mesh.part)


def _write_part(group: Any, part: Part) -> None:
    for name in ("cells", "vertices", "ranks"):
        group[name] = getattr(part, name)
    group["hanging places"], group["hanging cells"] = part.hanging.places, part.hanging.cells
    group.attrs["hanging label"] = part.hanging.label
    group["counts of cells"] = part.counts_of_cells
    for dim, shared in enumerate(part.corners):
        for rank, rows in shared.items():
            group[f"corners/{dim}/{rank}"] = rows


def _read_part(group: Any, dim: int, comm: Communicator) -> Part:
    if "shared" in group:  # by ids
        raise ArgumentError("the file has parts of an earlier version: save the fields again with this one")
    hanging = Hanging(group["hanging places"][()], group["hanging cells"][()], str(group.attrs["hanging label"]))
    names = [f"corners/{d}" for d in range(dim)]
    shared = tuple({int(r): group[name][r][()] for r in group[name]} if name in group else {} for name in names)
    counts = tuple(group["counts of cells"][()].tolist())
    return Part(comm, group["cells"][()], group["vertices"][()], group["ranks"][()], hanging, shared, counts)


def _read_mesh(group: Any, comm: Communicator) -> Mesh:
    arrays, vertices = [], []
    for i in range(len(group["cells"])):
        own = group[f"cells/{i}"]
        shape, order = SHAPES[str(own.attrs["shape"])], int(own.attrs["order"])
        arrays.append(CellArray(shape, order, own["nodes"][()], own["indices"][()]))
        vertices.append(own["vertices"][()])
    topology = Topology(arrays, vertices, int(group.attrs["n_vertices"]))
    sets: dict[str, dict[tuple[int, str], NDArray[Any]]] = {}
    for section in ("regions", "sides", "data"):
        members = [group[f"{section}/{i}"] for i in range(len(group[section]))] if section in group else []
        key = [(int(own.attrs["dim"]), str(own.attrs["name"])) for own in members]
        sets[section] = {key: frozen(own[()]) for key, own in zip(key, members, strict=True)}
    part = _read_part(group["part"], topology.dim, comm) if "part" in group else None
    return Mesh(
        frozen(group["points"][()]),
        groups_of(topology if part is None else topology.cut(part.beyond)),
        MappingProxyType({name: own for (_, name), own in sets["regions"].items()}),
        numbers=frozen(group["numbers"][()]) if "numbers" in group else None,
        part=part,
        **{name: plain(group.attrs[name]) for name in _PLAIN},
        cell_data=MappingProxyType({name: own for (_, name), own in sets["data"].items()}),
        **named_entities(topology.dim, sets["sides"]),
    )


def _write_space(group: Any, space: Space, mesh: int) -> None:
    group.attrs["mesh"], group.attrs["basis"], group.attrs["dtype"] = mesh, space.basis, str(space.dtype)
    given = space.quadrature
    rules = named_rules(given, space.orders) if given is None or isinstance(given, Mapping) else given
    group.attrs["quadrature"] = json.dumps(rules, default=int)
    for name, order in space.orders.items():
        group.attrs[f"order of {name}"] = order
    group.attrs["blocks"] = [_fingerprint(space, block) for block in space.blocks]


def _fingerprint(space: Space, block: Block) -> int:
    """A number that changes with the cells of a block, their order, and the order of their nodes."""
    if not block.n_elements:
        return 0
    mesh = space.mesh
    group = mesh.aligned[int(mesh.locations[0][block.elements[0]])]
    nodes = group.nodes[mesh.aligned_topology.locations[1][block.elements]]
    return zlib.crc32(nodes.tobytes(), zlib.crc32(block.elements.tobytes()))


def _read_space(group: Any, meshes: list[Mesh], backend: str) -> Space:
    mesh, given = meshes[int(group.attrs["mesh"])], json.loads(group.attrs["quadrature"])
    orders = {shape.name: int(group.attrs[f"order of {shape.name}"]) for shape in mesh.shapes}
    if given is None or isinstance(given, dict):  # older files name no default: it was the collapsed rule
        given = dict.fromkeys(orders, "collapsed") | named_rules(given or {}, {})
        given = None if given == named_rules(None, orders) else given
    space = Space(mesh, orders, str(group.attrs["basis"]), given, str(group.attrs["dtype"]), backend=backend)
    if [_fingerprint(space, block) for block in space.blocks] != [int(own) for own in group.attrs["blocks"]]:
        raise ArgumentError("the file was written by a version of hpfem that orders cells otherwise; load it with that")
    return space
