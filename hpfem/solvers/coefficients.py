"""Checks of a problem's coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends import vectors_on
from ..errors import ArgumentError
from ..geometry.jacobians import symmetric_pairs
from ..operators import Operator
from ..operators.tensors import entries


def check_positive(operator: Operator, key: str, name: str) -> None:
    """Check the sign of a coefficient at all points of the operator; tensors are positive definite; collective."""
    wanted = "> 0"
    if key in operator.fields and operator.fields[key].components > 1:
        wanted = "symmetric and positive definite"
    value = operator.parameters.get(key, 1.0)
    if value <= 0:
        raise ArgumentError(f"{name} must be {wanted}, got {value:g}")
    if key not in operator.fields:
        return
    with operator.space.comm.together():
        for pair, block in zip(operator.fields[key].data, operator.space.blocks, strict=True):
            values = pair.read(pair.home)
            scalar, xp = len(values) == 1, vectors_on(pair.home).xp
            least = values[0] if scalar else _least_pivot(values, operator.space.dim, xp)
            if not least.size:
                continue
            element, point = np.unravel_index(int(least.argmin()), least.shape)
            smallest = float(least[element, point])
            if not smallest > 0:
                said = f"{smallest:g}" if scalar else "not"
                x = block.geometry.coordinates(slice(element, element + 1))[:, 0, point]
                place = ", ".join(f"{c:.6g}" for c in x)
                cell = operator.space.mesh.describe_cell(int(block.elements[element]))
                raise ArgumentError(f"{name} must be {wanted} everywhere, it is {said} at ({place}) in {cell}")


def _least_pivot(components: Any, dim: int, xp: Any) -> Any:
    """Least pivot of tensors in Gauss' elimination over its diagonal entry; components [n, E, Q] -> [E, Q]."""
    entry, size = entries(components, dim), abs(components).max(axis=0)
    rounding = 64 * np.finfo(components.dtype).eps * size
    A = {(i, j): entry(i, j) for i, j in symmetric_pairs(dim)}
    least, one = xp.full(size.shape, xp.inf), xp.where(size > 0, size, 1)
    for k in range(dim):
        pivot, diagonal = A[k, k], entry(k, k)
        least = xp.minimum(least, pivot / xp.where(diagonal > 0, diagonal, one))
        for i, j in symmetric_pairs(dim):
            if i > k:
                A[i, j] = A[i, j] - A[k, i] * A[k, j] / xp.where(pivot > 0, pivot, one)
    for i, j in symmetric_pairs(dim):
        least = xp.where(abs(entry(i, j) - entry(j, i)) <= rounding, least, -1)
    return least
