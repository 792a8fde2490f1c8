"""A device for the tests: memory of its own that nothing else sees, with a backend that computes in it."""

import numpy as np

from hpfem.kernels.form import BlockKernel
from hpfem.kernels.numpy import NumpyKernel
from hpfem.operators.strategies import Strategy


class StandIn:
    """Arrays as a device keeps them: made and copied through its own methods only.

    Attributes
    ----------
    made, received, sent : int
        Arrays allocated, copies from the host, copies to it.
    """

    def __init__(self, name="stand-in"):
        self.name = name
        self.made = self.received = self.sent = 0

    def empty(self, shape, dtype):
        """Memory full of garbage."""
        self.made += 1
        return np.full(shape, np.nan, dtype)

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
    """Provider of the stand-in backend."""

    name, backend, special = "sumfac", "stand-in", False

    def build(self, problem, variant=None):
        """Serve everything."""
        return StandInKernel(problem, self.name)

    def cost(self, problem):
        """The same for all."""
        return 1.0
