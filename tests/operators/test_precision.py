"""precision="mixed": geometric factors in float32, arithmetic in float64, on every shape and backend."""

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.linalg

import hpfem as hp
from hpfem.assembly.entries import element_matrices
from hpfem.backends.base import BACKENDS
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import ArgumentError
from hpfem.forms.cost import operator_bytes
from hpfem.geometry.block_geometry import BlockGeometry
from hpfem.geometry.kinds import GENERAL
from hpfem.geometry.rounding import rounding_error
from hpfem.solvers import make_preconditioner
from hpfem.tuning.key import tuning_key
from tests.backends.problems import FORMS, FORMS_WITH_GRADIENT
from tests.operators.reference import random_field
from tests.samples import FLAT, NAMES, curved, norm_error, skewed, straight, tapered

HOSTS = ("numpy", "cpu")
# Half a unit in the last place of float32.
HALF = 2.0**-24


def rounded_factors(kernel):
    """NumPy's kernel of full precision, with its factors rounded."""
    made = NumpyKernel(replace(kernel.problem, mixed=False), "stdmat")
    made.factors = made.factors.astype(np.float32).astype(np.float64)
    return made


def results(problem, kernels, rng):
    """What kernels make of the same numbers."""
    components = problem.coupled if problem.form.components > 1 else 2 * problem.coupled
    source = rng.standard_normal((components, problem.n_elements, problem.n_input))
    outs = [
        np.full((problem.components_out(components), problem.n_elements, problem.n_output), np.nan) for _ in kernels
    ]
    for kernel, out in zip(kernels, outs, strict=True):
        kernel.apply(source, out)
    return outs


@pytest.mark.parametrize("backend", HOSTS)
@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("name", NAMES)
def test_mixed_is_full_with_rounded_factors(name, order, backend, rng):
    """Helmholtz at every order, all forms with factors at one; both algorithms, two components, rules of both kinds."""
    forms = ("Mass", "PhysDeriv", "IProductWRTDerivBase", "transport", "coupled") if order == 3 else ()
    rules = ("collapsed", "simplex") if name in FLAT else ("collapsed",)
    for rule in rules:
        space = hp.Space(curved(name, 3), order, backend=backend, quadrature=rule)
        for form in ("Helmholtz", *forms):
            if rule == "simplex" and form == "PhysDeriv":
                continue
            for algorithm in ("collocated", "noncollocated")[: 1 + (form in FORMS_WITH_GRADIENT)]:
                if rule == "simplex" and algorithm == "collocated" and form in FORMS_WITH_GRADIENT:
                    continue
                operator = FORMS[form](space, algorithm=algorithm, precision="mixed", backend=backend)
                for choice in operator.choices:
                    problem = choice.kernel.problem
                    assert problem.factors_dtype == np.float32
                    full = NumpyKernel(replace(problem, mixed=False), "stdmat")
                    found, wanted, other = results(problem, [choice.kernel, rounded_factors(choice.kernel), full], rng)
                    assert norm_error(found, wanted) < 1e-12, (rule, form, algorithm)
                    assert 1e-10 < norm_error(found, other) < 1e-6, (rule, form, algorithm)


@pytest.mark.parametrize("name", NAMES)
def test_the_error_bounds_energies(name):
    """It is at least that of the worst function of every element, and not many times as large."""
    space = hp.Space(curved(name, 3), 2, backend="numpy")
    for make in (partial(hp.Helmholtz, lam=1.0), hp.Mass):
        full, mixed = make(space), make(space, precision="mixed")
        worst = 0.0
        for A, B in zip(*(element_matrices(own, 0)[0, :, 0].swapaxes(0, 1) for own in (full, mixed)), strict=True):
            worst = max(worst, np.abs(scipy.linalg.eigh(B - A, A, eigvals_only=True)).max())
        assert worst <= mixed.precision_error < 20 * worst
        assert full.precision_error == 0
    assert mixed.precision_error <= 1.01 * HALF  # of weights alone


@pytest.mark.parametrize("name", NAMES)
def test_both_kinds_of_factors_have_the_same_error(name):
    """Gradients by the metric, and by the inverse Jacobian, whose errors come in twice, with that of the weights."""
    space = hp.Space(curved(name, 3), 2, backend="numpy")
    metric = hp.Laplacian(space, precision="mixed").precision_error
    jacobian = hp.WeakForm(space, lambda du: du * du[0], test="grad", precision="mixed").precision_error
    derivative = hp.PhysDeriv(space, precision="mixed").precision_error
    assert jacobian == derivative
    assert HALF / 2 < metric < 100 * HALF and HALF / 2 < jacobian < 100 * HALF


