"""The whole benchmark: every combination once, results that are right, parts that end in time and go together."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.base import BACKENDS
from hpfem.backends.cpu.backend import CpuSumFac
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.backends.roofline import Roofline
from hpfem.benchmarks import BOX_SHAPES, GEOMETRIES, read_results
from hpfem.benchmarks.cases import Case, SuiteSettings
from hpfem.benchmarks.parts import merge_results, suite_document, suite_records
from hpfem.benchmarks.repeated import RepeatedGeometry
from hpfem.benchmarks.runner import Runner
from hpfem.benchmarks.tiled import TiledBlock, TiledKernel, TiledProblem, few_elements
from hpfem.errors import ArgumentError, NotSuitable
from hpfem.forms.form import BlockKernel
from hpfem.forms.sources import possible_sources
from hpfem.geometry import FactorSource
from hpfem.geometry.block_geometry import BlockGeometry
from hpfem.support.files import write_json
from tests.standin import StandIn, StandInBackend, StandInStrategy, add_strategy

LIMITS = {dtype: Roofline(bandwidth=1e10, flops=1e11, details={}) for dtype in ("float64", "float32")}
SMALL = {
    "shapes": ("prism", "tri"), "orders": (1, 2), "dofs": (100, 1000), "backend": "numpy", "repeats": 1,
    "min_seconds": 1e-5, "sustained": 0.001,
}  # fmt: skip
LANES = 4


class GroupKernel(BlockKernel):
    """Like a GPU's: it reads stored factors of groups of lanes, and takes the number of elements at launch."""

    strategy = "sumfac"

    def __init__(self, problem, error=0.0):
        self.problem, self.error = problem, error
        self.flops = 7
        self.n_elements = problem.n_elements
        self.factors = problem.geometry.factors(problem.form.factor_kind, LANES, problem.dtype)
        self.launches = []

    def apply(self, source, out):
        """Compute with the factors held, element by element as the layout says."""
        n = self.n_elements
        assert source.shape == out.shape == (1, n, self.problem.n_modes) and source.flags.c_contiguous
        self.launches.append(n)
        stored = self.factors.transpose(0, 3, 1, 2).reshape(-1, *self.factors.shape[1:3])[:n]
        assert len(stored) == n
        held = HeldGeometry(self.problem.geometry.patch, stored)
        NumpyKernel(replace(self.problem, geometry=held), "sumfac").apply(source, out)
        out *= 1 + self.error


