"""Helmholtz and mass on curved triangles and tets: symmetric rules beside the collapsed one, GDoF/s.

    python benchmarks/simplex_rates.py OUT.json [--backend cuda] [--shapes tet,tri] [--orders 1:7] [--operators bk3,bk1]
        [--dofs 2e7] [--search] [--geometry deformed] [--sustained 0.5]

Elements are copies of a few curved ones whose factors are all in memory. Every result is compared with NumPy's before
it is timed: medians of 9 applications ("burst"), and the mean of many in a row ("sustained").
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpfem.backends.timer import measure
from hpfem.benchmarks.tiled import TiledBlock, TiledKernel
from hpfem.cli.options import parse_names, parse_orders
from hpfem.errors import ArgumentError, DeviceError, NotSuitable
from hpfem.forms.cost import operator_bytes
from hpfem.tuning.select import candidates


def rates(block: TiledBlock, strategy: str, algorithm: str, options: str | None, n: int, sustained: float) -> Any:
    """Check and time one kernel; None if it is not suitable."""
    block.free_unused_memory()
    provider = block.backend.strategy(strategy)
    try:
        kernel = TiledKernel(provider.build(block.tiled(n, algorithm), options), block.xp)
        u, out = block.arrays(n)
        error = block.error(kernel, u, out)
    except (NotSuitable, ArgumentError, DeviceError, RuntimeError) as reason:
        print(f"    {strategy} {options}: {reason}"[:200], flush=True)
        return None
    timer = block.backend.timer()

    def call() -> None:
        kernel.kernel.apply(u, out)

    seconds = measure(call, timer, 9, 0.0).median
    dofs = n * block.problem.n_modes * 1e-9
    row = {"strategy": strategy, "algorithm": algorithm, "options": options, "error": error, "burst": dofs / seconds}
    if sustained:
        count = max(1, int(sustained / seconds))
        row["sustained"] = dofs / (timer.seconds(call, count) / count)
    return row


def best(
    block: TiledBlock, n: int, search: bool, sustained: float, tried: list[str], only: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """The rates of all suitable kernels, the fastest first."""
    found = []
    problem = block.tiled(n)
    for config, (strategy, own) in candidates(problem, "auto", "auto", block.backend).items():
        if only and strategy.name not in only:
            continue
        algorithm = config.algorithm or "collocated"
        rounds = strategy.search(own)
        timed: dict[str | None, float] = {}
        try:
            batch = list(next(rounds)) if search else [strategy.default(own)]
            batch += tried if strategy.name == "fused" else []
            while batch:
                for options in batch:
                    with suppress(NotSuitable, ArgumentError):
                        strategy.prepare(own, options)  # compiles beside others
                for options in batch:
                    row = rates(block, strategy.name, algorithm, options, n, sustained)
                    if row is not None:
                        timed[options] = 1 / row["burst"]
                        found.append(row)
                batch = list(rounds.send(timed)) if search and strategy.name == "fused" and timed else []
        except StopIteration:
            continue
        except NotSuitable:
            continue
    return sorted(found, key=lambda row: -row["burst"])


def main() -> None:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--shapes", type=parse_names, default=("tet", "tri"))
    parser.add_argument("--orders", type=parse_orders, default=tuple(range(1, 8)))
    parser.add_argument("--operators", type=parse_names, default=("bk3", "bk1"))
    parser.add_argument("--geometry", default="deformed")
    parser.add_argument("--quadratures", type=parse_names, default=("simplex", "default"))
    parser.add_argument("--dofs", type=float, default=2e7)
    parser.add_argument("--sustained", type=float, default=0.5, help="seconds of applications in a row")
    parser.add_argument(
        "--search", action="store_true", help="time the options of the fused kernels, not only the default"
    )
    parser.add_argument("--options", default="", help="further options of the fused kernels to time, separated by ;")
    parser.add_argument("--strategies", type=parse_names, default=(), help="all that serve when left out")
    given = parser.parse_args()
    tried = [text.strip() for text in given.options.split(";") if text.strip()]
    rows = []
    for operator in given.operators:
        for shape in given.shapes:
            for order in given.orders:
                for name in given.quadratures:
                    quadrature = None if name == "default" else name
                    block = TiledBlock(operator, shape, order, given.geometry, given.backend, quadrature=quadrature)
                    n = block.sizes([given.dofs])[0]
                    moved = operator_bytes(block.problem) / block.problem.n_modes
                    found = best(
                        block, n, given.search and quadrature == "simplex", given.sustained, tried, given.strategies
                    )
                    row = {"operator": operator, "shape": shape, "order": order, "geometry": given.geometry}
                    row |= {"quadrature": name, "points": block.problem.n_points, "bytes_per_dof": moved, "runs": found}
                    rows.append(row)
                    fastest = found[0] if found else {}
                    shown = {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in fastest.items()}
                    print(operator, shape, order, name, shown, flush=True)
                    about = {"device": block.backend.processor(), "dofs": given.dofs, "rows": rows}
                    given.out.write_text(json.dumps(about, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
