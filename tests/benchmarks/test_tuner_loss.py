"""benchmarks/tuner_loss.py: what it measures, parts that go on and go together."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import tuner_loss
from hpfem.backends.cuda.fused.plan import FusedOptions
from hpfem.backends.options import from_text
from hpfem.errors import ArgumentError

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = ("--backend", "numpy", "--shapes", "tri", "--geometries", "affine", "--dofs", "200", "--tune", "1")


def test_parts_go_on_and_go_together(tmp_path, capsys):
    one, two, both = (str(tmp_path / f"{name}.json") for name in ("one", "two", "both"))
    assert tuner_loss.main(["-o", one, *CASES, "--orders", "1", "--budget", "0.000001"])["cases"] <= 1
    found = tuner_loss.main(["-o", one, *CASES, "--orders", "1"])
    assert found["cases"] == 2 and found["geometric_mean_loss"] >= 0
    before = Path(one).read_text()
    assert tuner_loss.main(["-o", one, *CASES, "--orders", "1"]) == found and Path(one).read_text() == before
    tuner_loss.main(["-o", two, *CASES, "--orders", "2", "--operators", "mass"])
    assert tuner_loss.main(["-o", both, "--merge", one, two])["cases"] == 3
    content = json.loads(Path(both).read_text())
    assert {"cpu", "device", "date"} <= set(content["machine"]) and content["summary"]["cases"] == 3
    for result in content["results"]:
        assert result["loss"] >= 0 and result["samples"] >= 11 and result["tried"] >= 2
        assert result["chosen"] in result["finalists"] and result["best"] in result["finalists"]
    assert "geometric_mean_loss" in capsys.readouterr().out


def test_other_settings_and_foreign_files_are_refused(tmp_path):
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    tuner_loss.main(["-o", str(one), *CASES, "--orders", "1", "--operators", "mass"])
    with pytest.raises(ArgumentError, match="other settings"):
        tuner_loss.main(["-o", str(one), *CASES, "--dofs", "300"])
    other.write_text("{}")
    with pytest.raises(ArgumentError, match="no result of tuner_loss"):
        tuner_loss.main(["-o", str(tmp_path / "both.json"), "--merge", str(one), str(other)])


def test_options_of_the_shipped_table_can_be_read():
    """Those that are all by default are an empty text; "stored" is the source of a strategy without other options."""
    case = {"operator": "helmholtz", "shape": "hex", "order": 7, "geometry": "affine", "points": "nodes"}
    block = tuner_loss.TiledProblem(tuner_loss.problem_of({**case, "precision": "full"}, "float64"), "numpy")
    ways = ("fused", "", 1.0), ("fused", "warps=2", 2.0), ("sumfac", None, 3.0), ("stdmat", None, 4.0)
    seconds = {tuner_loss.Config(name, "collocated", options): t for name, options, t in ways}
    found = dict(
        tuner_loss.Searched.rows(SimpleNamespace(block=block, seconds=seconds, case={**case, "elements": 10**9}))
    )
    assert {key.split("/")[0]: row for key, row in found.items()} == {"fused": (512.0, ""), "sumfac": (170.7, "stored")}
    options = [from_text(FusedOptions, row[1]) for key, row in found.items() if key.startswith("fused")]
    assert options == [FusedOptions()]
