"""The kernels' sources, executed on the CPU: every index and every barrier, against NumPy.

Every case runs with the threads of a block in both orders: a result that depends on it, or threads that part at a
barrier, mean that a barrier is missing.
"""

from dataclasses import replace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.backends.options import source_in
from hpfem.errors import NotSuitable
from hpfem.forms.derivative import Weak
from hpfem.forms.lowered import lowered
from hpfem.forms.sources import possible_sources
from hpfem.geometry import FactorSource
from hpfem.mesh import box
from hpfem.operators.linearised import made_operator
from tests.assembly.meshes import ours, rotated
from tests.backends.cuda.host_kernels import Case, apply, build
from tests.backends.cuda.host_vectors import index_tables
from tests.samples import FLAT, NAMES, bulge, curved, long, norm_error, skewed, straight, tapered


def diffusion(u, du, x, k, lam):
    """A nonlinear pointwise function with a field, a parameter and the point: a scalar flux."""
    return lam * np.sin(u) + np.where(u > 0.1, u, -u) * x[0], np.maximum(k, 0.5) * du


def at_points(u, du, x, k, lam):
    """A result at the point, of all that a function can take."""
    return lam * np.sin(u) * x[0] + k * u * du[1] - du[0]


def coupled(u, du, lam):
    """Two components that meet in the flux and in the value."""
    return [lam * u[1], u[0] * u[1]], [du[1] + 2.0 * du[0], du[0]]


def many(u, du, k):
    """More results at the points than components."""
    return [u, du[0], k * du[1], np.exp(u), u * du[0], du[0] + du[1]]


def transposed(form):
    """The transposed derivative of a form, which takes twice as many components as it gives."""
    n = form.form.components
    weak = Weak.of(form.form.trace).pullback("u", "w", n)
    algorithm = form.choices[0].kernel.problem.algorithm
    return made_operator(form, lowered(weak, (("u", n), ("w", n)), "transposed"), algorithm=algorithm)


def advection(u, du):
    """Two components at the points."""
    return [u[0] * du[i][0] + u[1] * du[i][1] for i in range(2)]


def operators(name):
    """Operators of order 2, each with the options to make its kernel of, on affine and on deformed cells."""
    straight_space = hp.Space(skewed(straight(name)), 2, quadrature="collapsed")
    mesh = curved(name, order=2)
    space, one = hp.Space(mesh, 2, quadrature="collapsed"), hp.Space(mesh, 2, dtype=np.float32, quadrature="collapsed")
    velocity = [0.3, -0.2, 0.5][: space.dim]
    n, c = ({"backend": "numpy", "algorithm": algorithm} for algorithm in ("noncollocated", "collocated"))
    return [
        (hp.Helmholtz(space, lam=1.3, **c), None),
        (hp.Helmholtz(space, lam=1.3, **n), SumFacTopOptions(2, prefetch=1, tables_shared=True)),
        (hp.Helmholtz(space, lam=1.3, **n), SumFacTopOptions(4, split=7)),
        (hp.Helmholtz(space, lam=1.3, **c), SumFacTopOptions(3, split=3)),
        (hp.Mass(space, backend="numpy"), SumFacTopOptions(4, late=True, split=1)),
        (hp.Mass(space, backend="numpy"), SumFacTopOptions(4, split=7)),
        (hp.Helmholtz(straight_space, lam=1.3, **c), SumFacTopOptions(3)),
        (hp.Helmholtz(straight_space, lam=1.3, **n), "sumfac"),
        (hp.AdvectionDiffusionReaction(straight_space, velocity, 1.5, 0.4, **c), None),
        ((0.5 * hp.Mass(space, **n) + 2 * hp.AdvectionDiffusionReaction(space, velocity, 1.5, **n)).volume, None),
        (hp.IProductWRTDerivBase(straight_space, **c), None),
        (hp.IProductWRTDerivBase(space, **n), "sumfac"),
        (hp.PhysDeriv(space, backend="numpy"), SumFacTopOptions(2)),
        (hp.Mass(one, backend="numpy"), SumFacTopOptions(1, prefetch=9)),
        (hp.WeakForm(space, diffusion, fields={"k": lambda *x: 1 + x[0], "lam": 0.7}, **n), "sumfac"),
        (hp.AtPoints(space, at_points, fields={"k": lambda *x: 1 + x[0], "lam": 0.7}, **c), None),
        (hp.AtPoints(space, many, fields={"k": 0.7}, **c), SumFacTopOptions(2)),
        (hp.AtPoints(straight_space, many, fields={"k": 0.7}, **n), SumFacTopOptions(3, split=7)),
        (hp.AtPoints(straight_space, at_points, fields={"k": lambda *x: 1 + x[0], "lam": 0.7}, **n), "sumfac"),
    ]


