"""Commands in several processes: what one process says, said once."""

import json

import pytest

from hpfem.cli import main, make_parser
from tests.distributed.launch import commands, needs_mpi


def test_which_commands_work_in_many_processes():
    (known,) = (own for own in make_parser()._actions if own.dest == "command")
    many = {name for name, parser in known.choices.items() if not parser.get_default("alone")}
    assert many == {"info", "solve", "scale"}


@needs_mpi
def test_what_one_process_says_is_said_once(capsys, tmp_path):
    info = ["info", "meshes/curved_mixed.msh", "--order", "3", "--backend", "cuda"]
    solve = ["solve", "meshes/cube_mixed.msh", "--order", "2", "--dirichlet", "0", "--exact", "x"]
    solve += ["-o", str(tmp_path / "u.vtu"), "--json"]
    alone = []
    for given in (info, solve):
        assert main(given) == 0
        alone.append(capsys.readouterr().out)
    more = [*solve[:4], "--lam", "0", "--source", "1"], [*solve[:4], "--dirichlet", "0", "--tol", "1e-18"]
    (mesh, solution, usage, *_), warnings = commands(2, info, solve, ["--help"], *more)
    assert mesh == alone[0] and usage.count("usage: ") == 1
    assert warnings.count("their mean is taken out") == warnings.count("take a larger tolerance") == 1
    one, other = json.loads(alone[1]), json.loads(solution)
    assert one.keys() == other.keys()
    for key in ("mesh", "order", "basis", "cells", "unknowns", "preconditioner"):
        assert one[key] == other[key]
    assert other["iterations"] == pytest.approx(one["iterations"], abs=2)
    assert [other[key] for key in ("norm", "integral", "error")] == pytest.approx(
        [one[key] for key in ("norm", "integral", "error")], rel=1e-10
    )
    assert other["output"] == str(tmp_path / "u.pvtu") and (tmp_path / "u.pvtu").exists()
