"""Plans of the fused kernels: options, sizes, tables as the kernel reads them, source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpfem.shapes.arrays import Array
from hpfem.shapes.mirror import mirror_of, without_mirror

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ..codegen.prelude import COMMON_HEADERS, arguments, constants, fill, header
from ..codegen.tables import Levels
from ..runtime.device import REGISTERS, Limits

# Elements of a warp: those whose factors are stored side by side.
GROUP = 16
# Barriers of a block, apart from its own.
TEAMS = 15
# Modes beyond which the results of 16 elements do not fit the registers of a warp.
MODES = 144
# Registers that a thread may lack: few spilled ones cost little.
SPILLED = 28
# Shared memory of a multiprocessor beyond which fields, which go through the first cache, cost half more time.
CACHED = 200_000
# Place of a tile's (column, place of a mode), so that both ways of reading it are free of bank conflicts.
_COLUMN, _MODE = np.indices((8, 8))
_SWIZZLED = _COLUMN // 2 * 16 + (_COLUMN ^ _COLUMN // 2) % 2 * 8 + (_MODE // 2 ^ 2 * (_COLUMN // 4)) * 2 + _MODE % 2
# Of eight modes, the first four are at even places.
_PLACES = np.array([0, 2, 4, 6, 1, 3, 5, 7])


@dataclass(frozen=True)
class FusedOptions:
    """Free choices of the fused kernels."""

    warps: int = 8  # per block of threads
    stages: int = 0  # of the ring that tables go through; 0: all of them stay in shared memory
    ahead: int = 2  # steps of points whose factors are in shared memory or on their way
    kept: int = 0  # eights of modes whose coefficients are kept in registers
    mirror: bool = True  # whether products are halved by the mirror symmetry of rule and basis
    min_blocks: int = 1  # per multiprocessor, that registers have to leave room for
    fours: int = 0  # of pairs of points of a step; 0: as many as fill the columns of products


@dataclass(frozen=True)
class Step:
    """Points that a warp works on together."""

    first: int  # of the pairs of points, or of the points on the mirror
    count: int
    paired: bool  # which of the two
    even: list[tuple[int, int]]  # columns of the products with even and odd modes: four of points, quantity
    odd: list[tuple[int, int]]


class FusedPlan:
    """Sizes of a fused kernel for a problem and options, its tables, its source."""

    def __init__(self, problem: BlockProblem, options: FusedOptions) -> None:
        self.problem, self.options = problem, options
        self.levels, self.group = Levels.plain(problem.tabulation), GROUP
        # A warp has one component of its elements; those that are coupled are a team.
        self.team = problem.form.components
        self.fields = len(arguments(problem)[2])  # numbers of fields at a point
        self.tested = problem.form.to_modes
        self.staged = self.team > 1 or not self.tested  # whether fields are copied to shared memory before
        self.threads, self.elements = 32 * options.warps, GROUP * (options.warps // self.team)
        found = mirror_of(problem.tabulation) if options.mirror else None
        self.sorted = without_mirror(problem.tabulation) if found is None else found
        form = problem.form
        self.value, self.gradient = form.trial_value or form.test_value, form.gradients
        self.quantities = self.value + problem.shape.dim * self.gradient
        self.fours = options.fours or 1 + self.quantities % 2
        self.most_pairs = 4 * self.fours
        self.steps = list(self._steps())
        self.even_tiles, self.odd_tiles = -(-self.sorted.even // 8), -(-self.sorted.odd // 8)
        self.n_tiles = sum(map(self._tiles, self.steps))

    def _steps(self) -> Iterator[Step]:
        names, across = range(self.quantities), int(self.value)
        apart = self.sorted.odd > 0 and self.gradient
        for paired, n, most in ((True, self.sorted.pairs, self.most_pairs), (False, self.sorted.singles, 8)):
            for first in range(0, n, most):
                count = min(most, n - first)
                fours = range(-(-count // 4))
                every = [(r, a) for r in fours for a in names]
                even, odd = every, every if paired else []
                if apart and not paired:
                    even, odd = [(r, a) for r, a in every if a != across], [(r, across) for r in fours]
                yield Step(first, count, paired, even, odd)

    def _tiles(self, step: Step) -> int:
        return -(-len(step.even) // 2) * self.even_tiles + -(-len(step.odd) // 2) * self.odd_tiles

    def tables(self) -> Array:
        """Put the tables in the order of their use; -> [n_tiles, 64]."""
        tabulation = self.problem.tabulation
        parts = [tabulation.dense[None]] if self.value else []
        parts += [tabulation.dense_gradient] if self.gradient else []
        by_mode = np.concatenate(parts).transpose(1, 0, 2)  # [mode, quantity, point]
        kinds = []
        for modes, n_tiles in zip(self.sorted.of_modes(by_mode), (self.even_tiles, self.odd_tiles), strict=True):
            padded = np.zeros((8 * n_tiles, *by_mode.shape[1:]))
            padded[: len(modes)] = modes
            kinds.append(padded.reshape(n_tiles, 8, *by_mode.shape[1:]))
        tiles: list[Array] = []
        for step in self.steps:
            start = step.first + (0 if step.paired else 2 * self.sorted.pairs)
            for modes, columns in zip(kinds, (step.even, step.odd), strict=True):
                for eight in modes:
                    for i in range(0, len(columns), 2):
                        tiles.append(self._tile(eight, columns[i : i + 2], start, step.count))
        return np.array(tiles).reshape(-1, 64)

    @staticmethod
    def _tile(modes: Array, columns: list[tuple[int, int]], start: int, count: int) -> Array:
        """Eight modes [8, quantity, point] in eight columns: two quantities at four points each."""
        tile = np.zeros(64)
        for side, (four, quantity) in enumerate(columns):
            for t in range(min(4, count - 4 * four)):
                tile[_SWIZZLED[2 * t + side, _PLACES]] = modes[:, quantity, start + 4 * four + t]
        return tile

    @property
    def stored(self) -> int:
        """Factors that are stored at a point."""
        kind, geometry = self.problem.form.factor_kind, self.problem.geometry
        return 0 if kind is None or geometry.affine else geometry.n_factors(kind)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        v = self.options
        chunk = max(map(self._tiles, self.steps))
        points = max(2 * self.most_pairs * (self.sorted.pairs > 0), min(8, -(-self.sorted.singles // 4) * 4))
        stage = points * GROUP * self.stored * self.problem.factors_dtype.itemsize // 8
        exchanged = self.team * self.quantities * points * 16 * (self.team > 1)
        own = v.ahead * stage + exchanged + 128 * self.team * (self.even_tiles + self.odd_tiles - v.kept)
        turns = -(-points // 2 // self.team)
        own += self.staged * self.team * v.ahead * turns * 32 * self.fields
        made_row = max(2 * (self.most_pairs + 4) * (self.sorted.pairs > 0), 12) + 2
        own += (not self.tested) * self.problem.given * 16 * made_row
        tables = 64 * (v.stages * chunk if v.stages else self.n_tiles) + 4 * max(self.even_tiles, self.odd_tiles)
        return 8 * (tables + v.warps // self.team * own)

    @property
    def registers(self) -> int:
        """Estimate of a thread's registers (of 4 bytes)."""
        products = max(-(-len(step.even) // 2) + -(-len(step.odd) // 2) for step in self.steps)
        geometry, kind = self.problem.geometry, self.problem.form.factor_kind or "wJ"
        affine = 2 * geometry.n_factors(kind) * (geometry.affine and not geometry.unit)
        tiles = self.even_tiles + self.odd_tiles
        read = self.stored + self.fields
        results = tiles * self.tested
        if self.team > 1:  # what is exchanged is in shared memory while points are gone through
            at_points = read + 2 * self.team * self.quantities + affine // 2
            # Over steps of several lengths.
            loops = (17 if read > self.stored else 6) * (tiles > 4) if self.tested else -5
            numbers = 4 * (results + self.options.kept) + max(4 * products, at_points) + loops
        else:
            numbers = 4 * (results + self.options.kept + products) + 2 * read + 2 * self.quantities + affine
        return 2 * numbers + (74 if self.options.stages else 60)

    @property
    def registers_left(self) -> int:
        """Registers of a thread, if as many blocks as wanted are on a multiprocessor."""
        warps = -(-self.options.warps * self.options.min_blocks // 4) * 4  # a quarter of a multiprocessor has its own
        return min(255, REGISTERS // (32 * warps))

    @property
    def tight(self) -> bool:
        """Whether registers spill, or shared memory leaves too little of the first cache for a team's fields."""
        fields = self.team > 1 and self.fields > 0
        return self.registers > self.registers_left or (fields and self.shared_bytes * self.options.min_blocks > CACHED)

    def source(self, name: str = "fused") -> str:
        """Source of the kernel, `language.h` apart."""
        parts = [
            constants(self.problem, self.levels, name, GROUP),
            fill("fused/parameters.h", {"FOURS": self.fours}, self.options, self.sorted),
            *map(header, COMMON_HEADERS),
            *(header(f"fused/{own}") for own in ("sizes.h", "fused.h")),
        ]
        return "\n".join(parts)

    def misfit(self, limits: Limits) -> str | None:
        """Say why the kernel does not fit a device."""
        v = self.options
        if self.threads > limits.threads or min(v.warps, v.min_blocks, v.ahead) < 1:
            return f"{self.threads} threads, {v.min_blocks} blocks, {v.ahead} steps ahead"
        if v.warps % self.team or (self.team > 1 and v.warps // self.team > TEAMS):
            return f"{v.warps} warps for {self.team} components"
        if v.stages == 1:
            return "a ring needs two stages"
        if v.kept > self.even_tiles + self.odd_tiles:
            return f"there are {self.even_tiles + self.odd_tiles} eights of modes, not {v.kept}"
        if (missing := limits.shared_misfit(self.shared_bytes, v.min_blocks)) is not None:
            return missing
        if self.registers > self.registers_left + SPILLED:
            return f"about {self.registers} registers a thread are needed"
        return None


def check_fused(problem: BlockProblem) -> None:
    """Check that a problem is one for the fused kernels."""
    form = problem.form
    if problem.tabulation.rule.tensor:
        raise NotSuitable('fused kernels are for quadrature="simplex" only')
    if not (form.from_modes and form.trace and (form.trial or form.test)):
        raise NotSuitable("products and points are fused for weak forms and functions of u at points only")
    if form.to_modes and not problem.coupled == problem.given == form.components:
        raise NotSuitable(f"{problem.coupled} components come in and {problem.given} go out")
    if problem.dtype != np.float64:
        raise NotSuitable("tensor cores are used in float64 only")
    if problem.n_modes > MODES:
        raise NotSuitable(f"results of {problem.n_modes} modes do not fit the registers of a warp, {MODES} do")
