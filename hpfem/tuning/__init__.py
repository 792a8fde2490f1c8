"""Which of several callables is the fastest, found by a race; and results of races, kept on disk."""

from .clocks import CLOCKS, Clock, CudaTimer, HostTimer, Timer
from .race import MARGIN, Name, Race, Verdict
from .store import Record, entries, find, forget, keep, store_info

__all__ = [
    "CLOCKS",
    "MARGIN",
    "Clock",
    "CudaTimer",
    "HostTimer",
    "Name",
    "Race",
    "Record",
    "Timer",
    "Verdict",
    "entries",
    "find",
    "forget",
    "keep",
    "store_info",
]
