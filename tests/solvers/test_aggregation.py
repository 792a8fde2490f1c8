"""Smoothed aggregation with arrays of any device: as good as pyamg's, the same from run to run, for any matrix."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array, diags_array
from scipy.sparse.linalg import cg

import hpfem as hp
from benchmarks.stretched import layers
from hpfem.backends import BACKENDS, vectors_on
from hpfem.backends.vectors import HOST_VECTORS, VectorSpace
from hpfem.memory import HOST
from hpfem.mesh import box
from hpfem.solvers.multigrid import Multigrid, aggregation, coarsening
from hpfem.solvers.multigrid.algebraic import AlgebraicMultigrid, Hierarchy
from tests.assembly.meshes import ours
from tests.solvers.test_rigid_motions import beam

SIZES = {"hex": 10, "prism": 10, "pyramid": 8, "tet": 10, "quad": 32, "tri": 32}


class AsOnDevices(VectorSpace):
    """Vectors of a host, taken for those of a device."""

    iteration = object()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small matrices are not for hosts, and products are made in pieces."""
    monkeypatch.setattr(aggregation, "SMALLEST", 500)
    monkeypatch.setattr("hpfem.backends.cuda.vectors.space._AT_ONCE", 1000)


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.cuda)])
def vectors(request):
    """Vectors whose hierarchies are not pyamg's."""
    return AsOnDevices(HOST) if request.param == "host" else vectors_on(BACKENDS["cuda"].device())


def restricted(A):
    """What a `Hierarchy` is made of, from an operator of order 1: matrix, components, points."""
    n, c0 = A.components, A.c0
    free = np.ones((n, c0.size), bool) if A.bc is None else ~A.bc.fixed(n)
    rigid = n > 1
    chosen = np.broadcast_to(free.any(axis=0), free.shape) if rigid else free
    vertices, component = np.nonzero(chosen.T)
    inside = component * c0.size + vertices
    keep = diags_array(free.ravel()[inside].astype(float))
    matrix = csr_array(keep @ A.assemble()[inside][:, inside] @ keep)
    return matrix, component, c0.coordinates[vertices] if rigid else None


def laplace(mesh, lam=0.0, k=None, given="xmin"):
    """The matrix of the vertices of a mesh."""
    space = hp.Space(mesh, 1, backend="numpy")
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet=None if given is None else {given: 0.0})
    return restricted(hp.GlobalOperator(hp.Helmholtz(space, lam, None if k is None else k(space)), c0, bc))


def iterations(A, made, vectors, tol=1e-8):
    """Of conjugate gradients, with a solution that is not zero only where rows are not."""
    M = AlgebraicMultigrid(made, vectors, np.float64)
    x = np.random.default_rng(1).standard_normal(A.shape[0]) * (A.diagonal() > 0)
    counts = []
    apply = lambda r: vectors.to_host(M(vectors.from_host(r)))  # noqa: E731
    solver = type("M", (), {"shape": A.shape, "matvec": staticmethod(apply), "dtype": A.dtype})
    found, failed = cg(A, A @ x, rtol=tol, maxiter=300, M=solver, callback=counts.append)
    assert not failed and np.linalg.norm(A @ (found - x)) <= 2 * tol * np.linalg.norm(A @ x)
    return len(counts)


def both(given, vectors):
    """Iterations with pyamg's hierarchy, and with that of the vectors' device."""
    pair = (Hierarchy.of(*given), HOST_VECTORS), (Hierarchy.of(*given, vectors), vectors)
    return [iterations(given[0], made, on) for made, on in pair]


@pytest.mark.parametrize("shape", SIZES)
def test_boxes(shape, vectors):
    given = laplace(box(shape, (SIZES[shape],) * (2 if shape in ("quad", "tri") else 3)))
    pyamg, own = both(given, vectors)
    assert own <= pyamg + 1


@pytest.mark.parametrize("shape", SIZES)
def test_stretched_cells(shape, vectors):
    pyamg, own = both(laplace(layers(shape, 24 if shape in ("quad", "tri") else 9, 16, 8)), vectors)
    assert own <= pyamg + 3


@pytest.mark.parametrize("shape", SIZES)
def test_elasticity(shape, vectors):
    A, _ = beam(shape, 1, length=8, backend="numpy", across=8 if shape in ("quad", "tri") else 3)
    given = restricted(A)
    pyamg, own = both(given, vectors)
    assert own <= pyamg + 2
    assert len(Hierarchy.of(*given, vectors).sizes) > 1


