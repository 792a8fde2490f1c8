"""How processes end: one that fails, or has an exit code other than 0, ends the others, which would wait for ever."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn

# Variables in which launchers give processes their number.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")
# Seconds for the first process to print what all would print, and for mpirun to pass it on; its exit code.
_HEAD_START, _FORWARDED, FAILED = 2.0, 0.3, 1
# The process that has started this one. Once that has ended, `os.getppid` gives another one.
_PARENT = os.getppid()


def told() -> int:
    """Count the processes that `mpirun` says that it has started."""
    return max((int(os.environ[name]) for name in _SIZES if os.environ.get(name, "").isdigit()), default=1)


def launched() -> bool:
    """Whether a launcher has started this process: it passes the output on, even where that looks like a terminal."""
    return any(name in os.environ for name in _SIZES)


def started() -> Any:
    """Find MPI's communicator of all processes."""
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized() or module.COMM_WORLD.size == 1:
        return None
    return module.COMM_WORLD


def end_all(code: int, say: Callable[[], Any]) -> None:
    """End all processes with an exit code, after printing the reason; only print it if MPI has not started."""
    mpi = started()
    if mpi is None:
        say()
        return
    if mpi.rank:
        time.sleep(_HEAD_START)
    say()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    time.sleep(_FORWARDED)
    mpi.Abort(code)
    os._exit(code)  # MPICH's Abort may return before its end, and this process would go on


def end_if_left_behind() -> None:
    """End if mpirun has ended without this process, which would wait for the others for ever."""
    if os.getppid() != _PARENT:
        with suppress(OSError):  # nobody may be there to read it
            os.write(2, b"hpfem: error: mpirun has ended, so this process ends too\n")
        os._exit(FAILED)


Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def _ending_all(before: Hook) -> Hook:
    """A hook that ends all processes when one ends by an exception."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        def say() -> None:
            mpi = started()
            if mpi is not None and mpi.rank:
                lines = traceback.format_exception(kind, error, trace)
                sys.stderr.write("".join([f"on process {mpi.rank} of {mpi.size}:\n", *lines]))
            else:
                before(kind, error, trace)

        end_all(FAILED, say)

    return hook


_given_code: Any = SystemExit.__dict__["code"]


def _code(error: SystemExit) -> Any:
    """`SystemExit.code`, which Python asks for outside of all functions when nothing has caught the exception."""
    given = _given_code.__get__(error)
    try:
        sys._getframe(1)
    except ValueError:
        if given is not None and given != 0 and started() is not None:
            known = isinstance(given, int)
            end_all(given if known else FAILED, lambda: None if known else print(given, file=sys.stderr))
    return given


def _exit(code: Any = None) -> NoReturn:
    """As `sys.exit`, which until Python 3.12 makes no exception whose code is asked for."""
    raise SystemExit(code)


# From the import on, as a script may fail before it has called anything collective.
if told() > 1:
    sys.excepthook, sys.exit = _ending_all(sys.excepthook), _exit
    # Any `SystemExit` that is not caught and is no success ends all; Python has no hook for it. Classes show a view of
    # the dictionary, which this is itself.
    gc.get_referents(SystemExit.__dict__)[0]["code"] = property(_code, _given_code.__set__, _given_code.__delete__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
