"""Run a reader of meshio, gmsh or VTK and write its result to the standard output: a script, for its own process.

Why a process: these readers print, end the process, raise any exception, allocate as much as a damaged header asks
for, and some never end on a damaged file. In the caller's process such a reader could not be stopped (Python cannot end
a thread, and a signal reaches the main thread only), its memory could not be limited, and its output could not be
separated from the caller's.

What they print goes to the standard error; its last line is the reason of a failure.

Usage: python library_process.py FORMAT FILE BYTES SECONDS, with one of meshio's formats, "gmsh" or "vtk"
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np


def plain(mesh: Any) -> dict[str, Any]:
    """Take the arrays out of a mesh of meshio."""
    sets = {
        str(name): [np.empty(0, dtype=np.int64) if own is None else np.asarray(own) for own in members]
        for name, members in mesh.cell_sets.items()
    }
    point_sets = {str(name): np.asarray(own) for name, own in mesh.point_sets.items()}
    cell_data = {str(name): [np.asarray(own) for own in data] for name, data in mesh.cell_data.items()}
    # Families of MED: numbers of cells and points, each with the names of groups.
    families = [(name, number) for number, names in getattr(mesh, "cell_tags", {}).items() for name in names]
    tags = cell_data.pop("cell_tags", []) if hasattr(mesh, "cell_tags") else []
    for name, number in families if tags else ():
        old = sets.get(name, [np.empty(0, dtype=np.int64)] * len(tags))
        sets[name] = [np.append(rows, np.flatnonzero(own == number)) for rows, own in zip(old, tags, strict=True)]
    for number, names in getattr(mesh, "point_tags", {}).items():
        for name in names:
            rows = np.flatnonzero(mesh.point_data["point_tags"] == number)
            point_sets[name] = np.append(point_sets.get(name, rows[:0]), rows)
    return {
        "points": np.asarray(mesh.points, dtype=np.float64),
        "cells": [(str(cells.type), np.asarray(cells.data)) for cells in mesh.cells],
        "cell_data": cell_data,
        "field_data": {str(name): np.asarray(data) for name, data in mesh.field_data.items() if name != "med:nom"},
        "cell_sets": sets,
        "point_sets": point_sets,
    }


def _by_meshio(reader: str, file: str) -> dict[str, Any]:
    """Arrays of a mesh by name."""
    from meshio._helpers import reader_map
    from meshio._mesh import CellBlock, topological_dimension

    topological_dimension.update(wedge15=3, pyramid13=3)  # which meshio 5.3.5 names, but misses here
    CellBlock.__getitem__ = lambda self, place: (self.type, self.data)[place]  # which its reader of avsucd uses
    content = plain(reader_map[reader](file))
    if reader == "flac3d":  # whose sets have numbers of all cells
        starts = np.cumsum([0, *(len(nodes) for _, nodes in content["cells"])])
        sets = content["cell_sets"].items()
        content["cell_sets"] = {name: [rows - start for rows, start in zip(own, starts)] for name, own in sets}
    return content


def _by_gmsh(file: str) -> tuple[bytes, list[str]]:
    """A file of MSH 4.1, and gmsh's warnings."""
    import gmsh

    gmsh.initialize(["gmsh", "-nt", "1"], readConfigFiles=False)
    for name, value in (("General.Terminal", 0), ("Mesh.SaveAll", 1), ("Mesh.Binary", 1), ("Mesh.MshFileVersion", 4.1)):
        gmsh.option.setNumber(name, value)
    gmsh.logger.start()
    gmsh.merge(file)
    said = [text.partition(": ") for text in gmsh.logger.get()]
    for level, _, text in said:
        if level.strip() == "Error":
            raise ValueError(text)
    with TemporaryDirectory() as folder:
        gmsh.write(f"{folder}/x.msh")
        content = Path(folder, "x.msh").read_bytes()
    return content, [text for level, _, text in said if level.strip() == "Warning"]


def _blocks(file: str) -> dict[str, tuple[int, int]]:
    """Sizes of the tables of elements of an Exodus file, by name; none if it needs a package that is missing."""
    sizes: dict[str, tuple[int, ...]] = {}
    with suppress(ModuleNotFoundError):
        if Path(file).read_bytes()[:3] == b"CDF":
            from scipy.io import netcdf_file

            with netcdf_file(file) as data:
                sizes = {name: own.shape for name, own in data.variables.items()}
        else:
            from h5py import File

            with File(file) as data:
                sizes = {name: own.shape for name, own in data.items()}
    return {
        name: (size[0], size[1]) for name, size in sizes.items() if re.fullmatch(r"connect\d+", name) and len(size) == 2
    }


