"""Every example runs, and its numbers are right."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name):
    """Module of an example."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_load_and_apply(tmp_path):
    output = tmp_path / "out.vtu"
    found = load("load_and_apply").main(output=output)
    assert found["volume"] == pytest.approx(1.00247395833)
    assert found["energy"] == pytest.approx(found["integral"], rel=1e-12)
    assert found["projection_error"] < 1e-6
    assert output.stat().st_size > 10_000


def test_compare_collocation(tmp_path):
    found = load("compare_collocation").main(orders=(2, 5), output=tmp_path)
    assert found["difference"] < 1e-12
    assert len(found["flops_saved"]) == 2 * 4
    assert all(0 < saved < 1 for saved in found["flops_saved"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["compare.png"]


def test_throughput_by_shape(tmp_path):
    best = load("throughput_by_shape").main(orders=(1, 3), dofs=(3000,), output=tmp_path)
    assert len(best) == 2 * 4 * 2 * 2
    assert all(m.dofs_per_second > 1e4 for m in best.values())
    assert len(list(tmp_path.glob("*.png"))) == 2 * 5


def test_user_weak_form():
    found = load("user_weak_form").main()
    assert found["rest"] < 1e-13
    assert found["energy_error"] < 1e-6 and found["linear_error"] < 1e-7


def test_every_example_is_here():
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    own = {"load_and_apply", "compare_collocation", "throughput_by_shape", "user_weak_form"}
    assert own <= tests and own <= {path.stem for path in EXAMPLES.glob("*.py")}
