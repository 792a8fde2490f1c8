"""Field expressions: functions of the coordinates, typed by users, read without `eval`.

    sin(pi*x) * cos(pi*y) * z          one component
    y, -x, 0                           three components
    where(x < 0.5, 1, exp(-y**2))      a choice point by point

Python's parser makes the tree; every node of it is checked against the few kinds below and turned into a function of
arrays. Numbers are floats from the start and constants are folded, so nothing grows beyond a float's size.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from hpfem.errors import ArgumentError

MAX_LENGTH = 1000
MAX_NODES = 400
MAX_DEPTH = 60

COORDINATES = ("x", "y", "z")
CONSTANTS = {"pi": math.pi, "e": math.e}


def _truth(function: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison whose result is 0.0 or 1.0, so that it can be added and multiplied."""
    return lambda a, b: np.asarray(function(a, b), dtype=np.float64)


# name -> (number of arguments, function)
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    **{name: (1, getattr(np, name)) for name in "sin cos tan sinh cosh tanh exp log sqrt abs".split()},
    "minimum": (2, np.minimum),
    "maximum": (2, np.maximum),
    "where": (3, lambda condition, yes, no: np.where(np.asarray(condition) != 0, yes, no)),
}
_BINARY: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.float_power,
}
_UNARY: dict[type[ast.unaryop], Callable[..., Any]] = {ast.USub: np.negative, ast.UAdd: np.positive}
_COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: _truth(np.less),
    ast.LtE: _truth(np.less_equal),
    ast.Gt: _truth(np.greater),
    ast.GtE: _truth(np.greater_equal),
}
# What users often write, and what to write instead.
_HINTS: dict[type[ast.AST], str] = {
    ast.BitXor: "a power is written **",
    ast.IfExp: "a choice is written where(condition, yes, no)",
    ast.BoolOp: "join conditions with * (and) or maximum (or)",
    ast.Not: "write 1 - condition",
}

Operand = float | Callable[..., Any]


