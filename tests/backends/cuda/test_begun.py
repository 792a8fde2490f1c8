"""Kernels that are begun with the GPU, or with a restriction, are those that are asked for later."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.cuda.runtime.device import CudaDevice, Limits
from hpfem.backends.cuda.vectors import classes, conjugate, groups, indexed, joined, space
from hpfem.backends.vectors import Blocks
from hpfem.mesh import box
from tests.backends.cuda.host_vectors import launch

DEVICE = CudaDevice(0)


@pytest.fixture
def sources(monkeypatch):
    """Sources that are begun, and that are asked for."""
    begun, asked = [], []
    monkeypatch.setattr(space, "begin", begun.append)

    def functions(source, device, *names, **options):
        asked.append(source)
        return (lambda *arguments: None,) * len(names)

    for module in (classes, conjugate, groups, indexed, joined):
        monkeypatch.setattr(module, "functions", functions)
        monkeypatch.setattr(module, "current_device", lambda: DEVICE, raising=False)
        monkeypatch.setattr(module, "upload", np.asarray)
    for module in (classes, groups, joined):
        monkeypatch.setattr(module, "cupy", np)
    monkeypatch.setattr(joined, "limits", Limits)
    monkeypatch.setattr(classes, "_address", lambda own: own.ctypes.data)
    space.begin_common.cache_clear()
    yield begun, asked
    space.begin_common.cache_clear()


def test_kernels_of_any_mesh_are_begun_with_the_device(sources):
    begun, asked = sources
    for _ in range(2):
        assert BACKENDS["cuda"].vectors(DEVICE) is not None
    single, double = np.dtype("f4"), np.dtype("f8")
    for types in ((double, double, False, single), (double, double, False, double), (single, single, False, single)):
        conjugate._kernels.__wrapped__("cuda:0", *types)
    classes.products([np.ones((1, 1))], [np.ones((1, 1))])
    joined._launcher("join")
    joined.inverses(Blocks(np.zeros(0, np.int64), np.zeros(0)), None, 0.0, 1.0)
    groups.GroupProducts(Blocks(np.ones(1, np.int64), np.ones(1)), np.zeros(1, np.int64), np.float32)
    for dtype in (single, double):
        for entries in (3, 6, 12, 24):
            indexed.SparseMatrix(csr_array(np.ones((4, entries), dtype)))
    indexed.functions(indexed.tables_source(np.int32), "cuda:0", "count_entries")
    assert set(asked) == set(begun) and len(asked) == len(begun) == len(set(begun)) == 16


def test_kernels_of_a_restriction_are_begun_with_it(sources, monkeypatch):
    begun, asked = sources
    monkeypatch.setattr(space.CudaVectors, "xp", np)
    monkeypatch.setattr(space, "IndexedRestriction", lambda Q, _, *given: indexed.IndexedRestriction(Q, HOST, *given))
    monkeypatch.setattr(indexed, "_launch", launch)
    HOST = hp.backends.vectors.HOST_VECTORS
    Q = hp.C0Space(hp.Space(box("tet", (2, 2, 2)), 2)).block_matrix
    made = [space.CudaVectors(DEVICE).restriction(Q, dtype) for dtype in (np.float32, np.float64)]
    for own in made:
        own._kernel(1)
    assert set(asked) == set(begun) and len(asked) == 2


def test_equal_numbers_are_counted_in_order(monkeypatch, rng):
    monkeypatch.setattr(space.CudaVectors, "xp", np)
    for kind in (np.int32, np.int64):
        numbers = rng.integers(0, 50, 200).astype(kind)
        wanted = hp.backends.vectors.HOST_VECTORS.equals(numbers)
        assert np.array_equal(space.CudaVectors(DEVICE).equals(numbers), wanted) and wanted[0] == sum(
            numbers == numbers[0]
        )
