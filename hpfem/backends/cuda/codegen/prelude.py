"""The generated part of a kernel's source: compile-time constants, tables and the pointwise function."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....forms.form import BlockProblem
from ..sumfac_top.plan import LANE_THREADS, SumFacTopPlan, flags
from .banks import last_nodes, node_rows
from .pointwise import field_keys, parameter_names, physics
from .tables import Collapse, Levels

HERE = Path(__file__).parent.parent
_STAGES = {("phys", False): 0, ("dual", False): 1, ("phys", True): 2, ("dual", True): 3}
_FLUX_KIND = {"wJ": 0, "metric": 1, "jacobian": 2, None: 0}
Array = NDArray[np.float64]


@cache
def header(name: str) -> str:
    """Text of a kernel file, by its path in the backend's folder."""
    return (HERE / name).read_text(encoding="utf-8")


def program(source: str) -> str:
    """Source for the compiler: a kernel's behind the words of its language, of which the host shim has its own."""
    return header("codegen/language.h") + source


def reals(space: str, name: str, values: Array) -> str:
    """A table of numbers; `space` says where: HPFEM_CONSTANT or HPFEM_TABLE."""
    flat = np.ravel(values)
    text = ", ".join(repr(float(v)) for v in flat) if len(flat) else "0.0"
    return f"{space} real {name}[{max(len(flat), 1)}] = {{{text}}};"


def shorts(name: str, values: Iterable[int]) -> str:
    """A table of small integers."""
    items = [int(v) for v in values]
    return f"HPFEM_TABLE short {name}[{max(len(items), 1)}] = {{{', '.join(map(str, items)) or '0'}}};"


def structures(kind: str, name: str, rows: NDArray[np.int64]) -> str:
    """A table of structures of helpers.h."""
    items = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in rows.tolist())
    return f"HPFEM_TABLE {kind} {name}[{len(rows)}] = {{{items}}};"


def index_function(name: str, values: Iterable[int]) -> str:
    """A compile-time function of an index."""
    items = [int(v) for v in values] or [0]
    return (
        f"HPFEM_DEVICE constexpr int {name}(int n) {{ const int table[{len(items)}] = {{{', '.join(map(str, items))}}};"
        " return table[n]; }"
    )


def arguments(problem: BlockProblem) -> tuple[list[str], list[str], list[tuple[str, int]]]:
    """Field arrays, parameters, and (field, component) of every field value that a problem's kernel reads, in order."""
    trace = problem.form.trace
    if trace is None:
        return [], [], []
    keys = field_keys(trace)
    return list(dict.fromkeys(name for name, _ in keys)), parameter_names(trace), keys


