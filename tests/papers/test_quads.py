"""Places of tables and layouts of [Eichstaedt]: every variant at every order, in the host's shim and through NVRTC."""

import numpy as np
import pytest

from benchmarks.papers import EXPERIMENTS
from benchmarks.papers.blocks import Elements
from benchmarks.papers.variants.gpu import LaunchedElements
from benchmarks.papers.variants.quads import experiments
from benchmarks.papers.variants.quads.plan import VARIANTS, QuadPlan
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.errors import NotSuitable
from tests.papers.host_variants import HostPrograms, run_on_host

ORDERS, GEOMETRIES = range(1, 11), ("affine", "deformed")


def plan_of(name, order, geometry):
    """The plan on the points that a space takes."""
    tables = Elements(BENCHMARKS["bk3"], "quad", order, geometry, "cpu", (1,)).problem.tabulation.values
    return QuadPlan(*VARIANTS[name], *tables[0].shape, geometry == "affine")


def block_of(order, geometry, n, backend="cpu"):
    """A block whose kernels are the variants; on the host NumPy's arrays stand for the GPU's."""
    what = BENCHMARKS["bk3"], "quad", order, geometry, backend, (n,)
    return LaunchedElements(experiments.QuadKernel, "noncollocated", *what)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All variants in one library."""
    plans = [plan_of(name, order, kind) for kind in GEOMETRIES for order in ORDERS for name in VARIANTS]
    return HostPrograms([(plan.source(), "quads") for plan in plans], tmp_path_factory.mktemp("quads"))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_variants_against_numpy(geometry, library, monkeypatch):
    library.use(monkeypatch)
    for order in ORDERS:
        n = 130 if order < 4 else 37
        library.check(block_of(order, geometry, n), VARIANTS, n)


def test_variants_touch_nothing_else(library, monkeypatch):
    cases = [(block_of(order, geometry, 33), VARIANTS, 33) for geometry in GEOMETRIES for order in (1, 4)]
    library.check_borders(monkeypatch, cases)


def test_the_experiment_as_the_command_runs_it(library, monkeypatch):
    library.use(monkeypatch)
    library.descending = False
    monkeypatch.setattr(experiments, "DOFS", 600)
    monkeypatch.setattr(experiments, "LAUNCHES", 3)
    records = run_on_host(EXPERIMENTS["eichstaedt-memory"], monkeypatch)
    assert all(r["value"] > 0 for r in records)
    assert all(r["series"].startswith("roofline") or r["error"] < 1e-12 for r in records)


def test_layouts(library, monkeypatch):
    library.use(monkeypatch)
    block = block_of(2, "deformed", 37)
    kernel = block.build("thread, stride 32, constant", "auto", 37).choice.kernel
    u, _ = block.arrays(37)
    given = kernel.given(u)
    assert given.shape == (2, 9, 32) and given.flags.c_contiguous
    assert np.array_equal(given[1, :, 3], u[0, 35])
    assert np.array_equal(kernel.natural(given, 37), u)
    assert kernel.factors.shape == (2, 5, kernel.plan.points**2, 32)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_bytes_of_near_memory_are_those_moved(geometry, tmp_path, monkeypatch):
    plans = {name: plan_of(name, 3, geometry) for name in experiments.BOUND}
    library = HostPrograms([(plan.source(), "quads") for plan in plans.values()], tmp_path, True).use(monkeypatch)
    moved = {}
    for name, plan in plans.items():
        assert block_of(3, geometry, 5).build(name, "auto", 5).error() < 1e-12
        moved[name] = 8 * library.accesses(plan.source(), "quads")
        assert moved[name] == 5 * plan.near_traffic()["shared"]
    tables = moved["block, shared"] - moved["block, global"]
    assert tables == 5 * (plans["block, global"].near_traffic()["L1"] + 8 * plans["block, shared"].table_size)


@pytest.mark.parametrize("orders", [(1, 4), pytest.param((3, 10), marks=pytest.mark.long)])
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_compile(name, orders):
    for plan in [plan_of(name, order, geometry) for geometry in GEOMETRIES for order in orders]:
        found = nvrtc.compile_source(plan.source(), "sm_90").resources
        assert found.registers * plan.threads <= 65536, plan
        if plan.block or plan.modes < 5:  # [Eichstaedt] section 4: about P = 4 registers overflow
            assert found.spill_bytes == 0, plan


@pytest.mark.cuda
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_variants_on_a_gpu(geometry):
    blocks = [block_of(order, geometry, 1001, "cuda") for order in ORDERS]
    built = [block.build(name, "auto", 1001) for block in blocks for name in VARIANTS]
    for one in built:
        assert one.error() < 1e-12, one.choice.kernel.plan


def test_refusals():
    for shape, options in (("tri", {}), ("hex", {}), ("quad", {"basis": "lagrange", "quadrature": "collocated"})):
        problem = Elements(BENCHMARKS["bk3"], shape, 2, "deformed", "cpu", (1,), **options).problem
        with pytest.raises(NotSuitable, match="of quads with a modal basis"):
            experiments.QuadKernel(problem, "block, shared")


def test_roofline_of_near_memory(monkeypatch):
    monkeypatch.setattr("benchmarks.papers.variants.gpu.near_bandwidth", lambda: {"shared": 2e13, "L1": 1e13})
    case = {"shape": "quad", "order": 3, "geometry": "affine"}
    near = experiments._near(case, "cpu")
    plan = plan_of("block, global", 3, "affine")
    traffic = plan.near_traffic()
    [n] = near.sizes([1e9])
    timing = near.build("near memory of block, global", "auto", n).on(n).timing
    assert timing.median == pytest.approx(n * (traffic["shared"] / 2e13 + traffic["L1"] / 1e13))
