"""Pointwise functions mean the same on every backend and by every strategy: types, constants, closures."""

import copy
import math
import pickle

import numpy as np
import pytest

import hpfem as hp
from tests.operators.ways import ways
from tests.samples import norm_error, straight

# Each function with what it is worth where u > 0 (and u < 1), and where u < 0.
FUNCTIONS = {
    "sum of comparisons": (lambda u: (u > 0) + (u < 1), 1.0, 1.0),
    "sum of their numbers": (lambda u: 1 * (u > 0) + (u < 1), 2.0, 1.0),
    "large power of integers": (lambda u: np.where(u > 0, 10, 20) ** 20 * 1e-20, 1.0, 2.0**20),
    "exponential of a comparison": (lambda u: np.exp(u > 0), math.e, 1.0),
    "negative power of floats": (lambda u: np.where(u > 0, 2, 3.0) ** -1, 1 / 2, 1 / 3),
    "negated number of a comparison": (lambda u: -(1 * (u > 0)), -1.0, 0.0),
    "selected by a number": (lambda u: np.where((u > 0) * 2.0, 3, 4), 3.0, 4.0),
    "one comparison used twice": (lambda u: np.where(u > 0, u > 0, 5), 1.0, 5.0),
    "divided by both zeros": (lambda u: np.where(1 / (np.minimum(abs(u), 0) * u) > 0, 3, 4), 3.0, 4.0),
    # A NaN comes out of both, and is not greater than anything.
    "NaN first in min": (lambda u: np.where(np.minimum(np.sqrt(-abs(u)), 1) > -9, 3, 4), 4.0, 4.0),
    "NaN second in min": (lambda u: np.where(np.minimum(u, np.sqrt(-abs(u))) > -9, 3, 4), 4.0, 4.0),
    "NaN first in max": (lambda u: np.where(np.maximum(np.sqrt(-abs(u)), 1) > -9, 3, 4), 4.0, 4.0),
    "NaN second in max": (lambda u: np.where(np.maximum(u, np.sqrt(-abs(u))) > -9, 3, 4), 4.0, 4.0),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arithmetic_is_that_of_the_space(backend, dtype):
    space = hp.Space(straight("quad"), 2, dtype=dtype)
    one = space.project(lambda x, y: 1 + 0 * x)
    mass = hp.Mass(space, backend="numpy")(one)
    for name, (function, above, below) in FUNCTIONS.items():
        for way in ways(backend, False):
            form = hp.WeakForm(space, function, test="value", **way)
            for u, value in ((0.5 * one, above), (-0.5 * one, below)):
                expected = value * mass.arrays[0]
                assert norm_error(form(u).arrays[0] + 2 * mass.arrays[0], expected + 2 * mass.arrays[0]) < 1e-5, (
                    name,
                    way,
                )


def test_a_closure_is_read_once_and_a_parameter_every_time(backend):
    space = hp.Space(straight("quad"), 2)
    u = space.project(lambda x, y: x + y)
    factor = [1.0]
    for way in ways(backend, False):
        form = hp.WeakForm(space, lambda u, k: k * factor[0] * u, test="value", fields={"k": 1.0}, **way)
        first = form(u).arrays[0].copy()
        factor[0] = 7.0
        assert np.array_equal(form(u).arrays[0], first)
        form.parameters["k"] = 2.0
        assert norm_error(form(u).arrays[0], 2 * first) < 1e-14
        factor[0] = 1.0


def endless(u):
    return endless(u) + 1


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda u: u * 10**400, "too large for a float"),
        (lambda u: u * 10**5000, "too large for a float"),
        (endless, "calls itself without end"),
        (lambda u: u * np.complex128(1j), "complex128"),
        (lambda u: {}["k"] * u, "cannot be traced"),
        (lambda u: u * (1 // 0), "cannot be traced"),
        (lambda u: np.where(u > 0, 2, 3) ** -1, "cannot be traced: Integers to negative integer powers"),
        (lambda u: -(u > 0), "cannot be traced: The numpy boolean negative"),
        (lambda u: "u", "str"),
    ],
)
def test_only_numbers_are_accepted(function, match):
    space = hp.Space(straight("quad"), 1)
    with pytest.raises(hp.ArgumentError, match=match):
        hp.WeakForm(space, function, test="value")


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x, y: math.sin(x), r"np\.where"),
        (lambda x, y: 1.0 if x > 0 else 0.0, r"np\.where"),
        (lambda x, y: x * 10**400, r"too large to convert to float; .*np\.where"),
        (lambda x, y: x * math.exp(1000), "math range error"),
    ],
)
def test_functions_of_single_numbers_get_advice(function, match):
    space = hp.Space(straight("quad"), 1)
    with pytest.raises(hp.ArgumentError, match=match):
        space.evaluate(function)


@pytest.mark.parametrize("function", [np.sin, math.sin, max, int, lambda u, /: u, lambda *u: u[0], lambda **u: 1])
def test_functions_that_do_not_take_names_are_refused(function):
    with pytest.raises(hp.ArgumentError, match=r"does not take its arguments by name; .* lambda u: np\.sin\(u\)"):
        hp.WeakForm(hp.Space(straight("quad"), 1), function, test="value")


