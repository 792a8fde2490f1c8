"""The fused kernels on rules without directions: tables, mirrored modes, and the source executed on the CPU."""

from dataclasses import replace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.dense.strategy import CudaDense
from hpfem.backends.cuda.fused.plan import FusedOptions, FusedPlan, check_fused
from hpfem.backends.cuda.fused.strategy import CudaFused
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.runtime.device import REGISTERS, Limits
from hpfem.backends.cuda.stdmat.strategy import CudaStdMat
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import NotSuitable
from hpfem.mesh import box
from hpfem.shapes.mirror import mirror_of
from tests.backends.cuda.fused_host import FusedCase, apply
from tests.backends.cuda.host_kernels import build
from tests.samples import bulge, long, norm_error, skewed

SIMPLICES = ("tri", "tet")


def mesh_of(name, counts, kind):
    """Some cells, not a multiple of 16."""
    mesh = box(name, counts)
    return skewed(mesh) if kind == "affine" else mesh.elevated(2).transformed(lambda x: bulge(x, 0.2))


def problem_of(name, order, make=hp.Helmholtz, kind="deformed", basis="modified", dtype=np.float64, **options):
    """Problem of an operator on a simplex rule: 35 triangles would be 36, tets 18 or 42."""
    counts = (3, 3) if name == "tri" else (3, 1, 1)
    quadrature = options.pop("quadrature", "simplex")
    space = hp.Space(mesh_of(name, counts, kind), order, basis=basis, dtype=dtype, quadrature=quadrature)
    if make is not hp.Mass:
        options = {"algorithm": "noncollocated", **options}
    if make is hp.Helmholtz:
        options = {"lam": 1.3, **options}
    return make(space, backend="numpy", **options).choices[0].kernel.problem


def check(cases, folder, rng):
    """Compare every case with NumPy, for two components and both orders of threads."""
    library = build(cases, folder)
    for case in cases:
        problem = case.problem
        source = 0.3 * rng.standard_normal((2 * problem.coupled, problem.n_elements, problem.n_modes))
        size = problem.components_out(len(source)), problem.n_elements, problem.n_output
        expected = np.empty(size)
        NumpyKernel(problem, "stdmat").apply(source, expected)
        found = apply(library, case, source)
        assert norm_error(found, expected) < 1e-12, case.name
        assert np.array_equal(found, apply(library, case, source, descending=True)), case.name


@pytest.mark.parametrize("basis", ["modified", "lagrange", "orthogonal"])
@pytest.mark.parametrize("name", SIMPLICES)
def test_modes_in_the_mirror(name, basis):
    for order in (1, 2, 3, 6):
        tabulation = problem_of(name, order, hp.Mass, basis=basis).tabulation
        mirror, n = mirror_of(tabulation), tabulation.rule.pairs
        even, odd = mirror.of_modes(tabulation.dense)
        assert (len(even), len(odd)) == (mirror.even, mirror.odd)
        assert (mirror.even + mirror.odd, 2 * mirror.pairs + mirror.singles) == tabulation.dense.shape
        scale = np.abs(tabulation.dense).max()
        for sign, modes in ((1, even), (-1, odd)):
            np.testing.assert_allclose(modes[:, :n], sign * modes[:, n : 2 * n], rtol=0, atol=1e-12 * scale)
        assert np.abs(odd[:, 2 * n :]).max(initial=0) < 1e-12 * scale
        assert (mirror.paired > 0) == (basis != "orthogonal")


@pytest.mark.parametrize("make", [hp.Helmholtz, hp.Laplacian, hp.Mass])
@pytest.mark.parametrize("name", SIMPLICES)
def test_kernels_against_numpy(name, make, tmp_path, rng):
    configs = (
        FusedOptions(2, 0, 2, 0), FusedOptions(1, 0, 1, 1, False), FusedOptions(2, 2, 1, 1), FusedOptions(1, 3, 3, 0),
        FusedOptions(2, 3, 1, 2),
    )  # fmt: skip
    cases = []
    for order in range(1, 6):
        for turn, basis in enumerate(("modified", "lagrange", "orthogonal")):
            options = configs[(order + turn) % len(configs)]
            plan = FusedPlan(problem_of(name, order, make, basis=basis), options)
            options = replace(options, kept=min(options.kept, plan.even_tiles + plan.odd_tiles))
            cases.append(FusedCase.of(plan.problem, f"case{len(cases)}", options, blocks=1 + order % 2))
    check(cases, tmp_path, rng)


