"""Options of the fiber kernel: elements per block, threads, strides, and whether they fit on a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ..codegen.banks import row_stride
from ..codegen.tables import Levels
from ..runtime.device import REGISTERS, Limits
from ..runtime.measured import known_row

# Threads, and so elements, of a block of the kernel with one element per thread.
LANE_THREADS = 64
# Numbers of 8 bytes that such a thread may keep in registers, and points of an element whose loops are unrolled.
LANE_NUMBERS, LANE_POINTS = 90, 150


@dataclass(frozen=True)
class SumFacTopOptions:
    """Free choices of the fiber kernel.

    Attributes
    ----------
    elements : int
        Elements per block, E.
    prefetch : int
        Points of an x-line whose factors are fetched before the first barrier.
    min_blocks : int
        Blocks per multiprocessor that registers have to leave room for; 0: by the model.
    tables_shared : bool or None
        Whether the second direction's table is in shared memory rather than in the constant bank; None: by the model.
    l2 : bool
        Whether a block asks for all its factors in the L2 cache when it starts.
    late : bool
        Whether `prefetch` happens before the last barrier in front of the pointwise phase, not the first.
    split : int
        Whether lines along the last direction are phases of their own, if they are not anyway: 1 on the way back, 2 on
        the way in, 3 both; 7 both, and a thread takes lines of two elements (of an even number).
    """

    elements: int
    prefetch: int = 0
    min_blocks: int = 0
    tables_shared: bool | None = None
    l2: bool = False
    late: bool = False
    split: int = 0


# What the kernel with one element per thread has of these: factors of 32 elements side by side, a warp's.
LANE = SumFacTopOptions(32)


@dataclass(frozen=True)
class SumFacTopPlan:
    """Sizes of the fiber kernel for a problem and a options; names as in sumfac_top.h.

    Attributes
    ----------
    options : SumFacTopOptions
    threads, row_stride, rows, arrays, total_arrays, modes_size, modes_pitch : int
        Threads per block; LS; most rows, and R2; arrays per component and in all; numbers of `modes` and an element's.
    table2, table3 : int
        Entries of the second and of the last direction's tables in shared memory.
    last_pitch : int
        Entries between functions of the last direction's table.
    shared_bytes : int
        Shared memory of a block.
    min_blocks : int
        For `__launch_bounds__`.
    lines : int
        Lines along the first direction of a block.
    split_in, split_out : bool
        Whether lines along the last direction are phases of their own.
    together : int
        Elements whose lines along the last direction a thread takes.
    """

    options: SumFacTopOptions
    threads: int
    row_stride: int
    rows: tuple[int, int]
    arrays: int
    total_arrays: int
    modes_size: int
    modes_pitch: int
    table2: int
    table3: int
    last_pitch: int
    shared_bytes: int
    min_blocks: int
    lines: int
    split_in: bool
    split_out: bool
    together: int

    @property
    def lines_padded(self) -> int:
        """Lines of a block in the layout of stored factors."""
        return -(-self.lines // 4) * 4

    def fits(self, limits: Limits) -> bool:
        """Whether a block fits on a device."""
        return self.threads <= limits.threads and self.shared_bytes <= limits.shared_block


def flags(problem: BlockProblem) -> dict[str, bool]:
    """What a problem's kernel does, in the words of sumfac_top.h."""
    form = problem.form
    return {
        "from_modes": form.from_modes,
        "to_modes": form.to_modes,
        "gradient_in": form.trial_gradient,
        "gradient_out": form.test_gradient,
        "collocated": problem.collocated,
        "pairs": form.gradients and not problem.collocated,
    }


