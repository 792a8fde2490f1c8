"""The acoustic wave equation: exact modes, energy, diagonal mass, mixed shapes, sources."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from hpfem.solvers import AcousticWave, point_source, ricker
from tests.assembly.meshes import ours

SIDES_2D = ("xmin", "xmax", "ymin", "ymax")


def mode(x, y):
    return np.sin(np.pi * x) * np.sin(2 * np.pi * y)


def spectral(order=6, counts=(3, 3)):
    return hp.C0Space(hp.Space(box("quad", counts), order, "lagrange", "collocated"))


def test_the_mass_is_diagonal_on_gauss_lobatto_points():
    assert AcousticWave(spectral(), dt=1e-3).diagonal_mass
    assert not AcousticWave(hp.C0Space(hp.Space(box("quad", (2, 2)), 3, "lagrange")), dt=1e-3).diagonal_mass
    assert not AcousticWave(hp.C0Space(hp.Space(box("tri", (2, 2)), 3)), dt=1e-3).diagonal_mass


@pytest.mark.parametrize("speed_squared", [1.0, 4.0])
def test_a_standing_wave_to_second_order_in_time(speed_squared):
    c0 = spectral()
    frequency = np.pi * np.sqrt(5 * speed_squared)
    errors = []
    for steps in (int(100 * speed_squared**0.5), int(200 * speed_squared**0.5)):
        wave = AcousticWave(c0, speed_squared, SIDES_2D, dt=0.4 / steps)
        wave.start(c0.project(mode))
        for _ in range(steps):
            wave.step()
        assert wave.time == pytest.approx(0.4)
        exact = np.cos(frequency * 0.4)
        errors.append(wave.c0.space.norm(wave.pressure - exact * c0.scatter(c0.project(mode))))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1), errors
    assert errors[1] < 1e-3


def test_energy_is_conserved_to_the_scheme_s_order():
    c0 = spectral(5)
    variation = []
    for steps in (150, 300):
        wave = AcousticWave(c0, 1.0, SIDES_2D, dt=0.6 / steps)
        wave.start(c0.project(lambda x, y: np.exp(-50 * ((x - 0.4) ** 2 + (y - 0.5) ** 2))))
        wave.step()
        energies, exact = [], []
        for _ in range(steps):
            wave.step()
            energies.append(wave.energy())
            exact.append(wave.invariant())
        variation.append(np.ptp(energies) / energies[0])
        assert np.ptp(exact) < 1e-11 * exact[0]
    assert variation[0] / variation[1] == pytest.approx(4, rel=0.25), variation


def test_the_chosen_step_is_stable_and_near_the_limit():
    c0 = spectral(4)
    wave = AcousticWave(c0, 1.0, SIDES_2D)
    wave.start(np.random.default_rng(0).standard_normal(c0.size))
    first = wave.invariant()
    for _ in range(400):
        wave.step()
    assert wave.invariant() == pytest.approx(first, rel=1e-8)
    unstable = AcousticWave(c0, 1.0, SIDES_2D, dt=1.4 * wave.dt)
    unstable.start(np.random.default_rng(0).standard_normal(c0.size))
    with pytest.raises(hp.SolverError, match="without bound"), np.errstate(over="ignore", invalid="ignore"):
        for _ in range(5000):
            unstable.step()


def test_mixed_shapes_invert_the_mass_by_cg():
    c0 = hp.C0Space(hp.Space(box(("hex", "prism", "pyramid", "tet"), (4, 1, 1)), 4))
    wave = AcousticWave(c0, 1.0, dt=2e-3)
    wave.start(c0.project(lambda x, y, z: np.cos(np.pi * x) * np.cos(np.pi * y)))
    first = None
    for _ in range(20):
        wave.step()
        first = first or wave.invariant()
    assert wave.mass_iterations > 0 and not wave.diagonal_mass
    assert wave.invariant() == pytest.approx(first, rel=1e-10)
    exact = np.cos(np.pi * np.sqrt(2) * wave.time)
    assert wave.pressure.at([[0.0, 0.0, 0.0]])[0] == pytest.approx(exact, abs=2e-3)


def cases(backend):
    """Waves with a mass that is diagonal and one that is not, some of p = 0, in both types."""
    for dtype in ("float64", "float32"):
        for basis, quadrature, shapes in (("lagrange", "collocated", "quad"), ("modified", None, ("quad", "tri"))):
            space = hp.Space(box(shapes, (3, 2)), 4, basis, quadrature, dtype=dtype, backend=backend)
            yield AcousticWave(hp.C0Space(space), 2.0, ("xmin",), dt=2e-3)


@pytest.mark.filterwarnings("ignore:mass")  # what rounding allows in float32
def test_a_step_is_that_of_the_scheme(backend, rng):
    """One step beside the formula, by NumPy: with a load, from a pressure and a velocity."""
    for wave in cases(backend):
        free, host = wave.bc.free, wave.vectors.to_host
        pressure, velocity, load = (rng.standard_normal(wave.c0.size) for _ in range(3))
        wave.start(pressure, velocity)
        now, before = host(wave._now).astype(float), host(wave._before).astype(float)
        wave.step(wave.vectors.from_host(load, wave.c0.space.dtype))
        force = wave.vectors.from_host(free * (load - wave.K.apply(now)), wave.c0.space.dtype)
        ahead = 2 * now - before + wave.dt**2 * free * host(wave.solve_mass(force))
        eps = np.finfo(wave.c0.space.dtype).eps
        assert np.abs(wave.vector - ahead).max() < 50 * eps * np.abs(ahead).max()
        assert wave._now.dtype == wave._before.dtype == wave.c0.space.dtype
        assert not wave.vector[~free].any()


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


def test_a_bad_step_is_refused():
    with pytest.raises(hp.ArgumentError, match="time step"):
        AcousticWave(spectral(2), dt=0.0)
