"""Compiled kernels against the NumPy reference: every form, shape, geometry kind, algorithm, dtype and processor."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hpfem.backends import BACKENDS
from hpfem.backends.cpu import backend as cpu_backend
from hpfem.backends.cpu.codegen.dense import write_dense
from hpfem.backends.cpu.codegen.indexed import Runs
from hpfem.backends.cpu.codegen.line import Line
from hpfem.backends.cpu.codegen.prefetch import BY_WORK
from hpfem.backends.cpu.codegen.sumfac import write_sumfac
from hpfem.backends.cpu.runtime import kernel as runtime
from hpfem.backends.cpu.runtime.kernel import CpuKernel, fetches_of
from hpfem.backends.cpu.runtime.target import Target, host
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import ArgumentError, NotSuitable
from hpfem.forms.cost import operator_bytes, operator_flops
from hpfem.forms.merged import merged
from hpfem.forms.sources import of_source, possible_sources
from hpfem.geometry import FactorSource
from hpfem.memory import PairArray
from hpfem.mesh import box
from hpfem.operators import Helmholtz, Mass, WeakForm
from hpfem.shapes import SHAPES as BY_NAME
from hpfem.space import Space
from hpfem.support.threads import run_all, thread_count
from tests.backends.cpu.processors import narrower
from tests.backends.problems import FORMS, FORMS_WITH_GRADIENT, curve_problems, make_space
from tests.cases import SHAPES, each_shape
from tests.samples import FLAT, curved, long, skewed, straight, tapered

solid_shapes = each_shape([shape for shape in SHAPES if shape.dim > 1])

STORED, RECOMPUTED = FactorSource.STORED, FactorSource.RECOMPUTED
QUAD, HEX, TET, TRI, PRISM, PYRAMID = (BY_NAME[name] for name in ("quad", "hex", "tet", "tri", "prism", "pyramid"))
TOLERANCE = {"float64": 1e-12, "float32": 1e-4}


def differences(space, form, algorithm, rng, target=None, strategy="sumfac", factors=STORED):
    """Largest relative difference between compiled and NumPy results, per block."""
    operator = FORMS[form](space, strategy="sumfac", algorithm=algorithm)
    for choice in operator.choices:
        problem = choice.kernel.problem
        components = problem.form.components if problem.form.components > 1 else 2 * problem.coupled
        source = rng.standard_normal((components, problem.n_elements, problem.n_input)).astype(problem.dtype)
        out = np.full((problem.components_out(components), problem.n_elements, problem.n_output), 7, problem.dtype)
        expected = np.empty_like(out)
        choice.kernel.apply(source, expected)
        own = factors if factors in possible_sources(problem) else STORED
        CpuKernel(of_source(problem, own), strategy, target).apply(source, out)
        yield np.abs(out - expected).max() / np.abs(expected).max()


@solid_shapes
@pytest.mark.parametrize("deformed", [False, True], ids=["affine", "deformed"])
def test_every_form(shape, deformed, rng):
    space = make_space(shape, 3, deformed)
    for form in FORMS:
        for difference in differences(space, form, "collocated", rng):
            assert difference < 1e-12, form
    for form in FORMS_WITH_GRADIENT:
        for difference in differences(space, form, "noncollocated", rng):
            assert difference < 1e-12, form


@solid_shapes
@pytest.mark.parametrize("kind", ["multilinear", "quadratic"])
def test_factors_recomputed_from_maps(shape, kind, rng):
    """Forms with every kind of factors at one order, Helmholtz at the others; both algorithms, single precision."""
    if kind == "multilinear" and shape.name in FLAT:
        return
    mesh = tapered(shape.name).elevated(2) if kind == "multilinear" else curved(shape.name, 2)
    for order in (1, 2, 3, 5, 8) if shape.name == "hex" and kind == "multilinear" else (1, 2, 4):
        space = Space(mesh, order, quadrature="collapsed", backend="numpy")
        assert {block.geometry.kind.name for block in space.blocks} - {"affine"} == {kind}
        for form in ("Helmholtz", "Mass", "IProductWRTDerivBase", "PhysDeriv", "coupled")[: 5 if order == 2 else 1]:
            for algorithm in ("collocated", "noncollocated")[: 1 + (form in FORMS_WITH_GRADIENT)]:
                worst = max(differences(space, form, algorithm, rng, factors=RECOMPUTED))
                assert worst < 1e-12, (order, form, algorithm)
    single = Space(mesh, 2, quadrature="collapsed", dtype="float32", backend="numpy")
    assert max(differences(single, "Helmholtz", "collocated", rng, factors=RECOMPUTED)) < TOLERANCE["float32"]


def test_what_is_not_recomputed():
    for mesh, quadrature in ((curved("tet", 2), "simplex"), (curved("tet", 3), None), (skewed(straight("hex")), None)):
        problem = FORMS["Helmholtz"](Space(mesh, 2, backend="numpy", quadrature=quadrature)).choices[0].kernel.problem
        with pytest.raises(NotSuitable, match="factors of Helmholtz on .* are not recomputed"):
            CpuKernel(of_source(problem, RECOMPUTED))
    operator = Helmholtz(Space(tapered("hex"), 2), lam=1.0, backend="cpu")
    with pytest.raises(ArgumentError, match="'sumfac' has no options 'other'"):
        operator.backend.strategy("sumfac").build(operator.choices[0].kernel.problem, "other")


def test_factors_that_fit_no_cache_are_recomputed(monkeypatch):
    """Where they take longer to read than to make, by the model."""
    space = Space(tapered("hex"), 3, backend="cpu")
    small = Helmholtz(space, 0.7)
    monkeypatch.setattr(cpu_backend, "last_level_cache", lambda: 1000)
    large = Helmholtz(space, 0.7)
    assert [o.choices[0].kernel.problem.source.recomputes for o in (small, large)] == [False, True]
    text = large.explain()
    assert "scaled (least expected time by the model), expected " in text
    assert "; metric, scaled: 1 numbers per point and 21 numbers per element" in text
    strategy, problem = large.backend.strategy("sumfac"), small.choices[0].kernel.problem
    assert next(strategy.search(problem)) == ("scaled", "stored", "recomputed")
    assert not strategy.build(problem, "stored").problem.source.recomputes
    for form, mesh, order, recomputed in (
        ("PhysDeriv", tapered("prism"), 2, True),
        ("Mass", tapered("hex"), 3, False),
        ("Helmholtz", tapered("hex"), 1, False),
        ("Helmholtz", curved("hex", 2), 7, False),
        ("Helmholtz", curved("tet", 2), 2, False),
        ("Helmholtz", curved("tet", 3), 2, False),
    ):
        problem = FORMS[form](Space(mesh, order, quadrature="collapsed", backend="numpy")).choices[0].kernel.problem
        assert (strategy.default(problem) in ("recomputed", "scaled")) == recomputed, (form, order)


@solid_shapes
def test_diagonals_with_recomputed_factors(shape):
    operator = FORMS["Helmholtz"](Space(curved(shape.name, 2), 3, quadrature="collapsed", backend="numpy"))
    problem = operator.choices[0].kernel.problem
    stored, recomputed = (CpuKernel(of_source(problem, own)).diagonal() for own in (STORED, RECOMPUTED))
    np.testing.assert_allclose(recomputed, stored, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("vector_bytes", [16, 64])
def test_library_functions(dtype, vector_bytes, rng):
    """Functions that LLVM turns into calls of the C library, lane by lane, and what it keeps in vectors."""
    space = make_space(QUAD, 2, True, dtype)
    difference = max(differences(space, "library", "collocated", rng, narrower(vector_bytes)))
    assert difference < TOLERANCE[dtype]


@solid_shapes
def test_single_precision(shape, rng):
    space = make_space(shape, 4, True, "float32")
    for form in ("Helmholtz", "transport", "IProductWRTBase", "PhysDeriv"):
        assert max(differences(space, form, "collocated", rng)) < TOLERANCE["float32"]


@solid_shapes
@pytest.mark.parametrize("order", [1, 2, 6])
@pytest.mark.parametrize("basis", ["modified", "orthogonal", "lagrange"])
def test_orders_and_bases(shape, order, basis, rng):
    space = make_space(shape, order, True, cells=1, basis=basis)
    for form in ("Helmholtz", "BwdTrans"):
        assert max(differences(space, form, "collocated", rng)) < 1e-12
    assert max(differences(space, "advection", "noncollocated", rng)) < 1e-12


@solid_shapes
@pytest.mark.parametrize("components", [1, 2])
def test_stages_share_scratch(shape, components):
    """Values and derivatives by eta_1 at the points, and by eta_2 on a plane: levels of the tree take no room."""
    for order in (1, 2, 4, 8):
        q = order + 2
        form = FORMS["coupled" if components > 1 else "Helmholtz"]
        made = form(make_space(shape, order, True), algorithm="collocated", strategy="sumfac")
        problem = made.choices[0].kernel.problem
        plane = q ** (shape.dim - 1) | 1
        of_each = 2 * (q * plane | 1) + (plane if shape.dim > 2 else 0)
        assert write_sumfac(problem, 8).scratch_size <= problem.coupled * of_each


@pytest.mark.parametrize("points", ["gauss", "collocated", 2])
def test_other_points(points, rng):
    for shape in (QUAD, HEX):
        space = make_space(shape, 3, True, quadrature=points)
        assert max(differences(space, "Helmholtz", "collocated", rng)) < 1e-12


@solid_shapes
@pytest.mark.parametrize("order", [1, 2, 4])
def test_dense_matrices_of_affine_elements(shape, order, rng):
    space = make_space(shape, order, False)
    for form in ("Mass", "Laplacian", "Helmholtz"):
        assert max(differences(space, form, "collocated", rng, strategy="dense")) < 1e-12


def test_dense_matrices_are_refused_where_there_are_none():
    affine, deformed = make_space(HEX, 1, False), make_space(HEX, 1, True)
    for space, form in ((deformed, "Mass"), (affine, "variable Helmholtz"), (affine, "coupled"), (affine, "BwdTrans")):
        problem = FORMS[form](space, strategy="sumfac").choices[0].kernel.problem
        with pytest.raises(NotSuitable):
            CpuKernel(problem, "dense")


@pytest.mark.parametrize("strategy", ["sumfac", "dense"])
def test_kernels_for_data_out_of_cache(strategy, rng, monkeypatch):
    monkeypatch.setattr("hpfem.backends.cpu.runtime.kernel.PREFETCH_BYTES", 0)
    for shape in (HEX, TET, QUAD):
        space = make_space(shape, 2, False)
        assert max(differences(space, "Helmholtz", "collocated", rng, strategy=strategy)) < 1e-12


def test_how_often_lines_are_fetched_is_an_option_where_caches_are_too_small(rng, monkeypatch):
    """The same bits; the tuner tries others for the fastest source of factors."""
    [choice] = FORMS["Helmholtz"](make_space(TET, 2, True), algorithm="collocated", backend="cpu").choices
    problem, strategy = choice.kernel.problem, BACKENDS["cpu"].strategy("sumfac")
    zen, other = Target("znver5", "+clzero", 64), Target("cascadelake", "-clzero", 64)
    monkeypatch.setattr(cpu_backend, "host", lambda: zen)
    for nbytes, timed, tried in (
        (4 << 20, {None: 1.0}, []),
        (1, {None: 1.0}, [f"fetches={n}" for n in (0, 1, 2, 4, 8)]),
        (1, {None: 1.0, "recomputed": 0.5}, [f"recomputed fetches={n}" for n in (0, 1, 2, 4, 8)]),
    ):
        monkeypatch.setattr(runtime, "PREFETCH_BYTES", nbytes)
        search = strategy.search(problem)
        assert next(search)[0] is None and search.send(timed) == tried
    ways = (("sumfac", zen), ("fused", zen), ("sumfac", other))
    assert [fetches_of(problem, *way)[0] for way in ways] == [BY_WORK, 2, 2]
    size = operator_bytes(problem) * problem.n_elements
    monkeypatch.setattr(runtime, "PREFETCH_BYTES", size - 1)  # in a shared cache
    assert [fetches_of(problem, *way)[0] for way in ways] == [1, 1, 1]
    monkeypatch.setattr(runtime, "_LARGE_GROUP", 0)
    assert [fetches_of(problem, *way)[0] for way in ways] == [0, 1, 0]
    source, results = rng.standard_normal((1, problem.n_elements, problem.n_input)), []
    for options in (None, "fetches=0", "fetches=4", "stored fetches=8"):
        kernel = strategy.build(problem, options)
        results.append(np.empty((1, problem.n_elements, problem.n_output)))
        kernel.apply(source, results[-1])
        assert np.array_equal(results[-1], results[0])
    monkeypatch.setattr(runtime, "_specialised", lambda *key: pytest.fail(f"fetches {key[3]}"))
    with pytest.raises(pytest.fail.Exception, match="fetches 8"):
        kernel.indexed(np.zeros(0, np.int32), ())  # a global product fetches as often
    with pytest.raises(ArgumentError, match=r"'sumfac' has no options 'fetches=3': fetches are of \(0, 1, 2"):
        strategy.build(problem, "fetches=3")
    with pytest.raises(ArgumentError, match="'dense' has no options 'stored'"):
        BACKENDS["cpu"].strategy("dense").build(problem, "stored fetches=1")


@pytest.mark.parametrize("shape", [HEX, QUAD])
def test_auto_takes_dense_matrices_at_order_1_and_those_of_directions_above(shape):
    for form in ("Helmholtz", "Mass"):
        for order in (1, 2, 5, 8):
            [choice] = FORMS[form](make_space(shape, order, False), backend="cpu").choices
            assert choice.strategy == ("dense" if order == 1 else "kronecker")


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("shape", [HEX, QUAD])
def test_matrices_of_directions(shape, far, rng, monkeypatch):
    """In cache and out of it, all orders, both precisions, skewed cells, any rule and basis; far, orders 1, 4 and 7."""
    monkeypatch.setattr("hpfem.backends.cpu.runtime.kernel.PREFETCH_BYTES", 0 if far else 1 << 40)
    how = {"strategy": "kronecker"}
    for order in range(1, 9, 1 + 2 * far):
        space = make_space(shape, order, False)
        for form in ("Helmholtz", "Mass", "Laplacian")[: 3 if order < 5 else 1]:
            assert max(differences(space, form, "noncollocated", rng, **how)) < 1e-13
    for options in ({"quadrature": "collocated"}, {"quadrature": "gauss"}, {"basis": "orthogonal"}):
        space = make_space(shape, 3, False, **options)
        assert max(differences(space, "Helmholtz", "noncollocated", rng, **how)) < 1e-13
    space = make_space(shape, 4, False, dtype="float32")
    assert max(differences(space, "Helmholtz", "noncollocated", rng, **how)) < 2e-6


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("shape", [TET, TRI, PRISM])
def test_matrices_of_an_orthonormal_basis(shape, far, rng, monkeypatch):
    """In cache and out of it, low and high orders, both precisions, skewed cells, another rule and other bases."""
    monkeypatch.setattr("hpfem.backends.cpu.runtime.kernel.PREFETCH_BYTES", 0 if far else 1 << 40)
    how, more = {"strategy": "orthogonal"}, [{"quadrature": "gauss"}, {"basis": "orthogonal"}]
    if shape is not PRISM:
        more.append({"basis": "lagrange"})
    for order in (2, 5 - (shape is PRISM)) if far else (1, 2, 3, 4) if shape is PRISM else (1, 2, 3, 4, 5, 8):
        space = make_space(shape, order, False)
        for form in ("Helmholtz", "Mass", "Laplacian")[: 3 if order < 5 else 1]:
            assert max(differences(space, form, "noncollocated", rng, **how)) < 1e-13
    for options in more:
        space = make_space(shape, 3, False, **options)
        assert max(differences(space, "Helmholtz", "noncollocated", rng, **how)) < 1e-13
    space = make_space(shape, 4, False, dtype="float32")
    assert max(differences(space, "Helmholtz", "noncollocated", rng, **how)) < 2e-6


@pytest.mark.parametrize("shape", [TET, TRI, PRISM])
def test_auto_takes_matrices_of_an_orthonormal_basis(shape):
    for form, order in (("Helmholtz", 3), ("Helmholtz", 4), ("Mass", 4)):
        [choice] = FORMS[form](make_space(shape, order, False), backend="cpu").choices
        assert choice.strategy == "orthogonal"
    [choice] = FORMS["Helmholtz"](make_space(TET, 9, False), backend="cpu").choices
    assert choice.strategy == "sumfac"


@solid_shapes
@pytest.mark.parametrize("far", [False, True])
def test_components_together_are_those_alone(shape, far, rng, monkeypatch):
    """The same bits: a group's factors serve one component after the other, or those of two groups."""
    monkeypatch.setattr("hpfem.backends.cpu.runtime.kernel.PREFETCH_BYTES", 0 if far else 1 << 40)
    monkeypatch.setattr("hpfem.backends.cpu.codegen.ir._SHARED", 1000)
    monkeypatch.setattr(runtime, "_specialised", runtime._specialised.__wrapped__)  # written with that number
    spaces = make_space(shape, 2, True), make_space(shape, 2, False, cells=3)
    forms = ("Helmholtz", "IProductWRTDerivBase", "transport", "Mass", "PhysDeriv")[: 3 if far else 5]
    ways = [(space, form, "sumfac") for space in spaces for form in forms] + [(spaces[1], "Helmholtz", "dense")]
    more = {HEX: "kronecker", TET: "orthogonal"}
    ways += [(spaces[1], form, more[shape]) for form in ("Helmholtz", "Mass") if shape in more]
    for space, form, strategy in ways:
        algorithm = "noncollocated" if strategy in more.values() else "auto"
        for problem in (choice.kernel.problem for choice in FORMS[form](space, algorithm=algorithm).choices):
            kernel, taken, given = CpuKernel(problem, strategy), problem.coupled, problem.given
            source = rng.standard_normal((3 * taken, problem.n_elements, problem.n_input))
            out = np.full((3 * given, problem.n_elements, problem.n_output), np.nan)
            kernel.apply(source, out)
            for c in range(3):
                alone = np.full_like(out[:given], np.nan)
                kernel.apply(source[c * taken : (c + 1) * taken], alone)
                assert np.array_equal(out[c * given : (c + 1) * given], alone), form


