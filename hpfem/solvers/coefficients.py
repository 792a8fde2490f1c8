"""What a problem asks of the coefficients of its operator."""

from __future__ import annotations

import numpy as np

from ..errors import ArgumentError
from ..operators import Operator


def check_positive(operator: Operator, key: str, name: str, *, zero: bool = False) -> None:
    """Check the sign of a coefficient at every point where the operator takes it.

    Parameters
    ----------
    operator : Operator
    key : str
        What the operator calls the coefficient; one that it does not have is well.
    name : str
        What the caller calls it.
    zero : bool
        Whether it may be zero.

    Raises
    ------
    ArgumentError
        If it is not positive somewhere; the message says where.
    """
    wanted = ">= 0" if zero else "> 0"
    value = operator.parameters.get(key, 1.0)
    if value < 0 or (value == 0 and not zero):
        raise ArgumentError(f"{name} must be {wanted}, got {value:g}")
    if key not in operator.fields:
        return
    for pair, block in zip(operator.fields[key].data, operator.space.blocks, strict=True):
        values = pair.read(pair.home)[0]
        element, point = np.unravel_index(int(values.argmin()), values.shape)
        least = float(values[element, point])
        if not (least > 0 or (zero and least == 0)):
            x = block.geometry.coordinates(slice(element, element + 1))[:, 0, point]
            place = ", ".join(f"{c:.6g}" for c in x)
            cell = operator.space.mesh.describe_cell(int(block.elements[element]))
            raise ArgumentError(f"{name} must be {wanted} everywhere, it is {least:g} at ({place}) in {cell}")
