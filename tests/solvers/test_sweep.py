"""Large groups are eliminated from the functions beside them."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.sparse import csr_array

from hpfem.solvers.multigrid import sweep
from hpfem.solvers.multigrid.groups import eliminated
from hpfem.solvers.multigrid.lines import _factors, _parts


def above(coupled, beside, partly=()):
    """The arguments of `swept`."""
    return csr_array(np.triu(coupled, 1)), sweep.Beside(csr_array(np.triu(beside, 1)), np.array(partly, dtype=int))


def applied(coupled, beside, diagonal, r):
    """The inverse that the step and the groups make, times a vector; and the step."""
    first, coupled, left = sweep.swept(*above(coupled, beside), diagonal, 4, 0.0)
    steps, members, inverse = eliminated(coupled, left, 4)
    z = r / left
    solve([*first, *steps], members, inverse, z)
    return z, first


def solve(steps, members, inverse, z):
    """Apply factors to a vector, in place."""
    for step in steps:
        z[step.others] += step.there @ z
    z[members] = inverse.matrix(members, len(z)) @ z
    for step in reversed(steps):
        z[step.own] = step.back @ z + step.onto * z[step.own]


def parts(rng, close=0.3):
    """A positive definite matrix of two groups, one beside both, and one with a single function beside it."""
    label = np.repeat([0, 1, 2, 3, 4], [30, 25, 10, 20, 1])
    near = np.eye(5, dtype=bool)
    near[[2, 2, 4], [0, 1, 3]] = near[[0, 1, 3], [2, 2, 4]] = True
    A = np.where(near[label[:, None], label], rng.standard_normal((len(label),) * 2), 0)
    A = A + A.T
    A += (close - np.linalg.eigvalsh(A)[0]) * np.eye(len(A))
    order = rng.permutation(len(A))
    A, label = A[np.ix_(order, order)], label[order]
    return A, np.where(label[:, None] == label, A, 0), np.where(label[:, None] == label, 0, A)


def test_if_nothing_is_left_out_it_is_the_inverse(rng, monkeypatch):
    monkeypatch.setattr(sweep, "_SMALL", 0.0)
    monkeypatch.setattr(sweep, "_ADDED", 0.0)
    A, coupled, beside = parts(rng)
    diagonal, r = A.diagonal().copy(), rng.standard_normal(len(A))
    fixed = rng.choice(len(A), 5, replace=False)
    diagonal[fixed], r[fixed] = np.inf, 0
    free = np.setdiff1d(np.arange(len(A)), fixed)
    found, first = applied(coupled, beside, diagonal, r)
    assert len(first) == 1 and not found[fixed].any()
    assert np.abs(found[free] - np.linalg.solve(A[np.ix_(free, free)], r[free])).max() < 1e-10


@pytest.mark.parametrize("close", [0.3, 1e-6])
def test_it_is_positive_definite_and_better_than_groups_alone(close, rng):
    A, coupled, beside = parts(rng, close)
    B = np.array([applied(coupled, beside, A.diagonal(), e)[0] for e in np.eye(len(A))])
    assert np.abs(B - B.T).max() < 1e-6 * np.abs(B).max()

    def condition(B):
        values = np.linalg.eigvals(B @ A).real
        assert values.min() > 0
        return values.max() / values.min()

    assert condition((B + B.T) / 2) < 0.1 * condition(np.linalg.inv(coupled + 1e-9 * np.eye(len(A))))


def test_no_step_where_hardly_anything_is_beside_a_group(rng):
    A, coupled, beside = parts(rng)
    first, groups, diagonal = sweep.swept(*above(coupled, 1e-3 * beside), A.diagonal(), 4, 0.0)
    assert not first and np.abs(groups.toarray() + np.diag(diagonal) - coupled).max() < 1e-12


@pytest.mark.parametrize("many", [False, True])
def test_functions_with_unknown_couplings_stay(many, rng):
    """Of a group with many of them all do."""
    A, coupled, beside = parts(rng)
    own = [np.flatnonzero(coupled[k])[0] for k in range(len(A))]
    group = np.flatnonzero(own == np.bincount(own).argmax())
    first, _, _ = sweep.swept(*above(coupled, beside, group[: 15 if many else 3]), A.diagonal(), 4, 0.0)
    stay = np.setdiff1d(group, first[0].own)
    assert len(first) == 1 and (len(stay) == len(group) if many else set(group[:3]) <= set(stay) != set(group))


def test_processes_that_share_groups_make_what_one_makes(rng):
    """Each from the coefficients of the functions that its own need, which one process gives."""
    A, coupled, beside = parts(rng)
    n, r = len(A), rng.standard_normal(len(A))
    factors, left = _factors(*above(coupled, beside), A.diagonal(), 4, 24)
    z = r / left
    wanted = z.copy()
    solve(*factors, wanted)
    has = rng.random((3, n)) < 0.5
    has[0] |= ~has.any(axis=0)
    first, given, numbers = has.argmax(axis=0), [], 5 + 3 * np.arange(n)
    for rank, own in enumerate(has):
        entries = []
        for M in (coupled, beside):
            i, j = np.nonzero(np.triu(np.where(first[:, None] == rank, M, 0), 1))
            entries.append((numbers[j], numbers[i], M[i, j]))
        sent = rng.permutation(np.flatnonzero(own))
        given.append((numbers[sent], A.diagonal()[sent], np.zeros(len(sent), dtype=bool), entries))
    found = _parts(given, 4, 24)
    ids = [(own - 5) // 3 for own, *_ in given]
    known = [np.full(part.n, -1) for part in found]
    for part, own, columns in zip(found, ids, known, strict=True):
        assert np.array_equal(part.diagonal, left[own])
        columns[part.columns] = own[part.owned]
    assert sum((columns >= 0).sum() for columns in known) == n
    for rank, (part, own) in enumerate(zip(found, ids, strict=True)):
        w = np.full(len(known[rank]), np.nan)
        w[known[rank] >= 0] = z[known[rank][known[rank] >= 0]]
        for other, at in part.neighbours.items():
            theirs = known[other][found[other].neighbours[rank]]
            w[at[theirs >= 0]] = z[theirs[theirs >= 0]]
        solve(*part.factors, w)
        result = z.copy()
        result[own[part.members]] = w[part.at]
        assert np.allclose(result[own], wanted[own], rtol=0, atol=1e-12)


def test_groups_that_are_alike_are_eliminated_once(rng, monkeypatch):
    """Copies are the same cases, and each gets what it gets alone; a changed entry makes another case."""
    A, coupled, beside = parts(rng)
    changed, cases, alike = beside.copy(), [], sweep._alike
    i, j = np.argwhere(beside)[0]
    changed[[i, j], [j, i]] *= 1.001
    monkeypatch.setattr(sweep, "_alike", lambda *given: cases.append(alike(*given)) or cases[-1])

    def made(*besides):
        """The step as two whole matrices, the groups' matrix, and the diagonal."""
        whole, diagonal = block_diag(*[coupled] * len(besides)), np.tile(A.diagonal(), len(besides))
        (first,), groups, left = sweep.swept(*above(whole, block_diag(*besides)), diagonal, 4, 0.0)
        there, back = np.zeros((2, *whole.shape))
        there[first.others], back[first.own] = first.there.toarray(), first.back.toarray()
        return there, back, groups.toarray(), np.diag(left)

    one, other, same, two = made(beside), made(changed), made(beside, beside), made(beside, changed)
    assert [len(own) for own in cases] == [3, 3, 3, 4]
    for a, b, aa, ab in zip(one, other, same, two, strict=True):
        assert np.array_equal(aa, block_diag(a, a))
        assert np.allclose(ab, block_diag(a, b), rtol=0, atol=1e-12) and not np.allclose(a, b, rtol=1e-6)
