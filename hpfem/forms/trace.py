"""Pointwise functions: plain Python in physical quantities, traced once to an expression graph.

A pointwise function takes, by the names of its parameters, the value `u`, the gradient `du` in x, the point `x`, and
named fields and parameters; it returns the factor of the test value, the factor of the test gradient, or both.

    def helmholtz(u, du, lam):
        return lam * u, du

`trace` calls it once, on symbols, when the operator is made; other variables that the function reads keep their value
from then. Every backend evaluates the graph, with all numbers in the space's dtype; what operations mean follows from
NumPy's types: a comparison is a truth value, the sum of two is their "or", their difference an error. A quantity that
changes between applications is a parameter (`operator.parameters["k"] = 2.0`) or a "phys" field. A flux that is a sum
of scalars times `du` never needs the components of `du`, so a block needs only the symmetric metric. Taking a component
or a dot product, or returning another vector, makes the flux `general`. Tracing finds out which one it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from hpfem.shapes.arguments import shown
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError
from .graph import COMPARISONS, Expression, Graph, copied, live
from .vectors import Gradient, Vector

# Largest number of operations of a pointwise function. Compiling these for four shapes takes a second for products and
# sums, six for sines, half a minute for powers.
MAX_OPERATIONS = 2000
# Operations whose results have the same bits everywhere.
_AS_ROUNDED = {"const", "input", "add", "sub", "mul", "div", "neg", "abs", "sqrt", "min", "max", "where"}
_JUMPS = {*COMPARISONS, "floor", "ceil", "sign"}
_BY_NAME = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


@dataclass(frozen=True)
class Pointwise:
    """A pointwise function with its arguments and results.

    Attributes
    ----------
    function : callable
        Takes some of `u`, `du`, `x` and names of fields and parameters.
    test : tuple of str
        Test factors of its results: "value", "grad" or both, in this order; nothing if its result is a value at the
        points.
    """

    function: Callable[..., Any]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ArgumentError(f"a pointwise function is a function, got {type(self.function).__name__}")
        if not isinstance(self.test, tuple) or self.test not in ((), ("value",), ("grad",), ("value", "grad")):
            raise ArgumentError(f"test must be ('value',), ('grad',) or ('value', 'grad'), got {shown(self.test)}")

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of its parameters.

        Raises
        ------
        ArgumentError
            If it does not take all arguments by name, as functions of C and NumPy do not.
        """
        try:
            found = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):
            found = None
        if found is None or not {p.kind for p in found} <= _BY_NAME:
            raise ArgumentError(
                f"pointwise function {self.name!r} does not take its arguments by name; write one that does, as"
                " lambda u: np.sin(u)"
            )
        return tuple(p.name for p in found)

    def __call__(self, arguments: Mapping[str, Any]) -> tuple[Any | None, Any | None]:
        """Results for the test value and the test gradient; None if there is no such result."""
        result = self.function(**{name: arguments[name] for name in self.arguments})
        if len(self.test) < 2:
            if isinstance(result, tuple) and len(result) == 1:
                result = result[0]
            if result is None:
                raise ArgumentError(f"pointwise function {self.name!r} returned nothing")
            return (None, result) if self.test == ("grad",) else (result, None)
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


