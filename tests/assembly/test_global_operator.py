"""Global operators: against assembled matrices, symmetry, diagonals, components, conditions."""

import pickle

import numpy as np
import pytest
import scipy.sparse.linalg

import hpfem as hp
from hpfem.mesh import box, read_mesh
from tests.assembly.meshes import OURS, THEIRS, ours, rotated
from tests.samples import norm_error


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.stem)
def test_helmholtz_is_symmetric_positive_definite_on_our_meshes(path, rng):
    check_definite(read_mesh(path), rng)


@pytest.mark.parametrize("name", THEIRS)
def test_helmholtz_is_symmetric_positive_definite_on_meshes_of_others(name, shared_meshes, rng):
    check_definite(read_mesh(shared_meshes / name), rng)


def check_definite(mesh, rng):
    c0 = hp.C0Space(hp.Space(mesh, 2 if mesh.n_cells < 2000 else 1))
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0)
    matrix = A.assemble()
    scale = np.abs(matrix).max()
    assert np.abs(matrix - matrix.T).max() < 1e-13 * scale
    # Elimination without pivoting keeps the signs of the eigenvalues.
    options = {"SymmetricMode": True}
    lu = scipy.sparse.linalg.splu(matrix.tocsc(), "MMD_AT_PLUS_A", diag_pivot_thresh=0, options=options)
    assert np.array_equal(lu.perm_r, lu.perm_c)
    assert lu.U.diagonal().min() > 1e-9 * scale
    x = rng.standard_normal(c0.size)
    assert np.abs(A @ x - matrix @ x).max() < 1e-12 * np.abs(A @ x).max()
    # Constants have no gradient: 1^T A 1 is lam times the volume.
    one = c0.project(1.0)
    assert one @ (A @ one) == pytest.approx(c0.space.integrate(c0.space.evaluate(lambda *x: 1.0)), rel=1e-11)


@pytest.mark.parametrize(("order", "basis"), [(1, "modified"), (3, "lagrange"), (5, "modified")])
def test_the_diagonal_needs_no_matrix(basis, order, rng):
    mesh = rotated(ours("curved_mixed.msh"), rng)
    c0 = hp.C0Space(hp.Space(mesh, order, basis))
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0} if "xmin" in mesh.boundaries else None, robin=None)
    for operator in (
        hp.Helmholtz(c0.space, lam=lambda x, y, z: 1 + x, diffusivity=lambda x, y, z: 2 + y * z),
        hp.Mass(c0.space),
        hp.AdvectionDiffusionReaction(c0.space, velocity=[1.0, 2.0, 3.0]),
    ):
        A = hp.GlobalOperator(operator, c0, bc)
        exact = A.assemble().diagonal()
        assert np.abs(A.diagonal() - exact).max() < 1e-12 * np.abs(exact).max()


def test_the_diagonal_on_affine_blocks_of_different_orders(rng):
    mesh = rotated(ours("cube_mixed.msh"), rng)
    c0 = hp.C0Space(hp.Space(mesh, {"hex": 4, "prism": 5, "pyramid": 3, "tet": 5}))
    A = hp.GlobalOperator(hp.Laplacian(c0.space), c0)
    assert np.allclose(A.diagonal(), A.assemble().diagonal(), rtol=1e-11)


def test_symmetry_is_known_from_the_form():
    c0 = hp.C0Space(hp.Space(box("hex", (2, 2, 2)), 2))
    x = np.ones(c0.size)
    assert hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0).symmetric
    advection = hp.GlobalOperator(hp.AdvectionDiffusionReaction(c0.space, velocity=[1.0, 0.0, 0.0]), c0)
    assert not advection.symmetric
    with pytest.raises(hp.StateError, match="transpose"):
        advection.rmatvec(x)
    symmetric = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0)
    assert np.array_equal(symmetric.rmatvec(x), symmetric.matvec(x))


def elasticity(u, du):
    """Twice the symmetric part of the gradient, and the divergence."""
    n = len(du)
    divergence = du[0][0] + du[1][1]
    return [[du[i][j] + du[j][i] + (divergence if i == j else 0.0) for j in range(n)] for i in range(n)]


def test_symmetry_of_forms_that_couple_components(rng):
    c0 = hp.C0Space(hp.Space(ours("square_mixed.msh"), 2))

    def operator(function, **options):
        return hp.GlobalOperator(hp.WeakForm(c0.space, function, components=2, **options), c0)

    symmetric = operator(elasticity, test="grad")
    turned_values = operator(lambda u: [u[0] + u[1], u[1] - u[0]], test="value")
    for A in (symmetric, turned_values):
        matrix = A.assemble()
        assert A.symmetric == (abs(matrix - matrix.T).max() < 1e-12 * abs(matrix).max())
    assert symmetric.symmetric and not turned_values.symmetric
    x = rng.standard_normal(symmetric.shape[0])
    assert np.array_equal(symmetric.rmatvec(x), symmetric.matvec(x))