def plan(problem: BlockProblem, levels: Levels, options: SumFacTopOptions) -> SumFacTopPlan:
    """Sizes for a options.

    Parameters
    ----------
    problem : BlockProblem
    levels : Levels
        Of the problem's tabulation.
    options : SumFacTopOptions

    Returns
    -------
    SumFacTopPlan
    """
    what = flags(problem)
    q1, q2, q3 = levels.counts
    dim, e = problem.shape.dim, options.elements
    itemsize = problem.dtype.itemsize
    rows = (max(levels.n_rows, q1), max(q2, int(levels.count[1].max())))
    lines = q2 * q3 * e
    threads = -(-lines // 32) * 32
    third, flat = not levels.reverse and not levels.trivial, not levels.reverse and dim == 2
    split_out = what["to_modes"] and bool((third and options.split & 1) or (flat and options.split))
    split_in = what["from_modes"] and bool((third and options.split & 2) or (flat and options.split))
    together = 2 if options.split & 4 and e % 2 == 0 and (split_in or split_out) else 1
    stride = row_stride(levels, e, rows, itemsize, what, e // together if split_in or split_out else 0)
    components = problem.form.components
    vectors = max(problem.coupled, problem.given) // components
    arrays = max(dim, vectors) if problem.form.gradients else 1
    total = arrays * components
    size = -(-rows[0] * rows[1] * stride // 2) * 2
    leaves = split_in or split_out or levels.trivial
    pitch = (levels.n_leaves if leaves else levels.n_modes) | 1
    needs_modes = not levels.reverse and (what["from_modes"] or (what["to_modes"] and leaves))
    modes = -(-components * e * pitch // 2) * 2 if needs_modes else 0
    last = 1 if levels.trivial else 2
    last_pitch = q3 if what["pairs"] else q3 | 1
    if split_in or split_out:  # of pairs, an odd number: rows of a table in different banks
        last_pitch = levels.counts[last] | 1 if what["pairs"] else 2 * (-(-levels.counts[last] // 2) | 1)
    table3 = len(levels.values[last]) * last_pitch if third or (flat and options.split) else 0
    shared2 = options.tables_shared
    if shared2 is None:
        shared2 = not levels.uniform(1) and len(levels.values[1]) * q2 > 100 and not (flat and options.split)
    table2 = len(levels.values[1]) * q2 if shared2 else 0
    width = 2 if what["pairs"] else 1
    shared = (total * size + modes + width * (table2 + table3)) * itemsize
    return SumFacTopPlan(
        replace(options, tables_shared=shared2),
        threads,
        stride,
        rows,
        arrays,
        total,
        modes,
        pitch,
        table2,
        table3,
        last_pitch,
        shared,
        options.min_blocks or blocks_by_registers(problem, levels, threads),
        lines,
        split_in,
        split_out,
        together,
    )


def line_registers(problem: BlockProblem, levels: Levels) -> int:
    """Estimate of the registers (of 4 bytes) that a thread needs on its x-line."""
    what, n, q = flags(problem), levels.n_rows, levels.counts[0]
    dim, words = problem.shape.dim, problem.dtype.itemsize // 4
    kind = problem.form.factor_kind
    factors = problem.geometry.n_factors(kind) if kind else 0
    c = problem.form.components
    if what["pairs"]:
        numbers = c * 2 * dim * n + 2 * factors + 4 * dim
    elif what["gradient_in"] or what["gradient_out"]:
        numbers = c * 2 * q + 2 * factors + 4 * dim
    else:
        numbers = c * 2 * n + 2 * factors + 4
    return words * numbers + 30


def blocks_by_registers(problem: BlockProblem, levels: Levels, threads: int) -> int:
    """Blocks per multiprocessor that leave each thread the registers its line needs, at most 2048 threads."""
    need = min(255, max(40, line_registers(problem, levels)))
    return max(1, min(REGISTERS // (threads * (-(-need // 8) * 8)), 2048 // threads, 16))


def known_options(problem: BlockProblem) -> SumFacTopOptions | None:
    """Measured options of a problem."""
    row = known_row(problem, "sumfac-top")
    return None if row is None else SumFacTopOptions(*row[1:])


def default_plans(problem: BlockProblem, levels: Levels, limits: Limits) -> list[SumFacTopPlan]:
    """Plans that fit, the most promising first by a model of idle lanes and resident warps.

    Parameters
    ----------
    problem : BlockProblem
    levels : Levels
        Of the problem's tabulation.
    limits : Limits
        Of the device.

    Returns
    -------
    list of SumFacTopPlan

    Raises
    ------
    NotSuitable
        If not even one element fits.
    """
    q2, q3 = levels.counts[1:]
    warp_rows = not (levels.uniform(1) and (levels.uniform(2) or levels.trivial))
    found: list[tuple[float, SumFacTopPlan]] = []
    for e in range(1, 65):
        if e > 1 and q2 * q3 * e > 512:
            break
        candidate = plan(problem, levels, SumFacTopOptions(e))
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
        score = used * min(1.0, warps * resident / 12) * min(1.0, 0.7 + 0.1 * resident)
        score *= min(1.0, 0.6 + 0.1 * warps) * min(1.0, 1.4 - warps / 20)
        found.append((score, candidate))
    if not found:
        smallest = plan(problem, levels, SumFacTopOptions(1))
        raise NotSuitable(
            f"one element needs {smallest.shared_bytes} bytes of shared memory and {smallest.threads} threads; a block"
            f" has at most {limits.shared_block} and {limits.threads}"
        )
    found.sort(key=lambda pair: -pair[0])
    return [candidate for _, candidate in found]


def default_options(problem: BlockProblem, levels: Levels, limits: Limits) -> SumFacTopOptions:
    """The options to take where nobody has searched: the measured one if it fits, else the model's.

    Parameters
    ----------
    problem, levels, limits
        As for `default_plans`.

    Returns
    -------
    SumFacTopOptions

    Raises
    ------
    NotSuitable
        If not even one element fits.
    """
    known = known_options(problem)
    if known is not None and plan(problem, levels, known).fits(limits):  # it may be of a larger device
        return known
    return SumFacTopOptions(default_plans(problem, levels, limits)[0].options.elements)


def checked_plan(problem: BlockProblem, levels: Levels, options: SumFacTopOptions, limits: Limits) -> SumFacTopPlan:
    """Plan of a options that is to fit on a device.

    Parameters
    ----------
    problem, levels, options
        As for `plan`.
    limits : Limits
        Of the device.

    Returns
    -------
    SumFacTopPlan

    Raises
    ------
    NotSuitable
        If it does not fit.
    """
    if not 1 <= options.elements <= limits.threads:
        raise NotSuitable(f"{options.elements} elements in a block of threads, 1 to {limits.threads} are possible")
    found = plan(problem, levels, options)
    if not found.fits(limits):
        raise NotSuitable(
            f"{options.elements} element(s) need {found.shared_bytes} bytes of shared memory and {found.threads}"
            f" threads; a block has at most {limits.shared_block} and {limits.threads}"
        )
    return found


def sumfac_plan(problem: BlockProblem, levels: Levels) -> SumFacTopPlan:
    """Plan of the kernel with one element per thread: the layout of factors of 32 elements.

    Parameters
    ----------
    problem : BlockProblem
    levels : Levels
        Of the problem's tabulation, directions in its order.

    Returns
    -------
    SumFacTopPlan

    Raises
    ------
    NotSuitable
        If an element does not fit a thread, or the form differentiates at the points.
    """
    what, form = flags(problem), problem.form
    if (what["gradient_in"] or what["gradient_out"]) and what["collocated"]:
        raise NotSuitable("one element per thread is noncollocated; use algorithm='noncollocated'")
    if form.components > 1:
        raise NotSuitable("one element per thread couples no components")
    deep = problem.shape.dim > 2 and what["pairs"]
    numbers = levels.n_modes * (1 + levels.trivial) + levels.n_nodes * (4 if deep else 2)
    numbers += 2 * levels.n_rows * (problem.shape.dim if what["pairs"] else 1)
    numbers = numbers * problem.dtype.itemsize // 8
    if problem.n_points > LANE_POINTS:
        raise NotSuitable(
            f"one element has {problem.n_points} points, {LANE_POINTS} are unrolled in a thread's registers"
        )
    if numbers > LANE_NUMBERS:
        raise NotSuitable(f"one element needs {numbers} numbers in a thread's registers, {LANE_NUMBERS} fit")
    return plan(problem, levels, LANE)
