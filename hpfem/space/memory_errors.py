"""An error that says what would fit, if a device has no room for a block of an operator."""

from __future__ import annotations

import numpy as np

from hpfem.shapes import default_counts

from ..backends.base import BACKENDS
from ..errors import DeviceError
from ..forms.form import BlockProblem, Form
from ..memory import Device, OutOfMemory
from .field import FieldSpace, held_by_fields


def no_room(
    space: FieldSpace, number: int, form: Form, components: int, device: Device, error: OutOfMemory
) -> DeviceError:
    """Error that says how many elements, or which order or dtype, there is room for."""
    block = space.blocks[number]
    problem = BlockProblem(form, block.tabulation, block.geometry, space.dtype)
    numbers = components * problem.n_input + problem.components_out(components) * problem.n_output
    kind = form.factor_kind
    if kind is not None:
        numbers += block.geometry.n_factors(kind) * block.geometry.n_points(kind)
    per_element = numbers * space.dtype.itemsize
    held = held_by_fields(space, number).get(device.name, 0)
    for name in BACKENDS:
        held += sum(BACKENDS[name].held(block.geometry).get(device.name, {}).values())
    # The estimate is without scratch memory; the array that had no room includes it.
    share = min((error.free + held) / (per_element * block.n_elements), error.free / max(error.needed, 1))
    fitting = int(share * block.n_elements)
    ways = [f"about {fitting:,} of its {block.n_elements:,} elements"]
    points = {p: float(np.prod(default_counts(block.shape, p))) for p in range(1, block.order + 1)}
    orders = [p for p in points if points[p] <= share * points[block.order]]
    if orders:
        ways.append(f"all of them at order {orders[-1]}")
    if space.dtype == np.float64:
        single = min(2 * fitting, block.n_elements)
        ways.append("all of them" if single == block.n_elements else f"{single:,} of them")
        ways[-1] += " in float32"
    return DeviceError(
        f"{form.name} on block {number}, {block!r}: {error}. The operator with an argument and a result takes"
        f" {per_element * block.n_elements / 1e9:.3g} GB; there is room for {', or for '.join(ways)}"
    )
