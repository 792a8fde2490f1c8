"""Preconditioners: symmetric positive definite, and iteration counts that hardly grow with the order."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box, read_mesh
from hpfem.solvers import make_preconditioner
from tests.assembly.meshes import ours, rotated


def operator(mesh, order, basis="modified", lam=1.0, **conditions):
    c0 = hp.C0Space(hp.Space(mesh, order, basis))
    return hp.GlobalOperator(hp.Helmholtz(c0.space, lam=lam), c0, hp.BoundaryConditions(c0, **conditions))


def iterations(A, name, rng, tol=1e-10):
    b = rng.standard_normal(A.c0.size) * A.bc.free
    return hp.cg(A.apply, b, make_preconditioner(name, A)[0], tol=tol)[1].iterations


def test_iterations_hardly_grow_with_the_order(shared_meshes, rng):
    mesh = read_mesh(shared_meshes / "nektar/cube_all.msh")
    counts = [iterations(operator(mesh, order, dirichlet=0.0), "multilevel", rng) for order in (2, 4, 8)]
    assert max(counts) <= 1.5 * counts[0], counts
    assert counts[-1] < 65


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("name", ["curved_mixed.msh", "ball.msh", "square_mixed.msh"])
def test_on_our_meshes_in_both_bases(name, basis, rng):
    counts = [iterations(operator(ours(name), order, basis, dirichlet=0.0), "multilevel", rng) for order in (2, 5)]
    # Order 2 on the ball is easy: few unknowns are free.
    assert counts[1] <= 1.75 * counts[0] and counts[1] < 60, counts


def test_iterations_do_not_grow_with_the_mesh(rng):
    counts = [
        iterations(operator(box(("hex", "prism", "pyramid", "tet"), (4, n, n)), 3, dirichlet=0.0), "multilevel", rng)
        for n in (1, 2, 4)
    ]
    assert counts[2] <= 1.3 * counts[1], counts


@pytest.mark.parametrize(
    "conditions",
    [{}, {"dirichlet": 0.0}, {"robin": (2.0, 1.0)}, {"dirichlet": {"xmin": 0.0}, "robin": {"xmax": (1.0, 0.0)}}],
    ids=["neumann", "dirichlet", "robin", "mixed"],
)
@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_the_preconditioner_is_symmetric_positive_definite(conditions, basis, rng):
    A = operator(rotated(box(("hex", "prism", "pyramid", "tet"), (4, 1, 1)), rng), 3, basis, **conditions)
    precondition, _ = make_preconditioner("multilevel", A)
    matrix = np.array([precondition(row) for row in np.eye(A.c0.size)])
    assert np.abs(matrix - matrix.T).max() < 1e-11 * np.abs(matrix).max()
    assert np.linalg.eigvalsh((matrix + matrix.T) / 2)[0] > 0
    # What is prescribed is left alone.
    x = rng.standard_normal(A.c0.size) * A.bc.constrained
    assert np.allclose(precondition(x), x)


def test_order_one_is_solved_at_once(rng):
    assert iterations(operator(ours("cube_mixed.msh"), 1, dirichlet={}), "multilevel", rng) <= 2


def test_different_orders_and_coefficients(rng):
    mesh = rotated(ours("cube_mixed.msh"), rng)
    orders = {"hex": 4, "prism": 5, "pyramid": 6, "tet": 3}
    assert iterations(operator(mesh, orders, dirichlet=0.0), "multilevel", rng) < 60
    assert iterations(operator(mesh, 4, lam=lambda x, y, z: np.exp(5 * x), dirichlet=0.0), "multilevel", rng) < 60


def test_auto_falls_back_to_jacobi(rng, caplog):
    c0 = hp.C0Space(hp.Space(box("hex", (2, 2, 2)), 3))
    three = hp.GlobalOperator(hp.Helmholtz(c0.space), c0, components=3)
    precondition, used = make_preconditioner("auto", three)
    assert used == "jacobi"
    assert np.allclose(precondition(np.ones(3 * c0.size)), 1 / three.diagonal())
    with pytest.raises(hp.NotSuitable, match="one component"):
        make_preconditioner("multilevel", three)
    assert make_preconditioner("auto", operator(box("hex", (1, 1, 1)), 3))[1] == "multilevel"
    assert make_preconditioner("none", three) == (None, "none")
