"""Run one of meshio's readers and write its result to the standard output: a script, for a process of its own.

Why a process: meshio's readers print, end the process, raise any exception, allocate as much as a damaged header asks
for, and some never end on a damaged file. In the caller's process such a reader could not be stopped (Python cannot end
a thread, and a signal reaches the main thread only), its memory could not be limited, and its output could not be
separated from the caller's.

Usage: python meshio_process.py FORMAT FILE BYTES
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
from typing import Any

import numpy as np


def plain(mesh: Any) -> dict[str, Any]:
    """Take the arrays out of a mesh of meshio.

    Parameters
    ----------
    mesh : meshio.Mesh

    Returns
    -------
    dict
        Its attributes as arrays by name.
    """
    return {
        "points": np.asarray(mesh.points, dtype=np.float64),
        "cells": [(str(cells.type), np.asarray(cells.data)) for cells in mesh.cells],
        "cell_data": {str(name): [np.asarray(own) for own in data] for name, data in mesh.cell_data.items()},
        "field_data": {str(name): np.asarray(data) for name, data in mesh.field_data.items()},
        "cell_sets": {
            str(name): [np.empty(0, dtype=np.int64) if own is None else np.asarray(own) for own in members]
            for name, members in mesh.cell_sets.items()
        },
    }


def _main(kind: str, file: str, n_bytes: str) -> None:
    """Read `file` as format `kind`, within so much memory, and write pickled arrays; what the reader prints is lost."""
    from meshio._helpers import reader_map
    from meshio._mesh import topological_dimension

    topological_dimension.update(wedge15=3, pyramid13=3)  # which meshio 5.3.5 names, but misses here
    result = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if importlib.util.find_spec("resource"):  # on systems that can limit memory
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(n_bytes), int(n_bytes)))
    content = pickle.dumps(plain(reader_map[kind](file)))
    with os.fdopen(result, "wb") as stream:
        stream.write(content)


if __name__ == "__main__":
    _main(*sys.argv[1:])
