"""Dense matrices of affine elements: that they are the quadrature's, and the kernels' sources executed on the CPU."""

from dataclasses import replace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.dense.element_matrices import ElementMatrices, places_of
from hpfem.backends.cuda.dense.plan import DenseOptions, DensePlan, check_dense
from hpfem.backends.cuda.dense.strategy import CudaDense
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import NotSuitable
from tests.backends.cuda.dense_host import DenseCase, apply
from tests.backends.cuda.host_kernels import build
from tests.samples import NAMES, curved, norm_error, skewed, straight


def problem_of(name, order, make=hp.Helmholtz, mesh=None, basis="modified", dtype=np.float64, **options):
    """Problem of an operator on affine cells."""
    space = hp.Space(mesh or skewed(straight(name)), order, basis=basis, dtype=dtype, quadrature="collapsed")
    if make is not hp.Mass:
        options = {"algorithm": "noncollocated", **options}
    if make is hp.Helmholtz:
        options = {"lam": 1.3, **options}
    return make(space, backend="numpy", **options).choices[0].kernel.problem


def check(cases, folder, rng, elements=(1, 37)):
    """Compare every case with NumPy, for some numbers of elements, two components and both orders of threads."""
    library = build(cases, folder)
    for case in cases:
        problem = case.problem
        few, n = problem.n_elements, problem.n_modes
        for count in elements:
            source = rng.standard_normal((2, count, n)).astype(problem.dtype)
            expected = np.zeros_like(source)
            for first in range(0, count, few):
                part = np.zeros((2, few, n), problem.dtype)
                here = min(few, count - first)
                part[:, :here] = source[:, first : first + here]
                result = np.empty_like(part)
                NumpyKernel(problem, "sumfac").apply(part, result)
                expected[:, first : first + here] = result[:, :here]
            found = apply(library, case, source)
            assert norm_error(found, expected) < (1e-12 if problem.dtype == np.float64 else 1e-5), case.name
            assert np.array_equal(found, apply(library, case, source, descending=True)), case.name


@pytest.mark.parametrize("basis", ["modified", "lagrange", "orthogonal"])
@pytest.mark.parametrize("name", NAMES)
def test_matrices_are_the_quadrature_s(name, basis):
    for order in (1, 2, 4):
        tabulation = problem_of(name, order, basis=basis).tabulation
        matrices = ElementMatrices(tabulation)
        rule, shape = tabulation.rule, tabulation.basis.shape
        inverse = np.linalg.inv(shape.collapse_matrix(rule.eta))
        derivatives = np.einsum("qai,amq->imq", inverse, tabulation.dense_gradient)[:, matrices.order]
        for i in range(shape.dim):
            for j in range(shape.dim):
                exact = (derivatives[i] * rule.weights) @ derivatives[j].T
                np.testing.assert_allclose(
                    matrices.derivatives[i].T @ matrices.derivatives[j], exact, atol=1e-12, rtol=1e-12
                )
        values = tabulation.dense[matrices.order]
        np.testing.assert_allclose(matrices.mass, (values * rule.weights) @ values.T, atol=1e-13, rtol=1e-12)
        assert sorted(matrices.order) == list(range(tabulation.basis.n_modes))
        for r, begin in enumerate(matrices.begin):
            assert not matrices.derivatives[:, r, :begin].any()


def test_simplices_have_as_many_rows_as_polynomials_of_one_degree_less():
    for order in range(1, 8):
        assert ElementMatrices(problem_of("tri", order).tabulation).rows == order * (order + 1) // 2
        assert ElementMatrices(problem_of("tet", order).tabulation).rows == order * (order + 1) * (order + 2) // 6


def test_sorting_leaves_much_out():
    problem = problem_of("tet", 5)
    plan = DensePlan(problem, DenseOptions(8))
    assert plan.used_tiles < 0.7 * (7 * 7 + 2 * 3 * 7 * 5)
    assert places_of(11).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    assert places_of(13).tolist() == list(range(13))


@pytest.mark.parametrize("make", [hp.Helmholtz, hp.Laplacian, hp.Mass])
@pytest.mark.parametrize("name", ["tri", "tet"])
def test_kernels_against_numpy(name, make, tmp_path, rng):
    few, ring, one = DenseOptions(2, 1), DenseOptions(2, 1, 3, False), DenseOptions(1, 0)
    cases = []
    for order, configs in (
        (1, (one, few)),
        (2, (one, ring)),
        (3, (one, DenseOptions(1, 2))),
        (4, (few,)),
        (5, (ring,)),
    ):
        for basis in ("modified", "lagrange"):
            problem = problem_of(name, order, make, basis=basis)
            cases += [DenseCase.of(problem, f"case{len(cases)}_{k}", v) for k, v in enumerate(configs)]
    check(cases, tmp_path, rng)


