"""Reports, progress, and the description of the machine."""

import json
import logging
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hpfem import reporting
from hpfem.files import write_json


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


def test_machine_description_says_what_results_depend_on(tmp_path):
    machine = reporting.machine_description()
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert machine["memory_bytes"] is None or machine["memory_bytes"] > 2**28
    assert machine["numpy"] == np.__version__
    assert machine["blas"]
    assert machine["date"].endswith("+00:00")
    assert isinstance(machine["gpu"], list)
    write_json(tmp_path / "machine.json", machine)
    assert json.loads((tmp_path / "machine.json").read_text()) == machine


def test_commit_is_told_in_a_checkout():
    commit = reporting.machine_description()["commit"]
    in_checkout = (Path(reporting.__file__).parents[1] / ".git").exists()
    assert (commit is not None) == in_checkout


def test_available_memory_is_less_than_the_machine_has():
    free, all_of_it = reporting.available_memory(), reporting.machine_description()["memory_bytes"]
    assert 1e7 < free <= all_of_it