def test_given_values_of_some_components(vectors):
    A, _ = beam("hex", 1, backend="numpy", across=3, dirichlet={"xmin": (0.0, None, None), "xmax": 0.0})
    pyamg, own = both(restricted(A), vectors)
    assert own <= pyamg + 3


def jumps(space):
    """Coefficients 1 and 1e4."""
    rng = np.random.default_rng(0)
    ones = [np.ones((1, b.n_elements, b.n_points)) for b in space.blocks]
    return space.field("phys", [np.where(rng.random((1, own.shape[1], 1)) < 0.5, 1.0, 1e4) * own for own in ones])


@pytest.mark.parametrize("given", [{"k": jumps}, {"lam": 1e2}, {"lam": 1e8}], ids=["jumps", "lam=1e2", "lam=1e8"])
def test_coefficients(given, vectors):
    pyamg, own = both(laplace(box("tet", (9, 9, 9)), **given), vectors)
    assert own <= pyamg + 1


@pytest.mark.parametrize("name", ["cube_mixed", "square_mixed"])
def test_our_meshes(name, vectors):
    pyamg, own = both(laplace(ours(f"{name}.msh").refined(2), 1.0, given=None), vectors)
    assert own <= pyamg + 1


def test_constants_alone_of_coupled_components(vectors):
    A, component, _ = restricted(beam("tri", 1, backend="numpy", across=12)[0])
    pyamg, own = both((A, component, None), vectors)
    assert own <= pyamg


@pytest.mark.parametrize("elastic", [False, True])
def test_the_near_null_space_is_interpolated(elastic, vectors):
    if elastic:
        given = restricted(beam("tri", 1, backend="numpy", across=10, dirichlet={})[0])
    else:
        given = laplace(box("tet", (8, 8, 8)), given=None)
    level = Hierarchy.of(*given, vectors).levels[0]
    P = level.P.toarray() if vectors.xp is np else level.P.get().toarray()
    n, points = len(P), given[2]
    near = np.ones((n, 1)) if points is None else np.zeros((n, 3))
    if points is not None:
        near[0::2, 0] = near[1::2, 1] = 1
        near[0::2, 2], near[1::2, 2] = -points[0::2, 1], points[1::2, 0]
    assert np.abs(P @ np.linalg.lstsq(P, near)[0] - near).max() < 1e-10


def test_what_is_small_is_inverted_whole_also_for_devices(vectors, monkeypatch):
    A, *others = restricted(beam("pyramid", 1, backend="numpy")[0])
    for smallest, count in ((A.shape[0], 0), (A.shape[0] - 1, 1)):
        monkeypatch.setattr(aggregation, "SMALLEST", smallest)
        assert len(Hierarchy.of(A, *others, vectors).levels) == count


@pytest.mark.parametrize("elastic", [False, True])
def test_a_smoothed_interpolation_makes_a_v_cycle(elastic, vectors, monkeypatch):
    """The same to rounding with all entries; without small ones, what comes from the near-null space is the same."""
    A, component, points = (
        restricted(beam("tri", 1, backend="numpy", across=10)[0]) if elastic else laplace(box("tet", (9, 9, 9)))
    )
    thin = Hierarchy.of(A, component, points, vectors).levels[0]
    for name in ("_DROPPED_BEFORE", "_DROPPED"):
        monkeypatch.setattr(coarsening, name, 0.0)
    made = Hierarchy.of(A, component, points, vectors)
    plain = made._replace(levels=[own._replace(smoothed=None) for own in made.levels])
    r = vectors.from_host(np.random.default_rng(0).standard_normal(A.shape[0]))
    x, y = (vectors.to_host(AlgebraicMultigrid(own, vectors, np.float64)(r)) for own in (made, plain))
    assert len(made.levels) > 0 and np.abs(x - y).max() < 1e-10 * np.abs(y).max()
    full = made.levels[0]
    assert thin.smoothed.nnz < 0.9 * full.smoothed.nnz
    difference = (thin.smoothed - full.smoothed) @ full.near
    assert float(abs(difference).max()) < 1e-6 * float(abs(full.smoothed @ full.near).max())


def test_matrices_in_pieces(vectors):
    """Some large pieces, many small ones, rows on their own."""
    A, *_ = laplace(box("quad", (20, 20)))
    small, *_ = laplace(box("quad", (1, 1)), 1.0, given=None)
    alone = diags_array(np.linspace(1.0, 9.0, 400))
    for parts in ([A, A], [A] + 350 * [small], [A, alone], [alone], 400 * [small]):
        whole = csr_array(block_diag(parts))
        made = Hierarchy.of(whole, np.zeros(whole.shape[0], int), None, vectors)
        assert made.sizes[-1] <= aggregation.SMALLEST and iterations(whole, made, vectors) <= 25


