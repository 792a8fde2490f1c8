"""Rates and options of kernels that were measured, in the table that the package ships."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hpfem.shapes import default_counts

from ....forms.cost import operator_bytes, operator_flops
from ....forms.form import BlockProblem
from ....forms.merged import merged_if_possible
from ....geometry import GENERAL

# Assumed bytes and operations per nanosecond of kernels without a measurement, and of cuBLAS.
BYTES, FLOPS, DENSE_FLOPS = 3000.0, 8000.0, 25000.0


@cache
def measured_table() -> dict[str, list[Any]]:
    """Read the options that were the fastest of many on an H200 (`python -m benchmarks.tuner_loss --table`)."""
    path = Path(__file__).with_name("measured.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def measured_key(problem: BlockProblem, strategy: str, geometry: str = "") -> str:
    """Key of a problem in `measured_table`."""
    form = problem.form
    kind = form.factor_kind or "values"
    algorithm = problem.algorithm if form.gradients else "noncollocated"
    shape, order, rule = problem.shape.name, problem.tabulation.basis.order, problem.tabulation.rule
    # Matrices of affine elements are the same on a simplex rule as on the collapsed one.
    same = problem.geometry.affine and not rule.tensor and rule.resolves(order)
    counts = default_counts(problem.shape, order) if same else rule.counts
    points = "nodes" if problem.tabulation.nodal else "x".join(map(str, counts))
    words = [strategy, shape, order, points, kind, algorithm, geometry or problem.geometry.kind.name]
    return "/".join(map(str, words)) + _merged(problem) + _type(problem)


def _merged(problem: BlockProblem) -> str:
    return "/merged" if problem.source.merges else ""


def _type(problem: BlockProblem) -> str:
    return "/float32" if problem.dtype == np.float32 else "/mixed" if problem.factors_dtype != problem.dtype else ""


def _known_key(problem: BlockProblem, strategy: str) -> str | None:
    """Key of the row that serves a problem, coefficients merged if they can be; see `known_row`."""
    if problem.form.trace is None or problem.form.components > 1:
        return None
    kinds = [problem.geometry.kind] if problem.geometry.affine else [problem.geometry.kind, GENERAL]
    own = [measured_key(problem, strategy, kind.name) for kind in kinds]
    unmerged = [key.replace(_merged(problem), "") for key in own] if problem.source.merges else []
    keys = [*own, *unmerged, *(key.removesuffix(_type(problem)) for key in [*own, *unmerged])]
    return next((key for key in keys if key in measured_table()), None)


def known_row(problem: BlockProblem, strategy: str) -> tuple[float, str] | None:
    """Look a problem up in `measured_table`."""
    key = _known_key(merged_if_possible(problem), strategy)
    if key is None:
        return None
    rate, options = measured_table()[key]
    return float(rate), options


def shipped_rate(problem: BlockProblem, strategy: str) -> str | None:
    """Tell the measured rate of a problem in words, if it is not that of other factors; see `Strategy.measured`."""
    problem = merged_if_possible(problem)
    key = _known_key(problem, strategy)
    if key is None or not key.endswith(_merged(problem) + _type(problem)):
        return None
    return f"{measured_table()[key][0]} GDoF/s on an H200"


def expected_time(
    problem: BlockProblem, strategy: str, flops: float | None = None, bandwidth: float = BYTES, speed: float = FLOPS
) -> float:
    """Expected time of a kernel per element: measured, or by a model of its bytes and operations."""
    row, problem = known_row(problem, strategy), merged_if_possible(problem)
    if row is not None:
        return problem.n_modes / row[0]
    flops = operator_flops(problem, "sumfac") if flops is None else flops
    return max(operator_bytes(problem) / bandwidth, flops / speed)
