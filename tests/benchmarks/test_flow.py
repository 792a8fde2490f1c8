"""benchmarks/flow.py: that it runs, and that the page shows what was measured."""

import json
from pathlib import Path

import pytest

from benchmarks import flow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_flow(backend):
    name, arguments = flow.SMALL[0]
    found = flow.measured(name, arguments, backend, 0.1)
    assert 0 < found["pressure"] < found["step"] and 0 < found["velocity"] < found["step"]
    assert found["bytes_moved"] == 0 and found["unknowns"] > 2000
    assert backend != "cpu" or 0 < found["kernels"] < 1
    assert "| channel, P=2 | 313 |" in flow.text_of({"cases": [found]})


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("flow_*.json")), ids=lambda p: p.name)
def test_the_page_shows_the_file(path):
    rows = flow.text_of(json.loads(path.read_text(encoding="utf-8")))
    assert rows in (ROOT / "benchmarks" / "FLOW.md").read_text(encoding="utf-8")
