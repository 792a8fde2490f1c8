"""Folders of files that can be made again: counted, emptied, kept below a size (the least recently used go first)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CacheInfo:
    """State of a folder of things that are kept.

    Attributes
    ----------
    path : Path
    entries : int
    nbytes : int
    limit : int or None
        Bytes that it may grow to; None where nothing stops it.
    """

    path: Path
    entries: int
    nbytes: int
    limit: int | None = None


@dataclass(frozen=True)
class Kept:
    """What is kept in a folder.

    Attributes
    ----------
    folder : Path
        It may not exist.
    suffix : str
        Of the files that count as entries.
    beside : tuple of str
        Suffixes of files that go with an entry of the same name.
    """

    folder: Path
    suffix: str
    beside: tuple[str, ...] = ()

    def entries(self) -> list[Path]:
        """Files of the entries, by name; none where the folder cannot be read."""
        try:
            return sorted(path for path in self.folder.iterdir() if path.suffix == self.suffix)
        except OSError:
            return []

    def _size(self, entry: Path) -> int:
        """Bytes of an entry; 0 if another process deleted it."""
        total = 0
        for path in (entry, *(entry.with_suffix(suffix) for suffix in self.beside)):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
        return total

    def _delete(self, entry: Path) -> None:
        for suffix in (self.suffix, *self.beside):
            entry.with_suffix(suffix).unlink(missing_ok=True)

    def info(self, limit: int | None = None) -> CacheInfo:
        """Count the entries.

        Parameters
        ----------
        limit : int, optional
            Bytes, to be told.

        Returns
        -------
        CacheInfo
        """
        entries = self.entries()
        return CacheInfo(self.folder, len(entries), sum(map(self._size, entries)), limit)

    def clear(self) -> int:
        """Delete the entries; returns how many there were."""
        entries = self.entries()
        for entry in entries:
            self._delete(entry)
        return len(entries)

    def prune(self, limit: int, spared: float = 0.0) -> None:
        """Delete the least recently used entries while there are more bytes than the limit.

        Parameters
        ----------
        limit : int
        spared : float
            Entries used in the last so many seconds stay.
        """
        found = []
        for entry in self.entries():
            try:
                found.append((entry.stat().st_mtime, self._size(entry), entry))
            except FileNotFoundError:
                continue  # another process deleted it
        total, now = sum(size for _, size, _ in found), time.time()
        for used, size, entry in sorted(found):
            if total <= limit or (spared and used > now - spared):
                break
            self._delete(entry)
            total -= size
