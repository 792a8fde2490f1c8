"""The whole benchmark from the command line: parts, resuming, merging, budgets, exit codes."""

import json

import pytest

from hpfem.backends.base import BACKENDS
from hpfem.benchmarks.cases import SuiteSettings
from hpfem.benchmarks.parts import suite_document
from hpfem.benchmarks.runner import Runner
from hpfem.benchmarks.tiled import TiledBlock
from hpfem.cli import main
from hpfem.support.machine import machine_description
from tests.cli.test_commands import refused, run
from tests.standin import StandInBackend

SMALL = [
    "bench",
    *("--tiled", "--quick", "--backend", "numpy", "--shapes", "hex,tri", "--orders", "1:3"),
    *("--dofs", "200,2000", "--repeats", "1", "--sustained", "0.001"),
]


@pytest.fixture(autouse=True)
def one_commit(monkeypatch):
    """The same machine and commit in all runs of a test, whatever happens to the checkout meanwhile."""
    machine = {**machine_description(), "commit": "c0ffee"}
    monkeypatch.setattr("hpfem.cli.bench.machine_description", lambda: machine)


def test_the_whole_benchmark_in_parts(capsys, tmp_path):
    parts = [tmp_path / "1.json", tmp_path / "2.json"]
    text = run(capsys, *SMALL, "--part", "1/2", "-o", parts[0])
    assert "24 problems measured" in text and "24 problems belong to other parts" in text
    lines = [line.split()[:4] for line in text.splitlines() if line.startswith("bk")]
    assert len(lines) == 2 * 2 * 2 * 2 and ["bk1", "float32", "affine", "tri"] in lines
    first = json.loads(parts[0].read_text())
    assert not first["complete"] and first["left"] == 24
    second = json.loads(run(capsys, *SMALL, "--part", "2/2", "-o", parts[1], "--json"))
    assert second["left"] == 24 and second["runs"][0]["part"] == [2, 2]
    whole = tmp_path / "whole.json"
    assert "problems are not in it" not in run(capsys, "bench", "--merge", *parts, "-o", whole)
    result = json.loads(whole.read_text())
    assert result["complete"] and len(result["results"]) == len(first["results"]) + len(second["results"])
    assert {"float64", "float32"} == set(result["runs"][1]["rooflines"])
    assert "remove --part" in refused(capsys, "bench", "--merge", *parts, "--part", "1/2", "-o", whole)
    assert "are in two of these" in refused(capsys, "bench", "--merge", *parts, parts[0], "-o", whole)
    assert "say which with -o" in refused(capsys, "bench", "--merge", *parts)
    # The other way: what the first lacks.
    text = run(capsys, *SMALL, "--resume", parts[0], "-o", tmp_path / "resumed.json")
    assert "24 problems measured" in text and "left" not in text
    resumed = json.loads((tmp_path / "resumed.json").read_text())
    assert resumed["complete"] and len(resumed["results"]) == len(result["results"])
    assert resumed["results"][: len(first["results"])] == first["results"]
    assert "settings differ" in refused(capsys, *SMALL, "--repeats", "2", "--resume", parts[0], "-o", whole)


