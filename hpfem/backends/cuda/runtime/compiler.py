"""NVRTC by ctypes alone: run as a program, it compiles the kernels that its parent sends, one after the other."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def opened(name: str) -> ctypes.CDLL:
    """Load NVRTC by its path or name."""
    # NVRTC of some wheels does not find its second library beside itself, but uses one that is loaded already.
    for builtins in Path(name).parent.glob("libnvrtc-builtins.so.*") if os.path.isabs(name) else ():
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(name)


def compiled(nvrtc: ctypes.CDLL, source: str, options: Sequence[str], result: str = "CUBIN") -> tuple[int, str, bytes]:
    """Compile a kernel: status, the compiler's output, machine code, or its "PTX"."""

    def text(what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw[: size.value]

    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"hpfem.cu", 0, None, None)
    try:
        given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = nvrtc.nvrtcCompileProgram(program, len(options), given)
        log = text("ProgramLog").decode(errors="replace").rstrip("\0")
        return int(status), log, b"" if status else text(result)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _end_with(parent: int) -> None:
    """End when the parent has ended, even if another process has kept its end of the pipe."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the parent
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    library = opened(sys.argv[2])
    with suppress(EOFError, OSError):  # the parent has ended, or needs it no more
        while True:
            pickle.dump(compiled(library, *pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
            sys.stdout.flush()