def constants(problem: BlockProblem, levels: Levels, name: str) -> str:
    """What every kernel family is told: type, sizes, tables, collapse and pointwise function.

    Parameters
    ----------
    problem : BlockProblem
    levels : Levels
        Of the problem's tabulation.
    name : str
        Name of the kernel.

    Returns
    -------
    str
        C++.
    """
    form, geometry, trace = problem.form, problem.geometry, problem.form.trace
    what, kind = flags(problem), form.factor_kind
    dim, space = problem.shape.dim, geometry.space_dim
    arrays, parameters, keys = arguments(problem)
    uniform2, trivial = levels.uniform(1), levels.trivial
    uniform3 = levels.uniform(2) and not trivial
    affine = geometry.affine and kind is not None
    uses_points = trace is not None and any(key[0] == "x" for key in trace.inputs)
    n = {
        "STAGE": 4 if trace else _STAGES[form.sink, form.gradients],
        "DIM": dim,
        "SPACE": space,
        "VECTOR": max(dim, space),
        "COMPONENTS": form.components,
        "N1": levels.n_rows,
        "N_NODES": levels.n_nodes,
        "N_LEAVES": levels.n_leaves,
        "N_MODES": levels.n_modes,
        "Q1": levels.counts[0],
        "Q2": levels.counts[1],
        "Q3": levels.counts[2],
        "UNIFORM2_COUNT": levels.count[1][0] if uniform2 else 1,
        "UNIFORM3_COUNT": levels.count[2][0] if uniform3 else 1,
        "N_FACTORS": geometry.n_factors(kind) if kind else 0,
        "FLUX_KIND": _FLUX_KIND[kind],
        "N_FIELDS": len(keys),
        "N_FIELD_ARRAYS": len(arrays),
        "N_PARAMETERS": len(parameters),
    }
    collapse = Collapse.of(problem.tabulation, levels) if affine else None
    n["N_COLLAPSE"] = len(collapse.entries) if collapse else 0
    b = {
        "COLLOCATED": what["collocated"],
        "TRIAL_GRADIENT": trace is not None and trace.uses_gradient,
        "TEST_VALUE": trace is not None and form.test_value,
        "TEST_GRADIENT": trace is not None and form.test_gradient,
        "UNIFORM2": uniform2,
        "UNIFORM3": uniform3,
        "REVERSED": levels.reverse,
        "TRIVIAL3": trivial,
        "LEAVES_ARE_MODES": levels.identity,
        "INJECTIVE": levels.injective,
        "AFFINE": affine,
        "USES_POINTS": uses_points,
    }
    lines = [f"typedef {'double' if problem.dtype == np.float64 else 'float'} real;"]
    lines += [f"constexpr int {key} = {int(value)};" for key, value in n.items()]
    lines += [f"constexpr bool {key} = {str(bool(value)).lower()};" for key, value in b.items()]
    lines += [
        index_function("start2", levels.start[1]),
        index_function("count2", levels.count[1]),
        index_function("node2", levels.child[1]),
        index_function("start3", levels.start[2]),
        index_function("count3", levels.count[2]),
        index_function("first_leaf_of", levels.child[2]),
        index_function("leaf_to_mode", levels.leaf_to_mode),
        index_function("field_array", [arrays.index(field) for field, _ in keys]),
        index_function("field_component", [component for _, component in keys]),
        index_function("k_row", [a for a, _ in collapse.entries] if collapse else []),
        index_function("k_column", [b for _, b in collapse.entries] if collapse else []),
        index_function("k_one", collapse.ones if collapse else [0] * dim),
    ]
    for k in range(3):
        # Functions of the first direction in the order of the rows.
        pick = levels.start[0][0] + np.arange(levels.count[0][0]) if k == 0 else slice(None)
        offset = int(levels.start[2][0]) if k == 2 and uniform3 else 0
        values, derivatives = levels.values[k][pick][offset:], levels.derivatives[k][pick][offset:]
        lines.append(reals("HPFEM_CONSTANT", f"B{k + 1}", values))
        lines.append(reals("HPFEM_CONSTANT", f"D{k + 1}", derivatives))
        lines.append(reals("HPFEM_CONSTANT", f"C{k + 1}", levels.differentiation[k]))
        if k:
            lines.append(reals("HPFEM_TABLE", f"G{k + 1}", values))
            lines.append(reals("HPFEM_TABLE", f"GD{k + 1}", derivatives))
    if collapse is not None:
        lines += [
            reals("HPFEM_CONSTANT", "KX", collapse.x),
            reals("HPFEM_TABLE", "KYZ", collapse.yz),
            reals("HPFEM_CONSTANT", "W1", collapse.weights_x),
            reals("HPFEM_TABLE", "W23", collapse.weights_yz),
        ]
    else:
        lines += [reals(s, m, np.zeros(1)) for s, m in (("HPFEM_CONSTANT", "KX"), ("HPFEM_TABLE", "KYZ"))]
        lines += [reals(s, m, np.zeros(1)) for s, m in (("HPFEM_CONSTANT", "W1"), ("HPFEM_TABLE", "W23"))]
    lines.append(physics(trace, dim))
    signature = [f"const real *field_{m}" for m in range(len(arrays))]
    signature += [f"const real parameter_{m}" for m in range(len(parameters))]
    macros = {
        "HPFEM_KERNEL": name,
        "HPFEM_ARGUMENTS": "".join(f", {argument}" for argument in signature),
        "HPFEM_PARAMETERS": "".join(f"parameter_{m}, " for m in range(len(parameters))),
        "HPFEM_FIELDS": "".join(f"field_{m}, " for m in range(len(arrays))),
    }
    for key, value in macros.items():
        lines += [f"#undef {key}", f"#define {key} {value}"]
    return "\n".join(lines)


