"""Derivatives of traced functions: of every operation and of forty functions, against complex steps and by adjoints."""

import numpy as np
import pytest

from hpfem.errors import ArgumentError, NotSuitable
from hpfem.forms import Pointwise, Vector
from hpfem.forms.derivative import Commuting, Weak, reverse
from hpfem.forms.graph import COMPARISONS, OPERATIONS, Graph
from hpfem.forms.linear import coefficients, is_linear
from hpfem.forms.trace import Trace, trace

STEP, POINTS, DIM = 1e-30, 7, 2


def strain(du):
    return [[0.5 * (du[i][j] + du[j][i]) for j in range(2)] for i in range(2)]


def size(du):
    return 0.1 + du[0].dot(du[0]) + du[1].dot(du[1])


def deformation(du):
    F = [[du[i][j] + (i == j) * 1.0 for j in range(2)] for i in range(2)]
    return F, F[0][0] * F[1][1] - F[0][1] * F[1][0]


def neo_hooke(du):
    F, J = deformation(du)
    cofactors = [[F[1][1], -F[1][0]], [-F[0][1], F[0][0]]]
    return [F[i][j] + (np.log(J) - 1) / J * cofactors[i][j] for i in range(2) for j in range(2)]


# u of two components and their derivatives -> numbers.
FUNCTIONS = {
    "linear": lambda u, du: [2 * u[0] - u[1], du[0][1]],
    "product": lambda u, du: [u[0] * u[1], u[0] * du[1][0]],
    "quotient": lambda u, du: [u[0] / (2 + u[1]), 1 / (3 + du[0][0])],
    "quotient of itself": lambda u, du: [(1 + u[0]) / (2 + u[0])],
    "square": lambda u, du: [u[0] ** 2, np.square(du[1][1])],
    "cube": lambda u, du: [u[0] ** 3 - u[0]],
    "fourth power": lambda u, du: [u[1] ** 4],
    "negative power": lambda u, du: [(2 + u[0]) ** -3],
    "broken power": lambda u, du: [(2 + u[0]) ** 1.7],
    "power of a number": lambda u, du: [1.5 ** u[0]],
    "moving exponent": lambda u, du: [(2 + u[0]) ** u[1]],
    "root": lambda u, du: [np.sqrt(2 + u[0] * u[1])],
    "root of a power": lambda u, du: [np.sqrt((1 + u[0] ** 2) ** 3)],
    "exponential": lambda u, du: [np.exp(u[0])],
    "exponential of a product": lambda u, du: [u[1] * np.exp(u[0] * du[0][0])],
    "logarithm": lambda u, du: [np.log(2 + u[0])],
    "entropy": lambda u, du: [(2 + u[0]) * np.log(2 + u[0])],
    "sine": lambda u, du: [np.sin(u[0]) * np.cos(u[1])],
    "sine of a sine": lambda u, du: [np.sin(np.sin(3 * u[0]))],
    "tanh": lambda u, du: [np.tanh(4 * u[0])],
    "logistic": lambda u, du: [1 / (1 + np.exp(-u[0]))],
    "gauss": lambda u, du: [np.exp(-(u[0] ** 2) - u[1] ** 2)],
    "lennard-jones": lambda u, du: [(2 + u[0]) ** -12 - (2 + u[0]) ** -6],
    "bratu": lambda u, du: [-1.5 * np.exp(u[0]), du[0][0], du[0][1]],
    "allen-cahn": lambda u, du: [u[0] ** 3 - u[0], 0.01 * du[0][0]],
    "p-laplacian": lambda u, du: [size(du) ** 0.75 * du[0][0], size(du) ** 0.75 * du[0][1]],
    "p-laplacian, p < 2": lambda u, du: [size(du) ** -0.25 * du[1][0]],
    "minimal surface": lambda u, du: [du[0][0] / np.sqrt(1 + du[0].dot(du[0]))],
    "carreau": lambda u, du: [(1 + 0.3 * strain(du)[0][1] ** 2) ** -0.35 * strain(du)[0][1]],
    "advection": lambda u, du: [u[0] * du[0][0] + u[1] * du[0][1], u[0] * du[1][0] + u[1] * du[1][1]],
    "porous medium": lambda u, du: [(2 + u[0]) ** 1.5 * du[0][0]],
    "richards": lambda u, du: [np.exp(3 * u[0]) * (du[0][1] + 1)],
    "radiation": lambda u, du: [(1 + u[0]) ** 4 - 1],
    "michaelis": lambda u, du: [u[0] / (1.2 + u[0]) * u[1]],
    "neo-hooke": lambda u, du: neo_hooke(du),
    "saint venant": lambda u, du: [du[0].dot(du[1]) * (1 + du[0][0]), (du[0].dot(du[0]) - 1) * du[1][1]],
    "volume": lambda u, du: [deformation(du)[1], np.log(deformation(du)[1]) ** 2],
    "chain": lambda u, du: [np.sin(np.exp(np.sin(np.exp(np.sin(u[0])))))],
    "branch": lambda u, du: [np.where(u[0] > 0.1, np.sin(u[0]), u[1] ** 3)],
    "branch in a branch": lambda u, du: [np.where(u[0] > 0, np.where(u[1] > 0, u[0] * u[1], u[0]), u[1] ** 2) * u[0]],
    "largest": lambda u, du: [np.maximum(u[0], u[1] ** 2) * np.minimum(du[0][0], du[1][1])],
}


