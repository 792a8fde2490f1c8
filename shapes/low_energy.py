"""Functions of low energy on a reference cell: in this basis, the diagonal of an elliptic operator is a good smoother.

The function of a vertex, edge or face has given values on that entity and is zero on all entities that do not contain
it. Among such functions it is the one of least energy [SC]: on edges and faces of an energy that neighbours share,
inside the cell of the cell's own. On an edge or face the functions are eigenvectors of the Laplacian of the regular
entity, so that neighbours of any shape have the same trace; inside a cell, which nobody shares, of its own energy.

The modified basis is hierarchical and sorted by entity, and so are these functions: column m belongs to mode m, and
changes its sign and place with the entity's orientation like that mode, except on rotated tris.

The matrix of these functions is kept as sparse factors: eigenbases by direction, and their coupling.
"""

from __future__ import annotations

from functools import cache, lru_cache, reduce
from operator import matmul

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array, eye_array, kron

from .arrays import Array, Indices, frozen
from .basis import Basis, make_basis
from .segment import SEGMENT
from .shape import Shape
from .tabulation import exact_rule

# Off-diagonal entries up to this, relative to the diagonal, are zero up to rounding, as between even and odd functions.
_ROUNDING = 3e-15
# Energy along a face that stands in a thin layer, relative to that across.
_ALONG = 1e4
# Energy across a layer of prisms for traces in its planes, relative to the least one along these, at most.
_ACROSS = 12.0


@cache
def interior_modes(basis: Basis) -> Indices:
    """Modes that belong to the shape itself and not to its boundary, in mode order; -> [n]."""
    found = [m for m, mode in enumerate(basis.modes) if mode.entity[0] == basis.shape.dim]
    return frozen(np.array(found, dtype=np.int64))


def modal_entity_modes(basis: Basis, dim: int, number: int) -> Indices:
    """Modes of a hierarchical basis of an entity, in the order of the entity's own interior modes; -> [n]."""
    found = {mode.indices: m for m, mode in enumerate(basis.modes) if mode.entity == (dim, number)}
    if dim == 0:
        return np.array(list(found.values()), dtype=np.int64)
    own = make_basis(basis.name, basis.shape.entities[dim][number].shape, basis.order)
    return np.array([found[own.modes[m].indices] for m in interior_modes(own)], dtype=np.int64)


def kept_modes(shape: Shape, order: int, lower: int) -> Indices:
    """Positions among the interior modes of the modified basis of an order of those of a lower order; -> [n]."""
    if shape.dim == 0:
        return np.zeros(1, dtype=np.int64)
    place = {indices: i for i, indices in enumerate(_inner(shape, order))}
    return np.array([place[indices] for indices in _inner(shape, lower)], dtype=np.int64)


@cache
def regular_jacobian(shape: Shape) -> Array:
    """Jacobian of the map to the regular cell: right angles or, in a cone, edges of one length; -> [dim, dim]."""
    if shape.dim < 2 or shape.base is None:
        return np.eye(shape.dim)
    base, column = regular_jacobian(shape.base), np.eye(shape.dim)[-1]
    if shape.collapsed:
        column[:-1] = base @ (shape.base.vertices.mean(axis=0) + 1) / 2
        column[-1] = np.sqrt(1 - column[:-1] @ column[:-1])
    return np.column_stack([np.vstack([base, np.zeros(shape.dim - 1)]), column])


@cache
def reference_energies(shape: Shape, order: int) -> tuple[Array, Array]:
    """Integrals of products of modified modes and derivatives; -> stiffness [dim, dim, n, n], mass [n, n]."""
    basis = make_basis("modified", shape, order)
    rule = exact_rule(basis)
    values = basis.evaluate_eta(rule.eta)
    inverse = np.linalg.inv(shape.collapse_matrix(rule.eta))
    gradient = np.einsum("qki,kmq->imq", inverse, basis.gradient_eta(rule.eta), optimize=True)
    stiffness = np.array([[(a * rule.weights) @ b.T for b in gradient] for a in gradient])
    return stiffness, np.asarray((values * rule.weights) @ values.T)


@cache
def eigenbasis(shape: Shape, order: int) -> Array:
    """Eigenvectors of the regular entity's Laplacian with zero boundary values, in its interior modes; -> [n, n]."""
    if shape.dim == 0:
        return np.eye(1)
    modes = _inner(shape, order)
    if shape.dim > 1 and shape.base is not None and not shape.collapsed:
        return np.asarray(reduce(matmul, interior_factors(shape, order, np.eye(shape.dim))).toarray())
    stiffness, mass = reference_energies(shape, order)
    inside, inverse = interior_modes(make_basis("modified", shape, order)), np.linalg.inv(regular_jacobian(shape))
    A = np.einsum("ij,ijmn->mn", inverse @ inverse.T, stiffness)[np.ix_(inside, inside)]
    M, vectors = mass[np.ix_(inside, inside)], np.zeros(A.shape)
    # Odd functions of eta_1 change their sign under reversal: they are in the places of odd modes.
    for parity in (0, 1):
        same = np.array([m for m, indices in enumerate(modes) if indices[0] % 2 == parity], dtype=np.int64)
        if len(same):
            vectors[np.ix_(same, same)] = eigh(A[np.ix_(same, same)], M[np.ix_(same, same)])[1]
    # Any scaling is possible: at low orders they are modes. On tris, which can be rotated, all have the same mass.
    return vectors / np.abs(vectors).max(axis=0 if shape.dim == 1 else None, initial=_ROUNDING)


