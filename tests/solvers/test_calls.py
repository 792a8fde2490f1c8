"""Calls in multigrid's set-up, and of kernels in a cycle, on a mesh of four shapes with several classes of cells."""

import sys
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.solvers.multigrid import energies
from tests.assembly.meshes import ours

# Of Python in a set-up, and for each class of cells of a level; of kernels in a cycle.
SET_UP, CLASS, CYCLE = {"cpu": 13_200, "cuda": 28_000}, 250, {"cpu": 270, "cuda": 190}


def counted(function):
    """Result of a function, and how many functions of hpfem are called meanwhile."""
    count, folder = 0, str(Path(hp.__file__).parent)

    def profile(frame, event, _):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(folder)

    sys.setprofile(profile)
    try:
        return function(), count
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_calls(backend, monkeypatch):
    """In a process that has made the tables of these classes."""
    counts = []
    for most in (energies.MOST_CLASSES, 1):
        monkeypatch.setattr(energies, "MOST_CLASSES", most)
        for _ in range(2):
            space = hp.Space(ours("pipe_mixed.msh"), 4, backend=backend)
            A = hp.GlobalOperator(hp.Helmholtz(space, 1.0), hp.C0Space(space))
            M, count = counted(lambda A=A: hp.Multigrid(A))
        classes = sum(len(own._groups) for level in M.levels[:-1] for own in level.smoothers)
        counts.append((count, classes))
    (all_calls, classes), (calls, one_each) = counts
    assert one_each == 8 and classes >= 16
    assert calls < SET_UP[backend] and all_calls - calls < CLASS * (classes - one_each)
    r = A.vectors.from_host(np.ones(M.shape[0]))
    for _ in range(3):
        M(r)
    run = M._pool.take(lambda: None)
    # cuBLAS also takes memory, and gives it back.
    launched = run.recorded.calls if backend == "cpu" else sum(not name.startswith("MEM_") for name in run.graph.nodes)
    assert 0 < launched < CYCLE[backend]
