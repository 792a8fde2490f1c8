"""Values of users' functions of the coordinates."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from hpfem.shapes.arguments import as_array, shown, takes
from hpfem.shapes.arrays import Array, Indices

from ..backends import vectors_of, vectors_on
from ..backends.base import Backend
from ..errors import ArgumentError, HpfemError
from ..forms.evaluate import evaluate
from ..forms.graph import COMPARISONS
from ..forms.trace import Trace, trace_function
from ..geometry import element_map
from ..memory import as_numpy
from ..support.communicator import alone_in
from ..support.log import report_once
from .block import Block
from .regions import ByRegion

# Points from which on compiling a function pays, and the part of its largest value up to which it is the same.
_WORTH_COMPILING, _SAME = 500_000, 1e-10
# Elements of a block in which comparisons are looked at, in how many it is called on arrays; points that take turns.
_COMPARED, _CALLED, _TURNS = 1 << 18, 1 << 10, 8
# Where functions without comparisons are called on arrays, by block.
_POINTS: MutableMapping[Block, Array] = WeakKeyDictionary()


def evaluated(function: Callable[..., Any], coordinates: list[ArrayLike], shape: tuple[int, ...]) -> Array:
    """Call a user's function of coordinates; -> [components, *shape]."""
    if not callable(function):
        raise ArgumentError(f"expected a function of the {len(coordinates)} coordinates, got {type(function).__name__}")
    if not takes(function, *coordinates):
        n, names = len(coordinates), ", ".join(("x", "y", "z")[: len(coordinates)])
        raise ArgumentError(
            f"the mesh is in {n}-D: the function must take {n} arguments ({names}); of fluxes and integrals over"
            f" boundaries also {2 * n}, with the components of the normal"
        )
    try:
        with np.errstate(all="ignore"), alone_in("a function of the coordinates"):
            result = function(*coordinates)
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        if isinstance(error, HpfemError):
            raise
        raise ArgumentError(
            f"the function of the coordinates failed: {error}; it is called on arrays of many points: use NumPy's"
            " functions (np.sin, np.where for if), or wrap a function of single numbers in np.vectorize"
        ) from error
    if isinstance(result, (tuple, list)):
        parts = list(result)
    else:
        whole = as_array(result, "what the function returns")
        parts = list(whole) if whole.ndim == len(shape) + 1 else [whole]
    if not parts:
        raise ArgumentError("the function returned no components")
    values = np.empty((len(parts), *shape))
    for one, part in zip(values, parts, strict=True):
        given = as_array(part, "what the function returns")
        # No broadcasting: a row of the coordinates is a mistake.
        if given.shape not in ((), shape):
            raise ArgumentError(
                f"the function must return real numbers of the shape {shape} of its arguments, or a list of those; got"
                f" {shown(part)} of shape {given.shape}"
            )
        one[...] = given
    return values


def positional(function: Any) -> int:
    """Count the positional arguments that a function needs."""
    if not callable(function):
        return 0
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


def compiled_function(
    function: Callable[..., Any], blocks: Sequence[Block], backend: Backend
) -> Callable[[Any], Any] | None:
    """Trace and compile a user's function of the coordinates, where it is evaluated at many points."""
    points = sum(block.n_elements * block.n_points for block in blocks)
    if isinstance(function, ByRegion) or points < max(1, _WORTH_COMPILING):
        return None
    name, code = getattr(function, "__name__", "a function"), getattr(function, "__code__", function)

    def report(why: str) -> None:
        report_once(f"tracing/{name}/{id(code)}", f"{name} {why}; it is called on arrays", logging.INFO)

    try:
        found, numbers = trace_function(function, blocks[0].geometry.space_dim)
    except ArgumentError as error:
        report(str(error))
        return None
    made, xp = backend.function(found), vectors_on(backend.device()).xp
    if made is None:
        return None
    x = np.concatenate([_checked_points(found, numbers, block, xp) for block in blocks if block.n_elements], axis=1)
    value = as_numpy(made(xp.asarray(x), numbers))
    called = evaluated(function, list(x), x.shape[1:])
    with np.errstate(all="ignore"):
        limit = _SAME * abs(called).max(axis=(1, 2), keepdims=True)
        same = called.shape == value.shape and bool(np.all(abs(value - called) <= limit))
    if not same:
        report("is not the same on symbols")
        return None
    return lambda x: made(x, numbers)


