"""What a problem takes in memory: estimated before it is taken, and refused where there is no room.

The sizes of all arrays are known before they are made: of the geometry's factors, index tables, vectors. What is there
for a while only, as where tables are sorted and right-hand sides made, counts as it was measured; peaks of the host's
memory are within 30 % of the estimates (`tests/solvers/test_needs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..assembly import C0Space
from ..backends import choose_backend
from ..memory import HOST, Device, OutOfMemory
from ..operators.operator import Coefficient
from ..space import Space
from ..space.block import Block
from ..space.field import Field
from ..support.immutable import Immutable
from .preconditioners import SMALL

# Bytes of a local coefficient for right-hand sides and solutions, and such arrays of the space's type.
_LOCAL_BYTES, _LOCAL_ARRAYS = 42, 2
# Global vectors on the host, and where the iterations are.
_HOST_VECTORS, _VECTORS = 3, 3
# Arrays of the size of a chunk's Jacobians, where factors are made of these and where they are the same at all points.
_CHUNKS, _AFFINE_CHUNKS = 1.5, 0.4
# Of multigrid, as measured: factors beside those of the operator, bytes of a local coefficient and of a vertex.
_LEVEL_FACTORS, _LEVEL_LOCAL, _LEVEL_VERTEX = 0.5, 50, 2000


class Needs(Immutable):
    """Estimate of the bytes that a `Problem` takes, all together: set-up, right-hand sides and iterations.

    Parameters
    ----------
    c0 : C0Space
    coefficients : mapping
        Name -> what the problem was given; None where it was left out.
    preconditioner : str
        Its name, or "user" for a function, which counts nothing.
    components : int

    Attributes
    ----------
    by_device : {device: {what: bytes}}
        On the host and where the space's backend computes: "geometry factors", "coefficients", "index tables",
        "scratch", "vectors" and "preconditioner".
    """

    def __init__(
        self, c0: C0Space, coefficients: Mapping[str, Coefficient | None], preconditioner: str, components: int = 1
    ) -> None:
        space = c0.space
        backend, number = choose_backend(space.backend), space.dtype.itemsize
        self._device, self._c0, self._preconditioner = backend.device(), c0, preconditioner
        local, size = float(space.n_dofs), float(components * c0.size)
        host: dict[str, float] = {}
        there = host if self._device.name == HOST.name else dict[str, float]()
        there["geometry factors"] = sum(_factors(block, number) for block in space.blocks)
        there["coefficients"] = sum(_values(space, given, self._device) for given in coefficients.values())
        self.by_device = {HOST.name: host, self._device.name: there}
        for name, found in backend.product_needs(space.n_dofs, c0.size, components, space.dtype).items():
            self.by_device[name].update(found)
        there["scratch"] = there.get("scratch", 0.0) + max(_chunk(block) for block in space.blocks)
        there["vectors"] = local * (_LOCAL_BYTES + _LOCAL_ARRAYS * number * components) + size * number * _VECTORS
        host["vectors"] = host.get("vectors", 0.0) + 8 * size * _HOST_VECTORS
        there["preconditioner"] = _levels(preconditioner, c0, there["geometry factors"])

    def check(self) -> None:
        """Refuse what there is no room for.

        Raises
        ------
        OutOfMemory
            The message says what needs how much, what is free, and what takes less.
        """
        for device in {HOST.name: HOST, self._device.name: self._device}.values():
            self._check(device)

    def _check(self, device: Device) -> None:
        parts = self.by_device[device.name]
        needed, free = sum(parts.values()), device.free()
        if needed <= free:
            return
        found = sorted(((size, what) for what, size in parts.items() if size), reverse=True)
        said = ", ".join(f"{what} {size / 1e9:.3g} GB" for size, what in found)
        ways = ["a lower order or fewer cells"]
        levels = parts.get("preconditioner", 0.0)
        if levels > 0.1 * needed:
            ways.insert(0, f"preconditioner='jacobi', which saves {levels / 1e9:.3g} GB")
        if self._c0.space.dtype.itemsize > 4:
            ways.append("float32")
        raise OutOfMemory(
            f"a Problem of {self._c0.size} unknowns takes about {needed / 1e9:.3g} GB on {device.name}, where"
            f" {free / 1e9:.3g} GB are free: {said}; take {', or '.join(ways)}",
            int(needed),
            int(free),
        )


def _factors(block: Block, number: int) -> float:
    """Bytes of the factors of a form with gradients."""
    geometry = block.geometry
    return float(number) * geometry.n_elements * geometry.n_factors("metric") * geometry.n_points("metric")


def _chunk(block: Block) -> float:
    """Bytes of what is made of a bounded number of elements at a time."""
    geometry = block.geometry
    elements = next(geometry.chunks()).stop
    arrays = _AFFINE_CHUNKS if geometry.affine else _CHUNKS
    return arrays * 8.0 * elements * 2 * block.n_points * geometry.dim * geometry.space_dim


def _values(space: Space, given: Coefficient | None, device: Device) -> float:
    """Bytes of a coefficient's values at the points, where they are not there already."""
    there = isinstance(given, Field) and given.state == "phys" and all(pair.valid(device) for pair in given.data)
    if there or not (callable(given) or isinstance(given, Field)):
        return 0.0
    return float(space.dtype.itemsize) * sum(block.n_elements * block.n_points for block in space.blocks)


def _levels(preconditioner: str, c0: C0Space, factors: float) -> float:
    """Bytes of a preconditioner with lower orders, whose geometry has fewer points, and a coarse problem."""
    if preconditioner != "multigrid" and (preconditioner != "auto" or c0.size <= SMALL):
        return 0.0
    return _LEVEL_FACTORS * factors + _LEVEL_LOCAL * c0.space.n_dofs + _LEVEL_VERTEX * c0.space.mesh.n_vertices
