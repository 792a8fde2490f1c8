"""benchmarks/gradients.py: that it runs, and that both gradients agree."""

import importlib.util
import json

from benchmarks import gradients


def test_small(tmp_path):
    path = tmp_path / "found.json"
    found = gradients.main(["--small", "--repeats", "1", "-o", str(path)])
    assert json.loads(path.read_text()) == json.loads(json.dumps(found))
    assert all(min(row["linear"] + row["gradient"]) > 0 and row["iterations"] for row in found["beside"])
    if importlib.util.find_spec("jax") is None:
        assert all("pip install 'hpfem[jax]'" in row for row in found["jax"])
    else:
        assert all(max(row["apart"]) < 1e-9 for row in found["jax"])
