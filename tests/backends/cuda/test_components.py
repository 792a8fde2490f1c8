"""Fields of several components: CUDA kernels on the CPU, launched as on a GPU."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from hpfem.assembly.traces import modes_by_entity
from hpfem.backends import BACKENDS
from hpfem.backends import options as text
from hpfem.backends.cuda.codegen.layout import stored_factors
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.dense.plan import DenseOptions
from hpfem.backends.cuda.fused.plan import FusedPlan
from hpfem.backends.cuda.fused.strategy import CudaFused, FusedKernel
from hpfem.backends.cuda.runtime import kernel as cuda_kernel
from hpfem.backends.cuda.runtime import planned, tree_kernel
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.cuda.runtime.tree_kernel import TreeKernel
from hpfem.backends.cuda.sumfac import strategy as sumfac
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions, SumFacTopPlan
from hpfem.backends.cuda.vectors.indexed import IndexTables
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import ArgumentError, NotSuitable
from hpfem.forms.sources import possible_sources
from hpfem.geometry import FactorSource
from tests.assembly.meshes import ours, rotated
from tests.backends.cuda.host_vectors import library, run
from tests.operators.reference import random_field
from tests.samples import NAMES, curved, long, norm_error, skewed, straight, tapered


@pytest.fixture
def on_host(monkeypatch, tmp_path):
    """CUDA's kernels compile for the CPU and are launched there."""
    device = SimpleNamespace(name="host shim", limits=Limits(), architecture="sm_90", empty=np.empty)
    done = lambda source, *_, **__: SimpleNamespace(done=lambda: True, result=lambda: source, exception=lambda: None)  # noqa: E731

    def loaded(source, name, shared_bytes):
        own = library(source, (name,), tmp_path)
        return lambda grid, block, arguments, shared_mem: run(own, name, (*grid, 1), 0, *arguments, shared=shared_mem)

    monkeypatch.setattr(cuda_kernel, "start", done)
    monkeypatch.setattr(cuda_kernel, "architecture", lambda: device.architecture)
    monkeypatch.setattr(cuda_kernel, "current_device", lambda: device)
    monkeypatch.setattr(cuda_kernel, "device_factors", stored_factors)
    monkeypatch.setattr(cuda_kernel, "loaded", loaded)
    monkeypatch.setattr(planned, "limits", Limits)
    monkeypatch.setattr(cuda_kernel, "upload", np.ascontiguousarray)
    cuda_kernel.functions.cache_clear()
    yield
    cuda_kernel.functions.cache_clear()


def kernel_of(problem, options):
    """The kernel "sumfac-top" with options, or "sumfac"."""
    if options == "sumfac":
        return TreeKernel(sumfac.SumFacPlan(problem), "sumfac")
    return TreeKernel(SumFacTopPlan(problem, Levels.of(problem), options), "sumfac-top")


def check(kernel, reference, components, rng):
    """Every component has the bits that it has alone, and NumPy's numbers."""
    problem = kernel.problem
    taken, given, dtype = problem.coupled, problem.given, problem.dtype
    source = rng.standard_normal((components * taken, problem.n_elements, problem.n_input)).astype(dtype)
    out = np.full((components * given, problem.n_elements, problem.n_output), np.nan, dtype)
    wanted = np.empty_like(out)
    kernel.apply(source, out)
    reference.apply(source, wanted)
    assert norm_error(out, wanted) < (1e-12 if dtype == np.float64 else 1e-5)
    for c in range(components):
        alone = np.full_like(out[:given], np.nan)
        kernel.apply(source[c * taken : (c + 1) * taken], alone)
        assert np.array_equal(out[c * given : (c + 1) * given], alone), c