def _inner(shape: Shape, order: int) -> list[tuple[int, ...]]:
    """Indices of the interior modes."""
    return [mode.indices for mode in make_basis("modified", shape, order).modes if mode.entity[0] == shape.dim]


def shared_energy(shape: Shape, Q: Array) -> Array:
    """Diffusion in the regular cell that its neighbours have too; Q [dim, dim] -> [dim, dim]."""
    # Cells at an edge or face see it at different angles, and stretched cones at very different ones: a cone is taken
    # for the regular one. Layers of products go on in their neighbours: a product keeps the ratio of its factors.
    if shape.base is None or shape.dim < 2:
        return Q
    if shape.collapsed:
        return np.eye(shape.dim) * max(np.linalg.eigvalsh(Q)[0], 0)
    own = np.zeros(Q.shape)
    own[:-1, :-1], own[-1, -1] = shared_energy(shape.base, Q[:-1, :-1]), Q[-1, -1]
    return own


def interior_factors(shape: Shape, order: int, Q: Array) -> list[csr_array]:
    """Factors of an `eigenbasis` of a diffusion Q of the regular cell: one per direction of a product; -> [n, n]."""
    if shape.dim > 1 and shape.base is not None and not shape.collapsed:  # without couplings of directions
        base, line = _inner(shape.base, order), _inner(SEGMENT, order)
        pairs = [(*b, *a) for b in base for a in line]
        own = [pairs.index(indices) for indices in _inner(shape, order)]
        of_base = interior_factors(shape.base, order, Q[:-1, :-1])
        factors = [kron(part, eye_array(len(line))) for part in of_base]
        factors.append(kron(eye_array(len(base)), csr_array(eigenbasis(SEGMENT, order))))
        return [csr_array(csr_array(part)[own][:, own]) for part in factors]
    if shape.dim < 2 or np.allclose(Q, Q[0, 0] * np.eye(len(Q)), atol=1e-9 * Q[0, 0]):
        return [csr_array(eigenbasis(shape, order))]
    stiffness, mass = reference_energies(shape, order)
    inside, back = interior_modes(make_basis("modified", shape, order)), np.linalg.inv(regular_jacobian(shape))
    A = np.einsum("ij,ijmn->mn", back @ Q @ back.T, stiffness)[np.ix_(inside, inside)]
    return [csr_array(eigh(A, mass[np.ix_(inside, inside)])[1])]


def low_energy_factors(
    shape: Shape,
    order: int,
    S: Array,
    m: float,
    orders: tuple[tuple[int, ...], ...],
    beside: tuple[tuple[bool, ...], ...] = (),
    walls: tuple[int, ...] = (),
) -> list[csr_array]:
    """Functions of low energy of a diffusion S [dim, dim] and reaction m, as coefficients of modified modes: a product
    of sparse matrices. `beside` tells of entities of the cell, by dimension, whether they are a stretched cone's too:
    their traces are those of the regular cell. `walls` tells of faces along which of their edges, counted from 1, a
    function in a thin layer is constant; 0 for none.
    """
    # The last factors extend, entity by entity from the cell to its edges, the functions around an entity into it. The
    # others go, direction by direction, from the eigenbases of all entities to modes.
    R, (K, M) = regular_jacobian(shape), reference_energies(shape, order)
    Q, back, n = R @ S @ R.T, np.linalg.inv(R), len(M)
    change, entities = _entities(shape, order, orders)
    inner, outer = entities[-1][0], np.concatenate([modes for modes, _ in entities[:-1]])
    put = csr_array((np.ones(len(inner)), (inner, np.arange(len(inner)))), shape=(n, len(inner)))
    own = interior_factors(shape, orders[-1][0], Q)
    change = [*(csr_array(U + put @ V @ put.T) for U, V in zip(change, own, strict=False)), *change[len(own) :]]

    def energy(S: Array) -> Array:
        """In the eigenbases, where few functions are coupled in a product of segments."""
        A = np.einsum("ij,ijmn->mn", S, K) + m * M
        for U in change:
            A = U.T @ A @ U
        size = np.sqrt(np.abs(A.diagonal()))
        return np.where(np.abs(A) < _ROUNDING * np.outer(size, size), 0, A)

    def extension(A: Array) -> Array:
        """Into the interior, which is eliminated once for all entities."""
        return np.asarray(-np.linalg.solve(A[np.ix_(inner, inner)], A[np.ix_(inner, outer)]))

    def traces(Q: Array) -> Array:
        """On all entities but the cell."""
        schur, T = energy(back @ Q @ back.T), np.eye(n)
        schur[np.ix_(outer, outer)] += schur[np.ix_(outer, inner)] @ extension(schur)
        for modes, around in entities:
            if len(around) and len(modes):
                T[np.ix_(around, modes)] = -np.linalg.solve(schur[np.ix_(around, around)], schur[np.ix_(around, modes)])
        return T

    shared = shared_energy(shape, Q)
    T, lower, in_plane = traces(shared), shared.copy(), list[bool]()
    if shape.dim > 2 and shape.base is not None and shape.base.collapsed:
        # What is constant through thin layers of prisms has no energy across them, nor have traces in their planes.
        lower[-1, -1] = min(shared[-1, -1], _ACROSS * np.linalg.eigvalsh(shared[:-1, :-1])[0])
        own = [np.ptp(shape.vertices[list(entity.vertices), -1]) for part in shape.entities[:-1] for entity in part]
        in_plane = [lower[-1, -1] < shared[-1, -1] and height == 0 for height in own]
    cone = np.eye(shape.dim) * np.linalg.eigvalsh(shared)[0]
    for chosen, diffusion in ((in_plane, lower), ([own for of_dim in beside for own in of_dim], cone)):
        if any(chosen):
            rows = np.concatenate([modes for (modes, _), own in zip(entities, chosen, strict=False) if own])
            T[rows] = traces(diffusion)[rows]
    for number, edge in enumerate(walls):
        if edge:
            closure, A = _wall(shape, order, number, edge - 1)
            for U in change:
                A = U[closure][:, closure].T @ A @ U[closure][:, closure]
            within = np.isin(closure, entities[len(shape.vertices) + len(shape.edges) + number][0])
            rows, others = closure[within], closure[~within]
            T[rows] = -np.linalg.solve(A[np.ix_(within, within)], A[np.ix_(within, ~within)] @ T[others])
            T[rows, rows] = 1
    T[np.ix_(inner, outer)] = extension(energy(S)) @ T[np.ix_(outer, outer)]
    T[np.abs(T) < _ROUNDING] = 0
    parts = [_identity_but(T, np.sort(modes)) for modes, _ in entities[len(shape.vertices) :] if len(modes)]
    return [*change, *parts]


