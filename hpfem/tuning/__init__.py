"""Which of several callables is the fastest, found by a race; and results of races, kept on disk."""

from .race import MARGIN, Name, Race, Verdict
from .store import Record, cache, entries, find, keep

__all__ = [
    "MARGIN",
    "Name",
    "Race",
    "Record",
    "Verdict",
    "cache",
    "entries",
    "find",
    "keep",
]
