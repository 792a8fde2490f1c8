"""Pointwise functions: plain Python in physical quantities, run on arrays or traced once to an expression graph.

A pointwise function takes, by the names of its parameters, the value `u`, the gradient `du` in x, the point `x`, and
named fields and parameters; it returns what multiplies the test value, what multiplies the test gradient, or both.

    def helmholtz(u, du, lam):
        return lam * u, du

The NumPy backend calls the function on arrays. `trace` calls it once on symbols; compiled backends print the graph.
A flux that is made of scalars times `du` never needs the components of `du`, so a block only has to carry the symmetric
metric; taking a component or a dot product, or returning another vector, makes it `general`. Which one is found here.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hpfem.shapes.arguments import shown

from ..errors import ArgumentError

# name -> (number of arguments, function on floats for folding, NumPy function on arrays)
OPERATIONS: dict[str, tuple[int, Callable[..., Any], Callable[..., Any]]] = {
    "add": (2, operator.add, np.add),
    "sub": (2, operator.sub, np.subtract),
    "mul": (2, operator.mul, np.multiply),
    "div": (2, operator.truediv, np.divide),
    "pow": (2, operator.pow, np.power),
    "neg": (1, operator.neg, np.negative),
    "abs": (1, abs, np.absolute),
    "sqrt": (1, math.sqrt, np.sqrt),
    "exp": (1, math.exp, np.exp),
    "log": (1, math.log, np.log),
    "sin": (1, math.sin, np.sin),
    "cos": (1, math.cos, np.cos),
    "tanh": (1, math.tanh, np.tanh),
    "min": (2, min, np.minimum),
    "max": (2, max, np.maximum),
    "lt": (2, operator.lt, np.less),
    "le": (2, operator.le, np.less_equal),
    "gt": (2, operator.gt, np.greater),
    "ge": (2, operator.ge, np.greater_equal),
    "where": (3, lambda c, a, b: a if c else b, np.where),
}
_UFUNCS: dict[Any, str] = {function: name for name, (_, _, function) in OPERATIONS.items() if name != "where"}
_UFUNCS[np.float_power] = "pow"


class Graph:
    """Hash-consed nodes of one traced function: constants folded, common subexpressions shared."""

    def __init__(self) -> None:
        self.nodes: list[Expression] = []
        self._known: dict[tuple[Any, ...], Expression] = {}

    def node(self, op: str, args: tuple[Expression, ...] = (), payload: Any = None) -> Expression:
        """The node of an operation, made once.

        Parameters
        ----------
        op : str
            "const" (payload a float), "input" (payload its key) or a name of `OPERATIONS`.
        args : tuple of Expression
            Arguments.
        payload : object
            See `op`.

        Returns
        -------
        Expression
        """
        key = (op, tuple(a.index for a in args), payload)
        if key not in self._known:
            self._known[key] = Expression(self, op, args, payload, len(self.nodes))
            self.nodes.append(self._known[key])
        return self._known[key]

    def constant(self, value: float) -> Expression:
        """A constant node."""
        return self.node("const", (), float(value))

    def lift(self, value: Any) -> Expression:
        """Make an expression of a number; expressions pass through."""
        if isinstance(value, Expression):
            return value
        if isinstance(value, (Vector, Gradient)):
            raise ArgumentError("a pointwise function has a vector where a scalar is needed; take its components")
        if np.ndim(value) == 0 and isinstance(value, (int, float, np.number, np.ndarray)):
            return self.constant(float(value))
        raise ArgumentError(
            f"a pointwise function mixed a {type(value).__name__} into an expression; pass it as a field"
        )

    def apply(self, op: str, *values: Any) -> Expression:
        """Node of an operation on expressions and numbers, folded where it can be."""
        args = tuple(self.lift(v) for v in values)
        if all(a.op == "const" for a in args):
            try:
                return self.constant(float(OPERATIONS[op][1](*(a.payload for a in args))))
            except (ValueError, TypeError, ZeroDivisionError, OverflowError):
                # Not a finite real number: left to the arithmetic at run time.
                return self.node(op, args)
        simpler = self._simplified(op, args)
        return self.node(op, args) if simpler is None else simpler

    def _simplified(self, op: str, args: tuple[Expression, ...]) -> Expression | None:
        """Identities that are exact in floating point for finite arguments."""
        value = [a.payload if a.op == "const" else None for a in args]
        if op in ("add", "mul") and value[0] is not None:  # constants go right: one form to share
            return self.apply(op, args[1], args[0])
        if op == "add" or op == "sub":
            if value[1] == 0:
                return args[0]
            if op == "sub" and value[0] == 0:
                return self.apply("neg", args[1])
        elif op == "mul":
            if value[1] == 1:
                return args[0]
            if value[1] == -1:
                return self.apply("neg", args[0])
            if value[1] == 0:
                return self.constant(0.0)
        elif op == "div" and value[1] == 1:
            return args[0]
        elif op == "pow" and value[1] is not None:
            return self._power(args[0], value[1])
        elif op == "neg" and args[0].op == "neg":
            return args[0].args[0]
        return None

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


def _binary(op: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    def forward(self: Expression, other: Any) -> Any:
        if isinstance(other, (Vector, Gradient)):
            return NotImplemented
        return self.graph.apply(op, self, other)

    def reflected(self: Expression, other: Any) -> Any:
        return self.graph.apply(op, other, self)

    return forward, reflected


@dataclass(frozen=True, eq=False)
class Expression:
    """A scalar of a traced pointwise function.

    Attributes
    ----------
    graph : Graph
    op : str
        "const", "input" or a name of `OPERATIONS`.
    args : tuple of Expression
    payload : object
        The float of a constant, the key of an input: ("u", c), ("du", c, i), ("x", i), ("field", name, c),
        ("param", name).
    index : int
        Position in `Graph.nodes`, which is in topological order.
    """

    graph: Graph = field(repr=False)
    op: str
    args: tuple[Expression, ...]
    payload: Any
    index: int

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div")
    __pow__, __rpow__ = _binary("pow")
    __lt__ = _binary("lt")[0]
    __le__ = _binary("le")[0]
    __gt__ = _binary("gt")[0]
    __ge__ = _binary("ge")[0]

    def __neg__(self) -> Expression:
        return self.graph.apply("neg", self)

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return self.graph.apply("abs", self)

    def __bool__(self) -> bool:
        raise ArgumentError(
            "a pointwise function took a Python decision (if, and, or, not, min, max) on a value that is only known at"
            " run time; use np.where, np.minimum or np.maximum"
        )

    # Defining equality takes the hash away; nodes are looked up by identity.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise ArgumentError("a pointwise function compared values with == or !=; use <, <=, > or >= in np.where")

    def __float__(self) -> float:
        raise ArgumentError("a pointwise function turned a value into a float; use NumPy's functions instead of math's")

    __int__ = __float__
    __index__ = __float__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = _UFUNCS.get(ufunc)
        if ufunc is np.positive:
            return self
        if ufunc is np.square:
            return self.graph.apply("mul", inputs[0], inputs[0])
        if name is None or method != "__call__" or kwargs:
            raise ArgumentError(
                f"np.{ufunc.__name__} is not available in a pointwise function; available: + - * / ** and np."
                + ", np.".join(("sqrt exp log sin cos tanh abs minimum maximum where").split())
            )
        if any(isinstance(value, np.ndarray) and value.ndim for value in inputs):
            raise ArgumentError("a pointwise function mixed an array into an expression; pass it as a field")
        return self.graph.apply(name, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.where and len(args) == 3 and not kwargs:
            return self.graph.apply("where", *args)
        raise ArgumentError(f"np.{function.__name__} is not available in a pointwise function")


def _check_scalar(scale: Any, what: str) -> None:
    if isinstance(scale, (Vector, Gradient, list, tuple)):
        raise ArgumentError(f"a pointwise function has a vector {what} a vector; use a.dot(b), or their components")


class _NoArray:
    """Keeps NumPy from making one array of a vector's components: a sum over it would be one over all points."""

    __array_ufunc__ = None

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise ArgumentError("NumPy does not take vectors in a pointwise function; use a.dot(b), or components")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise ArgumentError(
            f"np.{function.__name__} does not take vectors in a pointwise function; use a.dot(b), or components"
        )


