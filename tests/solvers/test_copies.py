"""Copies of problems that have solved: what was made of them is left out and made anew."""

import copy
import pickle

import numpy as np
import pytest

import hpfem as hp

COPIES = [copy.copy, copy.deepcopy, lambda problem: pickle.loads(pickle.dumps(problem))]


def wave(*x):
    return np.sin(3 * x[0]) + x[-1]


@pytest.mark.parametrize(
    ("preconditioner", "dtype"), [("none", "float64"), ("jacobi", "float32"), ("multigrid", "float64")]
)
def test_copies_solve_the_same(preconditioner, dtype, backend):
    space = hp.Space(hp.box("tri", (2, 2)), 3, backend=backend, dtype=dtype)
    conditions = {"dirichlet": {"xmin": wave}, "robin": {"ymin": (1.0, wave)}, "neumann": {"xmax": 1.0}}
    problem = hp.Problem(space, 1.0, **conditions, diffusivity=wave_squared, preconditioner=preconditioner)
    u = problem.solve(wave)
    problem.flux(u, "xmin")
    for copied in COPIES:
        other = copied(problem)
        v = other.solve(wave, start=copied(u).vector * 0)
        assert v.info.iterations == problem.solve(wave, start=u.vector * 0).info.iterations
        assert np.abs(v.vector - u.vector).max() < 1e-5
        assert other.flux(v, "xmin") == pytest.approx(problem.flux(u, "xmin"), abs=1e-4)
        other.update(lam=2.0)
        other.solve(2.0)
    assert np.array_equal(problem.solve(wave).vector, u.vector)


def wave_squared(*x):
    return 1 + wave(*x) ** 2


@pytest.mark.parametrize("copied", COPIES)
def test_several_components(copied):
    problem = hp.Problem(hp.Space(hp.box("quad", (2, 2)), 2), 1.0, {"xmin": (0.0, None)}, components=2)
    u = problem.solve([1.0, 2.0])
    assert np.allclose(copied(problem).solve([1.0, 2.0]).vector, u.vector)
