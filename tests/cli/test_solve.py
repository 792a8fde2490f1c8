"""`hpfem solve`: what it reports and refuses."""

import json

import numpy as np
import pytest

import hpfem as hp
from tests.cli.test_commands import FLAT, MIXED, read_vtu, refused, run

EXACT = "sin(pi*x)*cos(pi*y)*exp(z)"


def test_a_known_solution(capsys, tmp_path):
    target = tmp_path / "u.vtu"
    text = run(
        capsys, "solve", MIXED, "--order", "3", "--source", f"2*pi**2*{EXACT}", "--dirichlet", EXACT,
        "--exact", EXACT, "-o", target, "--preconditioner", "multigrid", "--json",
    )  # fmt: skip
    report = json.loads(text)
    assert report["error"] < 1.5e-3 and report["iterations"] < 25
    assert report["preconditioner"] == "multigrid"
    assert report["residuals"][-1] < 1e-12 and len(report["residuals"]) == report["iterations"] + 1
    assert read_vtu(target)


def test_the_report(capsys):
    text = run(capsys, "solve", FLAT, "--order", "3", "--dirichlet", "0")
    space = hp.Space(hp.read_mesh(FLAT), 3)
    u = hp.solve_helmholtz(space, 1.0, 1.0, dirichlet=0.0)
    assert f"{u.c0.size:,} unknowns" in text and f"{u.info.iterations} iterations" in text
    assert f"{space.norm(u):.8g}" in text and "error" not in text


def test_nothing_passes_where_no_condition_is_given(capsys):
    """As in `solve_helmholtz`: u = f / lam."""
    report = json.loads(run(capsys, "solve", FLAT, "--order", "2", "--lam", "2", "--json"))
    u = hp.solve_helmholtz(hp.Space(hp.read_mesh(FLAT), 2), 2.0, 1.0)
    assert report["norm"] == pytest.approx(u.norm(), rel=1e-9) == pytest.approx(0.5, rel=1e-9)


def test_named_conditions(capsys):
    """-u'' = 0 between u = 1 and a flux of 2, insulated elsewhere: u = 1 + 2 x; with Robin data alike."""
    for flux in (["--neumann", "xmax: 2"], ["--robin", "xmax: 3, 2 + 3*(1 + 2*x)"], ["--neumann", "xmax: 2, y, 0"]):
        text = run(
            capsys, "solve", MIXED, "--order", "2", "--lam", "0", "--source", "0", "--diffusivity", "1",
            "--dirichlet", "xmin: 1", *flux, "--exact", "1 + 2*x", "--json",
        )  # fmt: skip
        assert json.loads(text)["error"] < 1e-10


LEFT_RIGHT = FLAT.replace("square_mixed", "curved_mixed_2d")


@pytest.mark.parametrize(
    "right", [["--diffusivity", "right: 1 + x"], ["--diffusivity", "1 + x"]], ids=["named", "the rest"]
)
def test_coefficients_by_region(capsys, right):
    text = run(
        capsys, "solve", LEFT_RIGHT, "--order", "3", "--diffusivity", "left: 10", *right, "--source", "left: 1",
        "--source", "right: y", "--dirichlet", "0", "--json",
    )  # fmt: skip
    space = hp.Space(hp.read_mesh(LEFT_RIGHT), 3)
    k, f = {"left": 10.0, "right": lambda x, y: 1 + x}, {"left": 1.0, "right": lambda x, y: y}
    u = hp.solve_helmholtz(space, 1.0, f, 0.0, diffusivity=k)
    assert json.loads(text)["norm"] == pytest.approx(space.norm(u), rel=1e-10)


def test_a_tensor(capsys):
    """-div(K grad u) of u = x y with K = (2, 1; 1, 3) is -2."""
    text = run(
        capsys, "solve", LEFT_RIGHT, "--order", "4", "--lam", "0", "--diffusivity", "2, 1, 1, 3", "--source=-2",
        "--dirichlet", "x*y", "--exact", "x*y", "--json",
    )  # fmt: skip
    assert json.loads(text)["error"] < 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["left: 10"], "--diffusivity: values by region have no value for region(s) 'right'; add it, or use one"),
        (["inclusion: 10", "1"], "--diffusivity: unknown region 'inclusion'; valid: left, right"),
        (["left: 10", "left: 1"], "two expressions for 'left'"),
        (["1", "2"], "two expressions for the rest"),
        (["left = 10", "1"], "write 'left: 10'"),
        (["left: x, y, x", "1"], "diffusivity has 1 or 2 or 4 component(s), but ' x, y, x' has 3"),
    ],
)
def test_refused_regions(capsys, arguments, message):
    given = [word for text in arguments for word in ("--diffusivity", text)]
    assert message in refused(capsys, "solve", LEFT_RIGHT, "--order", "2", *given)
    assert message in refused(capsys, "apply", LEFT_RIGHT, "--order", "2", *given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dirichlet", "left: 0"], "unknown boundary 'left' in dirichlet"),
        (["--dirichlet", "0", "--dirichlet", "xmin: 0"], "name every boundary"),
        (["--dirichlet", "xmin: 0", "--dirichlet", "xmin: 1"], "two expressions for 'xmin'"),
        (["--dirichlet", "xmin: 0", "--neumann", "xmin: 0"], "another condition"),
        (["--robin", "xmin: 1"], "alpha, g"),
        (["--source", "x, y"], "1 component"),
        (["--lam", "-1000"], "not positive definite"),
        (["--iterations", "2"], "did not converge"),
        (["--basis", "orthogonal"], "not continuous"),
        (["--exact", "x, y"], "2 components"),
        (["--dirichlet", "xmin = 1+x"], "write 'xmin: 1+x'"),
        (["--tol", "0"], "tolerance"),
        (["-o", "u.txt"], "ends in .vtu"),
    ],
)
def test_refusals(capsys, arguments, message):
    assert message in refused(capsys, "solve", MIXED, "--order", "2", *arguments)


def test_warnings_take_one_line(capsys):
    from hpfem.cli import main

    assert main(["solve", str(MIXED), "--order", "2", "--lam", "0", "--neumann", "1"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("hpfem: warning: Helmholtz: with lam = 0 and fluxes on all")


def test_the_orders_may_differ(capsys):
    text = run(capsys, "solve", MIXED, "--order", "hex=2,prism=3,pyramid=2,tet=3", "--json")
    assert np.isfinite(json.loads(text)["norm"])