class Trace:
    """A traced pointwise function: for each test component the factor of the test value (`value`), and its flux as
    {trial component: coefficient} of scaled gradients (`scaled`), or as the `dim` components in x (`flux`). `outputs`
    are all results in this order, `live` the nodes that they depend on, in topological order, `inputs` the keys of
    these; `test` says what results are factors of. A trace is `constant` if results depend on the place only through
    the trial function, and `general` if they need the inverse Jacobian, not only the symmetric metric.
    """

    def __init__(
        self,
        graph: Graph,
        dim: int,
        components: int,
        value: tuple[Expression, ...] | None,
        scaled: tuple[dict[int, Expression], ...] | None = None,
        flux: tuple[tuple[Expression, ...], ...] | None = None,
    ) -> None:
        self.graph, self.dim, self.components = graph, dim, components
        self.value, self.scaled, self.flux = value, scaled, flux
        self.given = len(value or scaled or flux or ())
        fluxes = [*(terms.values() for terms in scaled or ()), *(flux or ())]
        self.outputs: tuple[Expression, ...] = (*(value or ()), *chain.from_iterable(fluxes))
        self.live = tuple(live(graph, self.outputs))
        self.inputs: tuple[tuple[Any, ...], ...] = tuple(node.payload for node in self.live if node.op == "input")
        read = {key[0] for key in self.inputs}
        if scaled is not None and "du" in read:
            raise ArgumentError("where a flux is made of scaled gradients, nothing else may read a derivative")
        self.uses_point, self.uses_value = "x" in read, "u" in read
        self.constant = read <= {"u", "du", "param"}
        self.uses_gradient = scaled is not None or "du" in read
        self.general = flux is not None or "du" in read
        self.flops = sum(node.op not in ("const", "input") for node in self.live)
        tested = {"value": value is not None, "grad": scaled is not None or flux is not None}
        self.test = tuple(name for name, there in tested.items() if there)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Key of the traced function in a kernel cache."""
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
    """Call a pointwise function once on symbols. With one component `u` is a scalar and `du` a gradient, else both are
    indexed; a field of 0 components is a scalar.
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
        value, flux = map(_listed, pointwise(arguments))
    except RecursionError as error:
        raise ArgumentError(f"pointwise function {pointwise.name!r} calls itself without end") from error
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"pointwise function {pointwise.name!r} cannot be traced: {error}") from error
    if not pointwise.test:  # any number of values at the points
        tested: Sequence[Any] | None = list(value) if isinstance(value, (list, tuple, Vector)) else [value]
        if not tested:
            raise ArgumentError(f"pointwise function {pointwise.name!r} returned nothing")
    else:
        tested = None if value is None else _per_component(value, components, pointwise.name)
    values_out = None if tested is None else tuple(map(graph.lift, tested))
    fluxes = None if flux is None else _per_component(flux, components, pointwise.name)
    scaled = lifted = None
    if fluxes is not None and not asked and all(isinstance(f, Gradient) for f in fluxes):
        scaled = tuple({c: graph.lift(s) for c, s in f.terms.items()} for f in fluxes)
    elif fluxes is not None:
        vectors = [_flux_components(f, dim, pointwise.name) for f in fluxes]
        lifted = tuple(tuple(map(graph.lift, vector)) for vector in vectors)
    found = Trace(graph, dim, components, values_out, scaled, lifted)
    if found.flops > MAX_OPERATIONS:
        raise ArgumentError(
            f"pointwise function {pointwise.name!r} has {found.flops} operations, the limit is {MAX_OPERATIONS}: give"
            " parts that do not depend on u as a field"
        )
    return found


def trace_function(function: Callable[..., Any], dim: int) -> tuple[Trace, dict[str, float]]:
    """Call a function of the coordinates once on symbols."""
    graph = Graph(exact=True)
    try:
        result = function(*[graph.node("input", (), ("x", i)) for i in range(dim)])
        several = isinstance(result, (list, tuple)) or (isinstance(result, np.ndarray) and result.ndim == 1)
        values = tuple(graph.lift(value) for value in (result if several else [result]))
    except Exception as error:  # a user's function; it is called on arrays instead
        raise ArgumentError(f"cannot be traced: {error}") from error
    found = Trace(graph, dim, len(values), values)
    if not values or found.flops > MAX_OPERATIONS:
        raise ArgumentError(f"cannot be traced: it has {len(values)} components and {found.flops} operations")
    _check_comparisons(found)
    general, numbers = Graph(), dict[str, float]()

    def replaced(node: Expression, args: tuple[Expression, ...]) -> Expression | None:
        if node.op == "pow" and node.args[1].op == "const":
            return general.apply("pow", args[0], node.args[1].payload)
        if node.op != "const":
            return None
        numbers[name := f"c{len(numbers)}"] = node.payload
        return general.node("input", (), ("param", name))

    new = copied(found.live, general, replaced)
    general.exact = True
    return Trace(general, dim, len(values), tuple(new[v.index] for v in values)), numbers


def _check_comparisons(found: Trace) -> None:
    """Check that what decides on jumps has NumPy's values to the last bit: there a rounding error is a large one."""
    rounded: set[int] = set()
    for node in found.live:
        if node.op not in _AS_ROUNDED | _JUMPS or any(a.index in rounded for a in node.args):
            rounded.add(node.index)
        compared = node.args if node.op in _JUMPS else node.args[:1] if node.op == "where" else ()
        if any(a.index in rounded for a in compared):
            raise ArgumentError("cannot be traced: it compares values of powers or elementary functions")


def _listed(result: Any) -> Any:
    """A result, with lists for arrays of expressions."""
    return result.tolist() if isinstance(result, np.ndarray) else result


def _per_component(result: Any, components: int, name: str) -> Sequence[Any]:
    """A result of a pointwise function, one per test component."""
    if components == 1:
        return [result]
    if not isinstance(result, (list, tuple, Vector)) or len(result) != components:
        raise ArgumentError(f"pointwise function {name!r} must return {components} components, got {shown(result)}")
    return list(result)


def _flux_components(flux: Any, dim: int, name: str) -> list[Any]:
    """The D components of a flux."""
    if isinstance(flux, Gradient):
        flux = flux.vector()
    flux = _listed(flux)
    if not isinstance(flux, (Vector, list, tuple)) or len(flux) != dim:
        raise ArgumentError(f"pointwise function {name!r} must return a flux of {dim} components for the test gradient")
    return list(flux)
