"""Time integrators: their order conditions and orders, step control, restarts, and what is kept when they stop."""

from importlib import import_module

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from hpfem.solvers.tableaus import METHODS
from tests.support.test_reporting import on_terminal


def some(*names):
    """All methods; those without these names in the long tests."""
    return [
        name if name in names else pytest.param(name, marks=pytest.mark.long)
        for name, row in METHODS.items()
        if not row.second
    ]


EXPLICIT = [name for name, row in METHODS.items() if not row.implicit and not row.second]


def conditions(a, b):
    """Sums over rooted trees of up to five vertices, and what they have to be [Butcher]."""
    c = a.sum(axis=1)
    first = [(1, b.sum(), 1)]
    second = [(2, b @ c, 1 / 2)]
    third = [(3, b @ c**2, 1 / 3), (3, b @ a @ c, 1 / 6)]
    fourth = [(b @ c**3, 1 / 4), (b @ (c * (a @ c)), 1 / 8), (b @ a @ c**2, 1 / 12), (b @ a @ a @ c, 1 / 24)]
    fifth = [
        (b @ c**4, 1 / 5), (b @ (c**2 * (a @ c)), 1 / 10), (b @ (c * (a @ c**2)), 1 / 15),
        (b @ (c * (a @ a @ c)), 1 / 30), (b @ (a @ c) ** 2, 1 / 20), (b @ a @ c**3, 1 / 20),
        (b @ a @ (c * (a @ c)), 1 / 40), (b @ a @ a @ c**2, 1 / 60), (b @ a @ a @ a @ c, 1 / 120),
    ]  # fmt: skip
    return [*first, *second, *third, *[(4, *own) for own in fourth], *[(5, *own) for own in fifth]]


@pytest.mark.parametrize("name", METHODS)
def test_order_conditions(name):
    row = METHODS[name]
    if row.alpha:
        back = -np.arange(len(row.alpha))
        for k in range(row.order + 1 + row.second):  # exact for polynomials at t = 0 of degree up to the order
            wanted = {(1, False): 1, (2, True): 2}.get((k, row.second), 0)
            assert np.isclose(np.dot(row.alpha, (back + row.second).astype(float) ** k), wanted)
        return
    a, b = row.matrices()
    assert all(abs(found - exact) < 1e-12 for order, found, exact in conditions(a, b) if order <= row.order)
    if row.embedded:
        wrong = [order for order, found, exact in conditions(a, np.array(row.embedded)) if abs(found - exact) > 1e-12]
        assert min(wrong) == row.order
    if row.implicit:  # the last stage is the new vector
        assert np.allclose(a[-1], b)
        if row.embedded:  # stages of order 2
            assert np.allclose(a @ a.sum(axis=1), a.sum(axis=1) ** 2 / 2)
    else:
        assert row.reach() > 2


def heat(backend="numpy", shape="quad", k=1.0):
    """u = cos(t) x + sin(t) y: a nonlinear equation with Dirichlet data and coefficients that depend on t."""

    def function(u, du, x, cos, sin, k):
        rate = -sin * x[0] + cos * x[1]
        exact = cos * x[0] + sin * x[1]
        return u**2 - exact**2 - rate, k * du

    space = hp.Space(box(shape, 2), 1, backend=backend)
    c0 = hp.C0Space(space)
    form = hp.WeakForm(space, function, fields={"cos": 1.0, "sin": 0.0, "k": k})
    return form, c0, hp.BoundaryConditions(c0, lambda x, y: x)


DATA = {"parameters": {"cos": np.cos, "sin": np.sin}, "dirichlet": lambda t: lambda x, y: np.cos(t) * x + np.sin(t) * y}


def marched(method, steps, backend="numpy", end=1.0, k=1.0, **options):
    form, c0, bc = heat(backend, k=k)
    run = hp.march(form, lambda x, y: x, (0, end), c0, bc, method=method, dt=end / steps, bar=False, **DATA, **options)
    return c0, run


@pytest.mark.parametrize("name", some("ssp3", "sdirk2", "bdf3"))
def test_orders_with_dirichlet_data_in_time(name):
    row = METHODS[name]
    errors = []
    coarse = 24 if not row.implicit else 8
    for steps in (coarse, 2 * coarse):
        _, run = marched(name, steps, end=0.5)
        errors.append(hp.l2_error(run.u, lambda x, y: np.cos(0.5) * x + np.sin(0.5) * y))
        assert run.t == 0.5 and run.steps == steps
    assert np.log2(errors[0] / errors[1]) > row.order - 0.35 or errors[1] < 1e-11


