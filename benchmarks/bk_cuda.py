"""Mass and Helmholtz (CEED BK1, BK3) on one GPU: GDoF/s, fraction of the roofline measured in the same run.

    python benchmarks/bk_cuda.py OUT.json [--shapes hex,tet] [--orders 1:7] [--kinds deformed,affine]
        [--operators helmholtz,mass] [--algorithms collocated,noncollocated] [--dtype float64] [--variants 3]
        [--elements E,E,..] [--prefetch 0,2] [--dofs 2e7] [--jobs 16]

Elements are copies of a few curved (or sheared) ones: every copy's factors are in memory, so traffic is as on a mesh.
Every result is compared with NumPy before it is timed. Times are medians of 9 launches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

import hpfem as hp
from hpfem.errors import NotSuitable
from hpfem.kernels.cuda import nvrtc
from hpfem.kernels.cuda.layout import line_layout
from hpfem.kernels.cuda.prelude import fiber_source, header
from hpfem.kernels.cuda.tables import Levels
from hpfem.kernels.cuda.variant import Limits, Variant, default_variants, plan
from hpfem.kernels.models import operator_bytes, operator_flops
from hpfem.kernels.numpy import NumpyKernel
from hpfem.mesh import box

DFMA = """
extern "C" __global__ void dfma(double *out, double a, int n) {
  double x[8];
  for (int i = 0; i < 8; i++) x[i] = threadIdx.x + i;
  for (int k = 0; k < n; k++)
    _Pragma("unroll") for (int i = 0; i < 8; i++) x[i] = fma(x[i], a, 1e-3);
  double s = 0;
  for (int i = 0; i < 8; i++) s += x[i];
  if (s == 12345.678) out[0] = s;
}
"""


def mesh(shape: str, kind: str) -> hp.Mesh:
    """A few elements of a shape."""
    d = hp.shapes.SHAPES[shape].dim
    base = box(shape, (2,) * d if shape not in ("tet", "pyramid") else (1,) * d)
    if kind == "affine":
        skew = np.array([[1.1, 0.4, -0.2], [-0.3, 0.8, 0.5], [0.25, -0.35, 1.3]])[:d, :d]
        return base.transformed(lambda x: x @ skew.T)
    return base.elevated(2).transformed(lambda x: x + 0.1 * np.sin(1.3 * np.roll(x, 1, axis=1) + 0.2))


def timed(function: Any, repeats: int = 9) -> float:
    """Median of single calls on the device, in seconds."""
    import cupy

    for _ in range(3):
        function()
    times = []
    for _ in range(repeats):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        function()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) * 1e-3)
    return statistics.median(times)


def ceilings() -> dict[str, float]:
    """Copy bandwidth in bytes/s and multiply-add rate in flop/s."""
    import cupy

    n = 1 << 29
    a, b = cupy.zeros(n), cupy.empty(n)
    copy = 2 * 8 * n / timed(lambda: cupy.copyto(b, a))
    kernel = cupy.RawKernel(DFMA, "dfma")
    blocks, threads, loops = 132 * 16, 256, 4096
    rate = 2 * 8 * loops * blocks * threads / timed(lambda: kernel((blocks,), (threads,), (b, 0.999, np.int32(loops))))
    return {"copy": copy, "dfma": rate}


def problem_of(operator: str, space: Any, algorithm: str) -> Any:
    """Block problem of an operator."""
    if operator == "mass":
        made = hp.Mass(space, backend="numpy")
    else:
        made = hp.Helmholtz(space, lam=1.3, algorithm=algorithm, backend="numpy")
    return made.choices[0].kernel.problem


def source(problem: Any, levels: Levels, layout: Any) -> str:
    """Whole source of a kernel."""
    return header("language.h") + fiber_source(problem, levels, layout)


def compiled(text: str) -> tuple[int, int]:
    """Fill the cache; registers and spilled bytes."""
    found = nvrtc.resources(nvrtc.cached(text, "sm_90"))
    return found.registers, found.spill_bytes


def measure(problem: Any, layout: Any, dofs: float) -> dict[str, float]:
    """Time one kernel on tiled elements."""
    import cupy

    from hpfem.kernels.cuda.kernel import FiberKernel

    base, e = problem.n_elements, layout.variant.elements
    kernel = FiberKernel(problem, layout)
    n = int(dofs / problem.n_modes) // (base * e) * (base * e) + 1  # a tail
    groups = -(-n // e)
    kind = problem.form.factor_kind
    stored = problem.geometry.factors(kind, 1, problem.dtype)
    if problem.geometry.affine:
        kernel.factors = cupy.tile(cupy.asarray(stored), (groups * e // base + 1, 1, 1, 1))
    else:
        part = np.ascontiguousarray(stored[np.arange(base * e) % base, :, :, 0])
        part = part.reshape(base, e, *part.shape[1:]).transpose(0, 2, 3, 1)
        part = line_layout(np.ascontiguousarray(part), kernel.levels.counts, layout.lines_padded)
        kernel.factors = cupy.tile(cupy.asarray(part), (groups // base + 1, 1, 1, 1))
    kernel.n_elements = n
    u = cupy.random.default_rng(1).random((1, n, problem.n_modes), dtype=problem.dtype) - 0.5
    out = cupy.full_like(u, np.nan)
    kernel.apply(u, out)
    reference = NumpyKernel(problem, "sumfac")
    error = 0.0
    for first in (0, (n - 1) // base * base - base):
        wanted = np.empty((1, base, problem.n_modes), problem.dtype)
        reference.apply(u[:, first : first + base].get(), wanted)
        found = out[:, first : first + base].get()
        error = max(error, float(np.abs(found - wanted).max() / np.abs(wanted).max()))
    assert bool(cupy.isfinite(out).all()), "poison came through"
    seconds = timed(lambda: kernel.apply(u, out))
    return {"dofs": n * problem.n_modes, "elements": n, "seconds": seconds, "error": error}


def cases(options: argparse.Namespace) -> list[tuple[Any, ...]]:
    """(row, problem, levels, plan) of everything to be measured."""
    low, _, high = options.orders.partition(":")
    found = []
    wanted = itertools.product(
        options.operators.split(","),
        options.shapes.split(","),
        range(int(low), int(high or low) + 1),
        options.kinds.split(","),
    )
    for operator, shape, order, kind in wanted:
        space = hp.Space(mesh(shape, kind), order, dtype=options.dtype)
        for algorithm in ["noncollocated"] if operator == "mass" else options.algorithms.split(","):
            problem = problem_of(operator, space, algorithm)
            levels = Levels.of(problem.tabulation)
            try:
                chosen = default_variants(problem, levels, Limits())
            except NotSuitable as reason:
                print(shape, order, reason)
                continue
            if options.elements:
                chosen = [plan(problem, levels, Variant(int(e))) for e in options.elements.split(",")]
            for layout in chosen[: options.variants]:
                for prefetch, blocks in itertools.product(options.prefetch.split(","), options.blocks.split(",")):
                    variant = Variant(layout.variant.elements, int(prefetch), int(blocks))
                    row = {"operator": operator, "shape": shape, "order": order, "kind": kind, "dtype": options.dtype}
                    row["algorithm"] = "" if operator == "mass" else algorithm
                    found.append((row, problem, levels, plan(problem, levels, variant)))
    return found


def main() -> None:
    """Measure, print the best of each case and write the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--shapes", default="hex,prism,pyramid,tet,quad,tri")
    parser.add_argument("--orders", default="1:7")
    parser.add_argument("--kinds", default="deformed,affine")
    parser.add_argument("--operators", default="helmholtz,mass")
    parser.add_argument("--algorithms", default="collocated,noncollocated")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--variants", type=int, default=3)
    parser.add_argument("--elements", default="")
    parser.add_argument("--prefetch", default="0")
    parser.add_argument("--blocks", default="0")
    parser.add_argument("--dofs", type=float, default=2e7)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--budget", type=float, default=420.0, help="seconds after which no case is begun")
    options = parser.parse_args()
    began = time.time()
    todo = cases(options)
    sources = [source(problem, levels, layout) for _, problem, levels, layout in todo]
    # Processes without a CUDA context of their own.
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
        resources = list(pool.map(compiled, sources))
    print(f"{len(sources)} kernels compiled in {time.time() - began:.0f} s", flush=True)
    import cupy

    top = ceilings()
    print({key: f"{value:.4g}" for key, value in top.items()}, cupy.cuda.runtime.getDeviceProperties(0)["name"])
    rows = []
    for (row, problem, _, layout), (registers, spills) in zip(todo, resources):
        if time.time() - began > options.budget:
            print("out of time")
            break
        measured = measure(problem, layout, options.dofs)
        nbytes, flops = operator_bytes(problem), operator_flops(problem, "sumfac")
        rate = measured["dofs"] / measured["seconds"]
        per_second = {"bandwidth": top["copy"] / nbytes, "fma": top["dfma"] / flops}
        bound = min(per_second, key=lambda key: per_second[key])
        if row["dtype"] == "float32":
            bound = "bandwidth"
        roof = per_second[bound] * problem.n_modes
        row = {**row, **measured, "rate": rate, "roof": roof, "fraction": rate / roof, "bound": bound}
        row.update(registers=registers, spills=spills, threads=layout.threads, shared=layout.shared_bytes)
        row.update(
            elements_per_block=layout.variant.elements, min_blocks=layout.min_blocks, prefetch=layout.variant.prefetch
        )
        rows.append(row)
        cupy.get_default_memory_pool().free_all_blocks()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    report = {"command": " ".join(sys.argv), "commit": commit, "ceilings": top, "rows": rows}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=0)
    best: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        key = (row["operator"], row["shape"], row["order"], row["kind"])
        for which in (key, (*key, row["algorithm"])):
            if which not in best or row["rate"] > best[which]["rate"]:
                best[which] = row
    print("worst error", max(row["error"] for row in rows))
    for key, row in best.items():
        if len(key) == 4:
            others = [
                f"{a[0]} {best[(*key, a)]['rate'] / 1e9:.1f}"
                for a in ("collocated", "noncollocated")
                if (*key, a) in best
            ]
            print(
                *key,
                f"{row['rate'] / 1e9:.1f} G {row['fraction']:.2f} {row['bound'][:3]} | E{row['elements_per_block']}"
                f" T{row['threads']} R{row['registers']}/{row['spills']} B{row['min_blocks']} F{row['prefetch']}"
                f" S{row['shared'] // 1024}K {row['algorithm'][:3]}",
                *others,
            )


if __name__ == "__main__":
    main()
