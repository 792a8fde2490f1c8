"""Affine elements by sparse matrices of an orthonormal basis, one element per lane (`hpfem.forms.orthogonal`).

The coefficients of the function and of its derivatives in that basis are formed, multiplied by the element's factors,
and multiplied by the transposed matrices. Entries are constants of the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ....forms.form import BlockProblem
from ....forms.orthogonal import check_orthogonal, orthogonal_matrices
from ....geometry.jacobians import symmetric_pairs
from .affine import Group, write_affine
from .ir import Builder, Program
from .line import Array, Fiber, product

# Entries of a basic block: LLVM takes longer for each if there are more.
_ENTRIES = 200


def write_orthogonal(problem: BlockProblem, lanes: int, prefetch: bool = False, indexed: bool = False) -> Program:
    """Write the kernel of a problem; see `write_affine`.

    Raises
    ------
    NotSuitable
        As `check_orthogonal`.
    """
    check_orthogonal(problem)
    B, D = orthogonal_matrices(problem.tabulation.basis)
    n, dim, rows = problem.n_modes, *D.shape[:2]
    pairs = symmetric_pairs(dim) if problem.form.test_gradient else []

    def product_of(group: Group) -> None:
        b, w = group.b, group.scales.get(len(pairs))
        group.prefetch.fetch()
        # Matrices whose transposes give the results, and what these multiply.
        tests, given = list[Array](), list[str]()
        if w is not None:
            tests, given = [B], [group.scratch]
            for piece in _blocks(b, B[None]):
                b.store_fiber([b.mul(w, x) for x in _sum(b, [B[piece]], [group.modes])], group.scratch, 1, piece.start)
        if pairs:
            G = {order: group.scales[q] for q, (i, j) in enumerate(pairs) for order in ((i, j), (j, i))}
            fluxes = [b.at(group.scratch, (n + i * rows, 1)) for i in range(dim)]
            tests, given = [*tests, *D], [*given, *fluxes]
            for piece in _blocks(b, D):
                gradient = [_sum(b, [own[piece]], [group.modes]) for own in D]
                for i, flux in enumerate(fluxes):
                    own = [b.dot((G[i, j], g[r]) for j, g in enumerate(gradient)) for r in range(len(gradient[0]))]
                    b.store_fiber(own, flux, 1, piece.start)
        transposed = [matrix.T for matrix in tests]
        for piece in _blocks(b, transposed):
            b.store_fiber(_sum(b, [own[piece] for own in transposed], given), group.results, 1, piece.start)

    return write_affine(problem, lanes, prefetch, indexed, n + dim * rows, product_of)


def _blocks(b: Builder, matrices: Sequence[Array]) -> Iterator[slice]:
    """Rows of matrices, a basic block for those of some entries."""
    done = np.cumsum(sum(np.count_nonzero(matrix, axis=1) for matrix in matrices))
    cuts = np.searchsorted(done, np.arange(_ENTRIES, done[-1], _ENTRIES), side="right")
    for first, last in pairwise(np.unique([0, *cuts, len(done)]).tolist()):
        b.block()
        yield slice(first, last)


def _sum(b: Builder, matrices: Sequence[Array], sources: Sequence[str]) -> Fiber:
    """Sum of the products of matrices with vectors in memory."""
    total: Fiber | None = None
    for matrix, source in zip(matrices, sources, strict=True):
        used = np.flatnonzero(matrix.any(axis=0))
        total = product(b, matrix[:, used], [b.load(source, int(j)) for j in used], total)
    assert total is not None
    return total
