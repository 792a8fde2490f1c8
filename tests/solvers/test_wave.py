"""The acoustic wave equation: exact modes, energy, diagonal mass, mixed shapes, sources."""

from importlib import import_module

import numpy as np
import pytest

import hpfem as hp
from hpfem.memory import count_transfers
from hpfem.mesh import box
from hpfem.solvers import point_source, ricker
from tests.assembly.meshes import ours

SIDES_2D = ("xmin", "xmax", "ymin", "ymax")


def mode(x, y):
    return np.sin(np.pi * x) * np.sin(2 * np.pi * y)


def spectral(order=6, counts=(3, 3)):
    return hp.C0Space(hp.Space(box("quad", counts), order, "lagrange", "collocated"))


def waves(c0, start, end, speed_squared=1.0, **options):
    """The run from rest, and what leapfrog conserves after each step: (p_t, p_t)/2 + (c^2 grad p, grad p_before)/2."""
    stiffness, bc = hp.Helmholtz(c0.space, 0.0, speed_squared), hp.BoundaryConditions(c0, dict.fromkeys(SIDES_2D, 0.0))
    K, M = hp.GlobalOperator(stiffness, c0, bc), hp.GlobalOperator(hp.Mass(c0.space), c0, bc)
    past, kept = [], []

    def watch(t, p):
        if past:
            before, last = past.pop()
            rate = (p - last) / (t - before)
            kept.append((rate @ M.apply(rate) + p @ K.apply(last)) / 2)
        past.append((t, p))

    return hp.march(stiffness, start, (0, end), c0, bc, method="leapfrog", watch=watch, bar=False, **options), kept


@pytest.mark.parametrize("speed_squared", [1.0, 4.0])
def test_a_standing_wave_to_second_order_in_time(speed_squared):
    c0 = spectral()
    exact = np.cos(np.pi * np.sqrt(5 * speed_squared) * 0.4) * c0.scatter(c0.project(mode))
    errors = []
    for steps in (int(100 * speed_squared**0.5), int(200 * speed_squared**0.5)):
        run, _ = waves(c0, mode, 0.4, speed_squared, dt=0.4 / steps)
        assert run.steps == steps and run.t == 0.4
        errors.append(c0.space.norm(run.u - exact))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1), errors
    assert errors[1] < 1e-3


def test_the_chosen_step_is_stable_and_near_the_limit():
    c0 = spectral(4)
    start = np.random.default_rng(0).standard_normal(c0.size)
    run, kept = waves(c0, start, 4.0)
    assert run.steps > 100 and np.ptp(kept) < 1e-8 * kept[0]
    times = []
    with pytest.raises(hp.SolverError, match="not finite") as caught, np.errstate(over="ignore", invalid="ignore"):
        hp.march(
            hp.Laplacian(c0.space),
            1e200 * start,
            (0, 5000 * 1.4 * run.dt),
            c0,
            hp.BoundaryConditions(c0, dict.fromkeys(SIDES_2D, 0.0)),
            method="leapfrog",
            dt=1.4 * run.dt,
            watch=lambda t, p: times.append(t),
            bar=False,
        )
    # The last good step is found, though the host looks at some steps only; none is watched twice.
    assert np.isfinite(caught.value.march.u.vector).all() and np.all(np.diff(times) > 0)
    assert caught.value.march.steps > 20 and f"step {caught.value.march.steps + 1}:" in str(caught.value)


def test_the_mass_is_inverted_where_it_is_not_diagonal(monkeypatch):
    module, solved = import_module("hpfem.solvers.march"), []
    monkeypatch.setattr(module, "cg", lambda *args, **known: solved.append(0) or hp.cg(*args, **known))
    c0 = hp.C0Space(hp.Space(box(("hex", "prism", "pyramid", "tet"), (4, 1, 1)), 2))
    start = lambda x, y, z: np.cos(np.pi * x) * np.cos(np.pi * y)  # noqa: E731
    run = hp.march(hp.Laplacian(c0.space), start, (0, 0.04), c0, method="leapfrog", dt=1e-2, bar=False)
    assert len(solved) == 5  # one of them to choose the preconditioner
    assert run.u.at([[0.0, 0.0, 0.0]])[0] == pytest.approx(np.cos(np.pi * np.sqrt(2) * 0.04), abs=1e-2)
    c0 = spectral(2)
    for method in ("leapfrog", "ssp3", "low3"):
        hp.march(hp.Laplacian(c0.space), 1.0, (0, 1e-4), c0, method=method, dt=1e-4, bar=False)
    assert len(solved) == 5  # one of them to choose the preconditioner


