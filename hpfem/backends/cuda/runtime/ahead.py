"""CuPy's kernels of set-up, loaded or compiled before CuPy asks for them one after the other; CUDA's libraries, too.

`array_kernels.json` has their sources, as `python -m benchmarks.array_kernels` recorded them with one version of CuPy.
A thread loads those that CuPy has on disk, while the host prepares the first problem, and processes compile the others.
What is not in the table comes when CuPy needs it, as all does with HPFEM_AHEAD=0.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread, get_ident, main_thread
from typing import Any

from . import nvrtc

TABLE = Path(__file__).with_name("array_kernels.json")
# Seconds for which CuPy waits for a process.
PATIENCE = 30.0
_CUB = "#include <cub/"
_threads: list[Thread] = []


class _Lacking(Exception):
    """A kernel that CuPy has not on disk: name, source, options."""


def loaded() -> None:
    """Wait for the thread: a capture, say, may not bear what it does."""
    for thread in _threads:
        thread.join()


def begin(number: int) -> None:
    """Begin to load kernels onto a GPU, and to compile those that CuPy has not on disk."""
    if os.environ.get("HPFEM_AHEAD") == "0" or os.environ.get("CUPY_CACHE_IN_MEMORY"):
        return
    try:
        import cupy
        from cupy._core import core
        from cupy.cuda import compiler as own

        program, same = own._NVRTCProgram, own._get_nvrtc_version() == nvrtc.version()
        compile_here, find, keep = program.compile, own._compile_module_with_cache, own._kernel_cache_backend.save
    except (ImportError, AttributeError):
        return
    if not same:
        return
    asking, there, begun = 0, dict[Any, Any](), dict[str, Future[bytes]]()

    def compiled(kernel: Any, options: tuple[str, ...] = (), *log: Any) -> Any:
        """Say what CuPy lacks, while it is asked; then take what a process has compiled, unless it has yet to begin."""
        name = Path(kernel.name).stem
        if asking == get_ident() and kernel.name.endswith(".cu"):
            raise _Lacking(name, kernel.src, options)
        made = b""
        with suppress(Exception):
            made = b"" if begun[name].cancel() else begun[name].result(PATIENCE)
        return (made, None) if made else compile_here(kernel, options, *log)

    def found(source: str, options: tuple[str, ...] = (), **given: Any) -> Any:
        """Find a kernel, and keep it until CuPy asks again, or take it."""
        others = {name: value for name, value in given.items() if name not in ("extra_source", "log_stream")}
        key = cupy.cuda.runtime.getDevice(), source, options, repr(others)
        if asking != get_ident():
            return there.pop(key, None) or find(source, options, **given)
        there[key] = find(source, options, **given)
        return there[key]

    def make(name: str, source: str, options: list[str]) -> bytes:
        """Compile a kernel; CuPy says what is wrong when it needs one that does not."""
        made = nvrtc.by_process(source, options)[2]
        if made:
            with suppress(OSError):
                keep(name, made, source)
        return made

    def load() -> None:
        nonlocal asking
        version, kernels = json.loads(TABLE.read_bytes())
        if version != cupy.__version__:
            return
        with suppress(Exception), cupy.cuda.Device(number):  # what is wrong is said where it is needed
            asking = get_ident()
            # Those that include CUB take the longest, and twice as long to write their headers, precompiled, of 250 MB.
            for source, *options in sorted(kernels, key=lambda row: _CUB not in row[0]):
                try:
                    if main_thread().is_alive():
                        core.compile_with_cache(source, tuple(options))
                except _Lacking as kernel:
                    name, text, given = kernel.args
                    given = [option for option in given if option != "--pch" or _CUB not in source]
                    begun[name] = nvrtc.begin(partial(make, name, text, given), late=True)
            asking = 0
            if not begun and main_thread().is_alive():
                _use_libraries(cupy)
        asking = 0  # where that failed, too: a later thread may have this one's number

    program.compile, own._compile_module_with_cache = compiled, found
    _threads.append(Thread(target=load, name="cupy"))
    _threads[-1].start()


def _use_libraries(cupy: Any) -> None:
    """Small products, a factor, a sparse matrix and a sort: the first of each loads a library."""
    import cupyx.scipy.linalg
    import cupyx.scipy.sparse

    unit = cupy.eye(2)
    for matrix in (unit, unit.astype(cupy.float32)):
        cupy.matmul(matrix, matrix)
    cupyx.scipy.linalg.solve_triangular(cupy.linalg.cholesky(unit), unit, lower=True)
    cupyx.scipy.sparse.csr_matrix(unit).indices.argsort()
