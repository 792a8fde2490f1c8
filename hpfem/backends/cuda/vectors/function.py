"""A traced function of the coordinates, compiled for the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....forms.trace import Trace
from ..codegen.pointwise import parameter_names, physics
from ..codegen.prelude import fill
from ..runtime.device import current_device
from ..runtime.kernel import functions
from ..runtime.lazy import cupy
from .indexed import THREADS


def source(trace: Trace, space_dim: int) -> str:
    """Source of the kernel."""
    numbers = [f"parameter_{m}" for m in range(len(parameter_names(trace)))]
    values = {
        "THREADS": THREADS,
        "SPACE": space_dim,
        "COMPONENTS": len(trace.value or ()),
        "physics": physics(trace, space_dim),
        "arguments": "".join(f", const real {number}" for number in numbers),
        "parameters": "".join(f"{number}, " for number in numbers),
    }
    return fill("codegen/function.h", values)


class CudaFunction:
    """A function of the coordinates and parameters, with a value for each component."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._names, self._components = trace, parameter_names(trace), len(trace.value or ())

    def __call__(self, x: Any, parameters: dict[str, float]) -> Any:
        """Evaluate, on the current stream; x [D, ...] -> [components, ...]."""
        device, x = current_device(), cupy.ascontiguousarray(x)
        out = device.empty((self._components, *x.shape[1:]), np.float64)
        n = x[0].size
        numbers = [np.float64(parameters[name]) for name in self._names]
        (kernel,) = functions(source(self._trace, len(x)), device.name, "evaluate")
        if n:
            kernel((-(-n // THREADS),), (THREADS,), (np.int64(n), x, out, *numbers))
        return out
