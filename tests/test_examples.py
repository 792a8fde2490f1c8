"""Every example runs, and its numbers are right."""

import importlib.util
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

import hpfem as hp
from hpfem.memory import count_transfers
from hpfem.mesh import box

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# The same script on a CPU and on a GPU, by one argument.
on_both = pytest.mark.parametrize("backend", ["auto", pytest.param("cuda", marks=pytest.mark.cuda)])


def load(name):
    """Module of an example."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_demo(tmp_path, capsys):
    found = load("demo").main(tmp_path, order=8, orders=(1, 3), dofs=(1000, 3000))
    assert found["error"] < 1e-6 and found["difference"] < 1e-12 and len(found["throughput"]) == 4
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["compare", "mesh", "solution", "throughput"]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 11 and max(map(len, lines)) < 130


@on_both
def test_load_and_apply(backend, tmp_path):
    output = tmp_path / "out.vtu"
    found = load("load_and_apply").main(backend=backend, output=output)
    assert found["volume"] == pytest.approx(1.00247395833)
    assert found["energy"] == pytest.approx(found["integral"], rel=1e-12)
    assert found["projection_error"] < 1e-6
    assert output.stat().st_size > 10_000


@on_both
def test_compare_collocation(backend, tmp_path):
    found = load("compare_collocation").main(orders=(2, 5), backend=backend, output=tmp_path, repeats=5)
    assert found["difference"] < 1e-12
    assert len(found["flops_saved"]) == 2 * 4 and found["gain"].keys() == found["flops_saved"].keys()
    assert all(0 < saved < 1 for saved in found["flops_saved"].values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.png", "compare.png"]


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_throughput_by_shape(backend, tmp_path):
    best = load("throughput_by_shape").main(orders=(1, 3), dofs=(3000,), backend=backend, output=tmp_path)
    assert len(best) == 2 * 4 * 2 * 2 and {m.backend for m in best.values()} == {backend}
    assert all(m.dofs_per_second > 1e4 for m in best.values())
    names = ["bk1_best", "bk1_by_order", "bk1_roofline", "bk3_best", "bk3_by_order", "bk3_gain", "bk3_roofline"]
    names += ["bk3_best_recomputed", "bk3_sources"] if backend == "cuda" else []  # affine hexes may read factors
    assert sorted(path.stem for path in tmp_path.glob("*.png")) == sorted(names)  # of one size there is no sweep


@on_both
def test_user_weak_form(backend):
    found = load("user_weak_form").main(backend=backend)
    assert found["rest"] < 1e-13
    assert found["energy_error"] < 1e-6 and found["linear_error"] < 1e-7


@on_both
def test_advection_diffusion(backend):
    rows = load("advection_diffusion").main(orders=(2, 4, 6), backend=backend)
    assert {row["method"] for row in rows} == {"gmres"}
    by_multigrid, by_diagonal = rows[::2], rows[1::2]
    errors = [row["error"] for row in by_multigrid]
    assert errors[0] < 1.3e-2 and errors[1] < 9e-5 and errors[2] < 5e-7
    assert np.allclose(errors, [row["error"] for row in by_diagonal], rtol=1e-3)
    # The same at every order by multigrid, many more by the diagonal.
    assert [row["preconditioner"] for row in rows[:2]] == ["multigrid", "jacobi"]
    most = 18 if backend == "cuda" else 15
    assert all(row["iterations"] <= most for row in by_multigrid) and by_diagonal[-1]["iterations"] > 300


@on_both
def test_refinement(backend):
    rows = load("refinement").main(order=2, times=2, backend=backend)
    assert [row["cells"] for row in rows] == [130, 1120, 9440]
    assert np.log2(rows[1]["l2"] / rows[2]["l2"]) == pytest.approx(3, abs=0.25)
    assert np.log2(rows[1]["h1"] / rows[2]["h1"]) == pytest.approx(2, abs=0.25)
    assert rows[2]["l2"] < 1e-4


@on_both
def test_bratu(backend):
    found = load("bratu").main(order=4, backend=backend)
    assert found["error"] < 5e-6
    assert found["to_host"] == 0
    # Newton's method: the number of digits doubles.
    errors = found["residuals"]
    assert len(errors) == 5 and errors[-1] < 1e-11
    assert all(after < 0.2 * before**2 for before, after in pairwise(errors[:4]))
    assert max(found["iterations"]) < 40


def test_conductivity():
    found = load("conductivity").main(cells=6, points=36, steps=3)
    assert found["misfit"][0] > 0.04 and found["misfit"][-1] < 0.02 and found["error"] < 0.6


def test_bratu_has_two_solutions():
    found = load("bratu").fold(order=2, numbers=(3.0,))
    assert 3.505 < found["lam"] < 3.53
    assert found["lower"] == pytest.approx([0.64015], rel=3e-3) and found["upper"] == pytest.approx([1.97527], rel=3e-3)


@on_both
def test_p_laplacian(backend):
    rows = load("p_laplacian").main(order=3, numbers=(1.5, 4.0), backend=backend)
    assert [row["error"] < bound for row, bound in zip(rows, (3e-4, 1e-3), strict=True)] == [True] * 2
    assert all(row["steps"] <= 11 and row["iterations"] <= 30 for row in rows)


@on_both
def test_minimal_surface(backend):
    coarse, fine = load("minimal_surface").main(orders=(2, 4), cells=(2, 2), backend=backend)
    assert coarse["error"] < 0.1 and fine["error"] < coarse["error"] / 20
    # The least area is below any other: it falls with the order, and converges faster.
    assert 0 < coarse["area"] - fine["area"] < coarse["error"] and max(coarse["steps"], fine["steps"]) <= 5


@on_both
def test_insulation(backend):
    found = load("insulation").main(order=4, geometry=5, waves=4, start=0.85, backend=backend)
    # The ring about the middle of the pipe with R log(R / r) = 1.
    R = brentq(lambda R: R * np.log(R / 0.4) - 1, 0.5, 2)
    assert found["cost"][1] == pytest.approx(2 * np.pi / np.log(R / 0.4) + np.pi * (R**2 - 0.16), abs=5e-6)
    assert found["numbers"][[1, 5]] == pytest.approx([0.15, 0.1], abs=1e-5)
    assert found["flux"][0][1] > 0.5 and found["flux"][1] == pytest.approx((1.0, 0.0), abs=2e-3)


@on_both
def test_twisted_bar(backend):
    found = load("twisted_bar").main(order=2, cells=(4, 2, 2), angles=(0.6, 1.2), backend=backend)
    # The energy of small rotations is mu times 0.1406 times the angle squared, over twice the length.
    assert found["energies"][0] == pytest.approx(0.1406 * 0.36 / 8, rel=0.06)
    assert 3.9 < found["energies"][1] / found["energies"][0] < 4.1 and max(found["steps"]) <= 8


@on_both
def test_allen_cahn(backend):
    example = load("allen_cahn")
    found = example.main(example.disc, (5.0, 20.0), cells=7, eps=0.04, backend=backend)
    assert found["energies"][0] > found["energies"][1] > found["energies"][2]
    loss = found["areas"][1] - found["areas"][2]
    assert loss == pytest.approx(15 * 2 * np.pi * 0.04**2, rel=0.05)


def test_bratu_converges_with_the_order():
    errors = [load("bratu").main(order=order)["error"] for order in (1, 2, 3)]
    assert errors[1] < errors[0] / 5 and errors[2] < errors[1] / 5


@on_both
def test_composite(backend):
    runs = [load("composite").main(order=order, backend=backend) for order in (2, 4, 6)]
    for run in runs:
        assert run["flux"] == pytest.approx(run["in"], rel=1e-10)
        assert run["bounds"][0] < run["flux"] < run["bounds"][1]
    # What passes is the least energy: it falls with the order.
    fluxes = [run["flux"] for run in runs]
    assert fluxes[0] > fluxes[1] > fluxes[2] == pytest.approx(1.429066, abs=3e-6)


@on_both
def test_elasticity(backend):
    found = load("elasticity").main(order=3, backend=backend)
    beam = found["cantilever"]
    assert beam["deflection"] == pytest.approx(2.0495, rel=1e-4) == pytest.approx(beam["beam"], rel=0.02)
    assert beam["forces"] == pytest.approx([0, 0, 0.5], abs=1e-8)
    # A GPU takes one step of multigrid's smoother, not two.
    most = (50, 32) if backend == "cuda" else (33, 23)
    assert beam["iterations"] <= most[0] and found["manufactured"]["iterations"] <= most[1]
    assert found["manufactured"]["error"] < 4e-5
    assert load("elasticity").manufactured(order=2, backend=backend)["error"] > 8 * found["manufactured"]["error"]


@on_both
def test_picture(backend):
    found = load("picture").main(order=4, backend=backend)
    assert found["heat"] == pytest.approx(found["lost"], rel=1e-9) == pytest.approx(6.4251, rel=1e-3)
    assert found["iterations"] < (40 if backend == "cuda" else 25)


@on_both
def test_radiation(backend):
    # The gallery runs order 3 on a CPU.
    found = load("radiation").main(order=3 if backend == "cuda" else 2, backend=backend)
    assert found["error"] < 1e-10 and found["heat"] == pytest.approx(found["exact"], rel=1e-10)
    assert found["residuals"][-1] < 1e-12 and len(found["residuals"]) <= 7


@on_both
class TestIncompressibleFlow:
    def test_kovasznay(self, backend):
        found = load("incompressible_flow").convergence(backend, orders=(2, 4, 7), times=(0.08, 0.04))
        assert found["space"][0] < 3e-2 and found["space"][1] < 2.5e-4 and found["space"][2] < 1.5e-7
        for order, (coarse, fine) in found["time"].items():
            assert np.log2(coarse / fine) == pytest.approx(order, abs=0.1)
        assert found["time"][3][1] < 4e-6

    @pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is absent")
    def test_cylinder(self, backend):
        """From a flow that has developed, over a period: within 2 % of what Schäfer and Turek give."""
        example = load("incompressible_flow")
        found = example.cylinder(4, 1e-3, 345, start=example.MESHES / "channel_flow.h5", backend=backend)
        for name, least, most in (
            ("largest drag", 3.22, 3.24),
            ("largest lift", 0.99, 1.01),
            ("Strouhal", 0.295, 0.305),
        ):
            assert 0.98 * least < found[name] < 1.02 * most, name
        # What finer spaces and shorter steps give.
        assert found["largest drag"] == pytest.approx(3.2278, rel=1e-3)
        assert found["largest lift"] == pytest.approx(0.9864, rel=2e-3)
        assert found["Strouhal"] == pytest.approx(0.30185, rel=1e-3)

    def test_taylor_green(self, backend, tmp_path):
        example = load("incompressible_flow")
        found = example.taylor_green(5, 3, 0.05, 40, backend=backend, output=tmp_path)
        for time in (1.0, 2.0):
            for kind in ("dissipation", "lost"):
                assert np.interp(time, found["times"], found[kind]) == pytest.approx(example.BRACHET[time], rel=0.02)
        assert {path.name for path in tmp_path.iterdir()} == {"taylor_green.png", "taylor_green.vtu"}

    def test_nothing_leaves_the_device_in_a_step(self, backend):
        """Dirichlet and Neumann boundaries, new data at every step, and the forces."""
        mesh = box(("quad", "tri"), 12)
        c0 = hp.C0Space(hp.Space(mesh, 4, backend=backend))
        walls = dict.fromkeys(("xmin", "ymin", "ymax"), lambda x, y: [4 * y * (1 - y), 0 * x])
        flow = load("incompressible_flow").Flow(c0, 0.01, 1e-3, 1, walls)
        flow.start(c0.project(walls["xmin"]))
        for _ in range(2):
            flow.step(flow.wall_values)
        flow.force_on("ymin")
        with count_transfers() as moved:
            flow.step(flow.wall_values * 1.01)
            flow.force_on("ymin")
        assert moved.total == 0


@pytest.mark.cuda
class TestSolversOnAGpu:
    """The examples of solvers; on a CPU they are run in tests/solvers."""

    def test_helmholtz_manufactured(self):
        results = load("helmholtz_manufactured").main(orders=(1, 2, 4), backend="cuda")
        for rows in results.values():
            errors = [row["error"] for row in rows]
            assert errors[1] < errors[0] / 8 and errors[2] < errors[1] / 50

    def test_nekbone(self):
        rows = load("nekbone").main((2, 2, 2), 5, backend="cuda")
        assert len(rows) == 4 and all(row["error"] < 1e-7 and row["variant"].startswith("cuda/") for row in rows)

    def test_acoustic_wave(self):
        found = load("acoustic_wave").main(box("quad", (6, 6)), 5, end=0.6, backend="cuda")
        assert found["variation"] < 2e-3

    @pytest.mark.parametrize("method", ["lobpcg", "eigsh"])
    def test_eigenvalues(self, method):
        found = load("eigenvalues").main(order=4, count=4, method=method, backend="cuda")
        assert np.allclose(found["values"], [3, 6, 6, 6], rtol=1e-4)


def test_every_example_takes_a_backend():
    for path in EXAMPLES.glob("*.py"):
        assert 'parser.add_argument("--backend"' in path.read_text(encoding="utf-8"), path.name


def test_every_example_is_here():
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    own = {
        "demo", "load_and_apply", "compare_collocation", "throughput_by_shape", "user_weak_form", "advection_diffusion",
        "bratu", "composite", "elasticity", "refinement",
    }  # fmt: skip
    assert own <= tests and own <= {path.stem for path in EXAMPLES.glob("*.py")}
