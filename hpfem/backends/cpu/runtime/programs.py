"""An index of the programs that were written before: what they need besides their code, and their code's name.

An entry is named by what the writer gets, and by a digest of the writers' sources.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import hpfem.shapes

from .... import forms, geometry
from ....support.cache import Cache
from ....support.files import cache_folder
from ....support.tables import sources
from .. import codegen
from ..codegen.ir import Program
from .begun import Begun
from .cache import key_of
from .target import Target

LIMIT = 6 << 20


def program_index() -> Cache:
    """Folder of the index."""
    return Cache(cache_folder("programs"), ".json", code=True, limit=LIMIT)


def begin(write: Callable[..., Program], target: Target, *given: Any) -> tuple[Program, Begun]:
    """A program without its text, and its code; `write(*given)` is called only if the index has none."""
    what = hashlib.sha256(pickle.dumps(given)).hexdigest()
    key = key_of(what, target, _sources(), write.__module__, write.__qualname__)
    program, name = _read(key)
    if program is None:
        program = write(*given)
        name, text = key_of(program.text, target), program.text
        program = replace(program, text="")
        content = json.dumps([name, asdict(program)]).encode()
        program_index().keep_sealed(key, content)
        return program, Begun(name, lambda: text, target)
    return program, Begun(name, lambda: write(*given).text, target)


def _read(key: str) -> tuple[Program | None, str]:
    content = program_index().read_sealed(key)
    if content is None:
        return None, ""
    name, numbers = json.loads(content)
    return Program(**numbers), name


def _sources() -> str:
    """Digest of all that writes programs."""
    return sources(*(package.__path__[0] for package in (codegen, forms, geometry, hpfem.shapes)))