def weak_of(function):
    """The weak form of a function, all whose results are values, and its numbers of results."""
    found = trace(Pointwise(function, ()), DIM, 2)
    return Weak.of(found)


def keys(name):
    return [("fn", name, c, i) for c in range(2) for i in range(1 + DIM)]


def evaluated(weak, data, rows=None):
    """The rows of a weak form for data of its inputs."""
    values = {}
    for node in weak.nodes:
        args = [values[a.index] for a in node.args]
        own = data[node.payload] if node.op == "input" else node.payload
        values[node.index] = OPERATIONS[node.op][2](*args) if args else own
    zero = np.zeros(POINTS)
    return {key: values[e.index] + zero for key, e in weak.rows.items()}


def random_data(rng, *names):
    return {key: rng.uniform(-0.4, 0.4, POINTS) for name in names for key in keys(name)}


def called(function, data):
    """The function itself on arrays."""
    u = [data["fn", "u", c, 0] for c in range(2)]
    du = [Vector([data["fn", "u", c, 1 + i] for i in range(DIM)]) for c in range(2)]
    return dict(enumerate(function(u, du)))


def stepped(data, directions):
    """Data with an imaginary step."""
    return {
        key: value + 1j * STEP * directions["fn", "v", key[2], key[3]] if key[1] == "u" else value
        for key, value in data.items()
    }