@pytest.mark.parametrize("number", [1e300, 1e-300])
def test_numbers_beyond_float32_are_refused(number):
    space = hp.Space(straight("quad"), 1, dtype="float32")

    def form(function, **fields):
        return hp.WeakForm(space, function, test="value", fields=fields)

    for make in (
        lambda: form(lambda u: u * number),
        lambda: form(lambda u: np.minimum(u, -number)),
        lambda: form(lambda u, k: k * u, k=number),
        lambda: form(lambda u, k: k[0] * u, k=[number, 1]),
        lambda: form(lambda u, k: k * u, k=1.0).parameters.update(k=number),
        lambda: hp.Helmholtz(space, lam=number),
    ):
        with pytest.raises(hp.ArgumentError, match=r"is -?1e[+-]300, out of the range of float32"):
            make()
    for wide in (lambda u: u * number, lambda u: np.where(u > 0, u, math.inf)):
        hp.WeakForm(hp.Space(straight("quad"), 1), wide, test="value")


def test_parameters_are_set_to_numbers_and_stay():
    form = hp.WeakForm(hp.Space(straight("quad"), 1), lambda u, k: k * u, test="value", fields={"k": 1.0})
    for bad in ("a", None, 1j, math.nan, math.inf, 10**400, np.ones(3)):
        with pytest.raises(hp.ArgumentError, match="parameter 'k' of <lambda> must be a finite number"):
            form.parameters["k"] = bad
    with pytest.raises(hp.ArgumentError, match="has no parameter 'q'; it has: k"):
        form.parameters |= {"q": 1.0}
    for change in (form.parameters.clear, form.parameters.popitem, lambda: form.parameters.pop("k")):
        with pytest.raises(hp.ArgumentError, match="can be set, but not removed"):
            change()
    form.parameters |= {"k": np.float32(2)}
    for same in (copy.deepcopy(form.parameters), pickle.loads(pickle.dumps(form.parameters))):
        assert same == {"k": 2.0}
        with pytest.raises(hp.ArgumentError, match="has no parameter"):
            same["q"] = 1.0


def test_fields_of_points_are_read_at_every_application(backend):
    """What is written into them on the host counts, on every backend; coefficients are evaluated once."""
    space = hp.Space(straight("quad"), 2)
    u = space.project(lambda x, y: 1 + x)
    live, coeff = space.evaluate(lambda x, y: 1 + y), space.project(lambda x, y: 1 + y)
    for way in ways(backend, False):
        form = hp.WeakForm(space, lambda u, a, b: a * b * u, test="value", fields={"a": live, "b": coeff}, **way)
        first = form(u).arrays[0].copy()
        for field in (live, coeff):
            field.data[0].readwrite()[...] *= 2
        assert norm_error(form(u).arrays[0], 2 * first) < 1e-14


@pytest.mark.parametrize("result", ["1", None, 1j, 10**400])
def test_coordinate_functions_return_real_numbers(result):
    with pytest.raises(hp.ArgumentError, match="real numbers"):
        hp.Space(straight("quad"), 1).evaluate(lambda x, y: result)


@pytest.mark.parametrize("dtype", [bool, int, np.float16, np.uint8])
def test_coordinate_functions_are_taken_in_the_dtype_of_the_space(dtype):
    field = hp.Space(straight("quad"), 1, dtype="float32").evaluate(lambda x, y: (x < 2).astype(dtype))
    assert field.arrays[0].dtype == np.float32
    assert np.all(field.arrays[0] == 1)


def nested(n):
    def function(u, du, x, k):
        for _ in range(n):
            u = np.sin(u) * k
        return u + x[0], [u * du[0] + 1, *list(du)[1:]]

    return function


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_long_functions_agree(backend, dtype):
    """Where compiled kernels call them instead of writing them out at every point."""
    for shape in ("quad", "tet"):
        space = hp.Space(straight(shape), 3, dtype=dtype, quadrature="collapsed")
        u = space.project(lambda *x: x[0] + 0.1)
        fields = {"k": lambda *x: 1.5 + x[1]}
        expected = hp.WeakForm(space, nested(30), fields=fields, backend="numpy", strategy="sumfac")(u).arrays[0]
        for way in ways(backend):
            found = hp.WeakForm(space, nested(30), fields=fields, **way)(u).arrays[0]
            assert norm_error(found, expected) < (1e-12 if dtype == "float64" else 1e-4), way


def test_a_function_with_too_many_operations_names_the_limit():
    with pytest.raises(hp.ArgumentError, match="has 8003 operations, the limit is 2000"):
        hp.WeakForm(hp.Space(straight("quad"), 1), nested(4000), fields={"k": 1.0})


def test_deep_and_shared_functions_are_looked_at_once():
    """A recursion over the graph would be too deep for Python, or take 2^100 steps."""
    space = hp.Space(straight("quad"), 1)
    u = space.project(lambda x, y: x + 1)

    def doubled(u, times):
        for _ in range(times):
            u = u + u
        return u

    assert (
        norm_error(
            hp.WeakForm(space, lambda u: doubled(u, 100), test="value")(u).arrays[0],
            2.0**100 * hp.Mass(space)(u).arrays[0],
        )
        < 1e-13
    )
    found = hp.WeakForm(space, lambda u: doubled(u, 1900), test="value").form.trace
    assert found.flops == 1900
    assert len(repr(found.outputs)) < 100
