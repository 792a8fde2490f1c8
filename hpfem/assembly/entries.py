"""Entries of element matrices, computed without the matrices: diagonals, and their parts from rotated faces.

A linear pointwise function is, at a point, a matrix K of value and gradient; an entry of an element matrix is

    A[m, n] = sum_q sum_ab K_ab(q) t_a[m, q] t_b[n, q],    t = (value, d/d eta_1, .., d/d eta_d),

one matrix product for all elements and all wanted pairs (m, n). Kernels make diagonals faster where they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import bsr_array, csr_array

from hpfem.shapes.arrays import Array, Indices

from ..backends.restriction import BlockMatrix, ElementRestriction
from ..backends.vectors import HOST_VECTORS, VectorSpace
from ..errors import NotSuitable
from ..forms.evaluate import evaluate
from ..forms.linear import coefficients, component_matrix, symmetric_entry
from ..forms.trace import Trace
from ..geometry import BlockGeometry
from ..geometry.element_map import CHUNK, ON_DEVICE, Elements, chunks
from ..geometry.jacobians import symmetric_pairs
from ..memory import PairArray, every
from ..operators import Operator

# Numbers at a point of what `pointwise_matrix` makes, with temporaries.
POINTWISE = 40
# The relative size below which an entry of the diagonal is rounding.
_LOST = 1e-12


def pointwise_chunks(geometry: BlockGeometry, count: int, xp: Any) -> Iterator[slice]:
    """Go through elements of a block such that their `pointwise_matrix` takes little memory."""
    n_points = len(geometry.rule)
    if xp is np:
        return chunks(count, n_points * (1 + geometry.space_dim) ** 2)
    return chunks(count, n_points * POINTWISE, most=4 * ON_DEVICE * CHUNK)


def pointwise_matrix(
    operator: Operator,
    number: int,
    component: int,
    elements: Elements,
    xp: Any = np,
    geometry: BlockGeometry | None = None,
) -> dict[tuple[int, int], Any]:
    """The symmetric part of a form's matrix K at points of elements, weights and geometry included; -> [E, Q]. With the
    geometry of affine elements at one point, its mean.
    """
    trace, own = operator.form.trace, operator.space.blocks[number].geometry
    assert trace is not None
    geometry = geometry or own
    x = own.coordinates(elements, xp) if trace.uses_point else None
    inverse, weight = geometry.inverse_and_weights(elements, xp)
    entries, S = component_matrix(trace, component)
    found = evaluate(entries, lambda key: given_at(operator, number, key, x, elements))
    d, K = geometry.dim, dict[tuple[int, int], Any]()
    values = {place: found[node.index] for place, node in S.items()}
    if len(geometry.rule) < len(own.rule):
        mean = xp.asarray(own.rule.weights / own.rule.weights.sum())[:, None]
        values = {place: value @ mean if np.ndim(value) else value for place, value in values.items()}
    if (0, 0) in values:
        K[0, 0] = values[0, 0] * weight
    weighted, lead = inverse * weight, 1 - any(place[0] == 0 < place[1] for place in values)
    if not any(place[1] for place in values):
        return K
    if not trace.general:
        products = _contracted(weighted * values[1, 1], inverse)
    else:
        D = geometry.space_dim
        V = xp.zeros((D + 1 - lead, D, *np.broadcast_shapes(weight.shape, *map(np.shape, values.values()))))
        for (i, j), value in values.items():
            if j:
                V[i - lead, j - 1] = value
            if i:
                V[j - lead, i - 1] = value
        along = _contracted(inverse, V)
        K |= {(0, 1 + b): row[0] * weight for b, row in enumerate(along) if not lead}
        products = _contracted(weighted, along[:, 1 - lead :])
    return K | {(1 + a, 1 + b): products[a, b] for a, b in symmetric_pairs(d)}


def _contracted(A: Any, B: Any) -> Any:
    """Sums over k of A_ik B_jk of arrays, [i, k, ...], [j, k, ...] -> [i, j, ...], by few operations."""
    found = A[:, None, 0] * B[:, 0]
    for k in range(1, A.shape[1]):
        found += A[:, None, k] * B[:, k]
    return found


def given_at(operator: Operator, number: int, key: tuple[Any, ...], x: Any, elements: Elements) -> Any:
    """A number, coordinate or coefficient of the pointwise function."""
    if key[0] == "param":
        return operator.parameters[key[1]]
    if key[0] == "x":
        return x[key[1]]
    return operator.fields[key[1]].data[number].read(operator.device)[key[2]][elements].astype(np.float64)


def is_positive(operator: Operator, xp: Any = np) -> bool:
    """Whether (u, A u) >= 0 for all u, judged by the coefficients at the points."""
    trace = operator.form.trace
    assert trace is not None
    try:
        graph, K = coefficients(trace)
    except NotSuitable:
        return False
    used = sorted({row for place in K for row in place})
    pairs = [(i, j) for i in range(len(used)) for j in range(i + 1)]
    entries = tuple(symmetric_entry(K, graph, used[i], used[j]) for i, j in pairs)
    found = Trace(graph, trace.dim, len(entries), entries, None, None)
    same = all(key[0] == "param" for key in found.inputs)
    for number, block in enumerate(operator.space.blocks[: 1 if same else None]):
        for some in [slice(0, 0)] if same else chunks(block.n_elements, block.n_points * len(pairs)):
            x = block.geometry.coordinates(some, xp) if found.uses_point else None
            values = evaluate(found, partial(given_at, operator, number, x=x, elements=some))
            S = {pair: xp.asarray(values[e.index], np.float64) for pair, e in zip(pairs, entries, strict=True)}
            if not _semidefinite(S, len(used), xp):
                return False
    return True


def _semidefinite(S: dict[tuple[int, int], Any], n: int, xp: Any) -> bool:
    """Whether matrices, given by their lower triangles, are positive semidefinite: by their pivots."""
    sizes = [S[k, k] for k in range(n)]
    for k in range(n):
        pivot, lost = S[k, k], _LOST * sizes[k]
        if not every((sizes[k] >= 0) & (pivot >= -lost)):
            return False
        flat = pivot <= lost
        for i in range(k + 1, n):
            if not every(~flat | (S[i, k] ** 2 <= _LOST * sizes[i] * sizes[k])):
                return False
            ratio = xp.where(flat, 0.0, S[i, k] / xp.where(flat, 1.0, pivot))
            for j in range(k + 1, i + 1):
                S[i, j] = S[i, j] - ratio * S[j, k]
    return True


def _products(operator: Operator, number: int, first: Indices, second: Indices, a: int, b: int) -> Array:
    """Symmetrised products t_a[m] t_b[n] of pairs of modes, [pair, Q]; twice that for a < b."""
    tabulation = operator.space.blocks[number].tabulation
    tables = [tabulation.dense, *tabulation.dense_gradient]
    row = tables[a][first] * tables[b][second]
    return np.asarray(row if a == b else row + tables[b][first] * tables[a][second])


def element_entries(
    operator: Operator,
    number: int,
    component: int,
    first: Indices,
    second: Indices,
    elements: Indices | None = None,
    xp: Any = np,
    elliptic: bool = False,
) -> Any:
    """Entries (m, n) of the symmetric part of the element matrices of a block; first, second [n] -> [E, n]."""
    block = operator.space.blocks[number]
    count = block.n_elements if elements is None else len(elements)
    out = xp.zeros((count, len(first)))
    tables: dict[tuple[int, int], Any] = {}
    for some in pointwise_chunks(block.geometry, count, xp):
        K = pointwise_matrix(operator, number, component, elements[some] if elements is not None else some, xp)
        for key, values in K.items():
            if elliptic and key[0] == 0:
                if key[1]:
                    continue
                values = abs(values)
            if key not in tables:
                tables[key] = xp.asarray(_products(operator, number, first, second, *key).T)
            out[some] += xp.broadcast_to(values, (len(out[some]), block.n_points)) @ tables[key]
    return out


def diagonals(operator: Operator, number: int, vectors: VectorSpace, elliptic: bool = False) -> Any:
    """Diagonals of a block's element matrices, by its kernel if that can, else here; -> [components, E, n_modes]."""
    made = None if elliptic else operator.choices[number].kernel.diagonal()
    if made is not None:
        return made
    modes, xp = np.arange(operator.space.blocks[number].n_modes), vectors.xp
    components = range(operator.form.components)
    return xp.stack([element_entries(operator, number, c, modes, modes, None, xp, elliptic) for c in components])