def _checked_points(found: Trace, numbers: dict[str, float], block: Block, xp: Any) -> Array:
    """Points in elements from everywhere, and of each outcome that a comparison has in any of them, [D, n, 1]."""
    comparisons = tuple(node for node in found.live if node.op in COMPARISONS)
    if not comparisons:
        if block not in _POINTS:
            _POINTS[block] = as_numpy(_points(block, _CALLED, xp))
        return _POINTS[block]
    x = _points(block, _COMPARED, xp)
    places = list(range(0, x.shape[1], -(-x.shape[1] // _CALLED)))
    inputs = {("x", i): row for i, row in enumerate(x)} | {("param", name): n for name, n in numbers.items()}
    outcomes = evaluate(Trace(found.graph, found.dim, len(comparisons), comparisons), inputs.__getitem__)
    places += [int(first(outcome)) for outcome in outcomes.values() for first in (xp.argmax, xp.argmin)]
    return as_numpy(x[:, places])


def _points(block: Block, count: int, xp: Any) -> Any:
    """A point of each of so many elements from everywhere, [D, n, 1] of xp."""
    geometry, step = block.geometry, _TURNS * -(-block.n_elements // count)
    turns = np.linspace(0, block.n_points - 1, _TURNS).astype(int)  # neighbours are checked at other points
    elements = [slice(k * step // _TURNS, None, step) for k in range(_TURNS)]
    parts = [geometry.positions(geometry.values[:, [q]], e, xp) for e, q in zip(elements, turns, strict=True)]
    return xp.concatenate(parts, axis=1)


def value_chunks(block: Block, xp: Any) -> Iterator[slice]:
    """Go through the elements of a block such that values at the points take little memory."""
    some = block.geometry.chunks(size=element_map.CHUNK // 2 * (1 if xp is np else element_map.ON_DEVICE))
    return some if block.n_elements else iter([slice(0)])


def values_by_chunk(
    function: Callable[..., Any],
    block: Block,
    dtype: np.dtype[Any],
    xp: Any = np,
    compiled: Callable[[Any], Any] | None = None,
) -> Iterator[tuple[slice, Any]]:
    """Evaluate a user's function at the points of some elements at a time; -> values [components, E, Q]."""
    components = None
    for chunk in value_chunks(block, xp):
        x = block.geometry.coordinates(chunk, xp)
        if isinstance(function, ByRegion):
            values = _by_region(function, x, block.elements[chunk], xp)
        else:
            values = _called(function, x, xp) if compiled is None else compiled(x)
        largest = float(np.finfo(dtype).max)
        if not vectors_of(values).max_norm(values) <= largest:
            bad = ~(abs(values) <= largest).all(axis=0)
            e, q = (int(i) for i in xp.argwhere(bad)[0])
            where = ", ".join(f"{float(c):.6g}" for c in x[:, e, q])
            raise ArgumentError(
                f"the function is not finite at ({where}) in cell {block.elements[chunk][e]} ({block.shape.name})"
                f"{' in float32' if dtype == np.float32 else ''}, nor at"
                f" {int(xp.count_nonzero(bad)) - 1} more point(s) beside it"
            )
        if components not in (None, len(values)):
            raise ArgumentError("the function returns different numbers of components at different points")
        components = len(values)
        yield chunk, values


def _called(function: Callable[..., Any], x: Any, xp: Any) -> Any:
    """Values of a function on arrays of xp, [components, E, Q]."""
    values = None if xp is np else _on_device(function, x, xp)
    return xp.asarray(evaluated(function, list(as_numpy(x)), x.shape[1:])) if values is None else values


def _by_region(values: ByRegion, x: Any, cells: Indices, xp: Any) -> Any:
    """Values in cells at their points x [D, E, Q]; each cell has the values of its region."""
    out: Any = None
    for number, places in values.parts(cells) if len(cells) else ((0, slice(None)),):
        value, name = values.values[number], values.names[number]
        rows = places if isinstance(places, slice) else xp.asarray(places)
        try:
            if callable(value):
                found = _called(value, x[:, rows], xp)
            else:  # numbers of the part, or of each cell
                given = np.asarray(value)
                found = xp.asarray(given[:, None] if given.ndim == 1 else given[:, cells[places]])[:, :, None]
        except ArgumentError as error:
            raise ArgumentError(f"{name}: {error}") from error
        if out is None:
            out, first = xp.empty((len(found), *x.shape[1:])), name
        if len(found) != len(out):
            raise ArgumentError(f"values by region: {first} has {len(out)} component(s), {name} has {len(found)}")
        out[:, rows] = found
    return out


def _on_device(function: Callable[..., Any], x: Any, xp: Any) -> Any:
    """Values of a function on a device's arrays; None where it does not take them."""
    try:
        result = function(*x)
        parts = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(parts) == 1 and getattr(parts[0], "ndim", 0) == x.ndim:
            parts = list(parts[0])
        arrays = [xp.asarray(part, np.float64) for part in parts]
        if any(array.shape not in ((), x.shape[1:]) for array in arrays):
            return None
        return xp.stack([xp.broadcast_to(array, x.shape[1:]) for array in arrays])
    except Exception as error:  # noqa: BLE001 - what is wrong with it is said on the host
        name = getattr(function, "__name__", "a function")
        report_once(f"evaluation/{name}", f"{name} does not take the GPU's arrays, the host evaluates it ({error})")
        return None


def evaluate_on_blocks(
    function: Callable[..., Any], blocks: Sequence[Block], dtype: np.dtype[Any], backend: Backend | None = None
) -> list[Any]:
    """Evaluate a user's function at the quadrature points; see `Space.evaluate`; -> [components, E, Q]."""
    compiled = None if backend is None else compiled_function(function, blocks, backend)
    xp = np if backend is None else vectors_on(backend.device()).xp
    found = [_on_block(function, block, dtype, xp, compiled) for block in blocks]
    arrays, largest = [values for values, _ in found], max((size for _, size in found), default=0.0)
    if 0 < largest < np.finfo(dtype).tiny:
        raise ArgumentError(
            f"the function's values, up to {largest:.1e}, are out of the range of {dtype}; take other units,"
            " or a space of float64"
        )
    if len({len(a) for a in arrays}) > 1:
        raise ArgumentError("the function returns different numbers of components in different blocks")
    return arrays


def _on_block(
    function: Callable[..., Any], block: Block, dtype: np.dtype[Any], xp: Any, compiled: Callable[[Any], Any] | None
) -> tuple[Any, float]:
    """Values at the points of a block, [components, E, Q]; the largest."""
    out: Any = None
    largest = 0.0
    for chunk, values in values_by_chunk(function, block, dtype, xp, compiled):
        if out is None:
            out = xp.empty((len(values), block.n_elements, block.n_points), dtype)
        out[:, chunk] = values
        if values.size:
            largest = max(largest, float(values.max()), -float(values.min()))
    assert out is not None  # a block has elements
    return out, largest