@dataclass(frozen=True)
class FieldExpression:
    """A function of the D coordinates with the text that it was read from."""

    text: str
    dim: int
    parts: tuple[Operand, ...]  # per component a number or a function of the coordinate arrays

    @property
    def components(self) -> int:
        """Number of components."""
        return len(self.parts)

    @property
    def constant(self) -> float | None:
        """The value of a single component that is a number, else None."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], float) else None

    def __call__(self, *coordinates: Any) -> Any:
        """Values at points."""
        if len(coordinates) != self.dim:
            raise ArgumentError(f"field expression {self.text!r} takes {self.dim} coordinates, got {len(coordinates)}")
        arrays = [np.asarray(c, dtype=np.float64) for c in coordinates]
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        with np.errstate(all="ignore"):
            results = [np.broadcast_to(_value(part, arrays), shape) for part in self.parts]
        return results[0] if len(results) == 1 else results


def _chain(links: list[Callable[..., Any]], *values: Any) -> Any:
    """A chain a < b < c: the product of its links."""
    return reduce(np.multiply, (link(values[i], values[i + 1]) for i, link in enumerate(links)))


def _value(operand: Operand, coordinates: list[Any]) -> Any:
    return operand if isinstance(operand, float) else operand(*coordinates)


def parse_field(text: str, dim: int) -> FieldExpression:
    """Read a field expression."""
    if len(text) > MAX_LENGTH:
        raise ArgumentError(f"field expression of {len(text)} characters; at most {MAX_LENGTH} are read")
    source = text.strip()
    if not source:
        raise ArgumentError("field expression is empty; write one like 'sin(pi*x) + y'")
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        where = "" if error.offset is None else f" at column {error.offset}"
        raise ArgumentError(f"field expression {source!r} is not understood{where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError, OverflowError):
        raise ArgumentError(
            f"field expression {source[:60]!r} cannot be read: it is nested too deeply or holds a strange character"
        ) from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise ArgumentError(f"field expression {source[:60]!r}... has more than {MAX_NODES} parts; simplify it")
    reader = _Reader(source, COORDINATES[:dim])
    body = tree.body
    elements = body.elts if isinstance(body, ast.Tuple) else [body]
    if not elements:
        raise ArgumentError(f"field expression {source!r} has no component")
    return FieldExpression(source, dim, tuple(reader.read(element, 0) for element in elements))


class _Reader:
    """Turns checked nodes into numbers and functions of the coordinates."""

    def __init__(self, source: str, coordinates: tuple[str, ...]) -> None:
        self.source = source
        self.coordinates = coordinates

    def error(self, node: ast.AST, what: str) -> ArgumentError:
        """An error that says where."""
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        before = self.source.splitlines()[line - 1].encode()[:offset].decode(errors="replace")
        where = f"column {len(before) + 1}" + (f" of line {line}" if line > 1 else "")
        return ArgumentError(f"field expression {self.source!r}, {where}: {what}")

    def read(self, node: ast.expr, depth: int) -> Operand:
        """A number where the node is constant, else a function."""
        if depth > MAX_DEPTH:
            raise self.error(node, f"nested more than {MAX_DEPTH} deep; simplify it")
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return self.finite(node, value)
            case ast.Constant(value=value):
                raise self.error(node, f"{value!r} is not a real number")
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.BinOp(left=left, op=op, right=right):
                function, arguments = self.known(node, _BINARY, op, "operator", "+ - * / **"), [left, right]
            case ast.UnaryOp(op=op, operand=operand):
                function, arguments = self.known(node, _UNARY, op, "operator", "+ -"), [operand]
            case ast.Compare(left=left, ops=ops, comparators=others):
                links = [self.known(node, _COMPARE, op, "comparison", "< <= > >=") for op in ops]
                function, arguments = partial(_chain, links), [left, *others]
            case ast.Call():
                function, arguments = self.called(node), node.args
            case _:
                raise self.unknown(node, node, "part", "numbers, names, + - * / ** comparisons and functions")
        operands = [self.read(argument, depth + 1) for argument in arguments]
        numbers = [operand for operand in operands if isinstance(operand, float)]
        if len(numbers) == len(operands):
            with np.errstate(all="ignore"):
                return self.finite(node, function(*numbers))
        return lambda *coordinates: function(*(_value(operand, list(coordinates)) for operand in operands))

    def unknown(self, node: ast.AST, part: ast.AST, what: str, valid: str) -> ArgumentError:
        hint = _HINTS.get(type(part), f"valid: {valid}")
        return self.error(node, f"{what} {type(part).__name__} is not available; {hint}")

    def known(
        self, node: ast.AST, table: Mapping[Any, Callable[..., Any]], operator: ast.AST, what: str, valid: str
    ) -> Callable[..., Any]:
        """What a table holds for an operator."""
        if type(operator) not in table:
            raise self.unknown(node, operator, what, valid)
        return table[type(operator)]

    def finite(self, node: ast.AST, value: float) -> float:
        with suppress(OverflowError):  # an integer beyond all floats
            if math.isfinite(value):
                return float(value)
        raise self.error(node, "this constant is not a finite number")

    def name(self, node: ast.Name, name: str) -> Operand:
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in self.coordinates:
            position = self.coordinates.index(name)
            return lambda *coordinates: coordinates[position]
        valid = ", ".join((*self.coordinates, *CONSTANTS))
        if name in FUNCTIONS:
            raise self.error(node, f"{name} is a function; write {name}(...)")
        raise self.error(node, f"unknown name {name!r}; valid: {valid}; functions: {', '.join(FUNCTIONS)}")

    def called(self, node: ast.Call) -> Callable[..., Any]:
        """The function of a call, with the right number of arguments."""
        if not isinstance(node.func, ast.Name):
            raise self.error(node, "only functions called by their name are available")
        if node.func.id not in FUNCTIONS:
            raise self.error(node, f"unknown function {node.func.id!r}; valid: {', '.join(FUNCTIONS)}")
        count, function = FUNCTIONS[node.func.id]
        if node.keywords or len(node.args) != count or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.error(node, f"{node.func.id} takes {count} plain argument{'s' if count > 1 else ''}")
        return function
