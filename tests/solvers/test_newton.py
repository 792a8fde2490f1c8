"""Newton's method: orders of convergence, the line search, data, stages, and what is kept when it stops."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq

import hpfem as hp
from hpfem.mesh import box
from hpfem.solvers.multigrid import cycle
from hpfem.solvers.newton import LOAD, Equation
from tests.assembly.meshes import ours
from tests.support.test_reporting import on_terminal

SIDES = {"xmin": 0.0, "xmax": 0.0}


def bratu(u, du, lam):
    return -lam * np.exp(u), du


def of_bratu(shape="hex", order=2, lam=2.0, cells=2, **options):
    """The residual, C0Space and conditions of Bratu's problem; with u = 0 at two sides it depends on x alone."""
    mesh = ours(shape) if shape.endswith("msh") else box(shape, (cells,) * (2 if shape in ("quad", "tri") else 3))
    space = hp.Space(mesh, order, **options)
    c0 = hp.C0Space(space)
    return hp.WeakForm(space, bratu, fields={"lam": lam}), c0, hp.BoundaryConditions(c0, SIDES)


def exact(x, *_):
    t = 0.0
    for _ in range(100):
        t = 2 * np.cosh(t / 4)
    return 2 * np.log(np.cosh(t / 4) / np.cosh(t * (x - 0.5) / 2))


def on_quads(function, order=2, start=None, components=1, fields=None, cells=2):
    """A residual, and the C0Space of a square."""
    space = hp.Space(box("quad", cells), order)
    return hp.WeakForm(space, function, fields=fields, components=components), hp.C0Space(space)


class Wrong:
    """A residual whose linearisation is not its derivative."""

    def __init__(self, form, factor):
        self.form, self.factor = form, factor
        self.space, self.name, self.device, self.components = form.space, form.name, form.device, 1

    def __call__(self, u):
        return self.form(u)

    def linearised(self, u):
        J = self.factor * self.form.linearised(u)
        J.at = lambda given: self.linearised(given) if isinstance(given, hp.Field) else type(J).at(J, given)
        return J


@pytest.mark.parametrize("shape", ["tri", "cube_mixed.msh"])
def test_convergence_is_quadratic(shape):
    form, c0, bc = of_bratu(shape, 2, 3.0)
    _, info = hp.newton(form, c0, bc, forcing=1e-12, tol=1e-13)
    logs = [np.log(r) for r in info.residuals if 1e-11 < r < 0.1]
    assert len(logs) >= 2 and all(1.7 < after / before < 2.6 for before, after in pairwise(logs)), info
    assert all(step.tolerance == 1e-12 and step.length == 1 for step in info.steps)


@pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid", None, lambda r: 1.0 * r])
def test_steps_are_as_exact_as_is_of_use(preconditioner):
    form, c0, bc = of_bratu("cube_mixed.msh", 3)
    u, info = hp.newton(form, c0, bc, preconditioner=preconditioner)
    assert len(info.steps) == 4 and info.residual < 1e-10 and info.method == "cg"
    assert info.steps[0].tolerance == 0.1 and all(1e-6 < step.tolerance <= 0.1 for step in info.steps)
    assert hp.l2_error(u, exact) < 1e-4
    if info.preconditioner == "multigrid":  # of its elliptic part: the reaction is negative
        assert info.iterations < 20 and [step.multigrid for step in info.steps] == ["made", *["kept"] * 3]
    assert sum(step.iterations for step in info.steps) == info.iterations
    # From the solution there is nothing to do.
    again, info = hp.newton(form, c0, bc, u)
    assert not info.steps and np.array_equal(again.vector, u.vector)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", ["hex", "prism", "pyramid", "tet", "quad", "tri"])
def test_all_shapes_and_backends(shape, dtype, backend):
    form, c0, bc = of_bratu(shape, 3, cells=1, dtype=dtype, backend=backend)
    u, info = hp.newton(form, c0, bc, preconditioner="multigrid")
    assert info.residual < (1e-5 if dtype == "float32" else 1e-10) and len(info.steps) <= 5
    assert hp.l2_error(u, exact) < 2e-2 and u.dtype == dtype


# u = x is the solution of -laplace(u) + u^3 = x^3, du/dx = 1.
CONDITIONS = {
    "dirichlet": {"dirichlet": {"xmin": 0.0, "xmax": 1.0}},
    "neumann": {"dirichlet": {"xmin": 0.0}, "neumann": {"xmax": 1.0}},
    "robin": {"neumann": {"xmin": -1.0}, "robin": {"xmax": (2.0, 3.0)}},
}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", CONDITIONS)
def test_boundary_data(name, whole):
    form, c0 = on_quads(lambda u, du: (u**3, du))
    bc = hp.BoundaryConditions(c0, **CONDITIONS[name])
    given = (hp.GlobalOperator(form, c0, bc),) if whole else (form, c0, bc)
    u, info = hp.newton(*given, f=lambda x, y: x**3)
    assert np.abs(u.vector - c0.project(lambda x, y: x)).max() < 1e-9, info
    half, _ = hp.newton(*given, f=lambda x, y: x**3, loads=[0.5, 1.0])
    assert np.abs(half.vector - u.vector).max() < 1e-9