def test_leapfrog_has_its_order_with_dirichlet_data_in_time():
    """u'' + u = div grad u with u = cos(t) x + sin(t) y."""
    c0 = hp.C0Space(hp.Space(box("quad", 2), 2))
    form = hp.WeakForm(c0.space, lambda u, du: (u, du))
    errors = []
    for steps in (10, 20):
        run = hp.march(
            form,
            lambda x, y: x,
            (0, 1),
            c0,
            hp.BoundaryConditions(c0, 0.0),
            method="leapfrog",
            dt=1 / steps,
            velocity=lambda x, y: y,
            dirichlet=DATA["dirichlet"],
            bar=False,
        )
        errors.append(hp.l2_error(run.u, lambda x, y: np.cos(1) * x + np.sin(1) * y))
    assert np.log2(errors[0] / errors[1]) > 1.8 and errors[1] < 4e-3


@pytest.mark.parametrize(("name", "order"), [("sdirk2", 1), ("esdirk3", 2), ("esdirk4", 2), ("bdf3", 3)])
def test_orders_where_the_equation_decays_much_faster_than_a_step(name, order):
    errors = []
    for steps in (8, 16):
        _, run = marched(name, steps, end=2.0, k=30.0)
        errors.append(hp.l2_error(run.u, lambda x, y: np.cos(2) * x + np.sin(2) * y))
    assert np.log2(errors[0] / errors[1]) > order - 0.15 and errors[1] < 5e-5


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if not row.second])
def test_orders_of_an_ordinary_equation(name):
    """u' = -u^2 in every point."""
    row = METHODS[name]
    space = hp.Space(box("quad", 1), 1)
    c0 = hp.C0Space(space)
    form = hp.WeakForm(space, lambda u, du, s: (u * s, 0 * du), fields={"s": 1.0})
    errors = []
    for steps in (2, 4) if row.order > 3 else (8, 16):
        run = hp.march(form, 1.0, (0, 1), c0, method=name, dt=1 / steps, parameters={"s": np.cos}, bar=False)
        errors.append(abs(run.u.vector / c0.one - np.exp(-np.sin(1)))[np.abs(c0.one) > 0.5].max())
    assert np.log2(errors[0] / errors[1]) > row.order - 0.4


