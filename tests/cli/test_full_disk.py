"""The disk is full when a command writes: one line of complaint, and what was computed is printed."""

import json
import re
from pathlib import Path

import pytest

from hpfem.cli import main
from tests.cli.test_commands import FLAT, SMALL_BENCH, shell


@pytest.mark.parametrize("command", [[*SMALL_BENCH, "-o", "out.json"], ["compare", FLAT, "--order", "2", "-o", "."]])
def test_a_full_disk_does_not_lose_the_result(capsys, monkeypatch, tmp_path, command):
    def full(path, *_, **__):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--json"]) == 2
    out, err = capsys.readouterr()
    assert re.fullmatch(r"hpfem: error: cannot write \S*\.json: No space left on device; choose another place\n", err)
    assert json.loads(out)["results"]


@pytest.mark.parametrize("command", ["solve", "apply"])
def test_a_full_disk_does_not_lose_the_numbers(tmp_path, command):
    target = tmp_path / "u.vtu"
    target.write_text("old")
    options = "--order 2 --backend numpy --json"
    assert shell(f"{command} {FLAT} {options}")[0] == 0  # kernels are in the cache
    code, out, err = shell(f"{command} {FLAT} {options} -o {target}", before="ulimit -f 1")
    assert code == 2 and json.loads(out)["cells"] > 0 and "output" not in json.loads(out)
    assert err == f"hpfem: error: cannot write {target}: File too large; choose another place\n"
    assert target.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["u.vtu"]
