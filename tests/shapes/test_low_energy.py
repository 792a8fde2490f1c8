"""Functions of low energy as products of sparse matrices, against their definition."""

import numpy as np
import pytest

from hpfem.backends.cellwise import FactorisedMatrix
from hpfem.shapes import SHAPES, make_basis
from hpfem.shapes.low_energy import (
    eigenbasis,
    interior_factors,
    kept_modes,
    low_energy_factors,
    modal_entity_modes,
    reference_energies,
    regular_jacobian,
    shared_energy,
)
from hpfem.shapes.overlap import walls

CELLS = [s for s in SHAPES.values() if s.dim > 1]


def diffusion(shape, rng, sheared):
    """Of a cell with edges of several lengths, at right angles or not."""
    J = np.diag(rng.uniform(0.5, 2, shape.dim)) + sheared * rng.standard_normal((shape.dim, shape.dim))
    return J @ J.T


def energy(shape, order, S, m):
    K, M = reference_energies(shape, order)
    return np.einsum("ij,ijmn->mn", S, K) + m * M


def regular(shape, S):
    """In the regular cell."""
    return regular_jacobian(shape) @ S @ regular_jacobian(shape).T


def shared(shape, S):
    """The diffusion that neighbours have too."""
    back = np.linalg.inv(regular_jacobian(shape))
    return back @ shared_energy(shape, regular(shape, S)) @ back.T


def in_layers(shape, S):
    """The same for what lies in the planes of layers of prisms: at most 12 times the energy in these planes."""
    back, Q = np.linalg.inv(regular_jacobian(shape)), regular(shape, shared(shape, S))
    Q[2, 2] = min(Q[2, 2], 12 * np.linalg.eigvalsh(Q[:2, :2])[0])
    return back @ Q @ back.T


def least_energy(shape, order, S, m, orders):
    """Entity by entity: its eigenvectors, and the least energy of what is around it: shared, and the cell's inside."""
    own = {
        (dim, i): modal_entity_modes(make_basis("modified", shape, order), dim, i)[kept_modes(entity.shape, order, p)]
        for dim in range(shape.dim + 1)
        for i, (entity, p) in enumerate(zip(shape.entities[dim], orders[dim], strict=True))
    }
    A, upright = energy(shape, order, S, m), energy(shape, order, shared(shape, S), m)
    flat = energy(shape, order, in_layers(shape, S), m) if shape.name == "prism" else upright
    heights = {key: np.ptp(shape.vertices[list(shape.entities[key[0]][key[1]].vertices), -1]) for key in own}
    lying = np.concatenate([modes for key, modes in own.items() if heights[key] == 0])
    T, inner = np.zeros(A.shape), own[shape.dim, 0]
    for (dim, i), modes in own.items():
        corners = set(shape.entities[dim][i].vertices)
        T[np.ix_(modes, modes)] = eigenbasis(shape.entities[dim][i].shape, orders[dim][i])
        around = [
            m
            for (d, j), others in own.items()
            if d > dim and corners <= set(shape.entities[d][j].vertices)
            for m in others
        ]
        if around and len(modes):
            for traces, chosen in ((upright, np.full(len(around), True)), (flat, np.isin(around, lying))):
                given = traces[np.ix_(around, modes)] @ T[np.ix_(modes, modes)]
                found = -np.linalg.solve(traces[np.ix_(around, around)], given)
                T[np.ix_(np.array(around)[chosen], modes)] = found[chosen]
    outer = np.setdiff1d(np.concatenate(list(own.values())), inner)
    T[np.ix_(inner, outer)] = -np.linalg.solve(
        A[np.ix_(inner, inner)], A[np.ix_(inner, outer)] @ T[np.ix_(outer, outer)]
    )
    T[np.ix_(inner, inner)] = FactorisedMatrix(interior_factors(shape, orders[-1][0], regular(shape, S))).dense
    return T