def test_the_error_of_many_elements_is_that_of_some():
    space = hp.Space(curved("hex", 3), 4, backend="numpy")
    geometry = space.blocks[0].geometry
    many = BlockGeometry(
        geometry.shape, geometry.order, np.repeat(geometry.coefficients, 1000, axis=0), geometry.rule, GENERAL
    )
    error = rounding_error(geometry, "metric", np.float32, 1)
    assert rounding_error(many, "metric", np.float32, 1000) == pytest.approx(error, rel=1e-6)
    assert rounding_error(many.part(0), "metric", np.float32, 1000) == 0
    assert rounding_error(geometry, "metric", np.float64, 1000) == 0


@pytest.mark.parametrize("backend", HOSTS)
@pytest.mark.parametrize("name", NAMES)
def test_where_nothing_changes(name, backend, rng):
    """Affine elements, float32, forms without factors: the same bits."""
    mesh = curved(name, 3)
    made = [
        (partial(hp.Helmholtz, lam=1.0), hp.Space(skewed(straight(name)), 3, backend=backend)),
        (partial(hp.Helmholtz, lam=1.0), hp.Space(mesh, 3, backend=backend, dtype="float32")),
        (hp.BwdTrans, hp.Space(mesh, 3, backend=backend)),
    ]
    for make, space in made:
        u = random_field(space, rng)
        full, mixed = make(space), make(space, precision="mixed")
        assert all(np.array_equal(a, b) for a, b in zip(full(u).arrays, mixed(u).arrays, strict=True))
        assert mixed.precision_error == 0 and mixed.nbytes == full.nbytes and mixed.explain() == full.explain()
        for one, other in zip(full._asked(), mixed._asked(), strict=True):
            assert tuning_key(*one) == tuning_key(*other)


def test_recomputed_factors_are_not_rounded(rng):
    space = hp.Space(tapered("hex"), 3, backend="cpu")
    full, mixed = hp.Helmholtz(space, 0.7), hp.Helmholtz(space, 0.7, precision="mixed")
    strategy = BACKENDS["cpu"].strategy("sumfac")
    one, other = (o.choices[0].kernel.problem for o in (full, mixed))
    kernels = [strategy.build(p, "recomputed") for p in (one, other)]
    assert other.factors_dtype == np.float32 and kernels[1].problem.factors_dtype == np.float64
    assert np.array_equal(*results(one, kernels, rng))


def reaction(*x):
    return 1 + x[0] * x[-1]


def diffusion(*x):
    return 2 + x[-1]


def tensor(*x):
    n = range(len(x))
    return [[3 + x[0] if i == j else 0.2 * x[-1] for j in n] for i in n]


@pytest.mark.parametrize("name", NAMES)
def test_coefficients_are_rounded_with_the_factors(name, rng):
    """A product is rounded once, and the error is that of products."""
    space = hp.Space(curved(name, 3), 2, backend="cpu")
    for diffusivity in (diffusion, tensor):
        full, mixed = (hp.Helmholtz(space, reaction, diffusivity, precision=p) for p in ("full", "mixed"))
        kernel = mixed.choices[0].kernel
        assert kernel.problem.source.merges and kernel.problem.factors_dtype == np.float32
        other = NumpyKernel(replace(kernel.problem, mixed=False), "stdmat")
        found, wanted, exact = results(kernel.problem, [kernel, rounded_factors(kernel), other], rng)
        assert norm_error(found, wanted) < 1e-12 and 1e-10 < norm_error(found, exact) < 1e-6
        worst = 0.0
        for A, B in zip(*(element_matrices(own, 0)[0, :, 0].swapaxes(0, 1) for own in (full, mixed)), strict=True):
            worst = max(worst, np.abs(scipy.linalg.eigh(B - A, A, eigvals_only=True)).max())
        assert worst <= mixed.precision_error < 20 * worst and full.precision_error == 0


def test_scales_are_not_rounded(rng):
    space, strategy = hp.Space(tapered("hex"), 3, backend="cpu"), BACKENDS["cpu"].strategy("sumfac")
    for given, source in (((0.7,), "scaled"), ((reaction, diffusion), "scaled merged")):
        one, other = (hp.Helmholtz(space, *given, precision=p).problem(0) for p in ("full", "mixed"))
        kernels = [strategy.build(problem, source) for problem in (one, other)]
        assert kernels[1].problem.factors_dtype == np.float64
        assert np.array_equal(*results(one, kernels, rng))