def diagonal(
    operator: Operator, Q: BlockMatrix, restriction: ElementRestriction, vectors: VectorSpace, elliptic: bool = False
) -> Any:
    """Diagonals of Q^T A Q, component by component, without A; -> [components, global]."""
    local = [diagonals(operator, number, vectors, elliptic) for number in range(len(Q.blocks))]
    found = restriction.gather_squares(local)
    if Q.signed:
        return found
    total = vectors.to_host(found)
    for number in range(len(Q.blocks)):
        turned = np.flatnonzero((Q.codes[number] < 0).any(axis=1))
        if len(turned):
            _add_turned(operator, number, Q, turned, total, vectors, elliptic)
    return vectors.from_host(total)


def _add_turned(
    operator: Operator, number: int, Q: BlockMatrix, turned: Indices, total: Array, vectors: VectorSpace, elliptic: bool
) -> None:
    """The part of rows of Q with several entries: (Q_m Q_n) A_mn for all pairs of modes of an element in one column."""
    n_modes = Q.blocks[number].shape[1]
    part = BlockMatrix([Q.blocks[number].part(turned)], Q.rows).matrix.tocoo()
    element, mode = np.divmod(part.row.astype(np.int64), n_modes)
    order = np.lexsort((mode, part.col, element))
    element, mode, column = element[order], mode[order], part.col[order].astype(np.int64)
    value = part.data[order].astype(np.float64)
    # Entries of signed rows alone in their column are counted already.
    signed = Q.codes[number][turned[element], mode] >= 0
    new = np.concatenate([[True], (element[1:] != element[:-1]) | (column[1:] != column[:-1])])
    group = np.cumsum(new) - 1
    for lag in range(int(np.bincount(group).max())):
        first = np.flatnonzero(group[lag:] == group[: len(group) - lag])
        if lag == 0:
            first = first[~signed]
        other = first + lag
        weight = (2 if lag else 1) * value[first] * value[other]
        code, place = np.unique(mode[first] * n_modes + mode[other], return_inverse=True)
        for c, row in enumerate(total):
            pairs = code // n_modes, code % n_modes
            entries = vectors.to_host(element_entries(operator, number, c, *pairs, turned, vectors.xp, elliptic))
            np.add.at(row, column[first], weight * entries[element[first], place])


