"""Mass and Helmholtz (CEED BK1, BK3) on one GPU: GDoF/s, fraction of the roofline measured in the same run.

    python benchmarks/bk_cuda.py OUT.json [--shapes hex,tet] [--orders 1:7] [--geometries deformed,affine]
        [--operators helmholtz,mass] [--dtype float64] [--first 8 --rounds 3] [--sustained 2]

Elements are copies of a few curved (or sheared) ones: every copy's factors are in memory, so traffic is as on a mesh.
Every result is compared with NumPy before it is timed. Times are medians of 9 launches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from typing import Any

from hpfem.backends.base import choose_backend
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.dense.element_matrices import shared_matrices
from hpfem.backends.cuda.dense.plan import DenseOptions, DensePlan, check_dense
from hpfem.backends.cuda.dense.search import search as dense_search
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.runtime.device import CudaTimer, Limits
from hpfem.backends.cuda.runtime.limits import measure_gpu
from hpfem.backends.cuda.sumfac.strategy import GROUP, check_sumfac
from hpfem.backends.cuda.sumfac.strategy import source as sumfac_source
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions, SumFacTopPlan, options_of
from hpfem.backends.cuda.sumfac_top.search import search
from hpfem.backends.cuda.sumfac_top.strategy import source as sumfac_top_source
from hpfem.backends.options import to_text
from hpfem.backends.strategy import SOURCES, possible_sources
from hpfem.backends.timer import measure as timed
from hpfem.benchmarks.cases import SOLID_FIRST, TOLERANCES
from hpfem.benchmarks.problems import BENCHMARK_OF
from hpfem.benchmarks.tiled import TiledBlock, TiledKernel
from hpfem.cli.options import parse_names, parse_orders
from hpfem.errors import DeviceError, NotSuitable
from hpfem.forms.cost import operator_bytes, operator_flops
from hpfem.forms.form import BlockProblem


def compiled(text: str) -> tuple[int, int]:
    """Fill the cache; registers and spilled bytes."""
    cubin = nvrtc.cached(text, "sm_90")
    try:
        found = nvrtc.resources(cubin)
    except DeviceError:  # NVRTC took it from a cache of its own
        return -1, 0
    return found.registers, found.spill_bytes


def measure(case: Case, candidate: Candidate, dofs: float, repeats: int = 9, sustained: float = 0.0) -> Any:
    """Check and time one kernel on copies of the problem's elements."""
    from hpfem.backends.cuda.dense.strategy import DenseKernel
    from hpfem.backends.cuda.sumfac.strategy import SumFacKernel
    from hpfem.backends.cuda.sumfac_top.strategy import SumFacTopKernel

    block, layout, timer = case.block, case.plan(candidate), CudaTimer()
    block.free_unused_memory()
    e = layout.elements if candidate.strategy == "dense" else layout.options.elements
    n = int(dofs / block.problem.n_modes) // e * e + 1  # a tail
    problem = block.tiled(n, candidate.algorithm)
    made = {
        "sumfac": lambda: SumFacKernel(candidate.of_source(problem)),
        "dense": lambda: DenseKernel(problem, layout),
    }

    def tiled_plan() -> SumFacTopPlan:
        assert isinstance(candidate.options, SumFacTopOptions)
        return SumFacTopPlan(problem, case.levels, candidate.options)

    kernel = TiledKernel(made.get(candidate.strategy, lambda: SumFacTopKernel(tiled_plan()))(), block.xp)
    u, out = block.arrays(n)
    error = block.error(kernel, u, out)
    assert error < TOLERANCES[case.row["dtype"]], (candidate, layout, error)
    seconds = timed(lambda: kernel.kernel.apply(u, out), timer, repeats, 0.0).median
    result = {"dofs": n * problem.n_modes, "elements": n, "seconds": seconds, "error": error}
    if sustained:
        count = max(1, int(sustained / seconds))
        result["sustained_seconds"] = timer.seconds(lambda: kernel.kernel.apply(u, out), count) / count
    return result


@dataclass(frozen=True)
class Candidate:
    """A way to compute a case."""

    strategy: str
    algorithm: str
    options: SumFacTopOptions | DenseOptions

    def of_source(self, problem: BlockProblem) -> BlockProblem:
        """The problem with the source of factors that the options name."""
        if isinstance(self.options, DenseOptions):
            return problem
        return problem.with_factors(self.options.recomputed, self.options.scaled)


