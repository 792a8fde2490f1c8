"""Every mesh there is, the committed ones and those of other programs: volumes, exact integrals, convergence."""

from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from tests.operators.reference import fine_integrals, fine_points
from tests.samples import SKEW, Polynomial

COMMITTED = Path(__file__).resolve().parent.parent.parent / "meshes"
VOLUMES = {
    "ball": None,  # of geometry order 3: near 4 pi / 3
    "bench_mixed": 1,
    "channel": None,
    "cube_distorted": 1,
    "cube_mixed": 1,
    "curved_hex": None,
    "curved_mixed": None,
    "curved_mixed_2d": None,
    "curved_prism": None,
    "curved_pyramid": None,
    "curved_quad": None,
    "curved_tet": None,
    "curved_tri": None,
    "disc": None,
    "pipe_mixed": None,
    "square_mixed": 1,
}
FOREIGN = {
    "mfem/compass.msh": 2 * np.sqrt(2), "mfem/fichera-mixed-p2.vtk": None, "mfem/nested_cubes.msh": 1,
    "mfem/periodic-torus-sector.msh": None, "mfem/star-mixed-p2.vtk": None, "nektar/cube_all.msh": 1,
    "nektar/cube_hex.msh": 1, "nektar/cube_prism.msh": 1, "nektar/cube_tet_lin.msh": 1,
    "nektar/extract_square_circ.msh": None, "nektar/square_quad_lin.msh": 1,
}  # fmt: skip


@pytest.fixture(scope="module", params=[*VOLUMES, *FOREIGN])
def mesh(request):
    """A mesh file, read; those of other programs where they are."""
    name = request.param
    if name in VOLUMES:
        return hp.read_mesh(COMMITTED / f"{name}.msh")
    return hp.read_mesh(request.getfixturevalue("shared_meshes") / name)


def volume(mesh):
    """What the volume should be, or None."""
    known = {COMMITTED / f"{name}.msh": v for name, v in VOLUMES.items()}
    found = [v for path, v in known.items() if Path(mesh.name) == path]
    return found[0] if found else next(v for name, v in FOREIGN.items() if mesh.name.endswith(name))


def rotated(mesh):
    """A copy, rotated, sheared and stretched."""
    d = mesh.points.shape[1]
    return mesh.transformed(lambda x: x @ SKEW[:d, :d].T)


def polynomial_integrals(space, u, w, n):
    """Integrals of u w and |grad u|^2 of polynomials of x over the cells, by a Gauss rule."""
    mass = stiffness = 0.0
    for block in space.blocks:
        _, x, weights, _ = fine_points(block, n)
        mass += np.sum(weights * u(*x) * w(*x))
        stiffness += np.sum(weights * sum(u.derivative(i, *x) ** 2 for i in range(len(x))))
    return mass, stiffness


def centred(polynomial, mesh):
    """A polynomial of coordinates that run from -1 to 1 over a mesh, so that its size stays near 1."""
    low, high = mesh.points.min(axis=0), mesh.points.max(axis=0)

    class Centred:
        def __call__(self, *x):
            return polynomial(*self.inner(x))

        def derivative(self, i, *x):
            return polynomial.derivative(i, *self.inner(x)) * 2 / (high - low)[i]

        @staticmethod
        def inner(x):
            return [(2 * c - a - b) / (b - a) for c, a, b in zip(x, low, high, strict=True)]

    return Centred()


def test_all_committed_meshes_are_here():
    assert {path.stem for path in COMMITTED.glob("*.msh")} == set(VOLUMES)


def test_all_foreign_meshes_are_here(shared_meshes):
    files = [p.relative_to(shared_meshes).as_posix() for p in shared_meshes.rglob("*") if p.suffix in (".msh", ".vtk")]
    assert set(files) == set(FOREIGN)


def test_one_integrates_to_the_volume(mesh):
    # Det J of a curved cell has a degree of its own: points for that, not for the order of the space.
    space = hp.Space(mesh, max(group.order for group in mesh.cells) + 1, quadrature=3, backend="numpy")
    one = space.integrate(space.evaluate(lambda *x: 1.0))
    n = 3 if all(group.order == 1 for group in mesh.cells) else 8  # det J of a hex of order 5 has degree 14
    fine = sum(fine_points(block, n)[2].sum() for block in space.blocks)
    assert one == pytest.approx(fine, rel=1e-12)
    assert one == pytest.approx(mesh.summary().volume, rel=1e-12)
    if volume(mesh) is not None:
        assert one == pytest.approx(volume(mesh), rel=1e-10)
    assert sum(b.geometry.volumes().sum() for b in space.blocks) == pytest.approx(one, rel=1e-13)


def test_integrals_of_polynomials_on_a_rotated_copy(mesh, rng):
    check_integrals(rotated(mesh), rng)


def test_integrals_of_polynomials(mesh, rng):
    if mesh.n_cells < 100:  # the rotated copies of the large ones are enough
        check_integrals(mesh, rng)


def check_integrals(mesh, rng):
    """Compare mass and stiffness of random polynomials with integrals over the cells."""
    d, order = mesh.points.shape[1], 3 if mesh.n_cells < 1000 else 2
    straight = all(group.order == 1 for group in mesh.cells)
    affine = all(mesh.affine(group).all() for group in mesh.cells)
    space = hp.Space(mesh, order, quadrature=None if affine else 1 if straight else 5, backend="numpy")
    u, w = (centred(Polynomial(rng, d, order), mesh) for _ in range(2))
    uh, wh = space.project(u), space.project(w)
    mass, stiffness = uh.dot(hp.Mass(space)(wh)), uh.dot(hp.Laplacian(space)(uh))
    if affine or straight:
        exact = polynomial_integrals(space, u, w, order + 2)
        assert mass == pytest.approx(exact[0], rel=1e-11, abs=1e-12 * uh.norm() * wh.norm())
        assert stiffness == pytest.approx(exact[1], rel=1e-11)
    else:
        # Gauss' rule of n points is exact to degree 2 n - 1: that of u w det J is 14 on the hexes of order 3.
        n = 8 if max(group.order for group in mesh.cells) < 4 else 11
        assert mass == pytest.approx(fine_integrals(space, uh, wh, n)[0], rel=1e-10)
        assert stiffness == pytest.approx(fine_integrals(space, uh, uh, n + 1)[1], rel=1e-4)


def test_projection_error_falls_exponentially(mesh):
    size = np.ptp(mesh.points, axis=0).max()

    def smooth(*x):
        return np.sin(2.5 * x[0] / size + 0.4) * np.exp(x[1] / size) + np.cos(1.5 * x[-1] / size)

    errors = []
    for order in range(1, 7 if mesh.n_cells < 100 else 6 if mesh.n_cells < 1000 else 4):
        space = hp.Space(mesh, order, quadrature=1, backend="numpy")
        f = space.evaluate(smooth)
        errors.append((f - hp.BwdTrans(space)(space.project(f))).norm() / f.norm())
    ratios = np.array(errors[1:]) / errors[:-1]
    # Each order takes its factor, down to rounding.
    assert np.all((ratios < 0.5) | (np.array(errors[1:]) < 1e-13)), errors
    assert errors[-1] < 1e-4