@pytest.mark.parametrize("elements", [1, 7, 8, 9, 27])
def test_element_counts(elements, rng):
    """Short last groups, and one element."""
    space = make_space(HEX, 2, True, cells=3)
    geometry = space.blocks[0].geometry.part(elements)
    for form in ("Helmholtz", "PhysDeriv", "IProductWRTDerivBase", "transport"):
        whole = FORMS[form](space, strategy="sumfac").choices[0].kernel.problem
        fields = {k: replace(v, pair=PairArray.of(v.values[:, :elements].copy())) for k, v in whole.fields.items()}
        problem = replace(whole, geometry=geometry, fields=fields)
        source = rng.standard_normal((problem.coupled, elements, problem.n_input))
        out = np.empty((problem.components_out(problem.coupled), elements, problem.n_output))
        expected = out.copy()
        NumpyKernel(problem, "sumfac").apply(source, expected)
        CpuKernel(problem).apply(source, out)
        assert np.abs(out - expected).max() <= 1e-12 * np.abs(expected).max()


def test_no_elements():
    space = make_space(HEX, 2, True)
    problem = FORMS["Helmholtz"](space, strategy="sumfac").choices[0].kernel.problem
    empty = np.empty((1, 0, 27))
    CpuKernel(replace(problem, geometry=problem.geometry.part(0))).apply(empty, empty)


