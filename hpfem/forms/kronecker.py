"""Element matrices that are sums of Kronecker products of matrices of one direction: affine hexes and quads.

The matrix of a linear form with constant coefficients on an affine element is sum_ij G_ij D_i^T D_j + w M. If the basis
is a product of one-dimensional functions phi_m, each term is a Kronecker product: with S_ab[m, n] the integral of phi_m
(a = 0) or its derivative (a = 1) times phi_n or its derivative (b), the term of G_ij has in direction d the factor S_ab
with a = (i == d), b = (j == d), and that of w has S_00 everywhere. In the hierarchical bases these are sparse.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from hpfem.shapes import Tabulation
from hpfem.shapes.arrays import Array

from ..errors import NotSuitable
from .form import BlockProblem
from .linear import check_linear, check_noncollocated

# Numbers smaller than this, relative to the functions' size, are zero up to rounding.
ROUNDING = 1e-14


def check_kronecker(problem: BlockProblem) -> None:
    """Check that a problem has such element matrices."""
    check_linear(problem)
    check_noncollocated(problem)
    if not problem.tabulation.rule.tensor:
        raise NotSuitable("the quadrature is no product of rules of one direction")
    basis, tree = problem.tabulation.basis, problem.tabulation.basis.tree
    if not tree.product or len({int(count[0]) for count in tree.count}) > 1:
        raise NotSuitable("the basis is no product of one-dimensional ones of the same order")
    if basis.nodes is not None:
        raise NotSuitable("in a nodal basis the matrices of one direction are dense; use basis='modified'")


def functions_of(problem: BlockProblem) -> int:
    """Count the functions of each direction."""
    return int(problem.tabulation.basis.tree.count[0][0])


def matrices_of_directions(tabulation: Tabulation, gradients: bool) -> Array:
    """Make S_ab of every direction, by the rules of the directions; -> [dim, 1 or 4, N, N]."""
    tree, found = tabulation.basis.tree, list[Array]()
    for d, rule in enumerate(tabulation.directions):
        used = slice(int(tree.start[d][0]), int(tree.start[d][0] + tree.count[d][0]))
        sides = [tabulation.values[d][used], tabulation.derivatives[d][used]][: 1 + gradients]
        size = [np.sqrt(np.einsum("mq,q,mq->m", side, rule.weights, side)) for side in sides]
        for a, b in product(range(len(sides)), repeat=2):
            entries = np.einsum("mq,q,nq->mn", sides[a], rule.weights, sides[b])
            found.append(np.where(np.abs(entries) < ROUNDING * size[a][:, None] * size[b], 0.0, entries))
    return np.reshape(found, (tree.dim, -1, *found[0].shape))


def kronecker_flops(problem: BlockProblem) -> int:
    """Count the operations of an element's product, direction by direction."""
    used = np.count_nonzero(matrices_of_directions(problem.tabulation, problem.form.test_gradient), axis=(2, 3))
    lines = problem.n_modes // functions_of(problem)
    if not problem.form.test_gradient:
        return 2 * lines * int(used.sum())
    # All S_ab of the first and the last direction; between them twice those with one derivative, four times S_00.
    between = 0 if len(used) == 2 else int(used[-1] @ (4, 2, 2, 1)) + 9 * functions_of(problem)
    return 2 * lines * (int(used[:2].sum()) + between)
