"""Problems that are set up once: solved again, updated, fluxes that balance the sources."""

import re
import sys
import warnings
from concurrent.futures import Future
from threading import Timer
from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cpu.runtime import cache
from hpfem.backends.cpu.runtime.kernel import _specialised
from hpfem.backends.cuda.runtime.kernel import _waited
from hpfem.memory import count_transfers
from hpfem.mesh import box
from hpfem.solvers import problem as problem_module
from hpfem.support import progress
from hpfem.support.compiling import compile_seconds
from tests.samples import curved
from tests.solvers.test_components import space_on
from tests.space.test_by_region import halves
from tests.support.test_reporting import Terminal


def exact(x, y, z):
    return np.sin(x) * np.exp(y) + z**2


def source(x, y, z):
    return 1.5 * exact(x, y, z) - 2.0


SIDES = dict.fromkeys(("xmin", "xmax", "ymin", "ymax", "zmin", "zmax"), exact)


@pytest.mark.parametrize("name", ["mixed", "tet", "hex"])
def test_it_solves_as_solve_helmholtz_does(name, backend):
    space = space_on(name, backend, 4)
    problem = hp.Problem(space, 1.5, SIDES, tol=1e-12)
    once = hp.solve_helmholtz(space, 1.5, source, SIDES, tol=1e-12)
    for _ in range(2):
        u = problem.solve(source)
        assert np.abs(u.vector - once.vector).max() < 1e-9 * np.abs(once.vector).max()
    assert u.info.iterations == once.info.iterations and hp.l2_error(u, exact) < 1e-4
    again = problem.solve(source, start=u)
    assert again.info.iterations <= 2
    twice = problem.solve(lambda *x: 2 * source(*x), dirichlet={k: lambda *x: 2 * exact(*x) for k in SIDES})
    assert np.abs(twice.vector - 2 * u.vector).max() < 1e-8 * np.abs(u.vector).max()


@pytest.mark.parametrize("name", ["mixed", "tet"])
@pytest.mark.parametrize("components", [1, 2])
def test_values_and_guesses_are_taken_as_vectors(name, components, backend):
    """Of the host, of where it computes, or of a solution: as the function does whose coefficients they are."""
    space = space_on(name, backend, 3)

    def values(scale):
        return lambda *x: exact(*x) * scale if components == 1 else [exact(*x) * scale, x[0] * scale]

    problem = hp.Problem(space, 1.0, {"xmin": values(1), "zmax": values(1)}, components=components, tol=1e-12)
    wanted = problem.solve(0.5, dirichlet={"xmin": values(3), "zmax": values(3)})
    vectors, host = problem.operator.vectors, problem.c0.project(values(3))
    for given in (host, vectors.from_host(host), wanted):
        found = problem.solve(0.5, dirichlet=given)
        assert np.abs(found.vector - wanted.vector).max() < 1e-9 * np.abs(wanted.vector).max()
    for start in (wanted, wanted.vector, vectors.from_host(wanted.vector)):
        with count_transfers() as moved:
            again = problem.solve(0.5, dirichlet=wanted, start=start)
        assert again.info.iterations <= 1 and moved.total <= isinstance(start, np.ndarray)


@pytest.mark.parametrize("components", [1, 2])
def test_whatever_means_a_function_is_a_first_guess(components, backend, tmp_path):
    """A solution that the space holds, given in every way: nothing is left to iterate."""

    def both(first, second):
        return first if components == 1 else [first, second]

    def u(x, y, z):
        return both(x * y + z, x**2)

    space, finer = hp.Space(halves("hex"), 2, backend=backend), hp.Space(box("tet", (2, 2, 2)), 3)
    problem = hp.Problem(space, 1.0, dict.fromkeys(SIDES, u), components=components, tol=1e-7, bar=False)

    def f(x, y, z):
        return both(x * y + z, x**2 - 2)

    hp.save(tmp_path / "u.h5", finer.project(u))
    guesses = {
        "function": u, "by region": {"in": u, "out": u}, "coefficients": space.project(u), "values": space.evaluate(u),
        "on another space": finer.project(u), "loaded": hp.load(tmp_path / "u.h5")["u"],
        "solution of another space": hp.Problem(finer, 1.0, u, components=components, bar=False).solve(f),
    }  # fmt: skip
    assert problem.solve(f).info.iterations > 1
    assert {what: problem.solve(f, start=guess).info.iterations for what, guess in guesses.items()} == dict.fromkeys(
        guesses, 0
    )
    constant = hp.Problem(space, 2.0, components=components, tol=1e-7, bar=False)
    for start in (3.0, {"in": 3.0, "out": 3}):
        assert constant.solve(both(6.0, 6.0), start=start).info.iterations == 0
    with pytest.raises(hp.StateError, match="start takes a 'coeff' field, got 'dual'"):
        problem.solve(f, start=hp.Mass(space)(space.project(u)))
    for wrong in (space.zeros("coeff", 3), lambda x, y, z: [x, y, z], np.nan, {"in": 1.0}, "u"):
        with pytest.raises(hp.ArgumentError):
            problem.solve(f, start=wrong)