def test_a_form_that_is_not_symmetric_in_some_elements():
    c0 = hp.C0Space(hp.Space(box("quad", (8, 2)), 2))
    wind = hp.AdvectionDiffusionReaction(c0.space, lambda x, y: [np.where(x > 0.5, 1.0, 0.0), 0 * x])
    assert not hp.GlobalOperator(wind, c0).symmetric


def test_a_form_that_is_not_symmetric_in_one_of_many_elements():
    c0 = hp.C0Space(hp.Space(box("hex", (10, 10, 10)), 1))
    for jet, symmetric in ((0.05, False), (0.0, True)):

        def wind(*x, width=jet):
            return [np.where(np.max([abs(x_i - 0.55) for x_i in x], axis=0) < width, 1.0, 0.0), 0, 0]

        A = hp.GlobalOperator(hp.AdvectionDiffusionReaction(c0.space, wind), c0)
        assert A.symmetric is symmetric


def test_components_apply_one_by_one_or_coupled(rng):
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 3))
    scalar = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=2.0), c0)
    three = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=2.0), c0, components=3)
    x = rng.standard_normal((3, c0.size))
    assert three.shape == (3 * c0.size,) * 2
    assert np.allclose(three @ x.ravel(), np.concatenate([scalar @ row for row in x]), rtol=0, atol=1e-12)
    assert np.allclose(three.diagonal(), np.tile(scalar.diagonal(), 3))
    assert np.abs(three.assemble() @ x.ravel() - three @ x.ravel()).max() < 1e-12

    def coupled(u, du):
        return [u[0] + 0.5 * u[1], 0.5 * u[0] + 2 * u[1]], [du[0], du[1] * 3.0]

    pair = hp.GlobalOperator(hp.WeakForm(c0.space, coupled, components=2), c0)
    matrix = pair.assemble()
    y = x[:2].ravel()
    assert np.abs(matrix @ y - pair @ y).max() < 1e-12
    assert np.abs(pair.diagonal() - matrix.diagonal()).max() < 1e-12
    for backend in ("numpy", "cpu"):
        form = hp.WeakForm(c0.space, coupled, components=2, backend=backend)
        twice = hp.GlobalOperator(form, c0, components=4)
        assert np.abs(twice @ np.tile(y, 2) - np.tile(matrix @ y, 2)).max() < 1e-12


def test_dirichlet_rows_are_those_of_the_identity(rng):
    mesh = ours("cube_mixed.msh")
    c0 = hp.C0Space(hp.Space(mesh, 3))
    names = list(mesh.boundaries)
    bc = hp.BoundaryConditions(c0, dirichlet={names[0]: 1.0}, robin={names[1]: (2.0, 1.0)})
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, bc)
    x = rng.standard_normal(c0.size)
    assert np.array_equal((A @ x)[bc.constrained], x[bc.constrained])
    matrix = A.assemble()
    assert np.abs(matrix @ x - A @ x).max() < 1e-12
    assert np.abs(matrix - matrix.T).max() < 1e-13
    assert np.allclose(A.diagonal(), matrix.diagonal(), rtol=1e-12)


def test_scipy_solves_with_it(rng):
    c0 = hp.C0Space(hp.Space(box("tri", (3, 3)), 4))
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0)
    b = rng.standard_normal(c0.size)
    x, failed = scipy.sparse.linalg.cg(A, b, rtol=1e-12, maxiter=2000)
    assert failed == 0
    assert np.allclose(x, scipy.sparse.linalg.spsolve(A.assemble().tocsc(), b), rtol=0, atol=1e-9 * np.abs(x).max())


def test_float32(rng):
    mesh = ours("cube_mixed.msh")
    spaces = [hp.C0Space(hp.Space(mesh, 3, dtype=dtype)) for dtype in (np.float32, np.float64)]
    x = rng.standard_normal(spaces[0].size).astype(np.float32)
    low, high = (hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0) for c0 in spaces)
    assert (low @ x).dtype == np.float32
    assert np.abs(low @ x - high @ x.astype(float)).max() < 1e-5 * np.abs(high @ x).max()


def test_a_global_operator_pickles(rng):
    c0 = hp.C0Space(hp.Space(box("prism", (1, 1, 1)), 3))
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
    x = rng.standard_normal(c0.size)
    assert np.array_equal(pickle.loads(pickle.dumps(A)) @ x, A @ x)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("conditions", [{}, {"dirichlet": 1.0}, {"robin": (2.0, 1.0)}, {"dirichlet": {"xmin": 1.0}}])
