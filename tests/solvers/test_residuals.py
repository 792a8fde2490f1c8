"""What is reported is the residual b - A x; preconditioners and operators that do what they should not are caught."""

import warnings

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.vectors import HOST_VECTORS
from tests.assembly.meshes import ours

N = 80


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def problem(request, rng):
    """A matrix, positive definite, and a right-hand side."""
    dtype = request.param
    matrix = rng.standard_normal((N, N))
    return (matrix @ matrix.T / N + np.diag(rng.uniform(0.1, 10, N))).astype(dtype), rng.standard_normal(N).astype(
        dtype
    )


def relative(matrix, x, b):
    return np.linalg.norm(b - matrix @ x) / np.linalg.norm(b)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("conditions", [{"dirichlet": 0.0}, {}])
def test_a_missed_tolerance_below_rounding_is_reported(dtype, conditions):
    space, tol = hp.Space(ours("cube_mixed.msh"), 3, dtype=dtype), 1e-12 if dtype == np.float32 else 1e-17
    with pytest.warns(
        hp.HpfemWarning, match=f"the residual b - A x is .*, wanted 1.0e-1.: rounding to {dtype.__name__}"
    ):
        u = hp.solve_helmholtz(space, 1.0, 1.0, tol=tol, **conditions)
    eps = np.finfo(dtype).eps
    assert tol < u.info.residual < 400 * eps and u.info.residuals[-1] <= tol
    # No more was asked for than is possible: nothing to say.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        u = hp.solve_helmholtz(space, 1.0, 1.0, **conditions)
    assert u.info.residual < max(1e-12, 400 * eps)


def test_a_lost_residual_is_found_again(problem):
    """The iterations go on from the true residual, once."""
    matrix, b = problem
    count = []

    def disturbed(v):
        """The product is wrong in one iteration."""
        count.append(1)
        return matrix @ v * (1 + 0.1 * (len(count) == 4))

    x, info = hp.cg(disturbed, b, tol=1e-5)
    assert relative(matrix, x, b) < 1.1e-5 and info.residual == pytest.approx(relative(matrix, x, b), rel=1e-2)
    assert len(info.residuals) == info.iterations + 1
    # It is seen in the history where the iterations started again.
    assert np.any(np.diff(np.log10(info.residuals)) > 1)


BUFFER = np.empty(N)
KINDS = {
    "itself": lambda matrix: lambda r: r,
    "one buffer": lambda matrix: lambda r: np.divide(r, np.diag(matrix), out=BUFFER),
    "another type": lambda matrix: lambda r: (r / np.diag(matrix)).astype(np.float64),
    "a lower type": lambda matrix: lambda r: (r / np.diag(matrix)).astype(np.float16),
    "not symmetric": lambda matrix: lambda r: (r + 0.02 * np.roll(r, 1)) / np.diag(matrix),
}


@pytest.mark.parametrize("kind", KINDS)
def test_odd_preconditioners_do_no_harm(kind, problem):
    matrix, b = problem
    x, info = hp.cg(lambda v: matrix @ v, b, KINDS[kind](matrix), tol=1e-5)
    assert x.dtype == b.dtype and relative(matrix, x, b) < 1.1e-5
    assert info.residual == pytest.approx(relative(matrix, x, b), rel=1e-2)


def writes(r):
    r *= 0.5
    return r


def forces(r):
    """Into memory that it was asked to leave alone."""
    owner = r.base if r.base is not None else r
    owner *= 0.5
    return owner * 1


