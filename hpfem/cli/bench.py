"""`hpfem bench`: measure throughput, shape by shape.

Measure the throughput of the mass (bk1) or Helmholtz (bk3) operator element by element, of CEED's bake-off problems on
continuous functions (bp1, bp3, bp5), or of whole solves with multigrid (solve). Shapes, orders, sizes, strategies and
geometries can be chosen. The machine's bandwidth and flop rate are measured in the same run.

Examples
--------
  hpfem bench --quick
  hpfem bench --shapes hex,tet --orders 1:7 --benchmark bk3 -o results.json
  hpfem bench --shapes all --orders 2,4 --dofs 1e4:1e7 --geometry affine --algorithm both -o results.json
  hpfem bench --strategies sumfac --backend numpy --dtype float32 --json
  hpfem bench --backend cuda --part 1/2 --budget 400 -o part1.json
  hpfem bench --tiled --geometry all --sources --shapes hex -o sources.json
  hpfem bench --merge part1.json part2.json -o gpu.json
  hpfem bench --benchmark bp3 --shapes hex,tet --orders 1:8 --dofs 1e4:1e6 -o bp3.json
  hpfem bench --benchmark bp5 --shapes quad,hex --backend cuda --dofs 1e5,1e6,1e7 -o bp5.json
  hpfem bench --benchmark solve --shapes all --orders 1:8 --dofs 1e5 --geometry deformed -o solve.json

bk1 and bk3: throughput is elements x modes over the median time, on one thread unless --threads is given.

bp1 (mass), bp3 (stiffness, u = 0 on the boundary) and bp5 (the same on quads and hexes, with quadrature at the nodes)
act on the unknowns of continuous functions. Three times are measured: an application with gather and scatter, one of 20
iterations of conjugate gradients (with Jacobi's preconditioner for bp1), and SciPy's product with the assembled CSR
matrix, if it fits into memory. Throughput is unknowns over the median time.

solve: -div(grad u) + u = f with u = 0 on the boundary is solved to 1e-8 (1e-5 in float32) with multigrid. The time from
the mesh to the solution is measured: in total, by phase, and for the first solve, which compiles. On a CPU, SciPy with
pyamg on the assembled matrix is measured too, if it fits into memory.

With --backend cuda, or --tiled, the kernels of bk1 and bk3 are measured alone: all shapes, P = 1..7 (10 in 2-D), both
geometries, dtypes and algorithms, all strategies, up to 2e7 degrees of freedom.

hpfem plot draws the results.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from ..backends.base import choose_backend
from ..benchmarks import BENCHMARKS, BOX_SHAPES, GEOMETRIES, SOLID_SHAPES, document, read_results, thread_limit
from ..benchmarks.bake_off import BAKE_OFFS
from ..benchmarks.cases import BenchSettings, Case, SuiteSettings
from ..benchmarks.global_phases import MATRIX_ENTRIES
from ..benchmarks.parts import cases_of, merge_results, settings_of, suite_document, suite_records
from ..benchmarks.problems import BOTH
from ..benchmarks.results import BENCH
from ..benchmarks.runner import TOGETHER, Runner
from ..benchmarks.whole_solve import PEER_ENTRIES
from ..errors import ArgumentError, DeviceError, NotSuitable
from ..forms.form import ALGORITHMS
from ..support.files import write_json
from ..support.machine import machine_description
from ..support.progress import progress
from . import options, output
from .bench_tables import print_bench, print_suite
from .output import ResultFile

# Defaults with --quick, for runs on meshes and for the whole benchmark: a few seconds instead of two minutes.
QUICK: tuple[dict[str, Any], dict[str, Any]] = (
    {"orders": (1, 2, 3, 4, 5, 6), "dofs": (3e3, 3e4, 1e5), "repeats": 5, "min_seconds": 0.001, "matrix_entries": 3e6},
    {"dofs": (1e4, 1e6), "repeats": 5, "sustained": 0.1},
)


def parse_part(text: str) -> tuple[int, int]:
    """Read a part: "1/2" is the first of two."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ArgumentError(f"part {text!r} is not understood; write 1/2 for the first of two parts")
    return int(match[1]), int(match[2])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command; see `hpfem.cli.make_parser`."""
    add, known = partial(options.add, parser), ", ".join((*BENCHMARKS, *BAKE_OFFS))
    text = f"{', '.join(BOX_SHAPES)}, or all (default {','.join(SOLID_SHAPES)})"
    add("--shapes", lambda names: BOX_SHAPES if names == "all" else options.parse_names(names), "NAMES", text)
    add("--orders --order", options.parse_orders, "P", "4, 2:8 or 1,3,5 (default 1:7)")
    add("--benchmark", options.parse_names, "NAME", f"{known} (default bk3)", dest="benchmarks")
    text = "stdmat, sumfac, ... (default all; auto of bp1, bp3, bp5 and solve)"
    add("--strategies", options.parse_names, "NAMES", text, default=())
    text = f"{', '.join(ALGORITHMS)}, both or auto (default auto)"
    add("--algorithm", lambda name: ALGORITHMS if name == "both" else (name,), "NAME", text, dest="algorithms")
    text = f"{', '.join(GEOMETRIES)}, both for the first two (default), or all"
    several = {"both": BOTH, "all": GEOMETRIES}
    add("--geometry", lambda kind: several.get(kind, (kind,)), "KIND", text, dest="geometries")
    text = "1e5, 1e4,1e6 or 1e3:1e6 (default 3e3:1e6): elements x modes, or unknowns of bp1, bp3, bp5, solve"
    add("--dofs", options.parse_dofs, "N", text)
    text = "assemble a matrix for SciPy if element matrices have fewer entries"
    defaults = f"(default {MATRIX_ENTRIES:.0e}, solve {PEER_ENTRIES:.0e})"
    add("--matrix-entries", options.parse_dofs, "N", f"{text} {defaults}")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and shorter timings")
    options.add_space_options(parser, both=True)
    options.add_precision_option(parser)
    options.add_timing_options(parser, None)
    _add_suite_arguments(parser)
    text = "write the results, even if the run is interrupted"
    parser.add_argument("-o", "--output", metavar="FILE.json", help=text)


def _add_suite_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the whole benchmark."""
    group = parser.add_argument_group("the whole benchmark (with --backend cuda, or --tiled)")
    add = partial(options.add, group)
    text = "measure kernels alone, on copies of a few elements (always so on a GPU)"
    group.add_argument("--tiled", action="store_true", help=text)
    text = "run the fastest kernel for so many seconds without a pause (default 2)"
    add("--sustained", options.parse_seconds, "S", text)
    text = "measure every source of geometric factors that a strategy offers, at the largest size in the first dtype"
    group.add_argument("--sources", action="store_true", default=None, help=text)
    add("--part", parse_part, "K/N", "measure only the K-th of N parts")
    add("--budget", options.parse_seconds, "S", "start no new problem after so many seconds")
    group.add_argument("--resume", metavar="FILE.json", help="keep the results of this file and measure the rest")
    text = "measure nothing; merge the results of several parts"
    group.add_argument("--merge", nargs="+", metavar="FILE.json", help=text)