def test_threads_change_nothing(rng, monkeypatch):
    """The same bits whatever the number of threads, and more threads than groups."""
    monkeypatch.setattr("hpfem.backends.cpu.runtime.kernel.THREAD_FLOPS", 1)
    space = make_space(TET, 3, True)
    problem = FORMS["Helmholtz"](space, strategy="sumfac").choices[0].kernel.problem
    source = rng.standard_normal((2, problem.n_elements, problem.n_modes))
    results = []
    for threads in ("1", "2", "3", "64"):
        monkeypatch.setenv("HPFEM_NUM_THREADS", threads)
        results.append(np.empty_like(source))
        CpuKernel(problem).apply(source, results[-1])
    assert all(np.array_equal(results[0], other) for other in results)


def test_bad_thread_count(monkeypatch):
    monkeypatch.setenv("HPFEM_NUM_THREADS", "many")
    with pytest.raises(ArgumentError, match="HPFEM_NUM_THREADS"):
        thread_count()


def test_an_error_in_a_thread_is_raised():
    done = []

    def fail():
        raise ArgumentError("from a thread")

    for _ in range(2):
        with pytest.raises(ArgumentError, match="from a thread"):
            run_all([lambda: done.append(1), fail, lambda: done.append(2)])
    run_all([lambda: done.append(3), lambda: done.append(4)])
    assert sorted(done) == [1, 1, 2, 2, 3, 4]


