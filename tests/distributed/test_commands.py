"""Commands in several processes: what one process says, said once."""

import json

import pytest

from hpfem.cli import main, make_parser
from tests.distributed.launch import needs_mpi, start


def said(capsys, *given):
    """What a command prints in one process, and in two."""
    assert main(list(given)) == 0
    found = start(2, "-m", "hpfem", *given)
    assert found.returncode == 0, found.stderr[-2000:]
    return capsys.readouterr().out, found.stdout


@needs_mpi
def test_info(capsys):
    one, other = said(capsys, "info", "meshes/curved_mixed.msh", "--order", "3", "--backend", "cuda")
    assert one == other


@needs_mpi
def test_help_is_printed_once():
    assert start(2, "-m", "hpfem", "--help").stdout.count("usage: ") == 1


def test_which_commands_work_in_many_processes():
    (commands,) = (own for own in make_parser()._actions if own.dest == "command")
    many = {name for name, parser in commands.choices.items() if not parser.get_default("alone")}
    assert many == {"info", "solve", "scale"}


@needs_mpi
def test_solve(capsys, tmp_path):
    given = ["solve", "meshes/cube_mixed.msh", "--order", "2", "--dirichlet", "0", "--exact", "x"]
    one, other = map(json.loads, said(capsys, *given, "-o", str(tmp_path / "u.vtu"), "--json"))
    assert one.keys() == other.keys()
    for key in ("mesh", "order", "basis", "cells", "unknowns", "preconditioner"):
        assert one[key] == other[key]
    assert other["iterations"] == pytest.approx(one["iterations"], abs=2)
    assert [other[key] for key in ("norm", "integral", "error")] == pytest.approx(
        [one[key] for key in ("norm", "integral", "error")], rel=1e-10
    )
    assert other["output"] == str(tmp_path / "u.pvtu") and (tmp_path / "u.pvtu").exists()


@needs_mpi
@pytest.mark.parametrize(
    ("given", "warning"),
    [
        (["--lam", "0", "--source", "1"], "their mean is taken out"),
        (["--dirichlet", "0", "--tol", "1e-18"], "take a larger tolerance"),
    ],
)
def test_warnings_are_printed_once(given, warning):
    found = start(2, "-m", "hpfem", "solve", "meshes/cube_mixed.msh", "--order", "2", *given)
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stderr.count(warning) == 1