def check(cases, kernels, folder, rng):
    """Compare every case with the NumPy kernel of its problem."""
    library = build(cases, folder)
    for case, kernel in zip(cases, kernels, strict=True):
        problem = case.problem
        dtype = problem.dtype
        source = rng.standard_normal((2 * problem.coupled, problem.n_elements, problem.n_input)).astype(dtype)
        components = problem.components_out(len(source))
        expected = np.empty((components, problem.n_elements, problem.n_output), dtype)
        kernel.apply(source, expected)
        found = apply(library, case, source)
        assert norm_error(found, expected) < (1e-12 if dtype == np.float64 else 1e-5), case.name
        assert np.array_equal(found, apply(library, case, source, descending=True)), case.name


# Those of each kind of tree; all shapes are in the first test and on a GPU.
STORED, MERGED, RECOMPUTED, SCALED, SCALED_MERGED = FactorSource
SOME = ("hex", "pyramid", "tri")


def by_shape(full, few, rest):
    """Parameters of tests: `full` for two of those shapes, one shape for each of a few; all others are long."""
    own = [(name, *full) for name in SOME[1:]] + [(name, *given) for name, given in zip(SOME, few)]
    every = [(name, *given) for name in NAMES for given in (full, *few, *rest)]
    return [*own, *long(*(case for case in every if case not in own))]


@pytest.mark.parametrize("name", NAMES)
def test_kernels_against_numpy(name, tmp_path, rng):
    cases, kernels = [], []
    for operator, options in operators(name):
        kernel = operator.choices[0].kernel
        cases.append(Case.of(kernel.problem, f"case{len(cases)}", options))
        kernels.append(kernel)
    check(cases, kernels, tmp_path, rng)


def test_stages_surfaces_and_components(tmp_path, rng):
    cases, kernels = [], []
    flat = curved("tri", order=2)
    bent = flat.transformed(lambda x: np.column_stack([x, 0.3 * x[:, 0] ** 2]))
    made = []
    for mesh, order in ((curved("prism", order=2), 3), (bent, 2), (curved("quad", order=2), 1)):
        space = hp.Space(mesh, order, quadrature="collapsed")
        for algorithm in ("collocated", "noncollocated"):
            made += [
                hp.WeakForm(space, coupled, fields={"lam": 0.7}, components=2, backend="numpy", algorithm=algorithm),
                hp.IProductWRTDerivBase(space, backend="numpy", algorithm=algorithm),
                hp.AtPoints(space, advection, components=2, backend="numpy", algorithm=algorithm),
                hp.AtPoints(space, many, fields={"k": 0.7}, backend="numpy", algorithm=algorithm),
            ]
            made.append(transposed(made[-4]))
        made += [op(space, backend="numpy") for op in (hp.BwdTrans, hp.IProductWRTBase, hp.PhysDeriv)]
    for operator in made:
        kernel = operator.choices[0].kernel
        cases.append(Case.of(kernel.problem, f"case{len(cases)}", None))
        kernels.append(kernel)
    check(cases, kernels, tmp_path, rng)