def test_no_vertices_and_few(vectors):
    for n in (0, 1, 2):
        made = Hierarchy.of(csr_array(np.eye(n)), np.zeros(n, int), None, vectors)
        assert made.sizes == [n] and made.least == 1


def test_the_same_from_run_to_run(vectors):
    given = laplace(box("prism", (9, 9, 9)))
    first, second = (Hierarchy.of(*given, vectors) for _ in range(2))
    for own in zip(first.levels, second.levels, strict=True):
        for one, other in zip(*((level.A, level.P, level.smoothed) for level in own), strict=True):
            assert (one.data == other.data).all() and (one.indices == other.indices).all()


def test_it_is_kept_for_another_matrix(vectors):
    A, component, _ = laplace(box("tet", (8, 8, 8)))
    made = Hierarchy.of(A, component, None, vectors)
    again = made.again(2 * A, vectors)
    for one, other in zip(made.levels, again.levels, strict=True):
        assert float(abs(2 * one.A.data - other.A.data).max()) < 1e-12
        assert float(abs(one.smoothed - other.smoothed).max()) < 1e-2
    assert np.abs(made.root @ made.root.T - 2 * again.root @ again.root.T).max() < 1e-10


def test_aggregates_grow_around_an_independent_set(vectors):
    """On a grid: no two of the set within two edges, and no vertex farther from all."""
    n = 15
    place = {p: i for i, p in enumerate(product(range(n), repeat=2))}
    edges = [(i, place[q]) for (x, y), i in place.items()
             for q in ((x - 1, y), (x, y - 1), (x, y + 1), (x + 1, y)) if q in place]  # fmt: skip
    rows, columns = (vectors.from_host(np.array(ends)) for ends in zip(*edges, strict=True))
    starts = vectors.xp.searchsorted(rows, vectors.xp.arange(n * n + 1))
    tied = vectors.xp.ones(n * n, bool)
    chosen = vectors.to_host(aggregation._independent(starts, columns, tied, vectors))
    near = csr_array((np.ones(len(edges)), np.array(edges).T), shape=(n * n, n * n)).toarray() + np.eye(n * n)
    within = (near @ near)[:, chosen] > 0
    assert (within[chosen].sum(axis=1) == 1).all() and within.any(axis=1).all()
    aggregate, count = aggregation._grown(rows, columns, tied, vectors)
    assert (np.bincount(vectors.to_host(aggregate), minlength=count) > 0).all() and count >= chosen.sum()


def test_a_smoothed_interpolation_is_kept_while_couplings_are_alike(vectors):
    mesh = box("tet", (9, 9, 9)).transformed(lambda x: x + 0.02 * np.sin(7 * x[:, ::-1]))  # without entries that are 0

    def matrix(size):
        return laplace(mesh, k=lambda space: space.evaluate(lambda *x: np.exp(size * np.sin(3 * x[0]))))

    A, *others = matrix(0.1)
    made = Hierarchy.of(A, *others, vectors)
    for size, kept in ((0.4, True), (3.0, False)):
        B, *_ = matrix(size)
        again = made.again(B, vectors)
        assert (again.levels[0].smoothed is made.levels[0].smoothed) == kept
        assert iterations(B, again, vectors) <= iterations(B, Hierarchy.of(B, *others, vectors), vectors) + 1


def test_largest_of_rows(vectors):
    starts, values = np.array([0, 2, 2, 3, 5]), np.array([3, 7, -1, 5, 2])
    for dtype in ("int64", "float64"):
        found = vectors.row_max(vectors.from_host(starts), vectors.from_host(values, dtype))
        assert vectors.to_host(found).tolist() == [7, 0, 0, 5]


@pytest.mark.parametrize("shape", ["hex", "tet", "tri"])
def test_whole_solutions(shape, backend):
    """As on a host, with coefficients that are taken later, too."""
    counts = []
    for own in ("numpy", backend):
        space = hp.Space(box(shape, (22, 22) if shape == "tri" else (8, 8, 8)), 2, backend=own)
        c0 = hp.C0Space(space)
        A = hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
        b = A.vectors.from_host(np.random.default_rng(0).standard_normal(A.shape[0]) * A.bc.free)
        M = Multigrid(A, degree=2)
        for _ in range(2):
            counts.append(hp.cg(A, b, M, tol=1e-8, bar=False)[1].iterations)
            M.refresh()
    assert max(counts) <= counts[0] + 1