@cache
def _wall(shape: Shape, order: int, number: int, edge: int) -> tuple[Indices, Array]:
    """Modes on a face and its boundary, and their energy on it, which is large along an edge; -> [n], [n, n]."""
    face = shape.faces[number]
    places = {(mode.entity, mode.indices): m for m, mode in enumerate(make_basis("modified", shape, order).modes)}
    closure = []
    for mode in make_basis("modified", face.shape, order).modes:
        corners = face.shape.entities[mode.entity[0]][mode.entity[1]].vertices
        closure.append(places[shape.entity_number(tuple(face.vertices[corner] for corner in corners)), mode.indices])
    back, (start, end) = np.linalg.inv(regular_jacobian(face.shape)), face.shape.edges[edge].vertices
    along = (face.shape.vertices[end] - face.shape.vertices[start]) / 2
    S = back @ back.T + _ALONG * np.outer(along, along)
    return np.array(closure), np.einsum("ij,ijmn->mn", S, reference_energies(face.shape, order)[0])


def _identity_but(T: Array, modes: Indices) -> csr_array:
    """The identity with some rows replaced, given in order."""
    row, column = T[modes].nonzero()
    counts = np.ones(len(T), dtype=np.int64)
    counts[modes] = np.bincount(row, minlength=len(modes))
    columns, ends = np.repeat(np.arange(len(T)), counts), np.concatenate([[0], np.cumsum(counts)])
    own = np.isin(columns, modes, kind="table")
    values, columns[own] = np.ones(len(columns)), column
    values[own] = T[modes[row], column]
    return csr_array((values, columns.astype(np.int32), ends.astype(np.int32)), shape=T.shape)


@lru_cache(maxsize=256)
def _entities(
    shape: Shape, order: int, orders: tuple[tuple[int, ...], ...]
) -> tuple[list[csr_array], list[tuple[Indices, Indices]]]:
    """Factors from the eigenbases of all entities but the cell to modes; by entity its modes, and those around it."""
    basis = make_basis("modified", shape, order)
    own = {
        (dim, number): modal_entity_modes(basis, dim, number)[kept_modes(entity.shape, order, orders[dim][number])]
        for dim in range(shape.dim + 1)
        for number, entity in enumerate(shape.entities[dim])
    }
    change, n = [np.eye(basis.n_modes)], basis.n_modes
    change[0][np.setdiff1d(np.arange(n), np.concatenate(list(own.values())))] = 0
    entities = []
    for (dim, number), modes in own.items():
        entity = shape.entities[dim][number]
        for k, U in enumerate(interior_factors(entity.shape, orders[dim][number], np.eye(dim))):
            if k == len(change):
                change.append(np.eye(n))
            change[k][np.ix_(modes, modes)] = U.toarray() if dim < shape.dim else 0
        around = [
            others
            for (d, i), others in own.items()
            if dim < d < shape.dim and set(entity.vertices) <= set(shape.entities[d][i].vertices)
        ]
        entities.append((modes, np.concatenate([modes[:0], *around])))
    return [csr_array(U) for U in change], entities