def test_kernels_on_global_vectors(tmp_path, rng):
    """They read what scatter would write, to the same bits: signs, rotated faces, masked columns, all families."""
    cases, given = [], []
    for dtype, components in ((np.float64, 1), (np.float32, 2)):
        space = hp.Space(rotated(ours("cube_mixed.msh"), rng), 3, dtype=dtype, quadrature="collapsed")
        c0 = hp.C0Space(space)
        keep = rng.random(c0.size) < 0.8
        tables = index_tables(c0.block_matrix, keep)
        vector = rng.standard_normal((components, c0.size)).astype(dtype)
        local = ((c0.matrix * keep) @ vector.T).T.astype(dtype)
        assert (tables.codes < -1).any()
        form = hp.Helmholtz(space, lam=0.7, algorithm="noncollocated", backend="numpy")
        for choice, first, last in zip(form.choices, tables.starts[:-1], tables.starts[1:], strict=True):
            problem, rows = choice.kernel.problem, (tables.row_starts, tables.columns, tables.values)
            Q = (np.int64(c0.size), tables.codes[first:last], *rows)
            alone = np.ascontiguousarray(local[:, first:last]).reshape(components, problem.n_elements, -1)
            for options in (None, SumFacTopOptions(3, split=3), "sumfac"):
                try:
                    case = Case.of(problem, f"case{len(cases)}", options)
                except NotSuitable:
                    continue
                cases += [case, replace(case, name=f"case{len(cases) + 1}", scattered=True)]
                given.append((vector, alone, Q))
    library = build(cases, tmp_path)
    for plain, scattered, (vector, alone, Q) in zip(cases[::2], cases[1::2], given, strict=True):
        wanted = apply(library, plain, alone)
        assert np.abs(wanted).max() > 0
        for descending in (False, True):
            assert np.array_equal(apply(library, scattered, vector, descending, Q=Q), wanted), scattered.name


def test_long_functions_are_called(tmp_path, rng):
    """Those that are not written out at every point, with every function of the library."""

    def long(u, du, x, k):
        for _ in range(6):
            u = np.exp(-u * u) + np.log(2 + np.sin(u)) * np.cos(u) + np.tanh(k * u) + abs(u) ** k
        return u + x[0], [u * du[0], *list(du)[1:]]

    space, made = hp.Space(curved("tri", order=2), 2), []
    for options, algorithm in ((None, "collocated"), ("sumfac", "noncollocated")):
        form = hp.WeakForm(space, long, fields={"k": 1.3}, backend="numpy", algorithm=algorithm)
        made.append((form.choices[0].kernel, options))
    cases = [Case.of(kernel.problem, f"case{i}", options) for i, (kernel, options) in enumerate(made)]
    assert all("called_pow" in case.source() for case in cases)
    check(cases, [kernel for kernel, _ in made], tmp_path, rng)


def test_products_of_segments(tmp_path, rng):
    """Directions last first: every kind of form, other points and bases, a surface, configs, a tail of elements."""
    cases, kernels = [], []
    skin = curved("quad", order=2).transformed(lambda x: np.column_stack([x, 0.3 * x[:, 0] ** 2 - 0.2 * x[:, 1]]))
    configs = [
        SumFacTopOptions(4, prefetch=2, late=True),
        SumFacTopOptions(3, prefetch=9, l2=True),
        SumFacTopOptions(2, split=7),
        None,
    ]
    for mesh, order, basis, quadrature in (
        (box("hex", (3, 1, 1)).elevated(2).transformed(lambda x: bulge(x, 0.2)), 3, "orthogonal", "gauss"),
        (skewed(straight("hex")), 2, "modified", "collocated"),
        (skin, 4, "modified", 1),
    ):
        space = hp.Space(mesh, order, basis=basis, quadrature=quadrature)
        both = [{"backend": "numpy", "algorithm": algorithm} for algorithm in ("collocated", "noncollocated")]
        made = [op(space, backend="numpy") for op in (hp.BwdTrans, hp.IProductWRTBase, hp.PhysDeriv, hp.Mass)]
        for options in both:
            made += [hp.IProductWRTDerivBase(space, **options), hp.Helmholtz(space, lam=lambda *x: x[0], **options)]
            made.append(hp.WeakForm(space, coupled, fields={"lam": 0.7}, components=2, **options))
        for operator in made:
            kernel = operator.choices[0].kernel
            cases.append(Case.of(kernel.problem, f"case{len(cases)}", configs[len(cases) % len(configs)]))
            assert cases[-1].levels.reverse
            kernels.append(kernel)
    check(cases, kernels, tmp_path, rng)


