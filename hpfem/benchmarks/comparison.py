"""Comparison of all ways to apply one operator on a mesh: agreement, times in turns, operations and bytes.

A way is what a strategy can build for a block, among them what "auto" takes. On another quadrature results differ, so
its ways stand apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..backends.base import choose_backend, vectors_on
from ..backends.timer import Timer, Timing
from ..errors import ArgumentError, NotSuitable
from ..forms.cost import operator_bytes
from ..forms.form import BlockKernel
from ..memory import HOST
from ..mesh import Mesh
from ..operators import Helmholtz, Operator
from ..space.arguments import Quadrature, simplex_rules
from ..space.space import Space
from ..support.threads import thread_count
from ..tuning.select import candidates
from ..tuning.store import Config
from .results import Measurement
from .tiled import TiledKernel, TiledProblem
from .turns import Gain, gain, time_in_turns

# Dense matrices use derivatives directly, as in the paper; the others are compared with them.
REFERENCE = ("stdmat", "noncollocated")
# Of a block of fewer degrees of freedom, for a thread or on a device, copies are timed: alone the call takes as long.
THREAD_DOFS, DEVICE_DOFS = 30_000, 3_000_000


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(Measurement):
    """One way on one block."""

    flops: float
    nbytes: float
    difference: float  # largest difference to the first way over the largest value, on random coefficients
    behind: Gain  # how many times as fast the fastest is
    precision_error: float = 0.0  # relative error of the operator by rounded factors; see `Operator.precision_error`
    quadrature: str = ""  # "simplex" for rows with this rule instead of the space's rule
    # How many copies of the block's cells were timed; degrees of freedom, operations and bytes are of all copies.
    copies: int = 1
    # Whether it is the fastest of those with the same results; of several without difference, the one that "auto"
    # takes, else that of fewest operations.
    fastest: bool = False

    @property
    def way(self) -> str:
        """Name for tables."""
        return " ".join(filter(None, (self.strategy, self.algorithm, self.variant, self.quadrature)))


@dataclass
class _Way:
    """A kernel of a block, its result on the block, and what is timed."""

    config: Config
    kernel: BlockKernel
    rule: str
    options: str
    chosen: bool
    result: NDArray[Any]
    call: Callable[[], object]


def compare_algorithms(
    mesh: Mesh,
    order: int,
    *,
    lam: float = 1.0,
    basis: str = "modified",
    quadrature: Quadrature = None,
    dtype: DTypeLike = np.float64,
    backend: str = "auto",
    precision: str = "full",
    repeats: int = 25,
    min_seconds: float = 0.0003,
    timer: Timer | None = None,
) -> Iterator[ComparisonRow]:
    """Apply the Helmholtz operator to random coefficients in every way, block by block.

    Parameters
    ----------
    mesh : Mesh
    order : int
        Polynomial order of all shapes.
    lam : float
        Reaction coefficient.
    basis, quadrature, dtype, backend
        See `Space`. Collocation is compared on the collapsed rule, as "simplex" has none, and that rule with it.
    precision : str
        See `Operator`; of all ways.
    repeats : int
        Turns in which each way is timed; more, until the differences are settled.
    min_seconds : float
        A sample has as many calls as take about this long.
    timer : Timer, optional
        The backend's when left out.

    Yields
    ------
    ComparisonRow
        The ways of a block, fastest first.
    """
    chosen = choose_backend(backend)
    quadrature = "collapsed" if quadrature in (None, "simplex") else quadrature
    space = Space(mesh, order, basis=basis, quadrature=quadrature, dtype=dtype, backend=chosen.name)
    rules = dict.fromkeys(simplex_rules(space.orders) if quadrature == "collapsed" else (), "simplex")
    spaces = {"": space, **({"simplex": space.at(quadrature=rules)} if rules else {})}
    operators = {rule: Helmholtz(on, lam=lam, precision=precision) for rule, on in spaces.items()}
    rounding = max(operator.precision_error for operator in operators.values())
    for operator, number in product(operators.values(), range(len(space.blocks))):
        for provider, candidate in candidates(operator.problem(number), "auto", "auto", chosen).values():
            with suppress(NotSuitable, ArgumentError):  # Said by nobody: it is no way.
                provider.prepare(candidate, provider.default(candidate))
    enough = THREAD_DOFS * thread_count() if chosen.device().name == HOST.name else DEVICE_DOFS
    for number, block in enumerate(space.blocks):
        copies = math.ceil(enough / (block.n_elements * block.n_modes))
        ways: list[_Way] = []
        for rule, operator in operators.items():
            if not (rule and operator.space.blocks[number].rule.tensor):
                ways += _ways(operator, number, rule, copies)
        calls = {i: way.call for i, way in enumerate(ways)}
        times = time_in_turns(calls, timer or chosen.timer(), repeats, min_seconds)
        first = _fastest(ways, times)
        reference = next((way for way in ways if way.config[:2] == REFERENCE), ways[0]).result
        direct = {(w.config.strategy, w.rule): i for i, w in enumerate(ways) if w.config.algorithm == "noncollocated"}
        for i in sorted(times, key=lambda i: (ways[i].rule, i != first, times[i].median)):
            way, timing, n_cells = ways[i], times[i], copies * block.n_elements
            other = direct.get((way.config.strategy, way.rule)) if way.config.algorithm == "collocated" else None
            yield ComparisonRow.of(
                way.kernel.problem,
                timing,
                n_cells * block.n_modes,
                benchmark="compare",
                shape=block.shape.name,
                geometry=block.geometry.kind.name,
                strategy=way.config.strategy,
                algorithm=way.config.algorithm or "",
                backend=chosen.name,
                dtype=space.dtype.name,
                order=order,
                n_cells=block.n_elements,
                flops=float(way.kernel.flops * n_cells),
                nbytes=float(operator_bytes(way.kernel.problem) * n_cells),
                difference=float(np.abs(way.result - reference).max() / np.abs(reference).max()),
                behind=gain(times[first], timing),
                collocation=None if other is None else gain(timing, times[other]),
                precision_error=rounding,
                quadrature=way.rule,
                variant=way.options or None,
                copies=copies,
                chosen=way.chosen,
                fastest=i == first,
            )


def _fastest(ways: Sequence[_Way], times: Mapping[int, Timing]) -> int:
    """The fastest way with the same results; of several without difference what "auto" takes, else the least work."""
    same = [i for i, way in enumerate(ways) if not way.rule]
    # Of which none is much faster in the same turns: medians may be of different turns.
    best = min(same, key=lambda i: max(gain(times[j], times[i]).median for j in same))
    equal = [i for i in same if not gain(times[best], times[i]).sign]
    return min(equal, key=lambda i: (not ways[i].chosen, ways[i].kernel.flops, i))


def _ways(operator: Operator, number: int, rule: str, copies: int) -> list[_Way]:
    """All kernels of a block, also of other options than a strategy's own where "auto" takes them."""
    problem, backend, auto = operator.problem(number), operator.backend, operator.choices[number].config
    asked = {auto: auto.options or ""}
    for config, (provider, candidate) in candidates(problem, "auto", "auto", backend).items():
        if config.strategy != REFERENCE[0] or config.algorithm == REFERENCE[1]:
            with suppress(NotSuitable):
                asked[config._replace(options=provider.default(candidate))] = ""
    tiled, n_cells = TiledProblem(problem, backend.name), copies * problem.n_elements
    vectors = vectors_on(backend.device())
    (given, out), large, ways = tiled.arrays(n_cells), problem, list[_Way]()
    for config, options in asked.items():
        if copies > 1 and (large is problem or vectors.device.name != HOST.name):
            # On the host all share the factors: other pages of memory would be a little faster or slower.
            large = tiled.tiled(n_cells)
        with suppress(NotSuitable, ArgumentError):
            on = replace(large, algorithm=config.algorithm or "collocated")
            kernel = backend.strategy(config.strategy).build(on, config.options)
            kernel = TiledKernel(kernel, tiled.xp).kernel if copies > 1 else kernel
            kernel.apply(given, out)
            result = vectors.to_host(out[:, : problem.n_elements])
            # What computes the same numbers by as many operations in both algorithms has none.
            alike = [way for way in ways if way.config.strategy == config.strategy and way.kernel.flops == kernel.flops]
            if not options and alike and np.array_equal(alike[0].result, result):
                alike[0].config = alike[0].config._replace(algorithm=None)
                continue
            ways.append(_Way(config, kernel, rule, options, config == auto, result, partial(kernel.apply, given, out)))
    return ways
