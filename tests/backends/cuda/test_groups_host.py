"""Matrices of groups in place, the CUDA kernel run on the CPU, against a sparse matrix."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

import hpfem as hp
from hpfem.backends import grouping, vectors_on
from hpfem.backends.base import BACKENDS
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.cuda.vectors import classes, joined
from hpfem.backends.cuda.vectors.groups import MOST, THREADS, source, tables
from hpfem.backends.cuda.vectors.space import CudaVectors
from hpfem.backends.vectors import Blocks, VectorSpace
from hpfem.memory import HOST
from tests.assembly.meshes import ours, rotated
from tests.backends.cuda.host_vectors import library, run
from tests.samples import long

SIZES = {"small": [2, 3, 2, 7, 1, 5] * 20, "all": [2] * 50 + [40, 64, 65, 3, 150], "one": [3]}


def groups(sizes, rng, n=2000):
    """Matrices, the members that they belong to, and one matrix for vectors [n]."""
    counts, members = np.sort(np.array(sizes, dtype=int))[::-1], rng.permutation(n)[: sum(sizes)]
    values = rng.standard_normal((counts**2).sum()) * (rng.random((counts**2).sum()) < 0.8)
    ends = np.append(0, np.cumsum(counts**2))
    parts = [values[a:b].reshape(k, k) for a, b, k in zip(ends, ends[1:], counts, strict=False)]
    whole = np.zeros((len(members), n))
    whole[:, members] = block_diag(parts).toarray() if parts else 0
    return Blocks(counts, values), members, whole


@pytest.mark.parametrize(
    ("sizes", "dtype"), [("small", np.float32), ("all", np.float64), ("all", np.float32), ("one", np.float64)]
)
def test_groups_are_multiplied_in_place(sizes, dtype, tmp_path, rng):
    blocks, members, matrix = groups(SIZES[sizes], rng)
    (pieces, rows), values = tables(blocks.counts), np.full(blocks.values.shape, np.nan, dtype)
    room = np.int32(np.diff(pieces).max())
    assert rows["size"].max() == max(SIZES[sizes]) and room < 64 + max(SIZES[sizes])
    own, z = library(source(dtype), ("groups", "turned"), tmp_path), rng.standard_normal(2000).astype(dtype)
    run(own, "turned", len(pieces) - 1, 0, pieces, rows, blocks.values, values)
    found = pieces, members.astype(np.int64), rows, values
    wanted = z.copy()
    wanted[members] = matrix @ z
    shared = dtype().itemsize * (int(room) + THREADS)
    for descending in (False, True):
        given = z.copy()
        run(own, "groups", len(pieces) - 1, 0, room, *found, given, descending=descending, shared=shared)
        assert np.abs(given - wanted).max() < 200 * np.finfo(dtype).eps


@pytest.fixture
def on_host(monkeypatch, tmp_path):
    """Kernels of `joined` and NumPy's arrays in place of CuPy's."""
    arrays = {name: getattr(np, name) for name in ("arange", "ones", "full", "zeros", "empty", "empty_like")}
    monkeypatch.setattr(joined, "cupy", SimpleNamespace(**arrays))
    monkeypatch.setattr(joined, "upload", np.asarray)
    monkeypatch.setattr(joined, "limits", lambda: Limits(shared_block=8 * 20 * 22))
    monkeypatch.setattr(joined, "current_device", lambda: SimpleNamespace(name="cuda:0"))

    def functions(source, _, name, shared_bytes=0):
        own = library(source, (name,), tmp_path)

        def launch(grid, threads, arguments, shared_mem=0):
            assert threads == (joined.THREADS,)
            run(own, name, grid[0], 0, *arguments, shared=shared_mem)

        return (launch,)

    monkeypatch.setattr(joined, "functions", functions)


def test_parts_of_a_graph(on_host, rng):
    n, (i, j) = 500, np.sort(rng.integers(0, 500, (2, 300)), axis=0)
    i, j = (own[np.argsort(i, kind="stable")] for own in (i, j))
    lowest = joined.parts(i, j, n)
    assert np.array_equal((np.cumsum(lowest == np.arange(n)) - 1)[lowest], grouping.parts(i, j, n))


def test_clusters_are_those_of_one_pair_after_the_other(on_host, rng):
    i, j = rng.integers(0, 200, (2, 600))
    for most in (np.full(200, 9), np.where(np.arange(200) < 100, 2, 30)):
        inside = most[i] == most[j]
        assert np.array_equal(
            joined.clusters(i[inside], j[inside], most), grouping.clusters(i[inside], j[inside], most)
        )
    assert np.array_equal(joined.clusters(i[:0], j[:0], most), np.arange(200))


def test_inverses_of_groups(on_host, rng):
    """Some larger than shared memory, one nearly singular, one indefinite: a host leaves those of its size, too."""
    counts, parts = np.array([31, 31, 7, 3, 3, 3, 1]), []
    for n in counts:
        A = rng.standard_normal((n, n))
        parts.append(A @ A.T / n + np.eye(n))
    parts[1][0], parts[1][:, 0] = parts[1][1], parts[1][:, 1]
    parts[4][0, 0] = -1
    values, scale = np.concatenate([own.ravel() for own in parts]), rng.uniform(0.5, 2, counts.sum())
    given, ends = values.copy(), np.append(0, np.cumsum(counts))
    for invert in (joined.inverses, VectorSpace(HOST).inverses):
        found, left = invert(Blocks(counts, values), scale, 1e-9, 1e5)
        assert sorted(left.tolist()) == ([1, 4] if invert is joined.inverses else [0, 1, 3, 4, 5])
        at = np.append(0, np.cumsum(counts**2))
        for k, A in enumerate(parts):
            s = scale[ends[k] : ends[k + 1]]
            wanted = A if k in left else np.linalg.inv(A) * s[:, None] / s
            assert np.allclose(found.values[at[k] : at[k + 1]].reshape(A.shape), wanted, rtol=1e-10, atol=2e-9)
        assert invert is not joined.inverses or np.array_equal(values, given)


def test_numbers_of_cells_by_their_class(monkeypatch, tmp_path, rng):
    monkeypatch.setattr(classes, "cupy", np)
    monkeypatch.setattr(classes, "upload", np.asarray)
    monkeypatch.setattr(classes, "current_device", lambda: SimpleNamespace(name="cuda:0"))
    monkeypatch.setattr(classes, "_address", lambda own: own.ctypes.data)
    given = [rng.standard_normal((n, 10)) for n in (3, 1, 700)]
    tables = [rng.standard_normal((10, m)) for m in (5, 300, 2)]
    for index in (np.int32, np.int64):
        own = library(classes.source(index), ("products", "picked"), tmp_path)

        def functions(_source, _device, name, own=own):
            return (lambda grid, _, arguments: run(own, name, grid[0], 0, *arguments),)

        monkeypatch.setattr(classes, "functions", functions)
        for found, rows, table in zip(classes.products(given, tables), given, tables, strict=True):
            assert np.allclose(found, rows @ table, rtol=0, atol=1e-13)
        codes = [rng.integers(-5, 99, (n, k)).astype(index) for n, k in ((3, 7), (1, 4), (700, 9))]
        places = [rng.integers(0, k, m) for k, m in ((7, 5), (4, 300), (9, 2))]
        for found, rows, those in zip(classes.picked(codes, places), codes, places, strict=True):
            assert np.array_equal(found, rows[:, those]) and found.dtype == index
    assert classes.products([], []) == classes.picked([], []) == []


@pytest.mark.parametrize("architecture", ["sm_90", *long("sm_80", "sm_100")])
def test_they_compile_without_spills(architecture):
    for own in (source(np.float64), joined.joined_source(), joined.inverse_source(), classes.source(np.int32)):
        assert nvrtc.compile_source(program(own), architecture).resources.spill_bytes == 0


@pytest.mark.cuda
def test_a_device_makes_the_same_groups(rng):
    n, host, device = 3000, vectors_on(HOST), vectors_on(BACKENDS["cuda"].device())
    i, j = np.sort(rng.integers(0, n, (2, 2 * n)), axis=0)
    i, j = (own[np.argsort(i, kind="stable")].astype(np.int32) for own in (i, j))
    on = [device.xp.asarray(own) for own in (i, j)]
    assert np.array_equal(device.parts(*on, n).get(), host.parts(i, j, n))
    most = np.full(n, 40)
    assert np.array_equal(device.clusters(*on, device.xp.asarray(most)).get(), host.clusters(i, j, most))
    counts = np.repeat([180, 90, 12, 3, 2], [3, 20, 50, 400, 500])
    parts = [np.eye(n) + 0.4 * np.eye(n, k=1) + 0.4 * np.eye(n, k=-1) for n in counts]
    parts[40][0, 0] = -1
    values, scale = np.concatenate([own.ravel() for own in parts]), rng.uniform(0.5, 2, counts.sum())
    found, left = device.inverses(Blocks(counts, device.xp.asarray(values)), device.xp.asarray(scale), 1e-9, 1e5)
    wanted, same = host.inverses(Blocks(counts, values), scale, 1e-9, 1e5)
    assert left.tolist() == [40] and set(left) <= set(same)
    good = np.repeat(~np.isin(np.arange(len(counts)), same), counts**2)
    assert np.abs(found.values.get() - wanted.values)[good].max() < 1e-9


@pytest.mark.parametrize("sizes", [[2, 5, 9, 4], [2, MOST + 1], []])
def test_a_device_multiplies_groups(backend, sizes, rng):
    blocks, members, matrix = groups(sizes, rng)
    vectors, z = vectors_on(BACKENDS[backend].device()), rng.standard_normal(2000)
    given = vectors.from_host(z) * 1
    vectors.in_groups(blocks, members, len(z), np.float64)(given)
    z[members] = matrix @ z
    assert np.allclose(vectors.to_host(given), z, rtol=0, atol=1e-11)


@pytest.mark.parametrize("of", [VectorSpace, CudaVectors])
def test_numbers_between_rows_are_those_between_their_unknowns(of, rng):
    Q = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 4)).low_energy_matrix
    assert not Q.signed

    class Vectors(VectorSpace):
        congruent = of.congruent

    every = np.concatenate([own.ravel() for own in Q.codes])
    rows, columns = rng.integers(0, len(every), (2, 500))
    values, i, j = Vectors(HOST).congruent(Q, C := rng.standard_normal(500), every[rows], every[columns])
    wanted = Q.matrix.T @ csr_array((C, (rows, columns)), shape=(len(every),) * 2) @ Q.matrix
    found = csr_array((values, (i, j)), shape=wanted.shape)
    assert abs(found - wanted).max() < 1e-13 * abs(wanted).max()