@pytest.mark.parametrize("components", [1, 2])
def test_products_on_a_gpu_are_those_on_the_host(components, conditions, dtype, rng):
    import cupy

    mesh = rotated(ours("cube_mixed.msh"), rng)
    found = []
    for backend in ("cuda", "numpy"):
        c0 = hp.C0Space(hp.Space(mesh, 3, backend=backend, dtype=dtype))
        bc = hp.BoundaryConditions(c0, **conditions)
        A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, bc, components=components)
        x = np.random.default_rng(0).standard_normal(A.shape[0]).astype(dtype)
        found.append(A.apply(cupy.asarray(x), A.device).get() if backend == "cuda" else A @ x)
    assert np.abs(found[0] - found[1]).max() < (1e-12 if dtype == np.float64 else 1e-4) * np.abs(found[1]).max()
    # An operator that computes on the host takes a GPU's vectors too.
    device = hp.Mass(hp.Space(mesh, 1, backend="cuda")).device
    assert np.abs(A.apply(cupy.asarray(x), device).get() - found[1]).max() < 1e-4 * np.abs(found[1]).max()


@pytest.mark.cuda
@pytest.mark.parametrize("shape", ["hex", "prism", "pyramid", "tet", "quad", "tri"])
@pytest.mark.parametrize("order", [1, 4])
def test_a_matrix_assembled_on_a_gpu_is_that_of_the_host(shape, order):
    mesh = box(shape, (3,) * (2 if shape in ("quad", "tri") else 3))
    made = []
    for backend in ("numpy", "cuda", "cuda"):
        space = hp.Space(mesh, order, backend=backend)
        made.append(hp.GlobalOperator(hp.Helmholtz(space, lam=1.5), hp.C0Space(space)).assemble())
    host, *others = made
    for A in others:
        assert (A.indptr == host.indptr).all() and (A.indices == host.indices).all()
        assert np.abs(A.data - host.data).max() < 1e-12 * np.abs(host.data).max()
    assert (others[0].data == others[1].data).all()


@pytest.mark.cuda
def test_cupyx_solves_with_it(rng):
    import cupy
    import cupyx.scipy.sparse.linalg

    mesh = ours("cube_mixed.msh")
    b = None
    found = []
    for backend in ("cuda", "cpu"):
        c0 = hp.C0Space(hp.Space(mesh, 3, "lagrange", backend=backend))
        A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, hp.BoundaryConditions(c0, robin=(1.0, 1.0)))
        b = rng.standard_normal(c0.size) if b is None else b
        if backend == "cuda":
            x, failed = cupyx.scipy.sparse.linalg.cg(A.on_device(), cupy.asarray(b), rtol=1e-12, maxiter=3000)
            assert failed == 0
            found.append(cupy.asnumpy(x))
        else:
            found.append(hp.cg(A.apply, b, tol=1e-12)[0])
    assert np.abs(found[0] - found[1]).max() < 1e-9 * np.abs(found[1]).max()


def test_vectors_are_taken_where_they_are(backend, rng):
    """A solution that `solve` leaves on a GPU is applied to, and scattered, as one on the host."""
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 2, backend=backend))
    A = hp.GlobalOperator(hp.Mass(c0.space), c0, components=2)
    x = rng.standard_normal(A.shape[0])
    u, _ = hp.solve(A, A.right_hand_side(A @ x), tol=1e-12)
    assert A.vectors.has(u) and A.vectors.has(A @ u) and norm_error(A @ u, A @ x) < 1e-9
    assert norm_error(A @ Foreign(x), A @ x) == 0
    field, wanted = c0.scatter(u.reshape(2, -1)), c0.scatter(Foreign(x.reshape(2, -1)))
    assert field.home == A.device
    for own, other in zip(field.arrays, wanted.arrays, strict=True):
        assert norm_error(own, other) < 1e-7


class Foreign:
    """An array of another library."""

    def __init__(self, inside):
        self.inside = inside

    def __array__(self, *arguments, **options):
        return np.array(self.inside)


def test_refusals():
    c0 = hp.C0Space(hp.Space(box("hex", (1, 1, 1)), 2))
    other = hp.C0Space(hp.Space(box("hex", (1, 1, 1)), 2))
    with pytest.raises(hp.ArgumentError, match="weak form"):
        hp.GlobalOperator(hp.BwdTrans(c0.space), c0)
    with pytest.raises(hp.ArgumentError, match="same space"):
        hp.GlobalOperator(hp.Mass(c0.space), other)
    with pytest.raises(hp.ArgumentError, match="another C0Space"):
        hp.GlobalOperator(hp.Mass(c0.space), c0, hp.BoundaryConditions(other))
    with pytest.raises(hp.ArgumentError, match="on the host"):
        hp.GlobalOperator(hp.Mass(c0.space), c0).on_device()
    with pytest.raises(hp.StateError, match="real"):
        hp.GlobalOperator(hp.Mass(c0.space), c0) @ np.full(c0.size, 1j)
