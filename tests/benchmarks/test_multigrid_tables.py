"""benchmarks/multigrid.py: that it runs, what it counts, and that the page shows the file."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("multigrid_tables", ROOT / "benchmarks" / "multigrid.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_small_tables(script, tmp_path, capsys):
    path = tmp_path / "found.json"
    found = script.main(["--small", "-o", str(path)])
    printed = capsys.readouterr().out
    assert json.loads(path.read_text()) == json.loads(json.dumps(found))
    assert set(found["tables"]) == set(script.TABLES)
    for content in found["tables"].values():
        assert content["title"] in printed
        for record in content["cases"]:
            assert "failed" not in record, record
            assert 0 < record["iterations"] <= 20 and record["residual"] <= 1.1 * record["tol"], record
    assert script.main(["--show", str(path)]) == json.loads(path.read_text())
    assert capsys.readouterr().out.strip() == printed.strip()


def test_errors_are_reported(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "MOST_UNKNOWNS", 1)
    record = script.main(["--small", "reactions"])["tables"]["reactions"]["cases"][0]
    assert record["iterations"] is None and record["failed"] == "more than 1 unknowns"
    assert "| x |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        script.main(["nonsense"])
    assert "there are orders" in capsys.readouterr().err


def test_the_page_shows_the_file(script, capsys):
    script.main(["--show", str(ROOT / "benchmarks" / "results" / "multigrid_iterations.json")])
    page = (ROOT / "benchmarks" / "MULTIGRID.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("|") and line not in page] == []
