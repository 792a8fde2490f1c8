"""`hpfem bench`: throughput shape by shape, against the machine's limits."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..backends.base import choose_backend
from ..benchmarks import (
    BENCHMARKS,
    BOX_SHAPES,
    GEOMETRIES,
    SOLID_SHAPES,
    BenchSettings,
    ThroughputRun,
    check_settings,
    document,
    thread_limit,
)
from ..benchmarks.results import BENCH
from ..errors import ArgumentError, NotSuitable
from ..forms.form import ALGORITHMS
from ..support.machine import machine_description
from ..support.progress import progress
from . import bench_suite, options, output
from .command import Command
from .result_file import ResultFile

EXAMPLES = """examples:
  hpfem bench --quick
  hpfem bench --shapes hex,tet --orders 1:7 --benchmark bk3 -o results.json
  hpfem bench --shapes all --orders 2,4 --dofs 1e4:1e7 --geometry affine --algorithm both -o results.json
  hpfem bench --strategies sumfac --backend numpy --dtype float32 --json
  hpfem bench --backend cuda --part 1/2 --budget 400 -o part1.json
  hpfem bench --merge part1.json part2.json -o gpu.json

On a GPU, or with --tiled, kernels alone are measured: bk1 and bk3, all shapes, P = 1..7 (10 in 2-D), both geometries,
precisions and algorithms, all strategies, up to 2e7 degrees of freedom, and the fastest for seconds without a pause.
Throughput is elements x modes over the median time, otherwise on one thread unless told so. Draw it with hpfem plot.
"""

# What --quick sets where nothing else was said: two minutes become a few seconds.
QUICK = {"orders": (1, 2, 3, 4, 5, 6), "dofs": (3e3, 3e4, 1e5), "repeats": 5, "min_seconds": 0.001}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    names = options.checked(options.parse_names)
    parser.add_argument(
        "--shapes",
        type=names,
        metavar="NAMES",
        help=f"{', '.join(BOX_SHAPES)}, or all (default {','.join(SOLID_SHAPES)})",
    )
    parser.add_argument(
        "--orders",
        "--order",
        type=options.checked(options.parse_orders),
        metavar="P",
        help="4, 2:8 or 1,3,5 (default 1:7)",
    )
    parser.add_argument("--benchmark", type=names, metavar="NAME", help=f"{', '.join(BENCHMARKS)} (default bk3)")
    parser.add_argument(
        "--strategies", type=names, default=(), metavar="NAMES", help="stdmat, sumfac, ... (default all)"
    )
    parser.add_argument("--algorithm", metavar="NAME", help=f"{', '.join(ALGORITHMS)}, both or auto (default auto)")
    parser.add_argument(
        "--geometry", default="both", metavar="KIND", help=f"{', '.join(GEOMETRIES)} or both (default both)"
    )
    parser.add_argument(
        "--dofs",
        type=options.checked(options.parse_dofs),
        metavar="N",
        help="1e5, 1e4,1e6 or 1e3:1e6 (default 3e3:1e6)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and shorter timings")
    options.add_space_options(parser, both=True)
    options.add_timing_options(parser, None)
    bench_suite.add_arguments(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.json", help="write the results, also those of an interrupted run"
    )


def settings_of(arguments: argparse.Namespace) -> BenchSettings:
    """Make settings of the command line.

    Parameters
    ----------
    arguments : Namespace
        The command's.

    Returns
    -------
    BenchSettings

    Raises
    ------
    ArgumentError
        If it asks for several benchmarks or precisions.
    """
    benchmarks = arguments.benchmark or ("bk3",)
    if len(benchmarks) > 1 or arguments.dtype == "both":
        raise ArgumentError("several benchmarks or precisions in one run need --tiled or --backend cuda")
    space = {**options.space_options(arguments), "dtype": arguments.dtype or "float64"}
    return BenchSettings(benchmark=benchmarks[0], **space, **options.bench_choices(arguments, QUICK))


def _run(arguments: argparse.Namespace) -> None:
    if bench_suite.wanted(arguments):
        bench_suite.run(arguments)
        return
    settings = settings_of(arguments)
    check_settings(settings)
    path = None if arguments.output is None else options.output_file(arguments.output, ".json")
    backend = choose_backend(settings.backend).name
    machine = machine_description()
    with thread_limit(arguments.threads) as threads:
        roofline = choose_backend(backend).roofline(settings.dtype, arguments.quick)
        bench = ThroughputRun(settings, roofline)

        def result(complete: bool) -> dict[str, Any]:
            return document(
                BENCH,
                [measurement.as_dict() for measurement in bench.measurements],
                complete,
                settings=asdict(settings),
                quick=arguments.quick,
                threads=threads,
                machine=machine,
                roofline={"backend": backend, "dtype": settings.dtype, **roofline.as_dict()},
                skipped=bench.skipped,
            )

        with ResultFile(path, result) as file, progress("measuring", total=len(bench.cases())) as step:
            for shape, geometry, order, size in bench:
                step(1, f"{shape} {geometry} P={order}, {size.n_dofs:.1e} DoFs")
                file.save_sometimes()
    if not bench.measurements:
        raise NotSuitable(f"nothing could be measured: {bench.skipped[0]['reason']}")
    file.finish(arguments, _print)
    if path is not None and not arguments.json:
        output.say(f"written {path}; draw it with: hpfem plot {path}")


def _print(result: Mapping[str, Any]) -> None:
    """Best throughput over the sizes, one line per shape, strategy, algorithm and geometry, one column per order."""
    measurements, settings, roofline = result["results"], result["settings"], result["roofline"]
    # "auto" takes one algorithm at one order and the other at another.
    free = tuple(settings["algorithms"]) == ("auto",)
    orders = sorted({m["order"] for m in measurements})
    best: dict[tuple[str, ...], dict[int, Mapping[str, Any]]] = {}
    for m in measurements:
        algorithm = "auto" if free else m["algorithm"]
        line = best.setdefault((m["shape"], m["geometry"], m["strategy"], algorithm), {})
        if m["order"] not in line or m["dofs_per_second"] > line[m["order"]]["dofs_per_second"]:
            line[m["order"]] = m
    rows = [(*key, *(_cell(line.get(order)) for order in orders)) for key, line in best.items()]
    what = f"{settings['benchmark']}, {roofline['backend']}, {settings['dtype']}"
    title = f"{what}: best throughput in MDoF/s (share of the roofline)"
    output.print_table(title, ("shape", "geometry", "strategy", "algorithm", *(f">P={p}" for p in orders)), rows)
    limits = (output.engineering(roofline["bandwidth"], "B/s"), output.engineering(roofline["flops"], "Flop/s"))
    output.say(f"limits measured: {', '.join(limits)}")
    for reason in dict.fromkeys(entry["reason"] for entry in result["skipped"]):
        output.say(f"skipped: {reason}")


def _cell(measured: Mapping[str, Any] | None) -> str:
    """MDoF/s and share of the roofline."""
    return "" if measured is None else f"{measured['dofs_per_second'] / 1e6:.1f} ({measured['fraction']:.0%})"


COMMAND = Command(
    "bench",
    "throughput shape by shape",
    "Measure the throughput of the mass (bk1) or Helmholtz (bk3) operator over shapes, orders, sizes,\n"
    "strategies and geometries, and the machine's bandwidth and flop rate in the same run.",
    EXAMPLES,
    _add_arguments,
    _run,
)
