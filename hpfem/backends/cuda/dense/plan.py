"""Kernels for dense matrices of affine elements: configs, sizes, matrices as the kernels read them, source."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.cached import cached_property

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.linear import check_linear
from ..codegen.prelude import constants, header, index_function, program, reals, shorts
from ..codegen.tables import Levels
from ..runtime.measured import known_row
from ..sumfac_top.plan import REGISTERS, Limits
from .element_matrices import ElementMatrices, places_of

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Numbers of shared memory between tiles of eight elements' coefficients (PITCH of dense.h).
PITCH = 72
# Modes of an element that a thread can hold twice; entries of matrices in the constant bank (64 KiB).
LANE_MODES, CONSTANTS = 36, 7000
# Modes beyond which the results of 16 elements do not fit the registers of a warp.
TILE_MODES = 168


@dataclass(frozen=True)
class DenseOptions:
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


@dataclass(frozen=True, eq=False)
class DensePlan:
    """A problem, its matrices and a options: sizes, matrices as the kernel reads them, source.

    Attributes
    ----------
    problem : BlockProblem
    matrices : ElementMatrices
    options : DenseOptions
    """

    problem: BlockProblem
    matrices: ElementMatrices
    options: DenseOptions

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.options.warps

    @property
    def elements(self) -> int:
        """Elements that a block has in work at a time."""
        return self.options.warps * (16 * self.options.tiles or 32)

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

        mass, square, derivatives = [], self.matrices.mass_tiles, self.matrices.derivative_tiles
        if "value" in self.problem.form.test:
            mass = [index(square[b, a]) for a in range(k) for b in range(k)]
        forward = np.empty((self.r_tiles, k, dim), np.int64)
        back = np.empty((self.r_tiles, dim, k), np.int64)
        for first in range(0, self.r_tiles, self.options.rows):
            part = range(first, min(first + self.options.rows, self.r_tiles))
            for a, r, c in product(range(k), part, range(dim)):
                forward[r, a, c] = index(derivatives[c, r, a])
            for r, c, a in product(part, range(dim), range(k)):
                back[r, c, a] = index(derivatives[c, r, a].T)
        return tiles, mass, forward.ravel().tolist(), back.ravel().tolist()

    @property
    def used_tiles(self) -> int:
        """Tiles of the matrices that are multiplied."""
        mass, derivatives = self.matrices.used
        form = self.problem.form
        return mass * ("value" in form.test) + 2 * derivatives * ("grad" in form.test)

    @property
    def n_chunks(self) -> int:
        """Chunks of tiles; a multiple of the stages."""
        stages = max(self.options.stages, 1)
        return stages * -(-self.used_tiles // (stages * self.options.chunk))

    @property
    def chunk(self) -> int:
        """Tiles of a chunk."""
        return max(1, -(-self.used_tiles // self.n_chunks))

    @property
    def n_tiles(self) -> int:
        """Tiles of `stream`, whole chunks where there is a ring."""
        return self.n_chunks * self.chunk if self.options.stages else self.used_tiles

    @property
    def n_factors(self) -> int:
        """Geometric factors of an element."""
        kind = self.problem.form.factor_kind
        return self.problem.geometry.n_factors(kind) if kind else 0

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        v, n = self.options, self.problem.n_modes
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
        v, n, dim = self.options, self.problem.n_modes, self.problem.shape.dim
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
        if self.options.tiles == 0:
            return np.zeros((1, 8, 8))
        tiles = self.tiles[0]
        return np.ascontiguousarray([*tiles, *[np.zeros((8, 8))] * (self.n_tiles - len(tiles))])

    def program(self) -> str:
        """Source of the kernel, for the compiler."""
        return program(self.source())

    def source(self, name: str = "dense") -> str:
        """Source of the kernel, `language.h` apart."""
        v, p = self.options, self.problem
        order = self.matrices.order
        sizes = {"ROWS": self.rows, "MIN_BLOCKS": v.min_blocks}
        if v.tiles == 0:
            sizes["THREADS"] = self.threads
            text = [
                index_function("first_mode", self.matrices.begin[: self.rows]),
                index_function("sorted_mode", order),
                reals("HPFEM_CONSTANT", "MASS", self.matrices.mass),
                reals("HPFEM_CONSTANT", "SLOPES", self.matrices.derivatives),
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
        kernel = "dense/dense_lane.h" if v.tiles == 0 else "dense/dense.h"
        parts = [header("codegen/helpers.h"), header("codegen/geometry.h"), header(kernel)]
        return "\n".join([constants(p, Levels.plain(p.tabulation), name), *lines, *text, *parts])


def check_dense(problem: BlockProblem) -> None:
    """Say why a problem is not one for the dense kernels.

    Raises
    ------
    NotSuitable
        With the reason.
    """
    check_linear(problem)
    if problem.form.gradients and problem.algorithm == "collocated":
        raise NotSuitable("element matrices are noncollocated; use algorithm='noncollocated'")
    n = problem.n_modes
    if problem.dtype != np.float64 and n > LANE_MODES:
        raise NotSuitable(f"tensor cores are used in float64 only, and {n} modes do not fit a thread's registers")
    if n > TILE_MODES:
        raise NotSuitable(f"results of {n} modes do not fit the registers of a warp, {TILE_MODES} do")


def fitting(plan: DensePlan, limits: Limits) -> str | None:
    """Say why a plan does not fit a device; None if it does."""
    v = plan.options
    if plan.threads > limits.threads or min(v.warps, v.min_blocks, v.chunk, v.rows) < 1:
        return f"{plan.threads} threads and {v.min_blocks} blocks"
    if v.tiles == 0:
        matrices = plan.matrices.mass.size + plan.matrices.derivatives.size
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


def dense_plan(problem: BlockProblem, matrices: ElementMatrices, options: DenseOptions, limits: Limits) -> DensePlan:
    """Plan of a options that is to fit on a device.

    Parameters
    ----------
    problem : BlockProblem
    matrices : ElementMatrices
        Of the problem's tabulation.
    options : DenseOptions
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
    plan = DensePlan(problem, matrices, options)
    why = fitting(plan, limits)
    if why is not None:
        raise NotSuitable(f"dense matrices: {why}")
    return plan


def known_dense(problem: BlockProblem) -> DenseOptions | None:
    """Measured options of a problem."""
    row = known_row(problem, "dense")
    return None if row is None else DenseOptions(*row[1:])
