"""Reports, progress, and the description of the machine."""

import json
import logging
import sys
import threading
import time
import types
import uuid
from pathlib import Path

import numpy as np
import pytest

from hpfem.backends.cpu.runtime import cache
from hpfem.backends.cpu.runtime.target import host
from hpfem.support import log, machine, progress
from hpfem.support.files import write_json


@pytest.fixture(autouse=True)
def _nothing_reported():
    log.forget_reports()
    yield
    log.forget_reports()


def test_a_message_is_reported_once(caplog):
    with caplog.at_level(logging.WARNING, logger="hpfem"):
        assert log.report_once("mass/hex", "no fast path for 100 % of hexes")
        assert not log.report_once("mass/hex", "no fast path for 100 % of hexes")
        assert log.report_once("mass/tet", "nor for tets")
    assert [record.getMessage() for record in caplog.records] == ["no fast path for 100 % of hexes", "nor for tets"]
    assert log.reports() == {"mass/hex": "no fast path for 100 % of hexes", "mass/tet": "nor for tets"}


def test_threads_report_once():
    said = []
    barrier = threading.Barrier(8)

    def report():
        barrier.wait()
        said.append(log.report_once("key", "message"))

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

    def waits_for(self, *texts):
        """Whether they are all shown, after some time at most."""
        for _ in range(3000):
            if all(text in self.text for text in texts):
                return True
            time.sleep(0.01)
        return False


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_shows_on_a_terminal_only(monkeypatch, is_terminal):
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress("orders", total=3) as step:
        step()
        step(2, "order 3")
    if is_terminal:
        assert "order 3" in terminal.text
        assert "3/3" in terminal.text
    else:
        assert terminal.text == ""


def on_terminal(monkeypatch):
    """A terminal as standard error."""
    terminal = Terminal(True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_bars_inside_bars_are_lines_of_the_first(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with progress.progress("outer", total=2) as step:
        for _ in range(2):
            with progress.progress("inner", total=5) as inner:
                inner(4)
                assert terminal.waits_for("inner", "4/5")
            step()
    assert terminal.waits_for("outer", "2/2")
    assert not progress._bars


def test_short_work_shows_no_bar(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 3600.0)
    with progress.progress_if_long("quick"):
        pass
    assert terminal.text == ""


def test_long_compilations_are_reported(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    compile_object, said = cache.compile_object, []

    def slow(*arguments):
        said.append(terminal.waits_for("compiling a kernel"))
        return compile_object(*arguments)

    monkeypatch.setattr(cache, "compile_object", slow)
    text = f"; {uuid.uuid4()}\ndefine void @run() {{\n  ret void\n}}\n"
    cache.compiled(text, host())
    assert said == [True]
    terminal.text = ""
    monkeypatch.setattr(cache, "_LOADED", {})
    cache.compiled(text, host())
    assert terminal.text == ""


class Kernel(Terminal):
    """What a notebook gives for standard output: no terminal, and a place for carriage returns."""

    def line(self):
        """What stands there now."""
        return self.text.rpartition("\r")[2].rstrip()


def in_notebook(monkeypatch, shell):
    """A fake IPython whose shell is this object, and its output."""
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    kernel = Kernel(False)
    monkeypatch.setattr(sys, "stdout", kernel)
    monkeypatch.setattr(sys, "stderr", Terminal(False))
    return kernel


def test_progress_in_a_notebook_is_a_line_that_goes_away(monkeypatch):
    monkeypatch.setattr(progress, "PERIOD", 0.01)
    kernel = in_notebook(monkeypatch, types.SimpleNamespace(kernel=object()))
    with progress.progress("orders", total=3) as step:
        step(2, "order 3")
        assert kernel.waits_for("order 3, 2/3, 0 s")
        with progress.progress("CG") as inner:
            inner(7, description="CG 1.0e-03")
            assert kernel.waits_for("order 3, 2/3, 0 s; CG 1.0e-03, 7, 0 s")
        assert "CG" not in kernel.line() or kernel.waits_for("\rorder 3, 2/3, 0 s ")
    assert kernel.line() == "" and not progress._bars and "\n" not in kernel.text
    with progress.progress("over at once"):
        pass
    assert "at once" not in kernel.text


def test_ipython_in_a_terminal_or_without_a_kernel_is_no_notebook(monkeypatch):
    for shell in (types.SimpleNamespace(), None):
        kernel = in_notebook(monkeypatch, shell)
        monkeypatch.setattr(progress, "PERIOD", 0.001)
        with progress.progress("orders") as step:
            step()
            time.sleep(0.01)
        assert kernel.text == ""


def test_nothing_is_shown_where_silence_is_asked_for(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with progress.silent(), progress.progress("orders", total=3) as step:
        step()
        with progress.silent():
            pass
        with progress.progress("inner"):
            pass
    assert terminal.text == ""
    with progress.progress("orders", total=3) as step:
        step()
    assert "orders" in terminal.text


def test_machine_description_says_what_results_depend_on(tmp_path):
    found = machine.machine_description()
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["memory_bytes"] is None or found["memory_bytes"] > 2**28
    assert found["numpy"] == np.__version__
    assert found["blas"]
    assert found["date"].endswith("+00:00")
    assert isinstance(found["gpu"], list)
    write_json(tmp_path / "machine.json", found)
    assert json.loads((tmp_path / "machine.json").read_text()) == found


def test_commit_is_told_in_a_checkout():
    commit = machine.machine_description()["commit"]
    in_checkout = (Path(machine.__file__).parents[2] / ".git").exists()
    assert (commit is not None) == in_checkout


def test_available_memory_is_less_than_the_machine_has():
    free, all_of_it = machine.available_memory(), machine.machine_description()["memory_bytes"]
    assert 1e7 < free <= all_of_it
