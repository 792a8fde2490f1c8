"""On a GPU: kernels that recompute geometric factors, against NumPy."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions
from hpfem.backends.options import to_text
from hpfem.errors import NotSuitable
from hpfem.memory import as_numpy
from tests.backends.problems import FORMS, FORMS_WITH_GRADIENT
from tests.samples import FLAT, NAMES, curved, norm_error, tapered

pytestmark = pytest.mark.cuda

WITHOUT_FIELDS = (
    *("Helmholtz", "Mass", "IProductWRTBase", "PhysDeriv", "IProductWRTDerivBase"),
    *("reaction", "coupled"),
)


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("kind", ["multilinear", "quadratic"])
@pytest.mark.parametrize("name", NAMES)
def test_factors_recomputed_from_maps(name, kind, order, rng):
    """Every kind of form at one order, Helmholtz and mass at the others."""
    import cupy

    if kind == "multilinear" and name in FLAT:
        return
    mesh = tapered(name).elevated(3) if kind == "multilinear" else curved(name, order=2)
    ways = [("sumfac-top", to_text(SumFacTopOptions(e, recomputed=True))) for e in (1, 3)] + [("sumfac", "recomputed")]
    for dtype in (np.float64, np.float32)[: 1 + (order < 4)]:
        space = hp.Space(mesh, order, dtype=dtype)
        for form in FORMS if order == 2 and dtype == np.float64 else ("Helmholtz", "Mass"):
            for algorithm in ("collocated", "noncollocated")[: 1 + (form in FORMS_WITH_GRADIENT)]:
                operator = FORMS[form](space, backend="numpy", algorithm=algorithm)
                for choice in operator.choices:
                    problem = choice.kernel.problem
                    if not problem.recomputable:
                        continue
                    given = rng.standard_normal((problem.coupled, problem.n_elements, problem.n_input)).astype(dtype)
                    wanted = np.empty((problem.given, problem.n_elements, problem.n_output), dtype)
                    choice.kernel.apply(given, wanted)
                    for strategy, options in ways:
                        try:
                            kernel = BACKENDS["cuda"].strategy(strategy).build(problem, options)
                        except NotSuitable:
                            continue
                        out = cupy.full(wanted.shape, np.nan, dtype)
                        kernel.apply(cupy.asarray(given), out)
                        limit = 1e-12 if dtype == np.float64 else 1e-4
                        assert norm_error(as_numpy(out), wanted) < limit, (form, algorithm, strategy, options)
