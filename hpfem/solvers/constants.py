"""Constants, on parts of the mesh, that an operator maps to zero or nearly to zero.

-div(k grad u) is zero for constants. On a part of the mesh without Dirichlet values only lam and the alpha of Robin
conditions determine the constant, and if they are small, the rounding of the other terms hides them. There the solution
is split into a constant and a rest, u = c 1 + w:

    g = (lam, v) + (alpha, v)        A 1, without the stiffness
    E = 1.g                          its energy
    c = 1.b / E
    P A w = P b,  g.w = 0            P = I - g 1^T / E

and no small number is the difference of large ones. If lam and alpha are zero, the limit of this holds: g / E is the
mean, c may be anything and is set to zero, and the sum 1.b has to be zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, diags_array

from hpfem.shapes.arrays import Array, Mask
from hpfem.shapes.cached import cached_property

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..backends.vectors import VectorSpace
from ..errors import SolverError
from ..memory import HOST
from ..mesh.sorting import unique
from ..support.log import warn
from .breakdown import ROUNDING, bad_operator, mixed_signs
from .norms import load

# In units of the type's rounding: a sum of the data, over that of their absolute values, up to this is rounding.
_SUM_ROUNDING = 1e4


@dataclass(frozen=True, eq=False)
class Constants:
    """The functions that are 1 on a part and 0 elsewhere, for the parts whose constants have little or no energy."""

    ones: csr_array  # their global vectors, [parts, size]
    means: csr_array  # g / E of each, or its mean, [parts, size]; means @ ones.T is the identity
    energies: Array  # E, [parts]; zero if the operator maps the constant to zero
    names: list[str]  # of the parts
    vectors: VectorSpace  # of the vectors that are split
    owned: Mask  # unknowns that count in sums, [size]

    def split(self, rhs: Any) -> tuple[Any, Array, Any]:
        """Right-hand side of w [size], constants c [parts], and P b + c g E [size]: b without what no u gives."""
        ones, _, _, means_t = self._float64
        total = self.vectors.total
        sums, rest = np.array(self.vectors.numbers(total(ones @ rhs))), rhs
        for _ in range(2):  # twice, to remove rounding errors
            rest = rest - means_t @ total(ones @ rest)
        norm = self.vectors.norm
        if norm(rest) <= 100 * np.finfo(np.float64).eps * norm(rhs):
            rest = 0 * rest
        seen = self.energies > 0
        amounts = np.where(seen, sums / np.where(seen, self.energies, 1.0), 0.0)
        return rest, amounts, rest + means_t @ self.vectors.from_host(np.where(seen, sums, 0.0))

    def join(self, rest: Any, constants: Array) -> Any:
        """Make the solution u = c 1 + w; rest [size], constants [parts] -> [size]."""
        _, means, ones_t, _ = self._float64
        return rest + ones_t @ (self.vectors.from_host(constants) - self.vectors.total(means @ rest))

    def incompatibility(self, rhs: Any, dtype: DTypeLike, allowed: float = 0.0) -> dict[str, float]:
        """By part with E = 0 the sum of rhs [size] over that of absolute values; warns if it is not 0."""
        # Vertices carry the constants: up to rounding no entry of `ones` is negative.
        ones, total = self._float64[0], self.vectors.total
        sums, scales = np.reshape(self.vectors.numbers(abs(total(ones @ rhs)), total(ones @ abs(rhs))), (2, -1))
        ratios = np.divide(sums, scales, out=np.zeros_like(sums), where=scales > 0)
        unseen = {name: float(r) for name, r, e in zip(self.names, ratios, self.energies, strict=True) if e == 0}
        off = {name: r for name, r in unseen.items() if r > max(allowed, _SUM_ROUNDING * np.finfo(dtype).eps)}
        if off and self.vectors.comm.rank == 0:
            said = ", ".join(f"{ratio:.1e} on {name}" for name, ratio in list(off.items())[:5])
            warn(
                "Helmholtz: with lam = 0 and fluxes on all of the boundary f and the fluxes must sum to 0; relative"
                f" to their size the sum is {said}{' and others' if len(off) > 5 else ''}; their mean is taken out;"
                " where u is known, give a Dirichlet condition: dirichlet={boundary name: value}"
            )
        return unseen

    def projections(self, dtype: DTypeLike) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """P for functionals, and its transpose for functions."""
        ones, means, ones_t, means_t = self._float64 if np.dtype(dtype) == np.float64 else self._matrices(dtype)
        total = self.vectors.total
        return lambda r: r - means_t @ total(ones @ r), lambda z: z - ones_t @ total(means @ z)

    @cached_property
    def _float64(self) -> tuple[Any, Any, Any, Any]:
        return self._matrices(np.float64)

    def _matrices(self, dtype: DTypeLike) -> tuple[Any, Any, Any, Any]:
        """On the vectors' device, in a type: `ones` and `means` of the owned unknowns, and the transposes of all."""
        vectors, both = self.vectors, (self.ones, self.means)
        if len(self.names) == 1:  # dense products are faster
            rows = [vectors.from_host(matrix.toarray() * self.owned, dtype) for matrix in both]
            return rows[0], rows[1], *(_Column(vectors.from_host(matrix.toarray()[0], dtype)) for matrix in both)
        own = diags_array(self.owned.astype(np.float64))
        matrices = (*(matrix @ own for matrix in both), *(matrix.T for matrix in both))
        ones, means, ones_t, means_t = (vectors.sparse(csr_array(matrix).astype(dtype)) for matrix in matrices)
        return ones, means, ones_t, means_t


