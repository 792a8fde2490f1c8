"""A device that iterates without its host, on the host: it decides and exchanges what GPUs do."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from hpfem.backends.cpu.runtime.vectors import CpuVectors
from hpfem.backends.cuda.vectors.conjugate import CONTROL, RING
from hpfem.backends.cuda.vectors.iteration import CudaIteration
from hpfem.backends.iteration import Stop
from hpfem.backends.restriction import ElementRestriction

# What was captured.
CAPTURED: list[str] = []


class Restriction(ElementRestriction):
    """One that leaves sums."""

    blocks = 1

    def scatter(self, vector, targets, stop=None):
        """As there."""
        super().scatter(vector, targets)

    def gather(self, local, vector=None, out=None, partials=None, stop=None, onto=None, factor=1.0):
        """As on a GPU."""
        found = super().gather(local, vector)
        if onto is not None:
            return onto + factor * found
        if out is None:
            return found
        out[...] = found
        if partials is not None:
            counts = np.ones(self.size)
            if self._keep is not None:  # what another process counts of the identity
                counts[self._vectors.ghosts] = self._keep[self._vectors.ghosts]
            partials[0] = np.sum(found * vector * counts)
        return out


class Vectors:
    """As `CudaConjugateVectors`, step by step as in `conjugate.h`."""

    def __init__(self, sharing, x, r, inverse=None, blocks=None):
        self.comm = sharing and sharing.comm
        self.counts = np.ones(r.size) if sharing is None else np.resize(sharing.owned, r.size)
        self.x, self.r, self.inverse = x, r, inverse
        self.p, self.q, self.partials, self.stop = np.zeros_like(r), np.zeros_like(r), np.zeros(blocks or 1), 0
        self.copy = None

    def begin(self, scale, tolerance, most):
        """As there."""
        self.control, self.broken, self.begun, self.ended = np.zeros(1, CONTROL)[0], 0, 0, 0
        self.scale, self.tolerance, self.most = scale, tolerance, most

    def sums(self, *numbers):
        """Over processes."""
        found = np.array(numbers, dtype=np.float64)
        return found if self.comm is None else self.comm.sum(found)

    def dot(self, a, b):
        """Of what this process owns."""
        return float(np.sum(self.counts * a * b))

    def copy_residual(self, out, taken):
        """As there."""
        self.copy = out, taken

    def measure_product(self, q):
        """As there."""
        self.q = q
        self.partials = np.array([self.dot(self.p, q)])

    def update_residual(self):
        """As there."""
        (curvature,) = self.sums(self.partials.sum())
        if self.control["stopped"]:
            return
        i = int(self.control["finished"])
        self.control["curvature"][i % RING] = curvature
        self.begun = i + 1
        self.broken = Stop.OPERATOR if curvature <= 0 else Stop.RUNNING if np.isfinite(curvature) else Stop.NOT_FINITE
        if not self.broken:
            self.r -= (self.control["rho"][i % RING] / curvature) * self.q
            if self.copy is not None:
                out, taken = self.copy
                out[...] = self.r if taken is None else self.r * taken

    def update_direction(self, z=None, free=None, agree=None):
        """As there."""
        given, free = self.r if z is None else z, True if free is None else free
        z = np.where(free, given, self.r) * (1 if self.inverse is None else self.inverse)
        sums = self.sums(self.dot(self.r, self.r), self.dot(self.r, z))
        if agree is not None:
            agree()
            z = np.where(free, given, self.r)
        self._direction(sums, z)

    def stop_if_done(self):
        """As there."""
        rr = self.dot(self.r, self.r)
        self._direction(self.sums(rr, rr), None)

    def _direction(self, sums, z):
        if self.ended and z is not None:
            return
        if self.broken:
            self.control["stopped"] = self.broken
            return
        i, size, rho = self.begun, sums[0] ** 0.5 / self.scale, sums[1]
        stopped = (
            Stop.CONVERGED if size <= self.tolerance else Stop.EXHAUSTED if i >= self.most
            else Stop.PRECONDITIONER if not rho > 0 else Stop.RUNNING
        )  # fmt: skip
        already = self.control["stopped"]
        before = self.control["rho"][(i - 1) % RING] if i else 1.0
        for key, value in (("residual", size), ("rho", rho)):
            self.control[key][i % RING] = value
        self.control["finished"], self.control["stopped"] = i, stopped
        self.ended = stopped if z is None else self.ended
        if already or (z is None and not stopped):
            return
        if i:
            self.x += before / self.control["curvature"][(i - 1) % RING] * self.p
        if not stopped:
            self.p[...] = z + (rho / before * self.p if i else 0)

    def read(self):
        """As there."""
        seen = self.control.copy()
        return SimpleNamespace(wait=lambda: seen)

    def finish(self):
        """Nothing runs."""


class Iteration(CudaIteration):
    """Its agreements are those of GPUs."""

    def shared(self, sharing):
        """As if NCCL connected all."""
        return Iteration(sharing)

    def conjugate_vectors(self, *arguments):
        """On the host."""
        return Vectors(self._sharing, *arguments)

    def _captured(self, step, count, what):
        CAPTURED.append(what)
        return SimpleNamespace(launch=lambda: [step() for _ in range(count)], release=lambda: None)


@contextmanager
def host_iterates_as_a_device():
    """Make vectors of the host iterate so; what is captured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuVectors, "iteration", Iteration())
        patch.setattr(CpuVectors, "restriction", lambda self, Q, dtype, keep=None: Restriction(Q, self, dtype, keep))
        CAPTURED.clear()
        yield CAPTURED