def _is_suite(arguments: argparse.Namespace) -> bool:
    """Say whether the whole benchmark is asked for."""
    names = ("sustained", "sources", "part", "budget", "resume")
    given = [name for name in names if getattr(arguments, name) is not None]
    if arguments.merge and given:
        raise ArgumentError(f"--merge measures nothing; remove --{given[0]}")
    bake_offs = [name for name in arguments.benchmarks or () if name in BAKE_OFFS]
    if bake_offs and (arguments.tiled or given):
        option = "tiled" if arguments.tiled else given[0]
        raise ArgumentError(f"{bake_offs[0]} is measured on whole meshes, --{option} is for bk1 and bk3; remove it")
    if arguments.tiled or arguments.merge or (arguments.backend == "cuda" and not bake_offs):
        return True
    if given:
        raise ArgumentError(f"--{given[0]} belongs to --tiled or --backend cuda")
    return False


def _merge(arguments: argparse.Namespace, path: Path | None) -> None:
    """Merge the results of several parts into a file."""
    if path is None:
        raise ArgumentError("--merge writes a file; say which with -o FILE.json")
    merged = merge_results([read_results(name) for name in arguments.merge])
    write_json(path, merged)
    if arguments.json:
        output.print_json(merged)
        return
    print_suite(merged)
    left = f"; {merged['left']} of {len(settings_of(merged).cases())} problems are not in it"
    output.say(f"written {path}{left if merged['left'] else ''}")


