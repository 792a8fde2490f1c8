"""Geometric factors in float32 beside float64: GDoF/s of Helmholtz on curved elements, arithmetic in float64.

    python benchmarks/precision.py OUT.json [--backend cuda] [--shapes hex,tet] [--orders 1:7] [--dofs 2e7]
        [--quadratures default,simplex] [--seconds 0.1] [--tune 10]

Elements are copies of a few. Both kernels, those that auto takes, are timed in turns, and every result is compared with
NumPy's of the same precision. The share of the limit is that of the compulsory bytes in what memory moves in that time.
`--tune`: the tuner searches each kernel for so many seconds first, and keeps nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hpfem.backends.base import Backend
from hpfem.benchmarks.tiled import TiledKernel, TiledProblem, few_elements
from hpfem.cli.options import parse_names, parse_orders, parse_quadrature
from hpfem.errors import ArgumentError
from hpfem.memory import HOST
from hpfem.operators import Helmholtz
from hpfem.space import Space
from hpfem.tuning import Config
from hpfem.tuning.tuner import BlockTuner

PRECISIONS = ("full", "mixed")
ROUNDS = 9


class Case:
    """Both kernels of a shape and an order; for a GPU they begin to be compiled."""

    def __init__(self, shape: str, order: int, quadrature: str, given: Any) -> None:
        rule = parse_quadrature(quadrature)
        space = Space(few_elements(shape, "deformed"), order, backend="numpy", quadrature=rule)
        operators = [Helmholtz(space, 1.3, precision=precision) for precision in PRECISIONS]
        self.blocks = [TiledProblem(o.choices[0].kernel.problem, given.backend) for o in operators]
        self.n = int(given.dofs / self.blocks[0].problem.n_modes) | 1
        self.about = {"shape": shape, "order": order, "quadrature": quadrature}
        self.about["precision_error"] = operators[1].precision_error
        self.tune = given.tune
        for block in self.blocks:
            if block.backend.device().name != HOST.name and not self.tune:
                block.choose("auto", "auto", 1)

    def chosen(self, block: TiledProblem) -> tuple[Config, Any]:
        """What auto takes, or the tuner finds, and its kernel."""
        if not self.tune:
            choice = block.choose("auto", "auto", self.n)
            return choice.config, choice.kernel
        tuner = BlockTuner(block.tiled(self.n), "auto", "auto", block.backend, self.tune, known=False)
        tuner.run()
        config = min(tuner.race.seconds, key=lambda own: tuner.race.seconds[own])
        strategy, _ = tuner.groups[config._replace(options=None)]
        problem = block.tiled(self.n, config.algorithm or "collocated")
        return config, strategy.build(problem, config.options)

    def measured(self, seconds: float, bandwidth: float) -> dict[str, Any]:
        """Rates, shares of the limit and errors of both, and the ratio of their times."""
        self.blocks[0].free_unused_memory()
        choices = [self.chosen(block) for block in self.blocks]
        kernels = [TiledKernel(kernel, self.blocks[0].xp) for _, kernel in choices]
        u, out = self.blocks[0].arrays(self.n)
        errors = [block.error(kernel, u, out) for block, kernel in zip(self.blocks, kernels, strict=True)]
        calls = [partial(kernel.kernel.apply, u, out) for kernel in kernels]
        timer = self.blocks[0].backend.timer()
        count = max(1, int(seconds / ROUNDS / timer.seconds(calls[0], 1)))
        times: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for own, call in zip(times, calls, strict=True):
                own.append(timer.seconds(call, count) / count)
        row: dict[str, Any] = dict(self.about)
        for number, precision in enumerate(PRECISIONS):
            median = statistics.median(times[number])
            row[precision] = {
                "gdofs": 1e-9 * self.n * self.blocks[0].problem.n_modes / median,
                "share": kernels[number].nbytes(1) / median / bandwidth,
                "config": str(choices[number][0]),
                "error": errors[number],
            }
        row["gain"] = statistics.median(times[0]) / statistics.median(times[1])
        row["least_gain"] = float(np.min(times[0]) / np.max(times[1]))
        return row


def shown(row: dict[str, Any]) -> str:
    """A row in a line."""
    one, other = row["full"], row["mixed"]
    return (
        f"{row['shape']:8}P={row['order']} {row['quadrature']:8}full {one['gdofs']:.4g} ({one['share']:.2f})"
        f"  mixed {other['gdofs']:.4g} ({other['share']:.2f})  x{row['gain']:.2f}"
        f"  {max(one['error'], other['error']):.0e} {row['precision_error']:.0e}  {one['config']} | {other['config']}"
    )


def main() -> None:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--shapes", type=parse_names, default=("hex", "prism", "pyramid", "tet"))
    parser.add_argument("--orders", type=parse_orders, default=tuple(range(1, 8)))
    parser.add_argument("--quadratures", type=parse_names, default=("default",))
    parser.add_argument("--dofs", type=float, default=4e6)
    parser.add_argument("--seconds", type=float, default=0.1, help="of timing each kernel, about")
    parser.add_argument("--tune", type=float, default=0.0)
    given = parser.parse_args()
    cases: list[Case] = []
    for quadrature in given.quadratures:
        for shape in given.shapes:
            for order in given.orders:
                try:
                    cases.append(Case(shape, order, quadrature, given))
                except ArgumentError as reason:  # a shape without such a rule
                    print(f"{shape} {order} {quadrature}: {reason}"[:120], flush=True)
    backend: Backend = cases[0].blocks[0].backend
    bandwidth = backend.roofline().bandwidth
    rows: list[dict[str, Any]] = []
    for case in cases:
        rows.append(case.measured(given.seconds, bandwidth))
        print(shown(rows[-1]), flush=True)
        about = {"device": backend.processor(), "bandwidth": bandwidth, "dofs": given.dofs, "rows": rows}
        given.out.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
