"""Plans of the dense kernels: options, sizes, matrices as the kernels read them, source."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from hpfem.shapes.arrays import Array
from hpfem.shapes.cached import cached_property

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.linear import check_linear, check_noncollocated
from ..codegen.prelude import constants, fill, header
from ..codegen.tables import Levels
from ..runtime.device import REGISTERS, Limits
from .element_matrices import places_of, shared_matrices

# Numbers of shared memory between tiles of eight elements' coefficients (PITCH of dense.h).
PITCH = 72
# Modes of an element that a thread can hold twice; entries of matrices in the constant bank (64 KiB).
LANE_MODES, CONSTANTS = 36, 7000
# Modes beyond which the results of 16 elements do not fit the registers of a warp.
TILE_MODES = 168


@dataclass(frozen=True)
class DenseOptions:
    """Free choices of the dense kernels."""

    warps: int  # per block of threads
    tiles: int = 1  # elements of a warp in units of 16; 0: one element per thread, without tensor cores
    stages: int = 0  # of the ring that matrices go through; 0: all of them stay in shared memory
    kept: bool = True  # whether coefficients are kept in registers, and the next ones fetched meanwhile
    min_blocks: int = 1  # per multiprocessor, that registers have to leave room for
    chunk: int = 24  # tiles in a stage of the ring at most
    rows: int = 2  # eights of rows of D_i in work at a time


class DensePlan:
    """Sizes of a dense kernel for a problem and options, matrices as the kernel reads them, source."""

    def __init__(self, problem: BlockProblem, options: DenseOptions) -> None:
        self.problem, self.options = problem, options
        # Affine factors are stored alike by all kernels.
        self.levels, self.group = Levels.plain(problem.tabulation), 1
        self.threads = 32 * options.warps
        self.elements = options.warps * (16 * options.tiles or 32)
        self.matrices = shared_matrices(problem.tabulation)
        # Rows of every D_i that the form needs; eights of modes and of rows.
        self.rows = self.matrices.rows if problem.form.test_gradient else 0
        self.k_tiles, self.r_tiles = -(-problem.n_modes // 8), -(-self.rows // 8)
        kind = problem.form.factor_kind
        self.n_factors = problem.geometry.n_factors(kind) if kind else 0

    @cached_property
    def tiles(self) -> tuple[list[Array], dict[str, Any]]:
        """Tiles that are not zero, [result place][summed place], in the order of use, and tables of where each is."""
        k, dim = self.k_tiles, self.problem.shape.dim
        tiles: list[Array] = []

        def index(tile: Array) -> int:
            if not tile.any():
                return -1
            tiles.append(tile)
            return len(tiles) - 1

        square, derivatives = self.matrices.mass_tiles, self.matrices.derivative_tiles
        summed = range(k) if self.problem.form.test_value else ()
        mass = [index(square[b, a]) for a in summed for b in range(k)]
        forward = np.empty((self.r_tiles, k, dim), np.int64)
        back = np.empty((self.r_tiles, dim, k), np.int64)
        for first in range(0, self.r_tiles, self.options.rows):
            part = range(first, min(first + self.options.rows, self.r_tiles))
            for a, r, c in product(range(k), part, range(dim)):
                forward[r, a, c] = index(derivatives[c, r, a])
            for r, c, a in product(part, range(dim), range(k)):
                back[r, c, a] = index(derivatives[c, r, a].T)
        return tiles, {"MASS_TILE": mass, "FORWARD_TILE": forward, "BACK_TILE": back}

    @property
    def used_tiles(self) -> int:
        """Tiles of the matrices that are multiplied."""
        mass, derivatives = self.matrices.used
        form = self.problem.form
        return mass * form.test_value + 2 * derivatives * form.test_gradient

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
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        v, n = self.options, self.problem.n_modes
        if v.tiles == 0:
            return self.threads * ((n | 1) + (self.n_factors | 1)) * self.problem.dtype.itemsize
        stream = 64 * (v.stages * self.chunk if v.stages else self.n_tiles)
        places = -(-((2 * n + 3) // 4) // 2) * 2
        factors = -(-16 * v.tiles * self.n_factors // 2) * 2
        warp = (2 * v.tiles + v.kept) * self.k_tiles * PITCH + (1 + v.kept) * factors
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

    @property
    def registers_left(self) -> int:
        """Registers of a thread, if as many blocks as wanted are on a multiprocessor."""
        return min(255, REGISTERS // (self.threads * self.options.min_blocks))

    def stream(self) -> Array:
        """Put the matrices in the order of their use; -> [n_tiles, 8, 8]."""
        if self.options.tiles == 0:
            return np.zeros((1, 8, 8))
        tiles = self.tiles[0]
        return np.ascontiguousarray([*tiles, *[np.zeros((8, 8))] * (self.n_tiles - len(tiles))])

    def _values(self) -> dict[str, Any]:
        """Compile-time constants that are not attributes."""
        v, matrices = self.options, self.matrices
        if v.tiles == 0:
            return {"first_mode": matrices.begin[: self.rows], "sorted_mode": matrices.order}
        places = np.empty(self.problem.n_modes, np.int64)
        places[matrices.order] = places_of(len(places))
        return {"TILES": v.tiles, "AT_ONCE": v.rows, "PLACE": places, **self.tiles[1]}

    def source(self, name: str = "dense") -> str:
        """Source of the kernel, `language.h` apart."""
        steps = ["parameters.h", "sizes.h", "matrices.h", "products.h", "transfer.h", "dense.h"]
        if self.options.tiles == 0:
            steps = ["lane_parameters.h", "dense_lane.h"]
        parts = [
            constants(self.problem, self.levels, name),
            fill(f"dense/{steps[0]}", self._values(), self, self.options, self.matrices),
            *(header(f"codegen/{name}") for name in ("helpers.h", "geometry.h", "linear.h")),
            *(header(f"dense/{name}") for name in steps[1:]),
        ]
        return "\n".join(parts)

    def misfit(self, limits: Limits) -> str | None:
        """Say why the kernel does not fit a device."""
        v = self.options
        if self.threads > limits.threads or min(v.warps, v.min_blocks, v.chunk, v.rows) < 1:
            return f"{self.threads} threads and {v.min_blocks} blocks"
        if v.tiles == 0:
            numbers = self.matrices.mass.size + self.matrices.derivatives.size
            if self.problem.n_modes > LANE_MODES or numbers > CONSTANTS:
                return f"{self.problem.n_modes} modes do not fit a thread's registers and the constant bank"
        elif self.problem.dtype != np.float64:
            return "tensor cores are used in float64 only"
        elif v.stages == 1:
            return "a ring needs two stages"
        if (missing := limits.shared_misfit(self.shared_bytes, v.min_blocks)) is not None:
            return missing
        if self.registers > self.registers_left:
            return f"about {self.registers} registers a thread are needed"
        return None


def check_dense(problem: BlockProblem) -> None:
    """Check that a problem is one for the dense kernels."""
    check_linear(problem)
    check_noncollocated(problem)
    n = problem.n_modes
    if problem.dtype != np.float64 and n > LANE_MODES:
        raise NotSuitable(f"tensor cores are used in float64 only, and {n} modes do not fit a thread's registers")
    if n > TILE_MODES:
        raise NotSuitable(f"results of {n} modes do not fit the registers of a warp, {TILE_MODES} do")
