"""Conjugate gradients: SciPy's iterations, the history, what does not move between host and device, clear failures."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse.linalg

import hpfem as hp
from hpfem.backends import BACKENDS, vectors_on
from hpfem.backends.vectors import VectorSpace
from hpfem.memory import count_transfers
from hpfem.mesh import box
from hpfem.solvers import make_preconditioner
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.preconditioners import Jacobi
from tests.assembly.meshes import ours, rotated
from tests.standin import StandIn, StandInBackend, StandInStrategy


@pytest.fixture
def problem(rng):
    """A Helmholtz problem with Dirichlet values on a mixed mesh: operator and right-hand side."""
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 3))
    bc = hp.BoundaryConditions(c0, dirichlet=0.0)
    return hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, bc), rng.standard_normal(c0.size) * bc.free


@pytest.mark.parametrize("name", ["jacobi", "none"])
def test_iterations_are_those_of_scipy_on_the_matrix(problem, name):
    A, b = problem
    precondition, used = make_preconditioner(name, A)
    assert used == name
    x, info = hp.cg(A.apply, b, precondition, tol=1e-9)
    matrix = A.assemble()
    count = []
    inverse = None if name == "none" else scipy.sparse.diags_array(1 / matrix.diagonal())
    y, failed = scipy.sparse.linalg.cg(matrix, b, rtol=1e-9, M=inverse, callback=count.append, maxiter=5000)
    assert failed == 0
    # Rounding has hundreds of iterations to grow in, without a preconditioner two thousand.
    assert abs(info.iterations - len(count)) <= 0.05 * len(count)
    assert np.abs(x - y).max() < 1e-7 * np.abs(y).max()


def test_a_preconditioner_on_another_device_is_refused(problem):
    class Elsewhere(VectorSpace):
        def has(self, array):
            return False

    A, b = problem
    own, _ = make_preconditioner("jacobi", A)
    M = Jacobi(own.inverse, Elsewhere(StandIn()))
    with pytest.raises(hp.ArgumentError, match="the preconditioner is on .*, the right-hand side is not"):
        hp.cg(A, b, M)


def test_history(problem):
    A, b = problem
    x, info = hp.cg(A.apply, b, tol=1e-6)
    assert len(info.residuals) == info.iterations + 1
    assert info.residuals[0] == 1 and info.residuals[-1] <= 1e-6 < info.residuals[-2]
    assert np.linalg.norm(b - A @ x) < 1.01e-6 * np.linalg.norm(b)
    assert 0 < info.operator_time < info.time and info.size == len(b)
    # A good start leaves nothing to do.
    assert hp.cg(A.apply, b, start=x, tol=1e-5)[1].iterations == 0
    assert hp.cg(A.apply, 0 * b)[1].iterations == 0


@pytest.fixture
def standin():
    """A backend with memory of its own."""
    device = StandIn()
    BACKENDS.add("stand-in", StandInBackend("stand-in", device, [StandInStrategy()]))
    yield device
    BACKENDS.pop("stand-in")


@pytest.mark.parametrize("name", ["jacobi", "multigrid"])
def test_nothing_moves_inside_the_loop_on_a_device(name, standin, rng):
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 3, quadrature="collapsed"))
    bc = hp.BoundaryConditions(c0, dirichlet=0.0, robin=None)
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0, backend="stand-in"), c0, bc)
    on_host = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0, backend="numpy"), c0, bc)
    b = rng.standard_normal(c0.size) * bc.free
    precondition, used = make_preconditioner(name, A)
    assert used == name
    moved, solutions = [], []
    for tol in (1e-1, 1e-9):
        with count_transfers() as counter:
            rhs = vectors_on(standin).from_host(b)
            x, info = hp.cg(lambda v: A.apply(v, standin), rhs, precondition, tol=tol)
            solutions.append(vectors_on(standin).to_host(x))
        moved.append((counter.to_device, counter.to_host))
    assert info.iterations > (30 if name == "jacobi" else 5)
    # The right-hand side goes there and the solution comes back; the first run also takes the boundary's mask along.
    assert moved == [(2, 1), (1, 1)]
    x, _ = hp.cg(on_host.apply, b, make_preconditioner("jacobi", on_host)[0], tol=1e-9)
    assert np.abs(x - solutions[1]).max() < 1e-7 * np.abs(x).max()


def test_solving_on_a_device_is_the_same_script(standin):
    mesh = ours("cube_mixed.msh")
    vectors = [
        hp.solve_helmholtz(hp.Space(mesh, 3, quadrature="collapsed", backend=name), 1.0, 1.0, dirichlet=0.0).vector
        for name in ("stand-in", "numpy")
    ]
    assert np.abs(vectors[0] - vectors[1]).max() < 1e-10


@pytest.mark.cuda
@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_solving_on_a_gpu_is_the_same_script(basis):
    mesh = ours("curved_mixed.msh")
    vectors = [
        hp.solve_helmholtz(hp.Space(mesh, 4, basis, backend=name), 1.0, 1.0, dirichlet=0.0).vector
        for name in ("cuda", "cpu")
    ]
    assert np.abs(vectors[0] - vectors[1]).max() < 1e-9


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["jacobi", "multigrid"])
def test_nothing_moves_inside_the_loop_on_a_gpu(name, rng):
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 3, backend="cuda"))
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    b = rng.standard_normal(c0.size)
    precondition, _ = make_preconditioner(name, A)
    A.apply(A.vectors.from_host(b), A.device)  # makes the index tables
    moved = []
    for tol in (1e-1, 1e-9):
        with count_transfers() as counter:
            x, _ = hp.cg(lambda v: A.apply(v, A.device), A.vectors.from_host(b), precondition, tol=tol)
            A.vectors.to_host(x)
        moved.append((counter.to_device, counter.to_host))
    assert moved == [(1, 1), (1, 1)]


def test_an_operator_that_is_not_symmetric_is_refused_at_once():
    c0 = hp.C0Space(hp.Space(box("quad", (6, 6)), 2))
    A = hp.GlobalOperator(hp.AdvectionDiffusionReaction(c0.space, [5.0, 1.0], reaction=1.0), c0)
    b, calls = np.ones(A.shape[0]), []
    with pytest.raises(hp.SolverError, match=r"not symmetric.*hpfem\.solve\(A, b\)"):
        hp.cg(A, b)
    # A function does not say: it is tested where most solves have ended.
    n = 400
    skew = scipy.sparse.diags_array([-1.5, 2.0, -0.5], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    with pytest.raises(hp.SolverError, match="not symmetric"):
        hp.cg(lambda x: calls.append(1) or skew @ x, np.ones(n))
    assert len(calls) < 60
    # The advice works as it stands.
    x, _ = hp.solve(A, b, tol=1e-10)
    assert np.linalg.norm(b - A @ x) < 1e-9 * np.linalg.norm(b)


def test_a_symmetric_function_goes_on_after_the_test(problem):
    A, b = problem
    assert hp.cg(lambda x: A.apply(x), b, tol=1e-10)[1].iterations > 60


def test_the_preconditioner_is_in_the_record(problem):
    A, b = problem
    for name in ("none", "jacobi", "multigrid"):
        assert hp.cg(A, b, make_preconditioner(name, A)[0])[1].preconditioner == name
    assert hp.cg(A, b, lambda r: 2 * r)[1].preconditioner == "user"
    assert hp.cg(A, 0 * b, lambda r: 2 * r)[1].preconditioner == "user"


def test_all_sums_are_those_of_the_vector_space(problem, monkeypatch):
    A, b = problem
    own, M = type(A.vectors), make_preconditioner("jacobi", A)[0]
    monkeypatch.setattr(own, "run", VectorSpace.run)  # as with several processes
    x, info = hp.cg(A, b, M, tol=1e-9)
    # As if three others had the same vectors; a sum that is ours alone would spoil the iterations.
    inner = own.inner
    monkeypatch.setattr(own, "inner", lambda self, u, v: 4 * inner(self, u, v))
    y, found = hp.cg(A, b, M, tol=1e-9)
    assert np.array_equal(x, y) and found.residuals == info.residuals and found.residual == info.residual


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": "a"}, "tolerance of CG must be a finite number > 0 and < 1, got 'a'"),
        ({"tol": np.inf}, "tolerance of CG must be a finite number"),
        ({"max_iterations": "x"}, "number of iterations of CG must be an integer >= 0, got 'x'"),
        ({"max_iterations": -5}, "number of iterations of CG must be an integer >= 0, got -5"),
        ({"start": [1.0]}, "the first guess has 1 entries"),
    ],
)
def test_arguments(problem, options, message):
    A, b = problem
    with pytest.raises(hp.ArgumentError, match=message):
        hp.cg(A, b, **options)


def test_an_indefinite_operator_is_refused(problem):
    A, b = problem
    space = A.c0.space
    with pytest.raises(hp.SolverError, match="not positive definite"):
        hp.cg(lambda v: -A.apply(v), b)
    with pytest.raises(hp.SolverError, match="not positive definite"):
        hp.solve_helmholtz(space, -200.0, 1.0, dirichlet=0.0, preconditioner="none")
    for name in ("jacobi", "multigrid"):
        with pytest.raises(hp.SolverError, match="not positive definite"):
            hp.solve_helmholtz(space, -2000.0, 1.0, dirichlet=0.0, preconditioner=name)
    with pytest.raises(hp.SolverError, match="preconditioner is not positive"):
        hp.cg(A.apply, b, lambda r: -r)


def test_no_convergence_is_reported(problem):
    A, b = problem
    with pytest.raises(hp.SolverError, match="after 3 iterations"):
        hp.cg(A.apply, b, max_iterations=3)
    with pytest.raises(hp.SolverError, match="after 2 iterations"):
        hp.solve_helmholtz(A.c0.space, 1.0, 1.0, dirichlet=0.0, max_iterations=2)


def test_values_that_are_not_finite_are_reported(problem):
    A, b = problem
    with pytest.raises(hp.SolverError, match="right-hand side is not finite"):
        hp.cg(A.apply, b * np.nan)
    with pytest.raises(hp.SolverError, match="not finite after 0"):
        hp.cg(lambda v: v * np.nan, b)


def test_bad_arguments(problem):
    A, b = problem
    space = A.c0.space
    with pytest.raises(hp.ArgumentError, match="tolerance"):
        hp.cg(A.apply, b, tol=0)
    with pytest.raises(hp.ArgumentError, match="unknown preconditioner 'ilu'; valid: auto, none, jacobi, multigrid"):
        hp.solve_helmholtz(space, lam=1.0, preconditioner="ilu")
    with pytest.raises(hp.ArgumentError, match="another space"):
        hp.solve_helmholtz(hp.Space(space.mesh, 3), lam=1.0, c0=A.c0)
    with pytest.raises(hp.ArgumentError, match="orthogonal"):
        hp.solve_helmholtz(hp.Space(box("tet", (1, 1, 1)), 2, "orthogonal"), lam=1.0)


@pytest.fixture
def on_gpu():
    """Makes a problem: the operators on the GPU and on the host, and a right-hand side."""

    def make(dtype=np.float64, order=3, **conditions):
        mesh, found = rotated(ours("cube_mixed.msh"), np.random.default_rng(0)), []
        for backend in ("cuda", "cpu"):
            c0 = hp.C0Space(hp.Space(mesh, order, backend=backend, dtype=dtype))
            bc = hp.BoundaryConditions(c0, **(conditions or {"dirichlet": 0.0}))
            found.append(hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, bc))
        b = (np.random.default_rng(1).standard_normal(c0.size) * bc.free).astype(dtype)
        return *found, b

    return make


@pytest.mark.cuda
@pytest.mark.parametrize("how", ["operator", "function"])
@pytest.mark.parametrize("name", ["jacobi", "none", "multigrid"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_iterations_on_a_gpu_are_those_on_the_host(dtype, name, how, on_gpu):
    A, on_host, b = on_gpu(dtype)
    tol = 1e-9 if dtype == np.float64 else 1e-4
    # With as many steps of multigrid's smoother as there.
    made = Multigrid(on_host, Multigrid(A).degree) if name == "multigrid" else make_preconditioner(name, on_host)[0]
    _, info = hp.cg(on_host.apply, b, made, tol=tol)
    rhs, M = A.vectors.from_host(b), make_preconditioner(name, A)[0]
    apply = A if how == "operator" else partial(A.apply, device=A.device)
    y, found = hp.cg(apply, rhs, M, tol=tol)
    assert y.dtype == dtype
    # In single precision thousands of iterations start once more, where rounding has led.
    assert abs(found.iterations - info.iterations) <= max(1, (0.03 if dtype == np.float64 else 0.15) * info.iterations)
    assert len(found.residuals) == found.iterations + 1
    assert found.residuals[-1] <= tol and (tol < min(found.residuals[:-1]) or (dtype == np.float32 and name == "none"))
    # Multigrid's smoother works with bfloat16 on the GPU, and a diagonal is kept in single precision.
    close = {"multigrid": 0.1, "jacobi": 1e-5, "none": 1e-9}[name]
    close = max(close, 1e-2 if dtype == np.float32 else 0)
    assert np.allclose(found.residuals[:15], info.residuals[:15], rtol=close)
    # What single precision makes of the residual in a thousand iterations is more than the tolerance.
    allowed = 1.01e-9 if dtype == np.float64 else 1e-3
    assert np.linalg.norm(b - on_host.apply(A.vectors.to_host(y))) < allowed * np.linalg.norm(b)
    assert found.operator_time > 0 and found.size == len(b)
    # The same bits again, of our own kernels; and a good start leaves nothing to do.
    again, same = hp.cg(apply, rhs, M, tol=tol)
    assert name == "multigrid" or (same.residuals == found.residuals and bool((again == y).all()))
    z, none = hp.cg(apply, rhs, M, start=y, tol=100 * tol)
    assert none.iterations == 0 and bool((z == y).all())


@pytest.mark.cuda
@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_a_diagonal_that_single_precision_cannot_hold(scale, on_gpu):
    A, _, b = on_gpu()
    rhs, M = A.vectors.from_host(b), make_preconditioner("jacobi", A)[0]
    x, info = hp.cg(A, rhs, M, tol=1e-9)
    y, found = hp.cg(A, rhs, Jacobi(M.inverse * scale, A.vectors), tol=1e-9)
    assert abs(found.iterations - info.iterations) <= 1
    assert float(abs(x - y).max()) < 1e-7 * float(abs(x).max())


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["jacobi", "multigrid"])
def test_a_preconditioner_of_a_gpu_takes_no_vectors_of_the_host(name, on_gpu):
    A, _, b = on_gpu()
    with pytest.raises(hp.ArgumentError, match="the preconditioner is on .*, the right-hand side is not"):
        hp.cg(A, b, make_preconditioner(name, A)[0])


@pytest.mark.cuda
def test_components_and_conditions_on_a_gpu(on_gpu):
    A, on_host, b = on_gpu(robin=(2.0, 1.0))
    x, info = hp.cg(on_host.apply, b, tol=1e-9)
    y, found = hp.cg(A, A.vectors.from_host(b), tol=1e-9)
    assert abs(found.iterations - info.iterations) <= 0.03 * info.iterations
    assert np.abs(A.vectors.to_host(y) - x).max() < 1e-6 * np.abs(x).max()
    three = hp.GlobalOperator(A.operator, A.c0, A.bc, components=3)
    y, _ = hp.cg(three, A.vectors.from_host(np.tile(b, 3)), tol=1e-9)
    assert np.abs(A.vectors.to_host(y).reshape(3, -1) - x).max() < 1e-6 * np.abs(x).max()


@pytest.mark.cuda
def test_failures_on_a_gpu_are_those_on_the_host(on_gpu):
    A, _, b = on_gpu()
    rhs, device = A.vectors.from_host(b), A.device
    for most in (0, 3, 20):
        with pytest.raises(hp.SolverError, match=f"after {most} iterations"):
            hp.cg(A, rhs, max_iterations=most)
    with pytest.raises(hp.SolverError, match="operator is not positive definite .* after 0"):
        hp.cg(lambda v: -A.apply(v, device), rhs)
    with pytest.raises(hp.SolverError, match="preconditioner is not positive"):
        hp.cg(A, rhs, lambda r: -r)
    with pytest.raises(hp.SolverError, match="right-hand side is not finite"):
        hp.cg(A, rhs * np.nan)
    with pytest.raises(hp.SolverError, match="not finite after 0"):
        hp.cg(lambda v: v * np.nan, rhs)
    with pytest.raises(hp.SolverError, match="not positive definite"):
        hp.solve_helmholtz(A.c0.space, -2000.0, 1.0, dirichlet=0.0, preconditioner="jacobi")
    with pytest.raises(hp.ArgumentError, match="array of real numbers"):
        hp.cg(A, rhs.astype(np.int64))
    assert hp.cg(A, 0 * rhs)[1].iterations == 0
    # The operator is as it was.
    assert hp.cg(A, rhs, tol=1e-9)[1].residuals[-1] <= 1e-9