@pytest.mark.filterwarnings("ignore:mass")  # what rounding allows in float32
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("basis", "quadrature", "shapes"), [("lagrange", "collocated", "quad"), ("modified", None, ("quad", "tri"))]
)
def test_steps_are_those_of_the_scheme(backend, dtype, basis, quadrature, shapes, rng):
    """Two steps beside the formula, by dense matrices: with a load, boundary data, and a velocity."""
    c0 = hp.C0Space(hp.Space(box(shapes, (2, 1)), 3, basis, quadrature, dtype=dtype, backend=backend))
    form, bc = hp.Helmholtz(c0.space, 2.0, 0.5), hp.BoundaryConditions(c0, {"xmin": 0.0}, robin={"xmax": (1.0, 2.0)})
    p, rate, load = (rng.standard_normal(c0.size).astype(dtype) for _ in range(3))
    p[~bc.free] = rate[~bc.free] = 0
    plain = hp.C0Space(hp.Space(c0.space.mesh, 3, basis, quadrature))
    known = hp.BoundaryConditions(plain, {"xmin": 0.0}, robin={"xmax": (1.0, 2.0)})
    K = hp.GlobalOperator(hp.Helmholtz(plain.space, 2.0, 0.5), plain, known).assemble().toarray()
    M = hp.GlobalOperator(hp.Mass(plain.space), plain, hp.BoundaryConditions(plain, {"xmin": 0.0})).assemble().toarray()
    h, states = 1e-3, [p]
    for t in (0.0, h):
        bend = np.linalg.solve(M, bc.free * (bc.load + np.cos(t) * load - K @ states[-1]))
        states.append(p + h * rate + h**2 / 2 * bend if t == 0 else 2 * states[-1] - states[-2] + h**2 * bend)
    run = hp.march(
        form, p, (0, 2 * h), c0, bc, method="leapfrog", dt=h, velocity=rate, load=lambda t: np.cos(t) * load, bar=False
    )
    assert np.abs(run.u.vector - states[-1]).max() < 100 * np.finfo(dtype).eps * np.abs(states[-1]).max()
    assert run.u.vector.dtype == dtype and not run.u.vector[~bc.free].any()


def test_point_sources_evaluate(rng):
    c0 = hp.C0Space(hp.Space(ours("curved_mixed.msh"), 3))
    vector = rng.standard_normal(c0.size)
    points = rng.uniform(0.2, 0.8, (5, 3))
    found = [point_source(c0, point) @ vector for point in points]
    assert np.allclose(found, c0.scatter(vector).at(points), rtol=0, atol=1e-12)
    with pytest.raises(hp.ArgumentError, match="in no cell"):
        point_source(c0, [9, 9, 9])


def test_ricker():
    wavelet = ricker(5.0)
    t = np.linspace(0, 1, 4001)
    values = np.array([wavelet(s) for s in t])
    assert values.max() == pytest.approx(1, abs=1e-5) and t[values.argmax()] == pytest.approx(0.24, abs=1e-3)
    assert abs(values[0]) < 1e-4 and abs(np.trapezoid(values, t)) < 1e-5
    with pytest.raises(hp.ArgumentError, match="frequency"):
        ricker(0)


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["leapfrog", "low4", "ssp3"])
def test_nothing_leaves_the_device_in_a_step(method):
    c0 = hp.C0Space(hp.Space(box("hex", 2), 3, "lagrange", "collocated", backend="cuda"))
    form, moves = hp.Laplacian(c0.space), []
    source = c0.vectors_on(form.device).from_host(point_source(c0, [0.4] * 3))
    with count_transfers() as moved:
        hp.march(
            form,
            0.0,
            (0, 1e-2),
            c0,
            hp.BoundaryConditions(c0, {"xmin": 0.0}),
            method=method,
            dt=1e-3,
            load=lambda t: np.cos(t) * source,
            watch=lambda t, u: moves.append(moved.total),
            bar=False,
        )
    assert len(moves) == 10 and len(set(moves)) == 1