class HeldGeometry(BlockGeometry):
    """A geometry of given factors."""

    def __init__(self, patch, stored):
        super().__init__(patch.shape, patch.order, patch.coefficients, patch.rule, patch.kind)
        self.stored = stored

    @property
    def n_elements(self):
        """Of the factors."""
        return len(self.stored)

    def _make_factors(self, kind, lanes, dtype):
        groups = -(-len(self.stored) // lanes)
        out = np.zeros((groups * lanes, *self.stored.shape[1:]), dtype)
        out[: len(self.stored)] = self.stored
        return out.reshape(groups, lanes, *out.shape[1:]).transpose(0, 2, 3, 1).copy()


class GroupStrategy(StandInStrategy):
    """Builds kernels of groups, and remembers them."""

    name = "groups"

    def __init__(self, name="groups", error=0.0):
        self.name, self.error, self.made = name, error, []

    def build(self, problem, options=None):
        """Only what fits."""
        if self.name == "narrow" and problem.n_modes > 4:
            raise NotSuitable("too wide")
        self.made.append(GroupKernel(problem, self.error))
        return self.made[-1]


@pytest.fixture
def device(monkeypatch):
    """A backend with memory of its own whose kernels read stored factors."""
    strategies = [GroupStrategy(), GroupStrategy("narrow")]
    backend = StandInBackend("gpu-like", StandIn("gpu-like"), strategies)
    monkeypatch.setattr(backend, "roofline", lambda dtype, quick: LIMITS[dtype])
    monkeypatch.setitem(BACKENDS, "gpu-like", backend)
    return strategies


@pytest.mark.parametrize("geometry", ["affine", "deformed"])
@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_kernels_on_repeated_elements_are_right(shape, geometry):
    mesh = few_elements(shape, geometry)
    assert 4 <= mesh.n_cells <= 16 and mesh.summary().worst_scaled_jacobian > 0.1
    for benchmark in ("bk1", "bk3"):
        block = TiledBlock(benchmark, shape, 2, geometry, "numpy", quadrature="collapsed")
        assert block.problem.geometry.affine == (geometry == "affine")
        for n in (1, mesh.n_cells, 101):
            kernel = TiledKernel(block.choose("sumfac", "auto", n).kernel, block.xp)
            u, out = block.arrays(n)
            assert u.shape == (1, n, block.problem.n_modes)
            assert block.error(kernel, u, out) < 1e-13
            assert kernel.nbytes(1) % n == kernel.flops % n == 0
        few = block.problem.n_elements
        factors = kernel.geometry.factors("metric", LANES)
        assert factors.shape[0] == -(-101 // LANES)
        flat = factors.transpose(0, 3, 1, 2).reshape(-1, *factors.shape[1:3])
        wanted = block.problem.geometry.factors("metric")[np.arange(101) % few, ..., 0]
        np.testing.assert_array_equal(flat[:101], wanted)


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_factors_are_written_where_they_are_wanted(lanes):
    patch = TiledBlock("bk3", "tet", 1, "deformed", "numpy", quadrature="collapsed").problem.geometry
    tiled = RepeatedGeometry(patch, 50)
    wanted = tiled.factors("metric", lanes, np.float32)
    buffer = np.full((*wanted.shape[:2], 3, 4, 5 * lanes), np.nan, np.float32)
    view = buffer[..., :lanes]
    assert wanted.shape[2] == 12
    tiled.write_factors("metric", view)
    np.testing.assert_array_equal(view.reshape(wanted.shape), wanted)
    assert np.isnan(buffer[..., lanes:]).all()


def test_a_wrong_element_anywhere_is_found():
    block = TiledBlock("bk1", "quad", 1, "deformed", "numpy")
    kernel = TiledKernel(block.choose("sumfac", "auto", 50).kernel, block.xp)
    u, out = block.arrays(50)
    plain = kernel.kernel.apply
    for place in (0, 13, 49):

        def wrong(source, out, place=place):
            plain(source, out)
            out[0, place, 2] += 1e-3

        kernel.kernel.apply = wrong
        assert block.error(kernel, u, out) > 1e-4

        def lazy(source, out, place=place):
            plain(source, out)
            out[0, place, 2] = np.nan

        kernel.kernel.apply = lazy
        assert np.isnan(block.error(kernel, u, out))


def test_on_a_device_factors_are_copied_there_and_sizes_share_them(device):
    settings = SuiteSettings(**{**SMALL, "backend": "gpu-like", "algorithms": ("collocated",), "dtypes": ("float64",)})
    run = Runner(settings, LIMITS)
    run.prepare()
    assert {kernel.n_elements for strategy in device for kernel in strategy.made} == {1}
    for strategy in device:
        strategy.made.clear()
    list(run)
    assert not run.wrong and run.measurements
    assert {e["strategy"] for e in run.skipped} == {"narrow"} and {e["reason"] for e in run.skipped} != set()
    for case in run.cases:
        own = [m for m in run.measurements if Case.of(vars(m)) == case and m.strategy == "groups"]
        assert [m.n_dofs >= dofs for m, dofs in zip(own, (1000, 100), strict=True)] == [True, True]
        assert all(m.n_cells % 2 == 1 and m.n_dofs == m.n_cells * m.n_modes and m.error < 1e-13 for m in own)
    measured = [kernel for kernel in device[0].made if len(kernel.launches) > 1]
    assert all(
        len(set(kernel.launches)) == 2 and max(kernel.launches) > 2 * min(kernel.launches) for kernel in measured
    )
    assert len(measured) == len(run.cases)
    # Those of all groups, not those of one period.
    assert all(len(kernel.factors) * LANES >= max(kernel.launches) for kernel in measured)


def test_wrong_kernels_are_not_timed(device, monkeypatch):
    bad = GroupStrategy("bad", 1e-3)
    add_strategy(BACKENDS["gpu-like"], bad)
    settings = SuiteSettings(**{**SMALL, "backend": "gpu-like", "shapes": ("quad",), "algorithms": ("auto",)})
    run = Runner(settings, LIMITS)
    list(run)
    assert {m.strategy for m in run.measurements} == {"groups", "narrow"}
    assert len(run.wrong) == len(run.cases) and all("differs from NumPy's by 0.00" in e["reason"] for e in run.wrong)


def test_every_combination_is_measured_once():
    run = Runner(SuiteSettings(**SMALL), LIMITS)
    assert len(run.cases) == 2 * 2 * 2 * 2 * 2
    done = list(run)
    assert done == run.cases and not run.left and not run.wrong
    keys = [(Case.of(vars(m)), m.strategy, m.algorithm, m.n_dofs) for m in run.measurements]
    assert len(set(keys)) == len(keys)
    for case in run.cases:
        own = [m for m in run.measurements if Case.of(vars(m)) == case]
        sizes = {m.n_dofs for m in own}
        assert len(sizes) == (2 if case.dtype == "float64" else 1) and min(max(sizes), 1000) == 1000
        ways = {(m.strategy, m.algorithm) for m in own}
        assert len(ways) == (2 if case.benchmark == "bk1" else 4)
        # The fastest at the largest size, and it alone, is sustained.
        largest = [m for m in own if m.n_dofs == max(sizes)]
        sustained = [m for m in own if m.sustained_seconds is not None]
        fastest = min(largest, key=lambda m: m.seconds)
        assert sustained == ([fastest] if case.dtype == "float64" else [])
        assert len([m for m in largest if m.chosen]) == 1
        for m in own:
            assert m.fraction == pytest.approx(max(m.nbytes / 1e10, m.flops / 1e11) / m.seconds)
        for m in sustained:
            assert m.sustained_fraction == pytest.approx(m.fraction * m.seconds / m.sustained_seconds)


def test_algorithms_that_are_not_exact_are_skipped():
    small = {"shapes": ("tet",), "orders": (2,), "dofs": (100,), "quadrature": -1, "benchmarks": ("bk3",)}
    run = Runner(SuiteSettings(**{**SMALL, **small}), LIMITS)
    run.prepare()
    assert list(run) == run.cases
    assert {measured.algorithm for measured in run.measurements} == {"noncollocated"}
    assert {entry["algorithm"] for entry in run.skipped} == {"collocated"}
    assert all("need at least 3 points" in entry["reason"] for entry in run.skipped)


def test_the_default_suite_has_all_shapes_orders_and_precisions():
    cases = SuiteSettings().cases()
    assert len(cases) == len(set(cases)) == 2 * 2 * 2 * (4 * 7 + 2 * 10)
    assert {case.order for case in cases if case.shape == "tri"} == set(range(1, 11))
    assert {case.order for case in cases if case.shape == "pyramid"} == set(range(1, 8))
    first = cases[: len(cases) // 4]
    assert {(case.dtype, case.geometry) for case in first} == {("float64", "deformed")}
    assert min(SuiteSettings().dofs) == 1e4 and max(SuiteSettings().dofs) == 2e7


def document_of(run, **machine):
    """As the command writes it and reads it again."""
    about = {"machine": {"cpu": "a", "commit": "c", "gpu": [], **machine}}
    return suite_document(run.settings, [about], suite_records(run.measurements), run.skipped, run.wrong)


def test_parts_of_a_benchmark_are_merged(tmp_path):
    settings = SuiteSettings(**{**SMALL, "shapes": ("quad",), "benchmarks": ("bk1",)})
    parts = []
    for number in (1, 2, 3):
        run = Runner(settings, LIMITS, (number, 3))
        list(run)
        write_json(tmp_path / "r.json", document_of(run))
        parts.append(read_results(tmp_path / "r.json"))
    assert [part["complete"] for part in parts] == [False] * 3
    assert sum(len(settings.cases()) - part["left"] for part in parts) == len(settings.cases()) == 8
    for few in itertools.combinations(parts, 2):
        assert not merge_results(few)["complete"]
    whole = merge_results(parts)
    assert whole["complete"] and whole["left"] == 0 and len(whole["runs"]) == 3
    assert [r["run"] for r in whole["results"]] == sorted(r["run"] for r in whole["results"])
    assert {r["run"] for r in whole["results"]} == {0, 1, 2}
    # Records of the largest sizes say it all.
    most = max(r["n_dofs"] for r in whole["results"])
    assert all(("error" in r) == ("nbytes" in r) == ("repeats" in r) for r in whole["results"])
    assert all("chosen" in r for r in whole["results"] if r["n_dofs"] == most)
    assert not all("error" in r for r in whole["results"])
    whole = merge_results([merge_results(parts[:2]), parts[2]])
    assert whole["complete"] and {r["run"] for r in whole["results"]} == {0, 1, 2}
    with pytest.raises(ArgumentError, match="bk1 .* quad P=. float.. and . more are in two"):
        merge_results([whole, parts[0]])


def test_results_of_other_machines_or_settings_are_not_merged():
    settings = SuiteSettings(**{**SMALL, "shapes": ("quad",)})
    empty = Runner(settings, LIMITS)
    first = document_of(empty)
    assert merge_results([first, document_of(empty)])["left"] == 16
    for machine in ({"cpu": "b"}, {"commit": "d"}, {"numpy": "1"}):
        with pytest.raises(ArgumentError, match="do not belong together: device, commit and NumPy are"):
            merge_results([first, document_of(empty, **machine)])
    other = document_of(Runner(SuiteSettings(**{**SMALL, "shapes": ("tri",)}), LIMITS))
    with pytest.raises(ArgumentError, match="settings differ .shapes"):
        merge_results([first, other])
    with pytest.raises(ArgumentError, match="not what hpfem writes"):
        merge_results([first, {**first, "settings": {"speed": 1}}])
    with pytest.raises(ArgumentError, match="only results of hpfem bench --tiled"):
        merge_results([first, {"settings": {}}])


def test_a_run_ends_in_time_and_is_taken_up_again(monkeypatch):
    settings = SuiteSettings(**{**SMALL, "shapes": ("quad",)})
    clock = itertools.count(100.0)
    monkeypatch.setattr("hpfem.benchmarks.runner.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    run = Runner(settings, LIMITS, budget=5.5)
    done = list(run)
    assert 3 <= len(done) < len(run.cases)
    assert run.left == run.cases[len(done) :]
    again = Runner(settings, LIMITS, done=set(done))
    assert again.cases == run.left
    none = Runner(settings, LIMITS, budget=0.0)
    none.prepare()
    assert not list(none) and not none.measurements


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmarks": ("bk2",)}, "unknown benchmark 'bk2'; valid: bk1, bk3"),
        ({"shapes": ("segment",)}, "unknown shape 'segment'"),
        ({"shapes": ()}, "no shape to measure"),
        ({"geometries": ("bent",)}, "unknown geometry 'bent'"),
        ({"dtypes": ("float16",)}, "unknown dtype 'float16'"),
        ({"strategies": ("best",)}, "unknown strategy 'best'"),
        ({"algorithms": ("best",)}, "unknown algorithm 'best'"),
        ({"orders": (0,)}, "orders"),
        ({"dofs": ()}, "degrees of freedom"),
        ({"dofs": (float("nan"),)}, "degrees of freedom"),
        ({"repeats": 0}, "repeats"),
        ({"sustained": 1e9}, "sustained"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        SuiteSettings(**{**SMALL, **changes})
    with pytest.raises(ArgumentError, match="part 3 of 2"):
        Runner(SuiteSettings(**SMALL), LIMITS, (3, 2))


@pytest.mark.cuda
def test_the_suite_on_a_gpu():
    settings = SuiteSettings(
        shapes=("hex", "tet"), orders=(2, 5), dofs=(1e5, 1e6), backend="cuda", repeats=3, sustained=0.05
    )
    run = Runner(settings, {dtype: BACKENDS["cuda"].roofline(dtype, True) for dtype in settings.dtypes})
    run.prepare()
    assert list(run) == run.cases and not run.wrong
    assert {m.strategy for m in run.measurements} >= {"sumfac-top", "sumfac", "stdmat"}
    assert all(1e7 < m.dofs_per_second < 1e13 and 0 < m.fraction < 10 for m in run.measurements)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_components_fields_and_points(backend):
    """Copies of elements have copies of the fields' values; fields of several components, and values at points."""
    mesh = few_elements("hex", "deformed")
    space = hp.Space(mesh, 3, backend="numpy")
    for made in (hp.Helmholtz(space, lambda x, y, z: 2 + x, lambda x, y, z: 1 + y * z), hp.BwdTrans(space)):
        block = TiledProblem(made.choices[0].kernel.problem, backend, components=3)
        for n in (8, 21):
            built = block.build("sumfac", "collocated", n)
            assert built.error() < 1e-12
            application = built.on(n)
            application.call()
            assert application.n_dofs == 3 * n * block.problem.n_modes


def test_every_source_of_factors():
    """At the largest size in the first dtype, each with its sustained rate; the strategy's own everywhere."""
    how = {**SMALL, "shapes": ("hex", "tet"), "orders": (2,), "backend": "cpu", "strategies": ("sumfac",)}
    settings = SuiteSettings(
        benchmarks=("bk3",), geometries=GEOMETRIES, algorithms=("collocated",), sources=True, **how
    )
    runner = Runner(settings, LIMITS)
    runner.prepare()
    list(runner)
    assert not runner.wrong
    assert [entry["reason"] for entry in runner.skipped] == ["multilinear tet elements are affine"] * 2
    assert {one.source for one in runner.measurements if one.dtype == "float32"} == {None}
    found = {}
    for one in [one for one in runner.measurements if one.dtype == "float64"]:
        found.setdefault((one.shape, one.geometry), {}).setdefault(one.source, []).append(one)
    for (_, geometry), by_source in found.items():
        assert len(by_source.pop(None)) == 2
        assert {*by_source} == (set() if geometry == "affine" else {"recomputed", "scaled"})
        for [own] in by_source.values():
            assert own.n_dofs >= 1000 and own.error < 1e-13 and own.sustained_seconds and own.chosen is False
            assert own.source in own.variant


def test_one_is_sustained_whatever_its_source_of_factors(monkeypatch):
    monkeypatch.setattr(CpuSumFac, "_recomputes", lambda self, p: FactorSource.RECOMPUTED in possible_sources(p))
    how = {**SMALL, "shapes": ("hex",), "orders": (2,), "backend": "cpu", "strategies": ("sumfac", "stdmat")}
    settings = SuiteSettings(benchmarks=("bk3",), geometries=("multilinear",), dtypes=("float64",), **how)
    runner = Runner(settings, LIMITS)
    list(runner)
    assert {(one.variant or "stored").split()[0] for one in runner.measurements} == {"scaled", "stored"}
    assert sum(one.sustained_seconds is not None for one in runner.measurements) == 1
