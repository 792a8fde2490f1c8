"""What the program says beside its results: fallbacks once, progress on a terminal, the machine; whole files."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import secrets
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import scipy
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hpfem.errors import ArgumentError, HpfemWarning

__all__ = [
    "atomic_path",
    "available_memory",
    "cache_folder",
    "forget_reports",
    "machine_description",
    "plain",
    "processor_name",
    "progress",
    "report_once",
    "reports",
    "warn",
    "write_json",
]

logger = logging.getLogger("hpfem")

_SIMD = ("sse2", "avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "avx512_bf16", "asimd", "neon", "sve", "sve2")

_reports: dict[str, str] = {}
_reports_lock = threading.Lock()


def warn(message: str) -> None:
    """Give an `HpfemWarning` at the line outside this package that led here.

    Parameters
    ----------
    message
        One line: what was found, what was done, what to do.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "hpfem":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, HpfemWarning, stacklevel=level)


def report_once(key: str, message: str) -> bool:
    """Log a warning on the logger "hpfem", the first time that `key` comes up in this process.

    Without any logging set-up Python prints warnings to standard error; `logging.getLogger("hpfem").setLevel("ERROR")`
    silences them.

    Parameters
    ----------
    key
        What is reported, e.g. "helmholtz/pyramid P=9/sumfac-top".
    message
        One line: what was wanted, what is done instead, why.

    Returns
    -------
    bool
        Whether it was said now.
    """
    with _reports_lock:
        if key in _reports:
            return False
        _reports[key] = message
    logger.warning("%s", message)
    return True


def reports() -> dict[str, str]:
    """Tell everything reported so far in this process.

    Returns
    -------
    dict
        Message by key.
    """
    with _reports_lock:
        return dict(_reports)


def forget_reports() -> None:
    """Let everything be reported anew."""
    with _reports_lock:
        _reports.clear()


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error while the body runs, if that is a terminal.

    Parameters
    ----------
    description
        What is going on, shown left of the bar.
    total
        Number of steps; None where it is not known.

    Yields
    ------
    Callable[..., None]
        `step(n=1, description=None)`: n more steps are done, and what comes next.
    """
    if not sys.stderr.isatty():
        yield lambda n=1, description=None: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)

        def step(n: int = 1, description: str | None = None) -> None:
            bar.update(task, advance=n, description=description)

        yield step


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the name of a temporary file beside `path` that becomes `path` when the body ends without an exception.

    The temporary name ends like `path`, so writers that go by the suffix do what they should.

    Parameters
    ----------
    path : path
        File to write; its folder must exist.

    Yields
    ------
    Path
        The temporary name.

    Raises
    ------
    ArgumentError
        If the folder does not exist or `path` is a folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ArgumentError(f"cannot write {path}: there is no folder {path.parent}; create it first")
    if path.is_dir():
        raise ArgumentError(f"cannot write {path}: it is a folder; give a file name")
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def cache_folder(name: str) -> Path:
    """Tell where things are kept that can be made again.

    Parameters
    ----------
    name : str
        Kind of things: "kernels", "tuning", ...

    Returns
    -------
    Path
        In the folder that HPFEM_CACHE_DIR names, or else in the user's cache folder; it may not exist yet.
    """
    chosen = os.environ.get("HPFEM_CACHE_DIR")
    return (Path(chosen) if chosen else platformdirs.user_cache_path("hpfem", appauthor=False)) / name


def write_json(path: str | os.PathLike[str], obj: Any) -> None:
    """Write `obj` as indented JSON, whole or not at all.

    NumPy numbers and arrays become numbers and lists, NaN and infinities null (JSON has neither).

    Parameters
    ----------
    path
        File to write; its folder must exist.
    obj
        Mappings, sequences, strings, numbers, NumPy scalars and arrays, paths, nested.

    Raises
    ------
    ArgumentError
        If the folder does not exist, or something in `obj` has no JSON form.
    """
    text = json.dumps(plain(obj), indent=1, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def plain(obj: Any) -> Any:
    """Return `obj` in JSON's own types.

    Parameters
    ----------
    obj
        See `write_json`.

    Returns
    -------
    dict, list, str, int, float, bool or None

    Raises
    ------
    ArgumentError
        If something in it has no JSON form.
    """
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


def machine_description() -> dict[str, Any]:
    """Describe the machine and the software that results were made on, for result files.

    Returns
    -------
    dict
        "cpu", "cores" (usable by this process), "simd", "memory_bytes", "system", "python", "numpy", "scipy", "blas",
        "threads" (limits set in the environment), "date" (UTC), "commit" (of the checkout hpfem runs from;
        elsewhere what the variable HPFEM_COMMIT says, or None), "gpu" (names of the devices; empty without CuPy or a
        GPU).
    """
    cpu, flags = _cpu()
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "simd": [flag for flag in _SIMD if flag in flags],
        "memory_bytes": _memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
        "threads": {name: os.environ[name] for name in variables if name in os.environ},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "gpu": _gpus(),
    }


def _cpu() -> tuple[str, set[str]]:
    """Name and feature flags of the processor, as far as the system tells them."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine(), set()
    fields: dict[str, str] = {}
    for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags") or fields.get("Features") or ""
    return fields.get("model name") or platform.machine(), set(flags.split())


@cache
def processor_name() -> str:
    """Name the processor.

    Returns
    -------
    str
        As the system calls it.
    """
    return _cpu()[0]


def _memory_bytes() -> int | None:
    """Physical memory in bytes, None where the system does not tell."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> float:
    """Tell how much memory this process may still take.

    Returns
    -------
    float
        Bytes: what the system has free, or the limit of the process's control group if that is less; infinity where
        nothing of it is told.
    """
    sizes = [float(_memory_bytes() or math.inf)]
    info, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    if info.exists():
        lines = (line.split() for line in info.read_text(encoding="ascii").splitlines())
        sizes += [1024.0 * int(words[1]) for words in lines if words[0] == "MemAvailable:"]
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()).isdigit():
        sizes.append(float(text))
    return min(sizes)


def _commit() -> str | None:
    """Commit of the checkout that this package runs from, with "+" where files differ from it."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return os.environ.get("HPFEM_COMMIT")
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changes = [*git, "status", "--porcelain", "--untracked-files=no"]
        dirty = subprocess.run(changes, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def _gpus() -> list[str]:
    """Names of the NVIDIA GPUs that CuPy sees."""
    try:
        runtime = import_module("cupy").cuda.runtime
    except ImportError:
        return []
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError:
        return []
    return [runtime.getDeviceProperties(device)["name"].decode() for device in range(count)]
