"""Is a kernel slower than it was? Shares of the roofline, kept commit by commit.

    python -m benchmarks.over_time
    python -m benchmarks.over_time --backend cuda --keep benchmarks/results/over_time_h200.json
    python -m benchmarks.over_time --against 5f2059e

measures a few problems with `hpfem bench` in a minute or two, compares each with the last commit measured on the same
processor, and adds the results to a file. A share is the time at the machine's limits, which are measured in the same
run, over the shortest time of the problem: a machine that is slower today has lower limits too. What has lost more than
the tolerance is marked, and the exit code is 1. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from hpfem.benchmarks import read_results
from hpfem.cli import main as hpfem
from hpfem.support.files import write_json

KEEP = Path(__file__).resolve().parent / "results" / "over_time.json"
SHAPES = ("--shapes", "all", "--geometry", "deformed")
# Options of `hpfem bench`, by backend: half a minute on a core.
RUNS = {
    "cpu": (
        ("--benchmark", "bk3", "--strategies", "sumfac", *SHAPES, "--orders", "2,4,7", "--dofs", "3e4,3e5"),
        ("--benchmark", "bp3", *SHAPES, "--orders", "2,4", "--dofs", "1e5", "--matrix-entries", "1"),
    ),
    "cuda": (
        (*("--benchmark bk3 --dtype float64 --orders 2,4,7 --dofs 2e7 --sustained 0.1".split()), *SHAPES),
        ("--benchmark", "bp3", *SHAPES, "--orders", "2,4", "--dofs", "1e6", "--matrix-entries", "1"),
    ),
}
CASE = ("benchmark", "phase", "shape", "order", "n_dofs", "strategy", "algorithm")

Run = dict[str, Any]


def shares(result: dict[str, Any]) -> dict[str, float]:
    """Share of the roofline of each problem in a result of `hpfem bench`, by the shortest time."""
    return {
        " ".join(str(record[key]) for key in CASE if record.get(key)): record["fraction"]
        * record["seconds"]
        / record["best"]
        for record in result["results"]
        if record.get("fraction")
    }


def measure(backend: str, sweeps: int, extra: list[str]) -> Run:
    """Run `hpfem bench`; the highest share of all sweeps counts, as other processes only take time away."""
    run: Run = {"shares": {}}
    with tempfile.TemporaryDirectory() as folder:
        for options in RUNS[backend] * sweeps:
            path = Path(folder) / "bench.json"
            with redirect_stdout(io.StringIO()):
                failed = hpfem(["bench", "--backend", backend, *options, *extra, "-o", str(path)])
            if failed:
                raise SystemExit("hpfem bench failed")
            result = read_results(path)
            machine = (result.get("runs") or [result])[0]["machine"]
            if machine["commit"] is None:
                raise SystemExit("which commit is this? run hpfem from a checkout, or set HPFEM_COMMIT")
            run |= {"commit": machine["commit"], "date": machine["date"]}
            run["processor"] = machine["cpu"] if backend == "cpu" else machine["gpu"][0]["name"]
            for case, share in shares(result).items():
                run["shares"][case] = round(max(share, run["shares"].get(case, 0.0)), 3)
    return run


def compare(run: Run, before: Run | None, tolerance: float) -> list[str]:
    """Print the share of each problem beside the one before."""
    old = {} if before is None else before["shares"]
    lost = [case for case, share in run["shares"].items() if share < (1 - tolerance) * old.get(case, 0.0)]
    print(
        f"{run['processor']}: {run['commit'][:8]}" + (f" against {before['commit'][:8]}" if before else ", the first")
    )
    for case, share in run["shares"].items():
        change = f"{share / old[case] - 1:+7.0%}{'  slower' if case in lost else ''}" if case in old else ""
        print(f"{case:48}{share:6.2f}{change}")
    return lost


def main(arguments: list[str] | None = None) -> int:
    """Measure, compare, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=RUNS, default="cpu")
    parser.add_argument("--keep", type=Path, default=KEEP, metavar="FILE", help="runs so far, one for each commit")
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit, not with the last")
    parser.add_argument("--tolerance", type=float, default=0.1, help="loss that is reported (default 0.1)")
    parser.add_argument("--sweeps", type=int, default=2, help="measure everything so often (default 2)")
    chosen, extra = parser.parse_known_args(arguments)
    run = measure(chosen.backend, chosen.sweeps, extra)
    runs = json.loads(chosen.keep.read_text(encoding="utf-8")) if chosen.keep.exists() else []
    same = [old for old in runs if old["processor"] == run["processor"] and old["commit"] != run["commit"]]
    before = [old for old in same if old["commit"].startswith(chosen.against or "")]
    if chosen.against and not before:
        parser.error(f"{chosen.keep} has no run of {chosen.against} on {run['processor']}")
    lost = compare(run, before[-1] if before else None, chosen.tolerance)
    replaced = (run["processor"], run["commit"])
    write_json(chosen.keep, [*(old for old in runs if (old["processor"], old["commit"]) != replaced), run])
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