class Case:
    """An operator on a shape at an order, the ways tried and their times."""

    def __init__(self, operator: str, shape: str, order: int, kind: str, options: argparse.Namespace) -> None:
        self.row = {"operator": operator, "shape": shape, "order": order, "kind": kind, "dtype": options.dtype}
        most, strategies = options.first, options.strategies
        self.block = TiledBlock(BENCHMARK_OF[operator], shape, order, kind, "cuda", dtype=options.dtype)
        algorithms = ["noncollocated"] if operator == "mass" else ["collocated", "noncollocated"]
        self.problems = {algorithm: replace(self.block.problem, algorithm=algorithm) for algorithm in algorithms}
        tabulation = self.block.problem.tabulation
        self.levels, self.plain = Levels.of(tabulation), Levels.plain(tabulation)
        self.searches: dict[tuple[str, str], Any] = {}
        if "sumfac-top" in strategies:
            for algorithm, problem in self.problems.items():
                rounds = search(problem, self.levels, Limits(), most, table=not most)
                self.searches["sumfac-top", algorithm] = rounds
        self.with_sumfac = "sumfac" in strategies
        if "dense" in strategies:
            try:
                check_dense(self.problems["noncollocated"])
                shared_matrices(self.problems["noncollocated"].tabulation)
                problem = self.problems["noncollocated"]
                self.searches["dense", "noncollocated"] = dense_search(problem, Limits(), table=not most)
            except NotSuitable:
                pass
        self.times: dict[Candidate, float] = {}

    def plan(self, candidate: Candidate) -> Any:
        """Sizes of a candidate's kernel."""
        if isinstance(candidate.options, DenseOptions):
            return DensePlan(self.problems[candidate.algorithm], candidate.options)
        levels = self.plain if candidate.strategy == "sumfac" else self.levels
        return SumFacTopPlan(self.problems[candidate.algorithm], levels, candidate.options)

    def source(self, candidate: Candidate) -> str:
        """Source of a candidate's kernel."""
        if candidate.strategy == "dense":
            return self.plan(candidate).program()
        layout = self.plan(candidate)
        if candidate.strategy == "sumfac":
            return program(sumfac_source(layout.problem, self.plain))
        return program(sumfac_top_source(self.levels, layout))

    def next_round(self) -> list[Candidate]:
        """What to time next; the first round has the kernel with one element per thread too, where it fits."""
        found = []
        for algorithm, problem in self.problems.items():
            try:
                check_sumfac(problem, self.plain)
                if self.with_sumfac and not self.times and algorithm == "noncollocated":
                    made = [options_of(source, GROUP) for source in possible_sources(problem)]
                    found += [Candidate("sumfac", algorithm, options) for options in made]
            except NotSuitable:
                pass
        for (strategy, algorithm), rounds in self.searches.items():
            timed = {c.options: self.times[c] for c in self.best(algorithm, strategy)}
            try:
                several = rounds.send(timed) if timed else next(rounds)
            except NotSuitable:
                continue
            found += [Candidate(strategy, algorithm, options) for options in several]
        return found

    def best(self, algorithm: str, strategy: str = "sumfac-top") -> list[Candidate]:
        """Candidates of an algorithm, fastest first."""
        mine = [c for c in self.times if c.algorithm == algorithm and c.strategy == strategy]
        return sorted(mine, key=lambda c: self.times[c])


def run_round(pool: Any, work: list[tuple[Case, Candidate]], options: argparse.Namespace, deadline: float) -> None:
    """Compile and time candidates."""
    began = time.time()
    resources = list(pool.map(compiled, [case.source(c) for case, c in work], chunksize=2))
    print(f"{len(work)} kernels compiled in {time.time() - began:.0f} s", flush=True)
    for (case, candidate), (_, spills) in zip(work, resources):
        if spills > 400 and case.best(candidate.algorithm, candidate.strategy):
            continue
        if time.time() > deadline:
            print("out of time")
            return
        case.times[candidate] = measure(case, candidate, options.dofs / 2, 5)["seconds"]
    print(f"timed at {time.time() - began:.0f} s", flush=True)


