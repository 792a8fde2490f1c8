"""benchmarks/sanitize_cuda.py: its cases are kernels that there are, and what it compares is compared."""

from pathlib import Path

import pytest

from benchmarks import sanitize_cuda
from hpfem.backends.cuda.runtime import planned
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.cuda.stdmat import strategy as stdmat

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_case_has_a_source(monkeypatch):
    programs = []
    monkeypatch.setattr(planned, "limits", Limits)
    for module in (planned, stdmat):
        monkeypatch.setattr(module, "architecture", lambda: "sm_90")
        monkeypatch.setattr(module, "start", lambda text, _: programs.append(text))
    sources = set()
    for mixed in (False, True):
        for case in sanitize_cuda.CASES:
            found = sanitize_cuda.made(mixed, *case)
            if found is not None:
                strategy, problem = found
                # NumPy's factors are rounded: a kernel that recomputes its own by default is not to be compared.
                same = strategy.name in ("stdmat", "dense", "fused", "kronecker")
                assert not mixed or case[-1] is not None or same, case
                strategy.prepare(problem, case[-1])
                sources.add((strategy.name, *(case[-1] or "").split()[-1:], mixed))
    assert len(set(programs)) > 60
    assert {
        ("sumfac-top", "merged", True),
        ("sumfac", "merged", False),
        ("fused", "kept=3", True),
        ("kronecker", "elements=3", False),
    } <= sources


def test_solutions_and_functions_at_points_are_compared():
    assert sanitize_cuda.error_at_points("cpu") < 1e-12
    assert sanitize_cuda.error_of_solve("jacobi", "cpu") < 1e-8
    with pytest.raises(SystemExit):
        sanitize_cuda.shown(float("nan"), "a wrong one")
