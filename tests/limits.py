"""Run something in a process of its own, under limits of memory, time and file size, with what kills it."""

import gc
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

MIB = 1 << 20


def forked(action: Callable[[], None]) -> int:
    """Run in a copy of this process; returns its exit code, negative for the signal that killed it."""
    child = os.fork()
    if child == 0:
        gc.freeze()  # time of the child is not spent on searching what the parent holds
        code = 1
        try:
            action()
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may come back into the copy of the test
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))


def limit_time(seconds: int) -> None:
    """Kill this process when it has computed so long, or waited ten times as long."""
    # A limit of all that the process computes would count otherwise than what it is told: by seconds in minutes.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10 * seconds)


def limit_file_size(n_bytes: int, *, kill: bool) -> None:
    """Refuse to write beyond so many bytes of a file, as a full disk does, or be killed there."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kill else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