HOSTILE = {
    "writes": (writes, hp.ArgumentError, "the preconditioner must not write into its argument"),
    "forces": (forces, hp.SolverError, "the residual b - A x is .* though that of the iterations met"),
    "nan": (lambda r: r * np.nan, hp.SolverError, "the preconditioner's result is not finite"),
    "inf": (lambda r: r * np.inf, hp.SolverError, "the preconditioner's result is not finite"),
    "negative": (lambda r: -r, hp.SolverError, "the preconditioner is not positive definite"),
    "zero": (lambda r: 0 * r, hp.SolverError, "the preconditioner is not positive definite"),
    "complex": (lambda r: r + 0j, hp.ArgumentError, r"the preconditioner returned complex\d+ of shape \(80,\), wanted"),
    "short": (
        lambda r: r[:-1] * 1,
        hp.ArgumentError,
        r"returned float\d\d of shape \(79,\), wanted float\d\d of shape",
    ),
    "column": (lambda r: r[:, None] * 1, hp.ArgumentError, r"of shape \(80, 1\)"),
    "number": (lambda r: 1.0, hp.ArgumentError, "the preconditioner returned float, wanted"),
    "nothing": (lambda r: None, hp.ArgumentError, "the preconditioner returned NoneType, wanted"),
    "words": (lambda r: np.full(N, "one"), hp.ArgumentError, "wanted float"),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_preconditioners_are_caught(kind, problem):
    matrix, b = problem
    M, error, message = HOSTILE[kind]
    with pytest.raises(error, match=message):
        hp.cg(lambda v: matrix @ v, b, M, tol=1e-5)
    before = b.copy()
    space = hp.Space(ours("square_mixed.msh"), 2, dtype=b.dtype)
    if kind not in ("short", "column", "words", "complex"):
        for conditions in ({"dirichlet": 0.0}, {}):
            with pytest.raises(hp.HpfemError):
                hp.solve_helmholtz(space, 1.0, 1.0, preconditioner=M, **conditions)
    assert np.array_equal(b, before)


def test_invalid_operators_are_caught(problem):
    matrix, b = problem
    cases = {
        "not converge|not linear|not symmetric": lambda v: matrix @ v + 1e-2,
        "must not write": lambda v: np.multiply(v, 2, out=v),
        "the operator returned": lambda v: (matrix @ v)[1:],
    }
    for message, A in cases.items():
        with pytest.raises(hp.HpfemError, match=message):
            hp.cg(A, b, tol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_singular_operator_with_data_that_do_not_fit_is_refused(dtype):
    """The solution grows without end, and its rounding with it: that is no reason to stop."""
    matrix = (2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)).astype(dtype)
    matrix[0, 0] = matrix[-1, -1] = 1
    for b in (np.arange(N, dtype=dtype), np.arange(N, dtype=dtype) - dtype((N - 1) / 2) + dtype(0.1)):
        with pytest.raises(hp.SolverError, match="not positive definite|did not converge|singular"):
            hp.cg(lambda v: matrix @ v, b, tol=1e-6)


def test_norms_of_all_sizes():
    norm = HOST_VECTORS.norm
    for size in (5e-324, 1e-300, 1e-200, 1.0, 1e200, 1e300):
        assert norm(np.array([3.0, -4.0]) * size) == pytest.approx(5 * size)
    assert norm(np.zeros(3)) == 0 and np.isnan(norm(np.array([1, np.nan]))) and norm(np.array([1, -np.inf])) == np.inf
    assert norm(np.full(4, 1e-40, np.float32)) == pytest.approx(2e-40, rel=1e-4)


@pytest.mark.parametrize("preconditioner", ["multigrid", "jacobi", "none"])
@pytest.mark.parametrize(("lam", "robin"), [(1e-12, None), (1e-10, None), (0.0, (1e-12, 1.0))])
@pytest.mark.parametrize("f", [1.0, lambda x, y, z: 1.0 + x])
def test_the_residual_is_that_of_the_whole_solution(preconditioner, lam, robin, f):
    """A tiny lam or alpha gives a large constant, at whose rounding the solution stands: 1e-6 to 1e-2, in words too."""
    space = hp.Space(hp.box("hex", 2), 2, backend="numpy")
    problem = hp.Problem(space, lam, robin=robin, preconditioner=preconditioner, bar=False)
    with pytest.warns(hp.HpfemWarning, match="the solution stands at rounding: its residual is .*, wanted 1.0e-12"):
        u = problem.solve(f)
    b = np.asarray(problem._loads(f)) + problem.conditions.load
    true = np.linalg.norm(b - problem.operator.apply(u.vector)) / np.linalg.norm(b)
    assert u.info.residual == pytest.approx(true, rel=0.5) and 1e-7 < true < 1e-2
    assert u.info.residuals[-1] <= 1e-12


def test_valid_problems_of_order_1_are_not_called_nonlinear(backend):
    """Where terms that cancel are between unknowns whose numbers differ by 2, these are rounding, too."""
    space = hp.Space(hp.box("quad", (4, 1)), 1, backend=backend)
    u = hp.solve_helmholtz(space, 1.5e-3, lambda x, y: 1.0 + x, diffusivity=[468.0, 0.0095], bar=False)
    assert u.info.residual < 1e-7
