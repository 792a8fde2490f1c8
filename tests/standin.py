"""A device for the tests: memory of its own that nothing else sees, with a backend that computes in it."""

import numpy as np

from hpfem.backends import Backend
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.backends.strategy import Strategy
from hpfem.backends.timer import Timer
from hpfem.forms.form import BlockKernel
from hpfem.memory import HOST, Device


class StandIn(Device):
    """Arrays as a device keeps them: made and copied through its own methods only.

    Attributes
    ----------
    made, received, sent : int
        Arrays allocated, copies from the host, copies to it.
    """

    backend = "stand-in"

    def __init__(self, name="stand-in"):
        self.name = name
        self.made = self.received = self.sent = 0

    def empty(self, shape, dtype):
        """Memory full of garbage."""
        self.made += 1
        return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else -1, dtype)

    def from_host(self, source, out):
        """Copy in."""
        self.received += 1
        np.copyto(out, source)

    def to_host(self, source, out):
        """Copy out."""
        self.sent += 1
        np.copyto(out, source)

    def adopt(self, array):
        """Nothing else makes arrays in its memory."""
        return None

    def overlap(self, first, second):
        """Its arrays are NumPy's."""
        return np.may_share_memory(first, second)


class StandInKernel(BlockKernel):
    """A NumPy kernel that insists on arrays of its device."""

    def __init__(self, problem, strategy):
        self.inner = NumpyKernel(problem, "sumfac")
        self.problem, self.strategy, self.flops = problem, strategy, self.inner.flops

    def apply(self, source, out):
        """Apply."""
        self.inner.apply(source, out)


class StandInStrategy(Strategy):
    """Serves everything."""

    name, special = "sumfac", False

    def build(self, problem, options=None):
        """Serve everything."""
        return StandInKernel(problem, self.name)

    def cost(self, problem):
        """The same for all."""
        return 1.0


class StandInBackend(Backend):
    """A backend that is what its arguments say.

    Parameters
    ----------
    name : str
    device : Device
    strategies : sequence of Strategy
    missing : str, optional
    timer : callable
    """

    def __init__(self, name="stand-in", device=HOST, strategies=(), missing=None, timer=Timer):
        self.name, self.strategies = name, tuple(strategies)
        self._device, self._missing, self._timer = device, missing, timer

    def missing(self):
        """What is said to be missing."""
        return self._missing

    def device(self):
        """The device given."""
        return self._device

    def timer(self):
        """The clock given."""
        return self._timer()


def add_strategy(backend, strategy):
    """Give a backend one more strategy; who calls has patched `strategies`, so that it is taken away again."""
    backend.strategies = (*backend.strategies, strategy)