def test_many_fields_are_read_in_the_users_order(tmp_path, rng):
    """Odd and even numbers of points, both algorithms, lines in phases of their own, recomputed factors."""
    four = {key: lambda *x, k=k: 1 + k * x[0] * x[1] for k, key in enumerate("abcd")}

    def weak(u, du, a, b, c, d):
        return [a * u[1], b * u[0] * u[1]], [c * du[1] + a * du[0], d * du[0]]

    def results(u, du, a, b, c, d):
        return [a * u[0], b * du[1][0], c, u[1] * d]

    cases, kernels = [], []
    for mesh, order in (
        (box("hex", (3, 1, 1)).elevated(2).transformed(lambda x: bulge(x, 0.2)), 2),
        (box("hex", (2, 1, 1)), 3),
        (curved("quad", order=2), 4),
    ):
        space = hp.Space(mesh, order)
        for algorithm in ("collocated", "noncollocated"):
            for make, function in ((hp.WeakForm, weak), (hp.AtPoints, results)):
                made = make(space, function, fields=four, components=2, backend="numpy", algorithm=algorithm)
                kernels.append(made.choices[0].kernel)
                options = SumFacTopOptions(2, split=(0, 3, 7)[len(cases) % 3])
                cases.append(Case.of(kernels[-1].problem, f"case{len(cases)}", options))
                assert cases[-1].levels.grid == (space.dim > 2)
    tapering = hp.Space(tapered("hex"), 2)
    kernels.append(hp.WeakForm(tapering, weak, fields=four, components=2, backend="numpy").choices[0].kernel)
    options = SumFacTopOptions(2, source=RECOMPUTED)
    cases.append(Case.of(kernels[-1].problem, f"case{len(cases)}", options))
    check(cases, kernels, tmp_path, rng)


def test_lines_of_coupled_components_in_shared_memory(tmp_path, rng):
    """Gradients alone, a value beside the trial's or the test's gradient, results at points; eight points in a line."""

    def elastic(du):
        return [du[0] + 0.3 * du[1], [0.3 * d for d in du[0]] + 2.0 * du[1]]

    forms = {
        "gradients": (lambda du: elastic(du), "grad"),
        "a value": (lambda u, du: [u[1] * g for g in elastic(du)], "grad"),
        "tested": (lambda du: ([du[0][0], du[1][1]], elastic(du)), ("value", "grad")),
    }
    cases, kernels = [], []
    for name, order, away in (("hex", 2, True), ("prism", 2, True), ("quad", 6, False)):
        space = hp.Space(curved(name, order=2), order, quadrature="collapsed")
        how = {"components": 2, "backend": "numpy", "algorithm": "collocated"}
        made = [hp.WeakForm(space, form, test=test, **how) for form, test in forms.values()]
        for operator in (*made, hp.AtPoints(space, lambda du: [du[0][0] * du[1][1], du[1][0]], **how)):
            kernels.append(operator.choices[0].kernel)
            cases.append(Case.of(kernels[-1].problem, f"case{len(cases)}", SumFacTopOptions(2)))
            assert f"LINES_AWAY = {str(away).lower()};" in cases[-1].source()
    check(cases, kernels, tmp_path, rng)


def test_the_shim_sees_parted_threads_and_overruns(tmp_path):
    kernel = hp.Mass(hp.Space(straight("tri"), 1), backend="numpy").choices[0].kernel
    case = Case.of(kernel.problem, "case0")
    source = np.ones((1, kernel.problem.n_elements, kernel.problem.n_modes))
    parted = case.altered("  __syncthreads();\n\n  // Z and Y.", "  if (t) __syncthreads();\n\n  // Z and Y.")
    with pytest.raises(AssertionError, match="parted at a barrier"):
        apply(build([parted], tmp_path), parted, source)
    behind = case.altered(
        "  const bool on = t < LINES;", f"  shared[{case.plan.shared_bytes // 8}] = 1;\n  const bool on = t < LINES;"
    )
    with pytest.raises(AssertionError, match="behind the end"):
        apply(build([behind], tmp_path), behind, source)
    unordered = case.altered("  __syncthreads();\n\n  // Z and Y.", "  // Z and Y.")
    library = build([unordered], tmp_path)
    ahead, back = (apply(library, unordered, source, descending=d) for d in (False, True))
    assert not np.array_equal(ahead, back)


