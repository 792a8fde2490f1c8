"""B = T D^-1 T^t: one step of Jacobi's method in a basis of functions of low energy, the columns of T.

In every cell T is a matrix of its class, and T global coefficients the mean of what the cells say (`CellMap`). D is the
diagonal of the mean energies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hpfem.shapes.low_energy import low_energy_functions, reference_energies

from ...assembly import C0Space
from ...backends import vectors_on
from ...backends.base import Backend
from ...backends.vectors import BlockMatrix
from ...errors import SolverError
from .cell_map import CellMap
from .energies import Energies

Array = NDArray[np.float64]


class _Cells:
    """Cells of one block and class, whose entities have the same orders."""

    def __init__(self, block: int, rows: Any, T: Array, energies: Array) -> None:
        self.block, self.rows, self.T, self.energies = block, rows, T, energies


def _alike(c0: C0Space, number: int, energies: Energies) -> list[_Cells]:
    """Cells of a block by class, with their functions and what these have of each mean."""
    block, shape = c0.space.blocks[number], c0.space.blocks[number].shape
    seen = c0.seen(number)
    orders = [c0.numbering.orders[dim][seen[dim].ids] for dim in range(shape.dim + 1)]
    splits = np.cumsum([part.shape[1] for part in orders])[:-1]
    flat = np.concatenate(orders, axis=1)
    keys = energies.own[:, None] if (flat == flat[:1]).all() else np.column_stack([energies.own, flat])
    alike = (keys == keys[:1]).all()
    found, which = (keys[:1], np.zeros(len(keys))) if alike else np.unique(keys, axis=0, return_inverse=True)
    K, M = reference_energies(shape, block.order)
    cells = []
    for k in range(len(found)):
        rows = slice(None) if len(found) == 1 else np.flatnonzero(which.ravel() == k)
        first = 0 if len(found) == 1 else int(rows[0])  # type: ignore[index]
        own = tuple(tuple(int(p) for p in part) for part in np.split(flat[first], splits))
        S, m = energies.classes[int(energies.own[first])]
        A = np.einsum("ij,ijmn->mn", S, K) + m * M
        T = low_energy_functions(shape, block.order, A, own)
        of_K = [np.einsum("mk,mk->k", T, part @ T) for part in K.reshape(-1, *M.shape)]
        cells.append(_Cells(number, rows, T, np.array([*of_K, np.einsum("mk,mk->k", T, M @ T)])))
    return cells


class LowEnergySmoother:
    """r -> B r on global vectors of one component, in the modified basis.

    Parameters
    ----------
    c0 : C0Space
    energies : sequence of Energies
        One per block.
    free : ndarray of bool, [size]
        Unknowns without Dirichlet values: B is zero on the others.
    robin : csr_array, [size, size], optional
        What Robin conditions add to the operator.
    backend : Backend
        Of the operator.
    """

    def __init__(
        self,
        c0: C0Space,
        energies: Sequence[Energies],
        free: NDArray[np.bool_],
        robin: csr_array | None,
        backend: Backend,
    ) -> None:
        vectors, dtype = vectors_on(backend.device()), c0.space.dtype
        xp = vectors.xp
        cells = [own for number, means in enumerate(energies) for own in _alike(c0, number, means)]
        whole = c0.low_energy_matrix
        Q = BlockMatrix([whole.codes[own.block][own.rows] for own in cells], whole.rows)
        back = Q if c0.signed else BlockMatrix(Q.codes, c0.inverse_matrix.rows)
        self._T = CellMap(Q, back, [own.T for own in cells], c0, backend, dtype)
        D = self._T.squares([energies[own.block].means[own.rows] @ xp.asarray(own.energies) for own in cells])
        if robin is not None:
            rows, chosen = self._T.congruent(robin)
            D += np.asarray(rows.multiply(robin[chosen][:, chosen] @ rows).sum(axis=0)).ravel()
        if not np.all(D[free] > 0):
            raise SolverError(
                "the operator is singular on a part of the mesh: is a coefficient zero there, or is there nothing that"
                " fixes the solution?"
            )
        self._inverse = vectors.from_host(np.where(free, 1 / np.where(free, D, 1), 0), dtype)

    def __call__(self, r: Any) -> Any:
        """Apply to a vector, [size]; a new one."""
        z = self._T.transposed(r)
        z *= self._inverse
        return self._T(z)
