"""Benchmark problems are what they are called, and a run measures every combination, consistently."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.roofline import Roofline
from hpfem.benchmarks import BENCHMARKS, BOX_SHAPES, SOLID_SHAPES, BenchSettings, Runner, compare_algorithms
from hpfem.benchmarks.problems import problem_bytes, problem_mesh, problem_sizes, problem_space
from hpfem.benchmarks.repeated import RepeatedGeometry
from hpfem.errors import ArgumentError, NotSuitable
from hpfem.forms.cost import operator_bytes, operator_flops
from hpfem.geometry.block_geometry import BlockGeometry
from hpfem.geometry.rounding import outside

LIMITS = dict.fromkeys(("float64", "float32"), Roofline(bandwidth=1e10, flops=1e11, details={}))
QUICK = {"repeats": 1, "min_seconds": 1e-4, "backend": "numpy"}


@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_problems_are_of_one_block_of_the_kind_asked_for(shape):
    [size] = problem_sizes(shape, 2, [300])
    for geometry in ("affine", "deformed"):
        mesh = problem_mesh(shape, size.counts, geometry)
        assert mesh.n_cells == size.n_cells
        [block] = hp.Space(mesh, 2).blocks
        assert block.shape.name == shape and block.affine == (geometry == "affine")
        assert block.n_modes * size.n_cells == size.n_dofs
        assert mesh.summary().worst_scaled_jacobian > 0.3
        mesh.transformed(lambda x: x, check=True)
    with pytest.raises(ArgumentError, match="unknown geometry 'bent'; valid: deformed, affine"):
        problem_mesh(shape, size.counts, "bent")


@pytest.mark.parametrize("geometry", ["affine", "deformed"])
@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_large_problems_are_copies_of_a_patch_that_fit_together(shape, geometry):
    [size] = problem_sizes(shape, 1, [3e4])
    assert size.copies > 1 and size.n_dofs == pytest.approx(3e4, rel=0.1)
    space = problem_space(shape, 1, size, geometry)
    [block] = space.blocks
    assert (block.n_elements, block.n_modes * block.n_elements) == (size.n_cells, size.n_dofs)
    assert block.affine == (geometry == "affine")
    # A row of unit boxes: wavy ends, but as much space.
    assert space.integrate(space.evaluate(lambda *x: 1.0)) == pytest.approx(size.copies, rel=1e-6)
    # The right side of a patch is the left one of the next.
    points = problem_mesh(shape, size.counts, geometry).points
    box_points = problem_mesh(shape, size.counts, "affine").elevated(1 + (geometry == "deformed")).points
    left, right = (points[np.isclose(box_points[:, 0], end)] for end in (0, 1))
    left[:, 0] += 1
    assert len(left) and np.allclose(left[np.lexsort(left.T.round(9))], right[np.lexsort(right.T.round(9))], atol=1e-12)


@pytest.mark.parametrize("lanes", [1, 8, 24, 7])
@pytest.mark.parametrize("kind", ["wJ", "metric", "jacobian", "points"])
def test_every_element_of_a_copy_has_factors_of_its_own(kind, lanes):
    patch = hp.Space(problem_mesh("prism", (2, 1, 1), "deformed"), 2).blocks[0].geometry
    made = RepeatedGeometry(patch, 11 * patch.n_elements, moved=True)
    plain = BlockGeometry(made.shape, made.order, made.coefficients, made.rule, made.kind)
    found = made.factors(kind, lanes, np.float32)
    assert found.strides[0] > 0 and found.flags.c_contiguous and found.dtype == np.float32
    np.testing.assert_allclose(found, plain.factors(kind, lanes, np.float32), rtol=1e-5, atol=1e-7)
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(again.factors(kind, lanes), made.factors(kind, lanes))


@pytest.mark.parametrize("moved", [False, True])
def test_copies_are_in_range_if_the_few_elements_are(moved):
    """So that factors in float32 may be asked for."""
    patch = hp.Space(problem_mesh("hex", (2, 1, 1), "deformed"), 2).blocks[0].geometry
    made = RepeatedGeometry(patch, 11 * patch.n_elements, moved=moved)
    assert len(outside(made, np.float32)) == 0 and made.widths.max() == patch.widths.max()


@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_sizes_are_near_those_wanted_and_each_is_there_once(shape):
    sizes = problem_sizes(shape, 4, [1e4, 1e5, 1e6])
    assert [size.n_dofs for size in sizes] == pytest.approx([1e4, 1e5, 1e6], rel=0.2)
    assert len(problem_sizes(shape, 7, [1, 2, 3])) == 1


def test_a_run_measures_every_combination():
    settings = BenchSettings(
        shapes=("tet", "quad"), orders=(1, 3), dofs=(300, 3000), algorithms=("collocated", "noncollocated"), **QUICK
    )
    run = Runner(settings, LIMITS)
    cases = list(run)
    assert len(cases) == len(run.cases) == 2 * 2 * 2 * 2
    assert len(run.measurements) == len(cases) * 4 and not run.skipped
    keys = {(m.shape, m.order, m.n_dofs, m.geometry, m.strategy, m.algorithm) for m in run.measurements}
    assert len(keys) == len(run.measurements)
    assert {m.strategy for m in run.measurements} == {"stdmat", "sumfac"}
    for m in run.measurements:
        assert m.n_dofs == m.n_cells * m.n_modes
        assert m.best <= m.low <= m.seconds <= m.high <= m.worst
        assert m.dofs_per_second == pytest.approx(m.n_dofs / m.seconds)
        assert m.fraction == pytest.approx(max(m.nbytes / 1e10, m.flops / 1e11) / m.seconds)
        assert (m.bound == "flops") == (m.flops / 1e11 > m.nbytes / 1e10)


def test_operations_and_bytes_are_those_of_the_models():
    settings = BenchSettings(shapes=("prism",), orders=(2,), dofs=(200,), strategies=("stdmat",), **QUICK)
    run = Runner(settings, LIMITS)
    list(run)
    for m in run.measurements:
        space = hp.Space(problem_mesh("prism", run.cases[0].size.counts, m.geometry), 2)
        [choice] = hp.Helmholtz(space, lam=1.0, strategy="stdmat", algorithm=m.algorithm).choices
        problem = choice.kernel.problem
        assert m.flops == m.n_cells * operator_flops(problem, "stdmat")
        assert m.nbytes == m.n_cells * operator_bytes(problem)


def test_mass_has_one_algorithm():
    settings = BenchSettings(
        "bk1", ("hex",), (2,), (200,), ("affine",), algorithms=("collocated", "noncollocated"), dtype="float32", **QUICK
    )
    run = Runner(settings, LIMITS)
    list(run)
    assert [(m.operator, m.strategy, m.dtype) for m in run.measurements] == [
        ("Mass", "sumfac", "float32"),
        ("Mass", "stdmat", "float32"),
    ]


def test_unsuitable_strategies_are_reported(monkeypatch):
    def picky(space, **options):
        raise NotSuitable("too tall")

    monkeypatch.setitem(BENCHMARKS, "bk3", picky)
    run = Runner(BenchSettings(shapes=("hex",), orders=(2,), dofs=(200,), strategies=("sumfac",), **QUICK), LIMITS)
    list(run)
    assert not run.measurements and {entry["reason"] for entry in run.skipped} == {"too tall"}


def test_measurements_can_be_read_at_any_time():
    run = Runner(BenchSettings(shapes=SOLID_SHAPES, orders=(1,), dofs=(100,), **QUICK), LIMITS)
    next(iter(run))
    assert len(run.measurements) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shapes": ("segment",)}, "unknown shape 'segment'"),
        ({"shapes": ()}, "no shape to measure"),
        ({"orders": ()}, "orders"),
        ({"orders": (0,)}, "orders"),
        ({"orders": (4, 33)}, "orders to measure must lie between 1 and 32"),
        ({"quadrature": "magic"}, "unknown quadrature"),
        ({"dofs": ()}, "degrees of freedom"),
        ({"dofs": (0.1,)}, "degrees of freedom"),
        ({"dofs": (float("nan"),)}, "degrees of freedom"),
        ({"repeats": 0}, "repeats"),
        ({"benchmark": "bk2"}, "unknown benchmark 'bk2'"),
        ({"algorithms": ("best",)}, "unknown algorithm 'best'"),
        ({"strategies": ("best",)}, "unknown strategy 'best'"),
        ({"backend": "best"}, "unknown backend 'best'"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_measured(changes, message):
    with pytest.raises(ArgumentError, match=message):
        Runner(BenchSettings(**changes), LIMITS)


def test_too_large_problems_are_refused_before_measuring(monkeypatch):
    wanted = BenchSettings(shapes=("tet",), orders=(1, 3), dofs=(1e3, 1e11), **QUICK)
    with pytest.raises(ArgumentError, match=r"1e\+11 degrees of .* order 1 take about \S+ GiB, but .* are free"):
        Runner(wanted, LIMITS)
    monkeypatch.setattr(hp.benchmarks.cases, "available_memory", lambda: 1e6)
    with pytest.raises(ArgumentError, match="measure at most about [567]e"):
        Runner(BenchSettings(shapes=("hex",), orders=(2,), dofs=(1e6,), **QUICK), LIMITS)
    Runner(BenchSettings(shapes=("hex",), orders=(2,), dofs=(1e3,), **QUICK), LIMITS)


@pytest.mark.parametrize("geometry", ["affine", "deformed"])
@pytest.mark.parametrize("benchmark", ["bk1", "bk3"])
def test_the_estimate_of_memory_is_what_arrays_take(benchmark, geometry):
    [size] = problem_sizes("prism", 3, [3e4])
    options = {"backend": "numpy", "dtype": "float32"}
    estimate = problem_bytes(benchmark, "prism", 3, size, geometry, **options)
    space = problem_space("prism", 3, size, geometry, **options)
    [block] = space.blocks
    kind = {"bk1": "wJ", "bk3": "metric"}[benchmark]
    arrays = [block.geometry.factors(kind, 1, np.float32), block.geometry.coefficients, block.elements]
    fields = [array for _ in range(3) for array in space.zeros("coeff").arrays]
    assert estimate == pytest.approx(sum(array.nbytes for array in [*arrays, *fields]), rel=1e-3)


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_algorithms_agree_to_rounding(basis):
    mesh = problem_mesh("pyramid", (2, 1, 1), "deformed")
    rows = list(compare_algorithms(mesh, 4, basis=basis, backend="numpy", repeats=1, min_seconds=1e-4))
    named = {row.way: row for row in rows}
    assert named.keys() >= {"stdmat noncollocated", "sumfac noncollocated", "sumfac collocated"}
    assert named["stdmat noncollocated"].difference == 0 and all(row.difference < 1e-12 for row in rows)
    assert all(row.n_dofs == 12 * 55 * row.copies and row.geometry == "quadratic" for row in rows)
    work = [named[way].flops for way in ("sumfac collocated", "sumfac noncollocated", "stdmat noncollocated")]
    assert work == sorted(set(work)) or basis == "lagrange"
    assert np.isfinite([row.dofs_per_second for row in rows]).all()
