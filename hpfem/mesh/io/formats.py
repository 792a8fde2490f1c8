"""The formats of mesh files that we read ourselves: one line each in `FORMATS`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .abaqus import read_abaqus
from .mesh_file import MeshFile
from .mfem_mesh import read_mfem
from .msh import read_msh
from .nastran import read_nastran
from .netgen_vol import read_vol
from .su2 import read_su2
from .vtk_legacy import read_vtk
from .vtk_xml import read_vtu


@dataclass(frozen=True)
class Format:
    """A format of mesh files."""

    suffix: str  # of its files
    beginning: bytes  # a regular expression that the first 4 KiB of its files match, and no other format's
    read: Callable[[bytes], MeshFile] | None  # raises a `MeshError` without the file's name; None: meshio


_NASTRAN = rb"(?i)(\$[^\n]*\n\s*)*(BEGIN\s+BULK|SOL\s+\d|CEND)"
FORMATS = [
    Format(".msh", rb"\$(MeshFormat|Comments|NOD)", read_msh),
    Format(".vtk", rb"# vtk DataFile", read_vtk),
    Format(".inp", rb"(?i)(\*\*[^\n]*\n\s*)*\*(HEADING|PREPRINT|NODE|PART|INCLUDE)\b", read_abaqus),
    *(Format(suffix, _NASTRAN, read_nastran) for suffix in (".bdf", ".nas", ".fem")),
    Format(".su2", rb"(%[^\n]*\n\s*)*(NDIME|NZONE)[ \t]*=", read_su2),
    Format(".vtu", rb"(<\?xml.*)?<VTKFile", read_vtu),
    Format("MFEM's .mesh", rb"MFEM ", read_mfem),  # Medit has the same suffix
    Format(".avs", rb"(#[^\n]*\n\s*)*(\d+[ \t]+){4}\d+[ \t]*\r?\n", None),
    Format(".vol", rb"(#[^\n]*\n\s*)*mesh3d", read_vol),
]


def format_of(beginning: bytes, suffix: str) -> Format | None:
    """Find the format of a file."""
    by_content = (known for known in FORMATS if re.match(known.beginning, beginning, re.DOTALL))
    by_suffix = (known for known in FORMATS if known.suffix == suffix)
    return next(by_content, None) or next(by_suffix, None)
