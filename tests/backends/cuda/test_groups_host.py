"""Matrices of groups in place, the CUDA kernel run on the CPU, against a sparse matrix."""

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array

import hpfem as hp
from hpfem.backends import vectors_on
from hpfem.backends.base import BACKENDS
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.runtime import nvrtc
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
    pieces, _, rows, _ = found = tables(blocks, members, dtype, np)
    room = np.int32(np.diff(pieces).max())
    assert rows["size"].max() == max(SIZES[sizes]) and room < 64 + max(SIZES[sizes])
    own, z = library(source(dtype), ("groups",), tmp_path), rng.standard_normal(2000).astype(dtype)
    wanted = z.copy()
    wanted[members] = matrix @ z
    shared = dtype().itemsize * (int(room) + THREADS)
    for descending in (False, True):
        given = z.copy()
        run(own, "groups", len(pieces) - 1, 0, room, *found, given, descending=descending, shared=shared)
        assert np.abs(given - wanted).max() < 200 * np.finfo(dtype).eps


@pytest.mark.parametrize("architecture", ["sm_90", *long("sm_80", "sm_100")])
def test_they_compile_without_spills(architecture):
    assert nvrtc.compile_source(program(source(np.float64)), architecture).resources.spill_bytes == 0


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
