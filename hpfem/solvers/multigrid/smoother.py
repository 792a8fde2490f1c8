"""B = T D^-1 T^t: one step of Jacobi's method in a basis of functions of low energy, the columns of T.

In every cell T is the matrix of its class; global coefficients are the mean over the cells (`CellMap`). D is the
diagonal of the mean energies, with the matrices of groups of functions that stretched cells couple strongly (`lines`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hpfem.shapes import Shape
from hpfem.shapes.arrays import Array
from hpfem.shapes.low_energy import low_energy_factors, reference_energies
from hpfem.shapes.overlap import cut_off, short_edges, thin, walls

from ...assembly import C0Space
from ...backends.base import Backend
from ...backends.cellwise import FactorisedMatrix, added
from ...backends.restriction import BlockMatrix
from ...backends.vectors import HOST_VECTORS, VectorSpace, sparse_on_host
from ...errors import SolverError
from ...geometry.element_map import at_once, chunks
from ...memory import as_numpy, every, moved, xp_for
from ...support.tables import on_disk
from .cell_map import CellMap
from .coarsening import scaled
from .energies import Energies
from .lines import Layers, SharedLayers, lines_of, strong_pairs
from .sweep import Beside

# Pairs of functions whose energies are summed up at a time.
_AT_ONCE = 10_000_000
# Operations on each of them, where a device may be faster.
_EACH = 8
# By how much couplings, relative to the diagonal, may change in kept groups. Tets stretched 1:8 take 8 to 9 iterations
# then, but 24 where the coefficient across them grows tenfold, and the couplings by 0.09.
_ALIKE = 0.04
# Marks of entities; the last one is of vertices of thin pyramids, and of cells that touch these.
_CONE, _SHORT, _PYRAMID = 1, 2, 4


@dataclass(frozen=True, eq=False)
class _Functions:
    """Functions of low energy of a class of cells."""

    T: FactorisedMatrix
    energies: Array  # in each mean, [dim^2 + 1, n_modes]
    pairs: list[tuple[Any, ...]]  # of strongly coupled ones; of others at thin pyramids
    coupling: list[Array]  # their energies in each mean, [dim^2 + 1, pairs]

    def on(self, vectors: VectorSpace, name: str, table: Any, *key: Any) -> Any:
        """A table on the vectors' device, sent there once."""
        return self.T.kept((name, vectors.device.name, *key), lambda: moved(table, vectors.xp))


class _Group(NamedTuple):
    """Cells of one block and class, whose entities have the same orders."""

    block: int
    cells: Any  # an index
    traits: tuple[Any, ...]  # S, m, and what is around, whatever the order
    functions: _Functions


@on_disk
def _tables(shape: Shape, order: int, given: bytes, m: float, near: bool, *around: Any) -> tuple[Any, ...]:
    """Factors of T and the rest of `_Functions`, by the arguments of `_functions`."""
    K, M = reference_energies(shape, order)
    S = np.frombuffer(given).reshape(K.shape[:2])
    factors = low_energy_factors(shape, order, S, m, *around)
    T, means = FactorisedMatrix(factors).dense, [*K.reshape(-1, *M.shape), M]
    energies = [mean @ T for mean in means]
    pairs = strong_pairs(shape, order, S, np.einsum("ij,ijmn->mn", S, K) + m * M, T, near)
    found = [T.T @ own for own in energies] if any(len(i) for i, _ in pairs) else []
    coupling = [np.array([own[places] for own in found]).reshape(len(means), -1) for places in pairs]
    return factors, np.array([np.einsum("mk,mk->k", T, own) for own in energies]), pairs, coupling


@lru_cache(maxsize=256)
def _functions(*given: Any) -> _Functions:
    """Functions by the arguments of `low_energy_factors`, given the bytes of S, and whether at a thin pyramid."""
    factors, *rest = _tables(*given)
    return _Functions(FactorisedMatrix(factors), *rest)