def test_a_solve_may_have_limits_of_its_own(backend):
    problem = hp.Problem(space_on("hex", backend, 3), 1.0, {"xmin": 0.0}, preconditioner="jacobi", tol=1e-9, bar=False)
    fine, rough = problem.solve(1.0), problem.solve(1.0, tol=1e-2)
    assert rough.info.iterations < fine.info.iterations and fine.info.residual < 1e-8 < rough.info.residual < 2e-2
    with pytest.raises(hp.SolverError, match="after 1 iteration"):
        problem.solve(1.0, max_iterations=1)
    for wrong in ({"tol": 2.0}, {"max_iterations": -1}):
        with pytest.raises(hp.ArgumentError, match="of Helmholtz must be"):
            problem.solve(1.0, **wrong)
    assert problem.solve(1.0).info.iterations == fine.info.iterations


def test_poissons_problem_is_the_default_or_asked_for():
    space = hp.Space(box("quad", (2, 2)), 2, backend="numpy")
    for make, name in ((hp.Helmholtz, "Helmholtz"), (hp.solve_helmholtz, "solve_helmholtz")):
        with pytest.raises(hp.ArgumentError, match=f"^{name} takes the reaction coefficient lam; lam=0 for Poisson's"):
            make(space)
    poisson = hp.solve_helmholtz(space, 0.0, 1.0, 0.0, bar=False)
    assert np.array_equal(hp.Problem(space, dirichlet=0.0, bar=False).solve(1.0).vector, poisson.vector)
    assert [result.operator for result in hp.tune(space, "Helmholtz", 1e-9)] == ["Helmholtz"]


def test_numbers_are_updated_without_compiling(backend, monkeypatch):
    space = space_on("prism", backend, 3)
    problem = hp.Problem(space, lam=1.0, diffusivity=2.0, dirichlet=exact, preconditioner="jacobi")
    kernels = [choice.kernel for choice in problem.operator.operator.choices]
    assert np.array_equal(problem.solve(source).vector, problem.solve(source).vector)
    problem.update(lam=7.0, diffusivity=0.5)
    assert all(a is b.kernel for a, b in zip(kernels, problem.operator.operator.choices, strict=True))
    fresh = hp.solve_helmholtz(space, 7.0, source, exact, diffusivity=0.5)
    assert np.abs(problem.solve(source).vector - fresh.vector).max() < 1e-9 * np.abs(fresh.vector).max()
    with pytest.raises(hp.ArgumentError, match="not a number that can be updated"):
        hp.Problem(space, lam=lambda *x: 1.0 + x[0]).update(lam=2.0)


def test_a_refused_call_changes_nothing(backend):
    space = space_on("hex", backend, 2)
    problem = hp.Problem(space, lam=1.0, diffusivity=2.0, dirichlet=exact)
    before = problem.solve(source).vector
    for wrong in ({"lam": 5.0, "diffusivity": -1.0}, {"lam": 5.0, "diffusivity": "x"}):
        with pytest.raises(hp.ArgumentError):
            problem.update(**wrong)
        assert np.array_equal(problem.solve(source).vector, before)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_other_values_are_taken_whether_or_not_they_are_meant_in_the_domain(order, backend):
    """A function that jumps towards the inside is taken on the boundary alone: the new one, not the old one."""
    space = space_on("hex", backend, order)

    def shell(x, y, z):
        inside = np.minimum.reduce([x, y, z, 1 - x, 1 - y, 1 - z]) > 1e-9
        return np.where(inside, 1e3 * np.sin(40 * x), 2.0)

    problem = hp.Problem(space, 0.0, dirichlet=lambda x, y, z: 5.0 + 0 * x)
    assert np.abs(problem.solve().at([[0.4, 0.3, 0.6]]) - 5.0).max() < 1e-9
    assert np.abs(problem.solve(dirichlet=shell).at([[0.4, 0.3, 0.6]]) - 2.0).max() < 1e-9
    assert (
        np.abs(problem.solve(dirichlet=exact).vector - hp.solve_helmholtz(space, 0.0, dirichlet=exact).vector).max()
        < 1e-9
    )


