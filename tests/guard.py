"""Arrays at the border of memory: to touch what is behind their last byte, or before their first, is a fault.

POSIX only. A fault ends the process, so that what may fault runs in one of its own, which says what it is about to do.
"""

import ctypes
import math
import mmap
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

# Bytes on either side of an array that may not be touched.
BORDER = 16 * mmap.PAGESIZE
# Where an array meets them: behind its last byte, or before its first.
SIDES = ("end", "start")
# What a process dies of that touches them.
FAULTS = (-signal.SIGSEGV, -signal.SIGBUS)
ROOT = Path(__file__).resolve().parent.parent

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Guard:
    """Makes arrays that lie at a border.

    Parameters
    ----------
    side : str
        One of `SIDES`.
    shift : int
        Numbers by which an array is too far on: 1 and -1 put its last or its first number behind the border.
    """

    def __init__(self, side, shift=0):
        self.side, self.shift = side, shift
        self._memory = []
        self._inside = []

    def array(self, shape, dtype, align=1):
        """Zeros at a multiple of `align` bytes; a gap is left behind those that do not take a multiple."""
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        room = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(-1, room + 2 * BORDER, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = np.frombuffer(memory, np.uint8).ctypes.data + BORDER
        for border in (first - BORDER, first + room):
            if _libc.mprotect(border, BORDER, 0):  # PROT_NONE
                raise OSError(ctypes.get_errno(), "mprotect")
        # Held as long as the guard is: addresses stay its own.
        self._memory.append(memory)
        self._inside.append((first, first + room))
        offset = (room - nbytes) // align * align if self.side == "end" else 0
        return np.ndarray(shape, dtype, memory, BORDER + offset + self.shift * dtype.itemsize)

    def copy(self, values):
        """A copy at the border."""
        values = np.asarray(values)
        out = self.array(values.shape, values.dtype)
        out[...] = values
        return out

    def holds(self, address):
        """Whether an array of this guard is there."""
        return any(first <= address <= last for first, last in self._inside)


def outcome(module, *words):
    """Run a module in a process of its own; returns its status, the last line that it wrote, and its errors."""
    command = [sys.executable, "-X", "faulthandler", "-m", module, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, ["", *done.stdout.splitlines()][-1], done.stderr[-3000:]
