"""Run one of meshio's readers and leave what it found in a file: a script, for a process of its own.

meshio's readers print, leave the process, raise whatever happens inside them, allocate what a damaged header asks for,
and some never end on a damaged file. In a process of their own all that is bounded.

Usage: python meshio_process.py FORMAT FILE RESULT BYTES
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np


def limit_memory(n_bytes: int) -> None:
    """Let this process allocate no more, where the system can be told so."""
    if importlib.util.find_spec("resource"):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


def plain(mesh: Any) -> dict[str, Any]:
    """What a `meshio.Mesh` holds, as arrays by name."""
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


def main(kind: str, file: str, result: str, n_bytes: str) -> None:
    """Read `file` as format `kind` and pickle plain arrays to `result`."""
    from meshio._helpers import reader_map

    limit_memory(int(n_bytes))
    Path(result).write_bytes(pickle.dumps(plain(reader_map[kind](file))))


if __name__ == "__main__":
    main(*sys.argv[1:])