def test_strided_arrays(rng):
    space = make_space(HEX, 2, True)
    problem = FORMS["Helmholtz"](space, strategy="sumfac").choices[0].kernel.problem
    kernel = CpuKernel(problem)
    source = rng.standard_normal((1, problem.n_elements, problem.n_modes))
    out, wide = np.empty_like(source), np.empty((1, problem.n_elements, 2 * problem.n_modes))
    kernel.apply(source, out)
    kernel.apply(np.asfortranarray(source), wide[:, :, ::2])
    assert np.array_equal(out, wide[:, :, ::2])


@each_shape([HEX, TET])
def test_own_operations_are_below_the_model(shape):
    """Parity saves operations of the textbook count, and they grow like P^(d+1)."""
    counts = []
    for order in (4, 8):
        space = make_space(shape, order, True, cells=1)
        problem = FORMS["Helmholtz"](space, strategy="sumfac").choices[0].kernel.problem
        kernel = CpuKernel(problem)
        counts.append(kernel.group_flops / kernel.lanes)
        assert 0.4 * kernel.flops < counts[-1] < kernel.flops
        assert kernel._geometry.nbytes == 7 * 8 * problem.n_points * kernel.lanes * kernel.groups
    assert np.log2(counts[1] / counts[0]) < 4


@solid_shapes
@pytest.mark.parametrize("algorithm", ["collocated", "noncollocated"])
@pytest.mark.parametrize("form", ["Mass", "Helmholtz", "advection"])
def test_the_model_counts_what_a_kernel_without_parity_does(shape, algorithm, form, monkeypatch):
    """But for the first addition of each sum, which the textbook counts and nobody performs. No table entry is zero."""
    monkeypatch.setattr(Line, "_find", lambda self: False)
    space = make_space(shape, 5, True, cells=1, quadrature="gauss")
    problem = FORMS[form](space, strategy="sumfac", algorithm=algorithm).choices[0].kernel.problem
    ratio = write_sumfac(problem, 8).flops / operator_flops(problem, "sumfac")
    assert 0.85 < ratio <= 1, ratio


