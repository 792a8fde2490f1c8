"""The choice of a block's kernel: the fastest of a race, found once and kept on disk, else the least expected time."""

from .store import Config, TuningRecord
from .tuner import Tuning

__all__ = ["Config", "Tuning", "TuningRecord"]
