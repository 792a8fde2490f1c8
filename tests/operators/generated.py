"""Generated pointwise functions: trees of operations, as Python functions of symbols and as floats at the points.

The floats are computed here, in one dtype and without the package: what every way to compute a weak form has to give.
"""

import operator

import hypothesis.strategies as st
import numpy as np
from hypothesis import assume

UNARY = {
    "negative": (operator.neg, np.negative),
    "positive": (operator.pos, np.positive),
    "abs": (abs, np.absolute),
    **{f"np.{f.__name__}": (f, f) for f in (np.sqrt, np.exp, np.log, np.sin, np.cos, np.tanh, np.square, np.negative)},
    **{f"np.{f.__name__}": (f, f) for f in (np.tan, np.arcsin, np.arccos, np.arctan, np.sinh, np.cosh, np.sign)},
    **{f"np.{f.__name__}": (f, f) for f in (np.expm1, np.log1p, np.log10, np.floor, np.ceil)},
}
BINARY = {
    "+": (operator.add, np.add), "-": (operator.sub, np.subtract), "*": (operator.mul, np.multiply),
    "/": (operator.truediv, np.divide), "**": (operator.pow, np.power),
    **{f"np.{f.__name__}": (f, f) for f in (np.minimum, np.maximum, np.power, np.add, np.less, np.greater_equal)},
    **{f"np.{f.__name__}": (f, f) for f in (np.arctan2, np.hypot)},
    "and": (lambda a, b: (a > 0) & (b > 0), lambda a, b: (a > 0) & (b > 0)),
    "or": (lambda a, b: np.logical_or(a > 0, b > 0), lambda a, b: np.logical_or(a > 0, b > 0)),
    "<": (operator.lt, np.less), "<=": (operator.le, np.less_equal), ">": (operator.gt, np.greater),
    ">=": (operator.ge, np.greater_equal),
}  # fmt: skip
INPUTS = ("u", "x0", "x1", "du0", "du1", "c", "k")

constants = (
    st.integers(-4, 4)
    | st.booleans()
    | st.floats(-3, 3, width=16)
    | st.sampled_from([10**12, np.int8(-3), np.bool_(True), np.float32(0.1), np.array(2), float("inf"), 1e-3, 17])
)


def _operations(inner):
    """Trees one level higher: at least one argument is no constant."""
    exponents = st.sampled_from([-3, -2, -1, 0, 1, 2, 3, 5, 0.5, -0.5, 1.5, True, np.int64(2), 20])
    binary = st.sampled_from(list(BINARY))
    return st.one_of(
        st.tuples(st.sampled_from(list(UNARY)), inner),
        st.tuples(binary, inner, inner | constants),
        st.tuples(binary, inner | constants, inner),
        st.tuples(st.just("**"), inner, exponents),
        st.tuples(st.just("where"), inner, inner | constants, inner | constants),
    )


trees = st.recursive(st.sampled_from(INPUTS), _operations, max_leaves=10)


def build(tree, arguments):
    """What a user would have written, on symbols."""
    if isinstance(tree, str):
        return arguments[tree]
    if not isinstance(tree, tuple):
        return tree
    name, *rest = tree
    values = [build(part, arguments) for part in rest]
    return np.where(*values) if name == "where" else (UNARY | BINARY)[name][0](*values)


def evaluate(tree, inputs, dtype, disturb=lambda values: values):
    """What it is worth: truth values and integers as in NumPy, which may refuse them, floats of one dtype.

    `disturb` changes all floats on the way, as rounding does.
    """
    if isinstance(tree, str):
        return inputs[tree]
    if not isinstance(tree, tuple):
        return disturb(np.asarray(tree, dtype)) if np.asarray(tree).dtype.kind == "f" else tree
    name, *rest = tree
    values = [evaluate(part, inputs, dtype, disturb) for part in rest]
    function = np.where if name == "where" else (UNARY | BINARY)[name][1]
    found = function(*values)
    if found.dtype == bool:
        return found
    floats = function(*[np.asarray(value, dtype if found.dtype.kind == "f" else float) for value in values])
    if found.dtype.kind == "f":
        return disturb(np.asarray(floats, dtype))
    if found.dtype != np.int64 or (
        name in ("**", "np.power") and np.asarray(values[1]).dtype == int and np.ndim(values[1])
    ):
        raise TypeError("not in a pointwise function")
    assume(np.array_equal(found, floats))  # too large for a float
    return found
