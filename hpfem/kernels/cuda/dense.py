"""Affine elements as dense matrices on a GPU: the matrices, sorted so that much of them is zero, and kernel variants.

A linear form with constant coefficients has on an affine element the matrix sum_ij G_ij D_i^T D_j + w M. With S_i the
derivatives by xi_i of all modes at the points, weighted by the square roots of the quadrature weights, and V an
orthonormal basis of what all of them span, D_i = V^T S_i has fewer rows than there are points, and D_i^T D_j is
S_i^T S_j: the quadrature's own matrix, whatever the rule. On simplices V is a basis of the polynomials of degree P - 1.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Tabulation

from ...errors import NotSuitable
from ..form import BlockProblem
from ..linear import check_linear
from .measured import known_row
from .prelude import constants, header, index_function, reals, shorts
from .tables import Levels
from .variant import REGISTERS, Limits

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# What is smaller than this, relative to the modes' own size, is zero but for rounding.
ROUNDING = 1e-13
# Variants that a round of the search tries at most.
NEIGHBOURS = 8
# Tiles from which on a ring is worth trying.
RING_TILES = 80
# Numbers of shared memory between tiles of eight elements' coefficients (PITCH of dense.h).
PITCH = 72
# Modes of an element that a thread can hold twice; entries of matrices in the constant bank (64 KiB).
LANE_MODES, CONSTANTS = 36, 7000
# Modes beyond which the results of 16 elements do not fit the registers of a warp.
TILE_MODES = 168


@dataclass(frozen=True, eq=False)
class ElementMatrices:
    """Matrices of a basis on a rule, in an order of the modes that makes much of them zero.

    Attributes
    ----------
    order : ndarray, [n_modes]
        Mode at each place.
    mass : ndarray, [n_modes, n_modes]
    slopes : ndarray, [dim, rows, n_modes]
        D_i.
    begin : ndarray, [rows]
        First place at which a row is not zero in some D_i; ascending.
    """

    order: Indices
    mass: Array
    slopes: Array
    begin: Indices

    @classmethod
    def of(cls, tabulation: Tabulation) -> ElementMatrices:
        """Matrices of a tabulation.

        Raises
        ------
        NotSuitable
            If a weight is negative, or rounding spoils the matrices.
        """
        rule, shape = tabulation.rule, tabulation.basis.shape
        if rule.weights.min() < 0:
            raise NotSuitable("the quadrature has negative weights")
        root = np.sqrt(rule.weights)
        collapse = np.linalg.inv(shape.collapse_matrix(rule.eta))  # [Q, a, i] = d eta_a/d xi_i
        values = tabulation.dense * root
        weighted = np.einsum("qai,amq,q->miq", collapse, tabulation.dense_gradient, root)
        order, rows = nested_rows(weighted)
        slopes = np.einsum("rq,miq->irm", rows, weighted[order])
        size = np.sqrt(np.einsum("miq,miq->m", weighted[order], weighted[order]))
        slopes[np.abs(slopes) < ROUNDING * size] = 0
        exact = np.einsum("miq,njq->ijmn", weighted[order], weighted[order], optimize=True)
        found = np.einsum("irm,jrn->ijmn", slopes, slopes, optimize=True)
        if np.any(np.abs(found - exact) > 10 * ROUNDING * size[:, None] * size):
            raise NotSuitable("gradients of the basis are too close to dependent")
        mass = (values @ values.T)[np.ix_(order, order)]
        size = np.sqrt(np.diag(mass))
        mass[np.abs(mass) < ROUNDING * size[:, None] * size] = 0
        filled = np.any(slopes != 0, axis=0)
        begin = np.minimum.accumulate(np.argmax(filled, axis=1)[::-1])[::-1]
        return cls(order, mass, slopes, begin)

    @property
    def rows(self) -> int:
        """Rows of every D_i."""
        return self.slopes.shape[1]

    @cached_property
    def mass_tiles(self) -> Array:
        """The mass matrix in tiles, [modes / 8, modes / 8, 8, 8]; [result][summed] outside and inside."""
        places, k = places_of(len(self.order)), -(-len(self.order) // 8)
        square = np.zeros((8 * k, 8 * k))
        square[np.ix_(places, places)] = self.mass
        return square.reshape(k, 8, k, 8).swapaxes(1, 2)

    @cached_property
    def slope_tiles(self) -> Array:
        """D_i in tiles, [dim, rows / 8, modes / 8, 8, 8]."""
        dim, rows, n = self.slopes.shape
        r, k = -(-rows // 8), -(-n // 8)
        padded = np.zeros((dim, 8 * r, 8 * k))
        padded[np.ix_(np.arange(dim), places_of(rows), places_of(n))] = self.slopes
        return padded.reshape(dim, r, 8, k, 8).swapaxes(2, 3)

    @cached_property
    def used(self) -> tuple[int, int]:
        """Tiles that are not zero: of the mass matrix, and of all D_i."""
        mass, slopes = (tiles.any(axis=(-2, -1)).sum() for tiles in (self.mass_tiles, self.slope_tiles))
        return int(mass), int(slopes)


_MATRICES: WeakKeyDictionary[Tabulation, ElementMatrices] = WeakKeyDictionary()


def shared_matrices(tabulation: Tabulation) -> ElementMatrices:
    """Matrices of a tabulation, made once; see `ElementMatrices.of`."""
    if tabulation not in _MATRICES:
        _MATRICES[tabulation] = ElementMatrices.of(tabulation)
    return _MATRICES[tabulation]


def nested_rows(weighted: Array) -> tuple[Indices, Array]:
    """Sort modes so that the first of them have gradients in few dimensions, for any number of them.

    Greedy: the next mode is the one whose gradients are out of the span so far in the fewest dimensions.

    Parameters
    ----------
    weighted : ndarray, [n_modes, dim, Q]
        Gradients at the points.

    Returns
    -------
    order : ndarray, [n_modes]
    rows : ndarray, [rows, Q]
        Orthonormal; the gradients of the first modes are combinations of the first rows.
    """
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


@dataclass(frozen=True)
class DenseVariant:
    """Free choices of the dense kernels.

    Attributes
    ----------
    warps : int
        Per block of threads.
    tiles : int
        Elements of a warp in units of 16; 0: one element per thread, without tensor cores.
    stages : int
        Stages of the ring that matrices go through; 0: all of them stay in shared memory.
    kept : bool
        Whether coefficients are kept in registers, and the next ones fetched meanwhile.
    min_blocks : int
        Blocks per multiprocessor that registers have to leave room for.
    chunk : int
        Tiles in a stage of the ring at most.
    rows : int
        Eights of rows of D_i in work at a time.
    """

    warps: int
    tiles: int = 1
    stages: int = 0
    kept: bool = True
    min_blocks: int = 1
    chunk: int = 24
    rows: int = 2


def places_of(count: int) -> Indices:
    """Places of the sorted modes or rows, in eights; a last eight that is at most half full takes the even ones."""
    places = np.arange(count)
    if 1 <= count % 8 <= 4:
        last = count // 8 * 8
        places[last:] = last + 2 * (places[last:] - last)
    return places


@dataclass(frozen=True, eq=False)
class DensePlan:
    """A problem, its matrices and a variant: sizes, matrices as the kernel reads them, source.

    Attributes
    ----------
    problem : BlockProblem
    matrices : ElementMatrices
    variant : DenseVariant
    """

    problem: BlockProblem
    matrices: ElementMatrices
    variant: DenseVariant

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.variant.warps

    @property
    def elements(self) -> int:
        """Elements that a block has in work at a time."""
        return self.variant.warps * (16 * self.variant.tiles or 32)

    @property
    def rows(self) -> int:
        """Rows of every D_i that the form needs."""
        return self.matrices.rows if "grad" in self.problem.form.test else 0

    @property
    def k_tiles(self) -> int:
        """Eights of modes."""
        return -(-self.problem.n_modes // 8)

    @property
    def r_tiles(self) -> int:
        """Eights of rows."""
        return -(-self.rows // 8)

    @cached_property
    def tiles(self) -> tuple[list[Array], list[int], list[int], list[int]]:
        """Tiles that are not zero in the order of their use, [result place][summed place], and where each is.

        Returns
        -------
        tiles : list of ndarray, [8, 8]
        mass : list of int
            Index of each tile, or -1: [summed][result].
        forward : list of int
            [rows][modes][direction].
        back : list of int
            [rows][direction][modes].
        """
        k, dim = self.k_tiles, self.problem.shape.dim
        tiles: list[Array] = []

        def index(tile: Array) -> int:
            if not tile.any():
                return -1
            tiles.append(tile)
            return len(tiles) - 1

        mass, square, slopes = [], self.matrices.mass_tiles, self.matrices.slope_tiles
        if "value" in self.problem.form.test:
            mass = [index(square[b, a]) for a in range(k) for b in range(k)]
        forward = np.empty((self.r_tiles, k, dim), np.int64)
        back = np.empty((self.r_tiles, dim, k), np.int64)
        for first in range(0, self.r_tiles, self.variant.rows):
            part = range(first, min(first + self.variant.rows, self.r_tiles))
            for a, r, c in product(range(k), part, range(dim)):
                forward[r, a, c] = index(slopes[c, r, a])
            for r, c, a in product(part, range(dim), range(k)):
                back[r, c, a] = index(slopes[c, r, a].T)
        return tiles, mass, forward.ravel().tolist(), back.ravel().tolist()

    @property
    def used_tiles(self) -> int:
        """Tiles of the matrices that are multiplied."""
        mass, slopes = self.matrices.used
        form = self.problem.form
        return mass * ("value" in form.test) + 2 * slopes * ("grad" in form.test)

    @property
    def n_chunks(self) -> int:
        """Chunks of tiles; a multiple of the stages."""
        stages = max(self.variant.stages, 1)
        return stages * -(-self.used_tiles // (stages * self.variant.chunk))

    @property
    def chunk(self) -> int:
        """Tiles of a chunk."""
        return max(1, -(-self.used_tiles // self.n_chunks))

    @property
    def n_tiles(self) -> int:
        """Tiles of `stream`, whole chunks where there is a ring."""
        return self.n_chunks * self.chunk if self.variant.stages else self.used_tiles

    @property
    def n_factors(self) -> int:
        """Geometric factors of an element."""
        kind = self.problem.form.factor_kind
        return self.problem.geometry.n_factors(kind) if kind else 0

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        v, n = self.variant, self.problem.n_modes
        if v.tiles == 0:
            return self.threads * ((n | 1) + (self.n_factors | 1)) * self.problem.dtype.itemsize
        stream = 64 * (v.stages * self.chunk if v.stages else self.n_tiles)
        places = -(-((2 * n + 3) // 4) // 2) * 2
        factors = -(-16 * v.tiles * self.n_factors // 2) * 2
        eight = self.k_tiles * PITCH
        warp = 2 * v.tiles * eight + (eight if v.kept else 0) + (2 if v.kept else 1) * factors
        return 8 * (stream + places + v.warps * warp)

    @property
    def registers(self) -> int:
        """Estimate of a thread's registers (of 4 bytes)."""
        v, n, dim = self.variant, self.problem.n_modes, self.problem.shape.dim
        words = self.problem.dtype.itemsize // 4
        if v.tiles == 0:
            return words * (2 * n + self.n_factors + dim + 4) + 20
        rows = min(v.rows, self.r_tiles)
        numbers = v.tiles * (4 * self.k_tiles * (1 + v.kept) + 4 * dim * rows + 4)
        return 2 * numbers + 40

    def stream(self) -> Array:
        """Matrices as tiles in the order of their use, [n_tiles, 8, 8]; [result place][summed place] in each.

        One element per thread reads none.
        """
        if self.variant.tiles == 0:
            return np.zeros((1, 8, 8))
        tiles = self.tiles[0]
        return np.ascontiguousarray([*tiles, *[np.zeros((8, 8))] * (self.n_tiles - len(tiles))])

    def program(self) -> str:
        """Source of the kernel, for the compiler."""
        return header("language.h") + self.source()

    def source(self, name: str = "dense") -> str:
        """Source of the kernel, `language.h` apart."""
        v, p = self.variant, self.problem
        order = self.matrices.order
        sizes = {"ROWS": self.rows, "MIN_BLOCKS": v.min_blocks, "LINES_PADDED": 1}
        if v.tiles == 0:
            sizes["THREADS"] = self.threads
            text = [
                index_function("first_mode", self.matrices.begin[: self.rows]),
                index_function("sorted_mode", order),
                reals("HPFEM_CONSTANT", "MASS", self.matrices.mass),
                reals("HPFEM_CONSTANT", "SLOPES", self.matrices.slopes),
            ]
        else:
            sizes |= {"WARPS": v.warps, "TILES": v.tiles, "STAGES": v.stages, "CHUNK": self.chunk}
            sizes["AT_ONCE"] = v.rows
            sizes |= {"N_TILES": self.n_tiles, "USED_TILES": self.used_tiles}
            places = np.empty(p.n_modes, np.int64)
            places[order] = places_of(p.n_modes)
            text = [
                f"constexpr bool KEPT = {str(v.kept).lower()};",
                *[shorts(f"{key}_TILE", at) for key, at in zip(("MASS", "FORWARD", "BACK"), self.tiles[1:])],
                shorts("PLACE", places),
            ]
        lines = [f"constexpr int {key} = {value};" for key, value in sizes.items()]
        kernel = "dense_lane.h" if v.tiles == 0 else "dense.h"
        parts = [header("helpers.h"), header("geometry.h"), header(kernel)]
        return "\n".join([constants(p, Levels.plain(p.tabulation), name), *lines, *text, *parts])


