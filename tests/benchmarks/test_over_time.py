"""benchmarks/over_time.py: it keeps a run for each commit and finds what became slower."""

import json

import pytest

from benchmarks import over_time

SMALL = ["--sweeps", "1", "--shapes", "quad", "--orders", "2", "--dofs", "1000", "--quick"]


def edited(path, **changes):
    """Change the last run of a file."""
    runs = json.loads(path.read_text())
    runs[-1] |= changes
    path.write_text(json.dumps(runs))


def test_a_kernel_that_became_slower_is_found(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HPFEM_COMMIT", "ffffff")  # where this is no checkout
    keep = tmp_path / "runs.json"

    def run(*options):
        return over_time.main(["--keep", str(keep), *SMALL, *options])

    assert run() == 0 and "the first" in capsys.readouterr().out
    [first] = json.loads(keep.read_text())
    assert first["commit"] and first["processor"] and all(share > 0 for share in first["shares"].values())
    assert {case.split(" quad")[0] for case in first["shares"]} == {"bk3", "bp3 application", "bp3 iteration"}
    # The same commit takes the place of its earlier run; another one is compared with.
    assert run() == 0 and len(json.loads(keep.read_text())) == 1
    # Far more than noise of a busy machine.
    faster = {case: 1e6 * share for case, share in first["shares"].items()}
    edited(keep, commit="0123456789", shares=faster)
    assert run() == 1 and capsys.readouterr().out.count("slower") == len(faster)
    assert [kept["commit"] for kept in json.loads(keep.read_text())] == ["0123456789", first["commit"]]
    assert run("--against", "0123", "--tolerance", "0.999999999") == 0
    with pytest.raises(SystemExit):
        run("--against", "none")
    # Another processor is another machine.
    keep.write_text(json.dumps([{**first, "commit": "0", "shares": faster, "processor": "another"}]))
    assert run() == 0 and len(json.loads(keep.read_text())) == 2
