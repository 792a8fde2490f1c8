"""Index tables and the vector work of conjugate gradients: the CUDA kernels run on the CPU, against sparse matrices."""

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product as combinations
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import hpfem as hp
from hpfem.backends.cuda.codegen.pointwise import parameter_names
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.runtime.scratch import StreamPool
from hpfem.backends.cuda.vectors import indexed
from hpfem.backends.cuda.vectors import iteration as cuda_iteration
from hpfem.backends.cuda.vectors.conjugate import RING
from hpfem.backends.cuda.vectors.conjugate import source as conjugate_source
from hpfem.backends.cuda.vectors.function import source as function_source
from hpfem.backends.cuda.vectors.indexed import THREADS, IndexedRestriction, IndexTables, bits_at, rows_per_thread
from hpfem.backends.cuda.vectors.indexed import source as sparse_source
from hpfem.backends.cuda.vectors.iteration import Graph
from hpfem.backends.cuda.vectors.messages import source as messages_source
from hpfem.backends.cuda.vectors.space import CudaVectors
from hpfem.backends.iteration import Stop
from hpfem.backends.sharing import Sharing
from hpfem.backends.vectors import HOST_VECTORS
from hpfem.forms.trace import trace_function
from hpfem.memory import HOST
from hpfem.mesh import box
from tests.assembly.meshes import ours, rotated
from tests.backends.cuda.host_vectors import HostVectors, block_matrix, kernels, library, run, widened
from tests.fake_cupy import FakeStream, fake_cuda
from tests.samples import long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the libraries are."""
    return tmp_path_factory.mktemp("kernels")


def tables_of(c0, keep=None, wide=False):
    """Tables of a space, and the number of components."""
    tables = IndexTables(c0.block_matrix, keep)
    return widened(tables) if wide else tables


ORDERS = {"hex": 4, "prism": 3, "pyramid": 3, "tet": 2}
CASES = {
    "signed": (lambda rng: box("hex", (2, 1, 2)), 4, "lagrange", np.float64, 1, False),
    "dense": (lambda rng: ours("cube_mixed.msh"), 3, "modified", np.float64, 3, False),
    "wide": (lambda rng: rotated(ours("cube_mixed.msh"), rng), 3, "modified", np.float64, 1, True),
    "single": (lambda rng: rotated(box("tet", (2, 2, 2)), rng), 4, "modified", np.float32, 2, False),
    "orders": (lambda rng: ours("cube_mixed.msh"), ORDERS, "modified", np.float64, 2, False),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_products_are_those_of_the_sparse_matrix(case, masked, folder, rng, monkeypatch):
    monkeypatch.setattr(indexed, "FEWEST", 0 if masked else indexed.FEWEST)  # two columns a thread, or one
    make, order, basis, dtype, components, wide = CASES[case]
    c0 = hp.C0Space(hp.Space(make(rng), order, basis, dtype=dtype))
    free = rng.random(c0.size) < 0.8 if masked else None
    tables = tables_of(c0, free, wide)
    assert tables.codes.dtype == (np.int64 if wide else np.int32)
    assert len(tables.values) > 0 or c0.signed
    own = library(tables.source(dtype, components), ("scatter", "gather", "fold"), folder)
    blocks = tables.gather_blocks(c0.size)
    a = tables
    Q = c0.matrix if free is None else csr_array(c0.matrix * free)
    none, tolerance = None, 1e-13 if dtype == np.float64 else 1e-5
    vector = rng.standard_normal((components, c0.size)).astype(dtype)
    # Scatter, block by block, in any order of the threads.
    parts = []
    for number, (first, last) in enumerate(zip(tables.starts, tables.starts[1:], strict=False)):
        out = np.full((components, last - first), np.nan, dtype)
        count = -(-int(last - first) // (rows_per_thread(components) * THREADS))
        head = (np.int64(last - first), np.int64(c0.size), a.codes[first:last], a.row_starts, a.columns, a.values)
        run(own, "scatter", count, 0, *head, vector, out, none, descending=number % 2 == 1)
        assert np.abs(out - (Q[first:last] @ vector.T).T).max() < tolerance
        parts.append(out)
        untouched = np.full_like(out, 7)
        run(own, "scatter", count, 0, *head, vector, untouched, np.ones(1, np.int32))
        assert np.all(untouched == 7)
    # Gather, with the identity where nothing is, and the sums of the product.
    local = rng.standard_normal((components, Q.shape[0])).astype(dtype)
    packed = np.concatenate([local[:, i:j].ravel() for i, j in zip(tables.starts, tables.starts[1:], strict=False)])
    head = (np.int64(c0.size), np.int64(tables.single), a.starts, a.order, a.slice_starts, a.entry_codes, a.entry_rows)
    wanted = (Q.T @ local.T).T
    scale = np.abs(wanted).max()
    out, one = np.full((components, c0.size), np.nan, dtype), np.ones((), dtype)[()]
    alone = none, none, none, one, none
    run(own, "gather", blocks, 1, *head, a.values, packed, *alone, out, none, none)
    assert np.abs(out - wanted).max() < tolerance * scale
    factors = rng.standard_normal(c0.size).astype(dtype)
    scaled = np.full_like(out, np.nan)
    run(own, "gather", blocks, 1, *head, a.values, packed, none, factors, none, one, none, scaled, none, none)
    assert np.array_equal(scaled, out * factors)
    onto = vector.copy()  # added in place
    spared = rng.random(c0.size) < 0.3
    bits = bits_at(np.flatnonzero(spared), len(spared))
    run(own, "gather", blocks, 1, *head, a.values, packed, none, none, onto, -2 * one, bits, onto, none, none)
    assert np.abs(onto - (vector - 2 * out * ~spared)).max() < tolerance * scale
    # Some columns alone, to the last bit.
    columns = np.sort(rng.choice(c0.size, c0.size // 3, replace=False))
    some, (starts, codes) = np.full((components, len(columns)), np.nan, dtype), tables.part(columns, np)
    head_of_some = (np.int64(len(columns)), np.int64(0), a.starts, a.order, starts, codes.astype(a.codes.dtype))
    head_of_some += (a.entry_rows, a.values, packed)
    run(own, "gather", tables.gather_blocks(len(columns)), 1, *head_of_some, *alone, some, none, none)
    assert np.array_equal(some, out[:, columns])
    if masked:
        wanted = np.where(free, wanted, vector)
    sums = [np.full(blocks, np.nan), np.full(blocks, np.nan)]
    for partials, descending in zip(sums, (False, True), strict=True):
        out[:] = np.nan
        rest = (packed, vector, none, none, one, none, out, partials, none)
        run(own, "gather", blocks, 1, *head, a.values, *rest, descending=descending)
        assert np.abs(out - wanted).max() < tolerance * scale
    assert sums[0].sum() == pytest.approx(np.sum(vector.astype(float) * out), rel=1e-12)
    assert np.array_equal(*sums)
    counted = free if masked else np.ones(c0.size, dtype=bool)
    run(own, "gather", blocks, 1, *head, a.values, packed, vector, none, none, one, bits, out, sums[1], none)
    assert sums[1].sum() == pytest.approx(np.sum((vector.astype(float) * out)[:, counted | ~spared]), rel=1e-10)
    assert np.abs(out - wanted).max() < tolerance * scale
    folded, many = np.full(3, np.nan), rng.standard_normal(2 * THREADS + 5)
    run(own, "fold", 3, 1, np.int32(len(many)), many, folded, none)
    assert folded.sum() == pytest.approx(many.sum(), abs=1e-12 * len(many))
    out[:] = 7
    run(own, "gather", blocks, 1, *head, a.values, packed, vector, *alone[1:], out, sums[0], np.ones(1, np.int32))
    assert np.all(out == 7)


def test_entries_of_columns_are_in_order(rng):
    """Those +-1 by rows, then others as they are listed; columns of most entries first."""
    n, many, columns = 3000, 700, np.sort(rng.choice(90, 40, replace=False))
    places = np.where(np.arange(n) < many, columns[3], columns[rng.integers(4, 40, n)])
    dense = np.zeros((n, 90))
    dense[np.arange(n), places] = rng.choice([-1.0, 1.0], n)
    dense[::7, columns[:8]] = rng.uniform(2, 3, (len(dense[::7]), 8))
    Q = block_matrix(csr_array(dense), [0, 1000, n])
    tables = IndexTables(Q, keep := rng.random(90) < 0.8)
    counts = np.count_nonzero(dense * keep, axis=0)
    assert np.array_equal(np.sort(tables.order), np.arange(tables.single)) and tables.single == 90
    assert (np.diff(counts[tables.order]) <= 0).all() and counts.max() > many and (counts == 0).sum() > 40
    for rank, column in enumerate(tables.order):
        a, b = tables.slice_starts[rank // indexed.SLICE :][:2]
        entries = tables.entry_codes[a + rank % indexed.SLICE : b : indexed.SLICE]
        one, rest = entries[: counts[column]], entries[counts[column] :]
        several = -2 - one[one < 0]
        assert (rest == -1).all() and (np.diff(one < 0) >= 0).all() and (np.diff(several) > 0).all()
        rows = np.concatenate([one[one >= 0] >> 1, tables.entry_rows[several]])
        values = np.concatenate([1 - 2 * (one[one >= 0] & 1), tables.values[several]])
        assert (np.diff(one[one >= 0]) > 0).all() and np.array_equal(dense[rows, column], values)


@pytest.mark.parametrize("case", CASES)
def test_local_numbers_may_stand_by_entity(case, rng):
    """The columns of the moved tables are the same numbers of a local vector in the other order."""
    make, order, basis, dtype, _, wide = CASES[case]
    c0 = hp.C0Space(hp.Space(make(rng), order, basis, dtype=dtype))
    tables, blocks = tables_of(c0, wide=wide), c0.block_matrix.blocks
    chosen = [number != 1 for number in range(len(blocks))]
    moved = tables.by_entity(c0.block_matrix, chosen, HOST_VECTORS)
    local = []
    for first, own, moves in zip(tables.starts, blocks, chosen, strict=False):
        rows = first + np.arange(np.prod(own.shape)).reshape(own.shape)
        local.append((rows[:, own.modes] if moves else rows).ravel())
    local = np.concatenate(local)
    one = tables.entry_codes >= 0
    assert np.array_equal(local[moved.entry_codes[one] >> 1], tables.entry_codes[one] >> 1)
    assert np.array_equal(moved.entry_codes[one] & 1, tables.entry_codes[one] & 1)
    assert np.array_equal(moved.entry_codes[~one], tables.entry_codes[~one])
    assert np.array_equal(local[moved.entry_rows], tables.entry_rows)
    assert moved.order is tables.order and moved.entry_codes.dtype == tables.entry_codes.dtype
    assert not np.array_equal(moved.entry_codes, tables.entry_codes) or order == 1


def test_a_restriction_in_another_type_has_the_same_tables(rng, monkeypatch):
    """Conditions on the same functions in another type take it; each is what would be made anew."""
    space = hp.Space(rotated(ours("cube_mixed.msh"), rng), 3)
    bc = hp.BoundaryConditions(hp.C0Space(space), dirichlet=0.0)
    own = type(bc.c0.vectors_on(HOST))
    monkeypatch.setattr(own, "restriction", lambda self, Q, *given: IndexedRestriction(Q, self, *given))
    other = bc.at(bc.c0.at(space.at(None, None, None, np.float32)), slice(None), None)
    given, found = bc.restriction(HOST), other.restriction(HOST)
    anew = IndexedRestriction(other.c0.block_matrix, HOST_VECTORS, np.float32, other.free)
    assert found._tables.codes is given._tables.codes and found._dtype == np.float32
    for name, array in vars(anew._tables).items():
        same = getattr(found._tables, name)
        assert np.array_equal(same, array) and getattr(same, "dtype", None) == getattr(array, "dtype", None)
    assert [len(own) for own in found._codes] == [len(own) for own in anew._codes]


@pytest.fixture
def system(rng):
    """A matrix, positive definite, and a right-hand side."""
    n = 1500
    matrix = rng.standard_normal((n, 40))
    matrix = matrix @ matrix.T / 40 + np.diag(rng.uniform(1, 3, n))
    return matrix, rng.standard_normal(n)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*combinations(("none", "diagonal", "function"), (np.float64, np.float32)), ("rounded diagonal", np.float64)],
)
def test_iterations_are_those_of_the_host(kind, dtype, system, folder):
    matrix, b = (part.astype(dtype) for part in system)
    inverse = (1 / np.diag(matrix)).astype(np.float32 if kind == "rounded diagonal" else dtype)
    M = None if kind == "none" else lambda r: r * inverse
    tol = 1e-9 if dtype == np.float64 else 1e-4
    x, info = hp.cg(lambda p: matrix @ p, b, M, tol=tol)
    own = kernels(dtype, folder, inverse=inverse.dtype.type)
    v = HostVectors(own, b, tol, inverse if kind.endswith("diagonal") else None)
    v.direction(M(v.r) if kind == "function" else None)
    # More than are needed: once there, nothing changes.
    for _ in range(info.iterations + 5):
        v.iterate(lambda p: matrix @ p, M if kind == "function" else None)
    seen = v.control[0]
    assert Stop(seen["stopped"]) == Stop.CONVERGED
    assert seen["finished"] == info.iterations < RING
    assert np.allclose(
        seen["residual"][: info.iterations + 1], info.residuals, rtol=1e-6 if dtype == np.float64 else 0.1
    )
    assert np.abs(v.x - x).max() < 10 * tol * np.abs(x).max()


def test_a_preconditioner_may_be_rough_and_leave_some_entries_as_they_are(system, folder, rng):
    matrix, b = system
    free = rng.random(len(b)) < 0.9
    matrix = np.where(np.outer(free, free), matrix, 0) + np.diag(1.0 * ~free)
    inverse = (1 / np.diag(matrix)).astype(np.float32)
    x, info = hp.cg(
        lambda p: matrix @ p, b, lambda r: np.where(free, inverse * (r * free).astype(np.float32), r), tol=1e-9
    )
    v = HostVectors(
        kernels(np.float64, folder), b, 1e-9, None, rough=kernels(np.float64, folder, other=np.float32), free=free
    )
    v.direction(inverse * v.copy)
    for _ in range(info.iterations + 5):
        v.iterate(lambda p: matrix @ p, lambda r: inverse * r)
    seen = v.control[0]
    assert Stop(seen["stopped"]) == Stop.CONVERGED and seen["finished"] == info.iterations
    assert np.allclose(seen["residual"][: info.iterations + 1], info.residuals, rtol=1e-6)
    assert np.array_equal(v.copy, np.where(free, v.r, 0).astype(np.float32)) and np.allclose(v.x, x, atol=1e-8)


@pytest.mark.parametrize("kind", ["none", "diagonal", "function"])
def test_processes_count_what_they_own_and_add_up(kind, system, folder):
    matrix, b = system
    n, inverse, seen = len(b), 1 / np.diag(matrix), []
    M = (lambda r: r * inverse) if kind == "function" else None
    x, info = hp.cg(lambda p: matrix @ p, b, None if kind == "none" else lambda r: r * inverse, tol=1e-9)
    # Both have all entries; the first one owns 700 of them, the second one the others.
    own, both = np.arange(n) < 700, threading.Barrier(2)
    given = [None, None]

    def process(rank):
        def add(total):
            given[rank] = total.copy()
            both.wait()
            total[:] = given[0] + given[1]
            both.wait()

        bits = np.packbits(own == (rank == 0), bitorder="little")
        owned = np.concatenate([bits, np.zeros(-len(bits) % 4, np.uint8)]).view(np.uint32)
        diagonal = inverse if kind == "diagonal" else None
        v = HostVectors(kernels(np.float64, folder, True), b, 1e-9, diagonal, owned=owned, add=add)
        v.direction(None if M is None else M(v.r))
        for _ in range(info.iterations + 3):
            v.iterate(lambda p: matrix @ p, M)
        return v

    kernels(np.float64, folder, True)  # compiled before two threads need it
    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(process, range(2)))
    assert np.array_equal(seen[0].x, seen[1].x)
    for v in seen:
        assert Stop(v.control[0]["stopped"]) == Stop.CONVERGED and v.control[0]["finished"] == info.iterations
        assert np.abs(v.x - x).max() < 1e-8 * np.abs(x).max()


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(("dtype", "components"), [(np.float64, 1), (np.float64, 3), (np.float32, 2)])
def test_messages_of_all_neighbours_are_combined_at_once(dtype, components, index, folder, rng):
    # Four processes with some of 700 things each, the last one with none.
    has = [np.sort(rng.permutation(700)[:count]) for count in (500, 600, 300, 0)]
    common = {(a, b): np.intersect1d(has[a], has[b]) for a in range(4) for b in range(4) if a != b}
    sharings = [
        Sharing(
            SimpleNamespace(rank=a), len(has[a]), {b: np.searchsorted(has[a], common[a, b]) for b in range(4) if b != a}
        )
        for a in range(4)
    ]
    rows = [rng.standard_normal((components, len(own))).astype(dtype) for own in has]
    compiled = library(messages_source(dtype, index), ("combine",), folder)
    sent = [
        HOST_VECTORS.messages(sharing).packed(part[:, sharing.sent])
        for part, sharing in zip(rows, sharings, strict=True)
    ]
    whole = np.zeros((components, 700), dtype)
    for part, own in zip(rows, has, strict=True):
        whole[:, own] += part  # in the order of the processes
    first = np.full_like(whole, np.nan)
    for part, own in reversed(list(zip(rows, has, strict=True))):
        first[:, own] = part
    for rank, sharing in enumerate(sharings):
        received = np.full_like(sent[rank], np.nan)
        for other, part in sharing.parts.items():
            received[part] = sent[other][sharings[other].parts[rank]]
        for owners, expected in ((False, whole), (True, first)):
            table = sharing.of_owners if owners else sharing.sums
            out, n = rows[rank].copy(), len(sharing.shared)
            sizes = np.int64(n), np.int32(components), np.int64(len(received))
            arrays = (a.astype(index) for a in (table.indptr, table.indices, sharing.shared))
            given = (*sizes, *arrays, sent[rank], received)
            rest = (None, np.int64(sharing.size), out)
            run(compiled, "combine", -(-n // THREADS), 0, *given, *rest, descending=owners)
            assert np.array_equal(out, expected[:, has[rank]])  # to the last bit
            host = rows[rank].copy()
            messages = HOST_VECTORS.messages(sharing)
            messages.combine(host, sent[rank], received, owners)
            assert np.array_equal(host, out)
            scale, scaled = rng.standard_normal(sharing.size).astype(dtype), rows[rank].copy()
            run(compiled, "combine", -(-n // THREADS), 0, *given, scale, np.int64(sharing.size), scaled)
            messages.combine(host := rows[rank].copy(), sent[rank], received, owners, scale)
            assert np.array_equal(scaled, host)
            wanted = (scale * expected[:, has[rank]])[:, sharing.shared]
            assert np.array_equal(host[:, sharing.shared], wanted)
            assert np.array_equal(np.delete(host, sharing.shared, 1), np.delete(rows[rank], sharing.shared, 1))


def test_the_last_iterations_are_kept(system, folder):
    matrix, b = system
    v = HostVectors(kernels(np.float64, folder), b, 1e-300, None)
    v.direction()
    for _ in range(RING + 6):
        v.iterate(lambda p: matrix @ p)
    seen = v.control[0]
    assert seen["finished"] == RING + 6 and Stop(seen["stopped"]) == Stop.RUNNING
    assert seen["residual"][(RING + 6) % RING] < 1e-6 * seen["residual"][7]


def test_breakdowns_stop_and_say_why(system, folder):
    matrix, b = system
    own, signs = kernels(np.float64, folder), np.where(np.arange(len(b)) < 750, 1.0, np.nan)
    for product, M, why in (
        (lambda p: -matrix @ p, None, Stop.OPERATOR),
        (lambda p: 0 * p, None, Stop.OPERATOR),
        (lambda p: matrix @ p * signs, None, Stop.NOT_FINITE),
        (lambda p: matrix @ p, lambda r: -r, Stop.PRECONDITIONER),
        (lambda p: matrix @ p, lambda r: r * np.inf, Stop.NOT_FINITE),
    ):
        v = HostVectors(own, b, 1e-9, None)
        v.direction(None if M is None else M(v.r))
        for _ in range(3):
            v.iterate(product, M)
        seen = v.control[0]
        assert Stop(seen["stopped"]) == why and seen["finished"] == 0
        assert np.all(v.x == 0) and np.array_equal(v.r, b)
    v = HostVectors(own, b, 1e-9, None, most=4)
    v.direction()
    for _ in range(6):
        v.iterate(lambda p: matrix @ p)
    assert Stop(v.control[0]["stopped"]) == Stop.EXHAUSTED and v.control[0]["finished"] == 4
    # A first guess that is good enough is left as it is.
    v = HostVectors(own, b, 2.0, None)
    v.direction()
    v.iterate(lambda p: matrix @ np.zeros_like(p))
    assert Stop(v.control[0]["stopped"]) == Stop.CONVERGED and abs(v.control[0]["residual"][0] - 1) < 1e-15
    assert np.all(v.x == 0)


class CapturingStream(FakeStream):
    """A stream of the fake GPU that captures."""

    def begin_capture(self):
        """Begin."""
        self.capturing = True

    def end_capture(self):
        """A graph."""
        self.capturing = False
        return "launched", 0


@pytest.mark.parametrize("error", [None, hp.DeviceError("cuBLAS is not there"), ValueError("a bug")])
def test_scratch_of_a_graph_comes_back(error, monkeypatch):
    pool, used = StreamPool(), []

    def step():
        used.append(pool.take(object))
        pool.give(used[-1])
        if error is not None:
            raise error

    with fake_cuda() as gpus:
        sys.modules["cupy"].cuda.Stream = lambda non_blocking, priority=0: CapturingStream(gpus)
        monkeypatch.setattr(Graph, "launch", lambda graph: graph._graph)
        monkeypatch.setattr(cuda_iteration, "_ended", CapturingStream.end_capture)
        monkeypatch.setattr(cuda_iteration, "_call", lambda name, graph: None)
        own, iteration = gpus.stream, CudaVectors.iteration
        if isinstance(error, ValueError):
            with pytest.raises(ValueError, match="a bug"):
                iteration.capture(step, 3, "some iterations")
        else:
            graph = iteration.capture(step, 3, "some iterations")
            assert (graph is None) == (error is not None)
            if graph is not None:
                # One for all steps, in order; the graph's as long as that is there.
                assert used == [used[0]] * 3 and graph.launch() == "launched"
                assert pool.take(object) is not used[0]
                graph.release()
        assert gpus.stream is own and not own.capturing
        assert pool.take(object) is used[0]


@pytest.mark.parametrize("architecture", ["sm_90", *long("sm_80", "sm_100")])
def test_they_compile_without_spills(architecture, monkeypatch):
    tables = IndexTables(block_matrix(np.eye(4), [0, 4]))
    one_each = tables.source(np.float64, 1)
    monkeypatch.setattr(indexed, "FEWEST", 0)
    gradients = (conjugate_source(np.float64, np.float32, other is None, other) for other in (None, np.float32))
    messages = messages_source(np.float64, np.int32)
    for source in (one_each, tables.source(np.float64, 1), tables.source(np.float64, 3), *gradients, messages):
        binary = nvrtc.compile_source(program(source), architecture)
        spilled = [int(count) for count in re.findall(r"(\d+) bytes spill stores", binary.log)]
        # One number where the compiler takes 32 registers for as many warps as there can be, on sm_80.
        assert spilled and max(spilled) <= 8 * (architecture == "sm_80")


@pytest.mark.parametrize("lanes", [1, 4, 256])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_products_with_sparse_matrices(lanes, dtype, index, folder, rng):
    matrix = csr_array(random_array((301, 217), density=0.05, rng=rng, dtype=dtype))
    own = library(sparse_source(dtype, index, lanes), ("multiply",), folder)
    x, out = rng.standard_normal(217).astype(dtype), np.full(301, np.nan, dtype)
    arrays, one = (matrix.indptr.astype(index), matrix.indices.astype(index), matrix.data, x), dtype(1)
    tolerance, launch = (
        1e-13 if dtype == np.float64 else 1e-5,
        partial(run, own, "multiply", -(-301 * lanes // THREADS), 1),
    )
    for descending in (False, True):
        launch(np.int64(301), *arrays, None, None, one, out, descending=descending)
        assert np.abs(out - matrix @ x).max() < tolerance
    onto = rng.standard_normal(400).astype(dtype)  # some entries, in place
    places, wanted = rng.permutation(400)[:301], onto.copy()
    wanted[places] -= 2 * out
    launch(np.int64(301), *arrays, places, onto, dtype(-2), onto)
    assert np.abs(onto - wanted).max() < tolerance and not np.array_equal(onto[places], wanted[places] + 2 * out)


def test_functions_of_the_coordinates(folder, rng):
    """The kernel of a traced function, with numbers from outside of it, against NumPy."""
    scale, shift = 2.5, -0.75

    def function(x, y):
        inside = np.where(x > 0.5, np.sqrt(x) / (2 + y), -np.abs(y)) + shift
        return [inside, scale, np.minimum(x, y) - np.exp(-x) * y**3, np.tanh(x) + scale * np.cos(y)]

    trace, numbers = trace_function(function, 2)
    x = rng.random((2, THREADS + 3))
    n, out = x.shape[1], np.full((4, x.shape[1]), np.nan)
    own = library(function_source(trace, 2), ("evaluate",), folder)
    given = [np.float64(numbers[name]) for name in parameter_names(trace)]
    assert given
    run(own, "evaluate", -(-n // THREADS), 1, np.int64(n), x, out, *given)
    expected = np.array([part * np.ones(n) for part in function(*x)])
    assert np.abs(out - expected).max() < 1e-14
