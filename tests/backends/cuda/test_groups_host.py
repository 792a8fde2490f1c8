"""Matrices of groups in place, the CUDA kernel run on the CPU, against a sparse matrix."""

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

from hpfem.backends import vectors_on
from hpfem.backends.base import BACKENDS
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.vectors.groups import MOST, THREADS, source, tables
from tests.backends.cuda.host_vectors import library, run
from tests.samples import long

SIZES = {"small": [2, 3, 2, 7, 1, 5] * 20, "all": [2] * 50 + [40, 64, 65, 3, 150], "one": [3]}


def groups(sizes, dtype, rng, n=2000, written=1.0):
    """Members, of which some are not written, and a matrix that has zeros, with its columns in any order."""
    members = rng.permutation(n)[: sum(sizes)]
    blocks = [rng.standard_normal((k, k)) * (rng.random((k, k)) < 0.8) + np.eye(k) for k in sizes]
    inside = csr_array(block_diag(blocks) if sizes else (0, 0)).tocoo()
    order = rng.permutation(len(inside.data))
    entries = inside.data[order].astype(dtype), (inside.row[order], members[inside.col[order]])
    rows = np.flatnonzero(rng.random(len(members)) < written)
    return members[rows], csr_array(entries, shape=(len(members), n))[rows]


@pytest.mark.parametrize(("sizes", "dtype", "written"), [
    ("small", np.float32, 0.8), ("all", np.float64, 0.9), ("all", np.float32, 1.0), ("one", np.float64, 1.0)
])  # fmt: skip
def test_groups_are_multiplied_in_place(sizes, dtype, written, tmp_path, rng):
    members, matrix = groups(SIZES[sizes], dtype, rng, written=written)
    pieces, _, rows, _ = found = tables(members, matrix)
    room = np.int32(np.diff(pieces).max())
    assert rows["size"].max() == max(SIZES[sizes]) and room < 64 + max(SIZES[sizes])
    own, z = library(source(dtype), ("groups",), tmp_path), rng.standard_normal(2000).astype(dtype)
    wanted = z.copy()
    wanted[members] = matrix @ z
    shared = dtype().itemsize * (int(room) + THREADS)
    for descending in (False, True):
        given = z.copy()
        run(own, "groups", len(pieces) - 1, 0, room, *found, given, descending=descending, shared=shared)
        assert np.abs(given - wanted).max() < 100 * np.finfo(dtype).eps


@pytest.mark.parametrize("architecture", ["sm_90", *long("sm_80", "sm_100")])
def test_they_compile_without_spills(architecture):
    assert nvrtc.compile_source(program(source(np.float64)), architecture).resources.spill_bytes == 0


@pytest.mark.parametrize("sizes", [[2, 5, 9, 4], [2, MOST + 1], []])
def test_a_device_multiplies_groups(backend, sizes, rng):
    members, matrix = groups(sizes, np.float64, rng, written=0.9)
    vectors, z = vectors_on(BACKENDS[backend].device()), rng.standard_normal(2000)
    given = vectors.from_host(z) * 1
    vectors.in_groups(matrix, members)(given)
    z[members] = matrix @ z
    assert (tables(members, matrix) is None) == (not 0 < max(sizes, default=0) <= MOST)
    assert np.allclose(vectors.to_host(given), z, rtol=0, atol=1e-11)
