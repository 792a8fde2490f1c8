"""Solutions scale with the data: lengths by 10^k, lam by 10^-2k, right-hand sides by 10^m, in both types."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from tests.assembly.meshes import ours

MESHES = {
    "hex, prism, pyramid, tet": lambda: box(("hex", "prism", "pyramid", "tet"), (4, 1, 1)),
    "curved quad, tri": lambda: ours("curved_mixed_2d.msh"),
}
CLOSE = {np.float64: 1e-10, np.float32: 1e-4}


def wave(*x):
    """Without a mean on the unit cube and square; 1 at the origin."""
    return np.cos(np.pi * x[0]) * np.cos(np.pi * x[1])


def solved(mesh, dtype, length, size, lam, conditions, f=wave):
    """The solution at the points of the space over what it scales with."""
    space = hp.Space(mesh.transformed(lambda p: p * length), 2, dtype=dtype)
    u = hp.solve_helmholtz(space, lam / length**2, lambda *x: size * f(*(c / length for c in x)), **conditions)
    assert np.isfinite(u.info.residual)
    values = np.concatenate([pair.read().astype(float).ravel() for pair in hp.BwdTrans(space)(u).data])
    return values / size / length**2, u


CASES = {"dirichlet": (1.0, {"dirichlet": 0.0}), "lam = 1": (1.0, {}), "lam = 0": (0.0, {}), "lam = 1e-9": (1e-9, {})}


@pytest.mark.filterwarnings("ignore::hpfem.HpfemWarning")  # the wave is no mean-free one on every mesh
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("mesh", MESHES)
def test_solutions_scale(mesh, dtype, case):
    mesh, (lam, conditions) = MESHES[mesh](), CASES[case]
    reference, _ = solved(mesh, np.float64, 1.0, 1.0, lam, conditions)
    for length, size in ((1e-6, 1.0), (1e-3, 1e20), (1e8, 1e-20), (1.0, 1e-30)):
        found, _ = solved(mesh, dtype, length, size, lam, conditions)
        # The mean of f is zero but for rounding, which a lam of 1e-9 divides.
        close = max(CLOSE[dtype], 1e-6 * (lam == 1e-9))
        assert np.abs(found - reference).max() < close * np.abs(reference).max(), (length, size)


@pytest.mark.parametrize(
    ("length", "lam", "size", "message"),
    [
        (
            1e-14,
            1e28,
            1.0,
            "element 1 .hex. is about 2e-15 wide.* leave the range of float32; take another unit of length, or float64",
        ),
        (1e20, 1e-40, 1.0, "element 1 .hex. is about 2e[+]19 wide.* leave the range of float32"),
        (1.0, 1e-50, 1.0, "coefficient 'lam' of Helmholtz is 1e-50, out of the range of float32"),
        (1.0, 1e50, 1.0, "coefficient 'lam' of Helmholtz is 1e[+]50, out of the range of float32"),
        (1.0, lambda *x: 1e-50, 1.0, "values, up to 1.0e-50, are out of the range of float32"),
        (1.0, lambda *x: 1e50, 1.0, "not finite at .* in float32"),
        (1.0, 1.0, 1e-45, "the solution, about 1e-4., is out of the range of float32"),
        (1.0, 1.0, 1e45, "the solution, about 1e[+]4., is out of the range of float32"),
    ],
)
def test_values_out_of_range_are_named(length, lam, size, message):
    mesh = box("hex", (2, 2, 2)).transformed(lambda p: p * length)
    with pytest.raises(hp.HpfemError, match=message):
        hp.solve_helmholtz(hp.Space(mesh, 2, dtype=np.float32), lam, size)


@pytest.mark.parametrize("f", [1e-23, 1e-21, 1e-10, 1.0, 1e20, 1e30])
def test_right_hand_sides_of_all_sizes_in_single_precision(f):
    space = hp.Space(ours("cube_mixed.msh"), 3, dtype=np.float32)
    exact = hp.solve_helmholtz(hp.Space(space.mesh, 3), 1.0, 1.0, dirichlet=0.0)
    for given in (f, lambda *x: f, space.evaluate(lambda *x: f)):
        u = hp.solve_helmholtz(space, 1.0, given, dirichlet=0.0, preconditioner="multigrid")
        assert np.abs(u.vector / np.float64(f) - exact.vector).max() < 1e-4 * np.abs(exact.vector).max()
        assert space.norm(u) == pytest.approx(f * exact.space.norm(exact), rel=1e-4)
        assert hp.l2_error(u, lambda *x: 0.0 * x[0], relative=False) == pytest.approx(space.norm(u), rel=1e-5)


def test_vectors_of_all_sizes(rng):
    matrix = rng.standard_normal((60, 60))
    matrix = matrix @ matrix.T + 60 * np.eye(60)
    b = rng.standard_normal(60)
    for dtype, sizes in ((np.float64, (1e-300, 1e-200, 1e200, 1e300)), (np.float32, (1e-35, 1e-23, 1e23, 1e35))):
        own, unit = matrix.astype(dtype), b.astype(dtype)
        x, _ = hp.cg(lambda v, own=own: own @ v, unit)
        assert np.abs(x - np.linalg.solve(matrix, b)).max() < 1e4 * np.finfo(dtype).eps * np.abs(x).max()
        for size in sizes:
            power = dtype(2.0 ** round(np.log2(size)))
            found, info = hp.cg(lambda v, own=own: own @ v, unit * power, start=x * power * dtype(0.5))
            assert np.abs(found / power - x).max() < 1e4 * np.finfo(dtype).eps * np.abs(x).max()
            assert found.dtype == dtype and info.residual <= 1.2e-6
            # Powers of two are exact.
            assert np.array_equal(hp.cg(lambda v, own=own: own @ v, unit * power)[0], x * power)
    with pytest.raises(hp.SolverError, match="out of the range of float32"):
        hp.cg(lambda v: v * np.float32(1e-20), np.full(4, 1e30, np.float32))
    with pytest.raises(hp.SolverError, match="out of the range of float64; use other units for the data or the mesh$"):
        hp.cg(lambda v: v * 1e-200, np.full(4, 1e200))


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e200])
def test_projections_of_all_sizes(size):
    space = hp.Space(ours("curved_mixed_2d.msh"), 3)
    unit, found = space.project(lambda x, y: np.exp(x + y)), space.project(lambda x, y: size * np.exp(x + y))
    for a, b in zip(unit.arrays, found.arrays, strict=True):
        assert np.abs(b / size - a).max() < 1e-12 * np.abs(a).max()
    assert space.norm(found) == pytest.approx(size * space.norm(unit), rel=1e-12)
    c0 = hp.C0Space(space)
    unit, found = (hp.l2_project(c0, lambda x, y, s=s: s * np.exp(x + y)) for s in (1.0, size))
    # Iterations that end at 1e-12, and may end one earlier for the one than for the other.
    assert np.abs(found / size - unit).max() < 1e-8 * np.abs(unit).max()
    # Boundary values of order 1 are taken from the domain, whatever their size.
    low = hp.Space(space.mesh, 1)
    unit, found = (
        hp.solve_helmholtz(low, 1.0, 0.0, dirichlet=lambda x, y, s=s: s * np.exp(x + y)).vector for s in (1.0, size)
    )
    assert np.abs(found / size - unit).max() < 1e-10 * np.abs(unit).max()


@pytest.mark.parametrize("length", [1e-9, 1.0, 1e9])
def test_time_steps_scale_with_the_lengths(length):
    """The largest stable step, in single precision."""
    mesh = box("tri", (3, 3)).transformed(lambda p: p * length)
    steps = []
    for own, end in ((mesh, 1e-3 * length), (box("tri", (3, 3)), 1e-3)):
        form = hp.Laplacian(hp.Space(own, 3, dtype=np.float32))
        run = hp.march(form, 0.0, (0, end), hp.C0Space(form.space), method="leapfrog", courant=1e-3, bar=False)
        steps.append(run.dt)
    assert steps[0] / length == pytest.approx(steps[1], rel=1e-3)