def element_matrices(operator: Operator, number: int, vectors: VectorSpace = HOST_VECTORS) -> Any:
    """Element matrices of a block, by applying its own kernel to unit vectors: what component j and mode n of the trial
    function give; -> [j, n, i, E, m].
    """
    space, n, xp = operator.space, operator.form.components, vectors.xp
    block = space.blocks[number]
    size = n * block.n_modes
    out = xp.empty((size, n, block.n_elements, block.n_modes))
    device = operator.backend.device()
    step = max(1, CHUNK // max(1, block.n_elements * block.n_modes * n))
    for first in range(0, size, step):
        columns = np.arange(first, min(first + step, size))
        source = xp.zeros((len(columns) * n, block.n_elements, block.n_modes), space.dtype)
        for k, column in enumerate(columns):
            c, mode = divmod(int(column), block.n_modes)
            source[k * n + c, :, mode] = 1
        target = PairArray(source.shape, space.dtype)
        operator.choices[number].kernel.apply(PairArray.of(source, vectors.device).read(device), target.write(device))
        out[columns] = target.read(vectors.device).reshape(len(columns), *out.shape[1:])
    return out.reshape(n, block.n_modes, *out.shape[1:])


def between(matrix: csr_array, free: NDArray[np.bool_]) -> csr_array:
    """A new matrix with zeros for all but the entries between free unknowns, in the same places; free [n]."""
    data = matrix.data * (np.repeat(free, np.diff(matrix.indptr)) & free[matrix.indices])
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def block_diagonal(matrices: Array) -> csr_array:
    """Sparse matrix of the matrices of elements, one after the other; matrices [E, n, n] -> [E n, E n]."""
    places, size = np.arange(len(matrices) + 1), len(matrices) * matrices.shape[1]
    return csr_array(bsr_array((np.ascontiguousarray(matrices), places[:-1], places), shape=(size, size)))
