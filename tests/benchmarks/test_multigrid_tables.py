"""benchmarks/multigrid.py and stretched.py: that they run, what they count, and that the page shows the files."""

import json
from pathlib import Path

import pytest

from benchmarks import multigrid, stretched

ROOT = Path(__file__).resolve().parent.parent.parent


def test_small_tables(tmp_path, capsys):
    path = tmp_path / "found.json"
    found = multigrid.main(["--small", "-o", str(path)])
    printed = capsys.readouterr().out
    assert json.loads(path.read_text()) == json.loads(json.dumps(found))
    assert set(found["tables"]) == set(multigrid.TABLES)
    for content in found["tables"].values():
        assert content["title"] in printed
        for record in content["cases"]:
            assert "failed" not in record, record
            assert 0 < record["iterations"] <= 20 and record["residual"] <= 1.1 * record["tol"], record
    assert multigrid.main(["--show", str(path)]) == json.loads(path.read_text())
    assert capsys.readouterr().out.strip() == printed.strip()


def test_errors_are_reported(monkeypatch, capsys):
    monkeypatch.setattr(multigrid, "MOST_UNKNOWNS", 1)
    record = multigrid.main(["--small", "reactions"])["tables"]["reactions"]["cases"][0]
    assert record["iterations"] is None and record["failed"] == "more than 1 unknowns"
    assert "| x |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        multigrid.main(["nonsense"])
    assert "there are orders" in capsys.readouterr().err


def test_small_tables_of_stretched_cells(tmp_path, capsys):
    path = tmp_path / "found.json"
    found = stretched.main(["boxes", "squeezed", "graded", "--small", "--jacobi", "-o", str(path)])
    printed = capsys.readouterr().out
    assert stretched.main(["--show", str(path)]) == json.loads(path.read_text()) == json.loads(json.dumps(found))
    assert capsys.readouterr().out == printed
    for content in found["tables"].values():
        for record in content["cases"]:
            most = 150 if "pyramid" in record["row"] else 20
            assert 0 < record["iterations"] <= most and record["difference"] < 1e-5, record


def test_the_page_shows_the_file(capsys):
    multigrid.main(["--show", str(ROOT / "benchmarks" / "results" / "multigrid_iterations.json")])
    page = (ROOT / "benchmarks" / "MULTIGRID.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("|") and line not in page] == []
