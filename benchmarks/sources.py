"""Sources of geometric factors on one GPU: GDoF/s of Poisson, and of Helmholtz with coefficients that vary.

    python benchmarks/sources.py OUT.json [--shapes hex,prism] [--orders 2:7] [--geometries multilinear,deformed]
        [--operators Poisson,Helmholtz] [--sources stored,merged] [--dofs 2e7] [--first 2] [--budget 170] [--axhelm]

Kernels "sumfac-top", of every source the first numbers of elements per block, the shipped options too; the faster
algorithm by the shipped table. Elements are copies of a few; every result is compared with NumPy's before it is timed
(median of 9 launches). `--axhelm`: 2^16 hexes of order 7 with nodes on the points.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.cuda.runtime.measured import expected_time
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions, SumFacTopPlan, default_options, default_plans
from hpfem.backends.cuda.sumfac_top.strategy import source as source_of
from hpfem.backends.options import to_text
from hpfem.backends.strategy import SOURCES, STORED, possible_sources
from hpfem.backends.timer import measure
from hpfem.benchmarks.cases import TOLERANCES
from hpfem.benchmarks.tiled import VARYING, TiledKernel, TiledProblem, few_elements
from hpfem.cli.options import parse_names, parse_orders
from hpfem.forms.form import BlockProblem
from hpfem.operators import Helmholtz, Laplacian
from hpfem.space import Space

NODAL: dict[str, Any] = {"basis": "lagrange", "quadrature": "collocated"}


OPERATORS: dict[str, Any] = {"Poisson": Laplacian, "Helmholtz": partial(Helmholtz, **VARYING)}


def compiled(text: str) -> tuple[int, int]:
    """Fill the cache; registers and spilled bytes."""
    found = nvrtc.resources(nvrtc.cached(text, "sm_90"))
    return found.registers, found.spill_bytes


class Case:
    """An operator on a shape at an order, with the options of all sources."""

    def __init__(self, row: dict[str, Any], nodal: bool, first: int, sources: tuple[str, ...]) -> None:
        self.row, basis = row, NODAL if nodal else {}
        space = Space(few_elements(row["shape"], row["geometry"]), row["order"], backend="numpy", **basis)
        problem = OPERATORS[row["operator"]](space, backend="numpy").choices[0].kernel.problem
        both = [replace(problem, algorithm=name) for name in ("collocated", "noncollocated")[: 2 - nodal]]
        self.problem = min(both, key=lambda one: expected_time(one, "sumfac-top"))
        self.row["algorithm"] = self.problem.algorithm
        self.levels = Levels.of(self.problem.tabulation)
        self.options: list[SumFacTopOptions] = []
        for source in dict.fromkeys((STORED, *possible_sources(self.problem))):
            if source not in sources:
                continue
            plans = default_plans(self.problem, self.levels, Limits(), source)
            chosen = [replace(plan.options, tables_shared=None) for plan in plans[:first]]
            shipped = default_options(self.problem, self.levels, Limits())
            words = {word: word in source.split() for word in ("recomputed", "scaled", "merged")}
            self.options += dict.fromkeys([*chosen, replace(shipped, **words)])

    def plan(self, problem: BlockProblem, options: SumFacTopOptions) -> SumFacTopPlan:
        """Sizes of a kernel."""
        return SumFacTopPlan(problem, self.levels, options)

    def texts(self) -> list[str]:
        """Sources of all kernels."""
        return [program(source_of(self.levels, self.plan(self.problem, options))) for options in self.options]

    def measure(self, dofs: float, nodal: bool, resources: list[tuple[int, int]]) -> dict[str, Any]:
        """The fastest options of each source."""
        from hpfem.backends.cuda.sumfac_top.strategy import SumFacTopKernel

        block = TiledProblem(self.problem, "cuda")
        n = 2**16 if nodal else int(dofs / self.problem.n_modes) | 1
        problem = block.tiled(n, self.problem.algorithm)
        u, out = block.arrays(n)
        found: dict[str, Any] = {}
        for options, (registers, spills) in zip(self.options, resources, strict=True):
            block.free_unused_memory()
            plan = self.plan(problem, options)
            kernel = TiledKernel(SumFacTopKernel(plan), block.xp)
            error = block.error(kernel, u, out)
            assert error < TOLERANCES["float64"], (self.row, options, error)
            timing = measure(partial(kernel.kernel.apply, u, out), block.backend.timer(), 9, 0.0)
            rate = 1e-9 * n * problem.n_modes / timing.median
            known = found.get(plan.problem.source)
            if known is None or rate > known["gdofs"]:
                run = {"gdofs": rate, "options": to_text(options), "registers": registers, "spills": spills}
                found[plan.problem.source] = {**run, "error": error}
        return found


def main() -> None:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--shapes", type=parse_names, default=("hex", "prism", "pyramid", "tet"))
    parser.add_argument("--orders", type=parse_orders, default=tuple(range(2, 8)))
    parser.add_argument("--geometries", type=parse_names, default=("multilinear", "deformed"))
    parser.add_argument("--operators", type=parse_names, default=tuple(OPERATORS))
    parser.add_argument("--sources", type=parse_names, default=SOURCES)
    parser.add_argument("--dofs", type=float, default=2e7)
    parser.add_argument("--first", type=int, default=2)
    parser.add_argument("--budget", type=float, default=170.0, help="seconds; what is left then is not measured")
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--axhelm", action="store_true")
    given = parser.parse_args()
    began = time.time()
    wanted = [(s, p, g) for s in given.shapes for g in given.geometries for p in given.orders]
    if given.axhelm:
        wanted = [("hex", 7, g) for g in given.geometries]
    names = ("shape", "order", "geometry")
    rows = [{**dict(zip(names, case)), "operator": name} for case in wanted for name in given.operators]
    rows = [row for row in rows if (row["shape"], row["geometry"]) != ("tet", "multilinear")]  # these are affine
    # Processes without a CUDA context of their own.
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("fork")) as pool:
        cases = [Case(row, given.axhelm, given.first, given.sources) for row in rows]
        compiling = [[pool.submit(compiled, text) for text in case.texts()] for case in cases]
        done = []
        for case, futures in zip(cases, compiling, strict=True):
            if time.time() > began + given.budget:
                print("out of time")
                for future in [one for several in compiling for one in several]:
                    future.cancel()
                break
            row = {**case.row, "sources": case.measure(given.dofs, given.axhelm, [f.result() for f in futures])}
            done.append(row)
            stored = row["sources"]["stored"]["gdofs"]
            shown = ", ".join(f"{s} {r['gdofs']:.1f} ({r['gdofs'] / stored:.2f})" for s, r in row["sources"].items())
            print(*case.row.values(), shown, flush=True)
            given.out.write_text(json.dumps({"rows": done}, indent=1), encoding="utf-8")
    print(f"{time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
