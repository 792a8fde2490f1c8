"""Field expressions: values, refusals with their place, and a bounded cost for whatever is typed."""

import math
import string
import time

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from hpfem.cli.field_expression import FUNCTIONS, MAX_LENGTH, FieldExpression, parse_field
from hpfem.errors import ArgumentError

X, Y, Z = np.random.default_rng(3).uniform(0.1, 0.9, (3, 7))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x*y + z", X * Y + Z),
        ("sin(pi*x) * cos(pi*y)*z", np.sin(np.pi * X) * np.cos(np.pi * Y) * Z),
        ("-x**2 + +y", -(X**2) + Y),
        ("2**-1", np.full(7, 0.5)),
        ("(-1)**3 * x", -X),
        ("e**x / exp(x)", np.ones(7)),
        ("sqrt(x) - log(y) + tan(z) + abs(x - y)", np.sqrt(X) - np.log(Y) + np.tan(Z) + np.abs(X - Y)),
        ("sinh(x) + cosh(y) + tanh(z)", np.sinh(X) + np.cosh(Y) + np.tanh(Z)),
        ("minimum(x, y) + maximum(y, z)", np.minimum(X, Y) + np.maximum(Y, Z)),
        ("where(x < 0.5, 1, y)", np.where(X < 0.5, 1, Y)),
        ("(0.2 < x <= 0.6) + (y >= z) + (y > z)", ((X > 0.2) & (X <= 0.6)) * 1.0 + (Y >= Z) * 1.0 + (Y > Z)),
        ("1_000 * x", 1000 * X),
        ("  x  ", X),
        ("3", np.full(7, 3.0)),
    ],
)
def test_values(text, expected):
    np.testing.assert_allclose(parse_field(text, 3)(X, Y, Z), expected, rtol=1e-14)


def test_components_and_constants():
    vector = parse_field("y, -x, 0", 3)
    assert vector.components == 3 and vector.constant is None
    np.testing.assert_array_equal(vector(X, Y, Z), [Y, -X, 0 * X])
    assert parse_field("2*pi", 2).constant == 2 * math.pi
    assert parse_field("2*x", 2).constant is None


def test_dimension_decides_the_coordinates():
    np.testing.assert_array_equal(parse_field("x - y", 2)(X, Y), X - Y)
    with pytest.raises(ArgumentError, match=r"column 5: unknown name 'z'; valid: x, y, pi, e"):
        parse_field("x + z", 2)
    with pytest.raises(ArgumentError, match="takes 2 coordinates, got 3"):
        parse_field("x", 2)(X, Y, Z)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("x +", "not understood"),
        ("sin x", "not understood at column"),
        ("sin(q)", "column 5: unknown name 'q'"),
        ("sin(x)(y)", "column 1: only functions called by their name"),
        ("π*x", "column 1: unknown name 'π'"),
        ("'é' + q", "column 1: 'é' is not a real number"),
        ("x*y*q", "column 5: unknown name 'q'"),
        ("foo(x)", "unknown function 'foo'; valid: sin,"),
        ("sin", r"sin is a function; write sin\(...\)"),
        ("sin(x, y)", "sin takes 1 plain argument$"),
        ("where(x, y)", "where takes 3 plain arguments"),
        ("sin(x=1)", "sin takes 1 plain argument"),
        ("sin(*x)", "sin takes 1 plain argument"),
        ("x ^ 2", r"operator BitXor is not available; a power is written \*\*"),
        ("x if y else z", r"write|written where"),
        ("x < 1 and y < 1", "join conditions"),
        ("not x", "write 1 - condition"),
        ("x == y", "comparison Eq is not available; valid: < <= > >="),
        ("x // y", "operator FloorDiv is not available"),
        ("1j * x", "1j is not a real number"),
        ("True", "True is not a real number"),
        ("'a'", "'a' is not a real number"),
        ("x.real", "Attribute is not available"),
        ("x[0]", "Subscript is not available"),
        ("[x]", "List is not available"),
        ("(x, (y, z))", "Tuple is not available"),
        ("()", "no component"),
        ("lambda: x", "Lambda is not available"),
        ("__import__('os').system('true')", "only functions called by their name"),
        ("(y := x)", "NamedExpr is not available"),
        ("9**9**9", "column 1: this constant is not a finite number"),
        ("9**9**9**9", "not a finite number"),
        ("1/0", "not a finite number"),
        ("1e999", "not a finite number"),
        ("9" * 400, "not a finite number"),
        ("sqrt(-1)", "not a finite number"),
        ("x" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH}"),
        ("+" * 200 + "x", "nested|parts|deeply"),
        ("+" * 900 + "x", "nested|parts|deeply"),
        ("(" * 150 + "x" + ")" * 150, None),
        ("(" * 480 + "x" + ")" * 480, "not understood|nested"),
        ("x" + "+x" * 300, "parts"),
        ("x\0y", "deeply|strange|understood"),
    ],
)
def test_refusals_say_what_and_where(text, message):
    if message is None:
        np.testing.assert_array_equal(parse_field(text, 3)(X, Y, Z), X)
        return
    with pytest.raises(ArgumentError, match=message):
        parse_field(text, 3)


def test_place_in_a_later_line():
    with pytest.raises(ArgumentError, match="column 3 of line 2: unknown name 'q'"):
        parse_field("(x +\n  q)", 3)


PIECES = [*FUNCTIONS, "x", "y", "z", "pi", "e", "q", "9", "0.5", "1e308", "(", ")", ",", "+", "-", "*", "/", "**"]
PIECES += ["<", ">=", "==", " ", ".", "'", "if", "else", "lambda", ":", "[", "]", "^", "not", "__class__", "\n", "{"]


@given(
    st.one_of(
        st.text(max_size=80), st.text(string.printable, max_size=40), st.lists(st.sampled_from(PIECES)).map("".join)
    )
)
def test_anything_is_refused_or_a_function(text):
    start = time.perf_counter()
    try:
        expression = parse_field(text, 3)
    except ArgumentError:
        return
    assert isinstance(expression, FieldExpression)
    values = expression(X, Y, Z)
    for part in [values] if expression.components == 1 else values:
        assert part.shape == X.shape and part.dtype == np.float64
    assert time.perf_counter() - start < 5


def test_a_function_is_repeatable_and_says_what_it_is():
    expression = parse_field(" sin(x) ", 1)
    assert expression.text == "sin(x)" and expression.dim == 1
