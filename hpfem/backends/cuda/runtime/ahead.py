"""CuPy's kernels of set-up, compiled by processes before CuPy asks for them one after the other.

`array_kernels.json` has their sources, as `python -m benchmarks.array_kernels` recorded them with one version of CuPy.
Others are compiled when CuPy needs them, as all are with HPFEM_AHEAD=0.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread, get_ident
from typing import Any

from ....support.cache import Cache
from ....support.files import cache_folder
from . import nvrtc

TABLE = Path(__file__).with_name("array_kernels.json")
# Seconds for which CuPy waits for a process.
PATIENCE = 30.0


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
    asking, lacking, begun = get_ident(), list[tuple[str, str, Any]](), dict[str, Future[bytes]]()

    class Program(program):  # type: ignore[valid-type, misc]
        """A program of CuPy's, whose kernel may be compiled already."""

        def compile(self, options: tuple[str, ...] = (), *log: Any) -> Any:
            name = Path(self.name).stem
            if asking == get_ident() and self.name.endswith(".cu"):
                raise _Lacking(name, self.src, options)
            made = b""
            with suppress(KeyError, TimeoutError):
                made = begun[name].result(PATIENCE)
            return (made, None) if made else super().compile(options, *log)

    def take(child: Any, some: Sequence[tuple[str, str, Any]]) -> None:
        """Take kernels as they come; CuPy says what is wrong when it needs one that did not compile."""
        with child:
            for name, source, _ in some:
                made = b""
                with suppress(Exception):
                    made = pickle.load(child.stdout)[2]
                begun[name].set_result(made)
                if made:
                    with suppress(OSError):
                        own._kernel_cache_backend.save(name, made, source)
        if all(future.done() for future in begun.values()):
            done.keep(key, b"")

    own._NVRTCProgram = Program
    for source, *options in kernels:
        try:
            core.compile_with_cache(source, tuple(options))
        except _Lacking as kernel:
            lacking.append(kernel.args)
    asking, processes = 0, min(os.cpu_count() or 1, nvrtc.MOST, len(lacking))
    for some in [lacking[first::processes] for first in range(processes)]:
        with suppress(OSError):  # no more processes
            child = nvrtc.process([(source, options) for _, source, options in some])
            begun.update((name, Future()) for name, *_ in some)
            Thread(target=take, args=(child, some), name="compiled ahead", daemon=True).start()
