"""On a GPU: kernels with factors from every source but stored ones alone, against NumPy."""

from dataclasses import replace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions
from hpfem.backends.options import to_text
from hpfem.errors import NotSuitable
from hpfem.forms.sources import possible_sources
from hpfem.geometry import FactorSource
from hpfem.memory import as_numpy
from tests.backends.problems import FORMS, FORMS_WITH_GRADIENT
from tests.samples import FLAT, NAMES, curved, norm_error, tapered

pytestmark = pytest.mark.cuda

# Factors of each kind; fields, and two components.
KINDS_OF_FORMS = (
    "Mass", "Helmholtz", "variable Helmholtz", "PhysDeriv", "IProductWRTDerivBase", "transport", "coupled",
)  # fmt: skip


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
    ways = [("sumfac-top", to_text(SumFacTopOptions(2, source=FactorSource.RECOMPUTED))), ("sumfac", "recomputed")]
    dtype = np.dtype(np.float32 if order == 1 else np.float64)
    space, compared = hp.Space(mesh, order, dtype=dtype, quadrature="collapsed"), 0
    for form in KINDS_OF_FORMS if order == 2 else ("Helmholtz",):
        for algorithm in ("collocated", "noncollocated")[: 1 + (form in FORMS_WITH_GRADIENT)]:
            for choice in FORMS[form](space, backend="numpy", algorithm=algorithm).choices:
                problem = choice.kernel.problem
                if FactorSource.RECOMPUTED not in possible_sources(problem):
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


@pytest.mark.parametrize("order", [1, 3, 6])
@pytest.mark.parametrize("name", NAMES)
def test_scales_and_coefficients(name, order, rng, monkeypatch):
    """Factors made on the host, and on the device."""
    import cupy

    from hpfem.backends.cuda.runtime import kernel as runtime

    def reaction(*x):
        return 1 + x[0] * x[-1]

    def tensor(*x):
        return [[3 + x[0] if i == j else 0.2 * x[-1] for j in range(len(x))] for i in range(len(x))]

    compared = 0
    for mesh, few in ((tapered(name).elevated(3), 32 << 20), (curved(name, order=2), 0), (curved(name, order=3), 0)):
        monkeypatch.setattr(runtime, "HOST_BYTES", few)
        space = hp.Space(mesh, order, quadrature="collapsed")
        made = [hp.Laplacian(space, backend="numpy"), hp.Helmholtz(space, 0.7, backend="numpy")]
        for algorithm in ("collocated", "noncollocated"):
            how = {"backend": "numpy", "algorithm": algorithm}
            made += [hp.Helmholtz(space, reaction, reaction, **how), hp.Helmholtz(space, 0.7, tensor, **how)]
        for choice in [choice for operator in made for choice in operator.choices]:
            problem = choice.kernel.problem
            if problem.geometry.affine:
                continue
            given = rng.standard_normal((2, problem.n_elements, problem.n_input))
            wanted = np.empty_like(given)
            choice.kernel.apply(given, wanted)
            moved = on_device(problem)
            for source in possible_sources(problem):
                top = to_text(SumFacTopOptions(3, source=source))
                for strategy, options in (("sumfac-top", top), ("sumfac", source)):
                    try:
                        kernel = BACKENDS["cuda"].strategy(strategy).build(moved, options)
                    except NotSuitable:
                        continue
                    out = cupy.full(wanted.shape, np.nan)
                    kernel.apply(cupy.asarray(given), out)
                    assert norm_error(as_numpy(out), wanted) < 1e-12, (source, strategy)
                    compared += 1
    assert compared
