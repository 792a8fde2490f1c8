"""Files: inputs that are regular files of a sane size, outputs that are written whole or not at all, cache folders."""

from __future__ import annotations

import errno
import json
import math
import os
import platform
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import platformdirs

from hpfem.errors import ArgumentError

from .communicator import ALONE, Communicator
from .machine import available_memory

# Prefix of the names of incomplete files.
TEMPORARY = ".hpfem-"
# Bytes that always fit into memory.
_SMALL = 1 << 26
# Longer paths are cut in messages.
_SHOWN = 200
# Of files that are opened to be read, bytes as they are, without waiting for a pipe.
READING = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


def file_path(path: str | os.PathLike[str]) -> Path:
    """Check that something can be the path of a file."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise ArgumentError(f"a path must be a text or a path, got {type(path).__name__}")
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise ArgumentError(f"no file can be called {path_text(name)}; give another path")
    return Path(name)


def path_text(path: str | os.PathLike[str]) -> str:
    """Write a path on one line of sane length."""
    name = os.fspath(path)
    if len(name) > _SHOWN:
        name = f"{name[: _SHOWN // 2]}...{name[-_SHOWN // 4 :]}"
    return name if name.isprintable() else ascii(name)


def _check_regular(status: os.stat_result) -> None:
    """Refuse files that cannot be read from begin to end, or only once, or never end."""
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "this is a folder, not a file")
    if stat.S_ISFIFO(mode):
        raise OSError(errno.ESPIPE, "this is a pipe; save what comes through it to a file first")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "this is a device, a socket or a link, not a file")


@contextmanager
def opened(path: Path, *, whole: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file that fits into memory for reading; never wait for a pipe or a device."""
    _check_regular(os.stat(path))
    handle = os.open(path, READING)
    try:
        status = os.fstat(handle)
        _check_regular(status)  # it may have changed in the meantime
        # Data made from a large file take at least as much memory again.
        if whole and status.st_size > _SMALL and 2 * status.st_size > (room := available_memory()):
            size = f"{status.st_size / 2**30:.3g} GiB"
            raise OSError(errno.EFBIG, f"its {size} do not fit into {room / 2**30:.3g} GiB of free memory")
    except OSError:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        yield file


def read_file(path: Path) -> bytes:
    """Read a regular file."""
    with opened(path) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def output_path(path: str | os.PathLike[str]) -> Path:
    """Find the file to write: a new or a regular one. If `path` is a link, the file that it points to."""
    given = file_path(path)
    try:
        target = Path(os.path.realpath(given))
        if not target.parent.is_dir():
            raise ArgumentError(
                f"cannot write {path_text(path)}: there is no folder {path_text(given.parent)}; create it first"
            )
        if target.is_dir():
            raise ArgumentError(f"cannot write {path_text(path)}: it is a folder; give a file name")
        if target.exists() and not target.is_file():
            raise ArgumentError(f"cannot write {path_text(path)}: it is a device, a pipe or a socket; give a file name")
    except OSError as error:
        raise _unwritable(path, error) from error
    return target


def part_path(path: Path, number: int) -> Path:
    """Name the file of a process or part."""
    return path.with_stem(f"{path.stem}_{number}")


def _unwritable(path: str | os.PathLike[str], error: OSError) -> ArgumentError:
    return ArgumentError(f"cannot write {path_text(path)}: {error.strerror or error}; choose another place")


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, sync: bool = True, comm: Communicator = ALONE) -> Iterator[Path]:
    """Give a temporary name, with the same suffix, for a file that becomes `path` if the body raises nothing."""
    with comm.together():
        target = output_path(path)
    temporary = target.with_name(f"{_of_processes()}{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")
    if sync and os.name == "posix":
        _delete_abandoned(target.parent)
    try:
        with comm.together(), _writing(path):
            yield temporary
            if sync:
                _sync(temporary, os.O_RDWR)
        with comm.together(), _writing(path):
            os.replace(temporary, target)
            if sync and os.name == "posix":
                _sync(target.parent, os.O_RDONLY)
    finally:
        temporary.unlink(missing_ok=True)


def _of_processes() -> str:
    """How the names of incomplete files begin that processes write whose numbers mean the same as here."""
    space = "/proc/self/ns/pid"
    return f"{TEMPORARY}{platform.node()}-{os.stat(space).st_ino if os.path.exists(space) else 0}-"


@cache  # once by each process that writes there
def _delete_abandoned(folder: Path) -> None:
    """Delete incomplete files of processes of this machine that have died."""
    with suppress(OSError):
        for path in folder.glob(f"{TEMPORARY}*"):
            process = path.name.removeprefix(_of_processes()).partition("-")[0]
            try:
                if process.isdecimal():
                    os.kill(int(process), 0)
            except ProcessLookupError:
                path.unlink(missing_ok=True)
            except PermissionError:
                continue  # another user's


@contextmanager
def _writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert errors of the system in the body into one that the file cannot be written."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _sync(path: Path, flags: int) -> None:
    """Wait until a file or a folder is on the disk."""
    handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder(name: str) -> Path:
    """Folder of files that can be made again."""
    chosen = os.environ.get("HPFEM_CACHE_DIR")
    return (Path(chosen) if chosen else _user_folder()) / name


_user_folder = cache(partial(platformdirs.user_cache_path, "hpfem", appauthor=False))


def write_json(path: str | os.PathLike[str], obj: Any) -> None:
    """Write JSON, whole or not at all; see `plain`."""
    text = json.dumps(plain(obj), indent=1, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def plain(obj: Any) -> Any:
    """Convert to JSON's types: NumPy's become numbers and lists, NaN and infinities null."""
    if isinstance(obj, np.ndarray | np.generic):
        obj = obj.tolist()
    if isinstance(obj, Mapping):
        return {str(key): plain(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple | set | frozenset):
        return [plain(value) for value in obj]
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    if obj is None or isinstance(obj, bool | int | str):
        return obj
    raise ArgumentError(f"cannot write a {type(obj).__name__} as JSON: {obj!r}")
