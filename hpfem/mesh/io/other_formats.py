"""Every other format, through meshio: linear and second-order cells.

meshio brings the node orders of second-order cells into VTK's. Cells of higher order come in whatever order their
format has, so they are refused.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpfem.errors import MeshError
from hpfem.shapes import get_shape
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Indices

from ...support.machine import available_memory
from ..node_order import gmsh_nodes, serendipity_nodes, vtk_nodes
from ..sorting import unique
from .library_process import plain
from .mesh_file import ForLibrary, MeshFile, canonical, group_name, grouped, tagged
from .msh import read_msh
from .text_counts import check_counts, check_second_order, names_in, text_of
from .vtk_xml import read_vtu

if TYPE_CHECKING:
    import meshio

# meshio's names of our cells of order 1 and 2.
_NAMES = {
    "point": ("vertex",),
    "segment": ("line", "line3"),
    "tri": ("triangle", "triangle6"),
    "quad": ("quad", "quad9"),
    "tet": ("tetra", "tetra10"),
    "hex": ("hexahedron", "hexahedron27"),
    "prism": ("wedge", "wedge18"),
    "pyramid": ("pyramid", "pyramid14"),
}
CELLS = {cell_type: (name, order) for name, own in _NAMES.items() for order, cell_type in enumerate(own, start=1)}
_SERENDIPITY = {"quad8": "quad", "hexahedron20": "hex", "wedge15": "prism", "pyramid13": "pyramid"}
# VTK has no second-order pyramid of 14 nodes; there the order is gmsh's.
_IN_VTK_ORDER = set(_NAMES) - {"pyramid"}

# Formats that we read ourselves; or, in meshio 5.3.5, a reader that never ends (ansys) or has no cells (neuroglancer).
_NOT_HERE = {"gmsh", "vtk", "vtu", "abaqus", "nastran", "su2", "ansys", "neuroglancer"}

# What gmsh and VTK read, and meshio not or not whole.
_LIBRARIES = {".unv": "gmsh", ".cgns": "gmsh"} | dict.fromkeys((".e", ".ex2", ".exo", ".exii"), "vtk")

# Formats that have points of each grid, zone or cell.
_BY_PIECE = {"xdmf", "tecplot", "stl"}

# What meshio passes over in every file of a format.
_LOST = {"h5m": "sets of .h5m are not read", "tetgen": "faces and edges (.face, .edge) of tetgen are not read"}

# Prefix of sets without cells, in which meshio keeps data for writing gmsh files.
_BOOKS = "gmsh:"

# Meshio's names of integer cell data that group cells, by format.
_SET_NAMES = "gmsh:physical medit:ref cell_tags avsucd:material ugrid:ref tetgen:ref flac3d:group ref".split()

# Limits of a reader: some seconds of its own and gigabytes, and more for larger files; other programs may slow it.
_SLOWER, _OUT_OF_TIME = 15.0, 24
_SECONDS, _SECONDS_PER_BYTE = 2.0, 1e-5
_SECONDS_OF = {"gmsh": 30.0, "vtk": 30.0}
_BYTES, _BYTES_PER_BYTE = 4 << 30, 100


@cache
def _readers() -> dict[str, list[str]]:
    """Meshio's names of the formats that it reads for us, by the suffix of files."""
    from meshio._helpers import extension_to_filetypes, reader_map

    def ours(readers: Iterable[str]) -> list[str]:
        return [reader for reader in readers if reader in reader_map and reader not in _NOT_HERE]

    return {suffix: own for suffix, readers in extension_to_filetypes.items() if (own := ours(readers))}


def read_other(file: Path, suffix: str, ours: list[str]) -> MeshFile:
    """Read a file by meshio, in the format of a suffix."""
    library = _LIBRARIES.get(suffix)
    if library is not None:
        return read_by_library(file, ForLibrary(f"a file {suffix}", library))
    readers = _readers().get(suffix)
    if readers is None:
        can = f"{', '.join(ours[:-1])} and {ours[-1]} can"
        theirs = ", ".join(sorted(_readers()))
        raise MeshError(f"files that end in {file.suffix!r} cannot be read; {can}, and by meshio {theirs}")
    reasons = []
    for reader in readers:
        text = text_of(reader, file)
        check_second_order(reader, text)
        content, reason = _run(reader, file)
        if content is not None:
            n_cells = sum(len(nodes) for _, nodes in content["cells"])
            names = check_counts(reader, text, len(content["points"]), n_cells)
            told = [f"meshio says: {reason}"] if reason else []
            beside = reader != "tetgen" or any(file.with_suffix(end).exists() for end in (".face", ".edge"))
            told += [_LOST[reader]] if reader in _LOST and beside else []
            told += [f"names that are not read: {', '.join(names)}"] if names else []
            return replace(_converted(content), by_piece=reader in _BY_PIECE, warnings=told)
        reasons.append(f"as {reader}: {reason}")
    raise MeshError("meshio cannot read it " + "; ".join(reasons))


