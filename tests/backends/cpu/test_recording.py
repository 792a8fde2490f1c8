"""Recorded functions of vectors: against NumPy and SciPy, the same to the last bit whatever the number of threads."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import hpfem as hp
from hpfem.backends.cpu.runtime import kernel, product, recording
from hpfem.backends.cpu.runtime.recording import Recording, recorded
from hpfem.backends.cpu.runtime.target import host
from hpfem.mesh import box
from hpfem.solvers.multigrid.cycle import Multigrid
from tests.assembly.meshes import ours, rotated

SIZES = [1, 7, 16, 45]
MIXED = ("hex", "prism", "tet")


@pytest.fixture(autouse=True)
def many_threads(monkeypatch):
    """Work for several threads in small vectors."""
    for module in (kernel, product, recording):
        monkeypatch.setattr(module, "THREAD_FLOPS", 1)


def check(function, n, dtype, rng, monkeypatch):
    """Compare a recorded function with the same one on arrays, for two vectors in turn."""
    given = np.zeros(n, dtype)
    run = recorded(function, given)
    assert run is not None
    for _ in range(2):
        given[...] = rng.standard_normal(n)
        wanted, found = function(given.copy()), []
        for threads in (1, 2, 3):
            monkeypatch.setenv("HPFEM_NUM_THREADS", str(threads))
            found.append(run().copy())
            assert np.array_equal(found[0], found[-1])
        assert found[0].dtype == dtype and found[0].shape == wanted.shape
        np.testing.assert_allclose(found[0], wanted, rtol=0, atol=40 * np.finfo(dtype).eps * (1 + np.abs(wanted).max()))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", SIZES)
def test_sums(n, dtype, rng, monkeypatch):
    w = rng.standard_normal(n).astype(dtype)

    def function(r):
        d = w * r
        d *= 0.3
        x = 1.5 * d
        y = x - r
        y += d * w
        z = np.zeros_like(y)
        z += y
        z *= w
        return z - x + np.concatenate([z, d])[n:]

    check(function, n, dtype, rng, monkeypatch)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", SIZES)
def test_entries(n, dtype, rng, monkeypatch):
    chosen, mask = rng.permutation(n)[: n // 2 + 1], rng.random(n) < 0.5

    def function(r):
        rows = np.concatenate([r, 2 * r]).reshape(2, -1)
        rows[:, chosen] += rows[:, chosen] * rows[:, chosen]
        rows[:, : n // 2] += rows[:, : n // 2]
        first, second = rows
        first[chosen] = second[chosen]
        swapped = np.concatenate([second, first])
        return np.where(np.concatenate([mask, ~mask]), swapped, rows.reshape(-1))

    check(function, n, dtype, rng, monkeypatch)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", SIZES)
def test_products(n, dtype, rng, monkeypatch):
    sparse = csr_array(random_array((n + 3, n), density=0.2, rng=np.random.default_rng(0), dtype=dtype))
    dense = rng.standard_normal((n + 3, n + 1)).astype(dtype)

    def function(r):
        y = sparse @ r
        y += sparse @ (2 * r)
        x = np.empty_like(np.concatenate([r, r[:1]]))
        np.matmul(y[None], dense, out=x[None])
        return x

    check(function, n, dtype, rng, monkeypatch)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("counts", [[1, 9, 0, 40, 0, 0, 16, 17, 3], [3, 3, 3, 0, 3, 5, 3, 3, 2, 3]])
def test_rows_of_the_same_columns_are_multiplied_together(counts, dtype, rng, monkeypatch):
    """In blocks of 1 to 40 rows, with rows of zeros between, or mostly of few, whose panels have fewer lanes."""
    n = sum(counts) + 4
    dense, row, calls = np.zeros((n, n), dtype), 0, []
    for count in counts:
        if count:
            columns = rng.choice(n, max(5, count), replace=False)
            dense[np.ix_(range(row, row + count), columns)] = rng.standard_normal((count, len(columns)))
        row += max(count, 1)
    sparse, chosen = csr_array(dense), rng.permutation(n)
    real, widest = Recording._row_panels, host().lanes(dtype)
    monkeypatch.setattr(Recording, "_row_panels", lambda self, *given: calls.append(given[1][0]) or real(self, *given))

    def function(r):
        x, y = 1 * r, sparse @ r
        x[chosen] = sparse @ y
        return x + y

    check(function, n, dtype, rng, monkeypatch)
    assert calls == [widest if max(counts) > 16 else min(4, widest)] * 2


def test_memory_is_used_again_and_arguments_are_left_alone(rng):
    given = rng.standard_normal(5)
    before, sizes = given.copy(), []
    real, made = Recording._new, []

    def function(r):
        for _ in range(50):
            r = 2 * r
            sizes.append(r.size)
        return r

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recording, "_new", lambda self, size: made.append(size) or real(self, size))
        run = recorded(function, given)
    assert np.array_equal(run(), before * 2.0**50) and np.array_equal(given, before)
    assert len(sizes) == 50 and len(made) == 2


@pytest.mark.parametrize(
    "function",
    [
        np.sqrt,
        lambda r: r + 1,
        lambda r: r / 2.0,
        lambda r: np.sum(r),
        lambda r: r * (r @ r),
        lambda r: np.add.reduce(r),
        lambda r: np.ones((4, len(r.array))) * r,
        lambda r: np.take(r, [0]),
        lambda r: np.zeros(3).__setitem__(0, r),
        lambda r: np.zeros_like(r, dtype=int),
    ],
)
def test_what_cannot_be_recorded_is_not(function):
    assert recorded(function, np.ones(3)) is None


def test_errors_of_the_function_are_its_own():
    with pytest.raises(KeyError):
        recorded(lambda r: {}[0], np.ones(3))


CYCLES = {
    "constants": ("modified", 1, {}),
    "conditions": ("modified", 1, {"dirichlet": {"xmin": 0.0}, "robin": {"ymax": (3.0, 0.0)}}),
    "components": ("modified", 3, {"dirichlet": {"xmin": 0.0}}),
    "by component": ("modified", 3, {"dirichlet": {"xmin": (0.0, None, 0.0)}, "robin": {"ymax": (3.0, (0, 0, 0))}}),
    "values at nodes": ("lagrange", 2, {"dirichlet": {"xmin": 0.0}}),
}


@pytest.mark.parametrize("case", CYCLES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_cycles_of_multigrid(case, dtype, rng, monkeypatch):
    basis, components, conditions = CYCLES[case]
    mesh = box(MIXED, (3, 2, 2)) if case != "constants" else rotated(ours("cube_mixed.msh"), rng)
    c0 = hp.C0Space(hp.Space(mesh, 4, basis, backend="cpu"))
    bc = hp.BoundaryConditions(c0, components=components, **conditions)
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, bc, components=components)
    check(partial(Multigrid(A, dtype=dtype).in_modes, 0), A.shape[0], dtype, rng, monkeypatch)


def test_what_is_divided_among_threads_is_dropped_at_once(monkeypatch):
    """Not when Python looks for circles, as its factors take most of the memory of a problem."""
    made, new = [], Recording.__init__
    monkeypatch.setattr(Recording, "__init__", lambda own, *given: (made.append(weakref.ref(own)), new(own, *given))[1])
    space = hp.Space(box("tet", 4), 3, backend="cpu")
    gc.collect()
    gc.disable()
    try:
        problem = hp.Problem(space, dirichlet=0.0, preconditioner="multigrid", bar=False)
        problem.solve(1.0)
        assert len(made) > 3 and any(own()._divided for own in made)
        made.append(weakref.ref(problem.conditions))
        del problem
        assert not any(own() for own in made)
    finally:
        gc.enable()


def test_coefficients_are_read_at_every_run(rng):
    c0 = hp.C0Space(hp.Space(box(MIXED, (3, 2, 2)), 3, backend="cpu"))
    k = hp.BwdTrans(c0.space)(c0.space.project(lambda x, y, z: 1 + x * y))
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=2.0, diffusivity=k), c0)
    given = rng.standard_normal(A.shape[0])
    run = recorded(A.product_on(A.device), given)
    assert run is not None
    for lam, scale in ((2.0, 1.0), (5.0, 1.0), (5.0, 3.0)):
        A.operator.parameters["lam"] = lam
        for pair in k.data:
            pair.readwrite()[...] *= scale
        np.testing.assert_allclose(run(), A.assemble() @ given, rtol=0, atol=1e-12 * np.abs(run()).max())
