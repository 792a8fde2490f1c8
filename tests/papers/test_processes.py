"""A case of Nekbone in two processes, which share a box and the sums of conjugate gradients."""

import sys
from pathlib import Path

import pytest

from benchmarks.papers import EXPERIMENTS, processes
from benchmarks.papers.experiments import cao
from benchmarks.papers.run import SeriesSettings, cases_of
from hpfem.benchmarks.runner import Runner
from hpfem.errors import NotSuitable
from tests.distributed.launch import needs_mpi

CASE = {"equation": "Helmholtz", "d": 3, "geometry": "trilinear", "shape": "hex", "order": 3, "counts": (2, 2, 4)}


def block():
    """Helmholtz with recomputed factors, three components."""
    return cao._two("Nekbone, Helmholtz, recomputed", {**CASE, "processes": 2, "box": CASE["counts"]}, "cpu")


@pytest.fixture(autouse=True)
def teams(monkeypatch):
    """Those that a test starts end with it."""
    monkeypatch.setattr(processes, "_TEAMS", {})
    yield processes._TEAMS
    for team in processes._TEAMS.values():
        team.end()


@needs_mpi
def test_two_processes(teams):
    first = block().build("auto", "auto", 16)
    [team] = teams.values()
    built = block().build("auto", "auto", 16)
    assert [*teams.values()] == [team]  # one after the other, without a new start
    assert first.error() == built.error() < 1e-12
    application = built.on(16)
    assert application.n_dofs == 3 * 7 * 7 * 13  # with those of the boundary
    assert application.timing.calls == 100 and application.timing.best <= application.timing.median
    assert built.choice.config.options == "2 processes" and built.about["share"] > 0


def test_one_process():
    found = processes.measured(
        {
            "series": ("cao-nekbone", "Nekbone, Poisson"),
            "case": CASE | {"equation": "Poisson", "geometry": "affine"},
            "backend": "cpu",
        }
    )
    assert found["error"] < 1e-12
    assert found["n_dofs"] == 3 * 7 * 7 * 13


def test_each_process_has_as_many_hexes_as_one_alone():
    for series in EXPERIMENTS["cao-nekbone-2"].series:
        [alone] = [s for s in EXPERIMENTS["cao-nekbone"].series if s.name == series.name]
        for two, one in zip(series.cases("cuda", False), alone.cases("cuda", False), strict=True):
            wide, high, deep = one["counts"]
            assert two == {
                **{k: v for k, v in one.items() if k != "counts"},
                "processes": 2,
                "box": (wide, high, 2 * deep),
            }


def test_nothing_is_compiled_ahead():
    """The processes compile; `Runner.prepare` has nothing to do for them."""
    experiment = EXPERIMENTS["cao-nekbone-2"]
    for series in experiment.series:
        listed = tuple(cases_of(experiment, series, "cuda", False))
        assert listed
        settings = SeriesSettings(
            listed=listed, backend="cpu", dtypes=("float64",), strategies=("auto",), algorithms=("auto",), dofs=(1e11,)
        )
        Runner(settings, {}).prepare()


def test_refusals(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(processes.shutil, "which", lambda name: None)
    with pytest.raises(NotSuitable, match="mpiexec is not found"):
        block().build("auto", "auto", 16)
    failing = tmp_path / "mpiexec"
    failing.write_text("#!/bin/sh\necho 'ValueError: no such case' >&2\nexit 1\n")
    Path(failing).chmod(0o755)
    with pytest.raises(NotSuitable, match="2 processes failed: ValueError: no such case"):
        block().build("auto", "auto", 16)
    monkeypatch.setattr(processes, "LIMIT", 0.05)
    failing.write_text("#!/bin/sh\nexec sleep 5\n")
    with pytest.raises(NotSuitable, match="not ready after 0.05 s"):
        block().build("auto", "auto", 16)
