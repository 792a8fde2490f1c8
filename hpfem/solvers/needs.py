"""The memory of a problem, estimated before it is allocated; a problem without enough room is refused.

The sizes of all arrays are known before they are made: of the geometry's factors, index tables, vectors. Temporary
memory, as for sorting tables and making right-hand sides, is counted as measured. Peaks of the host's memory are within
30 % of the estimates (`tests/solvers/test_needs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..assembly import C0Space
from ..assembly.entries import POINTWISE, pointwise_chunks
from ..backends import choose_backend, vectors_on
from ..memory import HOST, Device, OutOfMemory
from ..operators.operator import Coefficient
from ..operators.tensors import kept_components
from ..space import Space
from ..space.block import Block
from ..space.evaluation import value_chunks
from ..space.field import Field
from ..support.immutable import Immutable
from .multigrid.cycle import straightened
from .preconditioners import taken

# Bytes of a local coefficient for right-hand sides and solutions, and such arrays of the space's type.
_LOCAL_BYTES, _LOCAL_ARRAYS = 39, 1
# Global vectors of float64 and of the space's type where the iterations are; values and fluxes that the host makes.
_VECTORS64, _VECTORS, _DATA = 4, 3, 2
# Arrays of the size of a chunk's Jacobians: where factors are made from these, and where they are constant.
_CHUNKS, _AFFINE_CHUNKS = 1.5, 0.4
# Arrays of the size of a function's values.
_VALUES = 12
# Bytes of a local coefficient in multigrid's tables on all levels, and the share of lower levels over the finest.
_TABLES, _LEVELS, _SINGLE = 40, 1.2, 4


class Needs(Immutable):
    """Estimate of the memory of a `Problem` in bytes: set-up, right-hand sides and iterations together.

    `by_device` has bytes by device and what they are for: "geometry factors", "coefficients", "index tables",
    "scratch", "vectors" and "preconditioner"; that of a user's function is not counted.
    """

    def __init__(
        self, c0: C0Space, coefficients: Mapping[str, Coefficient | None], preconditioner: str, components: int = 1
    ) -> None:
        space = c0.space
        backend, number = choose_backend(space.backend), space.dtype.itemsize
        self._device, self._c0 = backend.device(), c0
        local, size = float(space.n_dofs), float(components * c0.size)
        host: dict[str, float] = {}
        there = host if self._device.name == HOST.name else dict[str, float]()
        kept = {name: kept_components(given, space.mesh) for name, given in coefficients.items()}
        kind = "jacobian" if kept.get("diffusivity", 0) > 1 else "metric"
        there["geometry factors"] = _factors(space, kind, number)
        there["coefficients"] = sum(n * _values(space, coefficients[name], self._device) for name, n in kept.items())
        self.by_device = {HOST.name: host, self._device.name: there}
        for name, tables in backend.product_needs(space.n_dofs, c0.size, components, space.dtype).items():
            self.by_device[name].update(tables)
        xp = vectors_on(self._device).xp
        there["scratch"] = there.get("scratch", 0.0) + max(_chunk(block, xp) for block in space.blocks)
        vectors = size * (8 * _VECTORS64 + number * _VECTORS)
        there["vectors"] = local * (_LOCAL_BYTES + _LOCAL_ARRAYS * number * components) + vectors
        if there is not host:
            host["vectors"] = 8 * size * _DATA
        there["preconditioner"] = 0.0
        if taken(preconditioner, c0, components) == "multigrid":
            factors = _SINGLE / number * _factors(straightened(space, xp), kind, number)
            there["preconditioner"] = _LEVELS * (factors + _TABLES * local + 8 * _SINGLE * size)

    def check(self) -> None:
        """Refuse a problem for which there is not enough memory."""
        for device in {HOST.name: HOST, self._device.name: self._device}.values():
            parts = self.by_device[device.name]
            needed, free = sum(parts.values()), device.free()
            if needed <= free:
                continue
            by_size = sorted(((size, what) for what, size in parts.items() if size), reverse=True)
            said = ", ".join(f"{what} {size / 1e9:.3g} GB" for size, what in by_size)
            ways = ["a lower order or fewer cells"]
            matrices = parts.get("preconditioner", 0.0)
            if matrices > 0.1 * needed:
                ways.insert(0, f"preconditioner='jacobi', which saves {matrices / 1e9:.3g} GB")
            if self._c0.space.dtype.itemsize > 4:
                ways.append("float32")
            raise OutOfMemory(
                f"a Problem of {self._c0.size} unknowns takes about {needed / 1e9:.3g} GB on {device.name}, where"
                f" {free / 1e9:.3g} GB are free: {said}; take {', or '.join(ways)}",
                int(needed),
                int(free),
            )


def _factors(space: Space, kind: str, number: int) -> float:
    """Bytes of the factors of a form with gradients."""
    geometries = (block.geometry for block in space.blocks)
    return float(sum(number * g.n_elements * g.n_factors(kind) * g.n_points(kind) for g in geometries))


def _chunk(block: Block, xp: Any) -> float:
    """Bytes of what is made of a bounded number of elements at a time: geometry, and values of functions."""
    geometry = block.geometry
    elements = next(iter(geometry.chunks()), slice(0)).stop
    arrays = _AFFINE_CHUNKS if geometry.affine else _CHUNKS
    made = arrays * 8.0 * elements * 2 * block.n_points * geometry.dim * geometry.space_dim
    values = _VALUES * next(value_chunks(block, xp)).stop
    pointwise = 0 if xp is np else POINTWISE * next(pointwise_chunks(geometry, block.n_elements, xp), slice(0)).stop
    return max(made, 8.0 * block.n_points * max(values, pointwise))


def _values(space: Space, given: Coefficient | None, device: Device) -> float:
    """Bytes of a coefficient's values at the points, of one component, unless these exist already."""
    if isinstance(given, Field) and given.state == "phys" and all(pair.valid(device) for pair in given.data):
        return 0.0
    return float(space.dtype.itemsize) * sum(block.n_elements * block.n_points for block in space.blocks)
