"""`hpfem tune` as it is used."""

import json
import signal
from pathlib import Path

import pytest

from hpfem.cli import main
from hpfem.tuning import TuningRecord, store

ROOT = Path(__file__).resolve().parent.parent.parent
FLAT = str(ROOT / "meshes" / "square_mixed.msh")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache of our own."""
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    return tmp_path / "tuning"


def run(capsys, *arguments):
    """Standard output of a command that works."""
    code = main(["tune", *[str(argument) for argument in arguments]])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def refused(capsys, *arguments):
    """The one line of complaint about bad input."""
    try:
        code = main(["tune", *arguments])
    except SystemExit as exit_:
        code = exit_.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.startswith("hpfem") and err.count("\n") == 1
    return err


def test_tunes_shows_and_forgets(capsys, folder):
    assert "nothing is tuned yet" in run(capsys, "--show")
    assert json.loads(run(capsys, "--show", "--json")) == []
    text = run(capsys, FLAT, "--order", "1,2", "--operator", "mass", "--backend", "numpy", "--seconds", 1000)
    assert text.count("Mass") == 4 and "P=1" in text and "P=2" in text and "DoF/s" in text
    assert len(list(folder.iterdir())) == 4
    shown = run(capsys, "--show")
    assert shown.count("numpy: ") == 4 and "quad" in shown and "tri" in shown and "float64" in shown
    records = json.loads(run(capsys, "--show", "--json"))
    assert {record["key"]["order"] for record in records} == {1, 2}
    assert all(record["about"]["operator"] == "Mass" and record["tried"] == 2 for record in records)
    main(["apply", FLAT, "--operator", "mass", "--order", "2", "--backend", "numpy"])
    assert capsys.readouterr().out.count("(measured here: ") == 2
    main(["cache", "clear", "tuning"])
    assert "nothing is tuned yet" in run(capsys, "--show") + capsys.readouterr().out


def test_a_signal_leaves_what_was_tuned(capsys, folder, monkeypatch):
    keep = store.keep

    def then_stop(record):
        keep(record)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("hpfem.tuning.tuner.keep", then_stop)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        arguments = [FLAT, "--order", "1,2", "--operator", "mass", "--backend", "numpy", "--seconds", "2"]
        assert main(["tune", *arguments]) == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr() == ("", "hpfem: terminated\n") and len(store.entries()) == 1


def test_shows_results_with_odd_keys(capsys):
    for size in ("many", -1, 10**4000):
        store.keep(TuningRecord({"backend": "cpu", "size": size}, ("a", None, None), 1.0, None, 1.0, False, 1))
    assert run(capsys, "--show").count("cpu: ") == 3


def test_json(capsys):
    arguments = ("--order", "tri=1,quad=2", "--operator", "AdvectionDiffusionReaction", "--backend", "numpy", "--json")
    entries = json.loads(run(capsys, FLAT, *arguments, "--seconds", 1000))
    assert sorted(entry["block"].split(",")[1] for entry in entries) == [" P=1", " P=2"]
    for entry in entries:
        assert entry["chosen"] in entry["seconds"] and entry["dofs_per_second"] > 0 and len(entry["seconds"]) == 4
        assert entry["gain"] == 1.0 or entry["changed"]


def test_precisions_are_tuned_apart(capsys):
    curved = str(ROOT / "meshes" / "curved_mixed_2d.msh")
    arguments = ("--order", 1, "--operator", "mass", "--backend", "numpy", "--seconds", 1000)
    found = []
    for precision in ("full", "mixed"):
        run(capsys, curved, *arguments, "--precision", precision)
        records = json.loads(run(capsys, "--show", "--json"))
        found.append({(record["key"]["geometry"] == "affine", record["key"].get("factors")) for record in records})
    assert (False, None) in found[0] and (False, "float32") not in found[0]
    assert (False, "float32") in found[1] and (True, "float32") not in found[1]
    assert "float64/float32" in run(capsys, "--show")


def test_what_is_asked_for(capsys):
    arguments = ("--order", 1, "--operator", "helmholtz", "--backend", "numpy", "--strategy", "sumfac", "--json")
    entries = json.loads(run(capsys, FLAT, *arguments, "--seconds", 1000))
    assert all(name.startswith("sumfac, ") for entry in entries for name in entry["seconds"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no mesh is given"),
        ([FLAT, "--seconds", "0"], "--seconds 0 leaves no time"),
        ([FLAT, "--seconds", "soon"], "'soon' is not a number of seconds"),
        ([FLAT, "--order", "0"], "between 1 and"),
        ([FLAT, "--operator", "fwdtrans"], "FwdTrans cannot be tuned"),
        ([FLAT, "--operator", "magic"], "unknown operator"),
        ([FLAT, "--strategy", "magic"], "unknown strategy"),
        ([FLAT, "--backend", "magic"], "unknown backend"),
        (["nowhere.msh"], "nowhere.msh"),
    ],
)
def test_bad_input(capsys, folder, arguments, message):
    assert message in refused(capsys, *arguments)
    assert not folder.exists()
