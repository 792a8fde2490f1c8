"""Functions of the coordinates, traced and compiled where there are many points: the values that NumPy gives."""

import logging
import math
from functools import partial

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cpu.runtime import cache
from hpfem.backends.cpu.runtime.function import CpuFunction
from hpfem.forms.trace import trace_function
from hpfem.mesh import box
from hpfem.solvers.norms import load
from hpfem.space import evaluation
from hpfem.support import log
from tests.assembly.meshes import ours


@pytest.fixture(autouse=True)
def _compiled_for_few_points(monkeypatch):
    monkeypatch.setattr(evaluation, "_WORTH_COMPILING", 0)
    log.forget_reports()
    yield
    log.forget_reports()


def compiled(function, dim=1):
    found, numbers = trace_function(function, dim)
    made = CpuFunction(found)
    return lambda *x: made(np.array(x), numbers)


def ulps(found, expected):
    return np.abs(found - expected).max(initial=0.0, where=expected == expected) and np.max(
        np.abs(found - expected) / np.spacing(np.abs(expected))
    )


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_are_those_of_the_c_library(name, rng):
    """To two ulp, near their zeros too, and where arguments are large or no numbers."""
    function, quarters = getattr(np, name), np.arange(-3000, 3000) * (np.pi / 2)
    made = compiled(lambda x: function(x))
    given = [rng.uniform(-size, size, 20_001) for size in (1e-9, 1.0, 10.0, 1e3, 1e6, 1e12)]
    given += [quarters, np.nextafter(quarters, 0), np.nextafter(quarters, 1e9), np.array([0.0, 5e-324, 1e-300, 1e300])]
    given += [np.array([2.0**20, 2.0**20 + 1, -(2.0**20)])]
    for x in given:
        assert ulps(made(x)[0], function(x)) <= 2
    with np.errstate(all="ignore"):
        assert np.isnan(made(np.array([np.inf, -np.inf, np.nan, np.nan]))[0]).all()


def test_exponentials_are_those_of_the_c_library(rng):
    made = compiled(lambda x: np.exp(x))
    for size in (1e-12, 1.0, 30.0, 707.0):
        x = rng.uniform(-size, size, 20_001)
        assert ulps(made(x)[0], np.exp(x)) <= 2
    x = np.array([0.0, 708.0, -708.0, 709.7, 710.0, -745.0, -746.0, np.inf, -np.inf, np.nan, 1e300])
    with np.errstate(all="ignore"):
        assert np.allclose(made(x)[0], np.exp(x), rtol=1e-15, atol=0, equal_nan=True)


@pytest.mark.parametrize("n", [1, 3, 8, 1000, 1003])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_several_components_numbers_of_points_and_threads(n, threads, rng, monkeypatch):
    monkeypatch.setenv("HPFEM_NUM_THREADS", threads)
    monkeypatch.setattr("hpfem.backends.cpu.runtime.function.THREAD_FLOPS", 1)

    def function(x, y):
        return [np.where(x > 0.5, np.sqrt(x) / (2 + y), -np.abs(y)), 3.5, np.minimum(x, y) - np.exp(-x) * y**3, x]

    x = rng.random((2, n))
    found, expected = compiled(function, 2)(*x), np.array([part * np.ones(n) for part in function(*x)])
    assert found.shape == (4, n) and np.abs(found - expected).max() < 1e-14


def exact(x, y, z):
    return np.sin(2 * np.pi * x) * np.cos(y) * np.exp(z - 3 * y)


def plain(x, y, z):
    """The same, but not for symbols."""
    assert isinstance(x, np.ndarray)
    return exact(x, y, z)


@pytest.mark.parametrize("name", ["mixed", "tet", "hex"])
def test_right_hand_sides_values_and_errors(name, backend, caplog):
    space = hp.Space(ours("cube_mixed.msh") if name == "mixed" else box(name, (2, 2, 2)), 3, backend=backend)
    for array, expected in zip(space.evaluate(exact).arrays, space.evaluate(plain).arrays, strict=True):
        assert np.abs(array - expected).max() < 1e-14 * np.abs(expected).max()
    problem = hp.Problem(space, lambda *x: 2 + np.sin(x[0]), 0.0)
    u, v = problem.solve(exact), problem.solve(plain)
    assert np.abs(u.vector - v.vector).max() < 1e-9 * np.abs(v.vector).max()
    moments, expected = (load(problem.c0, f) for f in (exact, plain))
    assert np.abs(moments - expected).max() < 1e-13 * np.abs(expected).max()
    assert hp.l2_error(u, exact) == pytest.approx(hp.l2_error(u, plain), rel=1e-13)


