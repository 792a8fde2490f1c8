"""Rates and options of kernels that were measured, in the table that the package ships."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ....forms.cost import operator_bytes, operator_flops
from ....forms.form import BlockProblem
from ....forms.merged import merged_if_possible
from ....geometry import GENERAL

# Assumed bytes and operations per nanosecond of kernels without a measurement, and of cuBLAS.
BYTES, FLOPS, DENSE_FLOPS = 3000.0, 8000.0, 25000.0


@cache
def measured_table() -> dict[str, list[Any]]:
    """Read the options that were the fastest of many on an H200 (`benchmarks/bk_cuda.py`).

    Returns
    -------
    dict
        {key of a problem: [rate in GDoF/s, *fields of the options]}.
    """
    path = Path(__file__).with_name("measured.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _rounded(problem: BlockProblem) -> bool:
    return problem.factors_dtype != problem.dtype


def measured_key(problem: BlockProblem, strategy: str, geometry: str = "") -> str:
    """Key of a problem in `measured_table`.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str
    geometry : str
        Name of a geometry kind; the problem's when left out.

    Returns
    -------
    str
        What the kernel's speed depends on.
    """
    form = problem.form
    kind = form.factor_kind or "values"
    algorithm = problem.algorithm if form.gradients else "noncollocated"
    counts = "x".join(map(str, problem.tabulation.rule.counts))
    shape, order = problem.shape.name, problem.tabulation.basis.order
    geometry = geometry or problem.geometry.kind.name
    single = "/float32" if problem.dtype == np.float32 else "/mixed" if _rounded(problem) else ""
    return f"{strategy}/{shape}/{order}/{counts}/{kind}/{algorithm}/{geometry}{single}"


def known_row(problem: BlockProblem, strategy: str) -> list[Any] | None:
    """Look a problem up in `measured_table`.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str

    Returns
    -------
    list or None
        Without a measurement, the row of deformed elements, unless the elements are affine; in float32 or with rounded
        factors without either, the rows of float64. None if there is no such row.
    """
    if problem.form.trace is None or problem.form.components > 1:
        return None
    problem = merged_if_possible(problem)
    kinds = [problem.geometry.kind] if problem.geometry.affine else [problem.geometry.kind, GENERAL]
    own = [measured_key(problem, strategy, kind.name) for kind in kinds]
    keys = [*own, *(key.removesuffix("/float32").removesuffix("/mixed") for key in own)]
    return next((measured_table()[key] for key in keys if key in measured_table()), None)


def known_rate(problem: BlockProblem, strategy: str) -> float | None:
    """Tell the measured rate of a problem.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str

    Returns
    -------
    float or None
        GDoF/s; None if it was not measured.
    """
    row = known_row(problem, strategy)
    return None if row is None else float(row[0])


def shipped_rate(problem: BlockProblem, strategy: str) -> str | None:
    """Tell the measured rate of a problem in words; see `Strategy.measured`."""
    rate, rounded = known_rate(problem, strategy), _rounded(problem)
    if rounded and measured_key(problem, strategy) not in measured_table():  # it is that of other factors
        return None
    return None if rate is None else f"{rate} GDoF/s on an H200"


def expected_time(
    problem: BlockProblem, strategy: str, flops: float | None = None, bandwidth: float = BYTES, speed: float = FLOPS
) -> float:
    """Expected time of a kernel per element: measured, or by a model of its bytes and operations.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str
    flops : float, optional
        Operations per element; those of sum factorisation when left out.
    bandwidth, speed : float
        Bytes and operations per nanosecond of a kernel without a measurement.

    Returns
    -------
    float
        Nanoseconds.
    """
    rate, problem = known_rate(problem, strategy), merged_if_possible(problem)
    if rate is not None:
        return problem.n_modes / rate
    flops = operator_flops(problem, "sumfac") if flops is None else flops
    return max(operator_bytes(problem) / bandwidth, flops / speed)
