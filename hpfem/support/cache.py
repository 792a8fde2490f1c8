"""Folders of files that can be made again: checked when read, counted, deleted, kept below a size (least used first).

Entries of code are used only if no other user can have written them, and if their seal fits: a SHA-256 of content and
key. An entry that was cut, changed, or belongs to another key is made again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArgumentError
from .files import READING, TEMPORARY, atomic_path, path_text
from .log import report_once

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

# Entries that a process writes between two looks at the sizes of all, which takes time: at least these, and a sixteenth
# of those that are there; and how many it may yet write.
PRUNE_EVERY = 64
_more: dict[Path, int] = {}
# Seconds after which an incomplete file was left by a process that died.
_ABANDONED = 3600.0
# Bytes that no entry has: a longer file is damaged, and may not fit into memory.
_LONGEST = 1 << 30
_ADVICE = "set HPFEM_CACHE_DIR to a folder that can be written"
# Header of object code of 64 bits: places of its tables, and sizes and numbers of their entries.
_MAGIC = b"\x7fELF"
_ELF = struct.Struct("<4s28xQQ6xHHHH2x")


@dataclass(frozen=True)
class CacheInfo:
    """State of a cache folder."""

    path: Path
    entries: int
    nbytes: int
    limit: int | None = None  # bytes that it may grow to; None where nothing stops it


def seal(key: str, *parts: bytes) -> bytes:
    """Make a checksum of contents and of the key that they belong to."""
    digests = [hashlib.sha256(part).digest() for part in (key.encode(), *parts)]
    return hashlib.sha256(b"".join(digests)).digest()


def whole_elf(code: bytes) -> bool:
    """Whether code is a complete ELF file of 64 bits, according to its header."""
    if len(code) < _ELF.size:
        return False
    magic, programs, sections, program_size, n_programs, section_size, n_sections = _ELF.unpack_from(code)
    ends = (programs + program_size * n_programs, sections + section_size * n_sections)
    return magic == _MAGIC and len(code) >= max(ends)


@dataclass(frozen=True)
class Cache:
    """A cache in a folder, which may not exist yet."""

    folder: Path
    suffix: str  # of the files that are entries
    beside: tuple[str, ...] = ()  # suffixes of files that go with an entry of the same name
    code: bool = False  # entries are run: none that others can have written, or where they can write
    limit: int | None = None  # bytes that it may grow to

    def path(self, key: str) -> Path:
        """File of an entry."""
        return self.folder / (key + self.suffix)

    def read(self, key: str) -> bytes | None:
        """Content of an entry, which is marked as used; None if there is no usable entry."""
        with suppress(OSError), ExitStack() as stack:
            file = os.open(self.path(key), READING | getattr(os, "O_NOFOLLOW", 0))
            stack.callback(os.close, file)
            status = os.fstat(file)
            usable = stat.S_ISREG(status.st_mode) and status.st_size <= _LONGEST
            if usable and not (self.code and not (_ours(status) and _ours(self.folder.stat()))):
                with suppress(OSError):  # a read-only folder keeps no record of use
                    os.utime(file if os.utime in os.supports_fd else self.path(key))
                return os.read(file, status.st_size)
        return None

    def keep(self, key: str, content: bytes, *, sync: bool = False) -> bool:
        """Write an entry, whole or not at all; if entries cannot be written, this is reported once."""
        path = self.path(key)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.code and not _ours(self.folder.stat()):
                raise ArgumentError(f"others can write to {self.folder}; chmod go-w makes it ours alone")
            if path.is_symlink() or path.is_fifo():
                path.unlink()
            with atomic_path(path, sync=sync) as temporary:
                temporary.write_bytes(content)
        except (OSError, ArgumentError) as error:
            reason = f"{path_text(self.folder)}: {error.strerror}" if isinstance(error, OSError) else error
            report_once("cache", f"compiled kernels and tuning results are not kept: {reason}; {_ADVICE}")
            return False
        return True

    def read_sealed(self, key: str) -> bytes | None:
        """Content of an entry of `keep_sealed`; None if there is none, or it was cut, changed, or is of another key."""
        content = self.read(key) or b""
        digest, inner = content[:32], content[32:]
        return inner if digest == seal(key, inner) else None

    def keep_sealed(self, key: str, content: bytes) -> None:
        """Write an entry behind a seal, and delete old ones now and then."""
        if self.keep(key, seal(key, content) + content):
            self.grown()

    @contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Let one process or thread at a time make an entry; the others wait, and then look for the entry."""
        with ExitStack() as stack:
            if fcntl is not None:
                path = self.folder / f"{TEMPORARY}{key}.lock"
                with suppress(OSError):
                    self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                    stack.callback(os.close, file)  # which unlocks it
                    fcntl.flock(file, fcntl.LOCK_EX)
                    stack.callback(path.unlink, missing_ok=True)
            yield

    def _files(self) -> list[os.DirEntry[str]]:
        """The files of the folder; none if it cannot be read."""
        try:
            with os.scandir(self.folder) as found:
                return [file for file in found if not file.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def entries(self) -> list[Path]:
        """Files of the entries, by name."""
        return [self.folder / f"{stem}{self.suffix}" for _, _, stem in sorted(self._found(), key=lambda own: own[2])]

    def _found(self) -> list[tuple[float, int, str]]:
        """When each entry was used, its bytes, and its name without a suffix."""
        sizes, used = Counter[str](), {}
        for file in self._files():
            stem, suffix = os.path.splitext(file.name)
            if not stem.startswith(TEMPORARY) and suffix in (self.suffix, *self.beside):
                with suppress(FileNotFoundError):  # another process deleted it
                    status = file.stat(follow_symlinks=False)
                    sizes[stem] += status.st_size
                    if suffix == self.suffix:
                        used[stem] = status.st_mtime
        return [(used[stem], sizes[stem], stem) for stem in used]

    def _delete(self, stem: str) -> None:
        for suffix in (self.suffix, *self.beside):
            (self.folder / f"{stem}{suffix}").unlink(missing_ok=True)

    def _delete_abandoned(self, age: float) -> None:
        """Delete incomplete files that processes left when they died, if older than a number of seconds."""
        for file in self._files():
            if file.name.startswith(TEMPORARY):
                with suppress(FileNotFoundError):  # another process deleted it
                    if file.stat(follow_symlinks=False).st_mtime <= time.time() - age:
                        os.unlink(file.path)

    def info(self) -> CacheInfo:
        """Count the entries."""
        found = self._found()
        return CacheInfo(self.folder, len(found), sum(size for _, size, _ in found), self.limit)

    def clear(self) -> int:
        """Delete the entries."""
        found = self._found()
        for _, _, stem in found:
            self._delete(stem)
        self._delete_abandoned(0.0)
        return len(found)

    def grown(self, spared: float = 0.0) -> None:
        """Count an entry that was written; after the first of this process, and then now and then, delete old ones."""
        more = _more.get(self.folder, 0)
        _more[self.folder] = (more or max(PRUNE_EVERY, self.prune(spared) // 16)) - 1

    def prune(self, spared: float = 0.0) -> int:
        """Delete the least recently used entries while there are more bytes than the limit; how many are left."""
        self._delete_abandoned(_ABANDONED)
        found = sorted(self._found())
        total, now, deleted = sum(size for _, size, _ in found), time.time(), 0
        for used, size, stem in found:
            if self.limit is None or total <= self.limit or (spared and used > now - spared):
                break
            self._delete(stem)
            total, deleted = total - size, deleted + 1
        return len(found) - deleted


def _ours(status: os.stat_result) -> bool:
    """Whether only the present user can have written it."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