def test_fields_are_read_again(backend):
    space = space_on("hex", backend, 3)
    lam = space.evaluate(lambda x, y, z: 1 + x)
    problem = hp.Problem(space, lam=lam, dirichlet=exact, preconditioner="jacobi")
    problem.solve(source)
    for array in lam.arrays:
        array *= 3
    problem.update()
    expected = hp.solve_helmholtz(space, lambda x, y, z: 3 + 3 * x, source, exact)
    assert np.abs(problem.solve(source).vector - expected.vector).max() < 1e-8 * np.abs(expected.vector).max()


@pytest.mark.parametrize("name", ["mixed", "tet", "pyramid"])
def test_fluxes_are_exact_and_balance_the_sources(name, backend):
    """u = x^2 + y z between walls: fluxes 0 and 2 through xmin and xmax, and all together the integral of -f."""
    space = space_on(name, backend, 3)

    def u_exact(x, y, z):
        return x**2 + y * z

    problem = hp.Problem(space, 0.0, {"xmin": u_exact, "xmax": u_exact}, neumann={
        "ymin": lambda x, y, z: -z, "ymax": lambda x, y, z: z, "zmin": lambda x, y, z: -y, "zmax": lambda x, y, z: y,
    }, tol=1e-13)  # fmt: skip
    u = problem.solve(-2.0)
    assert problem.flux(u, "xmin", -2.0) == pytest.approx(0.0, abs=1e-9)
    assert problem.flux(u, "xmax", -2.0) == pytest.approx(2.0, abs=1e-9)
    with count_transfers() as moved:
        assert problem.flux(u, "xmax", -2.0) == pytest.approx(2.0, abs=1e-9)
    assert moved.total == 0  # what it takes besides u stays where the operator computes
    # What is prescribed elsewhere.
    assert problem.flux(u, "ymin", -2.0) == pytest.approx(-0.5) and problem.flux(u, "zmax") == pytest.approx(0.5)
    with pytest.raises(hp.ArgumentError, match="unknown boundary 'inlet'"):
        problem.flux(u, "inlet")
    closed = hp.Problem(space, 0.0, dict.fromkeys(SIDES, u_exact), tol=1e-13)
    v = closed.solve(-2.0)
    assert sum(closed.flux(v, side, -2.0) for side in SIDES) == pytest.approx(2.0, abs=1e-9)


def test_with_an_undetermined_constant(backend):
    space = space_on("hex", backend, 3)
    problem = hp.Problem(space, 0.0)
    u = problem.solve(lambda x, y, z: np.cos(np.pi * x))
    assert abs(space.integrate(hp.BwdTrans(space)(u))) < 1e-10
    again = problem.solve(lambda x, y, z: np.cos(np.pi * x), start=u)
    assert again.info.iterations <= 2


def test_what_does_not_fit(backend):
    space = space_on("hex", backend, 2)
    problem = hp.Problem(space, 1.0, {"xmin": 0.0})
    with pytest.raises(hp.ArgumentError, match="start is"):
        problem.solve(1.0, start=np.zeros(3))
    with pytest.raises(hp.ArgumentError, match="other boundaries"):
        problem.solve(1.0, dirichlet={"xmax": 0.0})
    with pytest.raises(hp.ArgumentError, match="give a finite vector"):
        problem.solve(1.0, dirichlet=np.full(problem.c0.size, np.nan))
    with pytest.raises(hp.ArgumentError, match="a solution of this problem"):
        problem.flux(space.zeros("coeff"), "xmin")
    with pytest.raises(hp.ArgumentError, match="c0 is for another space"):
        hp.Problem(space, lam=1.0, c0=hp.C0Space(space_on("hex", backend, 3)))


def test_the_record_is_a_table():
    u = hp.solve_helmholtz(space_on("tet", "numpy", 2), 1.0, source, exact)
    text = str(u.info)
    for name in ("unknowns", "continuous space", "conditions", "operator", "preconditioner", "right-hand side"):
        assert name in text
    assert f"{u.info.iterations}, " in text and u.info.set_up_time == pytest.approx(
        sum(u.info.phases.values()), rel=0.2
    )


