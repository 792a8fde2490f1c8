"""Tables that a process before has made: what a function makes of its arguments, kept on disk.

An entry is named by the function, the text of its arguments, and a digest of the sources beside it and of the shapes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from inspect import getfile
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import scipy

import hpfem.shapes

from .cache import Cache
from .files import cache_folder

Make = TypeVar("Make", bound=Callable[..., Any])

LIMIT = 1 << 28


def table_cache() -> Cache:
    """Folder of tables."""
    return Cache(cache_folder("tables"), ".pickle", code=True, limit=LIMIT)


@cache
def sources(*folders: str) -> str:
    """Digest of the modules and tables in some folders, whose names are hashed sooner than paths."""
    return hashlib.sha256(b"".join(map(_digest, folders))).hexdigest()


@cache
def _digest(folder: str) -> bytes:
    """Digest of one folder, which is read once."""
    files = sorted(file for pattern in ("*.py", "*.json") for file in Path(folder).glob(pattern))
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).digest()


def on_disk(make: Make) -> Make:
    """Keep what a function of few arguments, given in order, makes: arrays, whatever class others make of them."""

    @wraps(make)
    def kept(*given: Any) -> Any:
        made_by = sources(os.path.dirname(getfile(make)), hpfem.shapes.__path__[0])
        text = repr((make.__module__, make.__qualname__, given, made_by, np.__version__, scipy.__version__))
        key = hashlib.sha256(text.encode()).hexdigest()
        content = table_cache().read_sealed(key)
        if content is not None:
            with suppress(Exception):  # it was written by another Python
                return pickle.loads(content)
        made = make(*given)
        table_cache().keep_sealed(key, pickle.dumps(made))
        return made

    return cast(Make, kept)
