"""Strategy "sumfac-top" of backend "cuda": some elements per block of threads."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..codegen.layout import numbers_read
from ..codegen.prelude import constants, fill, header, program
from ..codegen.tables import Levels
from ..runtime.device import architecture, limits
from ..runtime.measured import expected_time, shipped_rate
from ..runtime.nvrtc import start
from ..runtime.tree_kernel import TreeKernel
from .banks import last_nodes, node_rows
from .plan import SumFacTopOptions, SumFacTopPlan, checked_plan, default_options
from .search import search

HEADERS = (
    "codegen/geometry.h",
    "codegen/pointwise.h",
    "codegen/restriction.h",
    "codegen/coefficients.h",
    "sumfac_top/arrays.h",
    "sumfac_top/evaluate.h",
    "sumfac_top/test.h",
    "sumfac_top/transfer.h",
    "sumfac_top/sumfac_top.h",
)


def source(levels: Levels, plan: SumFacTopPlan, name: str = "sumfac_top") -> str:
    """Source of the kernel, `language.h` apart."""
    problem, options = plan.problem, plan.options
    own = {
        "E": options.elements,
        "LS": plan.row_stride,
        "R2": plan.rows[1],
        "PREFETCH": min(options.prefetch, levels.counts[0]) if numbers_read(problem) else 0,
        "L2_PREFETCH": options.l2,
        **_structures(levels, plan.rows[1]),
    }
    parts = [
        constants(problem, levels, name, options.elements),
        header("codegen/helpers.h"),
        fill("sumfac_top/parameters.h", own, plan, options, levels),
        *map(header, HEADERS),
    ]
    return "\n".join(parts)


def _structures(levels: Levels, r2: int) -> dict[str, Any]:
    """Lines of the last direction and leaves as structures of parameters.h."""
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


class SumFacTopKernel(TreeKernel):
    """Sum factorisation with the elements of a block's threads side by side, 1-D lines in registers.

    Parameters
    ----------
    layout : SumFacTopPlan
    """

    def __init__(self, layout: SumFacTopPlan) -> None:
        problem = layout.problem
        levels, elements = Levels.of(problem.tabulation), layout.options.elements
        block = elements, layout.threads, layout.shared_bytes
        super().__init__(problem, "sumfac-top", levels, source(levels, layout), elements, block)


class CudaSumFacTop(Strategy):
    """Sum factorisation, some elements per block of threads ([Xing] Alg. 4), 1-D lines in registers."""

    name, special, tensor = "sumfac-top", False, True

    def default(self, problem: BlockProblem) -> Options:
        """The measured options if they fit, else the model's best number of elements; see `Strategy.default`."""
        return text.to_text(default_options(problem, Levels.of(problem.tabulation), limits()))

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def search(self, problem: BlockProblem) -> Search:
        """Elements per block, options one by one, then those that helped together; see `Strategy.search`."""
        rounds = search(problem, Levels.of(problem.tabulation), limits())
        yield from text.search_in_text(rounds, SumFacTopOptions)

    def _plan(self, problem: BlockProblem, options: Options) -> SumFacTopPlan:
        levels = Levels.of(problem.tabulation)
        if options is None:
            return SumFacTopPlan(problem, levels, default_options(problem, levels, limits()))
        return checked_plan(problem, levels, text.from_text(SumFacTopOptions, options), limits())

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        text_of_kernel = source(Levels.of(problem.tabulation), self._plan(problem, options))
        return start(program(text_of_kernel), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> SumFacTopKernel:
        """Build the kernel; see `Strategy.build`."""
        return SumFacTopKernel(self._plan(problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds; see `Strategy.cost`."""
        return expected_time(problem, self.name)