@pytest.mark.parametrize("name", SIMPLICES)
def test_default_options(name, tmp_path, rng):
    cases = []
    for order in (1, 4, 6, 7) if name == "tet" else (1, 4, 7, 10, 15):
        problem = problem_of(name, order)
        options = CudaFused().fitting(problem, Limits())[0]
        # Fewer warps: the host runs one thread after the other.
        cases.append(FusedCase.of(problem, f"case{order}", replace(options, warps=2)))
    check(cases, tmp_path, rng)


def transport(u, du, x, v, lam):
    """A form of everything: value, gradient, point, a field and a parameter."""
    return v * du[0] + lam * u * x[1] + np.sin(u), [lam * d + u * v for d in du]


@pytest.mark.parametrize("kind", ["affine", "deformed"])
@pytest.mark.parametrize("name", SIMPLICES)
def test_forms(name, kind, tmp_path, rng):
    fields = {"v": lambda *x: 1 + x[0] ** 2, "lam": 0.7}
    made = [
        problem_of(name, 3, hp.WeakForm, kind, pointwise=transport, fields=fields),
        problem_of(name, 2, kind=kind, diffusivity=lambda *x: 1 + x[0] ** 2, lam=lambda *x: np.exp(x[1])),
        problem_of(name, 4, kind=kind),
        problem_of(name, 3, hp.WeakForm, kind, pointwise=lambda u, du: du[0] * du[0], test=("value",)),
        problem_of(name, 3, hp.WeakForm, kind, pointwise=lambda u, x: [u * u * x[0]] * len(x), test=("grad",)),
        problem_of(name, 2, hp.WeakForm, kind, pointwise=lambda u: u * u, test=("value",), algorithm="auto"),
    ]
    cases = [FusedCase.of(p, f"case{i}", FusedOptions(1 + i % 2, 2 * (i % 2), 2)) for i, p in enumerate(made)]
    check(cases, tmp_path, rng)


def sheared(u, du, x, v, lam):
    """A form of everything that couples its components, as many as there are directions."""
    J = du[0][0] * du[1][1] - du[0][1] * du[1][0]
    n = len(du)
    values = [v * u[(c + 1) % n] + lam * x[0] * du[c][0] for c in range(n)]
    return values, [[lam * du[j][i] * (1 + u[i]) + (J if i == j else 0.0) for j in range(n)] for i in range(n)]


def stress(du, lam):
    """Gradients alone."""
    n = len(du)
    trace = sum(du[i][i] for i in range(n))
    return [[du[i][j] + du[j][i] + lam * (trace if i == j else du[i][j] ** 2) for j in range(n)] for i in range(n)]


@pytest.mark.parametrize("kind", ["affine", "deformed"])
@pytest.mark.parametrize("name", SIMPLICES)
def test_coupled_components(name, kind, tmp_path, rng):
    """Two and three, each by a warp: rings of all kinds, with and without the mirror, more teams than groups."""
    n = 2 if name == "tri" else 3
    configs = (
        FusedOptions(2 * n, 0, 1, 0), FusedOptions(n, 2, 1, 1, fours=1), FusedOptions(2 * n, 3, 2, 1, False),
        FusedOptions(n, 0, 2, fours=1), FusedOptions(5 * n, 2, 2, 1),
    )  # fmt: skip
    varying = {"v": lambda *x: 1 + x[0] ** 2, "lam": 0.7}
    forms = [
        (sheared, varying, ("value", "grad")),
        (stress, {"lam": 0.7}, ("grad",)),
        (stress, {"lam": varying["v"]}, ("grad",)),
        (lambda u: [u[(c + 1) % n] * u[c] for c in range(n)], {}, ("value",)),
    ]
    cases = []
    for order in range(1, 6):
        for turn, (function, fields, test) in enumerate(forms[: 4 if order < 4 else 2]):
            options = configs[(order + turn) % len(configs)]
            given = {"algorithm": "auto"} if test == ("value",) else {"precision": ("full", "mixed")[turn % 2]}
            problem = problem_of(
                name, order, hp.WeakForm, kind, pointwise=function, fields=fields, test=test, components=n, **given
            )
            cases.append(FusedCase.of(problem, f"case{len(cases)}", options, blocks=1 + order % 2))
    check(cases, tmp_path, rng)