def test_starts_are_those_of_problems():
    form, c0, bc = of_bratu("quad")
    half, space = lambda x, y: 0.5 + 0 * x, c0.space
    for start in (0.5, half, space.evaluate(half), hp.by_region(space, {}, 0.5)):
        np.testing.assert_allclose(Equation(form, c0, bc, None).vector(start), 0.5 * c0.one, atol=1e-13)


def test_forms_on_boundaries_and_parameters_of_sums():
    space = hp.Space(box("quad", 2), 2)
    c0 = hp.C0Space(space)
    wall = hp.WeakForm(space, lambda u, s: s * u**4, trial="value", test="value", fields={"s": 0.5}, on="xmax")
    bc = hp.BoundaryConditions(c0, {"xmin": 1.0})
    u, _ = hp.newton(hp.Laplacian(space) + 2.0 * wall, c0, bc, parameters={"s": [0.5, 1.0]})
    # Linear between the sides: u = 1 - a x with a = 2 (1 - a)^4.
    a = brentq(lambda a: a - 2 * (1 - a) ** 4, 0.0, 1.0, xtol=1e-15)
    assert wall.parameters["s"] == 1.0 and np.abs(u.vector - c0.project(lambda x, y: 1 - a * x)).max() < 1e-9
    same, _ = hp.newton(hp.GlobalOperator(hp.Laplacian(space) + 2.0 * wall, c0, bc))
    assert np.abs(same.vector - u.vector).max() < 1e-9


def test_components_and_what_is_not_symmetric():
    def flow(u, du):
        value = [u[0] * du[0][0] + u[1] * du[0][1], u[0] * du[1][0] + u[1] * du[1][1]]
        return value, [[0.1 * d for d in row] for row in (du[0], du[1])]

    form, c0 = on_quads(flow, components=2)

    def solution(x, y):
        return x + 1, 2 - y

    bc = hp.BoundaryConditions(c0, solution, components=2)
    u, info = hp.newton(form, c0, bc, f=lambda x, y: (x + 1, y - 2))
    assert info.method == "gmres" and np.abs(u.vector - c0.project(solution)).max() < 1e-8
    _, info = hp.newton(form, c0, bc, f=lambda x, y: (x + 1, y - 2), preconditioner="multigrid")
    assert info.preconditioner == "multigrid" and info.method == "gmres"


def p_energy(space, p):
    return hp.Energy(space, lambda du, p: (1e-4 + du.dot(du)) ** (p / 2) / p, {"p": p})


def test_multigrid_is_refreshed_where_it_pays():
    space = hp.Space(ours("cube_mixed.msh"), 3)
    c0 = hp.C0Space(space)
    bc, energy = hp.BoundaryConditions(c0, SIDES), p_energy(space, 4.0)
    _, info = hp.newton(energy, c0, bc, f=1.0, preconditioner="multigrid")
    kinds = [step.multigrid for step in info.steps]
    assert kinds[0] == "made" and {"kept", "refreshed"} == set(kinds[1:]) and kinds.count("refreshed") <= 3
    assert len(info.steps) <= 10 and info.steps[0].length < 0.01
    before, refreshed = next(pair for pair in pairwise(info.steps) if pair[1].multigrid == "refreshed")
    digits = [-np.log10(step.tolerance) for step in (refreshed, before)]
    assert refreshed.iterations / digits[0] < before.iterations / digits[1]
    _, info = hp.newton(energy, c0, bc, f=1.0, parameters={"p": [2, 6]}, preconditioner="multigrid")
    assert energy.parameters["p"] == 6 and max(step.iterations for step in info.steps) <= 25


def rubber(du):
    F = [[du[i][j] + float(i == j) for j in range(3)] for i in range(3)]
    minors = [F[1][j - 2] * F[2][j - 1] - F[1][j - 1] * F[2][j - 2] for j in range(3)]
    log = np.log(sum(F[0][j] * minors[j] for j in range(3)))
    return 0.5 * sum(f * f for row in F for f in row) - log + 0.75 * log**2