@pytest.mark.parametrize("backend", ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("name", ["low4", "bs3", "esdirk3", "bdf3", "leapfrog"])
def test_a_run_that_continues_has_the_same_bits(name, backend, tmp_path, monkeypatch):
    module = import_module("hpfem.solvers.march")
    options = {"save": [0.1, 0.3]} | ({"tol": 1e-4 if name == "bs3" else 1e-7} if METHODS[name].embedded else {})
    options |= {"preconditioner": "multigrid"} if METHODS[name].implicit else {}
    _, whole = marched(name, 60, backend, 0.5, checkpoint=tmp_path / "whole.npz", **options)
    options["checkpoint"] = tmp_path / "state.npz"
    step = module._Run.step

    def killed(self):
        if self.t > 0.35:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(module._Run, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        marched(name, 60, backend, 0.5, **options)
    monkeypatch.setattr(module._Run, "step", step)
    _, again = marched(name, 60, backend, 0.5, **options)
    assert np.array_equal(again.u.vector, whole.u.vector) and again.times == whole.times == [0.1, 0.3]
    assert (again.steps, again.rejected, again.dt) == (whole.steps, whole.rejected, whole.dt)
    assert all(np.array_equal(p.vector, q.vector) for p, q in zip(again.saved, whole.saved, strict=True))
    with pytest.raises(hp.ArgumentError, match="another computation"):
        marched("ssp3", 60, backend, 0.5, **options)
    written = options["checkpoint"].read_bytes()
    first = written.index(b"NUMPY")
    for damaged in (b"no", written[:-100], written[:first] + b"numpy" + written[first + 5 :]):
        options["checkpoint"].write_bytes(damaged)
        with pytest.raises(hp.ArgumentError, match="no checkpoint"):
            marched(name, 60, backend, 0.5, **options)


def test_a_checkpoint_of_other_processes_is_told(tmp_path):
    (tmp_path / "[a].0of2.npz").write_bytes(b"")
    with pytest.warns(hp.HpfemWarning, match=r"\[a\].0of2.npz is a checkpoint of another number of processes"):
        marched("ssp3", 60, "numpy", 0.1, checkpoint=tmp_path / "[a].npz")


@pytest.mark.parametrize("name", ["ssp3", "ssp43", "bs3", "dp5"])
def test_steps_meet_a_tolerance(name):
    space = hp.Space(box("tri", 1), 1)
    c0 = hp.C0Space(space)
    form = hp.WeakForm(space, lambda u, du, s: (u * s, 0 * du), fields={"s": 1.0})
    fast = {"s": lambda t: 1 + 50 * np.exp(-((t - 1) ** 2) * 400)}
    counts = []
    for tol in (1e-4, 1e-6):
        run = hp.march(form, 1.0, (0, 2), c0, method=name, dt=0.5, tol=tol, parameters=fast, bar=False)
        exact = np.exp(-2 - 50 * np.sqrt(np.pi) / 20)
        assert abs(run.u.vector[0] / c0.one[0] / exact - 1) < 200 * tol
        counts.append(run.steps)
    assert counts[0] < counts[1] and run.rejected > 0


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *[pytest.param(name, "tri", marks=[] if name == "ssp3" else pytest.mark.long) for name in EXPLICIT],
        ("low4", "hex"),
    ],
)
def test_the_estimated_step_is_stable_and_near_the_limit(name, shape):
    space = hp.Space(box(shape, 1), 3 if shape == "tri" else 2)
    c0 = hp.C0Space(space)
    form, bc = hp.Laplacian(space), hp.BoundaryConditions(c0, {"xmin": 0.0})
    start = np.random.default_rng(1).uniform(-1, 1, c0.size)
    run = hp.march(form, start, (0, 0.05), c0, bc, method=name, bar=False)
    assert np.abs(run.u.vector).max() < 1
    with pytest.raises(hp.SolverError, match="at t = "):
        hp.march(form, start, (0, 2000 * run.dt), c0, bc, method=name, dt=2.5 * run.dt, bar=False)


@pytest.mark.parametrize("name", ["esdirk3", "esdirk4"])
def test_implicit_steps_meet_a_tolerance(name):
    """A layer that decays fast, then data that change slowly: few steps, and at first short ones."""
    counts = []
    for tol in (1e-3, 1e-5):
        form, c0, bc = heat(k=100.0)
        start = lambda x, y: x + np.sin(np.pi * x) * np.sin(np.pi * y)  # noqa: E731
        run = hp.march(form, start, (0, 1), c0, bc, method=name, dt=1e-3, tol=tol, bar=False, **DATA)
        assert hp.l2_error(run.u, lambda x, y: np.cos(1) * x + np.sin(1) * y) < tol
        counts.append(run.steps)
    assert 5 < counts[0] < counts[1] < 80


def test_systems_are_solved_with_multigrid_where_the_diagonal_takes_many_iterations(monkeypatch):
    module, used = import_module("hpfem.solvers.newton"), []
    solve = module.Tangents.solve

    def seen(self, *given):
        out = solve(self, *given)
        used.append((self.preconditioner.used, self.multigrid, out[1]))
        return out

    monkeypatch.setattr(module.Tangents, "solve", seen)
    c0 = hp.C0Space(hp.Space(box(("quad", "tri"), 6), 4))
    form = hp.WeakForm(c0.space, lambda u, du: (u**3 - u, 1e-3 * du))
    start = np.random.default_rng(0).uniform(-1, 1, c0.size)
    found = {}
    for name in ("jacobi", "auto"):
        used.clear()
        run = hp.march(form, start, (0, 2), c0, method="sdirk2", dt=1.0, preconditioner=name, bar=False)
        found[name] = run.u.vector
    first = [own[1] for own in used].index("made")
    assert 1 <= first <= 3 and {own[0] for own in used[:first]} == {"jacobi"}
    assert {own[1] for own in used[first + 1 :]} <= {"kept", "refreshed"} and max(own[2] for own in used[first:]) < 20
    assert np.abs(found["jacobi"] - found["auto"]).max() < 1e-6


