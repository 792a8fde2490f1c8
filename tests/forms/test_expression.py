"""Tracing of pointwise functions: every operation, folding, sharing, which geometric factors are needed."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from hpfem.errors import ArgumentError
from hpfem.forms import Gradient, Pointwise, Vector
from hpfem.forms.graph import OPERATIONS, Graph
from hpfem.forms.linear import is_symmetric
from hpfem.forms.trace import trace


def traced(function, test=("value",), dim=2, components=1, fields=None, parameters=()):
    """Trace a function."""
    return trace(Pointwise(function, test), dim, components, fields, parameters)


def interpret(found, inputs):
    """Results of a traced function on arrays, by walking its graph."""
    values = {}
    for node in found.live:
        if node.op == "const":
            values[node.index] = node.payload
        elif node.op == "input":
            values[node.index] = inputs[node.payload]
        else:
            values[node.index] = OPERATIONS[node.op][2](*(values[a.index] for a in node.args))
    return [values[e.index] for e in found.outputs]


# --- Random expressions: built once on arrays, once on symbols ---

UNARY = {
    "negative": lambda a: -a, "absolute": lambda a: abs(a), "np.absolute": lambda a: np.abs(a),
    "sin": lambda a: np.sin(a), "cos": lambda a: np.cos(a), "tanh": lambda a: np.tanh(a),
    "exp": lambda a: np.exp(np.tanh(a)), "sqrt": lambda a: np.sqrt(1 + abs(a)), "log": lambda a: np.log(2 + abs(a)),
    "square": lambda a: np.square(np.tanh(a)), "cube": lambda a: np.tanh(a) ** 3,
    "reciprocal": lambda a: 1.0 / (2 + abs(a)), "power": lambda a: (2 + np.sin(a)) ** 1.5,
    "negative power": lambda a: (2 + np.sin(a)) ** -2, "exponential": lambda a: 1.5 ** np.tanh(a),
    "positive": lambda a: +a, "zero": lambda a: a * 0 + a * 1 - 0, "add reversed": lambda a: 0 + a,
    "sub reversed": lambda a: 0 - a,
}  # fmt: skip
BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: np.tanh(a) * b,
    "div": lambda a, b: a / (2 + abs(b)), "minimum": np.minimum, "maximum": np.maximum,
    "where lt": lambda a, b: np.where(a < b, a, b), "where le": lambda a, b: np.where(a <= b, b, a),
    "where gt": lambda a, b: np.where(a > b, a, b), "where ge": lambda a, b: np.where(a >= b, b, a),
    "numpy add": np.add, "hypotenuse": lambda a, b: np.sqrt(1 + a * a + b * b),
}  # fmt: skip
leaves = st.sampled_from(["u", "x0", "x1", "k"]) | st.floats(-2, 2, allow_nan=False, width=16)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(st.sampled_from(list(UNARY)), inner) | st.tuples(st.sampled_from(list(BINARY)), inner, inner)
    ),
    max_leaves=12,
)


def build(tree, arguments):
    """The value of a tree of operations for arguments of any kind."""
    if isinstance(tree, str):
        return arguments[tree]
    if isinstance(tree, float):
        return tree
    if len(tree) == 2:
        return UNARY[tree[0]](build(tree[1], arguments))
    return BINARY[tree[0]](build(tree[1], arguments), build(tree[2], arguments))


@given(trees)
@settings(max_examples=300)
def test_traced_graph_computes_what_the_function_does(tree):
    rng = np.random.default_rng(7)
    u, x0, x1, k = rng.uniform(-2, 2, (4, 25))

    def function(u, x, k):
        return build(tree, {"u": u, "x0": x[0], "x1": x[1], "k": k})

    found = traced(function, fields={"k": 0})
    inputs = {("u", 0): u, ("x", 0): x0, ("x", 1): x1, ("field", "k", 0): k}
    expected = function(u, [x0, x1], k)
    assert np.allclose(interpret(found, inputs)[0], expected, rtol=1e-12, atol=1e-12)
    # Arguments come before what is made of them, nothing is there twice, constants are folded.
    for node in found.graph.nodes:
        assert all(a.index < node.index for a in node.args)
        assert not node.args or node.op == "div" or any(a.op != "const" for a in node.args)
    keys = [(n.op, tuple(a.index for a in n.args), repr(n.payload)) for n in found.graph.nodes]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_folds_like_numpy(name):
    arity, _, on_arrays, _ = OPERATIONS[name]
    values = (0.75, 0.5, 0.25)[:arity]
    graph = Graph()
    folded = graph.apply(name, *values)
    assert folded.op == "const"
    assert folded.payload == pytest.approx(float(on_arrays(*values)), rel=1e-15)


class TestGraph:
    """Folding, sharing, simplification."""

    def test_constants_are_folded(self):
        found = traced(lambda u: (2.0 + 1) * (np.float64(4) - 1) * u)
        assert [n.op for n in found.live] == ["input", "const", "mul"]
        assert found.live[1].payload == 9.0
        assert found.flops == 1

    @pytest.mark.parametrize(
        "function",
        [
            lambda u: u + 0,
            lambda u: 0 + u,
            lambda u: u - 0,
            lambda u: u * 1,
            lambda u: 1 * u,
            lambda u: u / 1,
            lambda u: u**1,
            lambda u: -1 * -u,
            lambda u: -1 * (u * -1),
            lambda u: +u,
            lambda u: 0 * u + u,
        ],
    )
    def test_identities(self, function):
        found = traced(function)
        assert [n.payload for n in found.live] == [("u", 0)]
        assert found.flops == 0

    def test_common_parts_are_shared(self):
        once = traced(lambda u, x: np.sin(u * x[0]))
        twice = traced(lambda u, x: np.sin(u * x[0]) + np.sin(u * x[0]) * np.sin(x[0] * u))
        # x[0] u and u x[0] are different nodes; all else is shared.
        assert once.flops == 2
        assert twice.flops == 6
        same = traced(lambda u: (u + 2) * (2 + u))
        assert same.flops == 2

    def test_powers(self):
        def operations(exponent):
            found = traced(lambda u: u**exponent)
            return sorted(n.op for n in found.live if n.args)

        assert operations(2) == ["mul"]
        assert operations(3) == ["mul", "mul"]
        assert operations(8) == ["mul"] * 3
        assert operations(0.5) == ["sqrt"]
        assert operations(-1) == ["div"]
        assert operations(-2) == ["div", "mul"]
        assert operations(1.5) == ["pow"]
        assert operations(17) == ["pow"]
        assert operations(math.inf) == ["pow"]
        assert operations(math.nan) == ["pow"]
        assert traced(lambda u: u**0).outputs[0].payload == 1.0

    def test_operations_without_a_real_value_are_not_folded(self):
        graph = Graph()
        for op, values in (
            ("div", (1.0, 0.0)),
            ("log", (0.0,)),
            ("pow", (-8.0, 1 / 3)),
            ("exp", (1e4,)),
            ("sqrt", (-1,)),
        ):
            assert graph.apply(op, *values).op == op

    def test_unused_parts_do_not_count(self):
        def function(u, x):
            np.exp(u) * x[1]
            return u * x[0]

        found = traced(function)
        assert found.flops == 1
        assert found.inputs == (("u", 0), ("x", 0))
        assert len(found.graph.nodes) > len(found.live)

    def test_key_tells_functions_apart(self):
        def key(function, **options):
            return traced(function, **options).key

        assert key(lambda u: u * 2 + 1) == key(lambda u: 1 + 2 * u)
        different = [
            key(lambda u: u * 2 + 1), key(lambda u: u * 2 + 3), key(lambda u: u * 3 + 1), key(lambda u: 2 * (u + 1)),
            key(lambda u: u * 2 + 1, dim=3), key(lambda u: [u[0] * 2 + 1, 0], components=2),
            key(lambda du: du, test=("grad",)), key(lambda u, du: (u, du), test=("value", "grad")),
            key(lambda du: [du[0], du[1]], test=("grad",)), key(lambda u, k: k * u, parameters=("k",)),
            key(lambda u, k: k * u, fields={"k": 0}),
        ]  # fmt: skip
        assert len(set(different)) == len(different)
        assert all(isinstance(hash(k), int) for k in different)


class TestFactors:
    """Which evaluations and geometric factors a function needs."""

    def kind(self, function, test=("value", "grad"), **options):
        """(uses_value, uses_gradient, general) of a function."""
        found = traced(function, test, **{"fields": {"k": 0}, **options})
        return found.uses_value, found.uses_gradient, found.general

    def test_scaled_gradients_are_symmetric(self):
        assert self.kind(lambda u, du, k: (k * u, du)) == (True, True, False)
        assert self.kind(lambda u, du, k: (k, u * k * du / 2)) == (True, True, False)
        assert self.kind(lambda du, k: -du * k, ("grad",)) == (False, True, False)
        assert self.kind(lambda du, k: k * du + du - 2 * du, ("grad",)) == (False, True, False)
        assert self.kind(lambda du, k: sum([du, k * du]), ("grad",)) == (False, True, False)
        assert self.kind(lambda du, k: [k * du[0] - du[1], du[1] / k], ("grad",), components=2) == (False, True, False)

    def test_anything_else_is_general(self):
        assert self.kind(lambda u, du, k: (k * du[0] + u, du)) == (True, True, True)
        assert self.kind(lambda u, du, k: (du.dot(du), u * k * du)) == (True, True, True)
        assert self.kind(lambda du, k: du + Vector([k, 0.0]), ("grad",)) == (False, True, True)
        assert self.kind(lambda du, k: [0.0, k] - du, ("grad",)) == (False, True, True)
        assert self.kind(lambda du, k: (k * du[1], du[0]), ("grad",)) == (False, True, True)
        assert self.kind(lambda du, k: np.sqrt(1 + du @ du) * k * du, ("grad",)) == (False, True, True)
        assert self.kind(lambda u, k: [u, k], ("grad",)) == (True, False, True)

    def test_values_only(self):
        assert self.kind(lambda u, k: k * u, ("value",)) == (True, False, False)
        assert self.kind(lambda du, k: k * du[1], ("value",)) == (False, True, True)
        assert self.kind(lambda k: k, ("value",)) == (False, False, False)

    def test_terms_of_scaled_gradients(self):
        found = traced(lambda du, k: [2.0 * du[0] - k * du[1], du[1]], ("grad",), components=2, fields={"k": 0})
        assert [sorted(terms) for terms in found.scaled] == [[0, 1], [1]]
        assert found.scaled[0][0].payload == 2.0
        assert found.scaled[0][1].op == "neg"
        assert found.scaled[1][1].payload == 1.0
        assert found.flux is None

    def test_flux_of_scaled_gradients_and_their_components_agree(self):
        rng = np.random.default_rng(3)
        du = rng.uniform(-1, 1, (2, 2, 5))
        inputs = {("du", c, i): du[c, i] for c in range(2) for i in range(2)}
        k = rng.uniform(1, 2, 5)
        inputs["field", "k", 0] = k
        found = traced(
            lambda du, k: [(k * du[0] - du[1] / 2).vector(), du[1] + [0.0, 1.0]],
            ("grad",),
            components=2,
            fields={"k": 0},
        )
        result = interpret(found, inputs)
        expected = [*(k * du[0] - du[1] / 2), du[1, 0], du[1, 1] + 1]
        assert all(np.allclose(a, b) for a, b in zip(result, expected, strict=True))


class TestVectors:
    """Arithmetic of vectors and gradients on numbers."""

    def test_vectors(self):
        a, b = Vector([1.0, 2.0]), Vector([3.0, 5.0])
        assert list(a + b) == [4, 7]
        assert list(a - b) == [-2, -3]
        assert list([1, 1] - a) == [0, -1]
        ones = (1, 1)
        assert list(ones + a) == list(a + ones) == [2, 3]
        assert list(2 * a) == list(a * 2) == [2, 4]
        assert list(np.float64(2) * a) == [2, 4]
        assert list(a / 2) == [0.5, 1]
        assert list(-a) == [-1, -2]
        assert a.dot(b) == a @ b == a.dot([3, 5]) == 13
        assert len(a) == 2
        scaled = np.ones(3) * a
        assert isinstance(scaled, Vector)
        assert np.array_equal(scaled[1], [2, 2, 2])

    def test_gradients(self):
        g = Gradient({0: 1.0}, lambda c: [3.0, 4.0])
        assert list(g) == [3, 4]
        assert list(2 * g + g / 2 - g) == [4.5, 6]
        assert list(-g) == [-3, -4]
        assert g.dot(g) == g @ [3, 4] == 25
        ones = [1, 1]
        assert list(g + ones) == list(ones + g) == [4, 5]
        assert list([1, 1] - g) == [-2, -3]
        assert (g + 0) is g
        assert len(g) == 2
        assert (np.arange(2.0) * g).terms[0].tolist() == [0, 1]

    @pytest.mark.parametrize("vector", [Vector([1.0, 2.0]), Gradient({0: 1.0}, lambda c: [3.0, 4.0])])
    def test_refused(self, vector):
        cases = [
            (lambda: vector * vector, "use a.dot"),
            (lambda: vector / [1, 2], "use a.dot"),
            (lambda: vector + 1.0, "which component"),
            (lambda: vector + Vector([1, 2, 3]), "vector of 2 components"),
            (lambda: vector.dot([1, 2, 3]), "vectors with 2 and 3 components"),
            (lambda: np.sum(vector), "np.sum does not take vectors"),
            (lambda: np.array(vector), "NumPy does not take vectors"),
        ]
        for action, match in cases:
            with pytest.raises(ArgumentError, match=match):
                action()


class TestRefused:
    """What cannot be traced; `tests/operators/test_weak_forms.py` has the rest, through `WeakForm`."""

    @pytest.mark.parametrize(
        "function",
        [
            lambda u: u if u > 0 else 0,
            lambda u: u and 1,
            lambda u: not u,
            lambda u: max(u, 1.0),
            lambda u: 1.0 if 0 < u < 1 else 0.0,
        ],
    )
    def test_decisions(self, function):
        with pytest.raises(ArgumentError, match=r"Python decision.*np\.where, np\.minimum or np\.maximum"):
            traced(function)

    @pytest.mark.parametrize("function", [lambda u: u == 1, lambda u: u != 0, lambda u: 1.0 == u])
    def test_equality(self, function):
        with pytest.raises(ArgumentError, match="== or !="):
            traced(function)

    @pytest.mark.parametrize(
        ("function", "match"),
        [
            (lambda u: math.exp(u), "float; use NumPy's functions"),
            (lambda u: float(u), "float"),
            (lambda u: [1, 2, 3][u], "float"),
            (lambda u: np.copysign(u, 1.0), "np.copysign is not available"),
            (lambda u: np.sin(u, where=True), "np.sin is not available"),
            (lambda u: np.add.reduce(u), "not available"),
            (lambda u: np.select([u > 0], [u]), "np.select is not available"),
            (lambda u: u * np.ones(2), "array|ndarray"),
            (lambda u: np.ones(2) * u, "array|ndarray"),
            (lambda u: u + "1", "str"),
            (lambda u: u + None, "NoneType"),
            (lambda u: u * 1j, "complex"),
            (lambda u: u & u, "cannot be traced.*bitwise_and"),
            (lambda u: np.logical_or(u, u > 0), "np.logical_or of float64, bool is not available"),
            (lambda u: np.where(u > 0, 1, 2) | 1, "np.bitwise_or of int64, int64 is not|np.bitwise_or of int64 is not"),
            (lambda u: (u > 0) - (u < 1), "boolean subtract"),
            (lambda u: -(u > 0), "boolean negative"),
            (lambda u: (u > 0) ** (u > 1), "np.pow of bool is not available"),
            (lambda u: 2 ** np.where(u > 0, 1, -1), "np.pow of int64 is not available"),
            (lambda u: np.where(u > 0, 1, 2) ** -1, "negative integer powers"),
            (lambda u: np.array([u > 0, u < 1]).sum(), "use a list"),
            (lambda u: u[0], "cannot be traced"),
            (lambda u: sum(u), "cannot be traced"),
            (lambda u: {}, "dict"),
        ],
    )
    def test_operations(self, function, match):
        with pytest.raises(ArgumentError, match=match):
            traced(function)

    def test_errors_of_the_function_keep_their_cause(self):
        def broken(u):
            return u.magnitude

        with pytest.raises(ArgumentError, match="'broken' cannot be traced") as caught:
            traced(broken)
        assert isinstance(caught.value.__cause__, AttributeError)

    def test_names(self):
        with pytest.raises(ArgumentError, match="takes 'a', 'b'.*known: u, du, x, k"):
            traced(lambda u, a, b, k: u, fields={"k": 0})
        with pytest.raises(ArgumentError, match="'x'.*gradient and the point"):
            traced(lambda u, x: u, fields={"x": 2})
        with pytest.raises(ArgumentError, match="does not take 'k', 'm'; it takes u"):
            traced(lambda u: u, fields={"k": 0}, parameters=("m",))

    def test_tests(self):
        for test in (("grad", "value"), ("both",)):
            with pytest.raises(ArgumentError, match="test must be"):
                Pointwise(lambda u: u, test)

    def test_callable_objects_are_functions_too(self):
        class Source:
            def __call__(self, u, k):
                return u * k

        pointwise = Pointwise(Source(), ("value",))
        assert pointwise.name == "Source"
        assert pointwise.arguments == ("u", "k")
        assert trace(pointwise, 2, fields={"k": 0}).flops == 1


class TestSymmetry:
    """Forms that are seen to be symmetric: their matrix of values and derivatives is."""

    @staticmethod
    def seen(function, test=("value", "grad"), components=1, fields=None):
        fields = {} if fields is None else fields
        return is_symmetric(trace(Pointwise(function, test), 2, components, fields))

    def test_full_fluxes(self):
        def tensor(du, k):
            return [k[0] * du[0] + k[1] * du[1], k[1] * du[0] + k[2] * du[1]]

        def skew(du, k):
            return [k[0] * du[0] + k[1] * du[1], k[2] * du[0] + k[2] * du[1]]

        def bounded(du, k):
            return [du[0] + k * k * np.arcsin(k) * du[1], k * (k * np.arcsin(k)) * du[0] + du[1]]

        assert self.seen(tensor, ("grad",), fields={"k": 3}) and self.seen(bounded, ("grad",), fields={"k": 0})
        assert not self.seen(skew, ("grad",), fields={"k": 3})

    def test_coupled_components(self):
        def elastic(du, mu, x):
            trace_ = du[0][0] + du[1][1]
            return [[mu * (du[i][j] + du[j][i]) + (x[0] * trace_ if i == j else 0) for j in range(2)] for i in range(2)]

        def both(u, du, k):
            return [u[0] + k * u[1], k * u[0]], [k * du[0] + du[1], du[0] + du[1]]

        def turned(u):
            return [u[1], -u[0]]

        assert self.seen(elastic, ("grad",), 2, {"mu": 0})
        assert self.seen(both, components=2, fields={"k": 0})
        assert not self.seen(turned, ("value",), 2)

    def test_first_order(self):
        def wind(u, du):
            return du[0], [0.0 * u, 0.0]

        def divergence(u, du):
            return du[0], [u, 0.0]

        assert not self.seen(wind) and self.seen(divergence)

    def test_what_is_not_linear_or_differs_from_place_to_place(self):
        assert not self.seen(lambda u, du: (u**2, [du[0], du[1]]))
        assert not self.seen(lambda du: [du[0] * du[1], 0.0], ("grad",))
        assert not self.seen(lambda u, du: (u, u * du))
        # Found out otherwise: at other points it may not be.
        assert not self.seen(lambda du, x: [du[0], np.where(x[0] > 0, du[1], du[0])], ("grad",))
        assert not self.seen(lambda u, du: (u, [1.0 + du[0], du[1]]))
