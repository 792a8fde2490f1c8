"""Whole solves: every shape and order converges to the solution of the assembled system, and its phases are times."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

import hpfem as hp
from hpfem.backends.base import BACKENDS
from hpfem.backends.roofline import Roofline
from hpfem.benchmarks import BOX_SHAPES, BenchSettings, Runner, read_results
from hpfem.benchmarks.bake_off import global_sizes
from hpfem.benchmarks.cases import Case
from hpfem.benchmarks.problems import new_mesh, problem_mesh
from hpfem.benchmarks.whole_solve import source
from hpfem.errors import NotSuitable, SolverError
from hpfem.solvers.norms import load
from tests.cli.test_commands import refused, run
from tests.samples import long
from tests.standin import StandIn, StandInBackend, StandInStrategy

LIMITS = dict.fromkeys(("float64", "float32"), Roofline(bandwidth=1e10, flops=1e11, details={}))
PARTS = ("space", "operator", "multigrid", "vertices", "right-hand side", "iterations")
PHASES = ("all in", *PARTS, "first", "pyamg")
SMALL = [
    *("bench", "--quick", "--benchmark", "solve", "--backend", "numpy", "--orders", "3", "--dofs", "300,900"),
    *("--repeats", "1", "--geometry", "deformed"),
]


def solved(shape, order, size=300, geometry="deformed", matrix_entries=1e7, backend="auto"):
    """A whole solve of about so many unknowns."""
    [size] = global_sizes(shape, order, [size])
    settings = BenchSettings("solve", matrix_entries=matrix_entries, repeats=1)
    block = Case("float64", geometry, "solve", shape, order, size).block(settings, backend)
    return block.build("auto", "auto", size.n_cells)


@pytest.mark.parametrize("order", [1, 4, *long(2, 8)])
@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_the_solution_is_that_of_the_assembled_system(shape, order):
    found = solved(shape, order, 400)
    space = hp.Space(found._block.fresh_mesh(), order, quadrature="collapsed")
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet=0.0)
    form = hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, bc)
    wanted = spsolve(form.assemble().tocsc(), np.where(bc.constrained, 0.0, load(c0, source)))
    if not wanted.any():
        assert not found.vector.any() and found.info.iterations == 0
        return
    assert np.abs(found.vector - wanted).max() < 1e-6 * np.abs(wanted).max()
    assert 0 < found.info.iterations <= 14 and 0 <= found.info.residual <= 1e-8


def test_phases_are_parts_of_the_whole():
    found = solved("hex", 3, 2000)
    phases = {part.phase: part for part in found.phases(1)}
    assert tuple(phases) == PHASES and not found.refused
    seconds = {phase: part.timing.median for phase, part in phases.items()}
    assert 0.5 * seconds["all in"] < sum(seconds[part] for part in PARTS) < seconds["all in"]
    for part in phases.values():
        assert part.n_dofs == found.vector.size and part.nbytes is part.flops is None
        assert part.timing.best > 0 and part.residual < 1e-7
        assert (part.iterations == found.info.iterations) == (part.phase != "pyamg")
    assert found.on(1).phase == "all in"


def test_meshes_are_made_anew():
    found = solved("tet", 1)
    first, second = found._block.fresh_mesh(), found._block.fresh_mesh()
    assert first is not second and "aligned" not in vars(first)
    assert problem_mesh("tet", (2, 1, 1), "affine") is problem_mesh("tet", (2, 1, 1), "affine")
    assert new_mesh("tet", (2, 1, 1), "affine") is not new_mesh("tet", (2, 1, 1), "affine")


def test_peers_that_cannot_be_measured_say_why(monkeypatch):
    found = solved("tri", 2, matrix_entries=10)
    assert [part.phase for part in found.phases(1)] == list(PHASES[:-1])
    reason = "SciPy with pyamg: matrices of more than 1e+01 element entries are not made"
    assert found.refused == [{"phase": "pyamg", "reason": reason}]
    none = solved("hex", 1, 1)
    assert not none.vector.any()
    assert "no unknowns but on the boundary" in none.peer()
    monkeypatch.setattr("hpfem.benchmarks.whole_solve.PEER_ITERATIONS", 1)
    found = solved("quad", 4, 2000)
    assert "pyamg" not in [part.phase for part in found.phases(1)]
    assert "after 1 iterations" in found.refused[0]["reason"]


def test_a_solver_that_fails_is_left_out(monkeypatch):
    def fail(self, *_):
        raise SolverError("no convergence")

    monkeypatch.setattr(hp.Problem, "solve", fail)
    with pytest.raises(NotSuitable, match="no convergence"):
        solved("quad", 2)


def test_on_a_device(monkeypatch):
    monkeypatch.setitem(BACKENDS, "stand-in", StandInBackend("stand-in", StandIn(), [StandInStrategy()]))
    found = solved("quad", 3, backend="stand-in")
    assert [part.phase for part in found.phases(1)] == list(PHASES[:-1])
    assert found.refused[0]["reason"].startswith("SciPy with pyamg is measured on the host alone")


def test_a_run_measures_both_geometries():
    settings = BenchSettings("solve", ("quad", "tet"), (2,), (300,), repeats=2)
    assert (settings.matrix_entries, BenchSettings("bp3").matrix_entries, BenchSettings().matrix_entries) == (
        2e7,
        1e8,
        1e8,
    )
    measured = Runner(settings, LIMITS)
    assert len(list(measured)) == 4 and not measured.skipped
    assert [m.phase for m in measured.measurements] == 4 * list(PHASES)
    for m in measured.measurements:
        assert m.operator == "Helmholtz" and m.dofs_per_second == pytest.approx(m.n_dofs / m.seconds)
        assert m.best <= m.seconds <= m.worst and m.repeats == (1 if m.phase == "first" else 2)
        assert m.iterations > 0 and m.fraction is m.bound is m.nbytes is None


def test_every_shape_a_file_and_pictures(capsys, tmp_path):
    path = tmp_path / "solve.json"
    text = " ".join(run(capsys, *SMALL, "--shapes", "all", "-o", path).split())
    for shape in BOX_SHAPES:
        for phase in PHASES:
            assert f"{shape} deformed {phase} auto auto" in text
    assert "float64: best throughput in MDoF/s (iterations)" in text and "skipped" not in text
    result = read_results(path)
    wanted = {"operator": "Helmholtz", "boundary": "u = 0", "preconditioner": "multigrid"}
    assert result["problem"] == {**wanted, "tolerance": {"float64": 1e-8, "float32": 1e-5}}
    assert len(result["results"]) == len(BOX_SHAPES) * 2 * len(PHASES)
    for record in result["results"]:
        assert {"phase", "seconds", "n_dofs", "n_cells", "iterations", "residual", "dofs_per_second"} <= set(record)
        assert not {"fraction", "bound", "nbytes", "flops", "error"} & set(record) and record["residual"] < 1e-7
    pictures = json.loads(run(capsys, "plot", path, "--json"))["pictures"]
    names = [
        f"solve_{what}{ending}.png" for ending in ("", "_2d") for what in ("best", "by_order", "parts", "deformed")
    ]
    assert [Path(picture).name for picture in pictures] == names


def test_single_precision_and_nodes(capsys):
    given = [*SMALL, "--shapes", "prism", "--dtype", "float32", "--basis", "lagrange", "--json"]
    result = json.loads(run(capsys, *given))
    assert {record["dtype"] for record in result["results"]} == {"float32"}
    assert all(0 < record["residual"] < 1e-5 for record in result["results"] if record["phase"] == "all in")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--strategies", "sumfac"],
            "nothing could be measured: a whole solve uses the strategy and algorithm of auto",
        ),
        (["--algorithm", "collocated"], "nothing could be measured: a whole solve uses the strategy and algorithm"),
        (["--basis", "orthogonal"], "nothing could be measured: the 'orthogonal' basis is not continuous"),
        (["--tiled"], "solve is measured on whole meshes, --tiled is for bk1 and bk3; remove it"),
        (["--dofs", "1e11"], "GiB of memory are free; measure at most about"),
    ],
)
def test_an_impossible_measurement_is_one_line(capsys, arguments, message):
    assert message in refused(capsys, *SMALL, *arguments)
