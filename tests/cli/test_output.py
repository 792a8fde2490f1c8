"""Tables keep every number at any width, and colours are for terminals of this process."""

import io
import sys

import pytest

from hpfem.cli import output

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
