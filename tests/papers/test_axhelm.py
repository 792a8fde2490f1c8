"""Variants of [Cao]'s axhelm: every source of factors and way of contraction, in the host's shim and through NVRTC."""

from itertools import product

import pytest

from benchmarks.papers import EXPERIMENTS
from benchmarks.papers.blocks import Elements
from benchmarks.papers.experiments.cao import NODAL
from benchmarks.papers.variants.axhelm import experiments
from benchmarks.papers.variants.axhelm.experiments import CONTRACTIONS, SOURCES, AxhelmKernel, Variant
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.errors import NotSuitable
from hpfem.operators import Mass
from tests.papers.host_variants import HostPrograms, run_on_host

CASES = tuple(product(SOURCES, (1, 3)))


def block_of(equation, geometry, d, n, order=7, backend="cpu"):
    """A block whose kernels are the variants; on the host NumPy's arrays stand for the GPU's."""
    case = {"equation": equation, "shape": "hex", "order": order, "geometry": geometry, "d": d}
    block = experiments._block(case, backend)
    block.counts = (n,)
    return block


def names_of(equation, geometry, order=7):
    """Variants that serve elements; tensor cores take slices of 8 x 8."""
    ways = CONTRACTIONS if order == 7 else CONTRACTIONS[:2]
    return [f"{source}, {way}" for source, way in product(SOURCES[equation, geometry], ways)]


def variant_of(equation, name, d, order=7):
    """A variant by its name."""
    return Variant(*name.split(", "), equation == "Helmholtz", d, order + 1)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All variants in one library."""
    variants = [
        variant_of(equation, name, d, order)
        for ((equation, geometry), d), order in product(CASES, (2, 3, 7))
        for name in names_of(equation, geometry, order)
    ]
    return HostPrograms([(v.kernel(), "axhelm") for v in variants], tmp_path_factory.mktemp("axhelm"))


@pytest.mark.parametrize(("what", "d"), CASES)
def test_variants_against_numpy(what, d, library, monkeypatch):
    library.use(monkeypatch)
    for order in (2, 3, 7):
        library.check(block_of(*what, d, 3, order), names_of(*what, order), 3)


def test_variants_touch_nothing_else(library, monkeypatch):
    cases = [(block_of(*what, d, 3), names_of(*what), 3) for what, d in CASES[1::2]]
    library.check_borders(monkeypatch, cases)


def test_the_experiment_as_the_command_runs_it(library, monkeypatch):
    library.use(monkeypatch)
    library.descending = False
    monkeypatch.setitem(experiments.AXHELM, "cuda", 3)
    only = "Helmholtz, trilinear elements"
    for record in run_on_host(EXPERIMENTS["cao-variants"], monkeypatch, only=(only, f"roofline of {only}")):
        assert record["value"] > 0
        if not record["series"].startswith("roofline"):
            assert record["error"] < 1e-12
            assert record["n_dofs"] == 3 * 512


def test_the_paper_s_bytes():
    """[Cao] Table 3 and eq. 6, 7, without D: stored factors and both vectors."""
    for (equation, doubles), d in product((("Poisson", 6), ("Helmholtz", 9)), (1, 3)):
        case = {"equation": equation, "shape": "hex", "order": 7, "geometry": "trilinear", "d": d}
        assert experiments._copies(case, "cpu").nbytes("copying for stored") == (doubles + 2 * d) * 512 * 8
    assert variant_of("Poisson", "partial, plain", 1).read == 24 + 512  # Table 4
    assert variant_of("Poisson", "parallelepiped, plain", 1).read == 6
    assert variant_of("Helmholtz", "merged, plain", 1).read == 24 + 2 * 512


@pytest.mark.parametrize(
    ("what", "d"), [pytest.param(what, d, marks=[pytest.mark.long] * (d > 1)) for what, d in CASES]
)
def test_variants_compile(what, d):
    for name in names_of(*what):
        variant = variant_of(what[0], name, d)
        found = nvrtc.compile_source(variant.kernel(), "sm_90").resources
        assert found.registers <= 255, name
        if d == 1:  # three fields are more than the registers hold
            assert found.spill_bytes == 0, name
            assert not variant.on("unrolled") or found.stack_bytes == 0, name  # columns are in registers


@pytest.mark.cuda
@pytest.mark.parametrize(("what", "d"), CASES)
def test_variants_on_a_gpu(what, d):
    block = block_of(*what, d, 101, backend="cuda")
    for name in names_of(*what):
        assert block.build(name, "auto", 101).error() < 1e-12, name


def test_refusals():
    for name, equation, order, match in (
        ("stored, plain", ("Poisson", "affine"), 7, "factors of these elements are not stored"),
        ("merged, tensor cores", ("Helmholtz", "trilinear"), 3, "tensor cores multiply 8 x 8, a slice here is 4 x 4"),
    ):
        with pytest.raises(NotSuitable, match=match):
            block_of(*equation, 1, 1, order).build(name, "auto", 1)
    problem = Elements(Mass, "hex", 2, "deformed", "cpu", (1,), **NODAL).problem
    with pytest.raises(NotSuitable, match="axhelm is of hexes"):
        AxhelmKernel(1, problem, "stored, plain")