def recomputing(space):
    """Operators that need factors, each with the options to recompute them with."""
    n, c = ({"backend": "numpy", "algorithm": algorithm} for algorithm in ("noncollocated", "collocated"))
    velocity = [0.3, -0.2, 0.5][: space.dim]
    return [
        (hp.Helmholtz(space, lam=1.3, **c), SumFacTopOptions(3, source=RECOMPUTED)),
        (hp.Helmholtz(space, lam=1.3, **n), SumFacTopOptions(2, split=3, source=RECOMPUTED)),
        (hp.Helmholtz(space, lam=1.3, **n), "sumfac recomputed"),
        (hp.Mass(space, backend="numpy"), SumFacTopOptions(4, split=7, source=RECOMPUTED)),
        (hp.Mass(space, backend="numpy"), "sumfac recomputed"),
        (hp.Laplacian(space, **n), SumFacTopOptions(4, l2=True, prefetch=2, late=True, source=RECOMPUTED)),
        (hp.AdvectionDiffusionReaction(space, velocity, 1.5, 0.4, **c), SumFacTopOptions(1, source=RECOMPUTED)),
        (hp.IProductWRTDerivBase(space, **n), SumFacTopOptions(2, source=RECOMPUTED)),
        (hp.IProductWRTBase(space, backend="numpy"), SumFacTopOptions(3, source=RECOMPUTED)),
        (hp.PhysDeriv(space, backend="numpy"), SumFacTopOptions(2, source=RECOMPUTED)),
        (hp.WeakForm(space, coupled, fields={"lam": 0.7}, components=2, **n), SumFacTopOptions(2, source=RECOMPUTED)),
    ]


# All forms at one order, those that count at others; all orders on the device.
@pytest.mark.parametrize(
    ("name", "order", "dtype", "most"),
    by_shape(
        (2, np.float64, 11),
        [(4, np.float64, 1), (1, np.float32, 3)],
        [(1, np.float64, 5), (2, np.float32, 3), (4, np.float64, 2)],
    ),
)
def test_factors_recomputed_from_maps(name, order, dtype, most, tmp_path, rng):
    """Straight elements, whatever the order of their nodes, and quadratic ones; blocks with tails."""
    cases, kernels = [], []
    straight_sided = tapered(name).elevated(1 + order % 3)
    for mesh in (straight_sided, curved(name, order=2)):
        for operator, options in recomputing(hp.Space(mesh, order, dtype=dtype, quadrature="collapsed"))[:most]:
            for choice in operator.choices:
                if RECOMPUTED not in possible_sources(choice.kernel.problem):
                    continue
                try:
                    cases.append(Case.of(choice.kernel.problem, f"case{len(cases)}", options))
                except NotSuitable:  # too large for one thread
                    continue
                kernels.append(choice.kernel)
    assert all(case.problem.source.recomputes for case in cases)
    kinds = {"quadratic"} if name in FLAT else {"multilinear", "quadratic"}
    assert {case.problem.geometry.kind.name for case in cases} == kinds
    check(cases, kernels, tmp_path, rng)


def reading_less(space):
    """Operators, each with the options to read a scale or coefficients with the geometry."""
    n, c = ({"backend": "numpy", "algorithm": algorithm} for algorithm in ("noncollocated", "collocated"))
    both = {"lam": lambda *x: 1 + x[0] * x[-1], "diffusivity": lambda *x: 2 + x[-1]}

    def tensor(*x):
        return [[3 + x[0] if i == j else 0.2 * x[-1] for j in range(space.dim)] for i in range(space.dim)]

    return [
        (hp.Helmholtz(space, **both, **c), SumFacTopOptions(3, source=SCALED_MERGED)),
        (hp.Helmholtz(space, **both, **n), SumFacTopOptions(3, prefetch=2, source=MERGED)),
        (hp.Helmholtz(space, **both, **n), "sumfac scaled merged"),
        (hp.Laplacian(space, **n), SumFacTopOptions(2, prefetch=2, late=True, split=3, source=SCALED)),
        (hp.Helmholtz(space, lam=1.3, **c), SumFacTopOptions(4, prefetch=9, l2=True, source=SCALED)),
        (hp.Helmholtz(space, lam=1.3, **n), "sumfac scaled"),
        (hp.Helmholtz(space, both["lam"], tensor, **c), SumFacTopOptions(2, l2=True, source=MERGED)),
        (hp.WeakForm(space, lambda u, x: x[0] * u, test="value", backend="numpy"), "sumfac merged"),
        (hp.WeakForm(space, lambda du, k: k * du, test="grad", fields={"k": both["lam"]}, **n), "sumfac scaled merged"),
    ]


