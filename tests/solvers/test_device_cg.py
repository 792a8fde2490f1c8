"""The host's side of conjugate gradients on a GPU, with the kernels and the graph run on the CPU."""

from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.vectors import HOST_VECTORS, scaled
from hpfem.solvers import device_cg
from hpfem.solvers.krylov import Iteration, Timed
from hpfem.solvers.preconditioners import Jacobi
from tests.backends.cuda.host_vectors import HostVectors, kernels


@pytest.fixture
def solve(tmp_path):
    """Solves like `hp.cg`, with a product that leaves sums or a plain function."""
    waits, finished = [], []

    class Vectors(HostVectors):
        """What the loop asks for."""

        def __init__(self, x, r, inverse, blocks):
            assert blocks in (None, 2)
            self.given = x, r, inverse
            self.x, self.r = x, r

        def begin(self, scale, tolerance, most):
            x, r, inverse = self.given
            assert scale == pytest.approx(np.linalg.norm(r))
            super().__init__(kernels(r.dtype.type, tmp_path), r, tolerance, inverse, most=most)
            self.x, self.partials, self.stop = x, self.pq, self.control["stopped"]

        def measure_product(self, q):
            self.q = q
            self.dots(self.p, q, self.pq)

        def update_residual(self):
            self.residual()

        def update_direction(self, z=None):
            self.direction(z)

        def read(self):
            seen = self.control[0].copy()
            waits.append(False)
            place = len(waits) - 1

            def wait():
                waits[place] = True
                return seen

            return SimpleNamespace(wait=wait)

        def finish(self):
            finished.append(len(waits))

    def capture(step, count, what):
        assert count == device_cg.GRAPH_STEPS and not released
        launched.append("graph")
        # All that was launched is waited for before the graph goes away.
        return SimpleNamespace(
            launch=lambda: [step() for _ in range(count)], release=lambda: released.append(finished[-1] == len(waits))
        )

    launched, released, steps = [], [], []
    vectors = SimpleNamespace(iteration=SimpleNamespace(conjugate_vectors=Vectors, capture=capture))

    def call(matrix, b, M=None, tol=1e-9, most=1000, fused=True):
        for record in (launched, released, steps):
            record.clear()

        def into(p, q, partials, stop):
            if not stop[0]:
                q[:] = matrix(p)

        x = np.zeros_like(b)

        def advance(n, description):
            steps.append(n)

        residuals = []
        run = Iteration(float(np.linalg.norm(b)), tol, most, "CG", advance, residuals)
        try:
            product = SimpleNamespace(into=into, blocks=2) if fused else None
            device_cg.iterate_on_device(vectors, Timed("the operator", matrix, b), product, M, x, b.copy(), run)
        finally:
            assert finished[-1] == len(waits)  # all that was launched is waited for
            assert released == [True] * len(launched)
        assert sum(steps) == len(residuals) - 1
        return x, residuals, bool(launched)

    return call


@pytest.fixture
def system(rng):
    """A matrix, positive definite, and a right-hand side."""
    points = rng.standard_normal((400, 300))
    return points @ points.T / 300 + np.diag(rng.uniform(0.2, 2, 400)), rng.standard_normal(400)


class Costly:
    """A preconditioner that is asked for first."""

    costly = True

    def __init__(self, function):
        self._apply, self.calls = function, 0

    def __call__(self, r):
        self.calls += 1
        return self._apply(r)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["none", "jacobi", "function", "costly"])
def test_device_results_equal_host_results(kind, fused, system, solve):
    matrix, b = system
    jacobi = Jacobi(1 / np.diag(matrix), HOST_VECTORS)
    M = {"none": None, "jacobi": jacobi, "function": lambda r: jacobi(r), "costly": Costly(jacobi)}[kind]
    expected, info = hp.cg(lambda p: matrix @ p, b, M, tol=1e-9)
    if kind == "costly":
        assert M.calls == info.iterations
        M.calls = 0
    x, residuals, graph = solve(lambda p: matrix @ p, b, M, fused=fused)
    assert kind != "costly" or M.calls == info.iterations  # none in vain
    assert len(residuals) == info.iterations + 1 and info.iterations > 20
    assert np.allclose(residuals, info.residuals, rtol=1e-6)
    assert np.abs(x - expected).max() < 1e-8 * np.abs(expected).max()
    assert graph == (fused and kind not in ("function", "costly"))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("values", [(1, 3, 7), (1, 1.001, 50), (2,)])
def test_a_sudden_end_changes_nothing_afterwards(values, fused, solve, rng):
    """With few eigenvalues the last residual falls out of line: the iteration under way then must do nothing."""
    diagonal = rng.choice(values, 60).astype(float)
    b = rng.standard_normal(60)
    for M in (Costly(lambda r: r * 1), None):
        x, residuals, _ = solve(lambda p: diagonal * p, b, M, fused=fused)
        assert len(residuals) == len(values) + 1
        assert np.linalg.norm(b - diagonal * x) < 1e-9 * np.linalg.norm(b)


@pytest.mark.parametrize("fused", [True, False])
def test_failures_are_those_of_the_host(fused, system, solve):
    matrix, b = system
    b = scaled(b, -int(np.frexp(np.linalg.norm(b))[1]))  # as `cg` does
    cases = [
        (lambda p: -matrix @ p, None, {}),
        (lambda p: matrix @ p * np.nan, None, {}),
        (lambda p: matrix @ p, lambda r: -r, {}),
        (lambda p: matrix @ p, Costly(lambda r: -r), {}),
        (lambda p: matrix @ p, Costly(lambda r: r * np.nan), {}),
        (lambda p: -matrix @ p, Costly(lambda r: r * 1), {}),
        *((lambda p: matrix @ p, Costly(lambda r: r * 1), {"most": most}) for most in (0, 1, 14)),
        *((lambda p: matrix @ p, None, {"most": most}) for most in (0, 1, 7, 8, 9, 14)),
    ]
    for A, M, more in cases:
        with pytest.raises(hp.SolverError) as expected:
            hp.cg(A, b, M, tol=1e-9, max_iterations=more.get("most"))
        with pytest.raises(hp.SolverError) as found:
            solve(A, b, M, fused=fused, **more)
        assert str(found.value) == str(expected.value)


def test_graphs_go_with_what_they_are_kept_for():
    released = []
    kept = device_cg._Kept([1, (2, 3.0)], None)
    kept.graphs.append(SimpleNamespace(release=lambda: released.append(True)))
    assert kept.fits([1, (2, 3)]) and not any(map(kept.fits, ([1], [1, (2, 4)], [kept, (2, 3)])))
    del kept
    assert released == [True]


def test_a_failing_function_leaves_nothing_under_way(system, solve):
    _, b = system

    def broken(r):
        raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        solve(broken, b, fused=False)
    for M in (lambda r: np.multiply(r, 2, out=r), Costly(lambda r: np.multiply(r, 2, out=r))):
        with pytest.raises(hp.ArgumentError, match="must not write into its argument"):
            solve(lambda p: p, b, M, fused=False)
