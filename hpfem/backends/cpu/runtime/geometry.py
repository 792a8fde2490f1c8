"""Geometric factors made by compiled code, where and in the order in which kernels read them."""

from __future__ import annotations

import pickle
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes.arrays import Floats

from ....geometry.block_geometry import BlockGeometry
from ....geometry.products import multiply
from ....support.threads import THREAD_FLOPS, run_all, shares
from ..codegen.geometry import write_geometry
from ..codegen.ir import Program
from .begun import Begun
from .buffers import aligned
from .programs import begin
from .target import Target, host


def stored_factors(
    geometry: BlockGeometry, kind: str, dtype: DTypeLike, lanes: int, direction: int, target: Target
) -> Floats:
    """Make factors in the order in which a kernel reads them; -> [group, point, factor, lane]."""
    out = aligned((-(-geometry.n_elements // lanes), geometry.n_points(kind), geometry.n_factors(kind), lanes), dtype)
    _write(geometry, kind, direction, target, out)
    return out


def scales_and_maps(geometry: BlockGeometry, dtype: DTypeLike, lanes: int, direction: int, target: Target) -> Floats:
    """Make what kernels with scaled factors read; see `stored_factors`; -> [group, number, lane]."""
    n_points, n, n_map = geometry.n_points("scale"), geometry.n_factors("scale"), geometry.n_factors("map")
    out = aligned((-(-geometry.n_elements // lanes), n_points * n + n_map, lanes), dtype)
    _write(geometry, "scale", direction, target, out[:, : n_points * n].reshape(-1, n_points, n, lanes))
    _write(geometry, "map", direction, target, out[:, None, n_points * n :])
    return out


def volume_factors(geometry: BlockGeometry, elements: slice) -> Floats:
    """See `BlockGeometry.volume_factors`."""
    given, rule, target = geometry.given[elements], geometry.rule, host()
    if geometry.affine or not geometry.by_element or not len(given):
        return np.asarray(geometry.volume_factors(elements))
    own, lanes = BlockGeometry(geometry.shape, geometry.order, given, rule, geometry.kind), target.lanes(np.float64)
    out = aligned((-(-len(given) // lanes), len(rule), 1, lanes), np.float64)
    _run(own, "wJ", -1, target, out, rule.weights)
    return out.transpose(0, 3, 1, 2).reshape(-1, len(rule))[: len(given)]


def _write(geometry: BlockGeometry, kind: str, direction: int, target: Target, out: Floats) -> None:
    rest = geometry.n_elements % out.shape[-1]
    rounded = geometry.merged is not None and out.dtype != np.float64  # products are rounded once
    if kind == "map" or rounded or not geometry.by_element:
        geometry.write_factors(kind, _as_made(out, geometry, direction))
    elif geometry.n_elements:
        _run(geometry, kind, direction, target, out)
        if geometry.merged is not None:
            multiply(geometry, geometry.merged, kind, _as_made(out, geometry, direction))
        if rest:
            out[-1, ..., rest:] = 0
    if kind == "map" and rest:
        out[-1, ..., rest:] = out[-1, ..., rest - 1 : rest]  # what is recomputed stays finite


def _as_made(out: Floats, geometry: BlockGeometry, direction: int) -> Floats:
    """The same array as `BlockGeometry.write_factors` takes it."""
    groups, n_points, n_factors, lanes = out.shape
    if n_points == 1:
        return out.swapaxes(1, 2)
    counts = list(geometry.rule.counts)
    counts.append(counts.pop(direction))
    return np.moveaxis(np.moveaxis(out.reshape(groups, *counts, n_factors, lanes), -3, 1 + direction), -2, 1)


@cache
def _specialised(
    pickled: bytes, kind: str, lanes: int, target: Target, dtype: DTypeLike, stride: int
) -> tuple[Program, Begun]:
    """The program for a geometry without elements, without its text, and its code: written once."""
    return begin(_write_program, target, pickled, kind, lanes, target.lanes(np.float64), np.dtype(dtype).name, stride)


def _write_program(pickled: bytes, kind: str, lanes: int, own: int, dtype: str, stride: int) -> Program:
    return write_geometry(pickle.loads(pickled), kind, lanes, own, np.dtype(dtype), stride)


def _run(geometry: BlockGeometry, kind: str, direction: int, target: Target, out: Floats, by: Any = 1.0) -> None:
    """Have the factors of all elements made, divided by numbers; lanes past the last one are left as they come."""
    gradient, weights = (geometry.values[None], np.ones(0)) if kind == "points" else geometry.reference()
    weights = weights / by
    table = gradient.transpose(2, 1, 0)
    if len(table) > 1:
        in_order = np.moveaxis(np.arange(len(table)).reshape(geometry.rule.counts), direction, -1).ravel()
        table, weights = table[in_order], weights[in_order] if len(weights) else weights
    used = tuple(np.ascontiguousarray(array) for array in (geometry.coefficients, table, weights))
    width = target.lanes(np.float64)
    key = pickle.dumps(geometry.without_elements())
    program, begun = _specialised(key, kind, out.shape[-1], target, out.dtype, out.strides[0] // out.itemsize)
    groups = -(-geometry.n_elements // width)
    bounds = shares(groups, groups * width * program.flops, THREAD_FLOPS)
    scratch = [aligned((program.scratch_size, width), np.float64) for _ in bounds[1:]]
    coefficients, rows, factors = (array.ctypes.data for array in used)
    common = (geometry.n_elements, 0, coefficients, out.ctypes.data, 0, rows, 0, factors)

    def run(first: int, last: int, own: Floats, arrays: object) -> None:
        begun.code.run(first, last, *common, own.ctypes.data, 0, 0)

    # A task holds what it reads and writes.
    run_all([partial(run, *share, (used, out)) for share in zip(bounds, bounds[1:], scratch, strict=False)])