def _marks(c0: C0Space, energies: Sequence[Energies]) -> list[NDArray[np.uint8]]:
    """Marks of entities at thin cones and pyramids, and of short edges, by dimension; collective; -> [n_entities]."""
    numbering = c0.numbering
    found = [np.zeros(len(sizes), dtype=np.uint8) for sizes in numbering.sizes]
    for number, own in enumerate(energies):
        shape, seen = c0.space.blocks[number].shape, c0.seen(number)
        for marks, part in zip(found[:-1] if shape.collapsed else (), seen, strict=False):
            marks[part.ids[own.told(thin)]] |= _CONE
        found[1][seen[1].ids[own.told(short_edges)]] |= _SHORT
        found[0][seen[0].ids[own.told(cut_off)]] |= _PYRAMID

    def agree() -> None:
        if numbering.sharing is not None and c0.space.comm.any(any(own.any() for own in found)):
            everywhere = numbering.sharing.combined(numbering.of_unknowns(found), np.bitwise_or)
            for marks, first, sizes in zip(found, numbering.offsets, numbering.sizes, strict=True):
                marks[sizes > 0] = everywhere[first[sizes > 0]]

    agree()
    # Groups at thin pyramids go on in the cells beside, where all their couplings are to be known, too.
    corners = [c0.seen(number)[0].ids for number in range(len(energies) if (found[0] & _PYRAMID).any() else 0)]
    for near in [ids[(found[0][ids] & _PYRAMID > 0).any(axis=1)] for ids in corners]:
        found[0][near] |= _PYRAMID
    agree()
    return found


def _beside(
    c0: C0Space, number: int, energies: Energies, marks: Sequence[NDArray[np.uint8]]
) -> list[NDArray[np.bool_]]:
    """Which entities of thin cells of a block are a thin cone's too, by dimension, [E, n]; else none."""
    shape = c0.space.blocks[number].shape
    if shape.collapsed or not any((own & _CONE).any() for own in marks):
        return []
    here = energies.told(thin)[:, None]
    return [(own[part.ids] & _CONE > 0) & here for own, part in zip(marks, c0.seen(number), strict=True)]


