"""CEED's bake-off problems from the command line: every shape in seconds, the file, the pictures, what is refused."""

import json
from pathlib import Path

import pytest

from hpfem.backends.base import BACKENDS
from hpfem.benchmarks import BOX_SHAPES, read_results
from tests.cli.test_commands import refused, run
from tests.standin import StandInBackend

SMALL = [
    *("bench", "--quick", "--backend", "numpy", "--orders", "1,3", "--dofs", "300,900"),
    *("--repeats", "1", "--geometry", "deformed"),
]


def test_every_shape_a_file_and_pictures(capsys, tmp_path):
    path = tmp_path / "bp3.json"
    text = " ".join(run(capsys, *SMALL, "--benchmark", "bp3", "--shapes", "all", "-o", path).split())
    for shape in BOX_SHAPES:
        for phase in ("application", "iteration", "csr"):
            assert f"{shape} deformed {phase} auto auto" in text
    assert "bp3, numpy, float64: best throughput in MDoF/s" in text and "over SciPy's CSR product" in text
    assert "limits measured" in text
    result = read_results(path)
    assert result["complete"] and result["machine"]["cpu"] and result["threads"]["limit"] == 1
    assert result["roofline"]["bandwidth"] > 0
    wanted = {"operator": "Laplacian", "boundary": "u = 0", "preconditioner": "none", "iterations": 20}
    assert result["problem"] == wanted
    assert len(result["results"]) == len(BOX_SHAPES) * 2 * 2 * 3
    for record in result["results"]:
        assert {"phase", "seconds", "n_dofs", "n_cells", "nbytes", "flops", "bound", "fraction", "error"} <= set(record)
        assert record["error"] < 1e-12 and record["seconds"] > 0
    # (4 + 1) 8^2 and (6 + 1) 11^2 vertices.
    hexes = {record["n_dofs"] for record in result["results"] if (record["shape"], record["order"]) == ("hex", 1)}
    assert hexes == {320, 847}
    pictures = json.loads(run(capsys, "plot", path, "--json"))["pictures"]
    kinds = {f"bp3_{what}{end}" for end in ("", "_2d") for what in ("best", "by_order", "deformed", "roofline")}
    names = [Path(picture).stem for picture in pictures]
    assert names[0] == "bp3_best" and set(names) == kinds and len(names) == len(kinds)


def test_a_shape_that_is_left_out_and_another_precision(capsys):
    text = run(capsys, *SMALL, "--benchmark", "bp5", "--shapes", "quad,tri")
    assert "skipped: bp5: tri elements are left out: the points are to be the nodes of the basis" in text
    result = json.loads(run(capsys, *SMALL, "--benchmark", "bp1", "--shapes", "tri", "--dtype", "float32", "--json"))
    assert {record["operator"] for record in result["results"]} == {"Mass"}
    assert {record["dtype"] for record in result["results"]} == {"float32"}
    assert result["problem"]["preconditioner"] == "jacobi" and result["problem"]["boundary"] == "natural"


def test_matrices_are_made_up_to_a_size(capsys):
    given = [*SMALL, "--benchmark", "bp3", "--shapes", "hex", "--matrix-entries", "10"]
    text = run(capsys, *given)
    assert "skipped: SciPy's CSR product: matrices of more than 1e+01 element entries are not made" in text
    assert "application" in text and "csr" not in text and "over SciPy" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bp5", "--shapes", "tet,pyramid"], "nothing could be measured: bp5: tet elements are left out"),
        (["bp5", "--basis", "modified"], "bp5 is defined on basis 'lagrange', got 'modified'"),
        (["bp3", "--basis", "orthogonal"], "nothing could be measured: the 'orthogonal' basis is not continuous"),
        (["bp3", "--tiled"], "bp3 is measured on whole meshes, --tiled is for bk1 and bk3; remove it"),
        (["bp1", "--budget", "5"], "bp1 is measured on whole meshes, --budget is for bk1 and bk3; remove it"),
        (["bp1,bp3"], "several benchmarks or dtypes in one run need --tiled"),
        (["bp4"], "unknown benchmark 'bp4'"),
        (["bp3", "--matrix-entries", "many"], "sizes 'many' are not understood"),
        (["bp3", "--dofs", "1e11"], "GiB of memory are free; measure at most about"),
    ],
)
def test_an_impossible_measurement_is_one_line(capsys, arguments, message):
    assert message in refused(capsys, *SMALL, "--benchmark", *arguments)


def test_on_a_gpu_they_are_not_the_whole_benchmark(capsys, monkeypatch):
    monkeypatch.setitem(BACKENDS, "cuda", StandInBackend("cuda", missing="there is no NVIDIA GPU"))
    said = refused(capsys, *SMALL, "--benchmark", "bp3", "--backend", "cuda")
    assert "backend 'cuda' cannot run here: there is no NVIDIA GPU" in said
