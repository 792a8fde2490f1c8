"""Ways to compute a block, and results of races between them, kept in the user's cache folder.

A result is a small file, named by the SHA-256 of what it depends on. Files are written under a temporary name and
renamed, so that no process reads an incomplete one, and processes that measure at the same time lose nothing. A file
that is damaged, of another format or under another result's name is reported once and ignored.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..support.cache import Cache
from ..support.files import cache_folder, opened
from ..support.log import report_once

# Version of what a file holds.
FORMAT = 1
# Larger files are not ours.
MOST_BYTES = 1 << 16
# Errors of opening a file that mean that there is none.
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


class Config(NamedTuple):
    """A way to compute a form on a block; as text: "sumfac-top, collocated, elements=4"."""

    strategy: str
    algorithm: str | None = None  # None if the form has no gradients of the basis
    options: str | None = None  # options of the strategy; None if it has none

    def __str__(self) -> str:
        return ", ".join(word for word in self if word)


@dataclass(frozen=True)
class TuningRecord:
    """The result of a race; kept on disk."""

    key: Mapping[str, str | int]  # everything that the result depends on: strings and integers
    winner: Config
    seconds: float  # of one call
    runner_up: Config | None  # the fastest of the others that were timed to the end; None if there was none
    ratio: float  # its time over the winner's; below 1 if it is faster, but not by enough
    kept: bool  # whether the incumbent stays although another was faster
    tried: int  # number of candidates
    # More information for users: strings, numbers, and lists of them.
    about: Mapping[str, Any] = field(default_factory=dict)


def cache() -> Cache:
    """Folder of results, see `Cache`."""
    return Cache(cache_folder("tuning"), ".json")


def _digest(key: Mapping[str, str | int]) -> str:
    text = json.dumps(dict(key), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _config(value: Any) -> Config:
    match value:
        case [str(), None | str(), None | str()]:
            return Config(*value)
    raise ValueError("a configuration is not a list of three words")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise ValueError("a number is missing or not positive")
    return float(value)


def _record(content: Any) -> TuningRecord:
    """Check what a file holds."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError("it is of another format")
    key, about, rival = (content.get(name) for name in ("key", "about", "runner_up"))
    if not isinstance(key, dict) or not isinstance(about, dict):
        raise ValueError("its key is missing")
    if not all(isinstance(value, (str, int)) for value in key.values()):
        raise ValueError("its key is damaged")
    notes = [note for value in about.values() for note in (value if isinstance(value, list) else [value])]
    if not all(isinstance(note, str) or (isinstance(note, (int, float)) and math.isfinite(note)) for note in notes):
        raise ValueError("its notes are damaged")
    winner, rival = _config(content.get("winner")), None if rival is None else _config(rival)
    seconds, ratio, tried = (_number(content.get(name)) for name in ("seconds", "ratio", "tried"))
    return TuningRecord(key, winner, seconds, rival, ratio, content.get("kept") is True, int(tried), about)


def _read(path: Path) -> TuningRecord | None:
    """Result in a file; None, and a report, if it cannot be used."""
    try:
        with opened(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError("it is too large")
        record = _record(json.loads(content.decode("utf-8")))
        if path.stem != _digest(record.key):
            raise ValueError("it belongs to another problem")
        return record
    # Endless nesting is a damage too, and so are integers beyond all floats.
    except (OSError, ValueError, RecursionError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno in _NOTHING_THERE:
            return None
        what = error.strerror if isinstance(error, OSError) else error
        report_once(f"tuning/{path}", f"the tuning result {path} is ignored: {what}; hpfem tune makes a new one")
        return None


def find(key: Mapping[str, str | int]) -> TuningRecord | None:
    """Look a result up; None if there is no usable one, and an unusable one is reported once."""
    return _read(cache().path(_digest(key)))


def keep(record: TuningRecord) -> None:
    """Write a result; a folder that cannot be written is reported once."""
    content = json.dumps({"format": FORMAT, **asdict(record)}, indent=1, allow_nan=False) + "\n"
    cache().keep(_digest(record.key), content.encode(), sync=True)


def entries() -> list[TuningRecord]:
    """Read all results that can be used."""
    found = [_read(path) for path in cache().entries()]
    return [record for record in found if record is not None]
