"""Functions of low energy as products of sparse matrices, against their definition."""

import numpy as np
import pytest

from hpfem.backends.cellwise import multiplied
from hpfem.shapes import SHAPES, make_basis
from hpfem.shapes.low_energy import (
    eigenbasis,
    eigenbasis_factors,
    kept_modes,
    low_energy_factors,
    modal_entity_modes,
    reference_energies,
)

CELLS = [s for s in SHAPES.values() if s.dim > 1]


def energy(shape, order, rng, sheared):
    """Of a cell with edges of several lengths, at right angles or not."""
    K, M = reference_energies(shape, order)
    J = np.diag(rng.uniform(0.5, 2, shape.dim)) + sheared * rng.standard_normal((shape.dim, shape.dim))
    return np.einsum("ij,ijmn->mn", J @ J.T, K) + 0.7 * M


def least_energy(shape, order, A, orders):
    """Entity by entity: its eigenvectors, and the least energy of what is around it, inside and all."""
    own = {
        (dim, i): modal_entity_modes(make_basis("modified", shape, order), dim, i)[kept_modes(entity.shape, order, p)]
        for dim in range(shape.dim + 1)
        for i, (entity, p) in enumerate(zip(shape.entities[dim], orders[dim], strict=True))
    }
    T = np.zeros(A.shape)
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
            given = A[np.ix_(around, modes)] @ T[np.ix_(modes, modes)]
            T[np.ix_(around, modes)] = -np.linalg.solve(A[np.ix_(around, around)], given)
    return T


@pytest.mark.parametrize("sheared", [0.0, 0.2])
@pytest.mark.parametrize("orders", ["same", "mixed"])
@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("shape", CELLS, ids=lambda s: s.name)
def test_the_product_is_the_functions_of_least_energy(shape, order, orders, sheared, rng):
    A = energy(shape, order, rng, sheared)
    chosen = [
        [order if orders == "same" or dim in (0, shape.dim) else int(rng.integers(1, order + 1)) for _ in own]
        for dim, own in enumerate(shape.entities)
    ]
    factors = low_energy_factors(shape, order, A, tuple(map(tuple, chosen)))
    wanted = least_energy(shape, order, A, chosen)
    assert np.abs(multiplied(factors) - wanted).max() < 1e-12 * np.abs(wanted).max()


@pytest.mark.parametrize("order", range(2, 9))
@pytest.mark.parametrize("shape", CELLS, ids=lambda s: s.name)
def test_eigenbases_are_products_by_direction(shape, order):
    U, wanted = eigenbasis_factors(shape, order), eigenbasis(shape, order)
    assert np.abs(multiplied(U) - wanted).max(initial=0) <= 1e-14 * np.abs(wanted).max(initial=1)


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("shape", [s for s in CELLS if s.name in ("quad", "hex")], ids=lambda s: s.name)
def test_few_functions_meet_in_products_of_segments(shape, order, rng):
    """Those of a cell with right angles: the ones alone that have its indices, or a vertex' in their places."""
    same = tuple(tuple(order for _ in own) for own in shape.entities)
    factors = low_energy_factors(shape, order, energy(shape, order, rng, 0.0), same)
    T = np.eye(factors[0].shape[0])
    for factor in reversed(factors[shape.dim :]):
        T = factor @ T
    assert np.count_nonzero(T, axis=1).max() <= 3**shape.dim
    assert np.count_nonzero(T) <= (2 + 3 * (order - 1)) ** shape.dim
    # And along a direction, with the even or the odd ones.
    for factor in factors[: shape.dim]:
        assert np.diff(factor.indptr).max() <= max(1, order // 2)