def test_untraceable_functions_are_reported_once_and_called(caplog):
    space = hp.Space(box("hex", (2, 2, 2)), 2, backend="cpu")

    def with_math(x, y, z):
        return np.vectorize(math.sin)(x)

    with caplog.at_level(logging.INFO, logger="hpfem"):
        for _ in range(2):
            values = space.evaluate(with_math).arrays[0]
            assert np.abs(values - np.sin(space.coordinates().arrays[0][:1])).max() < 1e-15
    said = [record.getMessage() for record in caplog.records if "with_math" in record.getMessage()]
    assert len(said) == 1 and "it is called on arrays" in said[0]


def test_functions_that_differ_on_symbols_are_called(caplog):
    space = hp.Space(box("hex", (2, 2, 2)), 2, backend="cpu")

    def suspicious(x, y, z):
        return x + 1.0 if isinstance(x, np.ndarray) else x

    with caplog.at_level(logging.INFO, logger="hpfem"):
        values = space.evaluate(suspicious).arrays[0]
    assert values.min() >= 1.0 and "not the same on symbols" in caplog.text

    def suspicious_behind(x, y, z):
        return x + np.maximum(y - 0.5, 0.0) * (1.0 if isinstance(x, np.ndarray) else 0.0)

    assert space.evaluate(suspicious_behind).arrays[0].max() > 1.4
    with pytest.raises(hp.ArgumentError, match="not finite at"):
        space.evaluate(lambda x, y, z: 1 / (x - x))
    for function in (lambda x, y: x, partial(lambda x, y: x)):
        with pytest.raises(hp.ArgumentError, match=r"must take 3 arguments \(x, y, z\)"):
            space.evaluate(function)


@pytest.mark.parametrize("called", [1, 1 << 10])
def test_functions_that_differ_in_some_elements_are_called(called, caplog, monkeypatch):
    """Every element is looked at; few are enough where a comparison says which."""
    monkeypatch.setattr(evaluation, "_CALLED", called)
    space = hp.Space(box("hex", (5, 2, 2)), 2, backend="cpu")

    def odd(x, y, z):
        return np.where(x > 0.8, 2.0 if isinstance(x, np.ndarray) else 3.0, 1.0)

    def shifted(x, y, z):
        base = x
        base += 1e-6 * (y > 0.5)
        return base + x

    with caplog.at_level(logging.INFO, logger="hpfem"):
        for function in (odd, shifted):
            assert space.evaluate(function).arrays[0].max() <= 2.000002
    x, y, _ = space.coordinates().arrays[0]
    assert np.abs(space.evaluate(shifted).arrays[0] - 2 * (x + 1e-6 * (y > 0.5))).max() < 1e-9
    for name in ("odd", "shifted"):
        assert f"{name} is not the same on symbols; it is called on arrays" in caplog.text


@pytest.mark.parametrize("name", ["floor", "ceil", "sign"])
def test_jumps_of_rounded_values_are_those_of_numpy(name):
    jump = getattr(np, name)
    with pytest.raises(hp.ArgumentError, match="cannot be traced"):
        trace_function(lambda x: jump(np.sin(x)), 1)
    x = np.linspace(-4.0, 4.0, 9)
    assert np.array_equal(compiled(lambda x: np.where(jump(2 * x) > 0.5, 2.0, 1.0))(x)[0], 1.0 + (jump(2 * x) > 0.5))


def test_other_numbers_are_not_compiled_anew(monkeypatch):
    space = hp.Space(box("hex", (2, 2, 2)), 2, backend="cpu")

    def at(t):
        return space.evaluate(lambda x, y, z: np.exp(-t) * np.sin(np.pi * x) + t).arrays[0]

    first = at(1.0)
    monkeypatch.setattr(cache, "compile_object", lambda *a: pytest.fail("compiled anew"))
    x = space.coordinates().arrays[0][0]
    for t, found in ((1.0, first), (2.0, at(2.0)), (0.25, at(0.25))):
        assert np.abs(found - np.exp(-t) * np.sin(np.pi * x) - t).max() < 1e-15