@solid_shapes
@pytest.mark.parametrize("kind", ["multilinear", "quadratic"])
def test_the_model_counts_what_recomputes_factors(shape, kind):
    """Where all that the generator writes is used; on lines of the first direction, as the model has them."""
    if kind == "multilinear" and shape.name in FLAT:
        return
    space = Space(
        tapered(shape.name) if kind == "multilinear" else curved(shape.name, 2),
        3,
        quadrature="collapsed",
        backend="numpy",
    )
    for form in ("Helmholtz", "Laplacian", "advection", "IProductWRTDerivBase"):
        problem = FORMS[form](space, algorithm="noncollocated").choices[-1].kernel.problem
        problems = of_source(problem, RECOMPUTED), problem
        counted, model = (write_sumfac(p, 8).flops for p in problems), (operator_flops(p, "sumfac") for p in problems)
        assert next(counted) - next(counted) == next(model) - next(model), form


def test_live_fields(rng):
    """A field that a form reads may change between applications."""
    space = make_space(HEX, 2, True)
    problem = FORMS["variable Helmholtz"](space, strategy="sumfac").choices[0].kernel.problem
    problem = replace(
        problem, fields={k: replace(v, pair=PairArray.of(v.values.copy())) for k, v in problem.fields.items()}
    )
    kernel = CpuKernel(problem)
    source = rng.standard_normal((1, problem.n_elements, problem.n_modes))
    first, second = np.empty_like(source), np.empty_like(source)
    kernel.apply(source, first)
    for field in problem.fields.values():
        field.pair.readwrite()[...] *= 2
    kernel.apply(source, second)
    np.testing.assert_allclose(second, 2 * first, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("shape", "vector_bytes"),
    [
        *((HEX, 16), (TET, 16), (PYRAMID, 32), (TRI, 32)),
        *long(*product((QUAD, PRISM), (16, 32)), (TRI, 16), (PYRAMID, 16), (HEX, 32), (TET, 32)),
    ],
)
def test_other_processors(shape, vector_bytes, rng):
    """A generic target, and AVX2 forced on wider machines."""
    if vector_bytes > host().vector_bytes:
        return
    target = narrower(vector_bytes)
    for dtype, form in (("float64", "Helmholtz"), ("float64", "reaction"), ("float32", "Helmholtz")):
        space = make_space(shape, 2, True, dtype)
        assert max(differences(space, form, "collocated", rng, target)) < TOLERANCE[dtype]
    own = {TET: "orthogonal", TRI: "orthogonal", PRISM: "orthogonal", HEX: "kronecker", QUAD: "kronecker"}
    for dtype in TOLERANCE if shape in own else ():
        space = make_space(shape, 4, False, dtype)
        assert max(differences(space, "Helmholtz", "noncollocated", rng, target, own[shape])) < TOLERANCE[dtype]


