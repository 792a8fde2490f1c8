"""Passes over vectors: the same on every backend."""

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import hpfem as hp
from hpfem.backends import BACKENDS, vectors_on
from hpfem.backends.passes import DIRECTION, LEAPFROG, LOW_STORAGE, RESIDUAL, Pass, combination
from hpfem.backends.vectors import HOST_VECTORS
from tests.standin import StandIn, StandInBackend, StandInStrategy

PASSES = {
    "leapfrog": LEAPFROG,
    "low storage": LOW_STORAGE,
    **{f"{name} {k}": own[k] for name, own in (("r", RESIDUAL), ("p", DIRECTION)) for k in (0, 1)},
    **{f"sum of {count}": combination(count) for count in (1, 2, 4, 9)},
    "another": Pass(
        *("a b c d e f g", "s t", "a = - a b c + s d", "g = t a - e f g - b", "b ="), sums=["a g", "g e f", "b b"]
    ),
}


def test_what_a_pass_means(rng):
    a, b, c, d, e, f, g = rng.standard_normal((7, 5))
    own = [x.copy() for x in (a, b, c, d, e, f, g)]
    sums = HOST_VECTORS.run(PASSES["another"], own, (2.0, 3.0))
    new = -a * b * c + 2 * d
    last = 3 * new - e * f * g - b
    assert all(np.allclose(x, y) for x, y in zip(own, (new, 0 * b, c, d, e, f, last), strict=True))
    assert np.allclose(sums, [new @ last, last @ (e * f), 0])


@pytest.mark.parametrize("n", [0, 1, 7, 8191, 8192, 8193, 3_000_001])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_pass_is_the_same_on_every_backend(backend, n, dtype, rng):
    vectors = vectors_on(BACKENDS[backend].device())
    for name, what in PASSES.items():
        if n > 10_000 and name not in ("leapfrog", "r 1"):
            continue
        arrays, numbers = (
            rng.standard_normal((what.arrays, n)).astype(dtype),
            rng.standard_normal(what.numbers).tolist(),
        )
        wanted = list(arrays.astype(np.float64))
        sums = HOST_VECTORS.run(what, wanted, numbers)
        on_device = [vectors.from_host(row) * 1 for row in arrays]
        found = vectors.run(what, on_device, numbers)
        eps = float(np.finfo(dtype).eps)
        for own, row, given in zip(on_device, wanted, arrays, strict=True):
            host = vectors.to_host(own)
            assert np.abs(host - row).max(initial=0) <= 40 * eps * (1 + np.abs(row).max(initial=0))
            assert host.dtype == dtype and (not np.array_equal(row, given) or np.array_equal(host, given))
        np.testing.assert_allclose(found, sums, rtol=0, atol=100 * eps * (1 + n))


def test_products_with_sparse_matrices_are_added(backend, rng):
    """In a new vector, in place, and to some entries that no row reads."""
    vectors, M = vectors_on(BACKENDS[backend].device()), csr_array(random_array((30, 50), density=0.2, rng=rng))
    M.data[M.indices >= 20] = 0
    x, onto, places = rng.standard_normal(50), rng.standard_normal(30), 20 + rng.permutation(30)
    matrix, given, added = vectors.sparse(M), vectors.from_host(x), vectors.from_host(onto) * 1
    found = vectors.plus_product(added, -2.0, matrix, given)
    assert np.allclose(vectors.to_host(found), onto - 2 * M @ x) and np.array_equal(vectors.to_host(added), onto)
    assert vectors.plus_product(added, 0.5, matrix, given, added) is added
    assert np.allclose(vectors.to_host(added), onto + 0.5 * M @ x)
    own = vectors.from_host(x) * 1
    assert vectors.plus_product(own, 1.0, matrix, own, own, vectors.from_host(places)) is own
    x[places] += M @ x
    assert np.allclose(vectors.to_host(own), x)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_norms_of_vectors_of_any_size(backend, dtype, rng):
    vectors, x = vectors_on(BACKENDS[backend].device()), rng.standard_normal(1000)
    limits = np.finfo(dtype)
    for size in (
        0.0,
        2.0 ** (limits.minexp + 20),
        2.0 ** (limits.minexp // 2),
        1.0,
        2.0 ** (limits.maxexp // 2),
        limits.max / 1e3,
    ):
        given = (x * size).astype(dtype)
        wide, found = given.astype(np.longdouble), vectors.from_host(given)
        largest, wanted = float(np.abs(given).max()), float(np.sqrt((wide**2).sum()))
        assert vectors.max_norm(found) == largest
        assert abs(vectors.norm(found) - wanted) <= 20 * float(limits.eps) * wanted
    for wrong in (np.nan, np.inf, -np.inf):
        given[7] = wrong
        found = vectors.from_host(given), vectors.from_host(given[:0])
        results = vectors.max_norm(found[0]), vectors.norm(found[0]), vectors.max_norm(found[1]), vectors.norm(found[1])
        assert np.array_equal(results, [abs(wrong), abs(wrong), 0, 0], equal_nan=True)


def test_a_problem_on_a_device_does_not_ask_whether_processors_work(monkeypatch):
    """For the answer LLVM is loaded, which takes longer than much of a set-up."""
    backend = StandInBackend("stand-in", StandIn(), [StandInStrategy()])
    monkeypatch.setitem(BACKENDS, "stand-in", backend)
    monkeypatch.setattr(BACKENDS["cpu"], "missing", None)
    space = hp.Space(hp.mesh.box("hex", (2, 2, 2)), 4, backend="stand-in")
    problem = hp.Problem(space, dirichlet=lambda x, y, z: x * y * z, preconditioner="multigrid")
    assert problem.operator.device is backend.device()
    assert vectors_on(backend.device()).device is backend.device()