def test_the_record_has_the_time_of_compilation(monkeypatch, tmp_path):
    def solved():
        return hp.solve_helmholtz(space_on("hex", "cpu", 2), 1.0, source, exact).info

    solved()
    again = solved()
    assert again.compile_time == 0 and "compiling" not in str(again)
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_LOADED", {})
    _specialised.cache_clear()
    first = solved()
    assert 0 < first.compile_time < first.time
    assert f"of all, compiling {first.compile_time:9.3f} s" in str(first)
    cubin, before = Future(), compile_seconds()  # of NVRTC's, which compiles in a thread of its own
    Timer(0.03, cubin.set_result, ["path"]).start()
    assert _waited(cubin) == "path" and compile_seconds() - before > 0.02


@pytest.mark.parametrize("bar", [True, False])
def test_progress_is_shown_on_a_terminal(bar, monkeypatch):
    terminal = Terminal(True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    problem = hp.Problem(space_on("hex", "numpy", 2), 1.0, 0.0, bar=bar)
    assert problem.solve(source).info.residual < 1e-10
    parts = ("continuous space", "conditions", "operator", "preconditioner", "constants", "right-hand side")
    for text in (*parts, "Helmholtz"):
        assert (text in terminal.text) == bar
    assert bool(re.search(r"Helmholtz \d.\de-\d\d", terminal.text)) == bar


def test_a_notebook_shows_the_first_seconds(monkeypatch):
    shown, make = [], problem_module.make_preconditioner
    kernel = Terminal(False)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))
    monkeypatch.setattr(sys, "stdout", kernel)
    monkeypatch.setattr(progress, "PERIOD", 0.01)

    def slow(*arguments):
        shown.append(kernel.waits_for("preconditioner, 0 s"))
        return make(*arguments)

    monkeypatch.setattr(problem_module, "make_preconditioner", slow)
    hp.Problem(space_on("hex", "numpy", 2), 1.0, 0.0)
    assert shown == [True]


@pytest.mark.cuda
@pytest.mark.parametrize("lam", [1.0, 0.0])
def test_solving_again_moves_no_vectors(lam):
    """Right-hand side, boundary values, first guess and solution stay on the device until they are asked for."""
    space = hp.Space(box("hex", (12, 12, 12)), 4, backend="cuda")
    problem = hp.Problem(space, 1.0, {"xmin": exact} if lam else None, neumann={"ymin": 2.0}, tol=1e-10)
    problem.update(lam=lam)
    f = source if lam else lambda x, y, z: np.cos(np.pi * x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hp.HpfemWarning)
        first = problem.solve(f)
        with count_transfers() as moved:
            again = problem.solve(f, start=first)
            assert hp.l2_error(again, exact) > 0
    least = space.dtype.itemsize * problem.c0.size // 4
    assert moved.bytes_to_host < least and moved.bytes_to_device < least
    assert np.abs(again.vector - first.vector).max() < 1e-8 * np.abs(first.vector).max()


@pytest.mark.parametrize(
    ("name", "components", "preconditioner"),
    [("hex", 1, "jacobi"), ("prism", 1, "multigrid"), ("pyramid", 2, "jacobi"), ("tet", 1, "multigrid")],
)
def test_mixed_precision_reaches_what_its_error_allows(name, components, preconditioner, backend):
    """In the norm of the energy, with values on the boundary, which the operator takes to the right-hand side."""
    space = hp.Space(curved(name, 3), 3, backend=backend)
    values = (lambda *x: [exact(*x)] * components) if components > 1 else exact
    how = {"dirichlet": values, "components": components, "preconditioner": preconditioner, "tol": 1e-13, "bar": False}
    full, mixed = (hp.Problem(space, 1.5, **how, precision=precision) for precision in ("full", "mixed"))
    u, v = full.solve(1.0), mixed.solve(1.0)
    A, d = hp.Helmholtz(space, 1.5, backend="numpy"), mixed.precision_error
    energy, error = u.dot(A(u)), (v - u).dot(A(v - u))
    assert full.precision_error == 0 < error and 2.0**-24 < d < 1e-5
    assert np.sqrt(error / energy) < d / (1 - d)
    once = hp.solve_helmholtz(space, 1.5, 1.0, **how, precision="mixed")
    assert np.abs(once.vector - v.vector).max() < 1e-10 * np.abs(v.vector).max()
