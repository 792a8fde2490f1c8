"""Element matrices through an orthonormal basis: affine tets, tris and prisms.

The matrix of a linear form with constant coefficients on an affine element is sum_ij G_ij D_i^T D_j + w B^T B. Column m
of B has the coefficients of mode m in the orthonormal basis of the same order, that of D_i those of its derivative by
local coordinate i. The modified basis is hierarchical: most of them are zero.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hpfem.shapes import Basis, ShapeRule
from hpfem.shapes.arrays import Array
from hpfem.shapes.tabulation import exact_rule, orthonormal

from ..errors import NotSuitable
from ..support.tables import on_disk
from .form import BlockProblem
from .linear import check_linear, check_noncollocated

# Entries smaller than this, relative to the largest one of their matrix, are zero up to rounding.
_ROUNDING = 1e-13
# Modes, and entries that are not zero, beyond which kernels take seconds to compile.
_MOST_MODES, _MOST_ENTRIES = 200, 8000


def check_orthogonal(problem: BlockProblem) -> None:
    """Check that a problem has such element matrices, with few entries."""
    check_linear(problem)
    check_noncollocated(problem)
    basis = problem.tabulation.basis
    if basis.tree.product:
        raise NotSuitable("the basis is a product of one-dimensional ones, which 'kronecker' is for")
    if problem.n_modes > _MOST_MODES or sum(map(np.count_nonzero, orthogonal_matrices(basis))) > _MOST_ENTRIES:
        raise NotSuitable("the matrices have too many entries to become code")
    if not _integrates_products(basis, problem.tabulation.rule):
        raise NotSuitable("the quadrature does not integrate products of modes")


def orthogonal_matrices(basis: Basis) -> tuple[Array, Array]:
    """Make B and D, by a rule that is exact; -> B [n_modes, n_modes], D [dim, n, n_modes]."""
    found = _matrices(basis)
    if found is None:
        raise NotSuitable("derivatives of modes are not in the space of the basis")
    return found


@cache
@on_disk
def _integrates_products(basis: Basis, rule: ShapeRule) -> bool:
    """Whether a rule integrates products of two polynomials of a basis' order."""
    functions = orthonormal(basis, rule)
    return bool(np.abs(functions @ functions.T - np.eye(len(functions))).max() < 1e-12)


@cache
@on_disk
def _matrices(basis: Basis) -> tuple[Array, Array] | None:
    rule = exact_rule(basis)
    functions = orthonormal(basis, rule)
    values, gradient = basis.evaluate_eta(rule.eta), basis.gradient(basis.shape.collapse(rule.eta))
    modes = np.concatenate([values[None], gradient]) * np.sqrt(rule.weights)
    found = functions @ modes.swapaxes(1, 2)
    if np.abs(found.swapaxes(1, 2) @ functions - modes).max() > 1e-10 * np.abs(modes).max():
        return None
    found[np.abs(found) < _ROUNDING * np.abs(found).max(axis=(1, 2), keepdims=True)] = 0
    return found[0], found[1:, found[1:].any(axis=(0, 2))]


def orthogonal_flops(problem: BlockProblem) -> int:
    """Count the operations of an element's product."""
    B, D = orthogonal_matrices(problem.tabulation.basis)
    value, gradient = 2 * np.count_nonzero(B) + len(B), 2 * np.count_nonzero(D) + len(D) ** 2 * D.shape[1]
    return 2 * int(value * problem.form.test_value + gradient * problem.form.test_gradient)
