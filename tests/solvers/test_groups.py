"""Factors of the matrices of strongly coupled groups, against their inverses."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

from hpfem.backends import grouping
from hpfem.backends.vectors import VectorSpace
from hpfem.memory import HOST
from hpfem.solvers.multigrid import groups
from hpfem.solvers.multigrid.groups import eliminated, levels, most_of, pieces


@pytest.fixture
def whole(monkeypatch):
    """Groups are not cut because a diagonal is not far off."""
    monkeypatch.setattr(groups, "_EASY", np.inf)


def layered(rng, layers, width):
    """A matrix, positive definite, whose layers are coupled to the next ones."""
    n = layers * width
    layer = np.arange(n) // width
    A = np.where(abs(layer[:, None] - layer) <= 1, rng.standard_normal((n, n)), 0)
    A = A + A.T
    return A + np.diag(abs(A).sum(axis=1) + 0.01)


def factors(coupled, diagonal, *more):
    """Steps, members and a matrix for whole vectors."""
    steps, members, inverse = eliminated(coupled, diagonal, *more)
    return steps, members, inverse.matrix(members, len(diagonal))


def solved(coupled, diagonal, order, r, least=0.0):
    """What the steps make of a vector that is divided by the diagonal."""
    z, (steps, members, inverse) = r / diagonal, factors(csr_array(coupled), diagonal, order, least)
    for step in steps:
        z[step.others] += step.there @ z
    z[members] = inverse @ z
    for step in reversed(steps):
        z[step.own] = step.back @ z
    return z, sum(step.there.nnz + step.back.nnz for step in steps) + inverse.nnz


def test_a_factor_of_layers_is_the_inverse(rng, whole):
    parts = [layered(rng, layers, width) for layers, width in ((40, 3), (7, 5), (3, 4), (1, 1), (1, 2))]
    A = block_diag(parts).toarray()
    order = rng.permutation(len(A))
    A = A[np.ix_(order, order)]
    diagonal = A.diagonal().copy()
    fixed = rng.choice(len(A), 5, replace=False)
    diagonal[fixed] = np.inf
    free = np.setdiff1d(np.arange(len(A)), fixed)
    r = rng.standard_normal(len(A))
    r[fixed] = 0
    found, _ = solved(A, diagonal, 4, r)
    assert np.abs(found[free] - np.linalg.solve(A[np.ix_(free, free)], r[free])).max() < 1e-11
    assert not found[fixed].any()


def test_entries_do_not_grow_with_layers(rng, whole):
    entries = []
    for layers in (16, 256):
        A = layered(rng, layers, 4)
        entries.append(solved(A, A.diagonal(), 4, np.ones(len(A)))[1] / len(A))
    assert entries[1] < 1.2 * entries[0]


def test_zeros_are_not_kept(rng, whole):
    """Of layers whose functions are not coupled with each other."""
    A = layered(rng, 9, 4)
    layer = np.arange(len(A)) // 4
    A[(layer[:, None] == layer) & (layer % 2 == 1) & ~np.eye(len(A), dtype=bool)] = 0
    steps, _, inverse = factors(csr_array(A), A.diagonal(), 4)
    assert steps and all((np.abs(M.data) > 1e-12).all() for M in (inverse, *(own.back for own in steps)))


def test_layers_go_from_one_end_to_the_other():
    n = 9
    order = np.random.default_rng(0).permutation(n)
    path = np.zeros((n, n))
    path[order[1:], order[:-1]] = path[order[:-1], order[1:]] = 1
    found = levels(csr_array(path + np.eye(n)), np.zeros(n, dtype=int))[order]
    assert found.tolist() in (list(range(n)), list(range(n))[::-1])


def test_entries_that_rounding_leaves_on_one_side_alone():
    N = np.eye(3)
    N[0, 1] = N[2, 1] = 1e-17
    assert sorted(levels(csr_array(N), np.zeros(3, dtype=int))) == [0, 1, 2]


def test_wide_groups_are_cut_where_they_are_coupled_least(rng):
    """Blocks of 40 that are coupled weakly to all others stay whole, and larger ones do not."""
    n, size = 480, 40
    block = np.arange(n) // size
    A = np.where(block[:, None] == block, 0.5, 1e-3) * rng.uniform(0.9, 1.0, (n, n))
    A = (A + A.T) / 2 + np.diag(np.full(n, 50.0))
    found = pieces(csr_array(A), A.diagonal(), most_of(2))
    assert [len(np.unique(found[block == k])) for k in range(n // size)] == [1] * (n // size)
    assert np.bincount(np.unique(found, return_inverse=True)[1]).max() <= most_of(2)
    z, _ = solved(A, A.diagonal(), 2, np.ones(n))
    assert np.isfinite(z).all()


def test_groups_are_cut_as_if_one_pair_after_the_other_was_merged(rng, monkeypatch):
    n, most = 60, 7
    A = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.3), 1)
    wanted = np.arange(n)
    for i, j in sorted(zip(*np.nonzero(A), strict=True), key=lambda pair: -A[pair]):
        together = (wanted == wanted[i]) | (wanted == wanted[j])
        if together.sum() <= most:
            wanted[together] = wanted[together].min()
    i, j = (own[np.argsort(-A[A != 0])] for own in np.nonzero(A))
    for at_once in (28, 4000):
        monkeypatch.setattr(grouping, "CACHED", at_once)
        assert np.array_equal(grouping.clusters(i, j, np.full(n, most)), wanted)


def test_what_is_coupled_weakly_in_the_mean_makes_no_group(rng):
    A = np.eye(7) + 0.05
    A[0, 1] = A[1, 0] = A[4, 5] = A[5, 4] = -0.3
    steps, members, inverse = factors(csr_array(A), np.ones(7), 4, 0.12)
    assert not steps and sorted(members.tolist()) == [0, 1, 4, 5] and inverse.nnz == 8
    assert not len(eliminated(csr_array(np.eye(7) + 0.05), np.ones(7), 4, 0.12)[1])


def test_where_a_diagonal_nearly_does_strong_pairs_alone_make_groups():
    """Two chains with a weak pair in the middle: of one the smallest eigenvalue is 0.7, of the other 0.1."""
    parts = [
        np.eye(6) - np.diag(c, 1) - np.diag(c, -1) for c in ([0.3, 0.0, 0.15, 0.0, 0.3], [0.6, 0.6, 0.15, 0.6, 0.6])
    ]
    steps, members, inverse = factors(csr_array(block_diag(parts)), np.ones(12), 4, 0.12)
    assert not steps and sorted(members.tolist()) == [0, 1, 4, 5, *range(6, 12)]
    found = inverse.toarray()
    assert np.allclose(found[np.ix_(members >= 6, range(6, 12))], np.linalg.inv(parts[1])[members[members >= 6] - 6])
    assert np.diff(inverse.indptr)[members < 6].tolist() == [2] * 4


@pytest.mark.parametrize(("coupling", "whole"), [(0.3, False), (0.49, True)])
def test_groups_are_cut_to_small_pieces_where_a_diagonal_is_not_far_off(coupling, whole):
    """Chains of 60, of the smallest eigenvalue 0.4, whose pieces have 40 functions at most, and 0.02."""
    A, r = np.eye(60) + coupling * (np.eye(60, k=1) + np.eye(60, k=-1)), np.ones(60)
    assert np.allclose(solved(A, r, 6, r, 0.12)[0], np.linalg.solve(A, r), atol=1e-5) == whole


@pytest.mark.parametrize("layers", [3, 30])
def test_what_is_left_is_positive_definite(layers, rng):
    """Nearly singular groups, as layers that float."""
    A = layered(rng, layers, 3)
    A -= (np.linalg.eigvalsh(A)[0] - 1e-9) * np.eye(len(A))
    B = np.array([solved(A, A.diagonal(), 4, e)[0] for e in np.eye(len(A))])
    assert np.abs(B - B.T).max() < 1e-6 * np.abs(B).max() and np.linalg.eigvalsh((B + B.T) / 2)[0] > 0


class Elsewhere(VectorSpace):
    """Vectors of a device, to which NumPy's functions belong."""

    xp = SimpleNamespace(**vars(np))


@pytest.mark.parametrize(("least", "few"), [(0.0, 200), (0.12, 200), (0.12, 8), (2.0, 8)])
def test_devices_make_what_hosts_make(least, few, rng):
    """Also parts of graphs and padded blocks, for which hosts have other code."""
    n = 900
    A = np.triu(np.where(rng.random((n, n)) < 1.2 / n, rng.uniform(-0.4, 0.4, (n, n)), 0), 1)
    A[:3, :3] = np.triu(np.full((3, 3), -0.6), 1)  # not positive definite
    diagonal = rng.uniform(1, 2, n)
    A *= np.sqrt(np.outer(diagonal, diagonal))
    diagonal[7::50] = np.inf
    steps, members, found = eliminated(csr_array(A), diagonal, 2, least, few)
    others, elsewhere, same = eliminated(csr_array(A), diagonal, 2, least, few, Elsewhere(HOST))
    assert np.array_equal(members, elsewhere) and np.array_equal(found.counts, same.counts)
    assert len(steps) == len(others) and bool(len(members)) == (least < 1)
    assert np.abs(found.values - same.values).max(initial=0) < 1e-9 * np.abs(found.values).max(initial=1)
