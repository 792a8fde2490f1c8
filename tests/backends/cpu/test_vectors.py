"""Compiled passes over vectors: against NumPy's, the same to the last bit whatever the number of threads."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import vectors_on
from hpfem.backends.cpu.codegen.vectors import BLOCK
from hpfem.backends.cpu.runtime import passes, vectors
from hpfem.backends.cpu.runtime.vectors import CpuRestriction, CpuVectors
from hpfem.backends.passes import DIRECTION, LEAPFROG, RESIDUAL
from hpfem.backends.restriction import ElementRestriction
from hpfem.backends.vectors import HOST_VECTORS
from hpfem.memory import HOST
from hpfem.solvers.preconditioners import jacobi

SIZES = [0, 1, 7, 31, 32, 63, 64, 65, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 5 * BLOCK + 77]
CPU = CpuVectors(HOST)


@pytest.fixture(autouse=True)
def many_threads(monkeypatch):
    """Work for several threads in small vectors, which are left to NumPy otherwise."""
    monkeypatch.setattr(passes, "THREAD_FLOPS", 1)
    monkeypatch.setattr(vectors, "_FEW", 1)


def check(function, arrays, monkeypatch):
    """Compare what a function of a vector space and arrays returns and leaves in these, on one to three threads."""
    wide = [array.astype(np.float64) for array in arrays]
    wanted = function(HOST_VECTORS, *wide)
    wanted = [np.asarray(part) for part in ([] if wanted is None else wanted, *wide)]
    eps, found = float(np.finfo(arrays[0].dtype).eps), []
    for threads in (1, 2, 3):
        monkeypatch.setenv("HPFEM_NUM_THREADS", str(threads))
        own = [array.copy() for array in arrays]
        result = function(CPU, *own)
        found.append([np.asarray(part) for part in ([] if result is None else result, *own)])
        assert all(np.array_equal(a, b) for a, b in zip(found[0], found[-1], strict=True))
    assert all(a.dtype == arrays[0].dtype for a in found[0][1:])
    size = 1 + max((np.abs(a).max() for a in wide if a.size), default=0.0)
    for a, b in zip(found[0], wanted, strict=True):
        # Sums of n products of numbers of this size.
        np.testing.assert_allclose(a, b, rtol=0, atol=20 * eps * size**3 * (1 + arrays[0].size ** 0.5))


@pytest.fixture(params=[(dtype, n) for dtype in (np.float64, np.float32) for n in SIZES], ids=str)
def make(request, rng):
    """Makes random vectors of a type and size."""
    dtype, n = request.param

    def vectors(count):
        return [rng.standard_normal(n).astype(dtype) for _ in range(count)]

    return vectors


@pytest.mark.parametrize("count", [1, 2, 4, 5, 8])
def test_combinations(make, count, rng, monkeypatch):
    numbers, arrays = rng.standard_normal(count).tolist(), make(count)
    check(lambda v, *own: v.combine(numbers, own, own[-1]), arrays, monkeypatch)
    check(lambda v, *own: v.combine(numbers, own[:-1], own[-1]), [*arrays, arrays[0]], monkeypatch)
    check(lambda v, x: v.combine(numbers, [x] * count, x), arrays[:1], monkeypatch)


def test_sums_of_products(make, monkeypatch):
    a, b, *rows = make(5)
    check(lambda v, a, b: v.dots((a, b), (b, b)), [a, b], monkeypatch)
    check(lambda v, b, *rows: v.inner(np.array(rows), b), [b, *rows], monkeypatch)
    if a.size:
        check(lambda v, a: v.max_norm(a), [a], monkeypatch)


@pytest.mark.parametrize("diagonal", [False, True])
def test_steps_of_conjugate_gradients(make, diagonal, monkeypatch):
    arrays = make(5 if diagonal else 4)

    def residual(v, p, q, x, r, *inverse):
        return v.run(RESIDUAL[diagonal], (x, p, r, q, *inverse), (0.3,))

    def direction(v, p, z, x, r, *inverse):
        v.run(DIRECTION[diagonal], (p, z, *inverse), (0.7,))

    for function in (residual, direction):
        check(function, arrays, monkeypatch)


def test_few_entries_are_left_to_numpy(monkeypatch, rng):
    calls = []
    monkeypatch.setattr(passes, "run_code", lambda *given: calls.append(given))
    monkeypatch.setattr(vectors, "_FEW", 51)
    a, b, c = rng.standard_normal((3, 50))
    wanted = b + 2.0 * a
    CPU.combine((1.0, 2.0), (b, a), b)
    assert np.allclose(b, wanted, rtol=1e-15) and CPU.inner(a, b) == a @ b
    CPU.run(DIRECTION[1], (b, a, c), (0.5,))
    CPU.run(LEAPFROG, (b.copy(), c, b, a), (2.0, 0.1))
    assert not calls
    monkeypatch.setattr(vectors, "_FEW", 50)
    CPU.combine((1.0, 2.0), (b, a), b)
    assert len(calls) == 1


def test_other_arrays_are_numpys(rng):
    """With gaps, of several types, or of sizes that do not fit."""
    a, b = rng.standard_normal((2, 50))
    assert CPU.inner(a[::2], b[::2]) == a[::2] @ b[::2]
    assert CPU.dot(a, b.astype(np.float32)) == pytest.approx(a @ b, rel=1e-6)
    CPU.combine((1.0, 2.0), (b[::2], a[:25]), b[::2])
    assert CPU.max_norm(np.array([1.0, -3.0, 2.0])) == 3 and np.isnan(CPU.max_norm(np.array([1.0, np.nan])))
    with pytest.raises(ValueError):
        CPU.combine((1.0, 2.0), (b, a[:7]), b)
    with pytest.raises(ValueError):
        CPU.inner(a, b[:7])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shapes", [("hex", "prism", "tet"), ("quad", "tri"), "tet"])
@pytest.mark.parametrize("masked", [False, True])
def test_restrictions(shapes, dtype, masked, rng, monkeypatch):
    """Scatter and gather with the bits of plain ones, or the rounding of other sums."""
    c0 = hp.C0Space(hp.Space(hp.box(shapes, 3), 3, dtype=dtype))
    Q, keep = c0.block_matrix, rng.random(c0.size) > 0.3 if masked else None
    assert Q.signed
    own, plain = (made.restriction(Q, dtype, keep) for made in (CPU, HOST_VECTORS))
    assert type(own) is CpuRestriction and type(plain) is ElementRestriction
    for components in (1, 3):
        vector = rng.standard_normal((components, c0.size)).astype(dtype)
        shape = [(components, block.n_elements, block.n_modes) for block in c0.space.blocks]
        wanted = [np.empty(size, dtype) for size in shape]
        plain.scatter(vector, wanted)
        local = np.concatenate([array.reshape(-1) for array in wanted])
        summed, gathers = plain.gather(local.astype(np.float64), vector), []
        for threads in (1, 2, 3):
            monkeypatch.setenv("HPFEM_NUM_THREADS", str(threads))
            found = [np.full(size, np.nan, dtype) for size in shape]
            own.scatter(vector, found)
            assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
            gathered = own.gather(local, vector)
            gathers.append(gathered)
            assert gathered.dtype == dtype and np.array_equal(gathered, gathers[0])
            assert np.abs(gathered - summed).max() < 50 * np.finfo(dtype).eps * np.abs(summed).max()


def test_solves_do_not_depend_on_threads(monkeypatch):
    """Nor on the number of BLAS' threads: the host's vectors are the compiled ones."""
    assert type(vectors_on(HOST)) is CpuVectors
    c0 = hp.C0Space(hp.Space(hp.box(("hex", "prism", "tet"), 3), 4))
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    b, found = A.right_hand_side(c0.gather(hp.IProductWRTBase(c0.space)(c0.space.evaluate(lambda x, y, z: x * y)))), []
    for threads in (1, 2, 3):
        monkeypatch.setenv("HPFEM_NUM_THREADS", str(threads))
        found += [hp.cg(A, b, precondition, bar=False)[0] for precondition in (None, jacobi(A))]
    assert all(np.array_equal(x, y) for x, y in zip(found, found[2:], strict=False))
    assert np.abs(found[0] - found[1]).max() < 1e-9
