"""The expression graph of a traced pointwise function: scalars and operations on them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .vectors import Gradient, Vector

# One argument's derivative: (the result, the arguments) -> number or expression; None if small changes change nothing.
Partial = Callable[..., Any] | None


def _where(condition: Callable[..., Any], yes: float, no: float) -> Partial:
    return lambda r, *args: np.where(condition(*args), yes, no)


def _by_exponent(r: Any, a: Any, b: Any) -> Any:
    return np.where(a > 0.0, r * np.log(np.where(a > 0.0, a, 1.0)), 0.0)


# name -> (number of arguments, function on floats for folding, NumPy function on arrays, partial derivatives). Where a
# branch is taken, the derivative is that of the branch: at ties of the first argument, of abs at 0 that of x > 0.
OPERATIONS: dict[str, tuple[int, Callable[..., Any], Callable[..., Any], tuple[Partial, ...]]] = {
    "add": (2, operator.add, np.add, (lambda r, a, b: 1.0, lambda r, a, b: 1.0)),
    "sub": (2, operator.sub, np.subtract, (lambda r, a, b: 1.0, lambda r, a, b: -1.0)),
    "mul": (2, operator.mul, np.multiply, (lambda r, a, b: b, lambda r, a, b: a)),
    "div": (2, operator.truediv, np.divide, (lambda r, a, b: 1.0 / b, lambda r, a, b: -r / b)),
    "pow": (2, operator.pow, np.power, (lambda r, a, b: b * a ** (b - 1.0), _by_exponent)),
    "neg": (1, operator.neg, np.negative, (lambda r, a: -1.0,)),
    "abs": (1, abs, np.absolute, (_where(lambda a: a < 0.0, -1.0, 1.0),)),
    "sqrt": (1, math.sqrt, np.sqrt, (lambda r, a: 0.5 / r,)),
    "exp": (1, math.exp, np.exp, (lambda r, a: r,)),
    "log": (1, math.log, np.log, (lambda r, a: 1.0 / a,)),
    "sin": (1, math.sin, np.sin, (lambda r, a: np.cos(a),)),
    "cos": (1, math.cos, np.cos, (lambda r, a: -np.sin(a),)),
    "tan": (1, math.tan, np.tan, (lambda r, a: 1.0 + r * r,)),
    "asin": (1, math.asin, np.arcsin, (lambda r, a: 1.0 / np.sqrt(1.0 - a * a),)),
    "acos": (1, math.acos, np.arccos, (lambda r, a: -1.0 / np.sqrt(1.0 - a * a),)),
    "atan": (1, math.atan, np.arctan, (lambda r, a: 1.0 / (1.0 + a * a),)),
    "atan2": (2, math.atan2, np.arctan2, (lambda r, a, b: b / (a * a + b * b), lambda r, a, b: -a / (a * a + b * b))),
    "hypot": (2, math.hypot, np.hypot, (lambda r, a, b: a / r, lambda r, a, b: b / r)),
    "sinh": (1, math.sinh, np.sinh, (lambda r, a: np.cosh(a),)),
    "cosh": (1, math.cosh, np.cosh, (lambda r, a: np.sinh(a),)),
    "tanh": (1, math.tanh, np.tanh, (lambda r, a: 1.0 - r * r,)),
    "expm1": (1, math.expm1, np.expm1, (lambda r, a: 1.0 + r,)),
    "log1p": (1, math.log1p, np.log1p, (lambda r, a: 1.0 / (1.0 + a),)),
    "log10": (1, math.log10, np.log10, (lambda r, a: 1.0 / (a * math.log(10.0)),)),
    "floor": (1, np.floor, np.floor, (None,)),
    "ceil": (1, np.ceil, np.ceil, (None,)),
    "sign": (1, np.sign, np.sign, (None,)),
    "min": (2, min, np.minimum, (_where(operator.le, 1.0, 0.0), _where(operator.le, 0.0, 1.0))),
    "max": (2, max, np.maximum, (_where(operator.ge, 1.0, 0.0), _where(operator.ge, 0.0, 1.0))),
    "lt": (2, operator.lt, np.less, (None, None)),
    "le": (2, operator.le, np.less_equal, (None, None)),
    "gt": (2, operator.gt, np.greater, (None, None)),
    "ge": (2, operator.ge, np.greater_equal, (None, None)),
    "where": (
        3,
        lambda c, a, b: a if c else b,
        np.where,
        (None, _where(lambda c, a, b: c, 1.0, 0.0), _where(lambda c, a, b: c, 0.0, 1.0)),
    ),
}
COMPARISONS = ("lt", "le", "gt", "ge")
# Functions of the C library, by their names there: one costs as much as reading many numbers.
TRANSCENDENTAL = (
    *("pow", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "hypot", "sinh", "cosh", "tanh"),
    *("expm1", "log1p", "log10"),
)
_CALLS: dict[Any, str] = {function: name for name, (_, _, function, _) in OPERATIONS.items()}
_CALLS |= {operator.pow: "pow", np.float_power: "pow", np.square: "mul", np.positive: "positive"}
_LOGICAL = {np.bitwise_and: "min", np.logical_and: "min", np.bitwise_or: "max", np.logical_or: "max"}
_CALLS |= _LOGICAL
_BOOL, _INT, FLOAT = np.dtype(bool), np.dtype(np.int64), np.dtype(np.float64)


class Graph:
    """Hash-consed nodes of one traced function: constants folded, common subexpressions shared. If it is exact, signs
    of zeros, infinities and NaN are NumPy's, and products are rounded before they are added.
    """

    def __init__(self, exact: bool = False) -> None:
        self.exact = exact
        self.nodes: list[Expression] = []
        self._known: dict[tuple[Any, ...], Expression] = {}

    def node(
        self, op: str, args: tuple[Expression, ...] = (), payload: Any = None, dtype: np.dtype[Any] = FLOAT
    ) -> Expression:
        """The node of a "const" (payload a float), an "input" (its key) or an operation, made once; the dtype is that
        of NumPy's values.
        """
        # 0.0 == -0.0, which are different constants.
        key = (op, tuple(a.index for a in args), repr(payload) if op == "const" else payload, dtype)
        if key not in self._known:
            self._known[key] = Expression(self, op, args, payload, len(self.nodes), dtype)
            self.nodes.append(self._known[key])
        return self._known[key]

    def constant(self, value: float) -> Expression:
        """Make a constant node."""
        return self.node("const", (), float(value))

    def lift(self, value: Any) -> Expression:
        """Make an expression of a number; expressions pass through."""
        if isinstance(value, Expression):
            return value
        if isinstance(value, (Vector, Gradient)):
            raise ArgumentError("a pointwise function has a vector where a scalar is needed; take its components")
        if isinstance(value, int):
            try:
                return self.constant(float(value))
            except OverflowError:
                raise ArgumentError("a pointwise function has an integer that is too large for a float") from None
        numpy = isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 and value.dtype.kind in "buif"
        if numpy or isinstance(value, float):
            return self.constant(float(value))
        raise ArgumentError(
            f"a pointwise function mixed a {type(value).__name__} into an expression; pass it as a field"
        )

    def call(self, function: Callable[..., Any], *values: Any) -> Expression:
        """Make what a function of NumPy computes, in its types, with its errors; see `apply`.

        The sum of two truth values is their "or", and so on. Types other than bool, int64 and float64 are refused.
        """
        op, args = _CALLS[function], tuple(map(self.lift, values))
        given = [np.ones(1, v.dtype) if isinstance(v, Expression) else v for v in values]
        with np.errstate(all="ignore"):
            dtype = function(*given).dtype
        if dtype.kind == "f" and not self.exact:
            dtype = FLOAT
        # NumPy refuses negative exponents of integers, which are not known here.
        unknown = op == "pow" and dtype == _INT and isinstance(values[1], Expression) and values[1].dtype == _INT
        unknown |= function in _LOGICAL and any(np.asarray(v).dtype != _BOOL for v in given)
        if dtype not in (_BOOL, _INT, FLOAT) or unknown:
            types = ", ".join(dict.fromkeys(str(np.asarray(v).dtype) for v in given))
            raise ArgumentError(f"np.{function.__name__} of {types} is not available in a pointwise function")
        if op == "add" and dtype == _BOOL:
            op = "max"
        args = args * 2 if function is np.square else args
        found = args[0] if op == "positive" else self.apply(op, *args, dtype=dtype)
        if self.exact and dtype == _INT and op in ("neg", "mul"):
            found = self.node("add", (found, self.constant(0.0)), dtype=dtype)  # an integer 0 has no sign
        return found if found.dtype == dtype else self.node(found.op, found.args, found.payload, dtype)

    def apply(self, op: str, *values: Any, dtype: np.dtype[Any] = FLOAT) -> Expression:
        """Make the node of an operation on floats, folded if possible, with a dtype if it is not simplified."""
        args = tuple(self.lift(v) for v in values)
        if all(a.op == "const" for a in args):
            try:
                return self.constant(float(OPERATIONS[op][1](*(a.payload for a in args))))
            except (ValueError, TypeError, ZeroDivisionError, OverflowError):
                # Not a finite real number: computed at run time.
                return self.node(op, args, dtype=dtype)
        simpler = self._simplified(op, args, dtype)
        return self.node(op, args, dtype=dtype) if simpler is None else simpler

    def _simplified(self, op: str, args: tuple[Expression, ...], dtype: np.dtype[Any]) -> Expression | None:
        """Identities that are exact in floating point, for finite arguments if the graph is not exact."""
        value = [a.payload if a.op == "const" else None for a in args]
        if op in ("add", "mul") and value[0] is not None:  # constants go to the right: one form of equal expressions
            return self.apply(op, args[1], args[0], dtype=dtype)
        if op in ("mul", "div") and value[1] == 1:
            return args[0]
        if op == "mul" and value[1] == -1:
            return self.apply("neg", args[0])
        if op == "neg" and args[0].op == "neg":
            return args[0].args[0]
        if op == "where" and args[1] is args[2]:
            return args[1]
        if op == "pow" and value[1] is not None and (not self.exact or value[1] in (-1, 0, 0.5, 1, 2)):
            return self._power(args[0], value[1])
        if self.exact:
            return None
        if op in ("add", "sub") and value[1] == 0:
            return args[0]
        if op == "sub" and value[0] == 0:
            return self.apply("neg", args[1])
        return self.constant(0.0) if op == "mul" and value[1] == 0 else None

    def _power(self, base: Expression, exponent: float) -> Expression | None:
        if exponent == 0.5:
            return self.apply("sqrt", base)
        if abs(exponent) <= 16 and exponent == int(exponent):
            power, square, n = self.constant(1.0), base, int(abs(exponent))
            while n:
                power = self.apply("mul", power, square) if n & 1 else power
                n >>= 1
                square = self.apply("mul", square, square) if n else square
            return power if exponent >= 0 else self.apply("div", self.constant(1.0), power)
        return None


def is_zero(node: Expression) -> bool:
    """Whether an expression is the constant 0."""
    return node.op == "const" and bool(node.payload == 0)


def copied(
    nodes: Iterable[Expression], graph: Graph, replaced: Replaced = lambda node, args: None
) -> dict[int, Expression]:
    """Copies in another graph of nodes and their arguments, by index; `replaced` makes those that it does not leave."""
    new: dict[int, Expression] = {}
    for node in nodes:
        args = tuple(new[a.index] for a in node.args)
        found = replaced(node, args)
        if found is None:
            found = graph.apply(node.op, *args) if args else graph.node(node.op, (), node.payload)
        new[node.index] = found
    return new


def live(graph: Graph, results: Iterable[Expression]) -> list[Expression]:
    """Nodes that results depend on, in topological order."""
    needed = {node.index for node in results}
    for node in reversed(graph.nodes):
        if node.index in needed:
            needed.update(a.index for a in node.args)
    return [node for node in graph.nodes if node.index in needed]


def depending(nodes: Iterable[Expression], on: Callable[[tuple[Any, ...]], bool]) -> set[int]:
    """Indices of the nodes that depend on inputs with certain keys."""
    found: set[int] = set()
    for node in nodes:
        if (node.op == "input" and on(node.payload)) or any(a.index in found for a in node.args):
            found.add(node.index)
    return found


def _binary(function: Callable[..., Any]) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    def forward(self: Expression, other: Any) -> Any:
        if isinstance(other, (Vector, Gradient)):
            return NotImplemented
        return self.graph.call(function, self, other)

    def reflected(self: Expression, other: Any) -> Any:
        return self.graph.call(function, other, self)

    return forward, reflected


@dataclass(frozen=True, eq=False)
class Expression:
    """A scalar of a traced pointwise function: the float `payload` of a "const", the key of an "input", ("u", c),
    ("du", c, i), ("x", i), ("field", name, c) or ("param", name), or an operation of `OPERATIONS`. Its index is its
    position in `Graph.nodes`, in topological order; operations are on floats, a truth value is 1 or 0, whatever the
    dtype of NumPy's values.
    """

    graph: Graph
    op: str
    args: tuple[Expression, ...]
    payload: Any
    index: int
    dtype: np.dtype[Any]

    __add__, __radd__ = _binary(np.add)
    __sub__, __rsub__ = _binary(np.subtract)
    __mul__, __rmul__ = _binary(np.multiply)
    __truediv__, __rtruediv__ = _binary(np.divide)
    __pow__, __rpow__ = _binary(operator.pow)
    __and__, __rand__ = _binary(np.bitwise_and)
    __or__, __ror__ = _binary(np.bitwise_or)
    __lt__ = _binary(np.less)[0]
    __le__ = _binary(np.less_equal)[0]
    __gt__ = _binary(np.greater)[0]
    __ge__ = _binary(np.greater_equal)[0]

    def __repr__(self) -> str:
        # Arguments by number: written out repeatedly, shared ones would fill the memory.
        what = self.payload if self.payload is not None else tuple(a.index for a in self.args)
        return f"<node {self.index}: {self.op} {what}>"

    def __neg__(self) -> Expression:
        return self.graph.call(np.negative, self)

    def __pos__(self) -> Expression:
        return self.graph.call(np.positive, self)

    def __abs__(self) -> Expression:
        return self.graph.call(np.absolute, self)

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        # An array of NumPy has one type, an array of expressions would not.
        if self.dtype != FLOAT:
            raise ArgumentError("a pointwise function puts a truth value or an integer into an array; use a list")
        array = np.empty((), object)
        array[()] = self
        return array

    def __bool__(self) -> bool:
        raise ArgumentError(
            "a pointwise function took a Python decision (if, and, or, not, min, max) on a value that is only known at"
            " run time; use np.where, np.minimum or np.maximum, and & or | of comparisons in brackets"
        )

    # Defining equality removes the hash; nodes are looked up by identity.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise ArgumentError("a pointwise function compared values with == or !=; use <, <=, > or >= in np.where")

    def __float__(self) -> float:
        raise ArgumentError("a pointwise function turned a value into a float; use NumPy's functions instead of math's")

    __int__ = __float__
    __index__ = __float__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc not in _CALLS or method != "__call__" or kwargs:
            raise ArgumentError(
                f"np.{ufunc.__name__} is not available in a pointwise function; available: + - * / ** and np."
                + ", np.".join(sorted(known.__name__ for known in _CALLS if known is not operator.pow))
            )
        if any(isinstance(value, np.ndarray) and value.ndim for value in inputs):
            raise ArgumentError("a pointwise function mixed an array into an expression; pass it as a field")
        return self.graph.call(ufunc, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.where and len(args) == 3 and not kwargs:
            return self.graph.call(np.where, *args)
        raise ArgumentError(f"np.{function.__name__} is not available in a pointwise function")


# A node and the copies of its arguments -> what takes the place of its copy, or None.
Replaced = Callable[[Expression, tuple[Expression, ...]], Expression | None]
