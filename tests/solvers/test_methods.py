"""MINRES and GMRES: the least residual that there is, SciPy's iterations, how often the host waits, clear failures."""

import numpy as np
import pytest
import scipy.sparse.linalg

import hpfem as hp
from hpfem.backends.vectors import VectorSpace
from hpfem.solvers.gmres import gmres
from hpfem.solvers.minres import minres

N = 60


def symmetric(rng, low=-3.0, dtype=np.float64):
    """A symmetric matrix with eigenvalues of both signs, none near zero."""
    Q = np.linalg.qr(rng.standard_normal((N, N)))[0]
    values = np.concatenate([np.linspace(low, low / 6, N // 3), np.linspace(0.5, 10, N - N // 3)])
    return ((Q * values) @ Q.T).astype(dtype)


def general(rng, dtype=np.float64):
    """A matrix that is not symmetric, with eigenvalues around 4."""
    return (4 * np.eye(N) + rng.standard_normal((N, N)) / np.sqrt(N) * 2).astype(dtype)


def positive(rng, dtype=np.float64):
    """A symmetric positive definite matrix."""
    half = rng.standard_normal((N, N))
    return (half @ half.T / N + np.eye(N)).astype(dtype)


METHODS = {"minres": (minres, symmetric), "gmres": (gmres, general), "gmres, symmetric": (gmres, symmetric)}


@pytest.fixture(params=METHODS)
def problem(request, rng):
    """A method, a matrix that it serves and a right-hand side."""
    method, make = METHODS[request.param]
    return method, make(rng), rng.standard_normal(N)


def least(A, b, count):
    """The least residual over the Krylov space of so many products."""
    basis = [b / np.linalg.norm(b)]
    for _ in range(count - 1):
        v = A @ basis[-1]
        for _ in range(2):
            v = v - np.transpose(basis) @ (basis @ v)
        basis.append(v / np.linalg.norm(v))
    AV = A @ np.transpose(basis)
    y = np.linalg.lstsq(AV, b, rcond=None)[0]
    return np.linalg.norm(b - AV @ y) / np.linalg.norm(b)


def test_residuals_are_the_least_there_are(problem):
    method, A, b = problem
    x, info = method(lambda v: A @ v, b, tol=1e-6)
    assert np.abs(x - np.linalg.solve(A, b)).max() < 1e-5 * np.abs(x).max()
    assert info.iterations > 10 and info.residuals[0] == 1
    # Near the end of the space rounding has made vectors of three terms less orthogonal.
    for k in range(1, min(info.iterations, N // 2) + 1):
        assert info.residuals[k] == pytest.approx(least(A, b, k), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_residuals_are_those_of_the_solution(problem, tol, preconditioned, rng):
    """The norm of the residual itself, not of the preconditioned one, whatever the preconditioner."""
    method, A, b = problem
    M = positive(rng)
    x, info = method(lambda v: A @ v, b, (lambda r: M @ r) if preconditioned else None, tol=tol)
    true = np.linalg.norm(b - A @ x) / np.linalg.norm(b)
    assert info.residual == pytest.approx(true, rel=1e-5, abs=1e-14)
    assert info.residuals[-1] == pytest.approx(true, rel=1e-4, abs=1e-12) and true <= tol


@pytest.mark.parametrize("preconditioned", [False, True])
def test_gmres_takes_the_iterations_of_scipy(preconditioned, rng):
    A, b, M = general(rng), rng.standard_normal(N), positive(rng) if preconditioned else np.eye(N)
    for restart in (5, 12, 100):
        _, info = gmres(lambda v: A @ v, b, lambda r: M @ r, tol=1e-8, restart=restart)
        count = []
        # From the right, as ours: of A M, whose residuals are those of A.
        _, failed = scipy.sparse.linalg.gmres(
            A @ M, b, rtol=1e-8, restart=restart, maxiter=1000, callback=count.append, callback_type="pr_norm"
        )
        assert failed == 0 and abs(info.iterations - len(count)) <= restart // 5 + 1
        assert np.allclose(info.residuals[1 : restart + 1], count[:restart], rtol=1e-6)


def test_minres_takes_the_iterations_of_scipy(rng):
    A, b = symmetric(rng), rng.standard_normal(N)
    history = []
    scipy.sparse.linalg.minres(
        A, b, rtol=1e-14, callback=lambda x: history.append(np.linalg.norm(b - A @ x) / np.linalg.norm(b))
    )
    _, info = minres(lambda v: A @ v, b, tol=1e-8)
    count = N // 2
    assert info.iterations > count and np.allclose(info.residuals[1 : count + 1], history[:count], rtol=1e-6)


def test_iterations_start_from_the_first_guess(problem):
    method, A, b = problem
    x, info = method(lambda v: A @ v, b, tol=1e-3)
    _, rest = method(lambda v: A @ v, b, tol=1e-6, start=x)
    assert 0 < rest.iterations and rest.residuals[0] == pytest.approx(info.residual)
    assert method(lambda v: A @ v, b, tol=1e-2, start=x)[1].iterations == 0
    assert method(lambda v: A @ v, 0 * b)[1].iterations == 0


@pytest.mark.parametrize("k", [-900, -60, 60, 900])
def test_solutions_scale_with_right_hand_sides_to_the_last_bit(problem, k):
    method, A, b = problem
    x, info = method(lambda v: A @ v, b, tol=1e-8)
    y, other = method(lambda v: A @ v, b * 2.0**k, tol=1e-8)
    assert np.array_equal(y, x * 2.0**k) and other.residuals == info.residuals


@pytest.mark.parametrize("method", METHODS)
def test_single_precision(method, rng):
    method, make = METHODS[method]
    A, b = make(rng, dtype=np.float32), rng.standard_normal(N).astype(np.float32)
    x, info = method(lambda v: A @ v, b)
    assert x.dtype == np.float32 and info.residual < 1e-5
    x, info = method(lambda v: A @ v, b.astype(np.float64), lambda r: r.astype(np.float32), tol=1e-11)
    assert x.dtype == np.float64 and info.residual <= 1e-11


def test_preconditioners_that_round_or_change(problem):
    """What is inside may be of single precision, and GMRES takes one that is another at every call."""
    method, A, b = problem
    values, Q = np.linalg.eigh((A + A.T) / 2)
    inverse = (Q / np.abs(values)) @ Q.T + 0.02 * positive(np.random.default_rng(1))
    _, exact = method(lambda v: A @ v, b, lambda r: inverse @ r, tol=1e-11)
    single = inverse.astype(np.float32)
    x, info = method(lambda v: A @ v, b, lambda r: single @ r.astype(np.float32), tol=1e-11)
    assert np.linalg.norm(b - A @ x) < 1.01e-11 * np.linalg.norm(b)
    assert info.iterations <= exact.iterations + 3
    if method is gmres:
        count = iter(range(1000))
        x, _ = method(lambda v: A @ v, b, lambda r: r * (1 + next(count) % 3), tol=1e-10)
        assert np.linalg.norm(b - A @ x) < 1.01e-10 * np.linalg.norm(b)


def test_the_host_waits_once_an_iteration(problem, monkeypatch):
    method, A, b = problem
    waits = []
    for name in ("dot", "numbers", "max_norm", "norm"):
        own = getattr(VectorSpace, name)
        monkeypatch.setattr(VectorSpace, name, lambda self, *a, own=own: waits.append(1) or own(self, *a))
    counts = []
    for tol in (1e-1, 1e-2):
        waits.clear()
        _, info = method(lambda v: A @ v, b, lambda r: 2 * r, tol=tol)
        counts.append((len(waits), info.iterations))
    assert counts[1][0] - counts[0][0] == counts[1][1] - counts[0][1] > 2


@pytest.mark.parametrize("restart", [3, 7, 10, 11, 30])
def test_cycles(restart, rng):
    A, b = general(rng), rng.standard_normal(N)
    for M in (None, lambda r: r * 1):
        x, info = gmres(lambda v: A @ v, b, M, tol=1e-10, restart=restart)
        assert np.linalg.norm(b - A @ x) < 1.01e-10 * np.linalg.norm(b)
        assert len(info.residuals) == info.iterations + 1 and np.all(np.diff(info.residuals) <= 0)


@pytest.mark.parametrize("method", [minres, gmres])
def test_the_end_of_the_space_is_met(method, rng):
    """Three eigenvalues take three iterations, and nothing is divided by zero."""
    values = rng.permutation(np.repeat([2.0, -1.0, 5.0], N // 3))
    x, info = method(lambda v: values * v, np.ones(N))
    assert info.iterations == 3 and np.allclose(x, 1 / values)
    x, info = method(lambda v: v, np.ones(N))
    assert info.iterations == 1 and np.allclose(x, 1)
    x, info = method(lambda v: -3 * v, np.arange(1.0))
    assert info.iterations == 0 and np.array_equal(x, [0.0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("method", [minres, gmres])
def test_singular_operators(method, dtype, rng):
    """With a right-hand side of their range they are solved; with another one that is said, and soon."""
    Q = np.linalg.qr(rng.standard_normal((N, N)))[0]
    values = np.concatenate([[0.0], np.linspace(-2, -1, 20), np.linspace(1, 3, N - 21)])
    A = ((Q * values) @ Q.T).astype(dtype)
    b = (A @ rng.standard_normal(N)).astype(dtype)
    assert method(lambda v: A @ v, b)[1].residual < (1e-11 if dtype == np.float64 else 1e-4)
    count = []
    with pytest.raises(hp.SolverError, match=r"singular|stands still"):
        method(lambda v: count.append(1) or A @ v, (b + 0.5 * Q[:, 0]).astype(dtype), name="it")
    assert len(count) < 10 * N
    with pytest.raises(hp.SolverError, match=r"singular|stands still"):
        method(lambda v: 0 * v, np.ones(N, dtype))


def test_standing_still_is_reported(rng):
    """A shift gains nothing before the last step."""
    with pytest.raises(
        hp.SolverError, match=r"GMRES stands still: residual 1.00e\+00, wanted 1.0e-12, after 10 iter.*10 of no use"
    ):
        gmres(lambda v: np.roll(v, 1), np.eye(N)[0], restart=10)
    x, _ = gmres(lambda v: np.roll(v, 1), np.eye(N)[0], restart=N)
    assert np.allclose(x, np.eye(N)[-1])


HOSTILE = {
    "nan in A": (lambda v: v * np.nan, None, hp.SolverError, "not finite"),
    "inf in A": (lambda v: v * np.inf, None, hp.SolverError, "not finite"),
    "nan in M": (None, lambda r: r * np.nan, hp.SolverError, "not finite"),
    "writes": (None, lambda r: r.__imul__(2), hp.ArgumentError, "the preconditioner must not write into its argument"),
    "short": (None, lambda r: r[:-1] * 1, hp.ArgumentError, r"the preconditioner returned float64 of shape \(59,\)"),
    "complex": (lambda v: v + 0j, None, hp.ArgumentError, "the operator returned complex128"),
    "affine": (lambda v: 2 * v + 100, None, hp.SolverError, "not of rounding|singular|not symmetric|stands still"),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_functions_are_caught(case, problem):
    method, A, b = problem
    apply, M, error, message = HOSTILE[case]
    with pytest.raises(error, match=message):
        method(apply or (lambda v: A @ v), b, M)


def test_faults_are_reported(problem):
    method, A, b = problem
    with pytest.raises(hp.SolverError, match=r"it did not converge: residual .*, wanted 1.0e-10, after 4 iterations"):
        method(lambda v: A @ v, b, tol=1e-10, max_iterations=4, name="it")
    with pytest.raises(hp.SolverError, match="the right-hand side is not finite"):
        method(lambda v: A @ v, b * np.nan)
    with pytest.raises(hp.ArgumentError, match="the first guess has 3 entries"):
        method(lambda v: A @ v, b, start=b[:3])


def test_minres_wants_what_is_symmetric_and_a_definite_preconditioner(rng):
    A, b = symmetric(rng), rng.standard_normal(N)
    with pytest.raises(hp.SolverError, match="the preconditioner is not positive definite"):
        minres(lambda v: A @ v, b, lambda r: -r)
    with pytest.raises(hp.SolverError, match="the preconditioner is not positive definite"):
        minres(lambda v: A @ v, b, lambda r: r * np.sign(np.arange(N) - 30.5))
    skew = general(rng)
    with pytest.raises(hp.SolverError, match=r"not symmetric|not of rounding|singular"):
        minres(lambda v: skew @ v, b)
