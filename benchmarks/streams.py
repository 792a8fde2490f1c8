"""Kernels out of cache: time of reading alone, of computing alone, and of both, fetched ahead once and again.

    python -m benchmarks.streams -o benchmarks/results/streams.json
    python -m benchmarks.streams --cases hex:3,tet:5 --seconds 10

Curved Helmholtz in float64, stored factors, element by element. All kernels of a case work in turns on pieces of the
same arrays, which no cache holds; medians of the time that the thread had a core, so that other processes take little
away. Computing alone takes the factors of one group for all. The roofline is that of the case: reading the same array
in the same turns, and the peak of multiply-adds before, the best of five.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import numpy as np

from benchmarks.bk_cpu import make_problem
from benchmarks.script import markdown_table
from hpfem.backends.cpu.codegen.ir import ARGUMENTS, Builder, Index
from hpfem.backends.cpu.codegen.prefetch import BY_WORK
from hpfem.backends.cpu.codegen.sumfac import write_sumfac
from hpfem.backends.cpu.runtime.buffers import aligned
from hpfem.backends.cpu.runtime.cache import compiled
from hpfem.backends.cpu.runtime.limits import measure_fma
from hpfem.backends.cpu.runtime.target import Run, host
from hpfem.forms.cost import operator_bytes, operator_flops
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description

CASES = [(shape, order) for shape in ("hex", "prism", "pyramid", "tet") for order in range(1, 8)]
NBYTES, PIECE = 300 << 20, 1e-3
# Where a kernel finds its group's factors.
FACTORS = re.compile(r"(  (%v\d+) = mul nsw i64) %i\d+(, \d+\n.*getelementptr <\d+ x double>, ptr %geometry, i64 \2\n)")


def read_kernel(vectors: int) -> str:
    """The sum of so many vectors of every group."""
    b = Builder(host().lanes(np.float64), np.float64)
    with b.function("run", ARGUMENTS, internal=False), b.loop("%g1", "%g0") as group:
        start = b.at("%geometry", (group, vectors))

        def body(i: Index, sums: list[str]) -> list[str]:
            return [b.add(x, b.load(b.at(start, (i, 8)), k)) for k, x in enumerate(sums)]

        b.store_fiber(b.reduce(vectors // 8, [0.0] * 8, body), "%out", 1)
    return b.module()


def measure(shape: str, order: int, seconds: float) -> dict[str, float | str]:
    """Microseconds for a group by kernel, and shares of the roofline."""
    problem = make_problem("bk3", shape, order, "deformed", 1000, "float64", "collocated")
    lanes, fma = host().lanes(problem.dtype), max(measure_fma(problem.dtype, 0.05) for _ in range(5))
    counts = {"not fetched": 0, "once": 1, "again": BY_WORK}
    programs = {name: write_sumfac(problem, lanes, fetches) for name, fetches in counts.items()}
    texts = {name: program.text for name, program in programs.items()}
    texts["computing"], found = FACTORS.subn(r"\1 0\3", texts["not fetched"])
    assert found == 1
    kind = problem.read_factors
    numbers = problem.geometry.n_factors(kind) * problem.geometry.n_points(kind)
    texts["reading"] = read_kernel(numbers)
    kernels = {name: compiled(text, host()).run for name, text in texts.items()}
    groups = max(NBYTES // (numbers * lanes * 8), 64)
    sizes = problem.n_input, problem.n_output, numbers
    source, out, factors = (aligned((groups * lanes * max(size, 8),), "float64") for size in sizes)
    scratch = aligned((max(program.scratch_size for program in programs.values()) * lanes,), "float64")
    for array in (source, out, factors, scratch):
        array[...] = 1e-3
    parameters = np.ones(8)
    at = [array.ctypes.data for array in (source, out, factors, parameters, scratch)]
    places = (*at[:3], 0, 0, *at[3:], 0, 0)
    nbytes = operator_bytes(problem) * lanes
    piece = max(int(PIECE / (nbytes / 30e9)), 4)
    times: dict[str, list[float]] = {name: [] for name in kernels}

    def run(kernel: Run, piece_number: int) -> float:
        first = piece_number % (groups // piece) * piece
        start = time.thread_time()
        kernel(first, first + piece, groups * lanes, 1, *places)
        return (time.thread_time() - start) / piece

    start, turn = time.perf_counter(), 0
    while time.perf_counter() - start < seconds or turn < 5:
        for i, name in enumerate(list(kernels)[:: (-1) ** turn]):
            times[name].append(run(kernels[name], turn * len(kernels) + i))
        turn += 1
    medians = {name: float(np.median(own)) for name, own in times.items()}
    bandwidth = numbers // 8 * 8 * lanes * 8 / medians["reading"]
    limit = max(nbytes / bandwidth, operator_flops(problem, "sumfac") * lanes / fma)
    ratio = float(np.median(np.divide(times["again"], times["once"])))
    return {
        "shape": shape,
        "order": order,
        "KiB": round(nbytes / 1024, 1),
        **{name: round(1e6 * value, 3) for name, value in medians.items()},
        "again / once": round(ratio, 3),
        "share once": round(limit / medians["once"], 2),
        "share again": round(limit / medians["again"], 2),
        "GB/s": round(bandwidth / 1e9, 1),
        "turns": turn,
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = ",".join(f"{shape}:{order}" for shape, order in CASES)
    parser.add_argument("--cases", default=usual, metavar="SHAPE:P,...", help="kernels (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="for each case (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="JSON of the results")
    given = parser.parse_args(arguments)
    cases = [case.split(":") for case in given.cases.split(",")]
    found = [measure(shape, int(order), given.seconds) for shape, order in cases]
    print(markdown_table(list(found[0]), [[str(value) for value in one.values()] for one in found]))
    if given.output:
        write_json(given.output, {"machine": machine_description(), "results": found})


if __name__ == "__main__":
    main()