@pytest.mark.parametrize("name", ["tri", "tet"])
def test_high_orders(name, tmp_path, rng):
    cases = []
    for order in (6, 7, 8) if name == "tet" else (6, 7, 8, 9, 10):
        options = CudaDense().fitting(problem_of(name, order), Limits())[0]
        # Fewer warps: the host runs one thread after the other.
        cases.append(DenseCase.of(problem_of(name, order), f"case{order}", replace(options, warps=2, min_blocks=1)))
    check(cases, tmp_path, rng, elements=(37,))


@pytest.mark.parametrize("name", ["quad", "hex", "prism", "pyramid"])
def test_other_shapes(name, tmp_path, rng):
    configs = DenseOptions(1, 0), DenseOptions(2, 1), DenseOptions(2, 1, 2, True)
    cases = [DenseCase.of(problem_of(name, k + 1), f"case{k}", options) for k, options in enumerate(configs)]
    check(cases, tmp_path, rng)


def scaled(u, du, k, lam):
    """A linear form whose coefficients are calculated from parameters."""
    return lam * lam * u - u / 2.0, (k + 1.0) * du


def test_parameters_blocks_float32_and_surfaces(tmp_path, rng):
    bent = straight("tri").transformed(lambda x: np.column_stack([x, 0.3 * x[:, 0] + 0.2 * x[:, 1]]))
    fields = {"k": 0.3, "lam": 1.7}
    problems = [problem_of("tet", 2, hp.WeakForm, mesh=None, pointwise=scaled, fields=fields)] * 3
    problems += [problem_of("tri", 3, mesh=bent), problem_of("tri", 3, dtype=np.float32)]
    configs = [
        DenseOptions(1, 0), DenseOptions(1, 1), DenseOptions(2, 1, 2, False), DenseOptions(2), DenseOptions(1, 0),
    ]  # fmt: skip
    # More groups of elements than blocks take at a time, and fewer.
    cases = [
        DenseCase.of(problem, f"case{k}", v, blocks=1 + k % 2)
        for k, (problem, v) in enumerate(zip(problems, configs, strict=True))
    ]
    check(cases, tmp_path, rng, elements=(1, 16, 75))


def test_the_shim_sees_a_missing_wait(tmp_path, rng):
    problem = problem_of("tet", 2)
    case = DenseCase.of(problem, "case0", DenseOptions(1))
    source = rng.standard_normal((1, 20, problem.n_modes))
    good = apply(build([case], tmp_path), case, source)
    for old, new in (("    HPFEM_COPY_WAIT(0);\n    __syncwarp();", "    __syncwarp();"),):
        broken = DenseCase(case.plan, "case1", alteration=(old, new))
        assert not np.array_equal(good, apply(build([broken], tmp_path), broken, source))


def test_reasons():
    for problem, reason in (
        (problem_of("tet", 2, mesh=curved("tet", order=2)), "not affine"),
        (problem_of("tet", 2, algorithm="collocated"), "noncollocated"),
        (problem_of("tet", 2, lam=lambda *x: x[0]), "constant"),
        (problem_of("tet", 5, dtype=np.float32), "float64 only"),
        (problem_of("tet", 9), "modes do not fit"),
        (problem_of("tri", 1, hp.WeakForm, pointwise=lambda u: u * u, test=("value",), algorithm="auto"), "not linear"),
    ):
        with pytest.raises(NotSuitable, match=reason):
            check_dense(problem)
    problem = problem_of("tet", 4)
    for options, reason in (
        (DenseOptions(1, 1, 1), "two stages"),
        (DenseOptions(64), "threads"),
        (DenseOptions(4, 4), "registers"),
        (DenseOptions(24, 1), "shared memory"),
        (DenseOptions(4, 1, 0, True, 4), "blocks"),
    ):
        with pytest.raises(NotSuitable, match=reason):
            CudaDense().planned(problem, options, Limits())
    with pytest.raises(NotSuitable, match="shared memory"):
        CudaDense().fitting(problem, Limits(shared_block=2048))


def test_options_fit():
    for name in NAMES:
        for order in range(1, 6):
            problem = problem_of(name, order)
            if problem.n_modes > 168:
                continue
            own = CudaDense().chosen(problem, Limits())
            for options in (own, *CudaDense().fitting(problem, Limits())[:20]):
                plan = DensePlan(problem, options)
                assert plan.shared_bytes * options.min_blocks <= Limits().shared_multiprocessor
                assert plan.threads * options.min_blocks <= 2048
