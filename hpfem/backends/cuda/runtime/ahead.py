"""CuPy's kernels of set-up, compiled by processes before CuPy asks for them one after the other.

`array_kernels.json` has their sources, as `python -m benchmarks.array_kernels` recorded them with one version of CuPy.
Others are compiled when CuPy needs them, as all are with HPFEM_AHEAD=0.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any

from ....support.cache import Cache
from ....support.files import cache_folder
from . import nvrtc

TABLE = Path(__file__).with_name("array_kernels.json")
# Seconds for which CuPy waits for a process.
PATIENCE = 30.0
_CUB = "#include <cub/"


class _Lacking(Exception):
    """A kernel that CuPy has not on disk: name, source, options."""


def begin(architecture: str) -> None:
    """Begin to compile those that CuPy has not on disk, once on a machine."""
    if os.environ.get("HPFEM_AHEAD") == "0" or os.environ.get("CUPY_CACHE_IN_MEMORY"):
        return
    try:
        import cupy
        from cupy._core import core
        from cupy.cuda import compiler as own

        program, same = own._NVRTCProgram, own._get_nvrtc_version() == nvrtc.version()
    except (ImportError, AttributeError):
        return
    text = TABLE.read_bytes()
    known = (cupy.__version__, architecture, os.environ.get("CUPY_CACHE_DIR"), hashlib.sha256(text).hexdigest())
    key, done = hashlib.sha256(repr(known).encode()).hexdigest()[:32], Cache(cache_folder("cuda"), ".ahead")
    version, kernels = json.loads(text) if done.read(key) is None else ("", [])
    if version != cupy.__version__ or not same:
        return
    asking, lacking, begun = get_ident(), dict[str, tuple[str, Sequence[str]]](), dict[str, Future[bytes]]()
    compile_here = program.compile

    def compiled(kernel: Any, options: tuple[str, ...] = (), *log: Any) -> Any:
        """Say what CuPy lacks, while it is asked; then take what a process has compiled, unless it has yet to begin."""
        name = Path(kernel.name).stem
        if asking == get_ident() and kernel.name.endswith(".cu"):
            raise _Lacking(name, kernel.src, options)
        made = b""
        with suppress(Exception):
            made = b"" if begun[name].cancel() else begun[name].result(PATIENCE)
        return (made, None) if made else compile_here(kernel, options, *log)

    def make(name: str) -> bytes:
        """Compile a kernel; CuPy says what is wrong when it needs one that does not."""
        source, options = lacking[name]
        made = nvrtc.by_process(source, options)[2]
        if made:
            with suppress(OSError):
                own._kernel_cache_backend.save(name, made, source)
        left.discard(name)
        if not left:
            done.keep(key, b"")
        return made

    program.compile = compiled
    # Those that include CUB take the longest, and twice as long to write their headers, precompiled, of 250 MB.
    for source, *options in sorted(kernels, key=lambda row: _CUB not in row[0]):
        try:
            core.compile_with_cache(source, tuple(options))
        except _Lacking as kernel:
            name, text, given = kernel.args
            lacking[name] = text, [option for option in given if option != "--pch" or _CUB not in source]
    asking = 0
    if not lacking:
        program.compile = compile_here
        done.keep(key, b"")
    left = set(lacking)
    begun.update((name, nvrtc.begin(partial(make, name), late=True)) for name in lacking)
