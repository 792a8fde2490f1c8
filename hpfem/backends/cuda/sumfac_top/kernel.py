"""Sum factorisation with some elements per block of threads: the kernel's source, and it ready to launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....forms.form import BlockProblem
from ..codegen.prelude import constants, fill, header
from ..codegen.tables import Levels
from ..runtime.tree_kernel import TreeKernel
from .banks import last_nodes, node_rows
from .plan import SumFacTopPlan

HEADERS = (
    "codegen/geometry.h",
    "codegen/pointwise.h",
    "sumfac_top/arrays.h",
    "sumfac_top/evaluate.h",
    "sumfac_top/test.h",
    "sumfac_top/transfer.h",
    "sumfac_top/sumfac_top.h",
)


def source(problem: BlockProblem, levels: Levels, plan: SumFacTopPlan, name: str = "sumfac_top") -> str:
    """Source of the kernel, `language.h` apart.

    Parameters
    ----------
    problem : BlockProblem
    levels : Levels
        Of the problem's tabulation.
    plan : SumFacTopPlan
    name : str
        Of the kernel in C++.

    Returns
    -------
    str
    """
    options = plan.options
    own = {
        "E": options.elements,
        "LS": plan.row_stride,
        "R2": plan.rows[1],
        "PREFETCH": min(options.prefetch, levels.counts[0]) if problem.form.factor_kind else 0,
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
    problem : BlockProblem
    layout : SumFacTopPlan
    """

    def __init__(self, problem: BlockProblem, layout: SumFacTopPlan) -> None:
        levels, elements = Levels.of(problem.tabulation), layout.options.elements
        block = elements, layout.threads, layout.shared_bytes
        super().__init__(problem, "sumfac-top", levels, source(problem, levels, layout), elements, block)
