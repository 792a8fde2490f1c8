"""The processor that kernels are compiled for, and LLVM: IR to object code, object code to functions."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

T = TypeVar("T")

# Arguments as in `codegen.ir.ARGUMENTS`.
Run = Callable[..., None]
_PROTOTYPE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4, *[ctypes.c_void_p] * 8, ctypes.c_int64)
# Of LLVM's code generation. Passes over the IR are not used: they would double the time without a gain (measured).
LEVEL = 1
_NUMBERS = count()  # of what is loaded
# Lock of LLVM. A signal handler may compile while its thread does; a fork waits for running compilations.
LOCK = threading.RLock()
_LOCKS: list[Any] = [LOCK]  # and that of llvmlite's calls, some of which nobody makes: they free what is unused
_thread = cache(partial(ThreadPoolExecutor, 1))  # it is kept: to start one takes longer than to load a kernel
if hasattr(os, "register_at_fork"):
    release = {f"after_in_{process}": lambda: [lock.release() for lock in _LOCKS] for process in ("parent", "child")}
    os.register_at_fork(before=lambda: [lock.acquire() for lock in _LOCKS], **release)
    os.register_at_fork(after_in_child=_thread.cache_clear)  # no thread outlives a fork


@dataclass(frozen=True)
class Target:
    """A processor, as LLVM names it."""

    cpu: str
    features: str  # "+avx2,-avx512f,..."
    vector_bytes: int  # 64 with AVX-512, 32 with AVX, else 16

    def lanes(self, dtype: DTypeLike) -> int:
        """Elements of a group: numbers of a vector."""
        return self.vector_bytes // np.dtype(dtype).itemsize


@dataclass(frozen=True)
class Code:
    """Loaded object code."""

    run: Run
    address: int  # of `run`, for other code
    engine: Any  # keeps the code in memory

    def run_holding(self, held: object, *arguments: int) -> None:
        """Run as a task, which holds the arrays behind the addresses."""
        self.run(*arguments)


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _LOCKS.append(llvm.ffi.lib._lock._lock)
    return llvm


def llvm_version() -> str:
    """Version of LLVM, of llvmlite, and the level."""
    import llvmlite

    return ".".join(map(str, _llvm().llvm_version_info)) + f"/{llvmlite.__version__}/{LEVEL}"


@cache
def host() -> Target:
    """Find this machine's processor."""
    llvm = _llvm()
    features = llvm.get_host_cpu_features()
    wide = 64 if features.get("avx512f") and features.get("avx512vl") else 32 if features.get("avx") else 16
    return Target(llvm.get_host_cpu_name(), features.flatten(), wide)


def _machine(target: Target) -> Any:
    return (
        _llvm()
        .Target.from_default_triple()
        .create_target_machine(cpu=target.cpu, features=target.features, opt=LEVEL, reloc="pic", codemodel="small")
    )


# The C library's functions may be far away: their addresses are read from a table that is loaded beside the code.
_FAR_FUNCTIONS = '\n!llvm.module.flags = !{!0}\n!0 = !{i32 7, !"RtLibUseGOT", i32 1}\n'


def compile_object(text: str, target: Target) -> bytes:
    """Compile IR to object code."""
    llvm = _llvm()

    def work() -> bytes:
        machine = _machine(target)
        module = llvm.parse_assembly(text + _FAR_FUNCTIONS)
        module.verify()
        return bytes(machine.emit_object(module))

    return _undisturbed(work)


def load_object(code: bytes, symbols: Mapping[str, int] = MappingProxyType({})) -> Code:
    """Load object code made by `compile_object` into this process, with addresses of what it has elsewhere."""
    builder = _llvm().JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol("run")
    for symbol, address in symbols.items():
        builder.import_symbol(symbol, address)

    def work() -> Code:
        library = builder.link(_linker(), f"code {next(_NUMBERS)}")
        return Code(_PROTOTYPE(library["run"]), library["run"], library)

    return _undisturbed(work)


@cache
def _linker() -> Any:
    """LLVM's linker of libraries with names of their own. JITLink puts the code and the constants of one side by side:
    the distances between them have 32 bits.
    """
    return _llvm().create_lljit_compiler(use_jit_link=True)


def _undisturbed(work: Callable[[], T]) -> T:
    """Result of a function that uses LLVM, run in a thread where no handler of a signal can interrupt it."""
    with LOCK:
        thread = _thread()
        try:
            future = thread.submit(work)
        except BaseException:  # a thread whose start is interrupted may be unknown to those who end it with the program
            thread.shutdown(cancel_futures=True)
            _thread.cache_clear()
            raise
        try:
            return future.result()
        finally:  # an interrupted caller keeps the lock as long: a fork in the middle leaves LLVM's own locks closed
            wait([future])
