"""The prelude of a kernel's code: compile-time constants and tables of a problem, and its pointwise function.

A constant is a line with its meaning in a `parameters.h`, and its value, or an attribute of that name, in the
`strategy.py` or `plan.py` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ....forms.form import BlockProblem
from .layout import lines_padded, numbers_read, numbers_stored, stored_kinds
from .pointwise import field_keys, parameter_names, physics
from .tables import Collapse, Levels

HERE = Path(__file__).parent.parent
# What most kernels share, in the order in which it builds on each other.
COMMON_HEADERS = (
    "codegen/helpers.h",
    "codegen/geometry.h",
    "codegen/pointwise.h",
    "codegen/restriction.h",
    "codegen/coefficients.h",
)
# Bytes of constant memory for tables; a device has 64 KiB.
_CONSTANT_MEMORY = 63 * 1024
_CONSTANT_TABLES = (*(f"{name}{k}" for name in "BDC" for k in (1, 2, 3)), "KX", "W1")
_FLUX_KIND = {"wJ": 0, "metric": 1, "jacobian": 2, None: 0}
_TYPES = {"f8": "double", "f4": "float", "i8": "long long", "i4": "int"}


@cache
def header(name: str) -> str:
    """Text of a kernel file."""
    return (HERE / name).read_text(encoding="utf-8")


def c_type(dtype: DTypeLike) -> str:
    """Name of a type in C."""
    return _TYPES[np.dtype(dtype).str[1:]]


def source_with(types: Mapping[str, DTypeLike], constants: Mapping[str, int], *headers: str) -> str:
    """Source of kernels that belong to no form, `language.h` apart."""
    lines = [f"using {name} = {c_type(dtype)};" for name, dtype in types.items()]
    for name, value in constants.items():
        lines.append(f"constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = {int(value)};")
    return "\n".join([*lines, *map(header, headers)])


def fill(name: str, values: Mapping[str, Any], *owners: object) -> str:
    """Text of a kernel file that declares constants: from values, or attributes of the first owner that has one."""
    template = Template(header(name))
    found = dict(values)
    for key in template.get_identifiers():
        for owner in owners:
            if key not in found and hasattr(owner, key.lower()):
                found[key] = getattr(owner, key.lower())
    wrong = set(template.get_identifiers()) ^ found.keys()
    if wrong:
        raise KeyError(f"{name}: declared without a value, or given without a declaration: {', '.join(sorted(wrong))}")
    return template.substitute({key: _text(value) for key, value in found.items()})


def _text(value: Any) -> str:
    """C++ of a number, or of an array between braces, which may not be empty; text stays."""
    if isinstance(value, str):
        return value
    return str(np.ravel(value).tolist() or [0])[1:-1].lower()


def program(source: str) -> str:
    """Source for the compiler."""
    return header("codegen/language.h") + source


def arguments(problem: BlockProblem) -> tuple[list[str], list[str], list[tuple[str, int]]]:
    """Arguments of a problem's pointwise function, in the order of the kernel's arguments."""
    trace = problem.form.trace
    if trace is None:
        return [], [], []
    keys = field_keys(trace)
    return list(dict.fromkeys(name for name, _ in keys)), parameter_names(trace), keys


def constants(problem: BlockProblem, levels: Levels, kernel: str, elements: int = 1) -> str:
    """The constants of every kernel, codegen/parameters.h, and the pointwise function."""
    form = problem.form
    values: dict[str, Any] = {
        "kernel": kernel,
        "real": c_type(problem.dtype),
        "stored_real": c_type(problem.factors_dtype),
        "HAS_FUNCTION": form.trace is not None,
        "COLLOCATED": form.gradients and problem.collocated,
        "SOURCES": problem.coupled,
        "SINKS": problem.given,
        "LINES_PADDED": lines_padded(levels, elements),
        "SET": numbers_stored(problem, levels, elements),
    }
    values |= _of_geometry(problem, levels) | _of_tree(levels) | _of_arguments(problem)
    constant = sum(np.size(values[name]) for name in _CONSTANT_TABLES) * problem.dtype.itemsize
    values["memory3"] = "HPFEM_CONSTANT" if constant <= _CONSTANT_MEMORY else "HPFEM_TABLE"
    return fill("codegen/parameters.h", values, form, levels) + physics(form.trace, problem.shape.dim)


def _of_geometry(problem: BlockProblem, levels: Levels) -> dict[str, Any]:
    geometry, kind, dim = problem.geometry, problem.form.factor_kind, problem.shape.dim
    affine = geometry.affine and kind is not None
    collapse = Collapse.of(problem.tabulation, levels) if affine else Collapse.none(dim)
    n_factors = geometry.n_factors(kind) if kind else 0
    axes = range(dim)[::-1] if levels.reverse else range(dim)
    lines = geometry.map_lines(axes) if problem.source.recomputes else None
    return {
        "DIM": dim,
        "SPACE": geometry.space_dim,
        "VECTOR": max(dim, geometry.space_dim),
        "AFFINE": affine,
        "UNIT": geometry.unit,
        "RECOMPUTED": problem.source.recomputes,
        "SCALED": problem.source.scales,
        "N_READ": numbers_read(problem),
        "N_FACTORS": dim**2 + 2 if lines else n_factors,
        "N_MAP": geometry.n_factors("map") if lines else 0,
        "MAP_ROWS": len(lines.directions) if lines else 0,
        "MAP_TERMS": len(lines.terms) if lines else 0,
        "MAP_ACROSS": len(lines.across) if lines else 0,
        # Directions of factors are the user's: sets of a reversed kernel are read through `direction`.
        "map_direction": lines.directions if lines else [],
        "map_one": lines.one if lines else [],
        "map_row": [row for row, _, _ in lines.terms] if lines else [],
        "map_mode": [mode for _, mode, _ in lines.terms] if lines else [],
        "map_function": [function for _, _, function in lines.terms] if lines else [],
        "FLUX_KIND": _FLUX_KIND[kind],
        "N_COLLAPSE": len(collapse.entries),
        "k_row": [a for a, _ in collapse.entries],
        "k_column": [b for _, b in collapse.entries],
        "k_one": collapse.ones,
        "KX": lines.along if lines else collapse.x,
        "KYZ": lines.across if lines else collapse.yz,
        "W1": lines.weights_along if lines else collapse.weights_x,
        "W23": lines.weights_across if lines else collapse.weights_yz,
    }


def _of_tree(levels: Levels) -> dict[str, Any]:
    uniform2, uniform3 = levels.uniform(1), levels.uniform(2) and not levels.trivial
    values = {
        "N1": levels.n_rows,
        "UNIFORM2": uniform2,
        "UNIFORM3": uniform3,
        "UNIFORM2_COUNT": levels.count[1][0] if uniform2 else 1,
        "UNIFORM3_COUNT": levels.count[2][0] if uniform3 else 1,
        "REVERSED": levels.reverse,
        "TRIVIAL3": levels.trivial,
        "LEAVES_ARE_MODES": levels.identity,
        "start2": levels.start[1],
        "count2": levels.count[1],
        "node2": levels.child[1],
        "start3": levels.start[2],
        "count3": levels.count[2],
        "first_leaf_of": levels.child[2],
    }
    # Functions of the first direction in the order of the rows; of the third one from the first that is used.
    first = levels.start[0][0] + np.arange(levels.count[0][0])
    functions = [first, slice(None), slice(int(levels.start[2][0]) if uniform3 else 0, None)]
    for k, used in enumerate(functions):
        values[f"Q{k + 1}"] = levels.counts[k]
        values[f"B{k + 1}"] = levels.values[k][used]
        values[f"D{k + 1}"] = levels.derivatives[k][used]
        values[f"C{k + 1}"] = levels.differentiation[k]
    return values


def _of_arguments(problem: BlockProblem) -> dict[str, Any]:
    fields, parameters, keys = arguments(problem)
    signature = [f"const real *field_{m}" for m in range(len(fields))]
    signature += [f"const real parameter_{m}" for m in range(len(parameters))]
    return {
        "USES_POINTS": stored_kinds(problem)[1] is not None,
        "N_FIELDS": len(keys),
        "N_FIELD_ARRAYS": len(fields),
        "N_PARAMETERS": len(parameters),
        "field_array": [fields.index(field) for field, _ in keys],
        "field_component": [component for _, component in keys],
        "arguments": "".join(f", {argument}" for argument in signature),
        "parameters": "".join(f"parameter_{m}, " for m in range(len(parameters))),
        "fields": "".join(f"field_{m}, " for m in range(len(fields))),
    }
