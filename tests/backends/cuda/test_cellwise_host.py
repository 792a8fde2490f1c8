"""Products with a matrix per group of cells, the CUDA kernel run on the CPU, against sparse matrices."""

import gc
import weakref

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import hpfem as hp
from hpfem.backends.cellwise import CellwiseProduct, product, transposed
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.vectors import cellwise, indexed
from hpfem.backends.cuda.vectors.cellwise import SlicedFactors, merged
from hpfem.backends.cuda.vectors.indexed import IndexedRestriction, IndexTables
from hpfem.backends.vectors import HOST_VECTORS, BlockMatrix, VectorSpace
from hpfem.memory import HOST
from hpfem.shapes import SHAPES
from hpfem.shapes.low_energy import low_energy_factors, reference_energies
from tests.assembly.meshes import ours, rotated
from tests.backends.cuda.host_vectors import library, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the libraries are."""
    return tmp_path_factory.mktemp("kernels")


def factors(shape, order):
    """Functions of low energy of a regular cell."""
    K, M = reference_energies(shape, order)
    orders = tuple(tuple(order for _ in own) for own in shape.entities)
    return low_energy_factors(shape, order, np.einsum("iimn->mn", K) + 0.3 * M, orders)


@pytest.mark.parametrize("shape", [s for s in SHAPES.values() if s.dim > 1], ids=lambda s: s.name)
@pytest.mark.parametrize("order", [2, 5])
def test_merged_factors_have_the_same_product(shape, order):
    given = factors(shape, order)
    found, wanted = merged(given), product(given)
    assert len(found) <= 4
    assert np.abs(product(found) - wanted).max() < 1e-13 * np.abs(wanted).max()


@pytest.mark.parametrize("order", [3, 8])
def test_hexes_couple_few_functions(order):
    """Between eigenbases, with those alone whose every index is the same or that of a vertex."""
    last, n = merged(factors(SHAPES["hex"], order))[-1], (order + 1) ** 3
    assert np.diff(last.indptr).max() == 27
    assert last.nnz <= (2 + 3 * (order - 1)) ** 3 < 17 * n


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("mesh", "order"), [("cube", 2), ("cube", 4), ("turned", 3), ("turned", 5)])
def test_products_are_those_of_the_matrices(mesh, order, dtype, folder, rng, monkeypatch):
    monkeypatch.setattr(cellwise, "_SPARSE", 0)  # whatever is faster
    mesh = ours("cube_mixed.msh") if mesh == "cube" else rotated(ours("cube_mixed.msh"), rng)
    c0 = hp.C0Space(hp.Space(mesh, order, dtype=dtype))
    Q, x = c0.low_energy_matrix, rng.standard_normal(c0.size).astype(dtype)
    index, local = IndexTables(Q), Q.matrix @ x
    for number, (block, codes) in enumerate(zip(c0.space.blocks, Q.codes, strict=True)):
        given, rows = factors(block.shape, order), slice(Q.starts[number], Q.starts[number + 1])
        for own in (given, transposed(given)):
            tables = SlicedFactors.of(own, dtype)
            wanted = local[rows].reshape(codes.shape) @ product(own).T
            kernel = library(tables.source(index.codes.dtype), ("cellwise",), folder)
            blocks = -(-len(codes) // (tables.elements * tables.groups))
            Q_arrays = index.codes[rows], index.row_starts, index.columns, index.values
            for descending in (False, True):
                out = np.full(codes.shape, np.nan, dtype)
                arguments = (np.int64(len(codes)), *Q_arrays, *tables.arrays, x, out)
                shared = tables.shared_bytes
                run(kernel, "cellwise", blocks, 0, *arguments, descending=descending, shared=shared)
                assert np.abs(out - wanted).max() < (1e-13 if dtype == np.float64 else 1e-5) * np.abs(wanted).max()


def test_dense_matrices_are_multiplied_in_one_piece(rng):
    assert SlicedFactors.of([csr_array(rng.standard_normal((200, 200)))], np.float32) is None
    assert SlicedFactors.of([csr_array(random_array((40, 40), density=0.1, rng=rng))], np.float32) is not None


class HostVectorSpace(VectorSpace):
    """Vectors of the host, with the kernels of a GPU's."""

    def restriction(self, Q, dtype, keep=None):
        """By index tables."""
        return IndexedRestriction(Q, self, dtype, keep)