class Vector(_NoArray):
    """A vector with one scalar (array or expression) per space direction, or one object per component of a field.

    Parameters
    ----------
    components : sequence
        D scalars.
    """

    def __init__(self, components: Sequence[Any]) -> None:
        self.components = list(components)

    def __len__(self) -> int:
        return len(self.components)

    def __getitem__(self, i: int) -> Any:
        return self.components[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.components)

    def dot(self, other: Any) -> Any:
        """Scalar product with another vector or sequence of D scalars."""
        if len(other) != len(self):
            raise ArgumentError(f"dot product of vectors with {len(self)} and {len(other)} components")
        total = self[0] * other[0]
        for i in range(1, len(self)):
            total = total + self[i] * other[i]
        return total

    __matmul__ = dot

    def _pairs(self, other: Any) -> Iterator[tuple[Any, Any]]:
        if not isinstance(other, (Vector, Gradient, list, tuple)) or len(other) != len(self):
            raise ArgumentError(
                f"a vector of {len(self)} components is added to vectors of as many only, not to"
                f" {type(other).__name__}; a pointwise function has to say which component it means"
            )
        return zip(self, other, strict=True)

    def __add__(self, other: Any) -> Vector:
        return Vector([a + b for a, b in self._pairs(other)])

    __radd__ = __add__

    def __sub__(self, other: Any) -> Vector:
        return Vector([a - b for a, b in self._pairs(other)])

    def __rsub__(self, other: Any) -> Vector:
        return Vector([b - a for a, b in self._pairs(other)])

    def __mul__(self, scale: Any) -> Vector:
        _check_scalar(scale, "multiplied by")
        return Vector([a * scale for a in self])

    __rmul__ = __mul__

    def __truediv__(self, scale: Any) -> Vector:
        _check_scalar(scale, "divided by")
        return Vector([a / scale for a in self])

    def __neg__(self) -> Vector:
        return Vector([-a for a in self])


