"""Kernels that only experiments need: right, and missed by nobody."""

import numpy as np
import pytest

from benchmarks.papers.blocks import Elements, VariantElements
from benchmarks.papers.variants import stdmat
from benchmarks.papers.variants.stiffness import experiments as stiffness
from hpfem.backends.vectors import HOST_VECTORS
from hpfem.benchmarks.cases import BOX_SHAPES
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.benchmarks.tiled import few_elements
from hpfem.errors import NotSuitable
from hpfem.operators import Laplacian
from hpfem.space import Space
from tests.backends.cuda.host_kernels import Case
from tests.backends.cuda.test_host import check


def error(name, build, *what, **options):
    """Largest relative difference of a variant to NumPy's result, on numbers of elements with and without a tail."""
    block = VariantElements(name, build, *what, (1,), **options)
    return np.max([block.build("auto", "auto", n).error() for n in (1, 8, 37)])


@pytest.mark.parametrize("order", range(1, 5))
@pytest.mark.parametrize("shape", BOX_SHAPES)
@pytest.mark.parametrize("benchmark_name", ["bk1", "bk3"])
def test_compiled_stdmat(benchmark_name, shape, order):
    what = BENCHMARKS[benchmark_name], shape, order, "deformed", "cpu"
    assert error(stdmat.NAME, stdmat.compiled, *what) < 1e-12


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("name", stiffness.VARIANTS)
def test_products(name, order):
    def build(problem):
        return stiffness.VARIANTS[name](problem, name, HOST_VECTORS)

    what = Laplacian, "hex", order, "deformed", "cpu"
    assert error(name, build, *what, basis="lagrange", quadrature="collocated") < 1e-12


def test_refusals():
    affine = Elements(BENCHMARKS["bk1"], "hex", 2, "affine", "cpu", (1,)).problem
    with pytest.raises(NotSuitable, match="curved elements only"):
        stdmat.compiled(affine)
    with pytest.raises(NotSuitable, match="the points are to be the nodes"):
        stiffness.ClassicalSum(
            Elements(Laplacian, "hex", 2, "deformed", "cpu", (1,)).problem, "classical", HOST_VECTORS
        )


def test_elements_beyond_the_registers(tmp_path, rng):
    """The GPU's kernel with an element to a thread, in the host's shim; without the option it refuses."""
    cases, kernels = [], []
    for shape, order, operator in (("quad", 7, "bk3"), ("quad", 10, "bk3"), ("tet", 4, "bk3"), ("hex", 3, "bk3")):
        made = BENCHMARKS[operator](
            Space(few_elements(shape, "deformed"), order, quadrature="collapsed", backend="numpy"),
            algorithm="noncollocated",
        )
        kernels.append(made.choices[0].kernel)
        cases.append(Case.of(kernels[-1].problem, f"case{len(cases)}", "spilling"))
        with pytest.raises(NotSuitable, match="numbers in a thread's registers"):
            Case.of(kernels[-1].problem, "other", "sumfac")
    check(cases, kernels, tmp_path, rng)
