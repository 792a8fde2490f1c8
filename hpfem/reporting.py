"""What the program says beside its results: fallbacks once, progress on a terminal, the machine."""

from __future__ import annotations

import logging
import math
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import scipy
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hpfem.errors import HpfemWarning

__all__ = [
    "available_memory",
    "forget_reports",
    "machine_description",
    "processor_name",
    "progress",
    "progress_if_long",
    "report_once",
    "reports",
    "warn",
]

logger = logging.getLogger("hpfem")

_SIMD = ("sse2", "avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "avx512_bf16", "asimd", "neon", "sve", "sve2")

# Message by key, in a list that tells who came first: without a lock, which a fork or a signal could leave held.
_reports: dict[str, list[str]] = {}

# Seconds after which the user is told what takes so long.
PATIENCE = 1.0
# The bar on the terminal, if there is one.
_bars: list[Progress] = []


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
    mine = [message]
    if _reports.setdefault(key, mine) is not mine:
        return False
    logger.warning("%s", message)
    return True


def reports() -> dict[str, str]:
    """Tell everything reported so far in this process.

    Returns
    -------
    dict
        Message by key.
    """
    return {key: message for key, (message,) in list(_reports.items())}


def forget_reports() -> None:
    """Let everything be reported anew."""
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
    if not _on_terminal():
        yield lambda n=1, description=None: None
        return
    with ExitStack() as stack:
        if not _bars:  # another's bar gets a line more: two would write over each other
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            made = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            _bars.append(stack.enter_context(made))
            stack.callback(_bars.remove, made)
        else:
            stack.callback(lambda: bar.remove_task(task))
        bar = _bars[0]
        task = bar.add_task(description, total=total)

        def step(n: int = 1, description: str | None = None) -> None:
            bar.update(task, advance=n, description=description)

        yield step


@contextmanager
def progress_if_long(description: str) -> Iterator[None]:
    """Show a progress bar while the body runs, from when it has run for `PATIENCE` seconds.

    Parameters
    ----------
    description
        What is going on.

    Yields
    ------
    None
    """
    if not _on_terminal():
        yield
        return
    with ExitStack() as stack:
        timer = Timer(PATIENCE, lambda: stack.enter_context(progress(description)))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


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
