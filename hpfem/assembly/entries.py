"""Entries of element matrices without the matrices: diagonals, and what rotated faces add to them.

A linear pointwise function is, at a point, a matrix K of value and gradient; an entry of an element matrix is

    A[m, n] = sum_q sum_ab K_ab(q) t_a[m, q] t_b[n, q],    t = (value, d/d eta_1, .., d/d eta_d),

one matrix product for all elements and all wanted pairs (m, n): O(n_modes Q) work per element for a diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import bsr_array, csr_array

from ..forms.evaluate import Evaluator
from ..geometry.element_map import CHUNK, chunks
from ..memory import HOST, PairArray
from ..operators import Operator

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def pointwise_matrix(operator: Operator, number: int, component: int, elements: slice) -> Array:
    """The matrix K of a form at the points of some elements, weights and geometry included.

    Parameters
    ----------
    operator : Operator
        A weak form, linear in the trial function.
    number : int
        Of the block.
    component : int
        Trial and test component.
    elements : slice
        Elements of the block.

    Returns
    -------
    ndarray, [1 + d, 1 + d, E, Q]
        Test by trial: value, then the derivatives by collapsed coordinates.
    """
    block, form = operator.space.blocks[number], operator.form
    trace = form.trace
    assert trace is not None
    geometry = block.geometry
    x = geometry.coordinates(elements)
    inverse, weight = geometry.inverse_and_weights(elements)
    d, space_dim, shape = geometry.dim, geometry.space_dim, weight.shape
    physical = np.zeros((1 + space_dim, 1 + space_dim, *shape))
    pointwise = Evaluator(trace, shape, np.float64)
    for column in range(1 + space_dim):
        source = _unit(operator, number, component, column, x, elements)
        with np.errstate(all="ignore"):
            found = pointwise(source, shape[-1])
        if trace.value is not None:
            physical[0, column] = found[trace.value[component].index]
        if trace.scaled is not None:
            for c, scale in trace.scaled[component].items():
                for i in range(space_dim):
                    physical[1 + i, column] += found[scale.index] * source(("du", c, i))
        elif trace.flux is not None:
            for i, part in enumerate(trace.flux[component]):
                physical[1 + i, column] = found[part.index]
    pull = np.zeros((1 + space_dim, 1 + d, *shape))
    pull[0, 0] = 1
    pull[1:, 1:] = inverse.swapaxes(0, 1)
    return np.einsum("iaeq,ijeq,jbeq,eq->abeq", pull, physical, pull, weight, optimize=True)


def _unit(
    operator: Operator, number: int, component: int, column: int, x: Array, elements: slice
) -> Callable[[tuple[Any, ...]], Any]:
    """What gives the pointwise function its inputs: one of value and D derivatives is 1, the others 0."""
    units: dict[tuple[Any, ...], int] = {("du", component, i): 1 + i for i in range(len(x))}
    units["u", component] = 0
    zero, one = np.zeros(x.shape[1:]), np.ones(x.shape[1:])

    def source(key: tuple[Any, ...]) -> Any:
        if key[0] == "param":
            return operator.parameters[key[1]]
        if key[0] == "x":
            return x[key[1]]
        if key[0] == "field":
            row = operator.fields[key[1]].data[number].read(HOST)[key[2]]
            return np.asarray(row[elements], dtype=np.float64)
        return one if units.get(key) == column else zero

    return source


def _products(operator: Operator, number: int, first: Indices, second: Indices) -> Array:
    """Symmetrised products t_a[m] t_b[n] of pairs of modes, [(1 + d)(2 + d)/2, pair, Q]."""
    tabulation = operator.space.blocks[number].tabulation
    tables = [tabulation.dense, *tabulation.dense_gradient]
    rows = []
    for a, left in enumerate(tables):
        for right in tables[a:]:
            row = left[first] * right[second]
            rows.append(row if left is right else row + right[first] * left[second])
    return np.array(rows)


def element_entries(operator: Operator, number: int, component: int, first: Indices, second: Indices) -> Array:
    """Entries (m, n) of the symmetric part of the element matrices of a block.

    Parameters
    ----------
    operator : Operator
        A weak form.
    number : int
        Of the block.
    component : int
        Trial and test component.
    first, second : ndarray of int, [n]
        Pairs of modes.

    Returns
    -------
    ndarray, [E, n]
    """
    block = operator.space.blocks[number]
    n_tables = (block.shape.dim + 1) * (block.shape.dim + 2) // 2
    out = np.zeros((block.n_elements, len(first)))
    for elements in chunks(block.n_elements, block.n_points * (1 + block.geometry.space_dim) ** 2):
        K = pointwise_matrix(operator, number, component, elements)
        upper = [(K[a, b] if a == b else (K[a, b] + K[b, a]) / 2) for a in range(len(K)) for b in range(a, len(K))]
        live = [i for i, values in enumerate(upper) if values.any()]
        for chosen in chunks(len(first), block.n_points * n_tables):
            products = _products(operator, number, first[chosen], second[chosen])
            for i in live:
                out[elements, chosen] += upper[i] @ products[i].T
    return out


def diagonal(operator: Operator, matrix: csr_array, component: int = 0) -> Array:
    """Diagonal of Q^T A Q without A.

    Parameters
    ----------
    operator : Operator
        A weak form.
    matrix : csr_array, [local, global]
        Q.
    component : int
        Whose diagonal.

    Returns
    -------
    ndarray, [global]
    """
    total = np.zeros(matrix.shape[1])
    start = 0
    for number, block in enumerate(operator.space.blocks):
        stop = start + block.n_elements * block.n_modes
        modes = np.arange(block.n_modes)
        own = element_entries(operator, number, component, modes, modes)
        part = matrix[start:stop]
        squares = csr_array((np.square(part.data, dtype=np.float64), part.indices, part.indptr), shape=part.shape)
        total += squares.T @ own.ravel()
        for element, first, second, weight, column in _shared(part, block.n_modes):
            code, place = np.unique(first * block.n_modes + second, return_inverse=True)
            values = element_entries(operator, number, component, code // block.n_modes, code % block.n_modes)
            np.add.at(total, column, 2 * weight * values[element, place])
        start = stop
    return total


def _shared(part: csr_array, n_modes: int) -> Iterator[tuple[Indices, Indices, Indices, Array, Indices]]:
    """Pairs of modes of one element that belong to the same global one: (element, m, n, Q_m Q_n, column) as arrays."""
    entries = part.tocoo()
    element, mode = np.divmod(entries.row.astype(np.int64), n_modes)
    order = np.lexsort((mode, entries.col, element))
    element, mode, column = element[order], mode[order], entries.col[order].astype(np.int64)
    value = entries.data[order].astype(np.float64)
    new = np.concatenate([[True], (element[1:] != element[:-1]) | (column[1:] != column[:-1])])
    if new.all():
        return
    group = np.cumsum(new) - 1
    found = []
    for lag in range(1, int(np.bincount(group).max())):
        same = np.flatnonzero(group[lag:] == group[:-lag])
        other = same + lag
        found.append((element[same], mode[same], mode[other], value[same] * value[other], column[same]))
    yield tuple(np.concatenate(parts) for parts in zip(*found, strict=True))  # type: ignore[misc]


def element_matrices(operator: Operator, number: int) -> Array:
    """Element matrices of a block, column by column by applying the operator's own kernel to unit vectors.

    Parameters
    ----------
    operator : Operator
        A weak form, linear.
    number : int
        Of the block.

    Returns
    -------
    ndarray, [E, c n_modes, c n_modes]
        Row by column, c the components that the form couples; component slowest.
    """
    space, n = operator.space, operator.form.components
    block = space.blocks[number]
    size = n * block.n_modes
    out = np.empty((block.n_elements, size, size))
    device = operator.backend.device()
    step = max(1, CHUNK // max(1, block.n_elements * block.n_modes * n))
    step = step if n == 1 else 1
    for first in range(0, size, step):
        columns = np.arange(first, min(first + step, size))
        source = np.zeros((len(columns) * n, block.n_elements, block.n_modes), space.dtype)
        for k, column in enumerate(columns):
            c, mode = divmod(int(column), block.n_modes)
            source[k * n + c, :, mode] = 1
        target = PairArray(source.shape, space.dtype)
        operator.choices[number].kernel.apply(PairArray.of(source).read(device), target.write(device))
        result = target.read(HOST).reshape(len(columns), n, block.n_elements, block.n_modes)
        out[:, :, columns] = result.transpose(2, 1, 3, 0).reshape(block.n_elements, size, len(columns))
    return out


def block_diagonal(matrices: Array) -> csr_array:
    """Sparse matrix of the matrices of elements, one after the other.

    Parameters
    ----------
    matrices : ndarray, [E, n, n]

    Returns
    -------
    csr_array, [E n, E n]
    """
    places = np.arange(len(matrices) + 1)
    return csr_array(bsr_array((np.ascontiguousarray(matrices), places[:-1], places)))
