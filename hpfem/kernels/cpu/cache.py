"""Compiled kernels, kept in memory and in the user's cache folder.

An entry is named by the SHA-256 of everything that it depends on: the IR, LLVM's version, the processor and its
features, and `FORMAT`. It holds the SHA-256 of its object code in front of the code. Entries are written under a
temporary name and renamed, so that processes that compile the same kernel at once never see half of one. An entry that
is damaged, belongs to another user or can be written by one is never loaded: it is compiled again. The least recently
used go first when the folder grows past its limit.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from ...reporting import cache_folder, report_once
from ..kept import CacheInfo, Kept
from .target import LOCK, Code, Target, compile_object, llvm_version, load_object

# Version of what an entry is: to be raised with the layout of its file, or with the arguments of a kernel.
FORMAT = 1
LIMIT = 256 << 20
_SUFFIX = ".kernel"
_LOADED: dict[str, Code] = {}


def folder() -> Path:
    """Folder of compiled kernels."""
    return cache_folder("kernels")


def _kept() -> Kept:
    return Kept(folder(), _SUFFIX)


def cache_info() -> CacheInfo:
    """Count what the folder of compiled kernels holds."""
    return _kept().info(LIMIT)


def cache_clear() -> int:
    """Delete the compiled kernels in the cache folder; returns how many there were."""
    return _kept().clear()


def compiled(text: str, target: Target) -> Code:
    """The functions of a module: from memory, from the cache folder, or compiled now.

    Parameters
    ----------
    text : str
        A module in LLVM IR.
    target : Target

    Returns
    -------
    Code
    """
    name = _key(text, target)
    with LOCK:
        if name not in _LOADED:
            path = folder() / (name + _SUFFIX)
            content = _read(path)
            if content is None:
                content = compile_object(text, target)
                _write(path, content)
            _LOADED[name] = load_object(content)
        return _LOADED[name]


def _key(text: str, target: Target) -> str:
    parts = (str(FORMAT), llvm_version(), target.cpu, target.features, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _ours(status: os.stat_result) -> bool:
    """Whether only we can have written it."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(path: Path) -> bytes | None:
    """Object code of an entry, None if there is none to be trusted."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or not _ours(status) or not _ours(path.parent.stat()):
            return None
        content = file.read()
    digest, code = content[:32], content[32:]
    if hashlib.sha256(code).digest() != digest:
        return None
    try:
        os.utime(path)
    except OSError:
        pass  # a read-only folder keeps no record of use
    return code


def _write(path: Path, code: bytes) -> None:
    """Keep an entry; a folder that cannot be written, or that others can write, costs compiling again next time."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _ours(path.parent.stat()):
            report_once("kernels/cache", f"compiled kernels are not kept: others can write to {path.parent}")
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _kept().prune(LIMIT)
    except OSError as error:
        report_once("kernels/cache", f"compiled kernels are not kept: {error}")