@pytest.mark.parametrize(
    ("name", "order", "dtype", "most"),
    by_shape((2, np.float64, 9), [(1, np.float32, 3)], [(1, np.float64, 9), (2, np.float32, 3), (4, np.float64, 2)]),
)
def test_scales_and_coefficients_read_with_the_geometry(name, order, dtype, most, tmp_path, rng):
    """Straight elements, quadratic ones, and such of no low order; blocks with tails."""
    cases, kernels = [], []
    for mesh in (tapered(name).elevated(1 + order % 3), curved(name, order=2), curved(name, order=3)):
        for operator, options in reading_less(hp.Space(mesh, order, dtype=dtype, quadrature="collapsed"))[:most]:
            for choice in operator.choices:
                problem = choice.kernel.problem
                source = options.source if isinstance(options, SumFacTopOptions) else source_in(options)
                recomputable = RECOMPUTED in possible_sources(problem)
                if problem.geometry.affine or (source.scales and not recomputable):
                    continue
                try:
                    cases.append(Case.of(problem, f"case{len(cases)}", options))
                except NotSuitable:  # too large for one thread
                    continue
                kernels.append(choice.kernel)
    assert {c.problem.source for c in cases} >= {SCALED_MERGED, MERGED}
    check(cases, kernels, tmp_path, rng)


def rounding(space):
    """Operators in mixed precision, each with options; forms that take fields, points and components among them."""
    n, c = (
        {"backend": "numpy", "precision": "mixed", "algorithm": algorithm}
        for algorithm in ("noncollocated", "collocated")
    )
    return [
        (hp.Helmholtz(space, lam=1.3, **n), None),
        (hp.Helmholtz(space, lam=1.3, **c), SumFacTopOptions(3, prefetch=2, l2=True)),
        (hp.Mass(space, **n), "sumfac"),
        (hp.Helmholtz(space, lam=1.3, **n), "sumfac"),
        (hp.Laplacian(space, **n), SumFacTopOptions(2, prefetch=9, late=True, split=7)),
        (hp.PhysDeriv(space, **n), SumFacTopOptions(2)),
        (hp.IProductWRTDerivBase(space, **n), SumFacTopOptions(4, split=3)),
        (hp.WeakForm(space, diffusion, fields={"k": lambda *x: 1 + x[0], "lam": 0.7}, **c), SumFacTopOptions(3)),
        (hp.WeakForm(space, coupled, fields={"lam": 0.7}, components=2, **n), SumFacTopOptions(2)),
        (hp.Helmholtz(space, lambda *x: 1 + x[0], **n), SumFacTopOptions(3, prefetch=2, l2=True, source=MERGED)),
        (hp.Helmholtz(space, lambda *x: 1 + x[0], **n), "sumfac merged"),
    ]


# All forms at one order, Helmholtz at the others; on a GPU (`test_precision.py`) at all orders.
@pytest.mark.parametrize(("name", "order", "most"), by_shape((2, 11), [(4, 2)], [(1, 4), (7, 2)]))
def test_rounded_factors(name, order, most, tmp_path, rng):
    """Mixed precision: factors that are stored in float32; blocks with tails."""
    cases, kernels = [], []
    for operator, options in rounding(hp.Space(curved(name, order=3), order, quadrature="collapsed"))[:most]:
        for choice in operator.choices:
            try:
                cases.append(Case.of(choice.kernel.problem, f"case{len(cases)}", options))
            except NotSuitable:  # too large for one thread
                continue
            kernels.append(NumpyKernel(cases[-1].problem, "sumfac"))
    assert all("typedef float stored_real" in case.source() for case in cases)
    check(cases, kernels, tmp_path, rng)


def test_nothing_else_is_rounded(tmp_path, rng):
    """Affine elements, and recomputed factors: the source of full precision."""
    for mesh, options in ((skewed(straight("hex")), None), (tapered("hex"), SumFacTopOptions(2, source=RECOMPUTED))):
        space = hp.Space(mesh, 2)
        full, mixed = (
            Case.of(
                hp.Helmholtz(space, lam=1.0, backend="numpy", precision=p).choices[0].kernel.problem, "case", options
            )
            for p in ("full", "mixed")
        )
        assert full.source() == mixed.source()
