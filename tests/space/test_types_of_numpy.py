"""Functions of the coordinates are worth the same above the size from which on they are compiled as below it."""

import operator

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cpu.runtime.function import function_of
from hpfem.forms.evaluate import evaluate
from hpfem.forms.trace import trace_function
from hpfem.space import evaluation

UNARY = [operator.neg, operator.pos, operator.invert, abs]
UNARY += [np.sqrt, np.exp, np.sin, np.square, np.logical_not, np.sign, np.floor, np.ceil, np.rint, np.isfinite]
UNARY += [np.log, np.tanh, np.cos, np.negative, np.positive, np.isnan, np.trunc, np.cbrt]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
BINARY += [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BINARY += [operator.and_, operator.or_, operator.xor, np.logical_and, np.logical_or, np.logical_xor]
BINARY += [np.minimum, np.maximum, np.fmin, np.fmax, np.power, np.float_power, np.arctan2, np.hypot, np.heaviside]
BINARY += [np.add, np.subtract, np.multiply, np.copysign, np.isclose]
TERNARY = [np.where, np.clip, lambda a, b, c: np.select([a > 0, b > 0], [b, c], 0.5), lambda a, b, c: a if b > c else c]
CONSTANTS = [0, 1, 2, 3, -1, -2, 0.0, 0.5, 1.0, -1.5, 0.25, 1 / 3, True, False, np.float32(0.1), np.bool_(True)]
CONSTANTS += [np.int64(2), np.int8(100), np.float64(0.75), 10**12]
COMPARISONS = BINARY[7:11]
# What is compiled for truth values.
COMPILED = [operator.add, operator.add, operator.mul, np.maximum, np.minimum]


def pick(rng, options):
    """One of some things."""
    return options[rng.integers(len(options))]


def comparison(rng):
    """A comparison that comes out in both ways, or of any two things."""
    return (pick(rng, COMPARISONS), pick(rng, ["x", "y"]), pick(rng, [1 / 6, 0.25, 0.5, 1 / 3, 2 / 3, "x", "y"]))


def any_tree(rng, depth):
    """A tree of NumPy's functions and operators on truth values, integers and floats."""
    if depth == 0 or rng.random() < 0.1:
        kind = rng.random()
        return pick(rng, CONSTANTS) if kind < 0.25 else comparison(rng) if kind < 0.6 else pick(rng, ["x", "y"])
    options = pick(rng, [UNARY, BINARY, BINARY, BINARY, TERNARY])
    number = 1 if options is UNARY else 2 if options is BINARY else 3
    return (pick(rng, options), *[any_tree(rng, depth - 1) for _ in range(number)])


def jumping_tree(rng, depth):
    """Arithmetic of truth values, most of them false in the first element."""
    if depth == 0:
        return (operator.gt, pick(rng, ["x", "y"]), pick(rng, [1 / 6, 0.25, 0.5, 1 / 3, 2 / 3, "x", "y"]))
    parts = [jumping_tree(rng, depth - 1) for _ in range(3)]
    kind = rng.random()
    if kind < 0.2:
        return (np.where, *parts)
    return (operator.mul, parts[0], pick(rng, [1, 2, 0.5])) if kind < 0.3 else (pick(rng, COMPILED), *parts[:2])


def generated(rng, count):
    """Trees of all kinds."""
    for number in range(count):
        depth = 1 + number // 2 % 3
        yield any_tree(rng, depth) if number % 2 else (operator.mul, 1.0, jumping_tree(rng, depth))


def function_of_tree(tree):
    """What a user would have written."""

    def built(part, x, y):
        if isinstance(part, str):
            return x if part == "x" else y
        if not isinstance(part, tuple):
            return part
        return part[0](*[built(one, x, y) for one in part[1:]])

    return lambda x, y: built(tree, x, y)


# Functions whose values were others where they were compiled: truth values, integers, signs of zeros, jumps.
WRITTEN = [
    lambda x, y: 1.0 * ((x > 0.5) + (y > 0.5)), lambda x, y: 2.0 * ((x > 0.5) + (y > 0.5) + (x < y)),
    lambda x, y: 1.0 * ((x > 0.25) - (y > 0.5)), lambda x, y: x + -(x > 0.5), lambda x, y: x * +(x > 0.5),
    lambda x, y: np.where((x > 0.5) + (y > 0.5) > 1, 5.0, 1.0),
    lambda x, y: np.maximum(x > 0.5, y > 0.5) + (x > 0.25) + 0.0, lambda x, y: x * ((x > 0.5) ** 2 + (x > 0.25) ** 2),
    lambda x, y: np.exp(x > 0.5) * 1.0, lambda x, y: np.sqrt((x > 0.5) + (y > 0.2)) / 3,
    lambda x, y: np.where(x > 0.5, 1, 2) ** -1 + x,
    lambda x, y: np.where(x > 0.5, np.float32(0.1), np.float32(0.2)) * 0.1,
    lambda x, y: 1.0 * (np.where(x > 0.5, 2**62, 1) * 4), lambda x, y: x * np.abs((x > 0.5) + (y > 0.5)),
    lambda x, y: np.array([x > 0.5, y > 0.5]).sum(axis=0) * 1.0, lambda x, y: np.square((x > 0.5) + (y > 0.5)) * 1.0,
    lambda x, y: np.add(x > 0.5, np.add(y > 0.5, True)) * 0.5, lambda x, y: sum([x > 0.5, y > 0.5]) * 1.0,
    lambda x, y: sum([x > 0.5, y > 0.5], False) * 1.0, lambda x, y: np.minimum(1.0, 1 / ((0 - (x - x)) + 0)),
    lambda x, y: np.minimum(1.0, 1 / (-(1 * (x > 2)))), lambda x, y: np.minimum(1.0, 1 / ((x - x) * -1 + 0)),
    lambda x, y: np.where(0 * np.log(x - x) < 1, 1.0, 2.0), lambda x, y: np.where(np.sin(np.pi * x) > 0.5, 1.0, 0.0),
    lambda x, y: np.where(x**3 * 27 > 1, 1.0, 0.0), lambda x, y: np.where(x * x + 0.1 > 0.1 + 1 / 9, 1.0, 0.0),
    lambda x, y: [1e12 * x, 1.0 * ((x > 0.5) + (y > 0.5))],
]  # fmt: skip


@pytest.fixture(scope="module")
def space():
    """Points on the planes x = k / 6, where the functions above jump."""
    return hp.Space(hp.box("quad", (6, 2)), 2, backend="cpu")


def outcome(space, function, size, monkeypatch):
    """Values at the points, or the message why there are none."""
    monkeypatch.setattr(evaluation, "_WORTH_COMPILING", size)
    try:
        return space.evaluate(function).arrays[0]
    except hp.ArgumentError as error:
        return str(error)


def agree(space, function, monkeypatch):
    below, above = (outcome(space, function, size, monkeypatch) for size in (10**9, 0))
    assert type(below) is type(above), (below, above)
    if isinstance(below, str):
        assert above == below
    else:
        scale = np.abs(below).max(axis=(1, 2), keepdims=True)
        assert (np.abs(above - below) <= 1e-12 * scale).all()


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_written_functions(number, space, monkeypatch):
    agree(space, WRITTEN[number], monkeypatch)


def test_written_functions_are_traced_as_numpy_computes_them():
    """Truth values are traced, not given up."""
    for number in (0, 1, 5, 6):
        check_trace(WRITTEN[number], must=True)


# Where functions are cut: signs of zeros, what is not finite, equal numbers.
SPECIAL = np.array([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 0.25, 2.0, np.inf, -np.inf, np.nan, 1 / 3, 0.1, -7.25, 3.0, 1e-3])
POINTS = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, 1, -1)