@pytest.mark.parametrize("kind", ["affine", "deformed"])
@pytest.mark.parametrize("name", SIMPLICES)
def test_results_at_points(name, kind, tmp_path, rng):
    """Fewer and more than components, of one that is applied to each and of coupled ones, with rings of all kinds."""
    n = 2 if name == "tri" else 3
    varying, lam = {"v": lambda *x: 1 + x[0] ** 2, "lam": 0.7}, {"lam": 0.7}
    forms = [
        (lambda u, du, x, v, lam: [v * du[0] + lam * u * x[1], np.sin(u), *du, du[1] * du[0], u], varying, 1),
        (lambda du, lam: [lam * du[i] * du[j] for i in range(n) for j in range(i + 1)], lam, 1),
        (lambda u, lam: np.exp(lam * u), lam, 1),
        (lambda u, du, x, v, lam: [u[0] * du[1][0] + v, x[1] * du[0][1], *du[0], u[1]], varying, n),
        (lambda du, lam: [lam * du[i][j] * du[j][i] for i in range(n) for j in range(n)] + [du[0][0]], lam, n),
        (lambda du, v: du[0][0] * du[1][1] - v * du[1][0], {"v": varying["v"]}, n),
        (lambda u, lam: lam * u[0] * u[1], lam, n),
    ]
    configs = (
        FusedOptions(2, 0, 2),
        FusedOptions(1, 2, 1, 1),
        FusedOptions(2, 3, 2, 0, False),
        FusedOptions(1, 0, 1, 1),
    )
    cases = []
    for order in range(1, 6):
        for turn, (function, fields, team) in enumerate(forms):
            options = configs[(order + turn) % len(configs)]
            options = replace(options, warps=team * options.warps, fours=turn % 3 if team > 1 else 0)
            given = {"pointwise": function, "fields": fields, "components": team}
            given |= {"algorithm": "auto"} if turn % 4 == 2 else {"precision": ("full", "mixed")[turn % 2]}
            problem = problem_of(name, order, hp.AtPoints, kind, **given)
            cases.append(FusedCase.of(problem, f"case{len(cases)}", options, blocks=1 + order % 2))
    check(cases, tmp_path, rng)


def test_options_of_coupled_components():
    """Without the mirror where products are few, two blocks if they fit; warps are dealt out evenly to components."""
    for order in range(1, 8):
        for n in (2, 3):
            problem = problem_of("tet" if n == 3 else "tri", order, hp.WeakForm, pointwise=stress, fields={"lam": 0.7},
                                 test="grad", components=n)  # fmt: skip
            found = [FusedPlan(problem, options) for options in CudaFused().fitting(problem, Limits())]
            assert all(plan.misfit(Limits()) is None for plan in found)
            assert found[0].options.mirror == (order > (3 if n == 3 else 5))
            assert found[0].options.min_blocks == 1 + (order < (4 if n == 3 else 7))
            assert CudaFused().cost(problem) < CudaStdMat().cost(problem)


def test_options_of_results_at_points():
    """Many results without the mirror, more than one team; in one kernel, unless it reads many fields."""
    for order in range(2, 6):
        for function, few in (
            (lambda du, lam: [entry for row in stress(du, lam) for entry in row], False),
            (lambda du, lam: lam * du[0][0], True),
        ):
            problem = problem_of("tet", order, hp.AtPoints, pointwise=function, fields={"lam": 0.7}, components=3)
            found = [FusedPlan(problem, options) for options in CudaFused().fitting(problem, Limits())]
            assert all(plan.misfit(Limits()) is None for plan in found)
            assert found[0].options.mirror == (few and order > 3)
            assert found[0].options.warps * found[0].options.min_blocks >= 9
            assert CudaFused().cost(problem) < CudaStdMat().cost(problem)
        fields = {f"k{i}": lambda *x: 1 + x[0] for i in range(6)}

        def many(du, k0, k1, k2, k3, k4, k5):
            return [k0 * du[0], k1 * du[1], k2 * du[2], k3, k4, k5]

        problem = problem_of("tet", order, hp.AtPoints, pointwise=many, fields=fields)
        assert CudaFused().cost(problem) > CudaStdMat().cost(problem)


@pytest.mark.parametrize("name", SIMPLICES)
def test_rounded_factors(name, tmp_path, rng):
    """Mixed precision: odd and even numbers of factors, every order, rings of all kinds; less shared memory."""
    configs = (FusedOptions(2), FusedOptions(1, 2, 1, 1), FusedOptions(1, 0, 3), FusedOptions(2, 3, 2, 0, False))
    cases = []
    for order in range(1, 8):
        for make, given in (
            (hp.Helmholtz, {}),
            (hp.Mass, {}),
            (hp.WeakForm, {"pointwise": transport, "fields": {"v": lambda *x: 1 + x[0] ** 2, "lam": 0.7}}),
        )[: 3 if order < 4 else 1]:
            options = configs[len(cases) % len(configs)]
            problem = problem_of(name, order, make, precision="mixed", **given)
            plan, full = (FusedPlan(p, options) for p in (problem, replace(problem, mixed=False)))
            assert plan.shared_bytes < full.shared_bytes
            options = replace(options, kept=min(options.kept, plan.even_tiles + plan.odd_tiles))
            cases.append(FusedCase.of(problem, f"case{len(cases)}", options, blocks=1 + order % 2))
    check(cases, tmp_path, rng)


