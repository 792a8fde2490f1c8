"""Rates and variants of kernels that were measured, in the table that the package ships."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..form import BlockProblem


@cache
def variant_table() -> dict[str, list[Any]]:
    """Variants that were the fastest of many on an H200, with their rates in GDoF/s (`benchmarks/bk_cuda.py`)."""
    path = Path(__file__).with_name("variants.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def variant_key(problem: BlockProblem, strategy: str) -> str:
    """Key of a problem in `variant_table`: what its kernel's speed depends on."""
    form = problem.form
    kind = form.factor_kind or "values"
    algorithm = problem.algorithm if form.uses_gradient else "noncollocated"
    counts = "x".join(map(str, problem.tabulation.rule.counts))
    shape, order = problem.shape.name, problem.tabulation.basis.order
    geometry = "affine" if problem.geometry.affine else "deformed"
    single = "/float32" if problem.dtype == np.float32 else ""
    return f"{strategy}/{shape}/{order}/{counts}/{kind}/{algorithm}/{geometry}{single}"


def known_row(problem: BlockProblem, strategy: str) -> list[Any] | None:
    """Row of a problem in `variant_table`: rate in GDoF/s, then the fields of the strategy's variant.

    In float32 that of float64 where none was measured.
    """
    if problem.form.stage != "weak" or problem.form.components > 1:
        return None
    key = variant_key(problem, strategy)
    return variant_table().get(key, variant_table().get(key.removesuffix("/float32")))


def known_rate(problem: BlockProblem, strategy: str) -> float | None:
    """Rate of a problem in `variant_table`, in GDoF/s; None if it was not measured."""
    row = known_row(problem, strategy)
    return None if row is None else float(row[0])