class _Column:
    """A matrix of one column, whose product with a vector is slow if it is an array."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def __matmul__(self, vector: Any) -> Any:
        return vector * self._entries


def hidden_constants(A: GlobalOperator, bc: BoundaryConditions) -> Constants | None:
    """Find the parts whose constants have no energy, or relatively less than the square root of rounding."""
    c0 = A.c0
    parts, comm = c0.parts, c0.space.mesh.comm
    held = np.zeros(parts.count, dtype=bool)
    held[parts.of_unknowns[bc.constrained]] = True
    held = comm.sum(held) > 0
    if held.all():
        return None
    vectors, (integral, functional, reacting) = c0.vectors_on(HOST), _reaction(A, c0)
    determined = np.zeros(parts.count, dtype=bool)
    determined[parts.of_cells[reacting]] = True
    one = c0.one
    if A.matrix is not None:
        determined[parts.of_unknowns[unique(A.matrix.nonzero()[0])]] = True
        functional = functional + vectors.summed(A.matrix @ one)
    determined = comm.sum(determined) > 0

    energies = np.where(determined, _sums(c0, one * functional), 0.0)
    if np.any(energies[determined & ~held] <= 0):
        raise bad_operator("Helmholtz", float(energies[determined & ~held].min()), 0)
    probe = vectors.agreed(np.random.default_rng(0).standard_normal(c0.size))
    image = A.apply(probe.astype(A.dtype)).astype(np.float64)
    hidden = ~held & (energies <= np.sqrt(np.finfo(A.dtype).eps) * _sums(c0, probe * image))
    if not hidden.any():
        return None
    volumes = _sums(c0, one * integral)
    mean = np.where(determined[parts.of_unknowns], functional, integral)
    mean = mean / np.where(determined, energies, volumes)[parts.of_unknowns]
    columns = np.flatnonzero(hidden[parts.of_unknowns])
    rows = (np.cumsum(hidden) - 1)[parts.of_unknowns[columns]]
    shape = (int(hidden.sum()), c0.size)
    ones, means = (csr_array((vector[columns], (rows, columns)), shape=shape) for vector in (one, mean))
    names = [parts.name(int(number), c0.space.mesh) for number in np.flatnonzero(hidden)]
    return Constants(ones, means, energies[hidden], names, A.vectors, c0.owned)


def check_solvable(
    A: GlobalOperator, rhs: Any, vectors: VectorSpace, tol: float, name: str, failure: SolverError | None = None
) -> None:
    """Check that constants that an operator maps to zero leave a solution; collective; rhs [components * size]."""
    c0, n = A.c0, A.components
    parts, mesh = c0.parts, c0.space.mesh
    held = np.zeros((n, parts.count), dtype=bool) if A.bc is None else _sums(c0, A.bc.fixed(n)) > 0
    if held.all():
        return
    one = np.where(held[:, parts.of_unknowns], 0.0, c0.one)

    def sizes(vector: Array) -> Array:
        """Squared norms of the image, by part."""
        image = A.apply(vector.ravel().astype(A.dtype)).astype(np.float64)
        return _sums(c0, image.reshape(n, -1) ** 2).sum(axis=0)

    host = c0.vectors_on(HOST)
    lost = (ROUNDING * np.finfo(A.dtype).eps) ** 2 * sizes(mixed_signs(host, one.ravel()))
    unseen = ~held & [sizes(component[:, None] * one) <= lost for component in np.eye(n)]
    if not unseen.any():
        return
    rhs = vectors.to_host(rhs)
    data = one * rhs.reshape(n, -1)
    absolute, squared, along = (_sums(c0, vectors) for vectors in (abs(data), one**2, data))
    missed = float(np.sqrt((along[unseen] ** 2 / squared[unseen]).sum()))
    possible = missed <= max(tol, _SUM_ROUNDING * np.finfo(A.dtype).eps) * host.norm(rhs)
    if possible if A.symmetric else failure is None:
        return
    where = []
    for c, part in np.argwhere(unseen)[:5]:
        of = "" if n == 1 else f", component {c}"
        ratio = f" ({abs(along[c, part]) / (absolute[c, part] or 1.0):.1e})" if A.symmetric else ""
        where.append(parts.name(int(part), mesh) + of + ratio)
    rule = ", where the data must sum to 0; the sum is, relative to their size, in brackets" if A.symmetric else ""
    raise SolverError(
        f"{name}: the operator is singular: it maps constants to zero on {', '.join(where)}{rule}; give Dirichlet"
        " values, a Robin condition or a reaction, or data that fit: hpfem.Problem takes the mean out of them"
    ) from failure


def _sums(c0: C0Space, vectors: NDArray[Any]) -> Array:
    """Sums of vectors [..., size] over the unknowns of each part, [..., parts]; collective."""
    sums = [np.bincount(c0.parts.of_unknowns, row * c0.owned, c0.parts.count) for row in np.atleast_2d(vectors)]
    return np.asarray(c0.space.mesh.comm.sum(np.reshape(sums, (*vectors.shape[:-1], -1))))


def _reaction(A: GlobalOperator, c0: C0Space) -> tuple[Array, Array, Mask]:
    """The functionals (1, v) and (lam, v), and the cells where lam is not zero."""
    operator, to_host = A.operator, A.vectors.to_host
    integral = to_host(load(c0, 1.0))
    if "lam" in operator.parameters:
        lam = operator.parameters["lam"]
        return integral, lam * integral, np.full(c0.space.n_cells, lam != 0)
    reacting = np.zeros(c0.space.n_cells, dtype=bool)
    for block, pair in zip(c0.space.blocks, operator.fields["lam"].data, strict=True):
        reacting[block.elements] = to_host((pair.read(A.device) != 0).any(axis=(0, 2)))
    return integral, to_host(load(c0, operator.fields["lam"])), reacting
