"""Which preconditioner "auto" takes on a GPU, beside what was measured (benchmarks/SOLUTION.md)."""

import json
from pathlib import Path

from hpfem.backends import BACKENDS

ROOT = Path(__file__).parents[2]


def test_auto_takes_the_diagonal_on_a_gpu_where_it_was_measured_to_be_faster():
    content = json.loads((ROOT / "benchmarks" / "results" / "auto_sizes_h200.json").read_text(encoding="utf-8"))
    sizes = BACKENDS["cuda"].solve_sizes
    taken = [
        run
        for run in content["runs"]
        if run["unknowns"] <= sizes.limit(2 if run["shape"] in ("quad", "tri") else 3, run["order"], symmetric=True)
    ]
    assert len(taken) >= 9 and all(run["jacobi"]["seconds"] < run["multigrid"]["seconds"] for run in taken)