def difference(found, expected):
    largest = max(np.abs(value).max() for value in expected.values())
    apart = [np.abs(found.get(key, 0.0) - value).max() for key, value in expected.items()]
    return max(apart) / max(largest, 1e-300)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, rng):
    function = FUNCTIONS[name]
    weak = weak_of(function)
    first, data = weak.forward({("fn", "u"): "v"}), random_data(rng, "u", "v", "w", "z")
    expected = {
        (c, 0): np.imag(np.asarray(value) + np.zeros(POINTS)) / STEP
        for c, value in called(function, stepped(data, data)).items()
    }
    derivative = evaluated(first, data)
    assert difference(derivative, expected) <= 2e-15
    # The second derivative, in another direction, by a step of the first.
    second = evaluated(first.forward({("fn", "u"): "z"}), data)
    moved = {**data, **{key: data["fn", "z", key[2], key[3]] for key in keys("v")}}
    by_step = evaluated(first, {**stepped(data, moved), **{key: data[key] for key in keys("v")}})
    expected = {key: np.imag(value) / STEP for key, value in by_step.items()}
    assert difference(second, expected) <= 4e-15 if any(np.any(value) for value in expected.values()) else not second
    # (w, J v) = (J^T w, v), relative to the sum of the terms.
    one = [derivative[key] * data["fn", "w", key[0], 0] for key in derivative if key[0] < 2]
    seeds = {key: e for key, e in weak.rows.items() if key[0] < 2}
    transposed = evaluated(Weak(weak.graph, DIM, seeds, 2).pullback("u", "w", 2), data)
    other = [value * data["fn", "v", *key] for key, value in transposed.items()]
    total = sum(np.abs(part) for part in (*one, *other))
    assert np.all(np.abs(sum(one) - sum(other)) <= 1e-15 * total)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_derivative(name):
    arity, _, on_arrays, partials = OPERATIONS[name]
    assert len(partials) == arity
    graph, values = Commuting(), (0.75, 0.5, 0.25)[:arity]
    inputs = [graph.node("input", (), ("fn", "u", 0, i)) for i in range(arity)]
    node = graph.apply(name, *inputs)
    found = reverse(graph, [(node, 1.0)], ("fn", "u"))
    data = {node.payload: np.full(POINTS, value) for node, value in zip(inputs, values, strict=True)}
    for i, one in enumerate(inputs):
        if name in COMPARISONS or partials[i] is None:
            assert one.payload not in found
            continue
        up, down = ([np.float64(v + s * 1e-6 * (i == j)) for j, v in enumerate(values)] for s in (1, -1))
        expected = (float(on_arrays(*up)) - float(on_arrays(*down))) / 2e-6
        derivative = found.get(one.payload)
        weak = Weak(graph, DIM, {} if derivative is None else {(0, 0): derivative}, 1)
        assert evaluated(weak, data).get((0, 0), np.zeros(1))[0] == pytest.approx(expected, abs=1e-9)


BRANCHES = {
    "root of where": (lambda u, du: [np.where(u[0] > 0, np.sqrt(u[0]), 0.0)], 0.0),
    "logarithm": (lambda u, du: [np.where(u[0] > 0, np.log(u[0]), u[0])], 1.0),
    "root of max": (lambda u, du: [np.sqrt(np.maximum(u[0], 0.0) * 1.0)], 0.0),
    "inner": (lambda u, du: [np.sqrt(np.where(u[0] > 0, u[0], 0.0) * 2)], 0.0),
    "abs": (lambda u, du: [np.abs(u[0]) * 3.0], -3.0),
    "two": (lambda u, du: [np.where(u[0] > 0, 1 / u[0], 0.0) + np.where(u[0] < -9, np.log(u[0]), 2 * u[0])], 2.0),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_that_is_not_taken_may_be_infinite(name):
    function, expected = BRANCHES[name]
    data = {key: np.full(POINTS, -0.25 if key[1] == "u" else 1.0) for own in "uvw" for key in keys(own)}
    weak = weak_of(function)
    with np.errstate(all="ignore"):
        for found in (weak.forward({("fn", "u"): "v"}), weak.pullback("u", "w", 2)):
            assert evaluated(found, data).get((0, 0), np.zeros(1))[0] == expected


def test_a_selection_of_linear_terms_is_linear():
    found = trace(Pointwise(lambda u, k: np.where(k > 0, 2 * u, 0.0), ("value",)), 2, fields={"k": 0})
    other = trace(Pointwise(lambda u, k: np.where(k > 0, 2 * u, 1.0), ("value",)), 2, fields={"k": 0})
    moving = trace(Pointwise(lambda u, k: np.where(u > 0, 2 * u, 0.0), ("value",)), 2, fields={"k": 0})
    # Its derivative is 0 almost everywhere, and so is its value at 0.
    step = trace(Pointwise(lambda u, k: np.where(u, k, 0.0), ("value",)), 2, fields={"k": 0})
    assert [is_linear(own.value[0], "u") for own in (found, other, moving, step)] == [True, False, False, False]
    with pytest.raises(NotSuitable, match="not linear"):
        coefficients(step)


def test_scaled_gradients_leave_no_derivative_to_others():
    graph = Graph()
    slope = graph.node("input", (), ("du", 0, 0))
    with pytest.raises(ArgumentError, match="scaled gradients"):
        Trace(graph, 2, 1, None, ({0: slope * slope},), None)
    with pytest.raises(ArgumentError, match="scaled gradients"):
        Trace(graph, 2, 1, (slope,), ({0: graph.constant(1.0)},), None)