def check_trace(function, must=False):
    """A traced function gives what NumPy gives, also for numbers that are not finite."""
    try:
        found, numbers = trace_function(function, 2)
    except hp.ArgumentError:
        assert not must
        return False
    with np.errstate(all="ignore"):
        expected = function(*POINTS)
        made = function_of(found)
        source = {("x", 0): POINTS[0], ("x", 1): POINTS[1]} | {("param", name): n for name, n in numbers.items()}
        values = evaluate(found, source.__getitem__, np.float64)
        for value in [values[found.value[0].index], *([made(POINTS, numbers)[0]] if made else [])]:
            value = value * np.ones_like(POINTS[0])
            same = np.isclose(value, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
            assert same.all(), (POINTS[:, ~same].T, value[~same], (expected * np.ones_like(value))[~same])
    return True


def test_generated_functions_are_traced_as_numpy_computes_them(rng):
    """In NumPy; a part of them are traced, the others are called."""
    assert sum(check_trace(function_of_tree(tree)) for tree in generated(rng, 200)) > 70


def test_generated_functions(space, rng, monkeypatch):
    for tree in generated(rng, 50):
        agree(space, function_of_tree(tree), monkeypatch)


@pytest.mark.long
def test_many_generated_functions(space, rng, monkeypatch):
    for tree in generated(rng, 2000):
        check_trace(function_of_tree(tree))
        agree(space, function_of_tree(tree), monkeypatch)
