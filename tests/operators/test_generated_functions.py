"""Generated pointwise functions are worth the same in every way to compute them, or are refused in every way."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

import hpfem as hp
from tests.backends.cuda.host_kernels import Case, apply
from tests.backends.cuda.host_kernels import build as library_of
from tests.operators.generated import UNARY, build, evaluate, trees
from tests.operators.ways import ways
from tests.samples import NAMES, curved

# Relative errors that all numbers may have, and how many times larger the results' may become: what is worse than that
# is not known in this dtype, by any way.
ERROR = {"float64": 1e-12, "float32": 1e-5}
GROWTH = 100
DISTURBANCES = 3
RANGE = {"float64": 1e250, "float32": 1e30}
# Gradients: tested not at all, with a vector, with a multiple of the trial function's.
KINDS = ("value", "vector", "multiple")
K = 0.7
# What generated functions seldom do: NaN in either argument, and where it decides.
WRITTEN = [
    *[(f, *pair) for f in ("np.minimum", "np.maximum") for pair in (("c", ("np.sqrt", "u")), (("np.log", "u"), "k"))],
    *[("where", (f, ("np.sqrt", "u"), "k"), "x0", 2) for f in ("<", "<=", ">", ">=")],
    ("where", ("np.log", "u"), "x0", "x1"),
    ("np.minimum", ("/", 1, ("where", ("<", "u", "c"), "k", 0)), 2),
    ("+", ("+", ("<", "u", "c"), ("<", "x0", "k")), ("np.add", ("<", "c", 1), ("where", ("<", "u", "k"), True, False))),
    ("*", "k", ("+", ("*", ("<", "u", "c"), 2), ("np.maximum", ("<", "x0", "k"), ("*", 1, ("<", "c", 1))))),
    ("*", "k", ("-", ("<", "u", "c"), ("<", "x0", "k"))),
    *[(f, value) for f in UNARY for value in (("*", "c", ("*", "c", 0.6)), ("*", "c", 0.6), ("np.sqrt", "u"))],
    *[(f, *pair) for f in ("np.arctan2", "np.hypot") for pair in (("c", "u"), (("np.sqrt", "u"), "k"), (-2, "c"))],
]


class Sample:
    """A space with a field, and all that pointwise functions take, at the points."""

    def __init__(self, mesh, dtype):
        self.dtype, self.space = dtype, hp.Space(mesh, 2, quadrature="collapsed", dtype=dtype)
        self.u = self.space.project(lambda *x: 0.3 + x[0] - 0.8 * x[1] ** 2 + 0.1 * x[-1])
        self.c = self.space.evaluate(lambda *x: np.cos(3 * x[0]) + 0.2)
        d = self.space.dim
        point = self.space.evaluate(lambda *x: list(x))
        derivatives = hp.PhysDeriv(self.space, backend="numpy")(hp.BwdTrans(self.space, backend="numpy")(self.u))
        value = hp.BwdTrans(self.space, backend="numpy")(self.u)
        self.derivatives = derivatives
        self.inputs = [
            {
                "u": value.arrays[i][0],
                "c": self.c.arrays[i][0],
                "k": np.asarray(K, dtype),
                **{f"x{a}": point.arrays[i][a] for a in range(d)},
                **{f"du{a}": derivatives.arrays[i][a] for a in range(d)},
            }
            for i in range(len(self.space.blocks))
        ]

    def values(self, tree, error=0.0, rng=None):
        """A tree at the points, per block; with an error, of disturbed inputs, constants and steps."""

        def disturb(values):
            noise = error * rng.uniform(-1, 1, np.shape(values)) if error else 0.0
            return np.asarray(values * (1 + noise), self.dtype)

        def moved(values):  # the error of a sum: of the size of the largest
            noise = error * rng.uniform(-1, 1, np.shape(values)) if error else 0.0
            return np.asarray(values + noise * np.abs(values).max(), self.dtype)

        with np.errstate(all="ignore"):
            return [
                np.broadcast_to(
                    np.asarray(
                        evaluate(tree, {k: moved(v) for k, v in inputs.items()}, self.dtype, disturb), self.dtype
                    ),
                    inputs["u"].shape,
                )
                for inputs in self.inputs
            ]

    def known(self, tree, values):
        """Whether small errors do not become large, nor numbers too large or none."""
        if any(np.abs(v[np.isfinite(v)]).max(initial=0) > RANGE[self.dtype] for v in values):
            return False
        rng = np.random.default_rng(1)
        for _ in range(DISTURBANCES):
            for exact, other in zip(values, self.values(tree, ERROR[self.dtype], rng)):
                good = np.isfinite(exact)
                if not np.array_equal(good, np.isfinite(other)):
                    return False
                size = np.abs(exact[good]).max(initial=0)
                if np.abs(exact[good] - other[good]).max(initial=0) > GROWTH * ERROR[self.dtype] * size:
                    return False
        return True

    def form(self, tree, kind, **way):
        """The weak form of a tree: its value, and the gradient tested as `kind` says."""

        def function(u, du, x, c, k):
            inputs = {"u": u, "c": c, "k": k, **{f"x{a}": v for a, v in enumerate(x)}}
            if kind != "multiple" or "du" in repr(tree):
                inputs |= {f"du{a}": v for a, v in enumerate(du)}
            value = build(tree, inputs)
            if kind == "value":
                return value
            return value, value * du if kind == "multiple" else [value, *list(du)[1:]]

        fields = {"c": self.c, "k": K}
        return hp.WeakForm(self.space, function, test=("value", "grad")[: 1 + (kind != "value")], fields=fields, **way)

    def expected(self, values, kind):
        """What the form gives, by other operators."""
        way = {"backend": "numpy", "strategy": "sumfac"}
        field = self.space.field("phys", [v[None] for v in values])
        result = [a.astype(np.float64) for a in hp.IProductWRTBase(self.space, **way)(field).arrays]
        if kind == "value":
            return result
        pairs = list(zip(values, self.derivatives.arrays))
        fluxes = [v * s if kind == "multiple" else np.concatenate([v[None], s[1:]]) for v, s in pairs]
        tested = hp.IProductWRTDerivBase(self.space, **way)(self.space.field("phys", fluxes))
        return [a + b for a, b in zip(result, tested.arrays)]

    def limit(self, values, kind):
        """How far a result may be from what is expected; None if it is not finite."""
        size = max(float(np.abs(v).max()) for v in values)
        least = 1.0 if kind == "vector" else 1e-30
        return 2 * GROWTH * ERROR[self.dtype] * max(size, least) if np.isfinite(size) else None


def possible(sample, tree, kind):
    """Whether NumPy does what the tree says; a weak form refuses the same."""
    try:
        sample.values(tree)
    except (TypeError, ValueError):
        with pytest.raises(hp.ArgumentError, match="cannot be traced|not available"):
            sample.form(tree, kind, backend="numpy")
        return False
    return True


def check(sample, tree, kind):
    """Every way gives what is expected, or refuses."""
    if not possible(sample, tree, kind):
        return
    values = sample.values(tree)
    assume(sample.known(tree, values))
    limit = sample.limit(values, kind)
    expected = [] if limit is None else sample.expected(values, kind)
    for backend in ("numpy", "cpu"):
        for way in ways(backend):
            form = sample.form(tree, kind, **way)
            if limit is None:
                with pytest.raises(hp.ArgumentError, match="not finite"):
                    form(sample.u)
                continue
            for a, b in zip(form(sample.u).arrays, expected):
                assert np.abs(a - b).max() <= limit, way


def check_on_the_host(sample, functions, folder):
    """What CUDA kernels compute, run on the CPU."""
    known = [(tree, kind, sample.values(tree)) for tree, kind in functions if possible(sample, tree, kind)]
    known = [case for case in known if sample.known(case[0], case[2])]
    assume(known)
    kernels = [
        sample.form(tree, kind, backend="numpy", algorithm="noncollocated").choices[0].kernel for tree, kind, _ in known
    ]
    cases = [Case.of(kernel.problem, f"case{i}", "sumfac") for i, kernel in enumerate(kernels)]
    library = library_of(cases, folder)
    for case, (tree, kind, values) in zip(cases, known):
        found, limit = apply(library, case, sample.u.arrays[0]), sample.limit(values, kind)
        if limit is None:
            assert not np.isfinite(found).all(), tree
        else:
            assert np.abs(found - sample.expected(values, kind)[0]).max() <= limit, tree


@pytest.fixture(scope="module", autouse=True)
def _kernels_elsewhere(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPFEM_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


def agree(name, dtype, examples):
    """Check a number of generated functions, always the same ones, and those of the list."""
    sample = Sample(curved(name, order=2), dtype)

    @given(trees, st.sampled_from(KINDS))
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
    def run(tree, kind):
        check(sample, tree, kind)

    for tree in WRITTEN:
        run = example(tree, "value")(run)
    run()


@pytest.mark.parametrize(("name", "dtype"), [("quad", "float64"), ("tri", "float32")])
def test_generated_functions_agree(name, dtype):
    agree(name, dtype, 20)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_many_generated_functions_agree(name, dtype):
    agree(name, dtype, 150)


def test_generated_functions_agree_on_the_host(tmp_path):
    sample = Sample(curved("tri", order=2), "float32")

    @given(st.lists(st.tuples(trees, st.sampled_from(KINDS)), min_size=6, max_size=6))
    @example([(tree, "value") for tree in WRITTEN])
    @settings(max_examples=3, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
    def run(functions):
        check_on_the_host(sample, functions, tmp_path)

    run()