@pytest.fixture
def on_host(folder, monkeypatch):
    """Kernels of restrictions compile for the CPU and run there."""

    def function(source, name):
        own = library(source, names if name in names else (name,), folder)
        return lambda grid, block, arguments, shared_mem=0: run(own, name, grid[0], 0, *arguments, shared=shared_mem)

    names = ("scatter", "gather", "fold")
    sources = lambda self, components: self._tables.source(self._dtype, components)  # noqa: E731
    kernels = lambda self, n: [function(sources(self, n), name) for name in names]  # noqa: E731
    monkeypatch.setattr(IndexedRestriction, "_kernel", kernels)
    return function


def test_sums_of_many_blocks_are_folded(on_host, rng, monkeypatch):
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 4))
    restriction = HostVectorSpace(HOST).restriction(c0.block_matrix, np.float64)
    local, vector = rng.standard_normal(c0.matrix.shape[0]), rng.standard_normal((1, c0.size))
    wanted = c0.matrix.T @ local
    for most in (indexed.MOST_SUMS, 2):
        monkeypatch.setattr(indexed, "MOST_SUMS", most)
        blocks = restriction._tables.gather_blocks(c0.size)
        assert 2 < blocks < 1024 and restriction.blocks == (blocks if most > 2 else indexed.FOLDED)
        out, partials = np.full((1, c0.size), np.nan), np.full(restriction.blocks, np.nan)
        restriction.gather(local, vector, out, partials)
        assert np.abs(out[0] - wanted).max() < 1e-13 * np.abs(wanted).max()
        assert partials.sum() == pytest.approx(vector[0] @ wanted, rel=1e-12)


def test_what_gathers_by_entity_is_made_once(on_host, rng):
    """Products of one space share it; its sums are the same, to the bit."""
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 4))
    Q = c0.block_matrix
    restriction = HostVectorSpace(HOST).restriction(Q, np.float64)
    chosen = [number != 1 for number in range(len(Q.blocks))]
    moved = restriction.by_entity(chosen)
    assert moved is restriction.by_entity(chosen) is not restriction.by_entity([True] * len(chosen))
    local = [rng.standard_normal(own.shape) for own in Q.blocks]
    by_entity = [own[:, Q.blocks[i].modes] if chosen[i] else own for i, own in enumerate(local)]
    found, wanted = (np.concatenate([own.ravel() for own in parts]) for parts in (by_entity, local))
    assert not np.array_equal(found, wanted)
    assert np.array_equal(moved.gather(found), restriction.gather(wanted))
    some = np.arange(0, c0.size, 3)
    assert np.array_equal(moved.gather_some(some)(found), restriction.gather_some(some)(wanted))
    # Its memory is free as soon as nobody uses it.
    gone = [weakref.ref(own) for own in (restriction, moved)]
    gc.disable()
    try:
        del restriction, moved
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


def test_products_there_and_back(on_host, rng, monkeypatch):
    """Blocks of both kinds, sparse and dense, as a GPU has them."""
    monkeypatch.setattr(cellwise, "functions", lambda source, *_, **__: [on_host(source, "cellwise")])
    monkeypatch.setattr(cellwise, "upload", lambda array: array)
    monkeypatch.setattr(cellwise, "current_device", lambda: HOST)
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 4))
    Q, x = c0.low_energy_matrix, rng.standard_normal(c0.size)
    back = BlockMatrix(Q.blocks, c0.inverse_matrix.rows)
    for dense in (False, True):
        matrices = [factors(block.shape, 4) for block in c0.space.blocks]
        if dense:
            n = c0.space.blocks[0].n_modes
            matrices[0] = [csr_array(rng.standard_normal((n, n)))]
        made = [cellwise.CudaCellwise(matrices, Q, back, HostVectorSpace(HOST), np.float64)]
        kinds = [isinstance(own, cellwise._Sparse) for own in made[0]._there]
        assert kinds == [not dense, *[True] * (len(kinds) - 1)]
        made.append(CellwiseProduct(matrices, Q, back, HOST_VECTORS, np.float64))
        scale = rng.standard_normal(c0.size)
        scaled = [own.apply(x, scale) for own in made]
        plain = [own.apply(x) for own in made]
        assert np.array_equal(scaled[0], plain[0] * scale)
        for found, wanted in (scaled, plain, [own.transposed(x) for own in made]):
            assert np.abs(found - wanted).max() < 1e-13 * np.abs(wanted).max()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("order", [2, 8])
def test_it_compiles_without_spills(order, architecture):
    for dtype in (np.float32, np.float64):
        tables = SlicedFactors.of(factors(SHAPES["hex"], order), dtype)
        log = nvrtc.compile_source(program(tables.source(np.int32)), architecture).log
        assert "0 bytes spill stores" in log and " spill stores" not in log.replace(" 0 bytes spill stores", "")