@pytest.mark.parametrize("name", ["hex", "pyramid", "tri", *long("quad", "prism", "tet")])
def test_every_shape_and_source(name, on_host, rng):
    """Stored and recomputed factors of every kind, fields and the point, both algorithms; blocks with tails."""
    deformed, straight_sided = (
        hp.Space(mesh, 2, quadrature="collapsed") for mesh in (curved(name, order=2), tapered(name))
    )
    single = hp.Space(curved(name, order=2), 2, dtype=np.float32, quadrature="collapsed")
    n, c = ({"backend": "numpy", "algorithm": algorithm} for algorithm in ("noncollocated", "collocated"))
    velocity = [0.3, -0.2, 0.5][: deformed.dim]
    again, variable = SumFacTopOptions(3, source=FactorSource.RECOMPUTED), {"k": lambda *x: 1 + x[0], "lam": 0.7}
    made = [
        (hp.Helmholtz(deformed, lam=1.3, **c), SumFacTopOptions(3, prefetch=1)),
        (hp.Helmholtz(straight_sided, lam=1.3, **n), again),
        (hp.WeakForm(deformed, lambda u, du, x, k, lam: (lam * u * x[0], k * du), fields=variable, **n), again),
        (hp.AdvectionDiffusionReaction(deformed, velocity, 1.5, 0.4, **c), SumFacTopOptions(2, l2=True)),
        (hp.Mass(single, backend="numpy"), SumFacTopOptions(4, split=7)),
    ]
    for operator, options in made:
        for choice in operator.choices:
            possible = options.source in possible_sources(choice.kernel.problem)
            own = options if possible else replace(options, source=FactorSource.STORED)
            check(kernel_of(choice.kernel.problem, own), choice.kernel, 3, rng)


def test_further_forms(on_host, rng):
    """Affine elements, forms between values and coefficients, a thread for each element."""
    deformed, affine = hp.Space(curved("prism", order=2), 1), hp.Space(skewed(straight("prism")), 1)
    n = {"backend": "numpy", "algorithm": "noncollocated"}
    made = [
        (hp.Helmholtz(affine, lam=1.3, **n), SumFacTopOptions(2)),
        (hp.PhysDeriv(deformed, backend="numpy"), SumFacTopOptions(2)),
        (hp.IProductWRTDerivBase(deformed, **n), SumFacTopOptions(2)),
        (hp.BwdTrans(deformed, backend="numpy"), SumFacTopOptions(2)),
        (hp.Helmholtz(deformed, lam=1.3, **n), "sumfac"),
    ]
    for operator, options in made:
        check(kernel_of(operator.choices[0].kernel.problem, options), operator.choices[0].kernel, 2, rng)


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu(name, rng):
    """Every strategy, on elements of every kind, against NumPy component by component."""
    compared = 0
    for mesh in (curved(name, order=2), tapered(name), skewed(straight(name))):
        for order, quadrature in ((1, None), (3, None), (3, "simplex"))[: 3 if name in ("tri", "tet") else 2]:
            space = hp.Space(mesh, order, quadrature=quadrature)
            coeff, phys = (random_field(space, rng, state, 3 * space.dim) for state in ("coeff", "phys"))
            for make, field in (
                (partial(hp.Helmholtz, lam=1.0), coeff),
                (hp.Mass, coeff),
                (lambda s, **k: hp.Helmholtz(s, lam=lambda *x: 1 + x[0], diffusivity=lambda *x: 2 - x[1], **k), coeff),
                (hp.PhysDeriv, phys),
                (hp.IProductWRTDerivBase, phys),
            ):
                wanted = make(space, backend="numpy")(field)
                for strategy in BACKENDS["cuda"].strategy_names:
                    for algorithm in ("collocated", "noncollocated"):
                        try:
                            operator = make(space, backend="cuda", strategy=strategy, algorithm=algorithm)
                        except (NotSuitable, ArgumentError):
                            continue
                        found = operator(field)
                        for own, other in zip(found.data, wanted.data, strict=True):
                            error = norm_error(own.read(), other.read())
                            assert error < 1e-12, (operator.name, strategy, algorithm, order, quadrature)
                        compared += 1
    assert compared


