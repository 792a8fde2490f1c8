"""[Xing]'s Algorithms 3 and 4 on every shape, in the host's shim and through NVRTC."""

from itertools import product

import pytest

from benchmarks.papers import EXPERIMENTS
from benchmarks.papers.blocks import Elements
from benchmarks.papers.variants.sumfac import experiments
from benchmarks.papers.variants.sumfac.experiments import ALGORITHMS, SumFacKernel, SumFacPlan
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.benchmarks.cases import BOX_SHAPES
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.errors import NotSuitable
from hpfem.operators import BwdTrans
from tests.papers.host_variants import HostPrograms, run_on_host
from tests.samples import long

ORDERS, BOTH = (1, 2, 3, 5), ("bk1", "bk3")


def block_of(benchmark_name, shape, order, n, backend="cpu"):
    """A block whose kernels are the variants; on the host NumPy's arrays stand for the GPU's."""
    case = {"benchmark": benchmark_name, "shape": shape, "order": order, "geometry": "deformed"}
    block = experiments._block(case, backend)
    block.counts = (n,)
    return block


def plans(benchmark_name, shape, order):
    """Plans of both algorithms."""
    problem = Elements(BENCHMARKS[benchmark_name], shape, order, "deformed", "cpu", (1,)).problem
    return [SumFacPlan(top, problem.tabulation, benchmark_name == "bk3") for top in ALGORITHMS.values()]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All variants in one library."""
    made = [plan for what in product(BOTH, BOX_SHAPES, ORDERS) for plan in plans(*what)]
    return HostPrograms([(plan.source(), "sumfac") for plan in made], tmp_path_factory.mktemp("sumfac"))


@pytest.mark.parametrize("shape", BOX_SHAPES)
@pytest.mark.parametrize("benchmark_name", BOTH)
def test_algorithms_against_numpy(benchmark_name, shape, library, monkeypatch):
    library.use(monkeypatch)
    for order in ORDERS:
        n = 131 if order == 1 else 35
        library.check(block_of(benchmark_name, shape, order, n), ALGORITHMS, n)


def test_algorithms_touch_nothing_else(library, monkeypatch):
    cases = [(block_of(name, shape, 2, 33), ALGORITHMS, 33) for name in BOTH for shape in ("quad", "tet")]
    library.check_borders(monkeypatch, cases)


def test_the_experiment_as_the_command_runs_it(library, monkeypatch):
    library.use(monkeypatch)
    library.descending = False
    monkeypatch.setattr(experiments, "DOFS", 600)
    for record in run_on_host(EXPERIMENTS["xing-algorithms"], monkeypatch, only=("the paper's form",)):
        assert record["error"] < 1e-12
        assert record["order"] == 2


@pytest.mark.parametrize("order", [2, *long(1, 5, 7)])
@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_algorithms_compile(shape, order):
    for benchmark_name in BOTH:
        for plan in plans(benchmark_name, shape, order):
            found = nvrtc.compile_source(plan.source(), "sm_90").resources
            assert found.registers * plan.threads <= 65536
            assert plan.shared_bytes < 227 * 1024
            if plan.stride == 1:  # the paper keeps intermediate results in shared memory
                assert found.stack_bytes == found.spill_bytes == 0


@pytest.mark.cuda
@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_algorithms_on_a_gpu(shape):
    for benchmark_name, order in product(BOTH, range(1, 8)):
        block = block_of(benchmark_name, shape, order, 1001, "cuda")
        for name in ALGORITHMS:
            assert block.build(name, "auto", 1001).error() < 1e-12, (benchmark_name, order, name)


def test_refusals():
    name = next(iter(ALGORITHMS))
    for operator, geometry, match in (
        (BENCHMARKS["bk1"], "affine", "of curved elements"),
        (BwdTrans, "deformed", "of mass and Helmholtz"),
    ):
        with pytest.raises(NotSuitable, match=match):
            SumFacKernel(Elements(operator, "tet", 2, geometry, "cpu", (1,)).problem, name)
