"""The kernel "sumfac-warp", a warp for each element of 8 x 8 x 8 points: executed on the CPU, and compiled."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from benchmarks.papers.blocks import by_source
from hpfem.backends import BACKENDS
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.runtime import measured, nvrtc, planned
from hpfem.backends.cuda.runtime.device import REGISTERS, Limits
from hpfem.backends.cuda.sumfac_top.strategy import CudaSumFacTop
from hpfem.backends.cuda.sumfac_warp.strategy import CudaSumFacWarp, SumFacWarpOptions, SumFacWarpPlan
from hpfem.backends.cuda.vectors.indexed import IndexTables
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.backends.options import source_in, to_text
from hpfem.errors import ArgumentError, NotSuitable
from hpfem.forms.sources import nearest_source, possible_sources
from hpfem.geometry import FactorSource
from hpfem.tuning import select
from tests.backends.cuda.host_kernels import Case, apply, build
from tests.samples import curved, norm_error, skewed, straight, tapered

MESHES = {
    "affine": lambda: skewed(straight("hex")),
    "multilinear": lambda: tapered("hex").transformed(lambda x: x + 0.02 * x[:, ::-1] ** 2),
    "quadratic": lambda: curved("hex", order=2),
    "deformed": lambda: curved("hex", order=3),
}


def transport(u, du, x, v, lam):
    """A form of everything: value, gradient, point, a field and a parameter."""
    return v * du[0] + lam * u * x[1] + np.sin(u), [lam * d + u * v for d in du]


def variable(*x):
    """A coefficient."""
    return 1 + 0.3 * x[0] * x[-1]


FIELDS = {"fields": {"v": lambda *x: 1 + x[0] ** 2, "lam": 0.7}}
FORMS = {
    "Helmholtz": lambda space, **k: hp.Helmholtz(space, 1.3, **k),
    "Laplacian": hp.Laplacian,
    "Mass": hp.Mass,
    "variable": lambda space, **k: hp.Helmholtz(space, variable, lambda *x: 2 + x[1], **k),
    "advection": lambda space, **k: hp.AdvectionDiffusionReaction(space, [0.3, -0.2, 0.5], 1.5, 0.4, **k),
    "transport": lambda space, **k: hp.WeakForm(space, transport, **FIELDS, **k),
    "source": lambda space, **k: hp.WeakForm(space, lambda u, x: [u * u * x[0]] * 3, test=("grad",), **k),
    "value": lambda space, **k: hp.WeakForm(space, lambda u, du: u * du[1] - du[2], test=("value",), **k),
    "points": lambda space, **k: hp.AtPoints(space, lambda u, du, x: u * du[1] - x[2] * du[0], **k),
    "IProductWRTBase": hp.IProductWRTBase,
    "BwdTrans": hp.BwdTrans,
    "PhysDeriv": hp.PhysDeriv,
}


def problem_of(form, mesh, order=7, basis="lagrange", quadrature="collocated", dtype=np.float64, **options):
    """Problem of a form on few hexes, collocated if it can be."""
    space = hp.Space(mesh, order, basis, quadrature, dtype=dtype)
    return replace(FORMS[form](space, backend="numpy", **options).choices[0].kernel.problem, algorithm="collocated")


def check(cases, folder, rng):
    """Compare every case with NumPy, for two components and both orders of threads."""
    library = build(cases, folder)
    for case in cases:
        problem = case.problem
        source = rng.standard_normal((2, problem.n_elements, problem.n_input))
        expected = np.empty((2, problem.n_elements, problem.n_output))
        NumpyKernel(problem, "sumfac").apply(source, expected)
        found = apply(library, case, source)
        assert norm_error(found, expected) < 1e-12, case.name
        assert np.array_equal(found, apply(library, case, source, descending=True)), case.name


@pytest.mark.parametrize("kind", MESHES)
def test_sources_and_forms(kind, tmp_path, rng):
    """Every source of factors of every form; 3 or 8 elements in blocks of 2, 3 and 4, of two components."""
    cases, sources, mesh = [], set(), MESHES[kind]()
    for form in [form for form in FORMS if form != "PhysDeriv"]:
        problem = problem_of(form, mesh)
        for words in dict.fromkeys((FactorSource.STORED, *possible_sources(problem))):
            options = SumFacWarpOptions(2 + len(cases) % 3, l2=bool(len(cases) % 2), source=words)
            cases.append(Case.of(problem, f"case{len(cases)}", options))
            sources.add(words)
    assert len(sources) == {"affine": 1, "deformed": 2}.get(kind, 5)
    check(cases, tmp_path, rng)


def test_rounded_factors(tmp_path, rng):
    """Factors that are stored in float32."""
    made = [
        problem_of(form, MESHES["deformed"](), precision="mixed") for form in ("Helmholtz", "variable", "transport")
    ]
    cases = [
        Case.of(p, f"case{n}", SumFacWarpOptions(3, source=nearest_source(p, FactorSource.STORED), l2=True))
        for n, p in enumerate(made)
    ]
    assert all("typedef float stored_real" in case.source() for case in cases)
    library = build(cases, tmp_path)
    for case in cases:
        source = rng.standard_normal((1, case.problem.n_elements, 512))
        expected = np.empty_like(source)
        NumpyKernel(case.problem, "sumfac").apply(source, expected)
        assert norm_error(apply(library, case, source), expected) < 1e-12


def test_global_vectors(tmp_path, rng):
    """They are read in the kernel, with signs and masked columns, to the bits that scatter gives."""
    space = hp.Space(MESHES["deformed"](), 7, "lagrange", "collocated")
    c0 = hp.C0Space(space)
    keep = rng.random(c0.size) < 0.8
    tables = IndexTables(c0.block_matrix, keep)
    vector = rng.standard_normal((2, c0.size))
    local = ((c0.matrix * keep) @ vector.T).T.reshape(2, -1, 512)
    Q = (np.int64(c0.size), tables.codes, tables.row_starts, tables.columns, tables.values)
    plain = Case.of(problem_of("Helmholtz", MESHES["deformed"]()), "plain", SumFacWarpOptions(2))
    scattered = replace(plain, name="scattered", scattered=True)
    library = build([plain, scattered], tmp_path)
    wanted = apply(library, plain, np.ascontiguousarray(local))
    assert np.array_equal(apply(library, scattered, vector, Q=Q), wanted) and np.abs(wanted).max() > 0


def test_many_elements(tmp_path, rng):
    """An address that was computed in 32 bits would be outside of all arrays: only the last elements are there."""
    made = [problem_of("Helmholtz", MESHES[kind]()) for kind in ("affine", "deformed")]
    cases = [Case.of(p, f"case{n}", SumFacWarpOptions(2)) for n, p in enumerate(made)]
    library = build(cases, tmp_path)
    for case in cases:
        source = rng.standard_normal((1, case.problem.n_elements, 512))
        wanted = apply(library, case, source)
        assert np.array_equal(apply(library, case, source, before=1 << 23), wanted)


def test_a_missing_wait_is_seen(tmp_path, rng):
    case = Case.of(problem_of("Laplacian", MESHES["affine"]()), "case0", SumFacWarpOptions(1))
    wait = "    __syncwarp();\n  }\n  HPFEM_UNROLL for (int p = 0; p < N / 2; p++) {\n    real di"
    broken = case.altered(wait, wait.replace("    __syncwarp();\n", ""))
    library = build([broken], tmp_path)
    source = rng.standard_normal((1, case.problem.n_elements, 512))
    ahead, back = (apply(library, broken, source, descending) for descending in (False, True))
    assert not np.array_equal(ahead, back)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_compiled(architecture):
    """Registers of twelve warps a multiprocessor, or of eight where factors are recomputed, with few spilled."""
    for form, kind, options in (
        ("Helmholtz", "affine", SumFacWarpOptions()),
        ("Helmholtz", "deformed", SumFacWarpOptions()),
        ("Laplacian", "multilinear", SumFacWarpOptions(min_blocks=2, source=FactorSource.RECOMPUTED)),
        ("transport", "deformed", SumFacWarpOptions(min_blocks=2)),
    ):
        plan = SumFacWarpPlan(problem_of(form, MESHES[kind]()), options)
        found = nvrtc.compile_source(program(plan.source()), architecture).resources
        assert found.registers * plan.threads * options.min_blocks <= REGISTERS
        assert found.spill_bytes <= 128 or architecture != "sm_90", (form, kind)


@pytest.fixture
def strategy(monkeypatch):
    """The strategy on a device that is not there."""
    monkeypatch.setattr(planned, "limits", Limits)
    monkeypatch.setattr(planned, "architecture", lambda: "sm_90")
    monkeypatch.setattr(planned, "start", lambda text, _: text)
    return CudaSumFacWarp()


def test_reasons(strategy):
    curved_one = MESHES["deformed"]()
    noncollocated = replace(problem_of("Helmholtz", curved_one), algorithm="noncollocated")
    for problem, reason in (
        (problem_of("Helmholtz", curved_one, order=6), "8 points in each of three"),
        (problem_of("Helmholtz", curved("quad"), order=7), "8 points in each of three"),
        (problem_of("Mass", curved("tet"), 3, quadrature="simplex"), "8 points in each of three"),
        (problem_of("Helmholtz", curved_one, basis="modified"), "values at the points"),
        (problem_of("Helmholtz", curved_one, 6, quadrature="gauss"), "8 points|values at the points"),
        (noncollocated, "algorithm='collocated'"),
        (problem_of("PhysDeriv", curved_one), "one component"),
        (problem_of("Helmholtz", curved_one, dtype=np.float32), "float64 only"),
    ):
        for asked in (strategy.default, strategy.build, strategy.prepare, lambda p: next(strategy.search(p))):
            with pytest.raises(NotSuitable, match=reason):
                asked(problem)
    problem = problem_of("Helmholtz", curved_one)
    for options, reason in (
        ("elements=33", "do not fit a multiprocessor"),
        ("elements=8 min_blocks=9", "do not fit a multiprocessor"),
        ("elements=0", "do not fit a multiprocessor"),
        ("elements=16 min_blocks=4", "shared memory"),
        ("recomputed", "not recomputed"),
    ):
        with pytest.raises(NotSuitable, match=reason):
            strategy.prepare(problem, options)
    with pytest.raises(ArgumentError, match="prefetch"):
        strategy.prepare(problem, "prefetch=1")


def test_search_and_defaults(strategy, monkeypatch):
    """Sources and warps of a multiprocessor, then blocks of other sizes for the fastest; the table comes first."""
    monkeypatch.setattr(measured, "measured_table", dict)
    problem = problem_of("variable", MESHES["multilinear"]())
    rounds = strategy.search(problem)
    first = next(rounds)
    assert first[0] == strategy.default(problem) == "merged"
    assert {*first} >= {"min_blocks=2 recomputed", "min_blocks=4 scaled merged", "merged"}
    second = rounds.send({options: 1 + (options != "min_blocks=2 recomputed") for options in first})
    assert {*second} == {f"elements={e} min_blocks={8 // e} recomputed" for e in (1, 2, 8)}
    other = strategy.search(problem)
    next(other)
    assert "l2 merged" in other.send({options: 1 + (options != "merged") for options in first})
    for options in [*first, *second]:
        assert "HPFEM_KERNEL sumfac_warp" in strategy.prepare(problem, options)
    monkeypatch.setattr(planned, "known_row", lambda *_: (99.0, "elements=2 min_blocks=4 recomputed"))
    assert strategy.default(problem) == "elements=2 min_blocks=4 scaled merged"
    assert strategy.default(problem_of("Laplacian", MESHES["multilinear"]())) == "elements=2 min_blocks=4 recomputed"


def test_auto_takes_it_where_it_was_measured_to_be_faster(strategy, monkeypatch):
    problem, top = problem_of("Helmholtz", MESHES["affine"]()), CudaSumFacTop()
    assert strategy.cost(problem) < top.cost(problem)  # by the shipped table
    monkeypatch.setattr(measured, "measured_table", dict)
    assert strategy.measured(problem) is None and strategy.cost(problem) == np.inf > top.cost(problem)
    row = {measured.measured_key(problem, "sumfac-warp"): [170.0, "elements=2"]}
    monkeypatch.setattr(measured, "measured_table", lambda: row)
    assert strategy.measured(problem) == "170.0 GDoF/s on an H200" and strategy.default(problem) == "elements=2"
    assert strategy.cost(problem) == 512 / 170 < top.cost(problem)


def test_papers_take_what_auto_takes_if_it_has_the_source(strategy, monkeypatch):
    def build(self, problem, options=None):
        source = source_in(options or self.default(problem))
        return SimpleNamespace(problem=SimpleNamespace(source=source, algorithm="collocated"), name=self.name)

    monkeypatch.setattr(planned, "limits", Limits)
    monkeypatch.setattr(select, "find", lambda *_: None)
    monkeypatch.setattr(select, "tuning_key", lambda *_: "")
    for provider in (CudaSumFacTop, CudaSumFacWarp):
        monkeypatch.setattr(provider, "build", build)
    backend = SimpleNamespace(
        name="cuda",
        strategies=(CudaSumFacTop(), strategy),
        strategy_names=("sumfac-top", "sumfac-warp"),
        strategy=lambda name: {"sumfac-top": CudaSumFacTop(), "sumfac-warp": strategy}[name],
    )
    problem = problem_of("Laplacian", MESHES["multilinear"]())
    for own, name in ((FactorSource.RECOMPUTED, "sumfac-warp"), (FactorSource.STORED, "sumfac-top")):
        provider, _, kernel = by_source(problem, backend, own)
        assert (provider.name, kernel.name, kernel.problem.source) == (name, name, own)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", MESHES)
def test_on_a_gpu(kind, rng):
    """Every source of factors of every form, one component and three, against NumPy."""
    import cupy

    backend, mesh = BACKENDS["cuda"], MESHES[kind]()
    for form in [form for form in FORMS if form != "PhysDeriv"]:
        problem = problem_of(form, mesh)
        given = rng.standard_normal((3, problem.n_elements, problem.n_input))
        wanted = np.empty_like(given)
        NumpyKernel(problem, "sumfac").apply(given, wanted)
        fields = {name: replace(own, device=backend.device()) for name, own in problem.fields.items()}
        for words in dict.fromkeys((FactorSource.STORED, *possible_sources(problem))):
            for options in (SumFacWarpOptions(source=words), SumFacWarpOptions(1, 8, True, words)):
                kernel = backend.strategy("sumfac-warp").build(replace(problem, fields=fields), to_text(options))
                for d in (1, 3):
                    out = cupy.full(wanted[:d].shape, np.nan)
                    kernel.apply(cupy.asarray(given[:d]), out)
                    assert norm_error(out.get(), wanted[:d]) < 1e-12, (form, options, d)
