"""Products on a device with kernels of its own: the layout of the parts of a mixed mesh, with NumPy in their place."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.assembly.product import Product
from hpfem.backends.cuda.runtime.scratch import StreamPool
from hpfem.backends.vectors import VectorSpace
from hpfem.memory import HOST, count_transfers
from tests.assembly.meshes import ours, rotated
from tests.fake_cupy import fake_cuda


class Plain:
    """`IndexedRestriction` by sparse products."""

    blocks = 2

    def __init__(self, c0, free):
        self.c0, self.size, self.free = c0, c0.size, free
        self.rows = [slice(*c0.block_matrix.starts[k : k + 2]) for k in range(len(c0.space.blocks))]

    def scatter(self, vector, targets, stop=None):
        """Block by block."""
        for place, target in zip(self.rows, targets, strict=True):
            target[...] = (self.c0.matrix[place] @ (vector * self.free).T).T.reshape(target.shape)

    def gather(self, local, vector=None, out=None, partials=None, stop=None):
        """From one array with all blocks."""
        out = np.empty_like(vector) if out is None else out
        out[...] = np.where(self.free, 0, vector)
        for place in self.rows:
            part = local[len(out) * place.start : len(out) * place.stop].reshape(len(out), -1)
            out += (self.c0.matrix[place].T @ part.T).T * self.free
        if partials is not None:
            partials[...] = [np.sum(out * vector), 0]
        return out


class Streams(VectorSpace):
    """Vectors of the host, with scratch as on a GPU."""

    def pool(self):
        """Of streams."""
        return StreamPool()


@pytest.fixture
def streams():
    """Scratch asks for the current stream."""
    with fake_cuda():
        yield


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("conditions", [{}, {"dirichlet": {"xmin": 1.0}, "robin": {"ymin": (2.0, 1.0)}}])
def test_products_are_those_of_the_global_operator(components, conditions, rng):
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 3, backend="numpy"))
    bc = hp.BoundaryConditions(c0, **conditions)
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, bc, components=components)
    extra = None
    if bc.matrix is not None:
        keep = np.flatnonzero(bc.free)
        extra = bc.matrix.copy().tolil()
        extra[np.flatnonzero(~bc.free)] = 0
        extra[:, np.flatnonzero(~bc.free)] = 0
        assert len(keep) < c0.size
    product = Product(
        A.operator, Plain(c0, bc.free), components, Streams(HOST), None if extra is None else lambda: extra
    )
    assert product.alone == (not conditions) and product.blocks == 2 and product.dtype == np.float64
    x = rng.standard_normal(A.shape[0])
    expected = A @ x
    with count_transfers() as moved:
        assert np.abs(product(x) - expected).max() < 1e-12 * np.abs(expected).max()
    assert moved.total == 0
    if product.alone:
        out, partials = np.full_like(x, np.nan), np.empty(2)
        product.into(x, out, partials)
        assert np.abs(out - expected).max() < 1e-12 * np.abs(expected).max()
        assert partials.sum() == pytest.approx(x @ out)
        out[:] = np.nan
        for name, part in product.parts(x, out).items():
            assert name in ("scatter", "operator", "gather")
            part()
        assert np.isfinite(out).all()
    with pytest.raises(hp.ArgumentError, match="is needed"):
        product(x[:-1])


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_some_of_a_product(backend, components, rng):
    """The residual as of all of it, but for Dirichlet values, where A x is zero; not where more is to be added."""
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 3, backend=backend))
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 1.0})
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, bc, components=components)
    columns = rng.permutation(c0.size)[: c0.size // 3]
    assert bc.constrained[columns].any()
    x = A.vectors.from_host(rng.standard_normal(A.shape[0]))
    r = rng.standard_normal((components, len(columns)))
    product = A.product_on(A.device)
    some, whole = product.restricted(columns), A.vectors.to_host(product(x)).reshape(components, -1)
    for _ in range(2):
        wanted = r - whole[:, columns] * bc.free[columns]
        assert np.abs(A.vectors.to_host(some(A.vectors.from_host(r), x)) - wanted).max() < 1e-13 * np.abs(whole).max()
    robin = hp.BoundaryConditions(c0, dirichlet={"xmin": 1.0}, robin={"ymin": (2.0, 1.0)})
    with_robin = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, robin, components=components)
    assert with_robin.product_on(A.device).restricted(columns) is None
