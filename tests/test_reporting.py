"""Reports, progress, whole files, and the description of the machine."""

import json
import logging
import math
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hpfem import reporting
from hpfem.errors import ArgumentError


@pytest.fixture(autouse=True)
def _nothing_reported():
    reporting.forget_reports()
    yield
    reporting.forget_reports()


def test_a_report_is_said_once(caplog):
    with caplog.at_level(logging.WARNING, logger="hpfem"):
        assert reporting.report_once("mass/hex", "no fast path for 100 % of hexes")
        assert not reporting.report_once("mass/hex", "no fast path for 100 % of hexes")
        assert reporting.report_once("mass/tet", "nor for tets")
    assert [record.getMessage() for record in caplog.records] == ["no fast path for 100 % of hexes", "nor for tets"]
    assert reporting.reports() == {"mass/hex": "no fast path for 100 % of hexes", "mass/tet": "nor for tets"}


def test_threads_report_once():
    said = []
    barrier = threading.Barrier(8)

    def report():
        barrier.wait()
        said.append(reporting.report_once("key", "message"))

    threads = [threading.Thread(target=report) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [False] * 7 + [True]


class Terminal:
    """A standard error stream that collects what is written and may say that it is a terminal."""

    encoding = "utf-8"

    def __init__(self, is_terminal):
        self.is_terminal = is_terminal
        self.text = ""

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_shows_on_a_terminal_only(monkeypatch, is_terminal):
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with reporting.progress("orders", total=3) as step:
        step()
        step(2, "order 3")
    if is_terminal:
        assert "order 3" in terminal.text
        assert "3/3" in terminal.text
    else:
        assert terminal.text == ""


def test_atomic_path_gives_a_name_with_the_same_suffix_and_renames(tmp_path):
    target = tmp_path / "picture.png"
    with reporting.atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".png"
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


def test_atomic_path_leaves_the_old_file_when_writing_fails(tmp_path):
    target = tmp_path / "result.json"
    target.write_text("old")
    with pytest.raises(RuntimeError, match="half way"), reporting.atomic_path(target) as temporary:
        temporary.write_text("ne")
        raise RuntimeError("half way")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_atomic_path_refuses_what_it_cannot_write(tmp_path):
    with pytest.raises(ArgumentError, match="there is no folder"), reporting.atomic_path(tmp_path / "no" / "file"):
        pass
    with pytest.raises(ArgumentError, match="it is a folder"), reporting.atomic_path(tmp_path):
        pass


def test_json_takes_numpy_and_has_no_nan(tmp_path):
    target = tmp_path / "result.json"
    numbers = {"rate": np.float64(2.5), "count": np.int64(3), "flag": np.True_, "bad": math.nan, "worse": np.inf}
    arrays = {"array": np.array([[1.0, np.nan]]), "tuple": (1, "two"), "none": None, 4: Path("a/b")}
    reporting.write_json(target, numbers | arrays)
    assert json.loads(target.read_text()) == {
        "rate": 2.5,
        "count": 3,
        "flag": True,
        "bad": None,
        "worse": None,
        "array": [[1.0, None]],
        "tuple": [1, "two"],
        "none": None,
        "4": "a/b",
    }


def test_json_refuses_other_objects_and_writes_nothing(tmp_path):
    with pytest.raises(ArgumentError, match="cannot write a object as JSON"):
        reporting.write_json(tmp_path / "result.json", {"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_machine_description_says_what_results_depend_on(tmp_path):
    machine = reporting.machine_description()
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert machine["memory_bytes"] is None or machine["memory_bytes"] > 2**28
    assert machine["numpy"] == np.__version__
    assert machine["blas"]
    assert machine["date"].endswith("+00:00")
    assert isinstance(machine["gpu"], list)
    reporting.write_json(tmp_path / "machine.json", machine)
    assert json.loads((tmp_path / "machine.json").read_text()) == machine


def test_commit_is_told_in_a_checkout():
    commit = reporting.machine_description()["commit"]
    in_checkout = (Path(reporting.__file__).parents[1] / ".git").exists()
    assert (commit is not None) == in_checkout


def test_available_memory_is_less_than_the_machine_has():
    free, all_of_it = reporting.available_memory(), reporting.machine_description()["memory_bytes"]
    assert 1e7 < free <= all_of_it
