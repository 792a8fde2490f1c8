"""Memory of problems: estimates against what is taken, and what is refused before anything is."""

import gc
import tracemalloc

import numpy as np
import pytest

import hpfem as hp
from hpfem.geometry import element_map
from hpfem.memory import HOST, OutOfMemory
from hpfem.mesh import box
from hpfem.solvers.needs import Needs
from tests.fake_cupy import fake_cuda

COUNTS = {"hex": 8, "prism": 7, "pyramid": 6, "tet": 6, "quad": 32, "tri": 32}


def mesh_of(name, bent):
    mesh = box(name, (COUNTS[name],) * (2 if name in ("quad", "tri") else 3))
    return mesh.elevated(2).transformed(lambda x: x + 0.02 * np.sin(3 * x[:, ::-1])) if bent else mesh


def taken(action):
    """Bytes of a second run, at the most: the first one compiles."""
    action()
    gc.collect()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("shape", "order", "bent", "dtype", "name"), [
    ("hex", 4, True, "float64", "cpu"), ("hex", 5, False, "float64", "cpu"), ("tet", 5, True, "float64", "cpu"),
    ("tet", 4, False, "float32", "cpu"), ("prism", 4, True, "float32", "cpu"), ("pyramid", 3, False, "float64", "cpu"),
    ("quad", 5, True, "float64", "cpu"), ("tri", 4, False, "float64", "cpu"), ("hex", 4, True, "float64", "numpy"),
    ("tet", 4, False, "float32", "numpy"), ("prism", 4, False, "float64", "numpy"),
])  # fmt: skip
def test_estimates(shape, order, bent, dtype, name, monkeypatch):
    """Of set-up and a solution, where what is done at a time is small beside the rest, as in large problems."""
    monkeypatch.setattr(element_map, "CHUNK", 1 << 16)
    space = hp.Space(mesh_of(shape, bent), order, dtype=dtype, backend=name)
    c0, estimates = hp.C0Space(space), []

    def action():
        problem = hp.Problem(space, lambda *x: 1 + x[0], 0.0, preconditioner="jacobi", c0=hp.C0Space(space), tol=1e-2)
        problem.solve(lambda *x: x[0] * x[1])
        estimates.append(sum(problem.needs.by_device["host"].values()))

    found = taken(action)
    assert 0.7 < estimates[-1] / found < 1.3, (estimates[-1], found, c0.size)


@pytest.mark.parametrize(("shape", "order"), [("hex", 4), ("tet", 4), ("prism", 3)])
def test_multigrid(shape, order, monkeypatch):
    monkeypatch.setattr(element_map, "CHUNK", 1 << 16)
    space = hp.Space(mesh_of(shape, True), order)
    estimates = []

    def action():
        problem = hp.Problem(space, 1.0, 0.0, preconditioner="multigrid", c0=hp.C0Space(space), tol=1e-2)
        problem.solve(lambda *x: x[0] * x[1])
        estimates.append(sum(problem.needs.by_device["host"].values()))

    found = taken(action)
    assert 0.7 < estimates[-1] / found < 1.3, (estimates[-1], found)


def test_too_large_problems_are_refused_before_allocation(monkeypatch):
    mesh = mesh_of("tet", False).elevated(2).transformed(lambda x: x + 0.06 * np.sin(3 * x[:, ::-1]))
    space = hp.Space(mesh, 3)
    c0 = hp.C0Space(space)
    needed = sum(hp.Problem(space, lam=1.0, c0=c0, preconditioner="multigrid").needs.by_device["host"].values())
    monkeypatch.setattr("hpfem.memory.available_memory", lambda: 0.5 * needed)
    monkeypatch.setattr(hp.Helmholtz, "__init__", lambda *a, **k: pytest.fail("an operator was made"))
    wanted = "takes about .* GB on host, where .* GB are free: .*geometry factors .* GB.*index tables .* GB"
    with pytest.raises(OutOfMemory, match=wanted) as caught:
        hp.Problem(space, lam=1.0, c0=c0, preconditioner="multigrid")
    assert isinstance(caught.value, (hp.DeviceError, MemoryError)) and isinstance(caught.value, MemoryError)
    assert "preconditioner='jacobi'" in str(caught.value) and "float32" in str(caught.value)
    assert caught.value.needed == int(needed) and caught.value.free == int(0.5 * needed)
    with pytest.raises(MemoryError):
        hp.solve_helmholtz(space, lam=1.0)


def test_on_a_device(monkeypatch):
    """Its own memory counts there, by what CuPy's pool and the device say."""
    with fake_cuda() as gpus:
        space = hp.Space(mesh_of("hex", True), 3, backend="cuda")
        needs = Needs(hp.C0Space(space), {}, "jacobi")
        needs.check()
        assert set(needs.by_device) == {"host", "cuda:0"}
        assert needs.by_device["cuda:0"]["geometry factors"] == 8**3 * 7 * 5**3 * 8
        gpus.free = 1 << 20
        with pytest.raises(OutOfMemory, match="on cuda:0, where 0.00105 GB are free"):
            hp.Problem(space, lam=1.0)


def test_memory_of_coefficients_is_estimated_until_they_exist():
    space = hp.Space(mesh_of("hex", False), 2)
    c0, size = hp.C0Space(space), space.n_cells * 4**3 * 8
    there = space.evaluate(lambda *x: 1.0 + x[0])
    for given, wanted in ((1.0, 0), (None, 0), (there, 0), (lambda *x: x[0], size), (space.project(there), size)):
        assert Needs(c0, {"lam": given}, "none").by_device["host"]["coefficients"] == wanted
    assert Needs(c0, {}, "user", 3).by_device["host"]["vectors"] > Needs(c0, {}, "user").by_device["host"]["vectors"]
    assert HOST.free() > 0
