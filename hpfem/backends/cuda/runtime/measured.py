"""Rates and configs of kernels that were measured, in the table that the package ships."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ....forms.cost import operator_bytes, operator_flops
from ....forms.form import BlockProblem

# Bytes and operations per nanosecond that kernels nobody has measured are taken to reach, and cuBLAS.
BYTES, FLOPS, DENSE_FLOPS = 3000.0, 8000.0, 25000.0


@cache
def measured_table() -> dict[str, list[Any]]:
    """Options that were the fastest of many on an H200, with their rates in GDoF/s (`benchmarks/bk_cuda.py`)."""
    path = Path(__file__).with_name("measured.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def measured_key(problem: BlockProblem, strategy: str) -> str:
    """Key of a problem in `measured_table`: what its kernel's speed depends on."""
    form = problem.form
    kind = form.factor_kind or "values"
    algorithm = problem.algorithm if form.gradients else "noncollocated"
    counts = "x".join(map(str, problem.tabulation.rule.counts))
    shape, order = problem.shape.name, problem.tabulation.basis.order
    geometry = problem.geometry.kind.name
    single = "/float32" if problem.dtype == np.float32 else ""
    return f"{strategy}/{shape}/{order}/{counts}/{kind}/{algorithm}/{geometry}{single}"


def known_row(problem: BlockProblem, strategy: str) -> list[Any] | None:
    """Row of a problem in `measured_table`: rate in GDoF/s, then the fields of the strategy's options.

    In float32 that of float64 where none was measured.
    """
    if problem.form.trace is None or problem.form.components > 1:
        return None
    key = measured_key(problem, strategy)
    return measured_table().get(key, measured_table().get(key.removesuffix("/float32")))


def known_rate(problem: BlockProblem, strategy: str) -> float | None:
    """Rate of a problem in `measured_table`, in GDoF/s; None if it was not measured."""
    row = known_row(problem, strategy)
    return None if row is None else float(row[0])


def expected_time(problem: BlockProblem, strategy: str) -> float:
    """Time of a sum-factorised kernel per element in nanoseconds: measured (measured.json), or by a model."""
    rate = known_rate(problem, strategy)
    if rate is not None:
        return problem.n_modes / rate
    return max(operator_bytes(problem) / BYTES, operator_flops(problem, "sumfac") / FLOPS)


def shipped_rate(problem: BlockProblem, strategy: str) -> str | None:
    """Measured speed that the package ships for a problem; None if it was not measured."""
    rate = known_rate(problem, strategy)
    return None if rate is None else f"{rate} GDoF/s on an H200"
