"""The matrices of affine elements, with modes sorted such that many entries are zero.

A linear form with constant coefficients has on an affine element the matrix sum_ij G_ij D_i^T D_j + w M. With S_i the
derivatives by xi_i of all modes at the points, weighted by the square roots of the quadrature weights, and V an
orthonormal basis of what all of them span, D_i = V^T S_i has fewer rows than there are points, and D_i^T D_j is
S_i^T S_j: the quadrature's own matrix, whatever the rule. On simplices V is a basis of the polynomials of degree P - 1.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from hpfem.shapes import Tabulation
from hpfem.shapes.arrays import Array, Indices
from hpfem.shapes.cached import cached_property

from ....errors import NotSuitable
from ....geometry.jacobians import inverse_collapse

# Numbers smaller than this, relative to the modes' size, are zero up to rounding.
ROUNDING = 1e-13


class ElementMatrices:
    """Matrices of a basis on a rule, in an order [n_modes] of the modes that makes many entries zero.

    mass [n_modes, n_modes]; derivatives [dim, rows, n_modes], D_i; begin [rows], ascending: the first place at which a
    row is not zero in some D_i. Negative weights are refused, and matrices that rounding spoils.
    """

    def __init__(self, tabulation: Tabulation) -> None:
        rule, shape = tabulation.rule, tabulation.basis.shape
        if rule.weights.min() < 0:
            raise NotSuitable("the quadrature has negative weights")
        root = np.sqrt(rule.weights)
        collapse = inverse_collapse(shape, rule.eta)  # [Q, a, i] = d eta_a/d xi_i
        values = tabulation.dense * root
        weighted = np.einsum("qai,amq,q->miq", collapse, tabulation.dense_gradient, root)
        self.order, rows = nested_rows(weighted)
        self.derivatives = derivatives = np.einsum("rq,miq->irm", rows, weighted[self.order])
        size = np.sqrt(np.einsum("miq,miq->m", weighted[self.order], weighted[self.order]))
        self.rows = derivatives.shape[1]
        derivatives[np.abs(derivatives) < ROUNDING * size] = 0
        exact = np.einsum("miq,njq->ijmn", weighted[self.order], weighted[self.order], optimize=True)
        found = np.einsum("irm,jrn->ijmn", derivatives, derivatives, optimize=True)
        if np.any(np.abs(found - exact) > 10 * ROUNDING * size[:, None] * size):
            raise NotSuitable("gradients of the basis are too close to dependent")
        self.mass = mass = (values @ values.T)[np.ix_(self.order, self.order)]
        size = np.sqrt(np.diag(mass))
        mass[np.abs(mass) < ROUNDING * size[:, None] * size] = 0
        filled = np.any(derivatives != 0, axis=0)
        self.begin = np.minimum.accumulate(np.argmax(filled, axis=1)[::-1])[::-1]

    @cached_property
    def mass_tiles(self) -> Array:
        """The mass matrix in tiles, [modes / 8, modes / 8, 8, 8]; [result][summed] outside and inside."""
        return _tiles(self.mass)

    @cached_property
    def derivative_tiles(self) -> Array:
        """D_i in tiles, [dim, rows / 8, modes / 8, 8, 8]."""
        return _tiles(self.derivatives)

    @cached_property
    def used(self) -> tuple[int, int]:
        """Tiles that are not zero: of the mass matrix, and of all D_i."""
        mass, derivatives = (tiles.any(axis=(-2, -1)).sum() for tiles in (self.mass_tiles, self.derivative_tiles))
        return int(mass), int(derivatives)


_MATRICES: WeakKeyDictionary[Tabulation, ElementMatrices] = WeakKeyDictionary()


def shared_matrices(tabulation: Tabulation) -> ElementMatrices:
    """Matrices of a tabulation, made once; see `ElementMatrices`."""
    if tabulation not in _MATRICES:
        _MATRICES[tabulation] = ElementMatrices(tabulation)
    return _MATRICES[tabulation]


def nested_rows(weighted: Array) -> tuple[Indices, Array]:
    """Sort modes so that the first have gradients in few dimensions; weighted [n_modes, dim, Q] -> order, [rows, Q]."""
    n, _, points = weighted.shape
    norms = np.sqrt(np.einsum("miq,miq->m", weighted, weighted))
    scaled = weighted / np.where(norms > 0, norms, 1)[:, None, None]
    rest, rows = scaled.copy(), np.zeros((0, points))
    left, order = np.ones(n, bool), []
    while left.any():
        # Numbers of new dimensions, by the eigenvalues of each mode's Gram matrix.
        gram = np.einsum("miq,mjq->mij", rest[left], rest[left])
        new = (np.linalg.eigvalsh(gram) > 1e-14).sum(axis=1)
        chosen = int(np.flatnonzero(left)[np.argmin(new)])
        left[chosen] = False
        order.append(chosen)
        if new.min() == 0:
            continue
        # Orthogonal to the rows to rounding, by projecting twice.
        added = np.linalg.svd(rest[chosen], full_matrices=False)[2][: new.min()]
        for _ in range(2):
            added = added - added @ rows.T @ rows
            added = np.linalg.qr(added.T)[0].T
        rows = np.concatenate([rows, added])
        rest = rest - np.einsum("miq,rq,rp->mip", rest, added, added, optimize=True)
    return np.array(order, np.int64), rows


def _tiles(matrices: Array) -> Array:
    """Matrices [..., rows, columns] in tiles, [..., rows / 8, columns / 8, 8, 8]."""
    *several, rows, columns = matrices.shape
    r, k = -(-rows // 8), -(-columns // 8)
    padded = np.zeros((*several, 8 * r, 8 * k))
    padded[..., places_of(rows)[:, None], places_of(columns)] = matrices
    return padded.reshape(*several, r, 8, k, 8).swapaxes(-3, -2)


def places_of(count: int) -> Indices:
    """Places of sorted modes or rows in tiles of 8; in a last tile at most half full, even places; -> [count]."""
    places = np.arange(count)
    if 1 <= count % 8 <= 4:
        last = count // 8 * 8
        places[last:] = last + 2 * (places[last:] - last)
    return places
