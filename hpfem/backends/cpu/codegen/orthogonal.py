"""Affine elements by sparse matrices of an orthonormal basis, one element per lane (`hpfem.forms.orthogonal`).

The coefficients of the function and of its derivatives in that basis are formed, multiplied by the element's factors,
and multiplied by the transposed matrices. Entries are constants of the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from hpfem.shapes.arrays import Floats

from ....forms.form import BlockProblem
from ....forms.orthogonal import check_orthogonal, orthogonal_flops, orthogonal_matrices
from .affine import Group, factors_of_terms, write_affine
from .indexed import Indexed
from .ir import Builder, Program
from .line import Fiber, summed_products

# Entries of a function: LLVM takes longer for each if there are more.
_ENTRIES = 200

# Time per operation relative to collocated sum factorisation.
_COST = 1.9


def orthogonal_cost(problem: BlockProblem) -> float:
    """Operations of the sparse matrices."""
    check_orthogonal(problem)
    return _COST * orthogonal_flops(problem)


def write_orthogonal(problem: BlockProblem, lanes: int, prefetch: int = 0, indexed: Indexed = None) -> Program:
    """Write the kernel of a problem; see `write_affine`."""
    check_orthogonal(problem)
    B, D = orthogonal_matrices(problem.tabulation.basis)
    n, dim, count = problem.n_modes, *D.shape[:2]

    def product_of(group: Group) -> None:
        b = group.b
        group.prefetch.fetch()
        places = {"%modes": group.modes, "%further": group.scratch, "%results": group.results}
        names = {q: f"%scale{q}" for q in group.scales}
        parts = partial(_parts, b, places, {names[q]: scale for q, scale in group.scales.items()})
        w, G = factors_of_terms(names, dim, problem.form.test_gradient)
        # Matrices whose transposes give the results, and places of what these multiply.
        tests, starts = list[Floats](), list[int]()
        if w is not None:
            tests, starts = [B], [0]
            for rows in parts("values", [B]):
                values = _sum(b, [B[rows]], ["%modes"])
                b.store_fiber([b.mul(w, x) for x in values], b.at("%further", (rows.start, 1)), 1)
        if G:
            fluxes = [n + i * count for i in range(dim)]
            tests, starts = [*tests, *D], [*starts, *fluxes]
            for rows in parts("fluxes", list(D)):
                gradient = [_sum(b, [matrix[rows]], ["%modes"]) for matrix in D]
                for i, start in enumerate(fluxes):
                    flux = [b.dot((G[i, j], x) for j, x in enumerate(line)) for line in zip(*gradient, strict=True)]
                    b.store_fiber(flux, b.at("%further", (start + rows.start, 1)), 1)
        transposed = [matrix.T for matrix in tests]
        for rows in parts("results", transposed):
            sources = [b.at("%further", (start, 1)) for start in starts]
            result = _sum(b, [matrix[rows] for matrix in transposed], sources)
            b.store_fiber(result, b.at("%results", (rows.start, 1)), 1)

    return write_affine(problem, lanes, prefetch, indexed, n + dim * count, product_of)


def _parts(
    b: Builder, places: dict[str, str], scales: dict[str, str], name: str, matrices: Sequence[Floats]
) -> Iterator[slice]:
    """Divide rows of matrices into parts; what is written meanwhile becomes a function of the places and scales."""
    done = np.cumsum(sum(np.count_nonzero(matrix, axis=1) for matrix in matrices))
    cuts = np.searchsorted(done, np.arange(_ENTRIES, done[-1], _ENTRIES), side="right")
    for first, last in pairwise(np.unique([0, *cuts, len(done)]).tolist()):
        pairs = [(f"ptr noalias {inside}", f"ptr {outside}") for inside, outside in places.items()]
        pairs += [(f"{b.vector} {inside}", f"{b.vector} {outside}") for inside, outside in scales.items()]
        parameters, arguments = map(", ".join, zip(*pairs, strict=True))
        with b.function(f"{name}{first}", parameters):
            yield slice(first, last)
        b.emit(f"call void @{name}{first}({arguments})")


def _sum(b: Builder, matrices: Sequence[Floats], sources: Sequence[str]) -> Fiber:
    """Sum of the products of matrices with vectors in memory."""
    used = [np.flatnonzero(matrix.any(axis=0)) for matrix in matrices]
    fibers = ([b.load(source, int(j)) for j in own] for own, source in zip(used, sources, strict=True))
    return summed_products(b, (matrix[:, own] for own, matrix in zip(used, matrices, strict=True)), fibers)