def test_what_is_kept_when_the_solution_grows_without_bound():
    space = hp.Space(box("quad", 1), 1)
    c0 = hp.C0Space(space)
    form = hp.WeakForm(space, lambda u, du: (-(u**2), 0 * du))
    for name, options in {"bs3": {"tol": 1e-5}, "low3": {}, "esdirk3": {}}.items():
        with pytest.raises(hp.SolverError, match="at t = ") as caught:
            hp.march(form, 1.0, (0, 3), c0, method=name, dt=0.05, save=[0.5], bar=False, **options)
        kept = caught.value.march
        assert kept.times == [0.5] and 0.5 < kept.t < 3 and np.isfinite(kept.u.vector).all()
        assert hp.l2_error(kept.saved[0], lambda x, y: 2 + 0 * x) < 1e-2
    growth = hp.WeakForm(space, lambda u, du: (-300 * u, 0 * du))
    with pytest.raises(hp.SolverError, match="give numbers that are not finite; is the solution unbounded"):
        hp.march(growth, 1.0, (0, 3), c0, method="dp5", tol=1e-2, dt=0.05, bar=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "euler"}, "method"),
        ({"times": (1, 0)}, "later"),
        ({"save": [2.0]}, "ascending times"),
        ({"save": [0.5, 0.2]}, "ascending times"),
        ({"dt": -1.0}, "dt"),
        ({"method": "low3", "tol": 1e-3}, "no embedded method"),
        ({"method": "bdf2", "dt": None}, "give dt"),
        ({"parameters": {"other": np.cos}}, "no parameter"),
        ({"parameters": {"cos": 1.0}}, "a function of t"),
        ({"dirichlet": 1.0}, "a function of t"),
        ({"checkpoint": "state.h5"}, "npz"),
        ({"u0": np.ones(3)}, "start"),
        ({"mass": 1.0}, "mass is a weak form"),
        ({"preconditioner": "ilu"}, "preconditioner"),
        ({"load": 1.0}, "a function of t"),
        ({"load": lambda t: np.ones(3)}, "a load has"),
        ({"velocity": 1.0}, "leapfrog"),
        ({"courant": 0.0}, "courant"),
        ({"times": (1e6, 1e6 + 1e-3), "dt": 1e-11}, "dt = 1e-11 is too short"),  # 1e6 + 1e-11 == 1e6
    ],
)
def test_arguments(options, message):
    form, c0, bc = heat()
    given = {"residual": form, "u0": 0.0, "times": (0, 1), "c0": c0, "bc": bc, "dt": 0.1, "bar": False, **options}
    with pytest.raises(hp.ArgumentError, match=message):
        hp.march(**given)


def test_progress_is_shown(monkeypatch):
    terminal = on_terminal(monkeypatch)
    marched("low3", 40, end=0.2, name="quiet")
    assert not terminal.text
    form, c0, bc = heat()
    hp.march(form, 1.0, (0, 0.2), c0, bc, method="low3", dt=5e-3, name="heat", **DATA)
    assert "heat: t = 0.2" in terminal.text


def test_equal_steps_end_at_the_times_of_save():
    """This is known before the first step; a step that is estimated is one that divides all of them."""
    with pytest.raises(hp.ArgumentError, match=r"0.45.* no multiples of dt = 0.1"):
        marched("bdf2", 10, save=[0.55], watch=lambda t, u: pytest.fail("a step was taken"))
    form, c0, bc = heat()
    given = {"method": "leapfrog", "bar": False}
    run = hp.march(form, 0.0, (0, 0.4), c0, bc, save=[0.25], **given)
    assert np.isclose(0.05 / run.dt, round(0.05 / run.dt), rtol=1e-8) and run.times == [0.25]
    with pytest.raises(hp.ArgumentError, match="a stable dt near"):
        hp.march(form, 0.0, (0, 0.4), c0, bc, save=[np.pi / 9], **given)


def test_robin_conditions_and_components():
    """u' = -u' in both components by Robin data alone, explicit and implicit."""
    space = hp.Space(box("quad", 2), 2)
    c0 = hp.C0Space(space)
    form = hp.WeakForm(space, lambda u, du: (0 * u, du), components=2)
    bc = hp.BoundaryConditions(c0, robin=(2.0, 1.0), components=2)
    runs = [
        hp.march(form, 1.0, (0, 0.12), c0, bc, method=name, dt=0.12 / n, bar=False).u.vector
        for name, n in (("low4", 200), ("esdirk3", 16))
    ]
    assert runs[0].shape == (2, c0.size) and np.abs(runs[0] - runs[1]).max() < 1e-5
    still = hp.march(form, 0.5, (0, 1), c0, bc, method="sdirk2", dt=0.5, bar=False)
    assert hp.l2_error(still.u, lambda x, y: np.full((2, *x.shape), 0.5)) < 1e-8