def test_surfaces(tmp_path, rng):
    bent = mesh_of("tri", (3, 3), "deformed").transformed(lambda x: np.column_stack([x, 0.3 * x[:, 0] ** 2]))
    cases = []
    for make, given in ((hp.Helmholtz, {"lam": 1.3}), (hp.WeakForm, {"pointwise": lambda u, du: (u * du[0], u * du)})):
        space = hp.Space(bent, 3, quadrature="simplex")
        problem = make(space, backend="numpy", **given).choices[0].kernel.problem
        cases.append(FusedCase.of(problem, f"case{len(cases)}", FusedOptions(2)))
    check(cases, tmp_path, rng)


def test_the_shim_sees_missing_waits(tmp_path, rng):
    problem = problem_of("tet", 4)
    case = FusedCase.of(problem, "case0", FusedOptions(2, 2, 1))
    source = rng.standard_normal((1, problem.n_elements, problem.n_modes))
    good = apply(build([case], tmp_path), case, source)
    for n, (old, new) in enumerate(
        (
            ("        HPFEM_COPY_WAIT(2 * STAGES - 3);\n", ""),
            ("        HPFEM_COPY_WAIT(under_way);\n", ""),
            ("        HPFEM_COPY_WAIT(under_way);\n        __syncwarp();\n", ""),
        )
    ):
        broken = FusedCase(case.plan, f"case{n + 1}", alteration=(old, new))
        assert not np.array_equal(good, apply(build([broken], tmp_path), broken, source))


@pytest.mark.parametrize("architecture", ["sm_90", *long("sm_80", "sm_100")])
def test_compiled(architecture):
    for name, order in (("tet", 3), ("tri", 4), ("tet", 6)):
        problem = problem_of(name, order)
        plan = FusedPlan(problem, CudaFused().fitting(problem, Limits())[0])
        resources = nvrtc.compile_source(program(plan.source()), architecture).resources
        assert resources.registers * plan.threads <= REGISTERS
        if architecture == "sm_90":
            assert resources.spill_bytes <= 4 * max(0, plan.registers - plan.registers_left) + 64 * (order == 6)


def test_the_mirror_halves_the_products():
    for order in range(3, 8):
        half, whole = (FusedPlan(problem_of("tet", order), FusedOptions(mirror=m)).n_tiles for m in (True, False))
        assert half < 0.67 * whole
        assert CudaFused().fitting(problem_of("tet", order), Limits())[0].mirror
    assert FusedPlan(problem_of("tet", 7, basis="lagrange"), FusedOptions()).n_tiles < 0.6 * whole


@pytest.mark.parametrize("shape", SIMPLICES)
def test_straight_cells_take_their_matrices(shape):
    """These are far fewer operations than the values and derivatives at all points (P = 3: 11.2 and 8.2 GDoF/s)."""
    for order in range(1, 9):
        problem = problem_of(shape, order, kind="affine")
        assert CudaDense().cost(problem) < CudaFused().cost(problem)


def test_reasons():
    other = problem_of("tri", 2, hp.WeakForm, pointwise=stress, fields={"lam": 0.7}, test="grad", components=2)
    other.given = 3
    for problem, reason in (
        (problem_of("tet", 2, quadrature="collapsed"), "simplex. only"),
        (problem_of("tet", 2, dtype=np.float32), "float64 only"),
        (problem_of("tet", 9), "modes do not fit"),
        (problem_of("tet", 2, hp.IProductWRTDerivBase), "weak forms"),
        (problem_of("tet", 2, hp.AtPoints, pointwise=lambda x: x[0], algorithm="auto"), "functions of u"),
        (other, "2 components come in and 3 go out"),
    ):
        with pytest.raises(NotSuitable, match=reason):
            check_fused(problem)
    with pytest.raises(NotSuitable, match="3 warps for 2 components"):
        CudaFused().planned(other, FusedOptions(3), Limits())
    problem = problem_of("tet", 4)
    for options, reason in (
        (FusedOptions(stages=1), "two stages"),
        (FusedOptions(warps=64), "threads"),
        (FusedOptions(kept=9), "eights of modes"),
        (FusedOptions(warps=24), "shared memory"),
        (FusedOptions(min_blocks=2), "blocks"),
    ):
        with pytest.raises(NotSuitable, match=reason):
            CudaFused().planned(problem, options, Limits())
    with pytest.raises(NotSuitable, match="shared memory"):
        CudaFused().fitting(problem, Limits(shared_block=2048))