def read_by_library(file: Path, error: ForLibrary) -> MeshFile:
    """Read a file by gmsh or VTK where it is installed."""
    if importlib.util.find_spec(error.library) is None:
        raise error
    found, reason = _run(error.library, file)
    if found is None:
        raise MeshError(f"{error.library} cannot read it: {reason}")
    if error.library == "gmsh":
        data, warnings = found
        if b"$Nodes" not in data:
            raise MeshError("gmsh finds no elements in it")
        content = read_msh(data)
        told = [f"gmsh says: {sentence}" for sentence in warnings]
        known = {name for own in content.elements for name in own.sets}
        suffix = file.suffix.lower()
        if lost := [name for name in names_in(suffix, text_of(suffix, file)) if name not in known]:
            told.append(f"names that gmsh does not read: {', '.join(map(shown, lost))}")
        return replace(content, warnings=[*content.warnings, *told])
    data, parts, n_points = found
    content, elements = read_vtu(data), []
    if not parts:
        return content
    names, ends = [name for name, _ in parts], np.cumsum([count for _, count in parts])
    for own in content.elements:
        part = np.searchsorted(ends, own.indices - 1, side="right")
        sets = tagged(part + 1, dict(enumerate(names, start=1)))
        elements.append(replace(own, nodes=own.nodes % n_points, sets=sets))
    return replace(content, points=content.points[:n_points], elements=elements, by_piece=False)


def converted(mesh: meshio.Mesh) -> MeshFile:
    """Convert a mesh of meshio."""
    try:
        content = plain(mesh)
    except Exception as error:
        raise MeshError(f"the meshio.Mesh has data that is not an array: {error!s:.80}") from error
    return _converted(content)


def _run(reader: str, file: Path) -> tuple[Any, str]:
    """The result of a reader of meshio, gmsh or VTK, and what it has said; or None, and the reason."""
    size = file.stat().st_size
    room = min(_BYTES + _BYTES_PER_BYTE * size, available_memory())
    seconds = _SECONDS_OF.get(reader, _SECONDS) + _SECONDS_PER_BYTE * size
    script = Path(__file__).with_name("library_process.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    environment["COLUMNS"] = "1000"  # for lines that are not broken
    try:
        process = subprocess.run(
            [sys.executable, str(script), reader, str(file.absolute()), str(int(room)), f"{seconds:.0f}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SLOWER * seconds,
            check=False,
        )
        status = process.returncode
    except subprocess.TimeoutExpired:
        status = -_OUT_OF_TIME
    if status in (-_OUT_OF_TIME, 128 + _OUT_OF_TIME):
        return None, f"its reader did not end within {seconds:.0f} s"
    said = [line.strip() for line in process.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if process.stdout and status == 0:
        return pickle.loads(process.stdout), "; ".join(dict.fromkeys(line.removeprefix("Warning: ") for line in said))[
            :300
        ]
    return None, said[-1][:200] if said else f"its reader ended with status {status}"


def _converted(content: dict[str, Any]) -> MeshFile:
    points = content["points"]
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise MeshError("meshio finds no points of 2 or 3 coordinates in it")
    tags = next((content["cell_data"][name] for name in _SET_NAMES if name in content["cell_data"]), None)
    # gmsh's names of physical groups: [number, dimension].
    tag_names: dict[int, dict[int, str]] = {dim: {} for dim in range(4)}
    for name, data in content["field_data"].items():
        if data.shape == (2,) and data.dtype.kind in "iu" and 0 <= data[1] <= 3:
            tag_names[int(data[1])][int(data[0])] = name
    named = {name: own for name, own in content["cell_sets"].items() if not name.startswith(_BOOKS)}
    elements, number = [], 1
    for position, (cell_type, nodes) in enumerate(content["cells"]):
        if cell_type not in CELLS and cell_type not in _SERENDIPITY:
            raise MeshError(
                f"element {number} is a {cell_type}, which cannot be used; linear and second-order cells can"
            )
        name, order = CELLS[cell_type] if cell_type in CELLS else (_SERENDIPITY[cell_type], 2)
        shape = get_shape(name)
        if cell_type in _SERENDIPITY:
            reference = serendipity_nodes("vtk", name)
        else:
            reference = (vtk_nodes if name in _IN_VTK_ORDER else gmsh_nodes)(name, order)
        if nodes.dtype.kind not in "iu" or nodes.shape[1:] != (len(reference),):
            raise MeshError(f"element {number} and others of type {cell_type} have nodes of shape {nodes.shape[1:]}")
        members = {name: own[position] for name, own in named.items() if position < len(own)}
        sets = _sets(members, None if tags is None else tags[position], len(nodes), tag_names[shape.dim])
        numbers = np.arange(number, number + len(nodes))
        data = {name: own[position] for name, own in content["cell_data"].items() if len(own[position]) == len(nodes)}
        elements.append(canonical(shape, order, reference, nodes.astype(np.int64), numbers, sets, data))
        number += len(nodes)
    point_sets = {name: _rows(name, rows, len(points)) for name, rows in content["point_sets"].items()}
    return MeshFile(points, elements, point_sets=point_sets)


def _sets(members: dict[str, Indices], tags: Indices | None, count: int, names: dict[int, str]) -> dict[str, Indices]:
    """Names of elements: named sets of meshio, else integer cell data, with the names of the numbers, if any."""
    sets = {name: found for name, rows in members.items() if len(found := _rows(name, rows, count))}
    if not sets and tags is not None and tags.dtype.kind in "iu" and tags.shape == (count,):
        sets = {group_name(tag, names): rows for tag, rows in grouped(tags).items()}
    return sets


def _rows(name: str, rows: Indices, count: int) -> Indices:
    """The same rows once each, in ascending order."""
    if rows.size and (rows.dtype.kind not in "iu" or rows.ndim != 1 or rows.min() < 0 or rows.max() >= count):
        raise MeshError(f"set {shown(name)} refers to what is not there; numbers from 0 to {count - 1} are")
    return unique(rows.astype(np.int64).ravel())