def _have(marks: NDArray[np.uint8], mark: int, ids: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Whether entities of cells have a mark, [E, n]; for all cells at once where none has, [1, n]."""
    some = marks & mark > 0
    return some[ids if some.any() else ids[:1]]


def _groups(c0: C0Space, number: int, energies: Energies, around: list[Any]) -> list[Any]:
    """Cells of a block by class, by the orders of their entities, and by other numbers [E, n]."""
    keys, seen, around = energies.class_of, c0.seen(number), [*around]
    if len(set(c0.space.orders.values())) > 1:
        around += [c0.numbering.orders[dim][part.ids] for dim, part in enumerate(seen)]
    if around:
        keys = np.unique(np.column_stack([keys, *around]), axis=0, return_inverse=True)[1].ravel()
    if keys.min() == keys.max():
        return [slice(None)]
    keys = keys.astype(np.min_scalar_type(keys.max()))  # short numbers are sorted faster
    by_key = np.argsort(keys, kind="stable")
    return np.split(by_key, np.flatnonzero(np.diff(keys[by_key])) + 1)


def _alike(c0: C0Space, energies: Sequence[Energies]) -> list[Any]:
    """Blocks' cells by class, with what their functions depend on beside orders; collective."""
    found, marks = list[Any](), _marks(c0, energies)
    for number, own in enumerate(energies if c0.size else ()):
        seen, beside = c0.seen(number), _beside(c0, number, own, marks)
        standing = walls(c0.space.blocks[number].shape, _have(marks[1], _SHORT, seen[1].ids))
        near = np.asarray(_have(marks[0], _PYRAMID, seen[0].ids).any(axis=1))
        more = [some for some in (standing, near[:, None]) if some.any()]
        for cells in _groups(c0, number, own, [*beside, *more]):
            first = 0 if isinstance(cells, slice) else int(cells[0])
            regular = tuple(tuple(bool(entity) for entity in of_dim[first]) for of_dim in beside)
            S, m = own.classes[int(own.class_of[first])]
            wall = tuple(standing[first % len(standing)].tolist())
            traits = S.tobytes(), m, bool(near[first % len(near)]), regular, wall
            found.append((number, cells, traits))
    return found


def _with_functions(c0: C0Space, given: Sequence[Any]) -> list[_Group]:
    """The same with functions of the orders of this space."""
    found, orders = list[_Group](), c0.numbering.orders
    seen = [c0.seen(number) for number in range(len(c0.space.blocks))]
    for number, cells, traits in given:
        first, block = 0 if isinstance(cells, slice) else int(cells[0]), c0.space.blocks[number]
        around = tuple(tuple(int(p) for p in orders[dim][part.ids[first]]) for dim, part in enumerate(seen[number]))
        S, m, near, *rest = traits
        found.append(_Group(number, cells, traits, _functions(block.shape, block.order, S, m, near, around, *rest)))
    return found


class LowEnergySmoother:
    """r -> B r on global vectors of one component, in the modified basis; B is zero where `free` [size] is not true.

    `energies` are of each block, and count from `refresh` on. If it `has` 1, strongly coupled functions are solved for
    together, if 2, large groups of them beside thin pyramids are eliminated first. Classes of cells stay those that it
    was made with, and `kept` tells whether the matrices of groups are, but for their scale: B stays positive definite.
    """

    # Of its groups: the diagonal, its inverse beside them, and their couplings, on a host or the vectors' device.
    _made: tuple[Any, Any, Any] | None = None
    _before: Any = None  # their relative sizes
    _scale: Any = None
    kept = False

    def __init__(
        self,
        c0: C0Space,
        energies: Sequence[Energies],
        free: NDArray[np.bool_],
        backend: Backend,
        finer: LowEnergySmoother | None = None,
    ) -> None:
        self._c0, self._free = c0, free
        self._vectors, self._T = c0.vectors_on(backend.device()), None
        self.lines, self._places = list[Layers | SharedLayers](), list[Any]()
        alike = _alike(c0, energies) if finer is None else [own[:3] for own in finer._groups]
        self._groups: list[_Group] = _with_functions(c0, alike)
        if c0.size:
            Q = _of_groups(self._groups, c0.low_energy_matrix)
            back = Q if c0.signed else Q.with_rows(c0.inverse_matrix.rows)
            # Roughly: a smoother of 2^-9 makes iterations no more, while a change of basis is to keep what is smooth.
            T = [own.functions.T for own in self._groups]
            self._T = CellMap(Q, back, T, c0, backend, c0.space.dtype, rough=True)
        some = [any(own.functions.coupling[which].size for own in self._groups) for which in (0, 1)]
        self.has = int(c0.space.comm.max(float(some[0] and 1 + some[1])))

    def eliminate_no_more(self) -> None:
        """Solve for groups alone, from the next `refresh` on."""
        self.has, self._made = min(self.has, 1), None

    def refresh(self, energies: Sequence[Energies], robin: csr_array | None, anew: bool = False) -> None:
        """Take means of the same cells, and the operator's matrix from Robin conditions [size, size]; groups are made
        anew if couplings changed much, or if asked for; collective.
        """
        c0, vectors, groups = self._c0, self._vectors, self._groups
        xp, dtype = vectors.xp, c0.space.dtype
        D: Any = xp.zeros(0)
        if self._T is not None:
            tables = [
                own.functions.on(vectors, "energies", own.functions.energies[:, modes], modes.tobytes())
                for own, modes in zip(groups, self._T.modes, strict=True)
            ]
            D = self._T.squares(vectors.products(_means(groups, energies, xp), tables))
            if robin is not None:
                rows, chosen = self._T.congruent(robin)
                D += vectors.from_host(np.asarray(rows.multiply(robin[chosen][:, chosen] @ rows).sum(axis=0)).ravel())
            D = xp.where(moved(self._free, xp), vectors.summed(D), xp.inf)
        with c0.space.mesh.comm.together():
            if not every(D > 0):
                raise SolverError(
                    "the operator is singular on a part of the mesh: is a coefficient zero there, or is there nothing"
                    " that fixes the solution?"
                )
        self._inverse, self.kept = (1 / D).astype(dtype), False
        if self.has > 0:
            Q, beside = c0.low_energy_matrix, None
            coupled = _energies_of_pairs(groups, 0, energies, Q, vectors, self._places if self._made else None)
            made, change = None if anew else self._made, np.inf
            if made is not None:
                if self._before is None:
                    self._before = _relative(made[2], made[0])
                changed = _relative(coupled, D) - self._before
                change = (HOST_VECTORS if isinstance(changed, np.ndarray) else vectors).max_norm(changed)
            self.kept = c0.space.comm.all(bool(change <= _ALIKE))
            if made is not None and self.kept:
                before, now = (xp.where(xp.isinf(own), 1.0, own) for own in (made[0], D))
                self._scale = xp.sqrt(before / now).astype(dtype)
                self._inverse = made[1] * self._scale
                return
            self._scale = None
            if self.has > 1:
                far = [own for own in groups if not own.functions.coupling[1].size]
                partly = _of_groups(far, Q).matrix.indices if far else np.zeros(0, dtype=np.int64)
                beside = Beside(sparse_on_host(_energies_of_pairs(groups, 1, energies, Q, vectors)), partly)
            self.lines, divided = lines_of(coupled, beside, D, c0, vectors, dtype)
            self._inverse = (1 / divided).astype(dtype)
            self._made, self._before = (D, self._inverse, coupled), None

    def __call__(self, r: Any, onto: Any = None) -> Any:
        """Apply to a vector, [size]; a new one, or what the result is added to."""
        if self._T is None:
            return added(r * 1, onto)
        z = self._T.transposed(r, self._inverse)
        for lines in self.lines:
            lines(z)
        if self._scale is not None:
            z *= self._scale
        return self._T(z, onto)

    @property
    def residuals(self) -> Any:
        """Sizes of residuals of functions of equal energy, [size]; 0 where B is."""
        xp = self._vectors.xp
        return 1 / xp.sqrt(xp.where(self._inverse > 0, self._inverse, xp.inf))

    def agree(self, whether: bool) -> bool:
        """Let results that are added to something be the owners' on all processes, beside other work; if it can."""
        can = self._c0.space.comm.all(whether and (self._T is None or self._T.final))
        if self._T is not None:
            self._T.agrees = can
        return can

    def scale(self, factor: float) -> None:
        """Multiply B by a number, until other means come."""
        self._inverse = self._inverse * self._inverse.dtype.type(factor)


def _of_groups(groups: Sequence[_Group], Q: BlockMatrix) -> BlockMatrix:
    """The rows of the cells of groups."""
    return BlockMatrix([Q.blocks[own.block].part(own.cells) for own in groups], Q.rows)


def _means(groups: Sequence[_Group], energies: Sequence[Energies], xp: Any) -> list[Any]:
    """Means of the cells of each group, [E, dim^2 + 1]; those of a block are taken at once."""
    found = list[Any]()
    for block, same in groupby(groups, attrgetter("block")):
        cells, given = [own.cells for own in same], energies[block].means
        means = as_numpy(given) if xp is np else given
        if isinstance(cells[0], slice):
            found.append(means)
        else:
            ends = np.cumsum(list(map(len, cells)))[:-1].tolist()
            found += xp.split(means[moved(np.concatenate(cells), xp)], ends)
    return found


def _relative(coupled: Any, D: Any) -> Any:
    """The absolute values of couplings, relative to the diagonal."""
    return abs(scaled(coupled, 1 / (as_numpy(D) if isinstance(coupled.data, np.ndarray) else D) ** 0.5))


def _energies_of_pairs(
    groups: Sequence[_Group],
    which: int,
    energies: Sequence[Energies],
    Q: BlockMatrix,
    vectors: VectorSpace,
    places: list[Any] | None = None,
) -> Any:
    """Mean energies of some pairs in the cells of this process, above the diagonal; of few on a host; [size, size]. The
    places of not too many of them are found once and kept, if a list is given.
    """
    groups = [own for own in groups if own.functions.coupling[which].size]
    Q, held, found = _of_groups(groups, Q), list[Any](), list[Any]()
    if not groups:
        return csr_array((Q.size, Q.size))
    sizes = [own.functions.coupling[which].shape[1] for own in groups]
    count = sum(own.shape[0] * n for own, n in zip(Q.blocks, sizes, strict=True))
    if xp_for(_EACH * count, vectors.xp) is np:
        vectors = HOST_VECTORS
    xp = vectors.xp
    every_code = None if places else Q.on(xp)
    taken = _means(groups, energies, xp)
    parts = list[tuple[int, slice]]()
    for number, n in enumerate(sizes):
        parts += [(number, some) for some in chunks(len(taken[number]), n, most=min(at_once(xp), _AT_ONCE))]
    batch = (np.cumsum([(some.stop - some.start) * sizes[number] for number, some in parts]) - 1) // _AT_ONCE
    tables = [own.functions.on(vectors, "coupling", own.functions.coupling[which], which) for own in groups]
    pairs = [own.functions.on(vectors, "pairs", np.array(own.functions.pairs[which]), which) for own in groups]
    for _, several in groupby(range(len(parts)), batch.__getitem__):
        now = [parts[k] for k in several]
        values = vectors.products([taken[own][some] for own, some in now], [tables[own] for own, _ in now])
        if every_code is None:
            held += values
            continue
        blocks = ((own, Q.blocks[own].shape, some) for own, some in now)
        codes = [every_code[Q.starts[own] : Q.starts[own + 1]].reshape(shape)[some] for own, shape, some in blocks]
        ends = [vectors.picked(codes, [pairs[own][end] for own, _ in now]) for end in (0, 1)]
        given = [[part.ravel() for part in own] for own in zip(values, *ends, strict=True)]
        if places is not None and Q.signed and count <= _AT_ONCE:
            i, j = (xp.concatenate([own[k] for own in given]) for k in (1, 2))
            places += _places(i, j, Q, vectors)
            held += values
        else:
            found.append(_summed(given, Q, vectors))
    if places:
        signs, sums, *of_rows = places
        data = sums(xp.concatenate([own.ravel() for own in held]) * signs)
        return vectors.sparse_library.csr_matrix((data, *of_rows), shape=(Q.size, Q.size))
    return sum(found[1:], found[0]).tocsr()


def _places(i: Any, j: Any, Q: BlockMatrix, vectors: VectorSpace) -> list[Any]:
    """What puts values at pairs of codes in place: signs, what sums them up, columns and ends of rows."""
    xp = vectors.xp
    sums, row, column = vectors.pattern(xp.minimum(i, j) >> 1, xp.maximum(i, j) >> 1, Q.size)
    ends = xp.searchsorted(row, xp.arange(Q.size + 1))
    return [1 - 2 * ((i ^ j) & 1), sums, column.astype(np.int32), ends.astype(np.int32)]


def _summed(given: Sequence[Any], Q: BlockMatrix, vectors: VectorSpace) -> Any:
    """A matrix above its diagonal, on the vectors' device, of energies of pairs of rows: values and codes."""
    xp, found, more = vectors.xp, list[Any](), list[Any]()
    if xp is not np:  # few launches
        given = [[xp.concatenate(parts) for parts in zip(*given, strict=True)]]
    for values, i, j in given:
        if not Q.signed:  # rows of more than one unknown
            several = (i | j) < 0
            more.append([own[several] for own in (values, i, j)])
            values, i, j = (own[~several] for own in (values, i, j))
        found.append((values * (1 - 2 * ((i ^ j) & 1)), xp.minimum(i, j) >> 1, xp.maximum(i, j) >> 1))
    if sum(len(own[0]) for own in more):
        values, i, j = vectors.congruent(Q, *(xp.concatenate(parts) for parts in zip(*more, strict=True)))
        (apart,) = (i != j).nonzero()
        found.append([own[apart] for own in (values, xp.minimum(i, j), xp.maximum(i, j))])
    values, i, j = (xp.concatenate(parts) for parts in zip(*found, strict=True))
    return vectors.summed_there(values, i, j, (Q.size, Q.size))