@pytest.mark.parametrize(("order", "cells"), [pytest.param(2, (8, 4, 4), marks=pytest.mark.long), (4, (4, 2, 2))])
def test_a_beam_sinks_by_a_fifth(order, cells):
    """Rigid motions are in the near-null space, and the first step is not cut too short."""
    space = hp.Space(box("hex", cells, upper=(4.0, 1.0, 1.0)), order)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, {"xmin": (0.0, 0.0, 0.0)}, components=3)
    energy = hp.Energy(space, rubber, components=3)
    u, info = hp.newton(energy, c0, bc, f=lambda x, y, z: [0 * x, 0 * x, 0 * x - 5e-3], preconditioner="multigrid")
    assert len(info.steps) <= 8 and max(step.iterations for step in info.steps) <= 18, info
    assert "refreshed" in {step.multigrid for step in info.steps} and -0.76 < u(4.0, 0.5, 0.5)[2] < -0.74


def bar_turned(order):
    """The energy of a bar, C0Space and conditions that turn its end by a radian."""
    c0 = hp.C0Space(hp.Space(box(("hex", "prism"), (4, 2, 2), upper=(4.0, 1.0, 1.0)), order))
    ends = {"xmin": 0.0, "xmax": lambda x, y, z: [0 * x, -0.46 * y - 0.84 * z + 0.65, 0.84 * y - 0.46 * z - 0.19]}
    energy = hp.Energy(c0.space, rubber, components=3)
    return energy, c0, hp.BoundaryConditions(c0, ends, components=3)


def test_multigrid_is_kept_where_the_linearisation_is_indefinite():
    """At the second step; the fewest unknowns are solved directly, by an inverse that is positive definite."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, info = hp.newton(*bar_turned(1), preconditioner="multigrid")
    assert info.steps[0].length == 0.5 and info.preconditioner == "multigrid"
    assert max(step.iterations for step in info.steps) <= 8, info


def test_multigrid_is_made_anew_where_it_was_refreshed_badly(monkeypatch):
    """In place of which the diagonal would serve, for all steps."""
    estimate = cycle.largest_eigenvalue

    def smaller(*given):
        found = estimate(*given)
        return found if given[-1] is None else found._replace(value=0.5 * found.value)

    monkeypatch.setattr(cycle, "largest_eigenvalue", smaller)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, info = hp.newton(*bar_turned(2), preconditioner="multigrid")
    assert [step.multigrid for step in info.steps].count("made") >= 1 and info.preconditioner == "multigrid"


def neo_hooke(du):
    F = [[du[i][j] + (i == j) for j in range(2)] for i in range(2)]
    volume = F[0][0] * F[1][1] - F[0][1] * F[1][0]
    return 0.5 * sum(f * f for row in F for f in row) - np.log(volume) + 0.5 * np.log(volume) ** 2


def test_large_deformations():
    """The residual's norm rises at first. Stretching to twice the length: the Dirichlet values go inside linearly."""
    space = hp.Space(box("quad", (4, 1), upper=(4.0, 1.0)), 3)
    c0 = hp.C0Space(space)
    energy = hp.Energy(space, neo_hooke, components=2)
    _, info = hp.newton(energy, c0, hp.BoundaryConditions(c0, {"xmin": 0.0}, components=2), f=(0.0, -0.003))
    assert max(info.residuals) > 1 and len(info.steps) <= 8
    ends = {"xmin": 0.0, "xmax": (4.0, 0.0)}
    u, info = hp.newton(energy, c0, hp.BoundaryConditions(c0, ends, components=2))
    assert len(info.steps) <= 8 and energy(u) > 1


def logarithm(u, du):
    return np.log(u), du


def test_a_step_is_shortened_where_the_function_is_not_finite():
    form, c0 = on_quads(logarithm)
    u, info = hp.newton(form, c0, start=1.0, f=-3.0)
    assert info.steps[0].length < 1 and np.abs(hp.BwdTrans(c0.space)(u).arrays[0] - np.exp(-3)).max() < 1e-9


def fails(match, *given, **options):
    """The error, with a finite iterate and a history."""
    with pytest.raises(hp.NewtonError, match=match) as caught:
        hp.newton(*given, **options)
    error = caught.value
    assert isinstance(error, hp.SolverError) and np.isfinite(error.u.vector).all()
    assert len(error.info.residuals) <= 1 + len(error.info.steps) and error.u.info.residuals == error.info.residuals
    return error


def test_errors_name_the_step_and_keep_the_iterate():
    form, c0, bc = of_bratu("tri", lam=4.0)
    error = fails(r"step \d+: (the linearisation is not positive definite|the residual)", form, c0, bc)
    assert len(error.info.steps) >= 2 and f"{error.info.residuals[1]:.1e}" in str(error)
    again = fails("after 1 steps", form, c0, bc, max_steps=1)
    assert hp.newton(form, c0, bc, again.u, max_steps=9, tol=0.5)[1].residuals[0] == pytest.approx(
        again.info.residual, rel=1e-12
    )
    logs, of_logs = on_quads(logarithm)
    fails("step 0: the residual of the first guess is not finite", logs, of_logs)
    # The square root at zero; it continues no boundary values, either.
    roots, of_roots = on_quads(lambda u, du: (np.sqrt(np.abs(u)), du))
    fails("step 1: the linearisation is not finite", roots, of_roots, f=1.0)
    fails("step 1: the linearisation is not finite", roots, of_roots, hp.BoundaryConditions(of_roots, {"xmin": 1.0}))
    form.parameters["lam"] = 2.0
    fails("step 1: the residual does not fall", Wrong(form, -1.0), c0, bc, definite=False)
    fails("step 1: the linear system was not solved", form, c0, bc, max_iterations=1)


