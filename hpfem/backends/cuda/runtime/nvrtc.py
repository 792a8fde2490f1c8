"""NVRTC, CUDA's compiler as a library: kernel source to machine code, without a GPU, a toolkit or CuPy.

The library is looked for where the wheel `nvidia-cuda-nvrtc` puts it (CuPy's extra `[ctk]` installs it), then where the
system's loader looks.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from queue import Empty, PriorityQueue
from tempfile import TemporaryDirectory
from threading import Thread, local
from typing import Any, TypeVar

from ....errors import DeviceError
from ....support.cache import Cache, seal, whole_elf
from ....support.files import cache_folder
from . import compiler
from .compiler import compiled, opened

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll")
# Lambdas need no annotation, on every NVRTC since 12.
OPTIONS = ("--std=c++17", "--device-as-default-execution-space")
# Largest size of all compiled kernels; and seconds for which recently used ones are always kept, for loading.
LIMIT, SPARED = 2 << 30, 3600.0
_LOG = ".log"
# Processes that compile at a time; each takes some 100 MB, until it had nothing to do for so many seconds.
MOST, IDLE = 16, 20.0
# What NVRTC says of a kernel: that it compiles, that it does not. The rest it says of the machine.
_VERDICTS = (0, 6)
T = TypeVar("T")
# What is to be compiled by the threads, each of which has its own process.
_asked: PriorityQueue[Any] = PriorityQueue()
_numbers, _threads, _own = count(), list[Thread](), local()


@dataclass(frozen=True)
class Resources:
    """The compiler's report on a kernel, per thread."""

    registers: int
    spill_bytes: int  # stored to and loaded from local memory because registers ran out
    stack_bytes: int  # of local memory


@dataclass(frozen=True)
class Binary:
    """A compiled kernel, and the compiler's output with the assembler's report."""

    cubin: bytes
    log: str

    @property
    def resources(self) -> Resources:
        """Registers and spills, from the assembler's report."""
        registers = re.search(r"Used (\d+) registers", self.log)
        local = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", self.log)
        if registers is None or local is None:
            raise DeviceError(f"the compiler reported no registers: {self.log[:200]!r}")
        return Resources(int(registers[1]), int(local[2]) + int(local[3]), int(local[1]))


def _candidates() -> list[str]:
    folders = [Path(entry) / "nvidia" for entry in sys.path if entry]
    found = [
        str(path)
        for folder in folders
        for pattern in ("cu13/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*", "*/bin/**/nvrtc64_*0.dll")
        for path in sorted(folder.glob(pattern))
    ]
    return [*found, *_NAMES]


@cache
def library() -> ctypes.CDLL:
    """Load NVRTC."""
    for name in _candidates():
        try:
            return opened(name)
        except OSError:
            continue
    raise DeviceError(
        "NVRTC, CUDA's run-time compiler, was not found; it comes with pip install 'hpfem[cuda13]' (or cuda12)"
    )


def version() -> tuple[int, int]:
    """Version of NVRTC."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _process() -> Any:
    """Start a process that compiles kernels, one after the other, until its pipe is closed or this process ends."""
    if "python" not in Path(sys.executable or "").name.lower():  # it may be a program that has Python in it
        raise OSError("no Python to be run")
    command = [sys.executable, "-I", "-S", compiler.__file__, str(os.getpid()), library()._name]
    pipe: Any = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def _end_process() -> None:
    """End the process of this thread."""
    child, _own.process = getattr(_own, "process", None), None
    if child is not None:
        with suppress(OSError):  # it may have ended
            child.stdin.close()
        child.stdout.close()
        child.kill()
        child.wait()


def by_process(source: str, options: Sequence[str]) -> tuple[int, str, bytes]:
    """`compiled` in the process of this thread, as threads of one process wait for each other in NVRTC."""
    if getattr(_own, "process", None) is None or _own.process.poll() is not None:
        _end_process()
        _own.process = _process()
    child = _own.process
    if version() >= (12, 9):  # it keeps what it makes, as we do, but by CUDA's driver: a process would hold the GPU
        options = [*options, "--no-cache"]
    try:
        pickle.dump((source, options), child.stdin)
        child.stdin.flush()
        # A process that was forked in the meantime may have the other end, too: then nothing tells that this one died.
        while hasattr(select, "poll") and not _readable(child.stdout):
            if child.poll() is not None:
                raise EOFError
        status, log, cubin = pickle.load(child.stdout)
        return int(status), str(log), bytes(cubin)
    except BaseException:
        _end_process()
        raise


def _readable(pipe: Any) -> bool:
    """Whether there is something to be read, or nothing will ever be; waits for a second."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(1000))