def test_coefficients_that_are_zero_somewhere():
    space = hp.Space(curved("hex", 3), 2, backend="cpu")

    def half(x, y, z):
        return np.where(x > 0.5, 1.0 + y, 0.0)

    operator = hp.Helmholtz(space, half, half, precision="mixed")
    assert operator.choices[0].kernel.problem.factors_dtype == np.float32
    assert HALF / 2 < operator.precision_error < 100 * HALF
    along = hp.Helmholtz(space, half, lambda x, y, z: [1 + x, 0 * x, 0 * x], precision="mixed")
    assert along.precision_error > 1 and "relative error" in along.explain()


@pytest.mark.parametrize("scale", [1e-45, 1e45])
def test_products_out_of_range_are_not_rounded(scale, rng):
    space = hp.Space(curved("hex", 3), 2, backend="cpu")
    u = random_field(space, rng)
    given = reaction, lambda *x: scale * np.array(tensor(*x))
    full, mixed = (hp.Helmholtz(space, *given, precision=p) for p in ("full", "mixed"))
    problem = mixed.choices[0].kernel.problem
    assert problem.source.merges and problem.factors_dtype == np.float64 and mixed.precision_error == 0
    assert np.array_equal(full(u).arrays[0], mixed(u).arrays[0])
    few = hp.Helmholtz(space, reaction, lambda *x: scale * diffusion(*x), precision="mixed")
    assert not few.choices[0].kernel.problem.source.merges  # which would read more bytes
    assert norm_error(few(u).arrays[0], hp.Helmholtz(space, *(few.fields.values()))(u).arrays[0]) < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_bytes(name):
    """Half of those of the factors; coordinates and fields are not rounded."""
    space = hp.Space(curved(name, 3), 3, backend="numpy")
    block = space.blocks[0]
    d, points, modes = space.dim, block.n_points, block.n_modes
    for make, numbers, others in (
        (partial(hp.Helmholtz, lam=1.0), d * (d + 1) // 2 + 1, 2 * modes),
        (hp.Mass, 1, 2 * modes),
        (hp.PhysDeriv, d * d + 1, (1 + d) * points),
        (lambda s, **k: hp.WeakForm(s, lambda u, x: u * x[0], test="value", **k), 1, 2 * modes + d * points),
    ):
        operator = make(space, precision="mixed")
        problem = operator.choices[0].kernel.problem
        assert operator_bytes(problem) == 8 * others + 4 * numbers * points
        assert operator.nbytes == operator_bytes(problem) * block.n_elements


def test_factors_of_half_the_size_are_held():
    space = hp.Space(curved("hex", 3), 3, backend="numpy")
    full, geometry = hp.Helmholtz(space, lam=1.0), space.blocks[0].geometry
    both = geometry.held()["metric"]
    mixed = hp.Helmholtz(space, lam=1.0, precision="mixed")
    assert geometry.held()["metric"] == 1.5 * both
    assert "in float32, relative error" in mixed.explain() and "float32" not in full.explain()


@pytest.mark.parametrize("backend", HOSTS)
def test_explain_says_what_float32_saves_out_of_cache(backend, monkeypatch):
    spaces = [hp.Space(mesh, 3, backend=backend) for mesh in (curved("hex", 3), skewed(straight("hex")))]
    (full, affine), mixed = map(partial(hp.Helmholtz, lam=1.0), spaces), hp.Helmholtz(spaces[0], 1.0, precision="mixed")
    in_cache = full.explain(), affine.explain(), mixed.explain()
    assert not any("precision='mixed'" in text for text in in_cache)
    monkeypatch.setattr("hpfem.operators.operator.last_level_cache", lambda: 0)
    gain = operator_bytes(full.choices[0].kernel.problem) / operator_bytes(mixed.choices[0].kernel.problem)
    expected = f"{gain:.2f} times as fast where memory binds; relative error {mixed.precision_error:.1e}"
    assert f"precision='mixed': factors in float32, up to {expected}" in full.explain()
    assert (affine.explain(), mixed.explain()) == in_cache[1:]


@pytest.mark.parametrize("backend", HOSTS)
def test_factors_out_of_range_are_not_rounded(backend, rng):
    """Volumes that float32 has no numbers for."""
    mesh = curved("hex", 3).transformed(lambda x: 1e-14 * x)
    space = hp.Space(mesh, 2, backend=backend)
    u = random_field(space, rng)
    full, mixed = hp.Mass(space), hp.Mass(space, precision="mixed")
    assert np.array_equal(full(u).arrays[0], mixed(u).arrays[0]) and mixed.precision_error == 0


def test_a_tuned_result_serves_its_precision():
    space = hp.Space(curved("tet", 3), 3, backend="numpy")
    full, mixed = (tuning_key(*hp.Helmholtz(space, lam=1.0, precision=p)._asked()[0]) for p in ("full", "mixed"))
    assert "factors" not in full and mixed == {**full, "factors": "float32"}


def test_recomputed_factors_take_part_in_tuning(tmp_path, monkeypatch):
    """Their results differ by the rounding of the others, which is not taken for an error."""
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    [found] = hp.Helmholtz(hp.Space(tapered("hex"), 2, backend="cpu"), lam=1.0, precision="mixed").tune(5.0)
    assert "factors float32" in found.block and not any("wrong" in reason for reason in found.unsuitable)
    assert {config.options for config in found.seconds} >= {None, "recomputed"}


def test_names_are_checked():
    space = hp.Space(curved("tri", 3), 2)
    for given in ("half", "float32", None, 4):
        with pytest.raises(ArgumentError, match="precision"):
            hp.Mass(space, precision=given)
    with pytest.raises(ArgumentError, match="precision"):
        hp.WeakForm(space, lambda u: u, test="value", on="xmin", precision="half")


def test_operators_made_of_it_keep_the_precision():
    space = hp.Space(curved("hex", 3), 3, backend="cpu")
    operator = hp.AdvectionDiffusionReaction(space, [1.0, 0.0, 2.0], 2.0, 0.5, precision="mixed")
    others = operator.at(space.at(2)), operator.elliptic_part(), pickle.loads(pickle.dumps(operator))
    assert all(other.precision == "mixed" and other.precision_error > 0 for other in others)
    assert operator.at(space.at(2, dtype=np.float32)).precision_error == 0


@pytest.mark.parametrize("backend", HOSTS)
def test_on_a_boundary(backend, rng):
    space = hp.Space(curved("prism", 3), 3, backend=backend)
    side = next(iter(space.mesh.boundaries))
    u = random_field(space, rng)
    full, mixed = (
        hp.WeakForm(space, lambda u, du: u * du[0], test="value", on=side, precision=p)(u).arrays[0]
        for p in ("full", "mixed")
    )
    assert 0 < norm_error(mixed, full) < 1e-6


@pytest.mark.parametrize("backend", HOSTS)
@pytest.mark.parametrize("name", NAMES)
def test_solutions(name, backend):
    """With every preconditioner, Robin terms and Dirichlet values: as far from the full one as the error says.

    Corrections by an inner operator of mixed precision converge to the solution in full precision.
    """
    space = hp.Space(curved(name, 3), 4, backend=backend)
    c0 = hp.C0Space(space)
    sides = list(space.mesh.boundaries)
    bc = hp.BoundaryConditions(c0, {sides[0]: 0.0}, robin={sides[1]: (2.0, 1.0)})
    A, B = (hp.GlobalOperator(hp.Helmholtz(space, 0.5, precision=p), c0, bc) for p in ("full", "mixed"))
    free = ~bc.constrained if bc.constrained.dtype == bool else np.setdiff1d(np.arange(c0.size), bc.constrained)
    np.testing.assert_allclose(B.diagonal()[free], A.diagonal()[free], rtol=1e-5)
    b = np.zeros(c0.size)
    b[free] = np.random.default_rng(3).standard_normal(c0.size)[free]
    exact = hp.cg(A, b, tol=2e-12)[0]
    energy = np.sqrt(exact @ A(exact))
    error = B.operator.precision_error
    for name in ("none", "jacobi", "multigrid"):
        found = hp.cg(B, b, make_preconditioner(name, B)[0], tol=2e-12)[0]
        difference = found - exact
        assert np.sqrt(difference @ A(difference)) < 1.01 * error * energy
    x = np.zeros_like(b)
    for _ in range(2):
        x += hp.cg(B, b - A(x), make_preconditioner("multigrid", B)[0], tol=1e-7)[0]
    assert np.linalg.norm(b - A(x)) < 1e-11 * np.linalg.norm(b)