def _settings(arguments: argparse.Namespace, suite: bool) -> BenchSettings | SuiteSettings:
    """Make settings of the command line, for runs on meshes or for the whole benchmark."""
    given = vars(arguments).copy()
    kind: type[BenchSettings | SuiteSettings] = SuiteSettings if suite else BenchSettings
    if suite:
        given["backend"] = choose_backend(arguments.backend).name
        given["dtypes"] = None if arguments.dtype in (None, "both") else (arguments.dtype,)
    elif len(arguments.benchmarks or ()) > 1 or arguments.dtype == "both":
        raise ArgumentError(
            "several benchmarks or dtypes in one run need --tiled or --backend cuda, which measure bk1 and bk3 only"
        )
    elif arguments.benchmarks:
        [given["benchmark"]] = arguments.benchmarks
    if given["matrix_entries"] is not None:
        given["matrix_entries"] = max(given["matrix_entries"])
    asked = {field.name: given[field.name] for field in fields(kind) if given.get(field.name) is not None}
    return kind(**{**(QUICK[suite] if arguments.quick else {}), **asked})


def run(arguments: argparse.Namespace) -> None:
    """Run the command; see `hpfem.cli.make_parser`."""
    path = None if arguments.output is None else options.output_file(arguments.output, ".json")
    suite = _is_suite(arguments)
    if arguments.merge:
        _merge(arguments, path)
        return
    settings = _settings(arguments, suite)
    began = time.monotonic()
    part = arguments.part or (1, 1)
    about = {"machine": machine_description(), "part": list(part), "quick": arguments.quick}
    earlier = None
    if isinstance(settings, SuiteSettings) and arguments.resume is not None:
        earlier = read_results(arguments.resume)
        merge_results([earlier, suite_document(settings, [about], [], [], [])])  # else they do not belong together
    with thread_limit(arguments.threads) as threads:
        backend = choose_backend(settings.backend)
        rooflines = {dtype: backend.roofline(dtype, arguments.quick) for dtype in settings.dtypes}
        budget = math.inf if arguments.budget is None else arguments.budget - (time.monotonic() - began)
        runner = Runner(settings, rooflines, part, set() if earlier is None else cases_of(earlier), budget)

        def result(complete: bool) -> dict[str, Any]:
            limits = {dtype: roofline.as_dict() for dtype, roofline in rooflines.items()}
            if isinstance(settings, BenchSettings):
                roofline = {"backend": backend.name, "dtype": settings.dtype, **limits[settings.dtype]}
                of: dict[str, Any] = {} if settings.bake_off is None else {"problem": settings.bake_off.as_dict()}
                of |= {"settings": asdict(settings), "quick": arguments.quick, "machine": about["machine"]}
                of |= {"threads": threads, "roofline": roofline, "skipped": runner.skipped}
                return document(BENCH, [measured.as_dict() for measured in runner.measurements], complete, **of)
            seconds = round(time.monotonic() - began, 1)
            this = {**about, "threads": threads, "rooflines": limits, "seconds": seconds}
            records = suite_records(runner.measurements)
            made = suite_document(settings, [this], records, runner.skipped, runner.wrong)
            return made if earlier is None else merge_results([earlier, made])

        with ResultFile(path, result) as file, progress("measuring", total=len(runner.cases)) as step:
            runner.prepare(step)
            for number, case in enumerate(runner, start=1):
                step(1, str(case))
                file.save_sometimes()
                if number % TOGETHER == 0:
                    runner.prepare(step)
    if not runner.measurements and (runner.cases or runner.skipped):
        reasons = [entry["reason"] for entry in (*runner.wrong, *runner.skipped)]
        raise NotSuitable(f"nothing could be measured: {reasons[0] if reasons else 'the budget was too short'}")
    file.finish(arguments, print_suite if suite else print_bench)
    if arguments.json:
        return
    if suite:
        _say_what_is_left(runner, path, time.monotonic() - began)
    if path is not None:
        output.say(f"written {path}; draw it with: hpfem plot {path}")
    if runner.wrong:
        first = runner.wrong[0]
        raise DeviceError(
            f"{len(runner.wrong)} kernel(s) compute something wrong, the first: {Case.of(first)}: {first}"
        )


def _say_what_is_left(runner: Runner, path: Path | None, seconds: float) -> None:
    rest = [case for case in runner.cases if case not in runner.done]
    measured = f"{len(runner.cases) - len(rest)} problems measured in {seconds:.0f} s"
    output.say(f"{measured} ({runner.compiling:.0f} s of it to compile)")
    if rest and path is not None:
        output.say(f"{len(rest)} problems of this part are left; go on with the same options and --resume {path}")
    elif runner.left:
        output.say(f"{len(runner.left)} problems belong to other parts; merge all parts with hpfem bench --merge")