@pytest.mark.parametrize("order", [1, 4])
@pytest.mark.parametrize("affine", [False, True])
def test_curves_in_the_plane(order, affine, rng):
    """One direction, two coordinates: rows and columns are the same fibers."""
    ends = rng.standard_normal((11, 2, 2)) + 3 * np.array([[0.0, 1.0], [0.0, 0.5]])
    for problem in curve_problems(order, affine, ends):
        source = rng.standard_normal((problem.coupled, 11, problem.n_input))
        out = np.empty((problem.components_out(problem.coupled), 11, problem.n_output))
        expected = out.copy()
        NumpyKernel(problem, "sumfac").apply(source, expected)
        CpuKernel(problem).apply(source, out)
        assert np.abs(out - expected).max() <= 1e-12 * np.abs(expected).max(), problem.form.name


@pytest.mark.parametrize("write", [write_sumfac, write_dense])
def test_results_are_fetched_for_writing_where_they_are_in_a_row(write):
    problem = Mass(Space(skewed(straight("tet")), 2, quadrature="collapsed", backend="numpy")).choices[0].kernel.problem
    modes = range(problem.n_modes)
    places = {
        "local": None,
        "apart": (Runs(tuple((mode,) for mode in modes), (True,)),),
        "side by side": (Runs((tuple(modes),), (False,) * len(modes)),),
    }
    for far, (name, runs) in product((False, True), places.items()):
        text = write(problem, 8, far, runs).text
        reads, writes = (re.search(rf"i32 {kind}, i32 [23], i32 1\)", text) is not None for kind in (0, 1))
        assert reads == far and writes == (far and name != "apart")