def _apart(source: str, options: Sequence[str]) -> tuple[int, str, bytes]:
    """`by_process`, or here if a process does not come to a verdict: it was killed, or there is no memory for it."""
    with suppress(Exception):
        found = by_process(source, options)
        if found[0] in _VERDICTS:
            return found
    return compiled(library(), source, options)


def compile_source(source: str, architecture: str, apart: bool = False, more: Sequence[str] = ()) -> Binary:
    """Compile a kernel to machine code, here or in a process of its own, with more options than all have."""
    options = [*OPTIONS, *more, f"--gpu-architecture={architecture}", "--ptxas-options=-v"]
    status, log, cubin = _apart(source, options) if apart else compiled(library(), source, options)
    if status != 0:
        lines = log.splitlines()  # warnings, which are many, and what is wrong
        said = [line.strip() for line in lines if "error" in line] or lines[-20:]
        raise DeviceError(f"a kernel does not compile for {architecture}: {'; '.join(said)[:2000]}")
    return Binary(cubin, log)


def cached(source: str, architecture: str, apart: bool = False, more: Sequence[str] = ()) -> Path:
    """Compile a kernel as `compile_source` does, or find it in the user's cache."""
    key = _key(source, architecture, more)
    kept = kernel_cache()
    # Processes of a machine need the same kernels at the same time: one of them compiles each kernel.
    with nullcontext() if _there(key) else kept.alone(key):
        if not _there(key):
            binary = compile_source(source, architecture, apart, more)
            if _keep(binary, key, kept):
                kept.grown(SPARED)
            else:
                kept = replace(kept, folder=Path(_own_folder().name))
                if not _keep(binary, key, kept):
                    raise DeviceError(f"a compiled kernel cannot be written to {kept.folder}; free space there")
    return kept.path(key)


def _keep(binary: Binary, key: str, kept: Cache) -> bool:
    """Write a kernel, then the compiler's report, with a seal on both."""
    log = binary.log.encode()
    head = seal(key, binary.cubin, log).hex().encode() + b"\n"
    return kept.keep(key, binary.cubin) and replace(kept, suffix=_LOG).keep(key, head + log)


@cache
def _own_folder() -> TemporaryDirectory[str]:
    """A folder that is deleted with this process, used if the cache cannot be written."""
    return TemporaryDirectory(prefix="hpfem-")


def _there(key: str) -> bool:
    """Whether a kernel is in the cache, complete and with the right key; it is marked as used."""
    cubin, notes = kernel_cache().read(key), replace(kernel_cache(), suffix=_LOG).read(key)
    if cubin is None or notes is None:
        return False
    head, _, log = notes.partition(b"\n")
    return whole_elf(cubin) and head == seal(key, cubin, log).hex().encode()


def kernel_cache() -> Cache:
    """Folder of compiled kernels."""
    return Cache(cache_folder("cuda"), ".cubin", (_LOG,), code=True, limit=LIMIT)


def _key(source: str, architecture: str, more: Sequence[str]) -> str:
    parts = [source, architecture, str(version()), *OPTIONS, *more]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)


def _serve(asked: PriorityQueue[Any]) -> None:
    """The loop of a thread with a process of its own."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})  # to write to a process that has died is an error
    while True:
        try:
            _do(*asked.get(timeout=IDLE if getattr(_own, "process", None) else None)[2:])
        except Empty:
            _end_process()


def begin(work: Callable[[], T], late: bool = False) -> Future[T]:
    """Begin work that compiles, on a thread with a process for that; what is late after all that is not."""
    future: Future[T] = Future()
    _asked.put((late, next(_numbers), future, work))
    if len(_threads) < min(os.cpu_count() or 1, MOST):
        thread = Thread(target=_serve, args=(_asked,), name="nvrtc", daemon=True)
        with suppress(RuntimeError):  # no more threads
            thread.start()
            _threads.append(thread)
    if not _threads:
        _do(*_asked.get()[2:])
    return future


def _start_anew() -> None:
    """Threads do not survive a fork, and their work belongs to the parent."""
    global _asked
    _asked = PriorityQueue()
    _threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


def start(source: str, architecture: str, more: Sequence[str] = (), late: bool = False) -> Future[Path]:
    """Begin `cached`, in a process of its own unless there is nothing to compile; see `begin`."""
    key = _key(source, architecture, more)
    if not _there(key):
        return begin(partial(cached, source, architecture, True, more), late)
    there: Future[Path] = Future()
    there.set_result(kernel_cache().path(key))
    return there


def resources(cubin: Path) -> Resources:
    """Registers and spills of a kernel in the cache."""
    return Binary(b"", cubin.with_suffix(_LOG).read_text(encoding="utf-8")).resources
