"""The choice of a block's kernel: the fastest of a race, found once and kept on disk, else the least expected time."""

import warnings
from typing import Any

from .race import MARGIN, Race
from .record import Config, TuningRecord
from .select import Choice, cell_times, choose
from .store import cache, entries, find, keep
from .tuner import BlockTuner, Tuning, tune_blocks

__all__ = [
    "MARGIN",
    "BlockTuner",
    "Choice",
    "Config",
    "Race",
    "Tuning",
    "TuningRecord",
    "cache",
    "cell_times",
    "choose",
    "entries",
    "find",
    "keep",
    "tune_blocks",
]


def __getattr__(name: str) -> Any:
    if name != "Record":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("hpfem.tuning.Record is called TuningRecord now", DeprecationWarning, stacklevel=2)
    return TuningRecord
