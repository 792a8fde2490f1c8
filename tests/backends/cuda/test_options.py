"""Which kernel is expected to be the fastest, and the table that says so."""

from contextlib import suppress

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.codegen.tables import Collapse, Levels, separated
from hpfem.backends.cuda.runtime.measured import known_row, measured_key, measured_table
from hpfem.backends.cuda.stdmat.strategy import CudaStdMat
from hpfem.backends.cuda.sumfac.strategy import CudaSumFac, check_sumfac
from hpfem.backends.cuda.sumfac_top.banks import wavefronts
from hpfem.backends.cuda.sumfac_top.strategy import CudaSumFacTop
from hpfem.backends.strategy import with_source
from hpfem.errors import NotSuitable
from hpfem.geometry import FactorSource
from tests.samples import NAMES, curved, skewed, straight, tapered


def problem_of(name, order, make=hp.Mass, **options):
    """Problem of an operator on deformed cells."""
    return (
        make(hp.Space(curved(name, order=2), order, quadrature="collapsed"), backend="numpy", **options)
        .choices[0]
        .kernel.problem
    )


def test_measured_rates_decide():
    low, high = problem_of("tet", 2), problem_of("tet", 7)
    assert CudaSumFac().cost(low) < CudaSumFacTop().cost(low) < CudaStdMat().cost(low)
    assert CudaSumFacTop().cost(high) < CudaSumFac().cost(high)
    rate, options = known_row(low, "sumfac")
    assert CudaSumFac().cost(low) == pytest.approx(low.n_modes / rate)
    assert options == "stored"


def test_unmeasured_kernels_are_modelled():
    reaction = problem_of("tri", 2, hp.WeakForm, pointwise=lambda u: u * u, test=("value",))
    assert CudaSumFacTop().known(reaction) is not None  # as fast as the mass: the same factors
    derivative = problem_of("tri", 2, hp.PhysDeriv)
    assert CudaSumFacTop().known(derivative) is None
    assert CudaSumFacTop().cost(derivative) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_table_covers_both_operators(name):
    for order in range(1, 8):
        for algorithm in ("collocated", "noncollocated"):
            problem = problem_of(name, order, hp.Helmholtz, lam=1.0, algorithm=algorithm)
            assert known_row(problem, "sumfac-top") is not None
        assert measured_key(problem_of(name, order), "sumfac-top", "deformed") in measured_table()


def test_one_element_per_thread_says_why_not():
    for problem, reason in (
        (problem_of("hex", 6), "points"),
        (problem_of("hex", 3, hp.Helmholtz, lam=1.0, algorithm="noncollocated"), "registers"),
        (problem_of("tri", 1, hp.Helmholtz, lam=1.0, algorithm="collocated"), "noncollocated"),
    ):
        with pytest.raises(NotSuitable, match=reason):
            check_sumfac(problem, Levels.plain(problem.tabulation))


def test_bank_conflicts():
    t = np.arange(32)
    assert wavefronts(np.stack([t, 2 * t, 16 * t, 17 * t]), 8).tolist() == [2, 4, 32, 2]
    assert wavefronts(t[None] * 2, 4).tolist() == [2]


@pytest.mark.parametrize("name", NAMES)
def test_the_collapse_is_a_product_of_functions(name):
    space = hp.Space(skewed(straight(name)), 3, quadrature="collapsed")
    problem = hp.Mass(space, backend="numpy").choices[0].kernel.problem
    tabulation, levels = problem.tabulation, Levels.of(problem)
    collapse, shape, rule = Collapse.of(tabulation, levels), tabulation.basis.shape, tabulation.rule
    matrix = np.zeros((len(rule), shape.dim, shape.dim))
    matrix[:, range(shape.dim), range(shape.dim)] = collapse.ones
    for (a, b), x, yz in zip(collapse.entries, collapse.x, collapse.yz, strict=True):
        matrix[:, a, b] = np.outer(x, yz).ravel()
    np.testing.assert_allclose(matrix, np.linalg.inv(shape.collapse_matrix(rule.eta)), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.outer(collapse.weights_x, collapse.weights_yz).ravel(), rule.weights, rtol=1e-13)
    with pytest.raises(AssertionError):
        separated(np.eye(2))


def test_float32_has_rates_of_its_own():
    mesh = curved("tet", order=2)
    double, single = (
        hp.Mass(hp.Space(mesh, 3, dtype=dtype, quadrature="collapsed"), backend="numpy").choices[0].kernel.problem
        for dtype in (np.float64, np.float32)
    )
    assert known_row(single, "sumfac")[0] > 1.3 * known_row(double, "sumfac")[0]
    unmeasured = [
        hp.Mass(hp.Space(mesh, 3, quadrature="gauss", dtype=dtype), backend="numpy").choices[0].kernel.problem
        for dtype in (np.float64, np.float32)
    ]
    assert measured_key(unmeasured[1], "sumfac") == measured_key(unmeasured[0], "sumfac") + "/float32"


@pytest.mark.parametrize(
    ("mesh", "dtype", "orders"),
    [
        (tapered("hex"), "float64", (1, 2, 3, 4, 5)),
        (tapered("prism"), "float64", (1, 2, 3, 4, 7)),
        (tapered("pyramid"), "float64", (1, 2, 3, 4)),
        (curved("tet", 2), "float64", (1, 2)),
        (curved("prism", 2), "float64", (1,)),
        (curved("hex", 2), "float64", ()),
        (tapered("hex"), "float32", (1, 2, 7)),
        (tapered("prism"), "float32", (1, 2)),
        (tapered("tri"), "float32", ()),
    ],
)
def test_factors_are_recomputed_where_that_was_measured_to_win(mesh, dtype, orders):
    for order in range(1, 8):
        ways = {}
        for algorithm in ("collocated", "noncollocated"):
            operator = hp.Helmholtz(
                hp.Space(mesh, order, dtype=dtype, quadrature="collapsed"),
                lam=1.0,
                backend="numpy",
                algorithm=algorithm,
            )
            problem = operator.choices[-1].kernel.problem
            ways[CudaSumFacTop().cost(problem)] = CudaSumFacTop().known(problem).source is FactorSource.RECOMPUTED
            with suppress(NotSuitable):
                ways[CudaSumFac().cost(problem)] = CudaSumFac().default(problem) == "recomputed"
        assert ways[min(ways)] == (order in orders), order


def test_sources_of_one_element_per_thread():
    strategy, how = CudaSumFac(), {"lam": 1.0, "algorithm": "noncollocated"}
    won, lost = (problem_of(name, 1, hp.Helmholtz, **how) for name in ("tet", "hex"))
    assert [next(strategy.search(problem)) for problem in (won, lost)] == [
        ("recomputed", "stored", "scaled"),
        (None, "recomputed", "scaled"),
    ]
    assert [with_source(strategy, won, options).source for options in (None, "stored")] == ["recomputed", "stored"]
    assert all(with_source(strategy, lost, name).source == name for name in ("stored", "recomputed", "scaled"))