class Gradient(_NoArray):
    """A linear combination of the gradients of the trial's components, with scalar coefficients.

    It stays a combination under scaling and addition; asking for a component makes it a `Vector`.

    Parameters
    ----------
    terms : dict
        Coefficient of each trial component's gradient.
    source : callable
        c -> the D scalars of the gradient of component c.
    """

    def __init__(self, terms: dict[int, Any], source: Callable[[int], Sequence[Any]]) -> None:
        self.terms = terms
        self.source = source

    def vector(self) -> Vector:
        """The components, in x."""
        total: Vector | None = None
        for c, scale in self.terms.items():
            one = Vector(self.source(c))
            one = one if isinstance(scale, float) and scale == 1.0 else one * scale
            total = one if total is None else total + one
        if total is None:
            raise ArgumentError("a gradient flux without terms")
        return total

    def __len__(self) -> int:
        return len(self.vector())

    def __getitem__(self, i: int) -> Any:
        return self.vector()[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.vector())

    def dot(self, other: Any) -> Any:
        """Scalar product with a vector, a gradient or a sequence of D scalars."""
        return self.vector().dot(other.vector() if isinstance(other, Gradient) else other)

    __matmul__ = dot

    def _combined(self, other: Any, sign: float) -> Any:
        if isinstance(other, Gradient):
            terms = dict(self.terms)
            for c, scale in other.terms.items():
                scale = scale if sign > 0 else -scale
                terms[c] = terms[c] + scale if c in terms else scale
            return Gradient(terms, self.source)
        if isinstance(other, (int, float)) and other == 0:
            return self
        return self.vector() + other if sign > 0 else self.vector() - other

    def __add__(self, other: Any) -> Any:
        return self._combined(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combined(other, -1.0)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, scale: Any) -> Gradient:
        _check_scalar(scale, "multiplied by")
        return Gradient({c: s * scale for c, s in self.terms.items()}, self.source)

    __rmul__ = __mul__

    def __truediv__(self, scale: Any) -> Gradient:
        _check_scalar(scale, "divided by")
        return Gradient({c: s / scale for c, s in self.terms.items()}, self.source)

    def __neg__(self) -> Gradient:
        return Gradient({c: -s for c, s in self.terms.items()}, self.source)


