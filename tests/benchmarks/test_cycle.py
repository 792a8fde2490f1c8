"""benchmarks/cycle.py: that it runs, that levels add up, and that a GPU's cycle is a graph that moves nothing."""

import json
from pathlib import Path

import pytest

from benchmarks import cycle

ROOT = Path(__file__).parents[2]


def test_a_case_by_level():
    found = cycle.measured("prism", cycle.curved("prism", 2), 4, "cpu")
    assert [max(level["orders"].values()) for level in found["levels"]] == [4, 2, 1]
    assert found["transfers"] == 0 and found["degree"] == 2
    assert all(level["A"] > 0 and level["B"] > 0 for level in found["levels"][:-1])
    text = cycle.text_of({"cases": [found]})
    assert "P=4" in text and "P=2" in text


@pytest.mark.cuda
def test_a_cycle_on_a_gpu_moves_nothing():
    found = cycle.measured("tet", cycle.curved("tet", 6), 3, "cuda")
    assert found["transfers"] == 0


@pytest.mark.cuda
def test_launches_of_a_cycle_do_not_grow_with_classes_of_cells():
    """One for a shape, whatever its cells are."""
    found = cycle.measured("curved_mixed", cycle.refined("curved_mixed", 0), 4, "cuda")
    assert 0 < found["levels"][0]["launches"] <= 300
    assert found["launches"]["cellwise"] == 2 * 4 * 2 * 4  # levels, applications of the smoother, T and T^t, shapes


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("cycle_*.json")), ids=lambda p: p.name)
def test_the_page_shows_the_file(path):
    rows = cycle.text_of(json.loads(path.read_text(encoding="utf-8")))
    assert rows in (ROOT / "benchmarks" / "MULTIGRID.md").read_text(encoding="utf-8")
