"""Options of "sumfac-top": elements per block, threads, strides, and whether they fit on a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ....forms.sources import nearest_source, of_source
from ....geometry import FactorSource
from ..codegen.layout import numbers_read
from ..codegen.prelude import COMMON_HEADERS, constants, fill, header
from ..codegen.tables import MANY, Levels, read_at_points
from ..runtime.device import REGISTERS, Limits
from .banks import last_nodes, node_rows, row_stride

# After the first of `COMMON_HEADERS` and the parameters.
HEADERS = (
    *COMMON_HEADERS[1:],
    *(f"sumfac_top/{own}.h" for own in ("arrays", "evaluate", "test", "transfer", "sumfac_top")),
)


# Registers that a thread which reads many fields may lack: more warps are worth a few spilled numbers.
_SPILLED = 16
# Shared memory of the largest multiprocessors.
_SHARED = 228 * 1024


@dataclass(frozen=True)
class SumFacTopOptions:
    """Free choices of the kernel."""

    elements: int  # per block, E
    prefetch: int = 0  # points of a line whose factors are fetched before the first barrier
    min_blocks: int = 0  # per multiprocessor, that registers have to leave room for; 0: by the model
    # Whether the second direction's table is in shared memory, not in the constant bank; None: by the model.
    tables_shared: bool | None = None
    l2: bool = False  # whether a block asks for all its factors in the L2 cache when it starts
    late: bool = False  # whether `prefetch` is before the last barrier in front of the pointwise phase, not the first
    # Whether lines along the last direction are phases of their own, if they are not anyway: 1 on the way back, 2 on
    # the way in, 3 both; 7 both, and a thread takes lines of two elements (of an even number).
    split: int = 0
    source: FactorSource = FactorSource.STORED


def _lines_away(problem: BlockProblem, levels: Levels) -> bool:
    """Whether lines of coupled components that gradients alone need are in shared memory while points are gone through;
    with 8 points there is too little of it, and beside many fields with 7.
    """
    return problem.form.components > 1 and levels.counts[0] < (7 if read_at_points(problem) >= MANY else 8)


def _is_direct(problem: BlockProblem, levels: Levels) -> bool:
    """Whether lines of coupled components read fields whose points are beside each other, those of a warp apart."""
    return levels.reverse and read_at_points(problem) > 1 and problem.form.components > 1


class SumFacTopPlan:
    """Sizes of the kernel, as parameters.h says; the problem and options are those with all that was open chosen."""

    def __init__(self, problem: BlockProblem, levels: Levels, options: SumFacTopOptions) -> None:
        self.problem = problem = of_source(problem, options.source)
        self.levels, self.elements, self.group = levels, options.elements, options.elements
        self._written = dict[str, str]()  # by name, for all copies
        form = problem.form
        pairs = form.gradients and not problem.collocated
        q1, q2, q3 = levels.counts
        dim, e = problem.shape.dim, options.elements
        r2 = max(q2, int(levels.count[1].max()))
        self.rows = max(levels.n_rows, q1), r2  # of an array
        self.threads = -(-q2 * q3 * e // 32) * 32
        third, flat = not levels.reverse and not levels.trivial, not levels.reverse and dim == 2
        self.split_out = form.to_modes and bool((third and options.split & 1) or (flat and options.split))
        self.split_in = form.from_modes and bool((third and options.split & 2) or (flat and options.split))
        split = self.split_in or self.split_out
        self.together = 2 if options.split & 4 and e % 2 == 0 and split else 1
        self.row_stride = row_stride(problem, levels, e, self.rows, e // self.together if split else 0)
        vectors = max(problem.coupled, problem.given) if form.trace is None else 1
        self.arrays = max(dim, vectors) if form.gradients else 1
        given = problem.given * (self.arrays if form.to_modes else not levels.grid)
        self.total_arrays = max(self.arrays * form.components, given)
        self.array = -(-self.rows[0] * self.rows[1] * self.row_stride // 2) * 2

        leaves = split or levels.trivial
        self.modes_pitch = (levels.n_leaves if leaves else levels.n_modes) | 1
        needs_modes = not levels.reverse and (form.from_modes or (form.to_modes and leaves))
        most = max(form.components, problem.given * form.to_modes)
        self.modes_size = -(-most * e * self.modes_pitch // 2) * 2 if needs_modes else 0

        last = 1 if levels.trivial else 2
        self.last_pitch = q3 if pairs else q3 | 1
        if split:  # of pairs, an odd number: rows of a table in different banks
            self.last_pitch = levels.counts[last] | 1 if pairs else 2 * (-(-levels.counts[last] // 2) | 1)
        own_last = third or (flat and options.split)
        self.c_table_size = len(levels.values[last]) * self.last_pitch if own_last else 0
        shared = options.tables_shared
        if shared is None:
            shared = not levels.uniform(1) and len(levels.values[1]) * q2 > 100 and not (flat and options.split)
        self.options = replace(options, tables_shared=shared)
        self.b_table_size = len(levels.values[1]) * q2 if shared else 0
        numbers = self.total_arrays * self.array + self.modes_size
        numbers += (1 + pairs) * (self.b_table_size + self.c_table_size)
        numbers += problem.geometry.n_factors("map") * e if problem.source.recomputes else 0
        self.shared_bytes = numbers * problem.dtype.itemsize
        blocks = _blocks_by_registers(problem, levels, self.threads)
        if form.components > 1:  # registers are not spared for more blocks than have room
            blocks = min(blocks, max(1, _SHARED // (self.shared_bytes + 1024)))
        self.spills, self.min_blocks = not blocks, options.min_blocks or max(1, blocks)

    def fits(self, limits: Limits) -> bool:
        """Whether a block fits on a device."""
        return self.threads <= limits.threads and self.shared_bytes <= limits.shared_block

    def source(self, name: str = "sumfac_top") -> str:
        """Source of the kernel, `language.h` apart."""
        if name not in self._written:
            self._written[name] = self._write(name)
        return self._written[name]

    def _write(self, name: str) -> str:
        options, levels = self.options, self.levels
        own = {
            "E": self.elements,
            "LS": self.row_stride,
            "R2": self.rows[1],
            "PREFETCH": min(options.prefetch, levels.counts[0]) if numbers_read(self.problem) else 0,
            "L2_PREFETCH": options.l2,
            "GRID": levels.grid,
            "LINES_AWAY": _lines_away(self.problem, levels),
            **self._structures(),
        }
        parts = [
            constants(self.problem, levels, name, self.elements),
            header(COMMON_HEADERS[0]),
            fill("sumfac_top/parameters.h", own, self, options, levels),
            *map(header, HEADERS),
        ]
        return "\n".join(parts)

    def _structures(self) -> dict[str, Any]:
        """Lines of the last direction and leaves as structures of parameters.h."""
        levels, r2 = self.levels, self.rows[1]
        nodes, rows = last_nodes(levels, r2), node_rows(levels, r2)
        parents = np.repeat(np.arange(levels.n_nodes), levels.count[2])
        functions = levels.start[2][parents] + np.arange(levels.n_leaves) - levels.child[2][parents]
        first, following = levels.chains()
        more = np.flatnonzero(~np.isin(np.arange(levels.n_leaves), first))
        place = np.full(levels.n_leaves + 1, -1)
        place[more] = np.arange(len(more))
        leaves = np.column_stack([np.arange(levels.n_leaves), rows[parents], functions, place[following]])
        return {
            "N_LAST": len(nodes),
            "NODES": nodes,
            "MODE_LEAVES": leaves[first],
            "MORE_LEAVES": leaves[more] if len(more) else leaves[:1],
        }


def _line_registers(problem: BlockProblem, levels: Levels) -> int:
    """Estimate of the registers (of 4 bytes) that a thread needs on its line along the first direction."""
    form, dim = problem.form, problem.shape.dim
    factors = problem.geometry.n_factors(form.factor_kind) if form.factor_kind else 0
    point, lines = 0, 2  # lines of values, and of what is tested
    if form.components > 1:  # all gradients of a point are there at the same time, with its fields and results
        point = read_at_points(problem) + form.components * dim + problem.given * (not form.to_modes)
        if _lines_away(problem, levels):
            lines = (form.trial_value or not form.trial_gradient) + form.test_value
    if problem.source.recomputes:  # the rows of a line, and what is made of them at a point
        factors = (dim * len(problem.geometry.map_lines(range(dim)).directions) + dim**2 + 2) // 2
    if not form.gradients:
        numbers = 2 * form.components * levels.n_rows + 2 * factors + 4
    elif problem.collocated:
        numbers = lines * form.components * levels.counts[0] + 2 * factors + 4 * dim
    else:
        numbers = 2 * form.components * dim * levels.n_rows + 2 * factors + 4 * dim
    return problem.dtype.itemsize // 4 * (numbers + point) + 30


def _blocks_by_registers(problem: BlockProblem, levels: Levels, threads: int) -> int:
    """Blocks per multiprocessor that leave each thread the registers its line needs, at most 2048 threads; 0: none."""
    need = _line_registers(problem, levels)
    if _is_direct(problem, levels):  # a quarter of the warps has a quarter of the registers
        resident = 4 * (REGISTERS // 4 // (-(-min(255, need - _SPILLED) // 8) * 256)) // (threads // 32)
    else:
        resident = REGISTERS // (threads * (-(-min(255, max(40, need)) // 8) * 8))
    return min(resident, 2048 // threads, 16)


def with_nearest_source(problem: BlockProblem, options: SumFacTopOptions) -> SumFacTopOptions:
    """The same options with the possible source of factors that is most like theirs."""
    return replace(options, source=nearest_source(problem, options.source))


def default_plans(
    problem: BlockProblem, levels: Levels, limits: Limits, source: FactorSource = FactorSource.STORED
) -> list[SumFacTopPlan]:
    """Plans that fit, the most promising first by a model of idle lanes and resident warps."""
    q2, q3 = levels.counts[1:]
    warp_rows = not (levels.uniform(1) and (levels.uniform(2) or levels.trivial))
    found: list[tuple[float, SumFacTopPlan]] = []
    direct, coupled = _is_direct(problem, levels), problem.form.components > 1
    for e in range(1, 65):
        if e > 1 and q2 * q3 * e > 512:
            break
        candidate = SumFacTopPlan(problem, levels, SumFacTopOptions(e, source=source))
        if not candidate.fits(limits):
            break
        lanes = q3 * e
        used = q2 * lanes / candidate.threads
        if warp_rows:
            used *= (lanes / (32 * -(-lanes // 32))) ** 0.5
        resident = min(
            limits.shared_multiprocessor // (candidate.shared_bytes + 1024),
            candidate.min_blocks,
            2048 // candidate.threads,
        )
        warps = candidate.threads / 32
        # Twelve resident warps hide the memory; blocks should be small enough to be in different phases.
        # What is read directly stays in the L1 cache of small blocks.
        score = min(1.0, warps * resident / 12) * min(1.0, 0.5 + 0.2 * resident if direct else 0.7 + 0.1 * resident)
        if direct or levels.grid:  # blocks of few warps, even with idle lanes, were the fastest of all orders
            score *= used ** (1.0 if coupled else 0.5) * min(1.0, 1.1 - warps / 12)
        else:
            score *= used * min(1.0, 0.6 + 0.1 * warps) * min(1.0, 1.4 - warps / 20)
        score *= 0.5 if candidate.spills and coupled else 1.0
        found.append((score, candidate))
    if not found:
        smallest = SumFacTopPlan(problem, levels, SumFacTopOptions(1))
        raise NotSuitable(
            f"one element needs {smallest.shared_bytes} bytes of shared memory and {smallest.threads} threads; a block"
            f" has at most {limits.shared_block} and {limits.threads}"
        )
    found.sort(key=lambda pair: -pair[0])
    return [candidate for _, candidate in found]


def checked_plan(problem: BlockProblem, levels: Levels, options: SumFacTopOptions, limits: Limits) -> SumFacTopPlan:
    """Plan of options that are to fit on a device."""
    if not 1 <= options.elements <= limits.threads:
        raise NotSuitable(f"{options.elements} elements in a block of threads, 1 to {limits.threads} are possible")
    found = SumFacTopPlan(problem, levels, options)
    if not found.fits(limits):
        raise NotSuitable(
            f"{options.elements} element(s) need {found.shared_bytes} bytes of shared memory and {found.threads}"
            f" threads; a block has at most {limits.shared_block} and {limits.threads}"
        )
    return found
