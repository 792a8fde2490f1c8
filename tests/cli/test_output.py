"""Tables keep every number at any width, and colours are for terminals of this process."""

import io
import sys
from functools import partial

import pytest

import hpfem as hp
from hpfem.backends.timer import Timing
from hpfem.benchmarks import ComparisonRow
from hpfem.benchmarks.turns import Gain
from hpfem.cli import output
from hpfem.cli.compare import print_comparison
from hpfem.mesh import box

HEADS = ["shape", ">P", "nothing", ">rate", ">seconds of one iteration", ">bytes"]
ROWS = [["hex", "2", "", "12.5 M", "1.25 ms", "123"], ["pyramid", "12", "", "7 M", "9.75 ms", "4567"]]


@pytest.mark.parametrize(("width", "parts"), [(200, 1), (80, 1), (44, 2), (30, 3)])
def test_what_does_not_fit_is_folded_and_nothing_is_lost(capsys, monkeypatch, width, parts):
    monkeypatch.setenv("COLUMNS", str(width))
    output.print_table("a table of rates", HEADS, ROWS, keys=2)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width and "…" not in text and "nothing" not in text
    # The first columns stand before each part.
    assert text.count("pyramid") == parts
    for cell in (*ROWS[0][3:], *ROWS[1][3:], "seconds", "iteration"):
        assert text.count(cell) == 1, cell


def test_colours_are_for_terminals_that_are_no_launcher_s(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def printed(stream):
        monkeypatch.setattr(sys, "stdout", stream)
        output.print_table("a table", HEADS, ROWS)
        return stream.getvalue()

    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1m" in printed(Terminal()) and "\x1b" not in printed(io.StringIO())
    # A launcher gives what looks like a terminal, of a width that it invents.
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = printed(Terminal())
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("other", "said"), [(1.0, "between a and b; auto takes b."), (1.5, "b, which takes 1.5 times as long.")]
)
def test_what_auto_takes_is_named_if_it_is_not_the_first(capsys, other, said):
    """Which may be no slower than the first, but than another that is as fast as the first."""
    problem = hp.Mass(hp.Space(box("quad", (1, 1)), 1)).problem(0)
    names = dict.fromkeys(("benchmark", "shape", "geometry", "backend", "dtype"), "x")
    numbers = dict.fromkeys(("order", "n_cells", "flops", "nbytes", "difference"), 1)
    made = partial(ComparisonRow.of, problem, Timing.of([1e-5], 1), 100, algorithm="", **names, **numbers)
    rows = [
        made(strategy="a", behind=Gain(1.0, 1.0, 1.0), fastest=True),
        made(strategy="b", behind=Gain(0.99 * other, other, 1.1 * other), chosen=True),
    ]
    about = {"mesh": "x.msh", "threads": {"limit": 1}, "space": {"dtype": "float64"}}
    print_comparison(rows, about, everything=False)
    assert said in " ".join(capsys.readouterr().out.split())