def fiber_constants(problem: BlockProblem, levels: Levels, plan: SumFacTopPlan) -> str:
    """What sumfac_top.h is told beside `constants`."""
    n = {
        "E": plan.options.elements,
        "THREADS": plan.threads,
        "MIN_BLOCKS": plan.min_blocks,
        "PREFETCH": min(plan.options.prefetch, levels.counts[0]) if problem.form.factor_kind else 0,
        "LS": plan.row_stride,
        "ARRAY": -(-plan.rows[0] * plan.rows[1] * plan.row_stride // 2) * 2,
        "R2": plan.rows[1],
        "ARRAYS": plan.arrays,
        "TOTAL_ARRAYS": plan.total_arrays,
        "MODES_SIZE": plan.modes_size,
        "MODES_PITCH": plan.modes_pitch,
        "LAST_PITCH": plan.last_pitch,
        "TOGETHER": plan.together,
        "N_LAST": len(last_nodes(levels, plan.rows[1])),
        "C_TABLE_SIZE": plan.table3,
        "B_TABLE_SIZE": plan.table2,
        "LINES_PADDED": plan.lines_padded,
    }
    lines = [f"constexpr int {key} = {int(value)};" for key, value in n.items()]
    lines.append(f"constexpr bool L2_PREFETCH = {'true' if plan.options.l2 else 'false'};")
    lines.append(f"constexpr bool LATE = {'true' if plan.options.late else 'false'};")
    lines.append(f"constexpr bool TABLES2_SHARED = {'true' if plan.table2 else 'false'};")
    lines.append(f"constexpr bool SPLIT_IN = {'true' if plan.split_in else 'false'};")
    lines.append(f"constexpr bool SPLIT_OUT = {'true' if plan.split_out else 'false'};")
    lines.append(shorts("LEAF_TO_MODE", levels.leaf_to_mode))
    return "\n".join(lines)


def fiber_tables(levels: Levels, plan: SumFacTopPlan) -> str:
    """Lines of the last direction and leaves as sumfac_top.h's structures."""
    rows = node_rows(levels, plan.rows[1])
    parents = np.repeat(np.arange(levels.n_nodes), levels.count[2])
    functions = levels.start[2][parents] + np.arange(levels.n_leaves) - levels.child[2][parents]
    first, following = levels.chains()
    more = np.flatnonzero(~np.isin(np.arange(levels.n_leaves), first))
    place = np.full(levels.n_leaves + 1, -1)
    place[more] = np.arange(len(more))
    leaves = np.column_stack([np.arange(levels.n_leaves), rows[parents], functions, place[following]])
    return "\n".join(
        [
            structures("Node", "NODES", last_nodes(levels, plan.rows[1])),
            structures("Leaf", "MODE_LEAVES", leaves[first]),
            structures("Leaf", "MORE_LEAVES", leaves[more] if len(more) else leaves[:1]),
        ]
    )


def sumfac_top_source(problem: BlockProblem, levels: Levels, plan: SumFacTopPlan, name: str = "fiber") -> str:
    """Source of a fiber kernel, `language.h` apart."""
    parts = [
        constants(problem, levels, name),
        fiber_constants(problem, levels, plan),
        header("codegen/helpers.h"),
        fiber_tables(levels, plan),
        header("codegen/geometry.h"),
        header("sumfac_top/sumfac_top.h"),
    ]
    return "\n".join(parts)


def point_source(problem: BlockProblem, levels: Levels, plan: SumFacTopPlan, slots: int, name: str = "point") -> str:
    """Source of StdMat's pointwise kernel, `language.h` apart; `plan` is of one element, for the layout of factors."""
    sizes = {"THREADS": 256, "K_SLOTS": slots, "LINES_PADDED": plan.lines_padded}
    lines = [f"constexpr int {key} = {value};" for key, value in sizes.items()]
    parts = [
        constants(problem, levels, name),
        *lines,
        header("codegen/helpers.h"),
        header("codegen/geometry.h"),
        header("codegen/point.h"),
    ]
    return "\n".join(parts)


def sumfac_source(problem: BlockProblem, levels: Levels, plan: SumFacTopPlan, name: str = "lane") -> str:
    """Source of the kernel with one element per thread, `language.h` apart; `plan` is of 32 elements (the layout)."""
    lines = [f"constexpr int THREADS = {LANE_THREADS};", f"constexpr int LINES_PADDED = {plan.lines_padded};"]
    parts = [
        constants(problem, levels, name),
        *lines,
        header("codegen/helpers.h"),
        header("codegen/geometry.h"),
        header("sumfac/sumfac.h"),
    ]
    return "\n".join(parts)
