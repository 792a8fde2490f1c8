"""Products without local arrays: against Q^T A Q by SciPy, the same to the last bit whatever the number of threads."""

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.cellwise import CellMatrices, CellwiseProduct, FactorisedMatrix
from hpfem.backends.cpu import backend
from hpfem.backends.cpu.runtime import kernel, product, recording
from hpfem.backends.restriction import BlockMatrix
from hpfem.backends.vectors import HOST_VECTORS
from hpfem.mesh import box, read_mesh
from tests.assembly.meshes import OURS, ours, rotated
from tests.cases import SHAPES_2D, SHAPES_3D
from tests.samples import curved, tapered

NAMES = [shape.name for shape in SHAPES_2D + SHAPES_3D]


@pytest.fixture(autouse=True)
def many_parts(monkeypatch):
    """Work for several threads in small meshes."""
    for module in (product, recording):
        monkeypatch.setattr(module, "THREAD_FLOPS", 1)


def expected(A, x):
    """Q^T A Q x by element matrices."""
    return A.assemble() @ x


def check(A, rng, monkeypatch, tolerance=1e-13):
    x = rng.standard_normal(A.shape[0]).astype(A.dtype)
    wanted, found = expected(A, x), []
    assert A.product_on(A.device).whole is not None
    for threads in (1, 2, 3, 7):
        monkeypatch.setenv("HPFEM_NUM_THREADS", str(threads))
        found.append(A.apply(x))
        assert np.array_equal(found[0], found[-1]) and found[-1].dtype == A.dtype
    assert np.abs(found[0] - wanted).max() < tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("name", NAMES)
def test_every_shape(name, basis, rng, monkeypatch):
    for mesh, order in ((curved(name), 3), (box(name, (5,) * (2 if name in ("quad", "tri") else 3)), 2)):
        c0 = hp.C0Space(hp.Space(mesh, order, basis, backend="cpu"))
        check(hp.GlobalOperator(hp.Helmholtz(c0.space, lam=2.0), c0), rng, monkeypatch)


@pytest.mark.parametrize("path", [p for p in OURS if p.stem != "bench_mixed"], ids=lambda p: p.stem)
def test_our_meshes(path, rng, monkeypatch):
    c0 = hp.C0Space(hp.Space(read_mesh(path), 3, backend="cpu"))
    check(hp.GlobalOperator(hp.Mass(c0.space), c0), rng, monkeypatch)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_turned_faces_orders_conditions_and_components(dtype, rng, monkeypatch):
    orders = {"hex": 4, "prism": 3, "pyramid": 2, "tet": 3}
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), orders, dtype=dtype, backend="cpu"))
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}, robin={"ymax": (3.0, 0.0)})
    tolerance = 1e-13 if dtype == "float64" else 1e-5

    def pair(u, du):
        return (2 * u[0] + u[1], 3 * u[1] - u[0]), (du[0] + du[1], 4 * du[1])

    check(hp.GlobalOperator(hp.Helmholtz(c0.space, lam=2.0), c0, bc, components=3), rng, monkeypatch, tolerance)
    check(hp.GlobalOperator(hp.WeakForm(c0.space, pair, components=2), c0, bc), rng, monkeypatch, tolerance)


def test_factors_recomputed_from_maps(rng, monkeypatch):
    monkeypatch.setattr(backend, "last_level_cache", lambda: 0)
    c0 = hp.C0Space(hp.Space(tapered("hex"), 3, backend="cpu"))
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=2.0), c0)
    assert A.operator.choices[0].kernel.problem.source.recomputes
    check(A, rng, monkeypatch)


def test_cells_in_no_spatial_order_are_sorted(rng, monkeypatch):
    mesh = rotated(box("tet", (8, 8, 8)), rng)
    assert mesh.aligned_topology.scattered
    c0 = hp.C0Space(hp.Space(mesh, 2, backend="cpu"))
    assert sorted(np.concatenate([block.elements for block in c0.space.blocks])) == list(range(mesh.n_cells))
    check(hp.GlobalOperator(hp.Laplacian(c0.space), c0), rng, monkeypatch)
    u = hp.l2_project(c0, lambda x, y, z: x + y * z)
    assert hp.l2_error(c0.scatter(u), lambda x, y, z: x + y * z) < 1e-10
    values = c0.multiplicity
    assert np.array_equal(values, np.diff(c0.matrix.tocsc().indptr))


def test_values_that_are_not_finite_are_located(rng):
    c0 = hp.C0Space(hp.Space(box("hex", (2, 2, 2)), 2, backend="cpu"))
    A = hp.GlobalOperator(hp.WeakForm(c0.space, lambda u, du: (np.log(u) * u, du)), c0)
    with pytest.raises(hp.HpfemError, match="cell 0"):
        A.apply(-1 - rng.random(c0.size))


def test_operators_with_and_without_conditions_share_their_tables(rng):
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 2, backend="cpu"))
    bc, operator = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}), hp.Helmholtz(c0.space, lam=1.0)
    with_conditions, without = hp.GlobalOperator(operator, c0, bc), hp.GlobalOperator(operator, c0)
    made, init = [], product.CpuProduct.__init__

    def counted(self, *arguments):
        made.append(self)
        init(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product.CpuProduct, "__init__", counted)
        for A in (with_conditions, without, with_conditions):
            x = rng.standard_normal(c0.size)
            assert np.abs(A.apply(x) - expected(A, x)).max() < 1e-12
    assert len(made) == 1


