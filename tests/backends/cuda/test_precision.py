"""On a GPU: kernels that read rounded factors, against NumPy."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import NotSuitable
from hpfem.forms.merged import merged
from hpfem.memory import as_numpy
from tests.backends.cuda.test_recomputed import on_device
from tests.backends.problems import FORMS, FORMS_WITH_GRADIENT
from tests.samples import FLAT, NAMES, curved, norm_error

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("name", NAMES)
def test_rounded_factors(name, order, rng):
    """Every strategy that serves; all kinds of factors at one order, Helmholtz at the others, rules of both kinds."""
    import cupy

    compared = set()
    for quadrature in ("collapsed", "simplex") if name in FLAT and order < 8 else ("collapsed",):
        space, simplex = hp.Space(curved(name, order=3), order, quadrature=quadrature), quadrature == "simplex"
        for form in (
            ("Helmholtz", "Mass", "variable Helmholtz", "transport", "coupled") if order == 2 else ("Helmholtz",)
        ):
            for algorithm in ("noncollocated", "collocated")[: 1 + (form in FORMS_WITH_GRADIENT and not simplex)]:
                operator = FORMS[form](space, backend="numpy", algorithm=algorithm, precision="mixed")
                for choice in operator.choices:
                    problem = choice.kernel.problem
                    given = rng.standard_normal((problem.coupled, problem.n_elements, problem.n_input))
                    wanted = np.empty((problem.given, problem.n_elements, problem.n_output))
                    choice.kernel.apply(given, wanted)
                    for strategy in BACKENDS["cuda"].strategies:
                        if simplex and strategy.tensor:
                            continue
                        try:
                            kernel = strategy.build(on_device(problem))
                        except NotSuitable:
                            continue
                        out = cupy.full(wanted.shape, np.nan)
                        kernel.apply(cupy.asarray(given), out)
                        rounded = wanted
                        if kernel.problem.source.merges:  # products are rounded
                            rounded = np.empty_like(wanted)
                            NumpyKernel(merged(problem), "stdmat" if simplex else "sumfac").apply(given, rounded)
                        assert norm_error(as_numpy(out), rounded) < 1e-12, (quadrature, form, algorithm, strategy.name)
                        compared.add(strategy.name)
    assert {"sumfac-top", "stdmat"} <= compared and ("fused" in compared) == (name in FLAT and order < 8)