@pytest.mark.parametrize("sheared", [0.0, 0.2])
@pytest.mark.parametrize("orders", ["same", "mixed"])
@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("shape", CELLS, ids=lambda s: s.name)
def test_the_product_is_the_functions_of_least_energy(shape, order, orders, sheared, rng):
    S = diffusion(shape, rng, sheared)
    chosen = [
        [order if orders == "same" or dim in (0, shape.dim) else int(rng.integers(1, order + 1)) for _ in own]
        for dim, own in enumerate(shape.entities)
    ]
    factors = low_energy_factors(shape, order, S, 0.7, tuple(map(tuple, chosen)))
    wanted = least_energy(shape, order, S, 0.7, chosen)
    assert np.abs(FactorisedMatrix(factors).dense - wanted).max() < 1e-12 * np.abs(wanted).max()


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("shape", [s for s in CELLS if s.name in ("quad", "hex")], ids=lambda s: s.name)
def test_few_functions_meet_in_products_of_segments(shape, order, rng):
    """Those of a cell with right angles: the ones alone that have its indices, or a vertex' in their places."""
    same = tuple(tuple(order for _ in own) for own in shape.entities)
    factors = low_energy_factors(shape, order, diffusion(shape, rng, 0.0), 0.7, same)
    T = np.eye(factors[0].shape[0])
    for factor in reversed(factors[shape.dim :]):
        T = factor @ T
    assert np.count_nonzero(T, axis=1).max() <= 3**shape.dim
    assert np.count_nonzero(T) <= (2 + 3 * (order - 1)) ** shape.dim
    # And along a direction, with the even or the odd ones.
    for factor in factors[: shape.dim]:
        assert np.diff(factor.indptr).max() <= max(1, order // 2)


@pytest.mark.parametrize("order", [2, 4, 5])
@pytest.mark.parametrize("shape", CELLS, ids=lambda s: s.name)
def test_the_interior_is_its_own_eigenbasis(shape, order):
    """In cells that are stretched along a product's directions, or in any way: the energy is diagonal there."""
    S, back = np.diag(16.0 ** np.arange(shape.dim)), np.linalg.inv(regular_jacobian(shape))
    S = back @ S @ back.T
    same = tuple(tuple(order for _ in own) for own in shape.entities)
    T = FactorisedMatrix(low_energy_factors(shape, order, S, 0.7, same)).dense
    inner = modal_entity_modes(make_basis("modified", shape, order), shape.dim, 0)
    A = (T.T @ energy(shape, order, S, 0.7) @ T)[inner]
    assert np.abs(A - np.diag(np.diag(A[:, inner])) @ np.eye(len(T))[inner]).max(initial=0) < 1e-9 * np.abs(A).max(
        initial=1
    )


@pytest.mark.parametrize("shape", [s for s in CELLS if s.name not in ("quad", "hex")], ids=lambda s: s.name)
def test_neighbours_share_their_traces(shape):
    """However a cone or the triangle of a prism is stretched: the traces are those of a regular one."""
    found, basis, back = [], make_basis("modified", shape, 4), np.linalg.inv(regular_jacobian(shape))
    same = tuple(tuple(4 for _ in own) for own in shape.entities)
    outer = np.flatnonzero([mode.entity[0] < shape.dim for mode in basis.modes])
    for more in (0, 900):
        Q = np.eye(shape.dim)
        Q[:2, :2] += more * np.outer([0.6, 0.8], [0.6, 0.8])
        T = FactorisedMatrix(low_energy_factors(shape, 4, back @ Q @ back.T, 0.0, same)).dense
        found.append(T[np.ix_(outer, outer)])
    assert np.abs(found[0] - found[1]).max() < 1e-11


@pytest.mark.parametrize("shape", [SHAPES["quad"], SHAPES["hex"], SHAPES["prism"]], ids=lambda s: s.name)
def test_entities_beside_stretched_cones_have_traces_of_the_regular_cell(shape):
    """Those alone: the others keep what the ratio of the cell makes of them."""
    Q, back = np.diag([1.0, 1.0, 400.0][-shape.dim :]), np.linalg.inv(regular_jacobian(shape))
    same = tuple(tuple(4 for _ in own) for own in shape.entities)
    entity, modes = (shape.dim - 1, 1), make_basis("modified", shape, 4).modes
    beside = tuple(tuple((dim, i) == entity for i in range(len(own))) for dim, own in enumerate(shape.entities))
    ratio, regular, mixed = (
        FactorisedMatrix(low_energy_factors(shape, 4, back @ Q @ back.T, 0.0, same, own)).dense
        for Q, own in ((Q, ()), (np.eye(shape.dim), ()), (Q, beside))
    )
    own = np.array([mode.entity == entity for mode in modes])
    others = np.array([mode.entity[0] < shape.dim for mode in modes]) & ~own
    assert np.abs(mixed[own] - regular[own]).max() < 1e-12
    assert np.abs(mixed[others] - ratio[others]).max() < 1e-12
    assert np.abs(ratio[own] - regular[own]).max() > 1e-3


@pytest.mark.parametrize("shape", [s for s in CELLS if s.dim == 3], ids=lambda s: s.name)
def test_functions_that_are_constant_in_a_thin_layer(shape):
    """On a face along its short edge they are sums of functions of what stands above each other."""
    order, back = 4, np.linalg.inv(regular_jacobian(shape))
    same, edge = tuple(tuple(order for _ in own) for own in shape.entities), shape.edges[0].vertices
    along = [np.diff(shape.vertices[list(own.vertices)], axis=0)[0] for own in shape.edges]
    standing = walls(shape, np.array([[np.linalg.matrix_rank([along[0], own]) == 1 for own in along]]))[0]
    T = FactorisedMatrix(low_energy_factors(shape, order, back @ back.T, 0.0, same, (), tuple(standing.tolist()))).dense
    basis, group = make_basis("modified", shape, order), [(0, edge[0]), (0, edge[1]), (1, 0)]
    T = T[:, [mode.entity in group for mode in basis.modes]]
    faces = [face for face, own in zip(shape.faces, standing) if own and set(edge) <= set(face.vertices)]
    assert len(faces) == 2
    for face in faces:
        corners = shape.vertices[[*edge, next(vertex for vertex in face.vertices if vertex not in edge)]]
        s, t = np.random.default_rng(0).dirichlet((1, 1, 1), 200).T[:2]
        at = corners[2] + np.outer(s, corners[0] - corners[2]) + np.outer(t, corners[1] - corners[2])
        gradient = np.einsum("dmn,mk->dkn", basis.gradient(at), T)
        up, across = (np.einsum("d,dkn->kn", corners[i] - corners[j], gradient) for i, j in ((1, 0), (2, 0)))
        assert np.linalg.eigvalsh(up @ up.T)[0] < 1e-6 * np.linalg.norm(across @ across.T)