@dataclass(frozen=True)
class Pointwise:
    """A pointwise function with what it takes and returns.

    Attributes
    ----------
    function : callable
        Takes some of `u`, `du`, `x` and names of fields and parameters.
    test : tuple of str
        What its results multiply: "value", "grad" or both, in this order.
    """

    function: Callable[..., Any]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ArgumentError(f"a pointwise function is a function, got {type(self.function).__name__}")
        if not isinstance(self.test, tuple) or self.test not in (("value",), ("grad",), ("value", "grad")):
            raise ArgumentError(f"test must be ('value',), ('grad',) or ('value', 'grad'), got {shown(self.test)}")

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of its parameters."""
        return tuple(inspect.signature(self.function).parameters)

    def __call__(self, arguments: Mapping[str, Any]) -> tuple[Any | None, Any | None]:
        """Results for the test value and the test gradient, None where there is none."""
        result = self.function(**{name: arguments[name] for name in self.arguments})
        if len(self.test) == 1:
            if isinstance(result, tuple) and len(result) == 1:
                result = result[0]
            if result is None:
                raise ArgumentError(f"pointwise function {self.name!r} returned nothing")
            return (result, None) if self.test == ("value",) else (None, result)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentError(
                f"pointwise function {self.name!r} must return a pair (what multiplies the test value, what multiplies"
                f" the test gradient), got {type(result).__name__}"
            )
        if result[0] is None or result[1] is None:
            raise ArgumentError(
                f"pointwise function {self.name!r} returned None; say with test=('value',) or ('grad',) what is left"
                " out"
            )
        return result


@dataclass(frozen=True, eq=False)
class Trace:
    """A traced pointwise function.

    Attributes
    ----------
    graph : Graph
        All nodes in topological order.
    dim : int
        Number of components of a gradient in x.
    components : int
        Components of trial and test.
    value : tuple of Expression or None
        Per test component, what multiplies the test value.
    scaled : tuple of dict or None
        Per test component {trial component: coefficient} of a flux made of scaled gradients (kind "symmetric").
    flux : tuple of tuple of Expression or None
        Per test component the `dim` components of the flux in x (kind "general").
    """

    graph: Graph
    dim: int
    components: int
    value: tuple[Expression, ...] | None
    scaled: tuple[dict[int, Expression], ...] | None
    flux: tuple[tuple[Expression, ...], ...] | None

    @cached_property
    def outputs(self) -> tuple[Expression, ...]:
        """All results, in the order value, scaled, flux."""
        found = list(self.value or ())
        for terms in self.scaled or ():
            found += terms.values()
        for vector in self.flux or ():
            found += vector
        return tuple(found)

    @cached_property
    def live(self) -> tuple[Expression, ...]:
        """Nodes that the results depend on, in topological order."""
        marked: set[int] = set()
        stack = [e.index for e in self.outputs]
        while stack:
            index = stack.pop()
            if index not in marked:
                marked.add(index)
                stack += [a.index for a in self.graph.nodes[index].args]
        return tuple(self.graph.nodes[i] for i in sorted(marked))

    @cached_property
    def inputs(self) -> tuple[tuple[Any, ...], ...]:
        """Keys of the inputs that the results depend on."""
        return tuple(node.payload for node in self.live if node.op == "input")

    @cached_property
    def uses_value(self) -> bool:
        """Whether the trial value is evaluated."""
        return any(key[0] == "u" for key in self.inputs)

    @cached_property
    def uses_gradient(self) -> bool:
        """Whether the trial gradient is evaluated."""
        return self.scaled is not None or any(key[0] == "du" for key in self.inputs)

    @cached_property
    def general(self) -> bool:
        """Whether the inverse Jacobian is needed instead of the symmetric metric."""
        return self.flux is not None or any(key[0] == "du" for key in self.inputs)

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations per point."""
        return sum(node.op not in ("const", "input") for node in self.live)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What identifies the traced function in a kernel cache."""
        position = {node.index: i for i, node in enumerate(self.live)}
        nodes = tuple((n.op, tuple(position[a.index] for a in n.args), n.payload) for n in self.live)
        pick = [position[e.index] for e in self.outputs]
        layout = (
            len(self.value or ()),
            tuple(tuple(terms) for terms in self.scaled or ()),
            tuple(len(vector) for vector in self.flux or ()),
        )
        return self.dim, self.components, nodes, tuple(pick), layout


def trace(
    pointwise: Pointwise,
    dim: int,
    components: int = 1,
    fields: Mapping[str, int] | None = None,
    parameters: Sequence[str] = (),
) -> Trace:
    """Call a pointwise function once on symbols.

    Parameters
    ----------
    pointwise : Pointwise
    dim : int
        Space dimension: components of `du` and `x`.
    components : int
        Components of the trial and test; with one, `u` is a scalar and `du` a gradient, else both are indexed.
    fields : mapping
        Name -> number of components (0 for a scalar field) of each field.
    parameters : sequence of str
        Names of scalar parameters.

    Returns
    -------
    Trace

    Raises
    ------
    ArgumentError
        For a parameter that is neither given nor known, a field or parameter that the function does not take, a
        decision on a traced value, an operation that does not exist, or results of the wrong form.
    """
    fields = dict(fields or {})
    graph = Graph()
    asked: set[int] = set()

    def symbol(*key: Any) -> Expression:
        return graph.node("input", (), key)

    def source(c: int) -> list[Expression]:
        asked.add(c)
        return [symbol("du", c, i) for i in range(dim)]

    gradients = [Gradient({c: 1.0}, source) for c in range(components)]
    values = [symbol("u", c) for c in range(components)]
    given = (*fields, *parameters)
    reserved = [name for name in given if name in ("u", "du", "x")]
    if reserved:
        raise ArgumentError(
            f"a field of pointwise function {pointwise.name!r} is called {reserved[0]!r}: u, du and x are the trial"
            " function, its gradient and the point; choose another name"
        )
    arguments: dict[str, Any] = {
        "u": values[0] if components == 1 else Vector(values),
        "du": gradients[0] if components == 1 else Vector(gradients),
        "x": Vector([symbol("x", i) for i in range(dim)]),
    }
    for name, n in fields.items():
        many = Vector([symbol("field", name, c) for c in range(n)])
        arguments[name] = many if n else symbol("field", name, 0)
    for name in parameters:
        arguments[name] = symbol("param", name)
    missing = [name for name in pointwise.arguments if name not in arguments]
    if missing:
        raise ArgumentError(
            f"pointwise function {pointwise.name!r} takes {', '.join(map(repr, missing))}, which is neither a field nor"
            f" a parameter; known: {', '.join(arguments)}"
        )
    unused = [name for name in given if name not in pointwise.arguments]
    if unused:
        raise ArgumentError(
            f"pointwise function {pointwise.name!r} does not take {', '.join(map(repr, unused))}; it takes"
            f" {', '.join(pointwise.arguments)}"
        )
    try:
        value, flux = pointwise(arguments)
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"pointwise function {pointwise.name!r} cannot be traced: {error}") from error
    values_out = (
        None if value is None else tuple(graph.lift(v) for v in per_component(value, components, pointwise.name))
    )
    fluxes = None if flux is None else per_component(flux, components, pointwise.name)
    if fluxes is None:
        return Trace(graph, dim, components, values_out, None, None)
    if not asked and all(isinstance(f, Gradient) for f in fluxes):
        scaled = tuple({c: graph.lift(s) for c, s in f.terms.items()} for f in fluxes)
        return Trace(graph, dim, components, values_out, scaled, None)
    vectors = tuple(flux_components(f, dim, pointwise.name) for f in fluxes)
    lifted = tuple(tuple(graph.lift(v) for v in vector) for vector in vectors)
    return Trace(graph, dim, components, values_out, None, lifted)


def per_component(result: Any, components: int, name: str) -> Sequence[Any]:
    """Split a result of a pointwise function into one per test component.

    Raises
    ------
    ArgumentError
        If the number of components is wrong.
    """
    if components == 1:
        return [result]
    if not isinstance(result, (list, tuple, Vector)) or len(result) != components:
        raise ArgumentError(f"pointwise function {name!r} must return {components} components, got {shown(result)}")
    return list(result)


def flux_components(flux: Any, dim: int, name: str) -> list[Any]:
    """The D components of a flux.

    Raises
    ------
    ArgumentError
        If it is no vector of D components.
    """
    if isinstance(flux, Gradient):
        flux = flux.vector()
    if not isinstance(flux, (Vector, list, tuple)) or len(flux) != dim:
        raise ArgumentError(f"pointwise function {name!r} must return a flux of {dim} components for the test gradient")
    return list(flux)