def test_a_budget_ends_cleanly(capsys, tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    measure, done = Runner._measure, []

    def late(self, case):
        measure(self, case)
        done.append(case)
        if len(done) == 3:
            self._end = 0.0

    monkeypatch.setattr(Runner, "_measure", late)
    text = run(capsys, *SMALL, "--budget", "1000", "-o", path)
    assert "3 problems measured" in text and "45 problems of this part are left; go on with the same" in text
    assert f"--resume {path}" in text
    result = json.loads(path.read_text())
    assert not result["complete"] and result["left"] == 45
    assert "budget was too short" in refused(capsys, *SMALL, "--budget", "0", "-o", tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_wrong_results_are_an_error_after_all_is_written(capsys, tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    error = TiledBlock.error
    monkeypatch.setattr(
        TiledBlock,
        "error",
        lambda self, kernel, u, out: 0.5 if kernel.kernel.strategy == "stdmat" else error(self, kernel, u, out),
    )
    assert main([*SMALL, "-o", str(path)]) == 2
    out, err = capsys.readouterr()
    assert "kernel(s) compute something wrong" in err and "written" in out
    result = json.loads(path.read_text())
    assert {entry["strategy"] for entry in result["wrong"]} == {"stdmat"}
    assert {entry["strategy"] for entry in result["results"]} == {"sumfac"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": 3}, "its settings are 3"),
        ({"settings": {"unknown": 3}}, "settings of a result file are not"),
        ({"runs": []}, "only results of hpfem bench --tiled"),
        ({"runs": [1]}, "runs of a result file are not"),
        ({"runs": [{"machine": {"gpu": 9}, "rooflines": {}}]}, "runs of a result file are not"),
        ({"runs": [{"machine": {}, "rooflines": {"float64": {"bandwidth": 1}}}]}, "runs of a result file are not"),
        ({"skipped": None}, "its skipped are None"),
        ({"wrong": [7]}, "wrong of a result file are not"),
        ({"wrong": [{"dtype": []}]}, "wrong of a result file are not"),
    ],
)
def test_damaged_result_files_are_refused(capsys, tmp_path, change, message):
    path = tmp_path / "r.json"
    settings = SuiteSettings(backend="numpy")
    run_ = {"machine": {}, "rooflines": {}}
    case = settings.cases()[0].as_dict()
    measured = {**case, "strategy": "sumfac", "algorithm": "collocated", "bound": "flops"}
    measured |= dict.fromkeys(("n_dofs", "dofs_per_second", "fraction"), 1)
    path.write_text(json.dumps({**suite_document(settings, [run_], [measured], [], []), **change}))
    assert message in refused(capsys, "bench", "--merge", path, "-o", tmp_path / "m.json")
    assert message in refused(capsys, *SMALL, "--resume", path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "3/2"], "part '3/2' is not understood"),
        (["--part", "1"], "part '1' is not understood"),
        (["--budget", "soon"], "'soon' is not a number of seconds"),
        (["--budget", "nan"], "is not a number of seconds"),
        (["--sustained", "1000"], "sustained 0 to 60 seconds"),
        (["--benchmark", "bk1,bk2"], "unknown benchmark 'bk2'"),
        (["--shapes", "cube"], "unknown shape 'cube'"),
        (["--geometry", "bent"], "unknown geometry 'bent'"),
        (["--strategies", "magic"], "unknown strategy 'magic'"),
        (["--resume", "absent.json"], "cannot read absent.json"),
        (["-o", "r.txt"], "give a name that ends in .json"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert message in refused(capsys, *SMALL, *arguments)


def test_a_missing_gpu_is_reported(capsys, monkeypatch):
    backend = StandInBackend("cuda", missing="there is no NVIDIA GPU")
    monkeypatch.setitem(BACKENDS, "cuda", backend)
    assert "backend 'cuda' cannot run here: there is no NVIDIA GPU" in refused(capsys, "bench", "--backend", "cuda")


def test_options_of_the_suite_are_refused_without_it(capsys, tmp_path):
    plain = ["bench", "--backend", "numpy"]
    for option, value in (("--part", "1/2"), ("--budget", "5"), ("--resume", "r.json"), ("--sustained", "1")):
        assert f"{option} belongs to --tiled" in refused(capsys, *plain, option, value)
    assert "--sources belongs to --tiled" in refused(capsys, *plain, "--sources")
    assert "need --tiled" in refused(capsys, *plain, "--benchmark", "bk1,bk3")
    assert "need --tiled" in refused(capsys, *plain, "--dtype", "both")
    path = tmp_path / "plain.json"
    run(capsys, *plain, "--shapes", "hex", "--orders", "1", "--dofs", "500", "--quick", "--repeats", "1", "-o", path)
    assert "only results of hpfem bench --tiled" in refused(capsys, "bench", "--merge", path, "-o", tmp_path / "m.json")