def _by_vtk(file: str) -> tuple[bytes, list[tuple[str, int]], int]:
    """A file .vtu, the parts of the mesh by name and number of cells, and the number of points, if all share them."""
    from vtkmodules.vtkCommonCore import vtkOutputWindow
    from vtkmodules.vtkCommonDataModel import vtkCompositeDataSet
    from vtkmodules.vtkFiltersCore import vtkAppendFilter
    from vtkmodules.vtkIOExodus import vtkExodusIIReader
    from vtkmodules.vtkIOLegacy import vtkGenericDataObjectReader
    from vtkmodules.vtkIOXML import vtkXMLGenericDataObjectReader, vtkXMLUnstructuredGridWriter

    errors: list[str] = []
    window: Any = vtkOutputWindow.GetInstance()
    window.AddObserver("ErrorEvent", lambda *_: errors.append("the file is damaged"))
    beginning = Path(file).read_bytes()[:8]
    legacy = beginning.startswith(b"# vtk")
    reader: Any = vtkGenericDataObjectReader() if legacy else vtkXMLGenericDataObjectReader()
    exodus = beginning.startswith((b"CDF", b"\x89HDF"))
    if exodus:
        reader = vtkExodusIIReader()
        reader.SetSqueezePoints(False)  # each part has all points
    reader.SetFileName(file)
    reader.UpdateInformation()
    for table in (reader.ELEM_BLOCK, reader.SIDE_SET, reader.NODE_SET) if exodus else ():
        for number in range(reader.GetNumberOfObjects(table)):
            reader.SetObjectStatus(table, number, 1)
    reader.Update()
    joined, parts = vtkAppendFilter(), []
    walk = reader.GetOutput().NewIterator() if exodus else None
    while walk and not walk.IsDoneWithTraversal():
        name = walk.GetCurrentMetaData().Get(vtkCompositeDataSet.NAME())
        parts.append((re.sub("^Unnamed .* ID: ", "", name), walk.GetCurrentDataObject()))
        walk.GoToNextItem()
    for _, part in parts or [("", reader.GetOutput())]:
        joined.AddInputData(part)
    writer = vtkXMLUnstructuredGridWriter()
    writer.SetInputConnection(joined.GetOutputPort())
    writer.SetWriteToOutputString(True)
    writer.Write()
    if errors:
        raise ValueError(errors[0])
    if exodus:
        blocks = _blocks(file)
        there = sum(count * width for count, width in blocks.values())
        found = sum(part.GetCells().GetNumberOfConnectivityIds() for _, part in parts[: len(blocks)])
        if there != found:
            raise ValueError(f"of the nodes of its elements {found} are read, but the file has {there}: {blocks}")
    shared = parts[0][1].GetNumberOfPoints() if parts else 0
    return writer.GetOutputString().encode(), [(name, part.GetNumberOfCells()) for name, part in parts], shared


_READERS: dict[str, Callable[[str], Any]] = {"gmsh": _by_gmsh, "vtk": _by_vtk}


def _main(reader: str, file: str, n_bytes: str, seconds: str) -> None:
    """Read `file` by `reader`, within so much memory and time, and write pickled arrays."""
    result = os.dup(1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", message=".*could not be read to its end")  # NumPy stops at what is no number
    if importlib.util.find_spec("resource"):  # on systems that can limit memory, and time whatever else runs
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(n_bytes), int(n_bytes)))
        end = int(time.process_time()) + int(seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (end, end + 1))
    try:
        content = pickle.dumps(_READERS[reader](file) if reader in _READERS else _by_meshio(reader, file))
    except ModuleNotFoundError as error:
        raise SystemExit(f"it needs the package {error.name}; pip install {error.name}") from None
    except KeyError as error:
        raise SystemExit(f"its reader does not know {error}") from None
    except Exception as error:
        reason = " ".join(str(error).split()) or "no reason is given; is the file complete, and of that format?"
        raise SystemExit(f"{type(error).__name__}: {reason}") from error
    with os.fdopen(result, "wb") as stream:
        stream.write(content)


if __name__ == "__main__":
    _main(*sys.argv[1:])