def test_code_is_written_once_for_problems_that_differ_in_data_alone(monkeypatch):
    """Elements, numbers of parameters and values of fields are data; everything else is in the code."""

    def made(mesh, kind, order=2, dtype="float64", factor=1.0, **options):
        space = Space(mesh, order, dtype=dtype, backend="numpy")
        form = {
            "merged": lambda: Helmholtz(space, factor, lambda *x: factor + x[0]),
            "fields": lambda: Helmholtz(space, factor, space.evaluate(lambda *x: factor + x[0])),
            "constant": lambda: WeakForm(space, lambda u: factor * u, test="value"),
            "mass": lambda: Mass(space, **options),
        }[kind]()
        problem = form.choices[0].kernel.problem
        return CpuKernel(merged(problem) if kind == "merged" else problem)

    small = curved("hex", order=2)
    large = box("hex", (3, 2, 2)).elevated(2).transformed(lambda x: x + 0.1 * x[:, ::-1] ** 2)
    for kind in ("merged", "fields", "mass"):
        first = made(small, kind)
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "_WRITERS", {})
            same = made(large, kind, factor=3.0)
        assert same.code is first.code and same.group_flops == first.group_flops
        others = [made(small, kind, 3), made(small, kind, dtype="float32"), made(straight("hex"), "mass")]
        assert len({id(own.code) for own in (first, *others)}) == 4
    assert made(small, "constant").code is not made(small, "constant", factor=3.0).code
    rounded, kept = (made(small.transformed(lambda x, s=s: s * x), "mass", precision="mixed") for s in (1, 1e-14))
    assert rounded._geometry.dtype == np.float32 and kept._geometry.dtype == np.float64
    assert kept.code is made(small, "mass").code is not rounded.code
