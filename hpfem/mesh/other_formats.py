"""Every other format, through meshio: linear and complete second-order cells.

meshio prints its complaints, leaves the process on some errors and lets whatever exception happens inside it through;
all of that becomes one `MeshError` here. It brings the node orders of the formats into VTK's for second-order cells;
of higher orders it passes the format's own order through unnamed, so they are refused.
"""

from __future__ import annotations

import contextlib
import io
import struct
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import meshio
import numpy as np
from meshio._helpers import extension_to_filetypes, reader_map

from hpfem.errors import MeshError

from .mesh_file import Block, MeshFile, canonical, shape_named
from .node_order import gmsh_nodes, vtk_nodes
from .symmetry import Indices

_CELLS = {
    "vertex": ("point", 1),
    "line": ("segment", 1),
    "line3": ("segment", 2),
    "triangle": ("tri", 1),
    "triangle6": ("tri", 2),
    "quad": ("quad", 1),
    "quad9": ("quad", 2),
    "tetra": ("tet", 1),
    "tetra10": ("tet", 2),
    "hexahedron": ("hex", 1),
    "hexahedron27": ("hex", 2),
    "wedge": ("prism", 1),
    "wedge18": ("prism", 2),
    "pyramid": ("pyramid", 1),
    "pyramid14": ("pyramid", 2),
}
_OURS = {"gmsh", "vtk", "vtu"}

# Integer cell data that group cells, as meshio calls them, format by format.
_SET_NAMES = (
    "medit:ref",
    "su2:tag",
    "cell_tags",
    "avsucd:material",
    "nastran:ref",
    "flac3d:group",
    "ansys:group",
    "ref",
)

# What meshio's readers let through when a file is not what they expect.
_FAILURES = (
    meshio.ReadError, ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, ImportError, LookupError,
    MemoryError, NameError, OSError, RecursionError, RuntimeError, SyntaxError, SystemExit, TypeError, ValueError,
    struct.error, ElementTree.ParseError,
)  # fmt: skip

# Output is redirected for the whole process.
_LOCK = threading.Lock()


def readable_suffixes() -> list[str]:
    """Suffixes of the formats that meshio reads."""
    return sorted(suffix for suffix, kinds in extension_to_filetypes.items() if any(k in reader_map for k in kinds))


def read_other(file: Path) -> MeshFile:
    """Read a file by meshio, in the format of its suffix.

    Parameters
    ----------
    file : Path
        An existing file.

    Returns
    -------
    MeshFile

    Raises
    ------
    MeshError
        If it cannot be read; the message does not name the file.
    """
    kinds = [k for k in extension_to_filetypes.get(file.suffix.lower(), []) if k in reader_map and k not in _OURS]
    if not kinds:
        raise MeshError(
            f"files that end in {file.suffix!r} cannot be read; .msh, .vtk and .vtu can, and by meshio "
            + ", ".join(readable_suffixes())
        )
    reasons = []
    for kind in kinds:
        said = io.StringIO()
        with _LOCK, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), np.errstate(all="ignore"):
            try:
                mesh = reader_map[kind](str(file))
            except _FAILURES as error:
                reasons.append(f"as {kind}: {type(error).__name__} {error}".strip()[:200])
                continue
        return _converted(mesh)
    raise MeshError("meshio cannot read it " + "; ".join(reasons))


def _converted(mesh: Any) -> MeshFile:
    points = np.asarray(mesh.points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise MeshError(f"its points have {points.shape[-1] if points.ndim else 0} coordinates, not 2 or 3")
    tags = next((mesh.cell_data[name] for name in _SET_NAMES if name in mesh.cell_data), None)
    blocks, number = [], 1
    for position, cells in enumerate(mesh.cells):
        nodes = np.asarray(cells.data)
        if cells.type not in _CELLS:
            raise MeshError(
                f"element {number} is a {cells.type}, which cannot be used; linear and complete second-order cells can"
            )
        name, order = _CELLS[cells.type]
        shape = shape_named(name)
        reference = gmsh_nodes(name, order) if name not in _IN_VTK_ORDER else vtk_nodes(name, order)
        if nodes.dtype.kind not in "iu" or nodes.shape[1:] != (len(reference),):
            raise MeshError(f"element {number} and others of type {cells.type} have {nodes.shape[1:]} nodes")
        ours = canonical(shape, order, reference, nodes.astype(np.int64))
        sets = _sets(mesh, position, None if tags is None else np.asarray(tags[position]), len(nodes))
        blocks.append(Block(shape, order, ours, np.arange(number, number + len(nodes)), sets))
        number += len(nodes)
    return MeshFile(points, blocks)


# VTK has no second-order pyramid of 14 nodes; there the order is gmsh's.
_IN_VTK_ORDER = frozenset(name for name, _ in _CELLS.values()) - {"pyramid"}


def _sets(mesh: Any, position: int, tags: Indices | None, count: int) -> dict[str, Indices]:
    """Names of a block's cells: named sets of meshio, else integer cell data."""
    sets = {}
    for name, members in mesh.cell_sets.items():
        own = members[position] if position < len(members) else None
        rows = np.empty(0, dtype=np.int64) if own is None else np.asarray(own)
        if rows.dtype.kind in "iu" and len(rows) and rows.min() >= 0 and rows.max() < count:
            sets[str(name)] = np.unique(rows.astype(np.int64))
    if not sets and tags is not None and tags.dtype.kind in "iu" and tags.shape == (count,):
        sets = {str(tag): np.flatnonzero(tags == tag) for tag in np.unique(tags)}
    return sets
