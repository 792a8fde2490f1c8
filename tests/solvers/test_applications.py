"""The examples of solvers run, and their numbers are right."""

import numpy as np
import pytest

from hpfem.mesh import box
from tests.assembly.meshes import ours
from tests.test_examples import load


def test_helmholtz_manufactured(tmp_path):
    results = load("helmholtz_manufactured").main(orders=(1, 2, 4), output=tmp_path)
    for rows in results.values():
        errors = [row["error"] for row in rows]
        assert errors[1] < errors[0] / 8 and errors[2] < errors[1] / 50
        assert max(row["iterations"] for row in rows) < 20
    assert {path.name for path in tmp_path.iterdir()} == {"helmholtz_convergence.png", "helmholtz_solution.vtu"}


def test_nekbone(tmp_path):
    variants = [
        {"backend": "numpy", "strategy": "sumfac", "algorithm": "collocated"},
        {"backend": "numpy", "strategy": "stdmat", "algorithm": "noncollocated"},
        {},
    ]
    rows = load("nekbone").main((2, 2, 2), 5, variants=variants, output=tmp_path / "nekbone.json")
    assert len(rows) == 2 * 2 * 3
    for k in range(0, len(rows), 3):
        same = rows[k : k + 3]
        assert np.ptp([row["iterations"] for row in same]) <= 1, same
        assert max(row["error"] for row in same) < 1e-7
        assert np.ptp([row["error"] for row in same]) < 1e-8
    assert all(row["gflops"] > 0 and 0 < row["share_of_operator"] <= 1 for row in rows)
    assert all(row["operator_of_roofline"] > 0 for row in rows)
    assert (tmp_path / "nekbone.json").stat().st_size > 1000


@pytest.mark.parametrize("shapes", ["quad", ("quad", "tri"), None], ids=["quads", "mixed", "curved"])
def test_acoustic_wave(shapes, tmp_path):
    mesh = ours("curved_mixed_2d.msh") if shapes is None else box(shapes, (5, 5))
    module = load("acoustic_wave")
    found = module.main(mesh, 5, end=0.4, output=tmp_path, frames=4)
    assert found["variation"] < 2e-3
    assert {path.name for path in tmp_path.iterdir()} == {"wave.png", "wave.gif", "wave.vtu", "wave_receivers.png"}
    # Half the step, a quarter of the variation.
    finer = module.main(mesh, 5, end=0.4, courant=0.25)
    assert found["variation"] / finer["variation"] == pytest.approx(4, rel=0.2)
    # The middle receiver is nearest to the source: 0.2 away at speed 1, so first motion comes no earlier than that.
    times, trace = found["times"], np.abs(found["traces"][1])
    assert trace[times < 0.15].max() < 0.02 * trace.max()


@pytest.mark.parametrize("method", ["lobpcg", "eigsh"])
def test_eigenvalues(method, tmp_path):
    found = load("eigenvalues").main(order=4, count=4, method=method, output=tmp_path / "modes.vtu")
    assert np.allclose(found["values"], [3, 6, 6, 6], rtol=1e-4)
    assert (tmp_path / "modes.vtu").stat().st_size > 10_000
