"""Search for the fastest variant of the dense kernels: kinds of them, then the neighbours of the fastest."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from itertools import product

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ..sumfac_top.plan import REGISTERS, Limits
from .element_matrices import ElementMatrices
from .plan import DensePlan, DenseVariant, check_dense, fitting, known_dense

# Variants that a round of the search tries at most.
NEIGHBOURS = 8
# Tiles from which on a ring is worth trying.
RING_TILES = 80


def dense_variants(problem: BlockProblem, matrices: ElementMatrices, limits: Limits) -> list[DenseVariant]:
    """Variants that fit, the most promising first.

    Parameters
    ----------
    problem : BlockProblem
    matrices : ElementMatrices
        Of the problem's tabulation.
    limits : Limits
        Of the device.

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
    return [variant for _, variant in found]


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
    if known is not None and fitting(DensePlan(problem, matrices, known), limits) is None:
        return known
    return dense_variants(problem, matrices, limits)[0]


def first_dense(
    problem: BlockProblem, matrices: ElementMatrices, limits: Limits, table: bool = True
) -> list[DenseVariant]:
    """Variants of each kind to time first: the one to be taken unmeasured, then the most promising of every kind.

    Parameters
    ----------
    problem, matrices, limits
        As for `dense_variants`.
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
    own = [default_dense(problem, matrices, limits)] if table else []
    kinds: dict[tuple[int, bool, bool], DenseVariant] = {}
    for variant in [*own, *dense_variants(problem, matrices, limits)]:
        kinds.setdefault((variant.tiles, variant.stages > 0, variant.kept), variant)
    return list(kinds.values())


def dense_search(
    problem: BlockProblem, matrices: ElementMatrices, limits: Limits, table: bool = True
) -> Generator[list[DenseVariant], Mapping[DenseVariant, float], None]:
    """Search in three rounds: kinds, then twice the neighbours of the two fastest.

    Parameters
    ----------
    problem, matrices, limits, table
        As for `first_dense`.

    Yields
    ------
    list of DenseVariant
        To be timed; send the seconds of all that were timed so far, in any round.
    """
    timed = yield first_dense(problem, matrices, limits, table)
    promising = dense_variants(problem, matrices, limits)
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