def test_the_mass_is_inverted_with_multigrid_where_the_diagonal_takes_many_iterations(monkeypatch):
    module, iterations = import_module("hpfem.solvers.march"), []

    def counted(*given, cg=module.cg, **options):
        x, info = cg(*given, **options)
        iterations.append(info.iterations)
        return x, info

    monkeypatch.setattr(module, "cg", counted)
    space = hp.Space(box("tet", 2), 3)
    found = {}
    for name in ("jacobi", "auto"):
        iterations.clear()
        start, c0 = lambda x, y, z: np.sin(x) * y, hp.C0Space(space)
        run = hp.march(hp.Laplacian(space), start, (0, 2e-3), c0, method="ssp3", dt=1e-3, preconditioner=name)
        found[name] = run.u.vector, iterations[-1]
    assert found["auto"][1] < 30 < 180 < found["jacobi"][1]
    assert np.abs(found["auto"][0] - found["jacobi"][0]).max() < 1e-9


def test_conditions_for_other_components_and_linearisations_are_refused():
    space = hp.Space(box("quad", 1), 2)
    form, c0 = hp.WeakForm(space, lambda u, du: (u**3, du)), hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet=0.0, components=2)
    with pytest.raises(hp.ArgumentError, match="for 2 components, not for 1"):
        hp.newton(form, c0, bc)
    with pytest.raises(hp.ArgumentError, match="is linear, and has no linearisation of its own"):
        form.linearised(space.zeros("coeff")).linearised(space.zeros("coeff"))


@pytest.mark.parametrize("function", [lambda u: u**3, lambda u, du: u + du[0]])
@pytest.mark.parametrize("method", ["ssp3", "sdirk2"])
def test_a_mass_that_is_not_linear_or_not_symmetric_is_refused(function, method):
    space = hp.Space(box("quad", 2), 2)
    mass = hp.WeakForm(space, function, test="value")
    with pytest.raises(hp.ArgumentError, match="mass is a linear, symmetric weak form"):
        hp.march(hp.Laplacian(space), 1.0, (0, 0.1), hp.C0Space(space), method=method, dt=0.01, mass=mass)


@pytest.mark.parametrize("method", ["sdirk2", "bdf2", "esdirk3"])
def test_short_implicit_steps_move_the_solution(method):
    """By less than what a system of its own may leave."""
    space = hp.Space(box("quad", 2), 3, dtype="float32")
    c0 = hp.C0Space(space)
    bc, start = hp.BoundaryConditions(c0, {"xmin": 0.0}), lambda x, y: np.sin(np.pi * x / 2)
    first, last = (
        space.integrate(hp.march(hp.Laplacian(space), start, (0, t), c0, bc, method=method, dt=1e-5, bar=False).u)
        for t in (1e-5, 5e-4)
    )
    assert first - last == pytest.approx(first * 4.9e-4 * (np.pi / 2) ** 2, rel=0.02)


def test_a_tolerance_below_rounding_is_refused_by_implicit_steps():
    space = hp.Space(box("quad", 2), 3, dtype="float32")
    c0 = hp.C0Space(space)
    bc, start = hp.BoundaryConditions(c0, {"xmin": 0.0}), lambda x, y: np.sin(np.pi * x / 2)
    with pytest.raises(hp.SolverError, match="rounding to float32 errs by .*; take a larger tol, or float64"):
        hp.march(hp.Laplacian(space), start, (0, 0.1), c0, bc, method="esdirk4", dt=0.01, tol=1e-7, bar=False)


@pytest.mark.parametrize("method", ["sdirk2", "bdf2"])
def test_implicit_steps_end_at_a_steady_solution_where_rounding_is_large(method):
    """Differences of large numbers err by more than the linearisation tells, but by less than the tolerance."""
    c0 = hp.C0Space(hp.Space(box("quad", 2), 3))
    form = hp.WeakForm(c0.space, lambda u, du: (1e-8 * ((u + 300) ** 4 - 300.01**4), 1e-3 * du))
    u = hp.march(form, 0.02, (0, 60), c0, method=method, dt=1.0, bar=False).u
    assert u(0.5, 0.5) == pytest.approx(0.01, rel=1e-6)
