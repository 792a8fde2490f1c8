"""benchmarks/auto_sizes.py: that it runs, and where two curves cross."""

import importlib.util
import json
from pathlib import Path

import pytest

from hpfem.backends import BACKENDS

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("auto_sizes", ROOT / "benchmarks" / "auto_sizes.py")
auto_sizes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(auto_sizes)


def test_a_small_case(monkeypatch, capsys):
    monkeypatch.setattr(auto_sizes, "CELLS", ("quad",))
    monkeypatch.setitem(auto_sizes.SIZES, "cpu", (300,))
    (run,) = auto_sizes.main(["--small"])["runs"]
    assert run["shape"] == "quad" and 200 < run["unknowns"] < 500
    assert run["multigrid"]["iterations"] < run["jacobi"]["iterations"]
    assert "| quad | 4 | - |" in capsys.readouterr().out


def test_where_they_cross():
    runs = [
        {"unknowns": n, "jacobi": {"seconds": jacobi}, "multigrid": {"seconds": 1.0}}
        for n, jacobi in ((100, 0.25), (10_000, 4.0), (1_000_000, 9.0))
    ]
    assert auto_sizes.crossing(runs) == pytest.approx(1000)
    assert auto_sizes.crossing(runs[1:]) is None


def test_auto_takes_the_diagonal_on_a_gpu_where_it_was_measured_to_be_faster():
    content = json.loads((ROOT / "benchmarks" / "results" / "auto_sizes_h200.json").read_text(encoding="utf-8"))
    sizes = BACKENDS["cuda"].solve_sizes
    taken = [
        run
        for run in content["runs"]
        if run["unknowns"] <= sizes.limit(2 if run["shape"] in ("quad", "tri") else 3, run["order"], symmetric=True)
    ]
    assert len(taken) >= 9 and all(run["jacobi"]["seconds"] < run["multigrid"]["seconds"] for run in taken)
