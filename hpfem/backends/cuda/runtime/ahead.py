"""CuPy's kernels of set-up, compiled and loaded before CuPy asks for them one after the other; CUDA's libraries, too.

`array_kernels.json` has their sources, as `python -m benchmarks.array_kernels` recorded them with one version of CuPy.
Those of a group, whose names differ, are one program among our kernels: most of the time to compile one goes into its
headers. Processes begin with them while CuPy is imported. What is not in the table comes when CuPy needs it, as
all does with HPFEM_AHEAD=0.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread, main_thread
from typing import Any

from . import nvrtc

TABLE = Path(__file__).with_name("array_kernels.json")
# Seconds for which CuPy waits for a group in all, and after which it is asked whether the program is at its end.
PATIENCE, PIECE = 30.0, 0.1
# CuPy's own options, beside folders and ours: denormal numbers of float32 are zero. What asks for more is not ours.
_OPTIONS, _OWN = ("-ftz=true",), ["--std=c++17"]
# Of its headers.
_FOLDERS = "", "/cupy/_cccl/thrust", "/cupy/_cccl/libcudacxx"
_FURTHER = ("arch", "enable_cooperative_groups", "name_expressions", "jitify", "to_ltoir")
# CUDA's numbers of attributes of a GPU: those of its architecture.
_ARCHITECTURE = 75, 76
_threads: list[Thread] = []


class _Group:
    """Kernels that are one program, and its modules, by device."""

    def __init__(self, cubin: Future[Path]) -> None:
        self._cubin, self._modules, self._lock = cubin, dict[int, Any](), Lock()
        self._patience = PATIENCE

    def module(self, cupy: Any) -> Any:
        """The module on the current device; an error if it does not compile."""
        number = cupy.cuda.runtime.getDevice()
        with self._lock:
            if number not in self._modules:
                made = cupy.cuda.function.Module()
                made.load_file(str(self._file()))
                self._modules[number] = made
            return self._modules[number]

    def _file(self) -> Path:
        """The program once it is compiled; an error if that takes too long."""
        while self._patience > 0 and main_thread().is_alive():
            with suppress(TimeoutError):
                return self._cubin.result(PIECE)
            self._patience -= PIECE
        return self._cubin.result(0)


def _start(work: Callable[[], None], name: str) -> None:
    thread = Thread(target=work, name=name)
    with suppress(RuntimeError):  # no more threads
        thread.start()
        _threads.append(thread)  # from now on it can be waited for


def loaded() -> None:
    """Wait for the threads: a capture, say, may not bear what they do."""
    for thread in _threads:
        thread.join()


def program(head: str, sources: Sequence[str]) -> str:
    """Write kernels with different names as one program; half precision, which some include, is used by none."""
    parts = [head]
    for number, source in enumerate(sources):
        names = re.findall(r"^ *#define (\w+)", source, re.MULTILINE)
        source = re.sub(r"^ *#include .*", "", source, flags=re.MULTILINE)
        parts += [f"namespace kernel{number} {{\n{source}\n}}", *(f"#undef {name}" for name in names)]
    return "\n".join(parts)


@cache
def _groups(architecture: str) -> dict[str, _Group]:
    """Begin to compile the table's kernels, if it is of the CuPy that is installed; groups by kernels' sources."""
    version, head, groups = json.loads(TABLE.read_bytes())
    folder, found = Path(getattr(find_spec("cupy"), "origin", None) or "").parent, dict[str, _Group]()
    if f'"{version}"' in (folder / "_version.py").read_text(encoding="utf-8").replace("'", '"'):
        options = *(f"-I{folder}/_core/include{part}" for part in _FOLDERS), *_OPTIONS
        for sources in groups:
            group = _Group(nvrtc.start(program(head, sources), architecture, options))
            found |= dict.fromkeys((head + source for source in sources), group)
    return found


def plain(options: Sequence[str], given: dict[str, Any]) -> bool:
    """Whether CuPy compiles with such options as those of a group are compiled with."""
    own = [option for option in options if not option.startswith("-I")]
    return own == _OWN and not any(given.get(name) for name in _FURTHER)


def _wanted() -> bool:
    return os.environ.get("HPFEM_AHEAD") != "0"


def begin_first() -> None:
    """Begin to compile kernels for the first GPU, which a process takes unless it is told, while CuPy is imported."""

    def compile_there() -> None:
        with suppress(Exception):  # what is wrong is said where it is needed
            driver, numbers = ctypes.CDLL("libcuda.so.1"), [ctypes.c_int() for _ in _ARCHITECTURE]
            wrong = driver.cuInit(0)
            for number, what in zip(numbers, _ARCHITECTURE, strict=True):
                wrong = wrong or driver.cuDeviceGetAttribute(ctypes.byref(number), what, 0)
            if not wrong:
                _groups("sm_" + "".join(str(number.value) for number in numbers))

    if _wanted() and "cupy" not in sys.modules:
        _start(compile_there, "nvrtc, first")


def begin(number: int) -> None:
    """Begin to load kernels onto a GPU, and to compile those that are not on disk."""
    if not _wanted():
        return
    loaded()
    try:
        import cupy
        from cupy.cuda import compiler

        find = compiler._compile_module_with_cache
        groups = _groups(f"sm_{cupy.cuda.Device(number).compute_capability}")
    except Exception:  # noqa: BLE001 - CuPy has another compiler, or there is none of ours
        return
    if not groups:
        return

    def found(source: str, options: tuple[str, ...] = (), **given: Any) -> Any:
        """Take a kernel's group, or find the kernel as CuPy does."""
        if source in groups and plain(options, given):
            with suppress(Exception):
                return groups[source].module(cupy)
        return find(source, options, **given)

    def load() -> None:
        for work in (*(group.module for group in dict.fromkeys(groups.values())), _use_libraries):
            if main_thread().is_alive():
                with suppress(Exception), cupy.cuda.Device(number):  # what is wrong is said where it is needed
                    work(cupy)

    compiler._compile_module_with_cache = found
    _start(load, "cupy")


def _use_libraries(cupy: Any) -> None:
    """Small products, a factor, a sparse matrix and a sort: the first of each loads a library."""
    import cupyx.scipy.linalg
    import cupyx.scipy.sparse

    unit = cupy.eye(2)
    for matrix in (unit, unit.astype(cupy.float32)):
        cupy.matmul(matrix, matrix)
    cupyx.scipy.linalg.solve_triangular(cupy.linalg.cholesky(unit), unit, lower=True)
    cupyx.scipy.sparse.csr_matrix(unit).indices.argsort()
