"""The machine: its description for result files, its processor, its free memory."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy

# () -> names of devices other than the host; backends add theirs.
DEVICE_NAMES: list[Callable[[], list[str]]] = []

_SIMD = ("sse2", "avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "avx512_bf16", "asimd", "neon", "sve", "sve2")


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
        "gpu": [name for names in DEVICE_NAMES for name in names()],
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
    """Name the processor."""
    return _cpu()[0]


def _memory_bytes() -> int | None:
    """Physical memory in bytes, None if unknown."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> float:
    """Tell how much memory is free for this process."""
    sizes = [float(_memory_bytes() or math.inf)]
    info, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    if info.exists():
        lines = (line.split() for line in info.read_text(encoding="ascii").splitlines())
        sizes += [1024.0 * int(words[1]) for words in lines if words[0] == "MemAvailable:"]
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()).isdigit():
        sizes.append(float(text))
    return min(sizes)


def _commit() -> str | None:
    """Commit of the checkout that this package runs from, with "+" if files differ from it."""
    root = Path(__file__).resolve().parent.parent.parent
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
