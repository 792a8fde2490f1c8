"""Arrays at the border of memory: to touch what is behind their last byte, or before their first, is a fault.

POSIX only. A fault ends the process, so that what may fault runs in one of its own, which says what it is about to do.
"""

import ctypes
import faulthandler
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

# Bytes on either side of an array that may not be touched.
BORDER = 16 * mmap.PAGESIZE
# Where an array meets them: behind its last byte, or before its first.
SIDES = ("end", "start")
# What a process dies of that touches them, or of an index that compiled code finds out of bounds.
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP)
ROOT = Path(__file__).resolve().parent.parent

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Guard:
    """Makes arrays that lie at a border.

    Parameters
    ----------
    side : str
        One of `SIDES`.
    """

    def __init__(self, side):
        self.side = side
        self._memory = []
        self._whole = []

    def array(self, shape, dtype, align=1, shift=0):
        """Zeros at a multiple of `align` bytes; a gap is left behind those that do not take a multiple.

        With `shift` they lie so many numbers further on, in part behind a border.
        """
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape)) * dtype.itemsize
        room = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(-1, room + 2 * BORDER, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = np.frombuffer(memory, np.uint8).ctypes.data
        for border in (first, first + BORDER + room):
            if _libc.mprotect(border, BORDER, 0):  # PROT_NONE
                raise OSError(ctypes.get_errno(), "mprotect")
        # Held as long as the guard is: addresses stay its own.
        self._memory.append(memory)
        self._whole.append((first, first + room + 2 * BORDER))
        offset = (room - nbytes) // align * align if self.side == "end" else 0
        return np.ndarray(shape, dtype, memory, BORDER + offset + shift * dtype.itemsize)

    def copy(self, values, shift=0):
        """A copy at the border, shifted as for `array`."""
        values = np.ascontiguousarray(values)
        out = self.array(values.shape, values.dtype, shift=shift)
        inside = slice(-shift, None) if shift < 0 else slice(values.size - shift)
        out.reshape(-1)[inside] = values.reshape(-1)[inside]
        return out

    def holds(self, address):
        """Whether an array of this guard is there."""
        return any(first <= address < last for first, last in self._whole)


class Crooked(Guard):
    """A guard that shifts one of its copies by a number, so that its last or its first one is behind the border.

    Parameters
    ----------
    side : str
    which : int
        Number of the copy that it shifts; 0: none.
    """

    def __init__(self, side, which):
        super().__init__(side)
        self.which, self.copies = which, 0

    def copy(self, values, shift=0):
        """A copy at the border, or one number beyond."""
        self.copies += np.size(values) > 0
        if np.size(values) and self.copies == self.which:
            shift = 1 if self.side == "end" else -1
        return super().copy(values, shift)


def faults(action):
    """Whether an action, in a process of its own, touches what it may not."""
    child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            action()
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) in FAULTS


def outcome(module, *words):
    """Run a module in a process of its own; returns its status, the last line that it wrote, and its errors."""
    command = [sys.executable, "-X", "faulthandler", "-m", module, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, ["", *done.stdout.splitlines()][-1], done.stderr[-3000:]