@pytest.mark.parametrize("mesh", [box("hex", (5, 5, 4)), ours("cube_mixed.msh").refined()], ids=["hexes", "mixed"])
@pytest.mark.parametrize("first", ["float64", "float32"])
def test_types_of_numbers_share_their_tables(mesh, first, rng, monkeypatch):
    """One is in groups of twice as many elements, the last of which may have more than is there."""
    made, new = [], product._new_tables
    monkeypatch.setattr(product, "_new_tables", lambda *given: made.append(given) or new(*given))
    c0 = hp.C0Space(hp.Space(mesh, 3, backend="cpu", dtype=first))
    other = c0.at(c0.space.at(None, None, c0.space.quadrature, {"float64": "float32", "float32": "float64"}[first]))
    kept = [hp.GlobalOperator(hp.Helmholtz(own.space, lam=2.0), own) for own in (c0, other)]
    for A in kept:
        check(A, rng, monkeypatch, 1e-13 if A.dtype == np.float64 else 1e-5)
    assert len(made) == 1


def test_it_follows_the_operators_present_kernels(rng, monkeypatch):
    """As after `tune`, or after the blocks were tuned elsewhere and `rebuild`."""
    c0 = hp.C0Space(hp.Space(box("hex", (3, 3, 3)), 2, backend="cpu"))
    A, x = hp.GlobalOperator(hp.Mass(c0.space), c0), rng.standard_normal(c0.size)
    before = A.apply(x)
    A.operator.rebuild()
    used, call = [], product.CpuProduct.__call__
    indexed = kernel.CpuKernel.indexed

    def noted(self, *arguments):
        used.append(self)
        return indexed(self, *arguments)

    monkeypatch.setattr(kernel.CpuKernel, "indexed", noted)
    assert np.abs(A.apply(x) - before).max() < 1e-13
    assert [id(own) for own in used] == [id(choice.kernel) for choice in A.operator.choices]
    # Kernels that cannot take numbers out of global vectors serve too.
    A.operator.strategy = "stdmat"
    A.operator.rebuild()
    monkeypatch.setattr(product.CpuProduct, "__call__", lambda *a: pytest.fail("the old kernel was used"))
    assert np.abs(A.apply(x) - before).max() < 1e-13
    A.operator.strategy = "auto"
    A.operator.rebuild()
    monkeypatch.setattr(product.CpuProduct, "__call__", call)
    assert np.abs(A.apply(x) - before).max() < 1e-13


def factors_of_every_kind(n, rng):
    """Sparse, in blocks, what adds to some rows what is in others, the identity, and dense; with rows of zeros."""

    def numbers(*shape):
        return rng.standard_normal(shape) / np.sqrt(n)

    blocks, added, again, order = np.eye(n), np.eye(n), np.eye(n), rng.permutation(n)
    for rows in np.array_split(order[: n - 2], 3):
        blocks[np.ix_(rows, rows)] = numbers(len(rows), len(rows))
    blocks[order[-1], order[-1]] = 0
    added[np.ix_(order[: n // 2], order[n // 2 :])] = numbers(n // 2, n - n // 2)
    again[np.ix_(order[n // 2 :], order[:2])] = numbers(n - n // 2, 2)
    sparse = numbers(n, n) * (rng.random((n, n)) < 0.3)
    return [csr_array(own) for own in (blocks, again, added, sparse, np.eye(n), blocks.T, added.T, numbers(n, n))]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", [*NAMES, "turned"])
def test_matrices_of_groups_of_cells(name, dtype, rng, monkeypatch):
    mesh = rotated(ours("cube_mixed.msh"), rng) if name == "turned" else curved(name)
    c0 = hp.C0Space(hp.Space(mesh, 3, dtype=dtype, backend="cpu"))
    whole, back = c0.low_energy_matrix, c0.inverse_matrix
    # Half of the cells of a block have a matrix, the others another one; with zeros, rows of zeros too.
    groups = [own.part(np.arange(first, own.shape[0], 2)) for own in whole.blocks for first in (0, 1)]
    Q = BlockMatrix(groups, whole.rows)
    Q_a = BlockMatrix(groups, back.rows)
    factors = [factors_of_every_kind(g.shape[1], rng) for g in groups]
    products = [np.linalg.multi_dot([m.toarray() for m in own]) for own in factors]
    matrices = [FactorisedMatrix(own) for own in factors]
    M = block_diag([np.kron(np.eye(g.shape[0]), m) for g, m in zip(groups, products, strict=True)], format="csr")
    x = rng.standard_normal(c0.size).astype(dtype)
    tolerance = 1e-13 if dtype == "float64" else 1e-5
    for threads in (1, 3):
        monkeypatch.setenv("HPFEM_NUM_THREADS", str(threads))
        own = BACKENDS["cpu"].cellwise(CellMatrices(matrices, Q, Q_a, HOST_VECTORS, c0.space.dtype))
        assert isinstance(own, product.CpuCellwise)
        for found, wanted in (
            (own.apply(x), Q_a.matrix.T @ (M @ (Q.matrix @ x))),
            (own.transposed(x), Q.matrix.T @ (M.T @ (Q_a.matrix @ x))),
        ):
            assert found.dtype == x.dtype and np.abs(found - wanted).max() < tolerance * np.abs(wanted).max()
    plain = CellwiseProduct(CellMatrices(matrices, Q, Q_a, HOST_VECTORS, c0.space.dtype))
    y = own.apply(x)
    assert np.abs(plain.apply(x) - y).max() < tolerance * np.abs(y).max()
