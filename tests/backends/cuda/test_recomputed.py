"""On a GPU: kernels that recompute geometric factors, against NumPy."""

from dataclasses import replace

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

# Factors of each kind; fields, and two components.
KINDS_OF_FORMS = (
    "Mass",
    "Helmholtz",
    "variable Helmholtz",
    "PhysDeriv",
    "IProductWRTDerivBase",
    "transport",
    "coupled",
)


def on_device(problem):
    """The problem with its fields where CUDA's kernels take them."""
    device = BACKENDS["cuda"].device()
    return replace(problem, fields={name: replace(own, device=device) for name, own in problem.fields.items()})


@pytest.mark.parametrize("order", [1, 2, 4, 7])
@pytest.mark.parametrize("kind", ["multilinear", "quadratic"])
@pytest.mark.parametrize("name", NAMES)
def test_factors_recomputed_from_maps(name, kind, order, rng):
    """Every kind of factors at one order, in float32 at another one, Helmholtz at the others."""
    import cupy

    if kind == "multilinear" and name in FLAT:
        return
    mesh = tapered(name).elevated(3) if kind == "multilinear" else curved(name, order=2)
    ways = [("sumfac-top", to_text(SumFacTopOptions(2, recomputed=True))), ("sumfac", "recomputed")]
    dtype = np.dtype(np.float32 if order == 1 else np.float64)
    space, compared = hp.Space(mesh, order, dtype=dtype), 0
    for form in KINDS_OF_FORMS if order == 2 else ("Helmholtz",):
        for algorithm in ("collocated", "noncollocated")[: 1 + (form in FORMS_WITH_GRADIENT)]:
            for choice in FORMS[form](space, backend="numpy", algorithm=algorithm).choices:
                problem = choice.kernel.problem
                if not problem.recomputable:
                    continue
                given = rng.standard_normal((problem.coupled, problem.n_elements, problem.n_input)).astype(dtype)
                wanted = np.empty((problem.given, problem.n_elements, problem.n_output), dtype)
                choice.kernel.apply(given, wanted)
                for strategy, options in ways:
                    try:
                        kernel = BACKENDS["cuda"].strategy(strategy).build(on_device(problem), options)
                    except NotSuitable:
                        continue
                    out = cupy.full(wanted.shape, np.nan, dtype)
                    kernel.apply(cupy.asarray(given), out)
                    limit = 1e-12 if dtype == np.float64 else 1e-4
                    assert norm_error(as_numpy(out), wanted) < limit, (form, algorithm, strategy, options)
                    compared += strategy == "sumfac-top"
    assert compared
