"""Products with a matrix per group of cells, the CUDA kernel run on the CPU, against sparse matrices."""

import gc
import weakref

import numpy as np
import pytest
from scipy.sparse import csr_array

import hpfem as hp
from hpfem.backends.cellwise import CellMatrices, CellwiseProduct, FactorisedMatrix
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.cuda.vectors import cellwise, indexed
from hpfem.backends.cuda.vectors.cellwise import MatrixTiles, bfloat16, has_bfloat16
from hpfem.backends.cuda.vectors.indexed import IndexedRestriction, IndexTables, entity_key
from hpfem.backends.restriction import BlockMatrix
from hpfem.backends.vectors import HOST_VECTORS, VectorSpace
from hpfem.memory import HOST
from tests.assembly.meshes import ours, rotated
from tests.backends.cuda.host_vectors import library, run
from tests.samples import long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the libraries are."""
    return tmp_path_factory.mktemp("kernels")


def rounded(values):
    """Numbers as bfloat16 has them."""
    return (bfloat16(values).astype(np.uint32) << 16).view(np.float32)


def by_element(found, tile, block):
    """Results that stand entity by entity in tiles of elements, [E, n_modes]."""
    ends, out, flat = np.cumsum(block.sizes), np.empty_like(found), found.reshape(-1)
    for first in range(0, len(found), tile):
        own = out[first : first + tile]
        given = flat[first * found.shape[1] :]
        for a, b in zip(ends - block.sizes, ends, strict=True):
            own[:, block.modes[a:b]] = given[a * len(own) : b * len(own)].reshape(len(own), b - a)
    return out


def test_bfloat16_is_rounded_to_the_nearest():
    step = 2.0**-7
    given = np.array([1, 1 + step / 2, 1 + 0.51 * step, 1 + 1.5 * step, -3.3e-38, 2e38, 0], np.float32)
    found = rounded(given)
    assert np.array_equal(found[:4], [1, 1, 1 + step, 1 + 2 * step])
    assert np.abs(found - given).max() <= 2.0**-8 * np.abs(given).max() and found[-1] == 0
    assert (np.abs(found - given) <= 2.0**-8 * np.abs(given)).all()


@pytest.mark.parametrize("n", [1, 8, 20, 35, 56, 75, 125, 216, 343, 512, 729, 1000, 1331, 1536])
def test_every_row_has_a_thread(n, rng):
    tiles = MatrixTiles.of(rng.standard_normal((n, n)))
    assert tiles.mode_warps * tiles.mode_pairs * 16 >= n
    assert 64 <= tiles.threads <= 1024 and tiles.mode_pairs * tiles.element_tiles <= 8
    assert tiles.shared_bytes <= 96 << 10
    assert 0 <= np.count_nonzero(tiles.words) <= tiles.words.size


def test_old_gpus_have_no_bfloat16():
    assert [has_bfloat16(name) for name in ("sm_75", "sm_80", "sm_90", "sm_100")] == [False, True, True, True]


def test_large_matrices_are_multiplied_in_one_piece():
    assert MatrixTiles.of(np.zeros((1537, 1537))) is None


@pytest.mark.parametrize(("mesh", "order"), [("cube", 1), ("cube", 2), ("cube", 4), ("turned", 3), ("turned", 5)])
def test_products_are_those_of_the_matrices(mesh, order, folder, rng):
    mesh = ours("cube_mixed.msh") if mesh == "cube" else rotated(ours("cube_mixed.msh"), rng)
    c0 = hp.C0Space(hp.Space(mesh, order, dtype=np.float32))
    Q, x = c0.low_energy_matrix, rng.standard_normal(c0.size).astype(np.float32)
    index, local, weights = (
        IndexTables(Q),
        rounded(Q.matrix @ x),
        (2.0 ** rng.integers(-3, 4, c0.size)).astype(np.float32),
    )
    for number, codes in enumerate(Q.codes):
        rows, n = slice(Q.starts[number], Q.starts[number + 1]), codes.shape[1]
        M = rng.standard_normal((n, n))
        tiles = MatrixTiles.of(M)
        wanted = local[rows].reshape(codes.shape).astype(np.float64) @ rounded(M).T
        own = library(tiles.source(index.codes.dtype), ("cellwise",), folder)
        tables = IndexedRestriction(Q, HOST_VECTORS, np.float32)
        Q_arrays = tables.tiled([tiles.elements * (i == number) for i in range(len(Q.blocks))], number)
        pieces, counts = cellwise.pieces(n, tiles.elements, [len(codes)])
        for descending, given in ((False, (x / weights, weights)), (True, (x, None))):
            out = np.full(codes.shape, np.nan, np.float32)
            arguments = (
                pieces,
                *Q_arrays,
                tiles.words,
                *cellwise.layout(entity_key(Q.blocks[number]), tiles.elements, counts),
                *given,
                out,
            )
            run(own, "cellwise", len(pieces), 0, *arguments, descending=descending, shared=tiles.shared_bytes)
            found = by_element(out, tiles.elements, Q.blocks[number])
            assert np.abs(found - wanted).max() < 2e-6 * np.sqrt(n) * np.abs(wanted).max()


def test_what_is_no_number_stays_so(folder, rng):
    """In its own element alone."""
    c0 = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 2, dtype=np.float32))
    Q, x = c0.low_energy_matrix, rng.standard_normal(c0.size).astype(np.float32)
    index, codes = IndexTables(Q), Q.codes[0]
    x[codes[1, -1] // 2] = np.nan
    tiles = MatrixTiles.of(rng.standard_normal((codes.shape[1],) * 2))
    out = np.zeros(codes.shape, np.float32)
    own = library(tiles.source(index.codes.dtype), ("cellwise",), folder)
    Q_arrays = IndexedRestriction(Q, HOST_VECTORS, np.float32).tiled([tiles.elements] * len(Q.blocks), 0)
    pieces, counts = cellwise.pieces(tiles.n, tiles.elements, [len(codes)])
    arguments = (
        pieces,
        *Q_arrays,
        tiles.words,
        *cellwise.layout(entity_key(Q.blocks[0]), tiles.elements, counts),
        x,
        None,
        out,
    )
    run(own, "cellwise", len(pieces), 0, *arguments, shared=tiles.shared_bytes)
    out = by_element(out, tiles.elements, Q.blocks[0])
    touched = (codes // 2 == codes[1, -1] // 2).any(axis=1)
    assert np.array_equal(np.isnan(out).all(axis=1), touched) and np.array_equal(np.isnan(out).any(axis=1), touched)


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
    """Products of one space share it; its sums are the same, to the bit; also by tiles of elements."""
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
    tiles = [0, 2, 3, 5, 1][: len(Q.blocks)]
    in_tiles = [own.copy() for own in local]
    for own, block, tile in zip(in_tiles, Q.blocks, tiles, strict=True):
        if tile:
            places = by_element(np.arange(own.size).reshape(own.shape), tile, block)
            own.reshape(-1)[places.ravel()] = own.ravel().copy()
    sums = restriction.by_entity(tiles).gather(np.concatenate([own.ravel() for own in in_tiles]))
    assert np.array_equal(sums, restriction.gather(wanted)) and restriction.by_entity([0, 0]) is restriction
    # Its memory is free as soon as nobody uses it.
    gone = [weakref.ref(own) for own in (restriction, moved)]
    gc.disable()
    try:
        del restriction, moved
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("rough", [False, True])
def test_products_there_and_back(rough, on_host, rng, monkeypatch):
    """Small matrices by tensor cores, if they may be rough, and large ones in one piece."""
    monkeypatch.setattr(cellwise, "functions", lambda source, *_, **__: [on_host(source, "cellwise")])
    monkeypatch.setattr(cellwise, "upload", lambda array: array)
    monkeypatch.setattr(cellwise, "current_device", lambda: HOST)
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 4, dtype=np.float32))
    Q, x = c0.low_energy_matrix, rng.standard_normal(c0.size).astype(np.float32)
    back = BlockMatrix(Q.blocks, c0.inverse_matrix.rows)
    given = [csr_array(rng.standard_normal((block.n_modes,) * 2)) for block in c0.space.blocks]
    scale = rng.standard_normal(c0.size).astype(np.float32)
    of_tiles = MatrixTiles.of
    for most in (1000, 100):
        few = lambda matrix, tiles, most=most: of_tiles(matrix, tiles) if len(matrix) < most else None  # noqa: E731
        monkeypatch.setattr(MatrixTiles, "of", few)
        monkeypatch.setattr(cellwise, "limits", lambda most=most: Limits(multiprocessors=most - 100))
        matrices = [FactorisedMatrix([M]) for M in given]
        own = cellwise.CudaCellwise(CellMatrices(matrices, Q, back, HostVectorSpace(HOST), np.float32, rough))
        tiled = [isinstance(operand, cellwise._Tiled) for operand in own._there]
        assert tiled == [rough and block.n_modes < most for block in c0.space.blocks] and (most > 100 or not all(tiled))
        found = {operand._tiles.element_tiles for operand in own._there if isinstance(operand, cellwise._Tiled)}
        assert found == ({1 if most > 100 else 2} if rough else set())
        exact = CellwiseProduct(CellMatrices(matrices, Q, back, HOST_VECTORS, np.float32))
        assert np.array_equal(own.apply(x, scale), own.apply(x) * scale)
        pairs = [
            (own.apply(x), exact.apply(x)),
            (own.transposed(x), exact.transposed(x)),
            (own.transposed(x, None, scale), exact.transposed(scale * x)),
        ]
        for found, wanted in pairs:
            error = np.abs(found - wanted).max() / np.abs(wanted).max()
            assert error < (2.0**-8 if rough else 1e-5) and (error > 1e-5) == rough


def test_classes_of_a_shape_are_one_launch(on_host, rng, monkeypatch):
    """Each with its matrix, and as many cells as it has; blocks of large matrices are in between."""
    launched, begun, asked, compile_one = [], set(), set(), lambda source: on_host(source, "cellwise")

    def counted(source, *_, **__):
        asked.add(source)
        function = compile_one(source)
        return [lambda grid, *rest, **more: launched.append(grid[0]) or function(grid, *rest, **more)]

    monkeypatch.setattr(cellwise, "begin", begun.add)
    monkeypatch.setattr(cellwise, "functions", counted)
    monkeypatch.setattr(cellwise, "upload", lambda array: array)
    monkeypatch.setattr(cellwise, "current_device", lambda: HOST)
    monkeypatch.setattr(cellwise, "limits", lambda: Limits(multiprocessors=0))
    of_tiles = MatrixTiles.of
    monkeypatch.setattr(MatrixTiles, "of", lambda matrix, tiles: None if len(matrix) == 14 else of_tiles(matrix, tiles))
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 2, dtype=np.float32))
    whole = c0.low_energy_matrix
    blocks = [own.part(cells) for own in whole.blocks for cells in np.split(np.arange(own.shape[0]), [1, 4, 4, 50])]
    Q, x = BlockMatrix(blocks, whole.rows), rng.standard_normal(c0.size).astype(np.float32)
    cellwise.begin_tiles(whole)
    matrices = [FactorisedMatrix([csr_array(rng.standard_normal((own.shape[1],) * 2))]) for own in blocks]
    own = cellwise.CudaCellwise(CellMatrices(matrices, Q, Q, HostVectorSpace(HOST), np.float32, True))
    exact = CellwiseProduct(CellMatrices(matrices, Q, Q, HOST_VECTORS, np.float32))
    shapes = [block.n_modes for block in c0.space.blocks if block.n_modes != 14]
    for found, wanted in ((own.apply(x), exact.apply(x)), (own.transposed(x), exact.transposed(x))):
        assert 1e-5 < np.abs(found - wanted).max() / np.abs(wanted).max() < 2.0**-8
    assert begun == asked and len(begun) == len(shapes)
    assert len(launched) == 2 * len(shapes) and len(c0.space.blocks) > len(shapes) > 1 and min(launched) > 2


@pytest.mark.parametrize("architecture", ["sm_90", *long("sm_80", "sm_100")])
@pytest.mark.parametrize("n", [8, 125, 1331, *long(20, 512, 729, 1000, 1536)])
def test_it_compiles_without_spills(n, architecture):
    log = nvrtc.compile_source(program(MatrixTiles.of(np.zeros((n, n))).source(np.int32)), architecture).log
    assert "0 bytes spill stores" in log and " spill stores" not in log.replace(" 0 bytes spill stores", "")