def check_dense(problem: BlockProblem) -> None:
    """Say why a problem is not one for the dense kernels.

    Raises
    ------
    NotSuitable
        With the reason.
    """
    check_linear(problem)
    if problem.form.uses_gradient and problem.algorithm == "collocated":
        raise NotSuitable("element matrices are noncollocated; use algorithm='noncollocated'")
    n = problem.n_modes
    if problem.dtype != np.float64 and n > LANE_MODES:
        raise NotSuitable(f"tensor cores are used in float64 only, and {n} modes do not fit a thread's registers")
    if n > TILE_MODES:
        raise NotSuitable(f"results of {n} modes do not fit the registers of a warp, {TILE_MODES} do")


def fitting(plan: DensePlan, limits: Limits) -> str | None:
    """Say why a plan does not fit a device; None if it does."""
    v = plan.variant
    if plan.threads > limits.threads or min(v.warps, v.min_blocks, v.chunk, v.rows) < 1:
        return f"{plan.threads} threads and {v.min_blocks} blocks"
    if v.tiles == 0:
        matrices = plan.matrices.mass.size + plan.matrices.slopes.size
        if plan.problem.n_modes > LANE_MODES or matrices > CONSTANTS:
            return f"{plan.problem.n_modes} modes do not fit a thread's registers and the constant bank"
    elif plan.problem.dtype != np.float64:
        return "tensor cores are used in float64 only"
    elif v.stages == 1:
        return "a ring needs two stages"
    if plan.shared_bytes > limits.shared_block:
        return f"{plan.shared_bytes} bytes of shared memory are needed, a block has {limits.shared_block}"
    if (plan.shared_bytes + 1024) * v.min_blocks > limits.shared_multiprocessor:
        return f"{v.min_blocks} blocks do not fit the shared memory of a multiprocessor"
    if plan.registers > min(255, REGISTERS // (plan.threads * v.min_blocks)):
        return f"about {plan.registers} registers a thread are needed"
    return None


def dense_plan(problem: BlockProblem, matrices: ElementMatrices, variant: DenseVariant, limits: Limits) -> DensePlan:
    """Plan of a variant that is to fit on a device.

    Parameters
    ----------
    problem : BlockProblem
    matrices : ElementMatrices
        Of the problem's tabulation.
    variant : DenseVariant
    limits : Limits
        Of the device.

    Returns
    -------
    DensePlan

    Raises
    ------
    NotSuitable
        If it does not fit.
    """
    check_dense(problem)
    plan = DensePlan(problem, matrices, variant)
    why = fitting(plan, limits)
    if why is not None:
        raise NotSuitable(f"dense matrices: {why}")
    return plan


def known_dense(problem: BlockProblem) -> tuple[DenseVariant, float] | None:
    """Measured variant and rate (GDoF/s) of a problem."""
    row = known_row(problem, "dense")
    return None if row is None else (DenseVariant(*row[1:]), float(row[0]))


def dense_variants(
    problem: BlockProblem, matrices: ElementMatrices, limits: Limits, table: bool = True
) -> list[DenseVariant]:
    """Variants that fit, the measured one first, then the most promising ones.

    Parameters
    ----------
    problem : BlockProblem
    matrices : ElementMatrices
        Of the problem's tabulation.
    limits : Limits
        Of the device.
    table : bool
        Whether measured variants count.

    Returns
    -------
    list of DenseVariant

    Raises
    ------
    NotSuitable
        If none fits.
    """
    check_dense(problem)
    candidates = [DenseVariant(warps, 0, 0, True, blocks) for warps in (4, 2) for blocks in (8, 6, 5, 4, 3, 2)]
    sizes = DensePlan(problem, matrices, DenseVariant(1))
    rings = [(0, 24), *([(3, 24), (2, 24), (2, 48), (3, 48)] if sizes.used_tiles >= RING_TILES else [])]
    rows = [n for n in (2, 1, 3) if n <= max(1, sizes.r_tiles)]
    numbers = product((4, 6, 8, 12, 10, 16), (1, 2), rings, (True, False), (4, 3, 2, 1), rows)
    candidates += [DenseVariant(w, m, s, kept, blocks, chunk, n) for w, m, (s, chunk), kept, blocks, n in numbers]
    found = []
    for variant in candidates:
        plan = DensePlan(problem, matrices, variant)
        if fitting(plan, limits) is None:
            found.append((expected_speed(plan), variant))
    if not found:
        raise NotSuitable(f"the matrices of {problem.n_modes} modes do not fit a block's shared memory")
    found.sort(key=lambda pair: -pair[0])
    variants = [variant for _, variant in found]
    known = known_dense(problem) if table else None
    if known is not None and known[0] in variants:
        variants.remove(known[0])
        variants.insert(0, known[0])
    return variants


def default_dense(problem: BlockProblem, matrices: ElementMatrices, limits: Limits) -> DenseVariant:
    """The variant to take where nobody has searched: the measured one if it fits, else the model's.

    Parameters
    ----------
    problem, matrices, limits
        As for `dense_variants`.

    Returns
    -------
    DenseVariant

    Raises
    ------
    NotSuitable
        If none fits.
    """
    known = known_dense(problem)
    if known is not None and fitting(DensePlan(problem, matrices, known[0]), limits) is None:
        return known[0]
    return dense_variants(problem, matrices, limits, table=False)[0]


def first_dense(
    problem: BlockProblem, matrices: ElementMatrices, limits: Limits, table: bool = True
) -> list[DenseVariant]:
    """Variants of each kind to time first: the one to be taken unmeasured, then the most promising of every kind.

    Parameters
    ----------
    problem, matrices, limits, table
        As for `dense_variants`.

    Returns
    -------
    list of DenseVariant

    Raises
    ------
    NotSuitable
        If none fits.
    """
    found = dense_variants(problem, matrices, limits, table)
    kinds: dict[tuple[int, bool, bool], DenseVariant] = {}
    for variant in found:
        kinds.setdefault((variant.tiles, variant.stages > 0, variant.kept), variant)
    return list(dict.fromkeys([found[0], *kinds.values()]))


def dense_search(
    problem: BlockProblem, matrices: ElementMatrices, limits: Limits, table: bool = True
) -> Generator[list[DenseVariant], Mapping[DenseVariant, float], None]:
    """Search in three rounds: kinds, then twice the neighbours of the two fastest.

    Parameters
    ----------
    problem, matrices, limits, table
        As for `dense_variants`.

    Yields
    ------
    list of DenseVariant
        To be timed; send the seconds of all that were timed so far, in any round.
    """
    timed = yield first_dense(problem, matrices, limits, table)
    promising = dense_variants(problem, matrices, limits, table)
    for _ in range(2):
        ranked = sorted(timed, key=lambda variant: timed[variant])
        near = [v for best in ranked[:2] for v in promising if v not in timed and differences(best, v) <= 1]
        timed = yield list(dict.fromkeys(near))[:NEIGHBOURS]


def differences(a: DenseVariant, b: DenseVariant) -> int:
    """How far two variants are apart: fields that differ, numbers that are not next to each other twice."""
    warps, blocks = sorted((a.warps, b.warps)), abs(a.min_blocks - b.min_blocks)
    total = int((a.stages, a.chunk) != (b.stages, b.chunk))
    total += 0 if warps[0] == warps[1] else 1 if warps[1] <= 1.5 * warps[0] else 2
    # The same number of warps on a multiprocessor in more or fewer blocks is one step.
    if a.warps * a.min_blocks == b.warps * b.min_blocks:
        total, blocks = min(total, 1), 0
    return total + min(blocks, 2) + abs(a.rows - b.rows) + (a.tiles != b.tiles) + (a.kept != b.kept)


def expected_speed(plan: DensePlan) -> float:
    """Relative speed of a plan, from the resident warps and the registers that they have."""
    v, p = plan.variant, plan.problem
    warps = v.warps * v.min_blocks
    # What the compiler would like to have beyond what it needs.
    room = min(255, REGISTERS // (plan.threads * v.min_blocks)) - plan.registers
    speed = min(1.0, 0.75 + room / 160)
    if v.tiles == 0:
        return speed * min(1.0, warps / 16) * min(1.5, 16 / p.n_modes)
    speed *= min(1.0, 0.4 + 0.6 * warps / 12) * (0.9 if v.tiles > 1 else 1.0) * (0.95 if v.rows == 1 else 1.0)
    return speed * (0.85 if v.stages else 1.0) * (1.0 if v.kept else 0.8) * (1.02 if v.stages == 3 else 1.0)
