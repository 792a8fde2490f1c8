"""The choice of a block's kernel: the fastest of a race, found once and kept on disk, else the least expected time."""

import warnings
from typing import Any

from .record import Config, TuningRecord
from .store import cache, entries, find, keep
from .tuner import Tuning

__all__ = ["Config", "Tuning", "TuningRecord", "cache", "entries", "find", "keep"]


def __getattr__(name: str) -> Any:
    if name != "Record":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("hpfem.tuning.Record is called TuningRecord now", DeprecationWarning, stacklevel=2)
    return TuningRecord
