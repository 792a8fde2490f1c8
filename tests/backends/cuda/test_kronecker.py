"""The kernel "kronecker", sparse matrices of one direction of affine hexes and quads: run on the CPU, and compiled."""

from dataclasses import replace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.kronecker.strategy import CudaKronecker, KroneckerOptions, KroneckerPlan
from hpfem.backends.cuda.runtime import measured, nvrtc, planned
from hpfem.backends.cuda.runtime.device import REGISTERS, Limits
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import ArgumentError, NotSuitable
from tests.backends.cuda.host_kernels import Case, apply, build
from tests.backends.cuda.host_vectors import index_tables
from tests.samples import curved, long, norm_error, plane_in_space, skewed, straight

SHAPES = ("hex", "quad")
FORMS = {
    "Helmholtz": lambda space, **k: hp.Helmholtz(space, 1.3, **k),
    "Laplacian": hp.Laplacian,
    "Mass": hp.Mass,
    "scaled": lambda space, **k: hp.Helmholtz(space, 0.7, 2.5, **k),
    "sum": lambda space, **k: (0.7 * hp.Mass(space, **k) + 2.5 * hp.Laplacian(space, **k)).volume,
}


def problem_of(form, mesh, order, algorithm="noncollocated", **options):
    """Problem of a form on few elements."""
    space = hp.Space(mesh, order, **{"quadrature": "collapsed"} | options)
    return replace(FORMS[form](space, backend="numpy").choices[0].kernel.problem, algorithm=algorithm)


def affine(shape):
    """Skewed cells, whose metric has no zeros."""
    return skewed(straight(shape))


def check(cases, folder, rng, tolerance=1e-13):
    """Compare every case with NumPy, for two components and both orders of threads."""
    library = build(cases, folder)
    for case in cases:
        problem = case.problem
        source = rng.standard_normal((2, problem.n_elements, problem.n_input)).astype(problem.dtype)
        expected = np.empty((2, problem.n_elements, problem.n_output), problem.dtype)
        NumpyKernel(problem, "sumfac").apply(source, expected)
        found = apply(library, case, source)
        assert norm_error(found, expected) < tolerance, case.name
        assert np.array_equal(found, apply(library, case, source, descending=True)), case.name


@pytest.mark.parametrize("shape", SHAPES)
def test_orders_and_forms(shape, tmp_path, rng):
    """All orders and forms, blocks of 1, 2 and 3 elements with and without one that is missing, of two components."""
    mesh = affine(shape)
    made = [problem_of(form, mesh, order) for order in range(1, 9) for form in FORMS]
    cases = [Case.of(p, f"case{n}", KroneckerOptions(1 + n % 3)) for n, p in enumerate(made)]
    check(cases, tmp_path, rng)


@pytest.mark.parametrize("shape", SHAPES)
def test_float32(shape, tmp_path, rng):
    made = [problem_of(form, affine(shape), 4, dtype=np.float32) for form in FORMS]
    check([Case.of(p, f"case{n}", KroneckerOptions(2)) for n, p in enumerate(made)], tmp_path, rng, 2e-6)


def test_any_rule_and_basis(tmp_path, rng):
    """The matrices are those of the quadrature, exact or not; a surface in space has a metric, too."""
    mesh = affine("hex")
    made = [
        problem_of("Helmholtz", mesh, 4, quadrature="collocated"),
        problem_of("Helmholtz", mesh, 3, quadrature="gauss"),
        problem_of("Helmholtz", mesh, 3, basis="orthogonal"),
        problem_of("scaled", plane_in_space("quad"), 5),
    ]
    check([Case.of(p, f"case{n}", KroneckerOptions(2)) for n, p in enumerate(made)], tmp_path, rng)


def test_global_vectors(tmp_path, rng):
    """They are read in the kernel, with signs and masked columns, to the bits that scatter gives."""
    space = hp.Space(affine("hex"), 3)
    c0 = hp.C0Space(space)
    keep = rng.random(c0.size) < 0.8
    tables = index_tables(c0.block_matrix, keep)
    vector = rng.standard_normal((2, c0.size))
    local = ((c0.matrix * keep) @ vector.T).T.reshape(2, -1, 64)
    Q = (np.int64(c0.size), tables.codes, tables.row_starts, tables.columns, tables.values)
    plain = Case.of(problem_of("Helmholtz", affine("hex"), 3), "plain", KroneckerOptions(2))
    scattered = replace(plain, name="scattered", scattered=True)
    library = build([plain, scattered], tmp_path)
    wanted = apply(library, plain, np.ascontiguousarray(local))
    assert np.array_equal(apply(library, scattered, vector, Q=Q), wanted) and np.abs(wanted).max() > 0


def test_many_elements(tmp_path, rng):
    """An address that was computed in 32 bits would be outside of all arrays: only the last elements are there."""
    made = [problem_of("Helmholtz", affine(shape), 3) for shape in SHAPES]
    cases = [Case.of(p, f"case{n}", KroneckerOptions(2)) for n, p in enumerate(made)]
    library = build(cases, tmp_path)
    for case in cases:
        source = rng.standard_normal((1, case.problem.n_elements, case.problem.n_modes))
        wanted = apply(library, case, source)
        assert np.array_equal(apply(library, case, source, before=1 << 27), wanted)


