"""Fields of several components beside one: GDoF/s of Helmholtz where they share what is read of the geometry.

    python benchmarks/components.py OUT.json [--backend cuda] [--shapes hex,tet] [--orders 2:7] [--components 3]
        [--geometries deformed,multilinear,affine] [--dofs 4e6] [--axhelm] [--options "elements=1"]

Elements are copies of a few; every result is compared with NumPy's. `--axhelm`: Poisson and Helmholtz on 2^16 hexes of
order 7 with nodes on the points.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from hpfem.backends.timer import measure
from hpfem.benchmarks.tiled import TiledKernel, TiledProblem, few_elements
from hpfem.cli.options import parse_names, parse_orders
from hpfem.errors import ArgumentError, NotSuitable
from hpfem.operators import Helmholtz, Laplacian
from hpfem.space import Space

NODAL: dict[str, Any] = {"basis": "lagrange", "quadrature": "collocated"}
OPERATORS: dict[str, Any] = {"Poisson": Laplacian, "Helmholtz": partial(Helmholtz, lam=1.3)}


def built(block: TiledProblem, n: int, options: str | None) -> TiledKernel:
    """The kernel that auto takes, or a collocated one: a strategy, if not "sumfac-top", and its options."""
    if options is None:
        return TiledKernel(block.choose("auto", "auto", n).kernel, block.xp)
    first, _, rest = options.strip().partition(" ")
    named = first in block.backend.strategy_names
    strategy, own = (first, rest) if named else ("sumfac-top", options)
    return TiledKernel(block.backend.strategy(strategy).build(block.tiled(n), own or None), block.xp)


def rate(block: TiledProblem, kernel: TiledKernel, n: int) -> dict[str, float]:
    """Speed and error of a kernel on the block's components."""
    block.free_unused_memory()
    u, out = block.arrays(n)
    error = block.error(kernel, u, out)
    timing = measure(partial(kernel.kernel.apply, u, out), block.backend.timer(), 9, 0.0)
    return {"gdofs": 1e-9 * n * block.problem.n_modes * block.components / timing.median, "error": error}


def main() -> None:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--shapes", type=parse_names, default=("hex", "prism", "pyramid", "tet"))
    parser.add_argument("--orders", type=parse_orders, default=tuple(range(2, 8)))
    parser.add_argument("--geometries", type=parse_names, default=("deformed",))
    parser.add_argument("--components", type=int, default=3)
    parser.add_argument("--quadrature")
    parser.add_argument("--dofs", type=float, default=4e6, help="of all components")
    parser.add_argument("--axhelm", action="store_true")
    parser.add_argument("--options", help="separated by ;, each of sumfac-top or after the name of a strategy")
    given = parser.parse_args()
    rows = []
    tried = given.options.split(";") if given.options else [None]
    cases = [("Helmholtz", s, p, g) for g in given.geometries for s in given.shapes for p in given.orders]
    if given.axhelm:
        cases = [(name, "hex", 7, g) for g in given.geometries for name in OPERATORS]
    for name, shape, order, geometry in cases:
        how = NODAL if given.axhelm else {"quadrature": given.quadrature}
        space = Space(few_elements(shape, geometry), order, backend="numpy", **how)
        problem = OPERATORS[name](space, backend="numpy").choices[0].kernel.problem
        one, several = (TiledProblem(problem, given.backend, d) for d in (1, given.components))
        n = 2**16 if given.axhelm else int(given.dofs / given.components / problem.n_modes)
        for options in tried:
            try:
                kernel = built(one, n, options)
                found = {"1": rate(one, kernel, n), str(given.components): rate(several, kernel, n)}
            except (NotSuitable, ArgumentError) as reason:
                print(f"{shape} {order} {geometry} {options}: {reason}"[:200], flush=True)
                continue
            row = {"operator": name, "shape": shape, "order": order, "geometry": geometry, "options": options}
            row |= {"strategy": kernel.kernel.strategy, "source": kernel.kernel.problem.source}
            row["runs"] = found
            rows.append(row)
            speeds = {key: run["gdofs"] for key, run in found.items()}
            shown = ", ".join(f"{key}: {speed:.3g} ({speed / speeds['1']:.2f})" for key, speed in speeds.items())
            worst = max(run["error"] for run in found.values())
            way = f"{row['strategy']} {options or ''} {row['source']}"
            print(f"{name} {shape} {order} {geometry} {way}: {shown}; {worst:.0e}")
            about = {"device": one.backend.processor(), "components": given.components, "rows": rows}
            given.out.write_text(json.dumps(about, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
