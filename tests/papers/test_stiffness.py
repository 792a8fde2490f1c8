"""The stiffness by small products and by the classical sum, a thread or a team an element ([Roget])."""

import pytest

from benchmarks.papers import EXPERIMENTS
from benchmarks.papers.variants.stiffness import experiments
from benchmarks.papers.variants.stiffness.experiments import LAUNCHED, source
from hpfem.backends.cuda.runtime import nvrtc
from tests.papers.host_variants import HostPrograms, run_on_host

ORDERS = range(1, 8)


def block_of(order, n, backend="cpu"):
    """A block whose kernels are the variants; on the host NumPy's arrays stand for the GPU's."""
    block = experiments._launched({"shape": "hex", "order": order, "geometry": "deformed"}, backend)
    block.counts = (n,)
    return block


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All variants in one library."""
    sources = [(source(name, order + 1), "stiffness") for order in ORDERS for name in LAUNCHED]
    return HostPrograms(sources, tmp_path_factory.mktemp("stiffness"))


@pytest.mark.parametrize("order", ORDERS)
def test_variants_against_numpy(order, library, monkeypatch):
    library.use(monkeypatch)
    n = 131 if order < 3 else 35
    library.check(block_of(order, n), LAUNCHED, n)


def test_variants_touch_nothing_else(library, monkeypatch):
    cases = [(block_of(2, 33), LAUNCHED, 33)]
    library.check_borders(monkeypatch, cases)


def test_the_experiment_as_the_command_runs_it(library, monkeypatch):
    library.use(monkeypatch)
    library.descending = False
    monkeypatch.setitem(experiments.DOFS, "cpu", 640)
    [series] = [s for s in EXPERIMENTS["roget-gemm"].series if s.name == "kernels"]
    for record in run_on_host(EXPERIMENTS["roget-gemm"], monkeypatch, only=("kernels",)):
        assert record["error"] < 1e-12
        assert record["n_dofs"] == 640
        assert record["status"] == series.status


@pytest.mark.parametrize("order", [1, 3, 7])
def test_variants_compile(order):
    for name in LAUNCHED:
        found = nvrtc.compile_source(source(name, order + 1), "sm_90").resources
        assert found.spill_bytes == 0, name
        if LAUNCHED[name][1]:
            assert found.stack_bytes == 0, name  # all arrays of a team are in shared memory


@pytest.mark.cuda
@pytest.mark.parametrize("order", ORDERS)
def test_variants_on_a_gpu(order):
    block = block_of(order, 1001, "cuda")
    for name in LAUNCHED:
        assert block.build(name, "auto", 1001).error() < 1e-12, name
    for name in ("gemm", "gemm-batched"):
        variant = experiments._variant(name, {"shape": "hex", "order": order, "geometry": "deformed"}, "cuda")
        assert variant.build("auto", "auto", 1001).error() < 1e-12, name