def test_global_vectors(on_host, rng, monkeypatch):
    """Kernels on a global vector of several components, against theirs on what scatter makes of it."""
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 2, quadrature="collapsed"))
    tables, vector = IndexTables(c0.block_matrix), rng.standard_normal((3, c0.size))
    local = (c0.matrix @ vector.T).T
    form = hp.Helmholtz(c0.space, lam=0.7, backend="numpy")
    for number, choice in enumerate(form.choices):
        rows = slice(tables.starts[number], tables.starts[number + 1])
        Q = tables.codes[rows], tables.row_starts, tables.columns, tables.values
        modes = c0.block_matrix.blocks[number].modes
        restriction = SimpleNamespace(
            size=c0.size, block=lambda _, Q=Q: Q, codes=lambda _, modes=modes: SimpleNamespace(modes=modes)
        )
        kernel = kernel_of(choice.kernel.problem, SumFacTopOptions(2))
        source = np.ascontiguousarray(local[:, rows]).reshape(3, choice.kernel.problem.n_elements, -1)
        out, wanted = np.full_like(source, np.nan), np.full_like(source, np.nan)
        kernel.apply(source, wanted)
        for faster in (True, False):
            monkeypatch.setattr(TreeKernel, "_is_faster", lambda *_, faster=faster: faster)
            monkeypatch.setattr(tree_kernel, "_FASTER", {})
            found = kernel.in_product(restriction, number)()
            assert found.scattered == faster
            out[...] = np.nan
            found.apply(vector if faster else source, out)
            assert np.array_equal(out, wanted[:, :, modes])


def _in_products(rng):
    """Kernels of every family, and the basis of each."""
    mesh = rotated(ours("cube_mixed.msh"), rng)
    bent = mesh.elevated(2).transformed(lambda x: x + 0.05 * x[:, ::-1] ** 2)
    problems = [
        (block.basis, choice.kernel.problem)
        for space in (hp.Space(mesh, 3, quadrature="collapsed"), hp.Space(bent, 3, quadrature="collapsed"))
        for block, choice in zip(
            space.blocks, hp.Helmholtz(space, lam=0.7, backend="numpy", algorithm="noncollocated").choices, strict=True
        )
    ]
    simplex = hp.Space(curved("tet", order=2), 3, quadrature="simplex")
    nodal = hp.Space(curved("hex", order=2), 7, "lagrange", quadrature="collocated")
    for space in (simplex, nodal):
        choices = hp.Helmholtz(space, lam=0.7, backend="numpy").choices
        problems += [(block.basis, choice.kernel.problem) for block, choice in zip(space.blocks, choices, strict=True)]
    for basis, problem in problems:
        for strategy in BACKENDS["cuda"].strategies:
            if strategy.name == "stdmat" or strategy.tensor > problem.tabulation.rule.tensor:
                continue
            for options in (None, DenseOptions(4, tiles=0)) if strategy.name == "dense" else (None,):
                try:
                    made = strategy.build(problem, options if options is None else text.to_text(options))
                except NotSuitable:
                    continue
                yield made.strategy, basis, made


def test_results_in_products_stand_by_entity(on_host, rng, monkeypatch):
    """Those of every family, to the bit, in the order of `Codes.modes`."""
    monkeypatch.setattr(TreeKernel, "_is_faster", lambda *_: False)
    monkeypatch.setattr(tree_kernel, "_FASTER", {})
    seen = set()
    for name, basis, kernel in _in_products(rng):
        problem, modes = kernel.problem, modes_by_entity(basis)
        own = SimpleNamespace(modes=modes)
        restriction = SimpleNamespace(
            size=0, block=lambda _: (np.zeros(1, np.int32),) * 4, codes=lambda _, own=own: own
        )
        found = kernel.in_product(restriction, 0)
        source = rng.standard_normal((2, problem.n_elements, problem.n_input)).astype(problem.dtype)
        out, wanted = np.full_like(source, np.nan), np.full_like(source, np.nan)
        kernel.apply(source, wanted)
        found().apply(source, out)
        assert np.array_equal(out, wanted[:, :, modes]), name
        seen.add((name, problem.shape.name))
    assert {name for name, _ in seen} >= {"sumfac", "sumfac-top", "kronecker", "dense", "fused"}


def test_teams_of_warps(on_host, rng):
    """Two sets of three coupled components at once, with few multiprocessors."""
    space = hp.Space(curved("tet", 2), 2, quadrature="simplex")

    def stress(du):
        return [[du[i][j] * du[j][i] + du[j][j] for j in range(3)] for i in range(3)]

    problem = hp.WeakForm(space, stress, test="grad", components=3, backend="numpy").choices[0].kernel.problem
    source = rng.standard_normal((6, problem.n_elements, problem.n_modes))
    expected, found = np.empty_like(source), np.full_like(source, np.nan)
    NumpyKernel(problem, "stdmat").apply(source, expected)
    FusedKernel(FusedPlan(problem, CudaFused().fitting(problem, Limits())[0]), "fused").apply(source, found)
    assert norm_error(found, expected) < 1e-12
