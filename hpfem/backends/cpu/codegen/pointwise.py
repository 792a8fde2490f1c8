"""A traced pointwise function as vector instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....forms import Expression, Trace
from .ir import Builder, Pack

_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div"}
_CALLS = {
    "pow": "pow",
    "abs": "fabs",
    "sqrt": "sqrt",
    "exp": "exp",
    "log": "log",
    "sin": "sin",
    "cos": "cos",
    "min": "minimum",
    "max": "maximum",
}
_COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


# Operations up to which a pointwise function is written out at every point: more would take long to compile.
INLINED = 40


class Expressions:
    """Instructions of the nodes of a trace at one point, each written once.

    Parameters
    ----------
    b : Builder
    trace : Trace
    source : callable
        Key of an input -> its vectors.
    """

    def __init__(self, b: Builder, trace: Trace, source: Callable[[tuple[Any, ...]], Pack]) -> None:
        self.b = b
        self.source = source
        self._done: dict[int, Pack] = {}
        self._bits: dict[int, Pack] = {}
        for node in trace.live:
            self._write(node)

    def __getitem__(self, node: Expression) -> Pack | float:
        """Vectors of a node, or its value if it is a constant."""
        if node.op == "const":
            return float(node.payload)
        return self._done[node.index]

    def _write(self, node: Expression) -> None:
        b, op = self.b, node.op
        if op == "const":
            return
        if op == "input":
            self._done[node.index] = self.source(node.payload)
        elif op in _COMPARISONS:
            self._compare(node)
        elif op == "where":
            self._where(node)
        else:
            args = [self[a] for a in node.args]
            if op in _BINARY:
                self._done[node.index] = getattr(b, _BINARY[op])(*args)
            elif op == "neg":
                self._done[node.index] = b.neg(self.vectors(node.args[0]))
            elif op == "tanh":
                self._done[node.index] = self._library("tanh", self.vectors(node.args[0]))
            else:
                self._done[node.index] = b.call(_CALLS[op], *args)

    def vectors(self, node: Expression) -> Pack:
        """Vectors of a node, a constant's too."""
        value = self[node]
        return value if isinstance(value, tuple) else (self.b.splat(value),)

    def _compare(self, node: Expression) -> None:
        b = self.b
        left, right = b.spread(self[node.args[0]], self[node.args[1]])
        bits = tuple(b.new(f"fcmp {_COMPARISONS[node.op]} {b.vector} {x}, {y}") for x, y in zip(left, right))
        self._bits[node.index] = bits
        width = f"<{b.lanes} x i1>"
        self._done[node.index] = tuple(b.new(f"uitofp {width} {bit} to {b.vector}") for bit in bits)

    def _where(self, node: Expression) -> None:
        b, (condition, yes, no) = self.b, node.args
        width = f"<{b.lanes} x i1>"
        bits = self._bits.get(condition.index)
        if bits is None:
            (values,) = b.spread(self[condition])
            bits = tuple(b.new(f"fcmp une {b.vector} {x}, zeroinitializer") for x in values)
        wanted, first, second = b.spread(bits, self[yes], self[no])
        self._done[node.index] = tuple(
            b.new(f"select {width} {c}, {b.vector} {x}, {b.vector} {y}") for c, x, y in zip(wanted, first, second)
        )

    def _library(self, name: str, values: Pack) -> Pack:
        """A function of the C library, lane by lane."""
        b = self.b
        function = f"@{name}" + ("f" if b.real == "float" else "")
        b.declare(f"declare {b.real} {function}({b.real}) nounwind willreturn memory(none)")
        out = []
        for value in values:
            total = "poison"
            for lane in range(b.lanes):
                x = b.new(f"extractelement {b.vector} {value}, i32 {lane}")
                y = b.new(f"call {b.real} {function}({b.real} {x})")
                total = b.new(f"insertelement {b.vector} {total}, {b.real} {y}, i32 {lane}")
            out.append(total)
        b.count_flops(len(values))
        return tuple(out)


class CalledExpressions:
    """The results of a trace by a function of the module that is written once and called at each point.

    Parameters
    ----------
    b : Builder
    trace : Trace
    """

    def __init__(self, b: Builder, trace: Trace) -> None:
        self.b, self.trace = b, trace
        results = dict.fromkeys(e.index for e in trace.outputs if e.op != "const")
        self.outputs = {index: i for i, index in enumerate(results)}
        self.result = "{ " + ", ".join([b.vector] * len(self.outputs)) + " }"
        names = {key: f"%a{i}" for i, key in enumerate(trace.inputs)}
        before = b.flops
        arguments = ", ".join(f"{b.vector} {name}" for name in names.values())
        with b.function("pointwise", arguments, result=self.result):
            node = Expressions(b, trace, lambda key: (names[key],))
            total = "poison"
            for index, i in self.outputs.items():
                (value,) = node.vectors(trace.graph.nodes[index])
                total = b.new(f"insertvalue {self.result} {total}, {b.vector} {value}, {i}")
            b.emit(f"ret {self.result} {total}")
        self.flops, b.flops = b.flops - before, before
        self._found: dict[int, Pack] = {}

    def __getitem__(self, node: Expression) -> Pack | float:
        """Vectors of a result of the last call, or its value if it is a constant."""
        return float(node.payload) if node.op == "const" else self._found[node.index]

    def call(self, source: Callable[[tuple[Any, ...]], Pack]) -> None:
        """Call the function; `source` as for `Expressions`."""
        b = self.b
        rows = b.spread(*(source(key) for key in self.trace.inputs))
        members = list(zip(*rows)) or [()]
        b.count_flops(len(members), self.flops)
        calls = []
        for given in members:
            arguments = ", ".join(f"{b.vector} {x}" for x in given)
            calls.append(b.new(f"call {self.result} @pointwise({arguments})"))
        self._found = {
            index: tuple(b.new(f"extractvalue {self.result} {call}, {i}") for call in calls)
            for index, i in self.outputs.items()
        }
