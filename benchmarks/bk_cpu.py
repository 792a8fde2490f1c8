"""BK1 and BK3 on one core, or more: every shape and order, in and out of cache, against the core's limits and libCEED.

    python -m benchmarks.bk_cpu -o benchmarks/results/bk_cpu.json
    python -m benchmarks.bk_cpu --shapes hex,tet --orders 3,7 --kernels bk3 --peers

Every kernel is timed alone: coefficients in, results out, in the users' layout, geometric factors stored. Elements of a
small mesh are repeated until there are enough. Limits are measured before and after each case by kernels that are
generated like the others. The higher limits and the shortest times count, because other processes can only slow down a
run. `fraction` is the share of min(FMA peak / flops, read bandwidth / bytes); data in cache is compared with the FMA
peak.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.script import pivot
from hpfem.backends.cpu.runtime.buffers import aligned
from hpfem.backends.cpu.runtime.kernel import CpuKernel
from hpfem.backends.cpu.runtime.limits import best_seconds, measure_fma, measure_read
from hpfem.benchmarks import BENCHMARKS, document
from hpfem.benchmarks.cases import SOLID_FIRST
from hpfem.benchmarks.problems import problem_mesh, problem_sizes
from hpfem.benchmarks.repeated import RepeatedGeometry
from hpfem.benchmarks.results import BENCH, rounded
from hpfem.cli.options import parse_names, parse_orders
from hpfem.forms.cost import operator_bytes, operator_flops
from hpfem.forms.form import BlockProblem
from hpfem.geometry.jacobians import inverse_collapse
from hpfem.shapes import SHAPES, make_basis
from hpfem.space.space import Space
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description
from hpfem.support.threads import thread_count

SIZES = {"in": 3e4, "out": 1.5e6}
READ_BYTES = 192 << 20
# A measurement, with what `hpfem plot` reads.
Record = dict[str, Any]


def make_problem(
    kernel: str, shape: str, order: int, geometry: str, dofs: float, dtype: str, algorithm: str
) -> BlockProblem:
    """A block problem of about so many degrees of freedom."""
    # About a hundred elements: more than a group of any vector width.
    few = problem_sizes(shape, order, [100 * make_basis("modified", SHAPES[shape], order).n_modes])[0]
    mesh = problem_mesh(shape, few.counts, geometry)
    space = Space(mesh, order, quadrature="collapsed", dtype=dtype, backend="cpu")
    operator = BENCHMARKS[kernel](space, strategy="sumfac", algorithm=algorithm)
    built = operator.choices[0].kernel
    assert isinstance(built, CpuKernel)
    problem, lanes = built.problem, built.lanes
    elements = max(round(dofs / problem.n_modes / lanes), 1) * lanes
    return replace(problem, geometry=RepeatedGeometry(problem.geometry, elements))


def time_kernel(kernel: CpuKernel, seconds: float) -> float:
    """Shortest time of one application."""
    problem = kernel.problem
    source = aligned((1, problem.n_elements, problem.n_input), problem.dtype)
    source[...] = np.random.default_rng(0).standard_normal(source.shape)
    out = aligned((1, problem.n_elements, problem.n_output), problem.dtype)
    out[...] = 0
    return best_seconds(lambda: kernel.apply(source, out), seconds)


def measure_case(problem: BlockProblem, cache: str, strategy: str, benchmark: str, seconds: float) -> Record:
    """Measure a kernel between two measurements of the limits, which are those of all its threads together."""
    threads = thread_count()
    start = time.perf_counter()
    kernel = CpuKernel(problem, strategy)
    compiled = time.perf_counter() - start
    peaks, reads = [0.0], [0.0]

    def measure_limits() -> None:
        peaks.append(measure_fma(problem.dtype, 0.03, threads))
        if cache == "out":
            reads.append(measure_read(READ_BYTES, 0.15, threads))

    measure_limits()
    best = time_kernel(kernel, seconds)
    measure_limits()
    elements = problem.n_elements
    nominal = operator_flops(problem, "sumfac") * elements
    nbytes = operator_bytes(problem) * elements
    bounds = {"flops": nominal / max(peaks)} | ({"bandwidth": nbytes / max(reads)} if cache == "out" else {})
    bound = max(bounds, key=lambda name: bounds[name])
    dofs = elements * problem.n_modes
    return {
        "benchmark": benchmark,
        "shape": problem.shape.name,
        "geometry": problem.geometry.kind.name,
        "order": problem.tabulation.basis.order,
        "cache": cache,
        "dtype": problem.dtype.name,
        "strategy": strategy,
        "algorithm": problem.algorithm,
        "n_cells": elements,
        "n_dofs": dofs,
        "seconds": best,
        "dofs_per_second": dofs / best,
        "gflops": nominal / best / 1e9,
        "own_gflops": kernel.group_flops * kernel.groups / best / 1e9,
        "bytes_per_dof": nbytes / dofs,
        "fma_peak": max(peaks) / 1e9,
        "read_bandwidth": max(reads) / 1e9,
        "fraction": bounds[bound] / best,
        "bound": bound,
        "compile_seconds": compiled,
    }


def libceed_rate(problem: BlockProblem, benchmark: str, seconds: float) -> float | None:
    """Degrees of freedom per second of libCEED on the same elements; None where it has no such case.

    Element-local, stored factors, on Gauss points of hexes and quads and on our own points elsewhere.
    """
    import libceed

    shape, order, dim = problem.shape, problem.tabulation.basis.order, problem.shape.dim
    if problem.dtype != np.float64 or problem.geometry.affine:
        return None
    ceed = libceed.Ceed("/cpu/self/avx/blocked")
    tensor = not any(direction.collapsed for direction in shape.directions)
    if tensor:
        basis = ceed.BasisTensorH1Lagrange(dim, 1, order + 1, order + 2, libceed.GAUSS)
        points = (order + 2) ** dim
    else:
        topology = {"tri": "TRIANGLE", "prism": "PRISM", "pyramid": "PYRAMID", "tet": "TET"}[shape.name]
        tabulation, rule = problem.tabulation, problem.tabulation.rule
        points = len(rule)
        inverse = inverse_collapse(shape, rule.eta)
        derivatives = np.einsum("qai,amq->iqm", inverse, tabulation.dense_gradient)
        basis = ceed.BasisH1(
            getattr(libceed, topology),
            1,
            problem.n_modes,
            points,
            np.ascontiguousarray(tabulation.dense.T).ravel(),
            np.ascontiguousarray(derivatives).ravel(),
            np.ascontiguousarray(shape.collapse(rule.eta).T).ravel(),
            np.ascontiguousarray(rule.weights),
        )
    elements, modes = problem.n_elements, problem.n_modes
    numbers = 1 if benchmark == "bk1" else dim * (dim + 1) // 2
    strides = np.array([1, modes, modes], dtype="int32")
    local = ceed.StridedElemRestriction(elements, modes, 1, elements * modes, strides)
    data_strides = np.array([1, points, points * numbers], dtype="int32")
    stored = ceed.StridedElemRestriction(elements, points, numbers, elements * points * numbers, data_strides)
    data = ceed.Vector(elements * points * numbers)
    data.set_value(1.0)
    function = ceed.QFunctionByName("MassApply" if benchmark == "bk1" else f"Poisson{dim}DApply")
    operator = ceed.Operator(function)
    source, target = ("u", "v") if benchmark == "bk1" else ("du", "dv")
    operator.set_field(source, local, basis, libceed.VECTOR_ACTIVE)
    operator.set_field("qdata", stored, libceed.BASIS_NONE, data)
    operator.set_field(target, local, basis, libceed.VECTOR_ACTIVE)
    u, v = ceed.Vector(elements * modes), ceed.Vector(elements * modes)
    u.set_value(1.0)
    return elements * modes / best_seconds(lambda: operator.apply(u, v), seconds)


def markdown(records: list[Record], peers: list[Record]) -> str:
    """Tables: MDoF/s and the share of the limit, and those of libCEED."""
    cells: dict[tuple[str, ...], dict[int, str]] = {}
    for record in records:
        how = record["strategy"] + ("" if record["algorithm"] == "collocated" else f", {record['algorithm']}")
        key = (*(record[name] for name in ("benchmark", "geometry", "cache", "dtype")), how, record["shape"])
        cells.setdefault(key, {})[record["order"]] = f"{record['dofs_per_second'] / 1e6:.0f} ({record['fraction']:.2f})"
    names = ("kernel", "geometry", "cache", "dtype", "strategy", "shape")
    lines = ["MDoF/s (share of the limit)", "", pivot(names, cells, "P={}")]
    if peers:
        cells = {}
        for peer in peers:
            cell = f"{peer['dofs_per_second'] / 1e6:.1f} ({peer['ours'] / peer['dofs_per_second']:.1f})"
            cells.setdefault((peer["benchmark"], peer["shape"]), {})[peer["order"]] = cell
        title = (
            "libCEED 0.12 in the same run, MDoF/s (how many times faster ours is). Its wheel is built for processors in"
            " general; one built for the CPU was 1.7 to 4.3 times as fast on hexes, 2.0 to 5.6 times on tets: CPU.md"
        )
        lines += ["", title, "", pivot(("kernel", "shape"), cells, "P={}")]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> list[Record]:
    """Measure what was asked for, print a line each, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {
        "kernels": ("bk1", "bk3"),
        "geometries": ("deformed", "affine"),
        "caches": ("in", "out"),
        "dtypes": ("float64", "float32"),
        "shapes": SOLID_FIRST,
        "orders": tuple(range(1, 8)),
        "algorithms": ("collocated",),
        "strategies": ("sumfac",),
    }
    for name, default in names.items():
        read = parse_orders if name == "orders" else parse_names
        parser.add_argument(f"--{name}", type=read, default=default)
    parser.add_argument("--seconds", type=float, default=0.15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sweeps", type=int, default=1, help="measure everything so often; the shortest times count")
    parser.add_argument("--peers", action="store_true", help="libCEED beside, where it can do the case")
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args(arguments)
    os.environ["HPFEM_NUM_THREADS"] = str(chosen.threads)
    every = product(*(getattr(chosen, name) for name in names))
    cases = [case for case in every if case[-1] != "dense" or case[1] == "affine"]
    fastest: dict[tuple, Record] = {}
    peers: dict[tuple, Record] = {}
    for case in cases * chosen.sweeps:
        kernel, geometry, cache, dtype, shape, order, algorithm, strategy = case
        problem = make_problem(kernel, shape, order, geometry, SIZES[cache], dtype, algorithm)
        record = measure_case(problem, cache, strategy, kernel, chosen.seconds)
        record = max(record, fastest.get(case, record), key=lambda one: one["dofs_per_second"])
        fastest[case] = record
        line = (
            f"{kernel} {shape:8}P{order} {geometry:9}{dtype:8} {cache:4}{strategy:7}{algorithm[:4]}"
            f"{record['dofs_per_second'] / 1e6:8.1f} MDoF/s {record['gflops']:6.1f} GF/s of {record['fma_peak']:5.1f}"
            f" {record['bytes_per_dof']:6.1f} B/DoF  {record['fraction']:5.2f} of {record['bound']}"
        )
        rate = libceed_rate(problem, kernel, chosen.seconds) if chosen.peers else None
        if rate:
            ours, rate = record["dofs_per_second"], max(rate, peers.get(case, {}).get("dofs_per_second", 0.0))
            about = {"peer": "libceed", "benchmark": kernel, "shape": shape, "order": order}
            peers[case] = {**about, "n_dofs": record["n_dofs"], "dofs_per_second": rate, "ours": ours}
            line += f"  libceed {rate / 1e6:6.1f} ({ours / rate:.1f}x)"
        print(line, flush=True)
    records = list(fastest.values())
    if chosen.output:
        about = {"machine": machine_description(), "threads": chosen.threads, "peers": list(peers.values())}
        write_json(chosen.output, document(BENCH, [rounded(record) for record in records], True, **about))
        chosen.output.with_suffix(".md").write_text(markdown(records, list(peers.values())), encoding="utf-8")
    return records


if __name__ == "__main__":
    main(sys.argv[1:])
