"""Diffusivities that are tensors: diagonals and full ones, by every way to give them, on all shapes and backends."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.forms.linear import is_symmetric
from hpfem.mesh import box
from hpfem.solvers.multigrid import Multigrid
from tests.operators.reference import random_field, references
from tests.operators.ways import ways
from tests.samples import NAMES, curved, norm_error, plane_in_space, skewed, straight
from tests.space.test_by_region import SOLIDS, with_regions

FULL = {2: np.array([[2.0, 0.7], [0.7, 1.0]]), 3: np.array([[2.0, 0.7, -0.3], [0.7, 1.0, 0.2], [-0.3, 0.2, 1.5]])}


def varying(*x):
    """A symmetric positive definite tensor that differs from point to point."""
    d = len(x)
    return [[FULL[d][i, j] * (1.5 + np.sin(x[0] + x[-1])) + (i == j) * x[0] ** 2 for j in range(d)] for i in range(d)]


def reference_helmholtz(space, field, tensor):
    """(u, v) + (K grad u, grad v) by dense tables; K a function to [D, D, ...]."""
    found = []
    for ref, array in zip(references(space), field.arrays, strict=True):
        u, du = ref.trial(array)
        K = tensor(*ref.x)
        flux = np.stack([sum(K[i][j] * du[:, j] for j in range(space.dim)) for i in range(space.dim)], axis=1)
        found.append(ref.test(u, flux))
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [lambda name: skewed(straight(name)), curved], ids=["affine", "curved"])
def test_helmholtz_with_a_full_tensor(name, make, backend, rng):
    space = hp.Space(make(name), 3, backend=backend, quadrature="collapsed")
    u = random_field(space, rng)
    expected = reference_helmholtz(space, u, varying)
    for way in ways(backend, True):
        found = hp.Helmholtz(space, 1.0, varying, **way)(u)
        assert all(norm_error(a, b) < 2e-12 for a, b in zip(found.arrays, expected, strict=True)), way


def as_array(*x):
    return np.array([[entry + 0 * x[0] for entry in row] for row in varying(*x)])


def in_a_row(*x):
    return [entry for row in varying(*x) for entry in row]


@pytest.mark.parametrize("give", [as_array, in_a_row], ids=["an array", "in a row"])
def test_ways_to_give_a_function(give, backend, rng):
    space = hp.Space(curved("hex", 2), 2, backend=backend)
    u = random_field(space, rng)
    expected = hp.Helmholtz(space, 1.0, varying)(u)
    assert norm_error(hp.Helmholtz(space, 1.0, give)(u).arrays[0], expected.arrays[0]) < 1e-14
    field = space.evaluate(in_a_row)  # read at every application
    operator = hp.Helmholtz(space, 1.0, field)
    assert norm_error(operator(u).arrays[0], expected.arrays[0]) < 1e-14
    field.data[0].readwrite()[...] *= 2
    doubled = hp.Helmholtz(space, 1.0, lambda *x: [[2 * e for e in row] for row in varying(*x)])
    assert norm_error(operator(u).arrays[0], doubled(u).arrays[0]) < 1e-14


@pytest.mark.parametrize("name", ["quad", "tet"])
def test_numbers_and_diagonals(name, backend, rng):
    space = hp.Space(skewed(straight(name)), 3, backend=backend)
    d, u = space.dim, random_field(space, rng)
    K, diagonal = FULL[d], np.diag(FULL[d])
    for given, tensor in ((K, K), (K.tolist(), K), (diagonal, np.diag(diagonal)), (tuple(diagonal), np.diag(diagonal))):
        expected = reference_helmholtz(space, u, lambda *x, tensor=tensor: tensor)
        assert norm_error(hp.Helmholtz(space, 1.0, given)(u).arrays[0], expected[0]) < 1e-12
    expected = reference_helmholtz(space, u, lambda *x: np.diag(diagonal))
    for given in (lambda *x: list(diagonal), space.evaluate(lambda *x: list(diagonal))):
        assert norm_error(hp.Helmholtz(space, 1.0, given)(u).arrays[0], expected[0]) < 1e-12
    # A multiple of the identity is a scalar.
    expected = hp.Helmholtz(space, 1.0, 3.0)(u)
    assert norm_error(hp.Helmholtz(space, 1.0, 3.0 * np.eye(d))(u).arrays[0], expected.arrays[0]) < 1e-12


def test_a_tensor_that_is_not_symmetric(backend, rng):
    """In a form of transport it may be anything."""
    space = hp.Space(curved("prism", 2), 3, backend=backend)
    K = np.array([[1.0, 0.5, 0.0], [-0.5, 2.0, 0.1], [0.0, 0.3, 1.0]])
    u = random_field(space, rng)
    expected = reference_helmholtz(space, u, lambda *x: K)
    found = hp.AdvectionDiffusionReaction(space, [0.0, 0.0, 0.0], K, 1.0)
    assert norm_error(found(u).arrays[0], expected[0]) < 2e-12
    assert not is_symmetric(found.form.trace)


def test_on_a_surface_in_space(backend, rng):
    """In the plane it is what its tangential part does there."""
    mesh = plane_in_space("quad")
    space = hp.Space(mesh, 3, backend=backend)
    u = random_field(space, rng)
    expected = hp.Helmholtz(space, 1.0, 2.0)(u)
    assert norm_error(hp.Helmholtz(space, 1.0, 2.0 * np.eye(3))(u).arrays[0], expected.arrays[0]) < 1e-12


def test_by_region(backend, rng):
    """Scalars, diagonals and tensors beside each other."""
    space = hp.Space(box(SOLIDS, (4, 1, 1)), 3, backend=backend)
    u = random_field(space, rng)
    given = {"hex": FULL[3], "prism": 2.0, "pyramid": (1.0, 2.0, 3.0), "tet": varying}
    found = hp.Helmholtz(space, 1.0, given)(u)
    single = {name: hp.Helmholtz(space, 1.0, value)(u) for name, value in given.items()}
    for block, *arrays in zip(space.blocks, found.arrays, *(single[name].arrays for name in given), strict=True):
        inside = [np.isin(block.elements, space.mesh.regions[name]) for name in given]
        expected = sum(own[:, None] * array for own, array in zip(inside, arrays[1:], strict=True))
        assert norm_error(arrays[0], expected) < 1e-12
    # Those that are all scalars stay scalars, and diagonals diagonals.
    assert hp.Helmholtz(space, 1.0, dict.fromkeys(given, 2.0)).fields["diffusivity"].components == 1
    scalars = {"hex": (1.0, 1.0, 2.0), "prism": lambda x, y, z: 1 + x, "pyramid": 1.0, "tet": 2.0}
    assert hp.Helmholtz(space, 1.0, scalars).fields["diffusivity"].components == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_rotated_layer(name, backend):
    """A solution that is known: u = sin(a.x) with the tensor K has -div(K grad u) = a.K a sin(a.x)."""
    space = hp.Space(curved(name), 5, backend=backend)
    d = space.dim
    K, a = FULL[d], np.array([1.0, -0.7, 0.4])[:d]

    def exact(*x):
        return np.sin(sum(a_i * x_i for a_i, x_i in zip(a, x, strict=True)))

    def flux(*x):
        return [entry * np.cos(sum(a_i * x_i for a_i, x_i in zip(a, x, strict=True))) for entry in K @ a]

    for conditions in ({"dirichlet": exact}, {"dirichlet": {"xmin": exact}, "neumann": dict.fromkeys(
        [n for n in space.mesh.boundaries if n != "xmin"], flux)}):  # fmt: skip
        u = hp.solve_helmholtz(space, 1.0, lambda *x: (a @ K @ a + 1) * exact(*x), diffusivity=K.tolist(), **conditions)
        assert hp.l2_error(u, exact) < 2e-4
        assert u.info.residual < 1e-11


def test_convergence_with_the_order(backend):
    mesh = with_regions(box("hex", (2, 2, 2)), lambda x, y, z: x < 0.5)

    def exact(x, y, z):
        return np.sin(x + 2 * y - z)

    def source(x, y, z):
        return exact(x, y, z) * (np.array([1, 2, -1]) @ FULL[3] @ np.array([1, 2, -1]))

    errors = []
    for order in (2, 4, 6):
        space = hp.Space(mesh, order, backend=backend)
        u = hp.solve_helmholtz(space, 0.0, source, exact, diffusivity={"in": FULL[3], "out": FULL[3]})
        errors.append(hp.l2_error(u, exact))
    assert errors[0] < 2e-2 and errors[1] < errors[0] / 100 and errors[2] < errors[1] / 100


def operator(mesh, order, K, basis="modified"):
    space = hp.Space(mesh, order, basis)
    c0 = hp.C0Space(space)
    return hp.GlobalOperator(hp.Helmholtz(space, 0.0, K), c0, hp.BoundaryConditions(c0, dirichlet=0.0))


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("name", SOLIDS)
def test_multigrid(name, basis, rng):
    """Along the axes as many iterations as a scalar takes on cells that are stretched as much."""
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]

    def iterations(K, height=1.0):
        A = operator(box(name, (3, 3, 3), upper=(1, 1, height)), 3, K, basis)
        assert A.symmetric and is_symmetric(A.operator.form.trace)
        b = rng.standard_normal(A.shape[0]) * A.bc.free
        x, info = hp.cg(A, b, Multigrid(A), tol=1e-8)
        assert np.linalg.norm(A.apply(x) - b) <= 1.1e-8 * np.linalg.norm(b)
        return info.iterations

    for ratio, most in ((1.0, 9), (10.0, 17), (100.0, 34)):
        along, turned = np.diag([1, 1, ratio]), rotation @ np.diag([1, 1, ratio]) @ rotation.T
        assert iterations(along) <= iterations(1.0, ratio**-0.5) + 1
        assert iterations(turned) <= most


def test_diagonals_of_the_matrix(backend, rng):
    for name in NAMES:
        space = hp.Space(curved(name, 2), 3, backend=backend)
        A = hp.GlobalOperator(hp.Helmholtz(space, 1.0, varying), hp.C0Space(space))
        assert norm_error(A.diagonal(), A.assemble().diagonal()) < 1e-12


def test_needs_count_every_entry():
    space = hp.Space(box("hex", (2, 2, 2)).elevated(2).transformed(lambda x: x + 0.05 * np.sin(x[:, ::-1])), 4)
    held = []
    for k in (2.0, lambda *x: 2.0, (1.0, 2.0, 3.0), varying, {"hex": varying}, hp.by_region(space, {"hex": FULL[3]})):
        needs = hp.Problem(space, lam=1.0, diffusivity=k, preconditioner="jacobi").needs.by_device["host"]
        held.append(needs["coefficients"] / space.evaluate(lambda *x: 1).arrays[0].nbytes)
    assert held == [0, 1, 3, 6, 6, 6]


def test_what_is_refused():
    space = hp.Space(box("quad", (2, 1)), 2)
    for wrong in ([1.0], [1.0, 2.0, 3.0], np.eye(3), [[1.0, 2.0], [3.0]], [[1.0, "a"], [0.0, 1.0]]):
        with pytest.raises(hp.ArgumentError, match=r"2 \(a diagonal\) or 2 x 2 of them"):
            hp.Helmholtz(space, 1.0, wrong)
    with pytest.raises(hp.ArgumentError, match=r"has 3 component\(s\), not 1 or 2 or 4"):
        hp.Helmholtz(space, 1.0, lambda x, y: [x, y, x])
    with pytest.raises(hp.ArgumentError, match=r"has 3 component\(s\), not 1 or 2 or 4"):
        hp.Helmholtz(space, 1.0, space.evaluate(lambda x, y: [x, y, x]))
    with pytest.raises(hp.ArgumentError, match=r"must take 2 arguments"):
        hp.Helmholtz(space, 1.0, lambda x: x)
    with pytest.raises(hp.ArgumentError, match="'lam'"):
        hp.Helmholtz(space, [1.0, 2.0])
    for wrong in (
        [[1.0, 2.0], [2.0, 1.0]],
        [[1.0, 0.5], [0.0, 1.0]],
        (1.0, 0.0),
        (1.0, -1.0),
        [[1.0, 1.0], [1.0, 1.0]],
        lambda x, y: [x - 0.5, 1],
    ):
        with pytest.raises(
            hp.ArgumentError, match=r"symmetric and positive definite everywhere, it is not at \(.*quad"
        ):
            hp.Problem(space, lam=1.0, diffusivity=wrong)
    for fine in ((1.0, 1e-12), [[1.0, 1 - 1e-9], [1 - 1e-9, 1.0]], space.evaluate(lambda x, y: [2, x, x, 1])):
        hp.Problem(space, lam=1.0, diffusivity=fine)
