"""Search for the fastest options of the dense kernels: kinds of them, then the neighbours of the fastest."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from itertools import product

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ..runtime.device import REGISTERS, Limits
from .element_matrices import ElementMatrices
from .plan import DenseOptions, DensePlan, check_dense, fitting, known_dense

# Options that a round of the search tries at most.
NEIGHBOURS = 8
# Tiles from which on a ring is worth trying.
RING_TILES = 80


def dense_configs(problem: BlockProblem, matrices: ElementMatrices, limits: Limits) -> list[DenseOptions]:
    """Options that fit, the most promising first.

    Parameters
    ----------
    problem : BlockProblem
    matrices : ElementMatrices
        Of the problem's tabulation.
    limits : Limits
        Of the device.

    Returns
    -------
    list of DenseOptions

    Raises
    ------
    NotSuitable
        If none fits.
    """
    check_dense(problem)
    candidates = [DenseOptions(warps, 0, 0, True, blocks) for warps in (4, 2) for blocks in (8, 6, 5, 4, 3, 2)]
    sizes = DensePlan(problem, matrices, DenseOptions(1))
    rings = [(0, 24), *([(3, 24), (2, 24), (2, 48), (3, 48)] if sizes.used_tiles >= RING_TILES else [])]
    rows = [n for n in (2, 1, 3) if n <= max(1, sizes.r_tiles)]
    numbers = product((4, 6, 8, 12, 10, 16), (1, 2), rings, (True, False), (4, 3, 2, 1), rows)
    candidates += [DenseOptions(w, m, s, kept, blocks, chunk, n) for w, m, (s, chunk), kept, blocks, n in numbers]
    found = []
    for options in candidates:
        plan = DensePlan(problem, matrices, options)
        if fitting(plan, limits) is None:
            found.append((expected_speed(plan), options))
    if not found:
        raise NotSuitable(f"the matrices of {problem.n_modes} modes do not fit a block's shared memory")
    found.sort(key=lambda pair: -pair[0])
    return [options for _, options in found]


def default_dense(problem: BlockProblem, matrices: ElementMatrices, limits: Limits) -> DenseOptions:
    """The options to take where nobody has searched: the measured one if it fits, else the model's.

    Parameters
    ----------
    problem, matrices, limits
        As for `dense_configs`.

    Returns
    -------
    DenseOptions

    Raises
    ------
    NotSuitable
        If none fits.
    """
    known = known_dense(problem)
    if known is not None and fitting(DensePlan(problem, matrices, known), limits) is None:
        return known
    return dense_configs(problem, matrices, limits)[0]


def first_dense(
    problem: BlockProblem, matrices: ElementMatrices, limits: Limits, table: bool = True
) -> list[DenseOptions]:
    """Options of each kind to time first: the one to be taken unmeasured, then the most promising of every kind.

    Parameters
    ----------
    problem, matrices, limits
        As for `dense_configs`.
    table : bool
        Whether measured configs count.

    Returns
    -------
    list of DenseOptions

    Raises
    ------
    NotSuitable
        If none fits.
    """
    own = [default_dense(problem, matrices, limits)] if table else []
    kinds: dict[tuple[int, bool, bool], DenseOptions] = {}
    for options in [*own, *dense_configs(problem, matrices, limits)]:
        kinds.setdefault((options.tiles, options.stages > 0, options.kept), options)
    return list(kinds.values())


def dense_search(
    problem: BlockProblem, matrices: ElementMatrices, limits: Limits, table: bool = True
) -> Generator[list[DenseOptions], Mapping[DenseOptions, float], None]:
    """Search in three rounds: kinds, then twice the neighbours of the two fastest.

    Parameters
    ----------
    problem, matrices, limits, table
        As for `first_dense`.

    Yields
    ------
    list of DenseOptions
        To be timed; send the seconds of all that were timed so far, in any round.
    """
    timed = yield first_dense(problem, matrices, limits, table)
    promising = dense_configs(problem, matrices, limits)
    for _ in range(2):
        ranked = sorted(timed, key=lambda options: timed[options])
        near = [v for best in ranked[:2] for v in promising if v not in timed and differences(best, v) <= 1]
        timed = yield list(dict.fromkeys(near))[:NEIGHBOURS]


def differences(a: DenseOptions, b: DenseOptions) -> int:
    """How far two configs are apart: fields that differ, numbers that are not next to each other twice."""
    warps, blocks = sorted((a.warps, b.warps)), abs(a.min_blocks - b.min_blocks)
    total = int((a.stages, a.chunk) != (b.stages, b.chunk))
    total += 0 if warps[0] == warps[1] else 1 if warps[1] <= 1.5 * warps[0] else 2
    # The same number of warps on a multiprocessor in more or fewer blocks is one step.
    if a.warps * a.min_blocks == b.warps * b.min_blocks:
        total, blocks = min(total, 1), 0
    return total + min(blocks, 2) + abs(a.rows - b.rows) + (a.tiles != b.tiles) + (a.kept != b.kept)


def expected_speed(plan: DensePlan) -> float:
    """Relative speed of a plan, from the resident warps and the registers that they have."""
    v, p = plan.options, plan.problem
    warps = v.warps * v.min_blocks
    # What the compiler would like to have beyond what it needs.
    room = min(255, REGISTERS // (plan.threads * v.min_blocks)) - plan.registers
    speed = min(1.0, 0.75 + room / 160)
    if v.tiles == 0:
        return speed * min(1.0, warps / 16) * min(1.5, 16 / p.n_modes)
    speed *= min(1.0, 0.4 + 0.6 * warps / 12) * (0.9 if v.tiles > 1 else 1.0) * (0.95 if v.rows == 1 else 1.0)
    return speed * (0.85 if v.stages else 1.0) * (1.0 if v.kept else 0.8) * (1.02 if v.stages == 3 else 1.0)
