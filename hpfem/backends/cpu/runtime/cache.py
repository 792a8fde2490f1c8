"""Compiled kernels, kept in memory and in the user's cache folder.

An entry is named by the SHA-256 of everything that it depends on: the IR, LLVM's version, the processor and its
features, and `FORMAT`. It holds a seal, which binds its object code to that name, in front of the code. Entries are
written under a temporary name and renamed, so that processes that compile the same kernel at once never see half of
one. An entry that is damaged, belongs to another user or can be written by one is never loaded: it is compiled again.
The least recently used go first when the folder grows past its limit.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache

from ....support.cache import Cache, whole_elf
from ....support.compiling import compiling
from ....support.files import cache_folder
from .target import LOCK, Code, Target, compile_object, host, llvm_version, load_object

# Version of what an entry is: to be raised with the layout of its file, or with the arguments of a kernel.
FORMAT = 4
LIMIT = 256 << 20
_LOADED: dict[str, Code] = {}


def kernel_cache() -> Cache:
    """Folder of compiled kernels."""
    return Cache(cache_folder("kernels"), ".kernel", code=True, limit=LIMIT)


@cache
def missing() -> str | None:
    """Say in one sentence why no kernels can be compiled here; see `Backend.missing`."""
    try:
        compiled("define void @run(ptr %out) {\n  ret void\n}\n", host())
    except ImportError as error:
        return f"llvmlite cannot be imported ({error}); install it with: pip install llvmlite"
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0]
        return f"LLVM cannot compile here ({reason}); another version of llvmlite may: pip install -U llvmlite"
    return None


def compiled(text: str, target: Target) -> Code:
    """The functions of a module: from memory, from the cache folder, or compiled now."""
    return compiled_as(key_of(text, target), lambda: text, target)


def compiled_as(name: str, write: Callable[[], str], target: Target) -> Code:
    """The same for a module that is written only if its entry, of the key `name`, is missing."""
    found = _LOADED.get(name)
    if found is None:
        with LOCK:
            found = _LOADED.get(name)
            if found is None:
                code = _read(name)
                if code is None:
                    code = _made(name, write(), target)
                found = _LOADED[name] = load_object(code)
    return found


def _made(name: str, text: str, target: Target) -> bytes:
    """Object code of a module that was missing: another process may have compiled it in the meantime."""
    with compiling("compiling a kernel"), kernel_cache().alone(name):
        code = _read(name)
        if code is None:
            code = compile_object(text, target)
            kernel_cache().keep_sealed(name, code)
        return code


def key_of(text: str, target: Target, *parts: str) -> str:
    """Name of what is made of a text for a processor."""
    parts = (str(FORMAT), llvm_version(), target.cpu, target.features, *parts, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(name: str) -> bytes | None:
    """Object code of an entry, None if there is none to be trusted."""
    code = kernel_cache().read_sealed(name)
    # In an incomplete file, LLVM would follow the tables beyond its end.
    return code if code is not None and (whole_elf(code) or sys.platform != "linux") else None