@pytest.mark.parametrize("barrier", ["  __syncthreads();\n  if constexpr (DIM == 3) {", "    __syncthreads();\n  }\n"])
def test_a_missing_barrier_is_seen(barrier, tmp_path, rng):
    case = Case.of(problem_of("Laplacian", affine("hex"), 3), "case0", KroneckerOptions(2))
    broken = case.altered(barrier, barrier.replace("__syncthreads();", ""))
    library = build([broken], tmp_path)
    source = rng.standard_normal((1, case.problem.n_elements, case.problem.n_modes))
    ahead, back = (apply(library, broken, source, descending) for descending in (False, True))
    assert not np.array_equal(ahead, back)


@pytest.fixture
def strategy(monkeypatch):
    """The strategy on a device that is not there."""
    monkeypatch.setattr(planned, "limits", Limits)
    monkeypatch.setattr(planned, "architecture", lambda: "sm_90")
    monkeypatch.setattr(planned, "start", lambda text, _: text)
    return CudaKronecker()


@pytest.mark.parametrize("architecture", ["sm_90", *long("sm_80", "sm_100")])
def test_compiled(architecture, strategy):
    """The registers of the blocks that options ask for, and none spilled; order 15 too."""
    for shape, order in (("hex", 2), ("hex", 7), ("hex", 15), ("quad", 7)):
        problem = problem_of("Helmholtz", affine(shape), order)
        plan = KroneckerPlan(problem, strategy.chosen(problem, Limits()))
        found = nvrtc.compile_source(program(plan.source()), architecture).resources
        assert found.registers * plan.threads * plan.options.min_blocks <= REGISTERS
        assert found.spill_bytes == 0, (shape, order)


def test_reasons(strategy):
    cases = [
        (problem_of("Helmholtz", curved("hex", order=2), 3), "not affine"),
        (problem_of("Helmholtz", affine("hex"), 3, "collocated"), "algorithm='noncollocated'"),
        (problem_of("Mass", affine("tet"), 3, quadrature="simplex"), "no product of rules"),
        *((problem_of("Helmholtz", affine(shape), 3), "no product of one-dim") for shape in ("prism", "tet", "tri")),
    ]
    for problem, reason in cases:
        for asked in (strategy.default, strategy.build, strategy.prepare, lambda p: next(strategy.search(p))):
            with pytest.raises(NotSuitable, match=reason):
                asked(problem)
    problem = problem_of("Helmholtz", affine("hex"), 7)
    for options, reason in (
        ("elements=17", "17 elements of 64 lines"),
        ("elements=0", "0 elements"),
        ("elements=16 min_blocks=3", "do not fit a multiprocessor"),
        ("elements=14", "shared memory"),
    ):
        with pytest.raises(NotSuitable, match=reason):
            strategy.prepare(problem, options)
    with pytest.raises(ArgumentError, match="prefetch"):
        strategy.prepare(problem, "elements=1 prefetch=1")


def test_search_and_defaults(strategy, monkeypatch):
    """Sizes of blocks, then the neighbours of the fastest; the table comes first."""
    monkeypatch.setattr(measured, "measured_table", dict)
    problem = problem_of("Helmholtz", affine("hex"), 7)
    rounds = strategy.search(problem)
    first = next(rounds)
    assert first[0] == strategy.default(problem) == "elements=2 min_blocks=4"
    assert {*first} >= {"elements=1 min_blocks=8", "elements=4 min_blocks=2"}
    second = rounds.send({options: 1 + (options != "elements=1 min_blocks=8") for options in first})
    assert {*second} == {f"elements=1 min_blocks={blocks}" for blocks in (7, 9, 10)} - {*first}
    monkeypatch.setattr(planned, "known_row", lambda *_: (99.0, "elements=3 min_blocks=2"))
    assert strategy.default(problem) == "elements=3 min_blocks=2"
    monkeypatch.setattr(planned, "known_row", lambda *_: (99.0, "elements=16 min_blocks=4"))
    assert strategy.default(problem) == "elements=2 min_blocks=4"


@pytest.mark.cuda
@pytest.mark.parametrize("shape", SHAPES)
def test_on_a_gpu(shape, rng):
    """Every order and form, one component and three, against NumPy."""
    import cupy

    strategy = BACKENDS["cuda"].strategy("kronecker")
    for order in range(1, 16 if shape == "quad" else 11):
        for form in FORMS:
            problem = problem_of(form, affine(shape), order)
            given = rng.standard_normal((3, problem.n_elements, problem.n_input))
            wanted = np.empty_like(given)
            NumpyKernel(problem, "sumfac").apply(given, wanted)
            for options in (None, "elements=1", "elements=3"):
                kernel = strategy.build(problem, options)
                for d in (1, 3):
                    out = cupy.full(wanted[:d].shape, np.nan)
                    kernel.apply(cupy.asarray(given[:d]), out)
                    assert norm_error(out.get(), wanted[:d]) < 1e-12, (form, order, options, d)
