"""A traced function of the coordinates, compiled."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

from hpfem.shapes.arrays import Array

from ....forms.trace import Trace
from ....support.threads import THREAD_FLOPS, run_all, shares
from ..codegen.pointwise import parameter_inputs, write_function
from .cache import compiled
from .target import host

# Operations that are vectorised; for others NumPy is faster.
_LANES = {
    "const", "input", "add", "sub", "mul", "div", "neg", "abs", "sqrt", "exp", "sin", "cos", "min", "max", "lt", "le",
    "gt", "ge", "where",
}  # fmt: skip


class CpuFunction:
    """A function of the coordinates; its trace has a value for each component, of coordinates and parameters."""

    def __init__(self, trace: Trace) -> None:
        self._lanes = host().lanes(np.float64)
        program = write_function(trace, self._lanes)
        self._code, self._flops = compiled(program.text, host()), max(1, program.flops)
        self._names, self._components = parameter_inputs(trace), len(trace.value or ())

    def __call__(self, x: Array, parameters: dict[str, float]) -> Array:
        """Evaluate; x [D, ...] -> [components, ...]."""
        out = np.empty((self._components, *x.shape[1:]))
        if x[0].size < self._lanes:
            enough = np.repeat(x.reshape(len(x), -1), self._lanes, axis=1)
            return self(enough, parameters)[:, :: self._lanes].reshape(out.shape)
        x = np.ascontiguousarray(x)
        n, numbers = x[0].size, np.array([parameters[name] for name in self._names])
        run = partial(self._run, x, out, numbers, n)
        groups = n // self._lanes
        bounds = shares(groups, groups * self._lanes * self._flops, THREAD_FLOPS)
        run_all([partial(run, 0, first, last) for first, last in pairwise(bounds)])
        if groups * self._lanes < n:  # the last points again, in a group of their own
            run(n - self._lanes, 0, 1)
        return out

    def _run(self, x: Array, out: Array, numbers: Array, n: int, start: int, first: int, last: int) -> None:
        given, found = (array.ctypes.data + 8 * start for array in (x, out))
        self._code.run(first, last, n, 1, given, found, 0, 0, 0, numbers.ctypes.data, 0, 0, n)


def function_of(trace: Trace) -> CpuFunction | None:
    """Compile a function, if that is faster than NumPy."""
    return CpuFunction(trace) if all(node.op in _LANES for node in trace.live) else None