def test_the_upper_solution_takes_definite_false():
    form, c0, bc = of_bratu("tri", 3)

    def bump(x, y):
        return 11 * x * (1 - x)

    fails("not positive definite; .* definite=False", form, c0, bc, bump)
    u, info = hp.newton(form, c0, bc, bump, definite=False)
    assert info.method == "minres" and u.vector.max() > 2
    lower, _ = hp.newton(form, c0, bc)
    assert lower.vector.max() < 1


def test_stages_are_halved_and_the_last_solution_is_kept():
    form, c0, bc = of_bratu("tri", 2, 1.0)
    error = fails(r"step \d+, lam 3\.", form, c0, bc, parameters={"lam": [2.0, 3.4, 5.0]})
    lam = form.parameters["lam"]
    assert 3.4 < lam < 3.6 and {2.0, 3.4, 4.2} < {step.stage["lam"] for step in error.info.steps}
    assert not hp.newton(form, c0, bc, error.u)[1].steps
    u, info = hp.newton(form, c0, bc, loads=[1.0], parameters={"lam": [2.0]})
    assert info.steps[0].stage == {LOAD: 1.0, "lam": 2.0} and "lam 2" in str(info) and u.info is not None


def test_an_interrupt_keeps_the_iterate():
    form, c0, bc = of_bratu("tri")
    last = fails("after 2 steps", form, c0, bc, max_steps=2)

    class Stopped(Wrong):
        """Interrupted in the middle of the third step."""

        steps = 0

        def linearised(self, u):
            self.steps += 1
            if self.steps == 3:
                raise KeyboardInterrupt
            return super().linearised(u)

    with pytest.raises(KeyboardInterrupt) as caught:
        hp.newton(Stopped(form, 1.0), c0, bc)
    assert np.array_equal(caught.value.u.vector, last.u.vector) and len(caught.value.info.steps) == 2
    # While boundary values are continued, the first guess.
    Stopped.steps = 2
    with pytest.raises(KeyboardInterrupt) as caught:
        hp.newton(Stopped(form, 1.0), c0, hp.BoundaryConditions(c0, {"xmin": 1.0}), last.u)
    assert np.array_equal(caught.value.u.vector, last.u.vector)


def test_rounding_ends_it():
    form, c0, bc = of_bratu("tri", dtype="float32")
    with pytest.warns(hp.HpfemWarning, match="rounding to float32 allows no less"):
        _, info = hp.newton(form, c0, bc, tol=1e-9)
    assert info.residual < 1e-5


def test_progress_tells_the_residual(monkeypatch):
    terminal, (form, c0, bc) = on_terminal(monkeypatch), of_bratu("tri")
    hp.newton(form, c0, bc, name="bratu", bar=False)
    assert not terminal.text
    hp.newton(form, c0, bc, name="bratu")
    assert "bratu: residual" in terminal.text


def test_the_history_is_a_table():
    form, c0, bc = of_bratu("tri", 3)
    _, info = hp.newton(form, c0, bc, preconditioner="multigrid")
    lines = repr(info).splitlines()
    assert lines[0].startswith(f"{c0.size} unknowns, newton by cg/multigrid, residual ")
    assert len(lines) == len(info.steps) + 3 and lines[2].split() == ["1", *lines[2].split()[1:5], "made"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"start": np.zeros(3)}, "start is"),
        ({"start": np.nan}, "start"),
        ({"parameters": {"mu": [1.0]}}, "no parameter 'mu'; it has: lam"),
        ({"parameters": {"lam": [1.0, 2.0]}, "loads": [1.0]}, "as many"),
        ({"loads": []}, "as many"),
        ({"loads": [0.5, np.nan]}, "numbers of 'load factor' are finite"),
        ({"forcing": 1.5}, "forcing"),
        ({"symmetric": False, "definite": True}, "definite=True means symmetric"),
        ({"preconditioner": "ilu"}, "preconditioner"),
        ({"bc": 3}, "bc"),
        ({"c0": None}, "C0Space"),
        ({"residual": np.sin}, "linearised"),
    ],
)
def test_what_is_refused(options, match):
    form, c0, bc = of_bratu("tri")
    with pytest.raises(hp.ArgumentError, match=match):
        hp.newton(**{"residual": form, "c0": c0, "bc": bc, **options})
