"""Arrays of more than 2^32 entries, run on the CPU: only the last elements and entries are there.

An address that was computed in 32 bits is outside of all arrays, so that the process ends.
"""

import numpy as np
import pytest
from scipy.sparse import csr_array

import hpfem as hp
from hpfem.backends.cuda.dense.plan import DenseOptions
from hpfem.backends.cuda.fused.plan import FusedOptions
from hpfem.backends.cuda.vectors.indexed import SLICE, THREADS, IndexTables, rows_per_thread
from tests.backends.cuda import dense_host, fused_host, host_kernels
from tests.backends.cuda.dense_host import DenseCase
from tests.backends.cuda.fused_host import FusedCase
from tests.backends.cuda.host_kernels import Case, first_block
from tests.backends.cuda.host_vectors import block_matrix, library, run, widened
from tests.samples import curved, norm_error, skewed, straight

# More entries than this are before those that are there; a number of elements that all kernels take whole blocks of.
MANY, WHOLE = 1 << 32, 1024 * 315 * 11


def operator(name, order, bent=True, **options):
    """Helmholtz, on all kinds of cells."""
    mesh = curved(name, order=2) if bent else skewed(straight(name))
    return hp.Helmholtz(
        hp.Space(mesh, order, **{"quadrature": "collapsed"} | options),
        lam=1.3,
        algorithm="noncollocated",
        backend="numpy",
    )


@pytest.mark.parametrize(
    ("case_of", "apply", "options", "made"),
    [
        (Case.of, host_kernels.apply, None, [("hex", 3), ("prism", 2), ("tet", 2, False), ("quad", 3)]),
        (Case.of, host_kernels.apply, "sumfac", [("pyramid", 1), ("hex", 2), ("tri", 2, False)]),
        (Case.of, host_kernels.apply, "sumfac recomputed", [("hex", 1)]),
        (DenseCase.of, dense_host.apply, DenseOptions(2, 1), [("tet", 2, False)]),
        (DenseCase.of, dense_host.apply, DenseOptions(1, 0), [("tri", 1, False)]),
        (FusedCase.of, fused_host.apply, FusedOptions(), [("tet", 2)]),
    ],
)
def test_kernels(case_of, apply, options, made, tmp_path, rng):
    cases, kernels = [], []
    for own in made:
        simplex = {"quadrature": "simplex"} if case_of == FusedCase.of else {}
        kernels.append(operator(*own, **simplex).choices[0].kernel)
        cases.append(case_of(kernels[-1].problem, f"case{len(cases)}", options))
    built = host_kernels.build(cases, tmp_path)
    for case, kernel in zip(cases, kernels, strict=True):
        problem = case.problem
        source = rng.standard_normal((1, problem.n_elements, problem.n_input))
        expected = np.empty((1, problem.n_elements, problem.n_output))
        kernel.apply(source, expected)
        before = -(-MANY // problem.n_modes // WHOLE) * WHOLE
        found = apply(built, case, source, before=before)
        assert norm_error(found, expected) < 1e-12, case.name


def test_scatter_and_gather(tmp_path, rng):
    # Whole blocks: rows beyond the last one ask for the first number of the vector, which is missing.
    block = rows_per_thread(1) * THREADS
    rows, columns = block, 200
    codes = 2 * rng.integers(0, columns, rows) + rng.integers(0, 2, rows)
    Q = csr_array((1.0 - 2 * (codes % 2), codes // 2, np.arange(rows + 1)), shape=(rows, columns))
    tables = widened(IndexTables(block_matrix(Q, [0, rows])))
    own = library(tables.source(np.float64, 1), ("scatter", "gather"), tmp_path)
    before = MANY // block * block

    def missing(array, entry=1):
        return np.uint64(array.ctypes.data - before // entry * array.itemsize)

    vector, out = rng.standard_normal(columns), np.full(rows, np.nan)
    tables.codes[...] += 2 * before  # the vector has entries before these too
    sizes, nothing = (np.int64(before + rows), np.int64(before + columns)), np.zeros(1)
    given = (*sizes, missing(tables.codes), nothing, nothing, nothing, missing(vector), missing(out), None)
    with first_block(own, before // block):
        run(own, "scatter", (before + rows) // block, 0, *given)
    assert np.array_equal(out, Q @ vector)

    local, out = rng.standard_normal(rows), np.full(columns, np.nan)
    order, tables.entry_codes[...] = tables.order + before, tables.entry_codes + 2 * before * (tables.entry_codes >= 0)
    given = (np.int64(before + columns), np.int64(before + tables.single), nothing, missing(order))
    given += (missing(tables.slice_starts, SLICE), tables.entry_codes, nothing, nothing, missing(local), None, None)
    given += (None, np.float64(0), None)
    each = THREADS * tables.columns_each
    with first_block(own, before // each):
        run(own, "gather", -(-(before + columns) // each), 1, *given, missing(out), None, None)
    assert np.abs(out - Q.T @ local).max() < 1e-13