def main() -> None:
    """Measure, print the best of each case and write the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--shapes", type=parse_names, default=SOLID_FIRST)
    parser.add_argument("--orders", type=parse_orders, default=tuple(range(1, 8)))
    parser.add_argument("--geometries", type=parse_names, default=("deformed", "affine"))
    parser.add_argument("--operators", type=parse_names, default=tuple(BENCHMARK_OF))
    parser.add_argument("--strategies", type=parse_names, default=("sumfac-top", "sumfac", "dense"))
    parser.add_argument("--dtype", default="float64")
    parser.add_argument(
        "--first", type=int, default=0, help="numbers of elements per block to try; 0: the shipped options only"
    )
    parser.add_argument("--rounds", type=int, default=1, help="1: elements; 2: options one by one; 3: together")
    parser.add_argument("--dofs", type=float, default=2e7)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--budget", type=float, default=500.0, help="seconds in all")
    parser.add_argument("--sustained", type=float, default=0.0, help="seconds of the chosen kernel back to back")
    options = parser.parse_args()
    began = time.time()
    deadline = began + 0.85 * options.budget
    wanted = itertools.product(options.operators, options.geometries, options.shapes, options.orders)
    cases = [Case(operator, shape, order, kind, options) for operator, kind, shape, order in wanted]
    # Processes without a CUDA context of their own.
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
        work = [(case, c) for case in cases for c in case.next_round()]
        pool.submit(compiled, cases[0].source(work[0][1])).result()
        list(pool.map(abs, range(64)))
        choose_backend("cuda")  # says what is missing
        import cupy

        limits = measure_gpu("float64", False)
        top = {"copy": limits.bandwidth, "dfma": limits.flops}
        print({key: f"{value:.4g}" for key, value in top.items()}, cupy.cuda.runtime.getDeviceProperties(0)["name"])
        run_round(pool, work, options, deadline)
        for _ in range(1, options.rounds):
            run_round(pool, [(case, c) for case in cases for c in case.next_round()], options, deadline)
    rows = []
    for case in cases:
        for algorithm in case.problems:
            for strategy, source in itertools.product(("sumfac-top", "sumfac", "dense"), SOURCES):
                plain = case.problems[algorithm]
                ranked = [c for c in case.best(algorithm, strategy) if c.of_source(plain).source == source]
                if not ranked or time.time() > began + options.budget:
                    continue
                candidate, layout = ranked[0], case.plan(ranked[0])
                measured = measure(case, candidate, options.dofs, 9, options.sustained)
                registers, spills = compiled(case.source(candidate))
                problem = candidate.of_source(plain)
                nbytes, flops = operator_bytes(problem), operator_flops(problem, "sumfac")
                rate = measured["dofs"] / measured["seconds"]
                per_second = {"bandwidth": top["copy"] / nbytes, "fma": top["dfma"] / flops}
                bound = "bandwidth" if options.dtype == "float32" else min(per_second, key=lambda key: per_second[key])
                roof = per_second[bound] * problem.n_modes
                row = {**case.row, "strategy": strategy, "algorithm": algorithm, **measured, "rate": rate, "roof": roof}
                row.update(fraction=rate / roof, bound=bound, registers=registers, spills=spills, tried=len(case.times))
                row.update(threads=layout.threads, shared=layout.shared_bytes, options=asdict(candidate.options))
                row.update(blocks=layout.options.min_blocks or layout.min_blocks)
                row.update(text=to_text(candidate.options), source=source)
                rows.append(row)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    report = {"command": " ".join(sys.argv), "commit": commit, "device": device, "ceilings": top, "rows": rows}
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(json.dumps(report).replace('{"operator"', '\n{"operator"'))
    print("worst error", max(row["error"] for row in rows), f"{time.time() - began:.0f} s")
    for case in cases:
        mine = sorted((r for r in rows if all(r[k] == v for k, v in case.row.items())), key=lambda r: -r["rate"])
        if mine:
            r = mine[0]
            print(
                *list(case.row.values())[:4],
                f"{r['rate'] / 1e9:.1f} G {r['fraction']:.2f} {r['bound'][:3]}",
                *([f"sust {r['dofs'] / r['sustained_seconds'] / 1e9:.1f}"] if "sustained_seconds" in r else []),
                f"| {r['text']} T{r['threads']} R{r['registers']}/{r['spills']} B{r['blocks']}"
                f" {r['strategy']} {r['algorithm'][:3]} |",
                *[f"{o['strategy']} {o['algorithm'][0]} {o['source']} {o['rate'] / 1e9:.1f}" for o in mine[1:]],
            )


if __name__ == "__main__":
    main()
