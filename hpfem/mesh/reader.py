"""Read a mesh file."""

from __future__ import annotations

from os import PathLike

from hpfem.errors import MeshError

from .mesh import Mesh


def read_mesh(path: str | PathLike[str], periodic: bool = False) -> Mesh:
    """Read a mesh file; formats follow in the next commits.

    Raises
    ------
    MeshError
        Always, for now.
    """
    raise MeshError(f"{path}: no reader for this format")
