"""A traced function as vector instructions: at the points of a kernel, or of the coordinates alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....forms.graph import TRANSCENDENTAL, Expression
from ....forms.trace import Trace
from .elementary import elementary
from .ir import ARGUMENTS, Builder, Index, Operand, Program

_INTRINSICS = {
    **{name: name for name in ("pow", "sqrt", "exp", "log", "sin", "cos", "floor", "ceil")},
    **{"abs": "fabs", "min": "minimum", "max": "maximum"},
}
_COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def field_inputs(trace: Trace | None) -> list[tuple[str, int]]:
    """Field components that a pointwise function uses, in the order in which kernels take them."""
    return sorted((key[1], key[2]) for key in trace.inputs if key[0] == "field") if trace else []


def parameter_inputs(trace: Trace | None) -> list[str]:
    """Names of the parameters that a pointwise function uses; see `field_inputs`."""
    return sorted(key[1] for key in trace.inputs if key[0] == "param") if trace else []


def load_parameters(b: Builder, trace: Trace | None) -> dict[str, str]:
    """Load the parameters of a pointwise function."""
    names = enumerate(parameter_inputs(trace))
    return {name: b.load_scalar("%parameters", (i, 1)) for i, name in names}


class Expressions:
    """Instructions of the nodes of a trace at one point, each written once; source: key of an input -> its vector."""

    def __init__(self, b: Builder, trace: Trace, source: Callable[[tuple[Any, ...]], str]) -> None:
        self._b, self._exact = b, trace.graph.exact
        self._vectors: dict[int, str] = {}
        self._bits: dict[int, str] = {}
        for node in trace.live:
            if node.op == "input":
                self._vectors[node.index] = source(node.payload)
            elif node.op != "const":
                self._vectors[node.index] = self._operation(node)

    def __getitem__(self, node: Expression) -> Operand:
        """Vector of a node, or its value if it is a constant."""
        return float(node.payload) if node.op == "const" else self._vectors[node.index]

    def _operation(self, node: Expression) -> str:
        b, args = self._b, [self[argument] for argument in node.args]
        if node.op in _COMPARISONS:
            left, right = map(b.operand, args)
            bits = b.new(f"fcmp {_COMPARISONS[node.op]} {b.vector} {left}, {right}")
            self._bits[node.index] = bits
            return b.new(f"uitofp <{b.lanes} x i1> {bits} to {b.vector}")
        if node.op == "where":
            condition, yes, no = map(b.operand, args)
            wanted = self._bits.get(node.args[0].index) or b.new(f"fcmp une {b.vector} {condition}, zeroinitializer")
            return b.new(f"select <{b.lanes} x i1> {wanted}, {b.vector} {yes}, {b.vector} {no}")
        if node.op == "sign":  # a NaN comes out
            value = b.operand(args[0])
            known = b.new(f"fcmp one {b.vector} {value}, zeroinitializer")
            one, other = b.call("copysign", 1.0, value), b.add(value, 0.0)
            return b.new(f"select <{b.lanes} x i1> {known}, {b.vector} {one}, {b.vector} {other}")
        if node.op in ("sin", "cos", "exp") and b.real == "double":
            return elementary(b, node.op, b.operand(args[0]))
        if node.op in _INTRINSICS:
            return b.call(_INTRINSICS[node.op], *args)
        if node.op in TRANSCENDENTAL:
            return self._library(node.op, *map(b.operand, args))
        if node.op == "mul" and self._exact:
            b.count_flops(1)
            return b.new(f"fmul {b.vector} {b.operand(args[0])}, {b.operand(args[1])}")
        instruction: Callable[..., str] = getattr(b, node.op)
        return instruction(*args)

    def _library(self, name: str, *values: str) -> str:
        """A function of the C library, lane by lane."""
        b = self._b
        function = f"@{name}" + ("f" if b.real == "float" else "")
        taken = ", ".join([b.real] * len(values))
        b.declare(f"declare {b.real} {function}({taken}) nonlazybind nounwind willreturn memory(none)")
        total = "poison"
        for lane in range(b.lanes):
            x = [b.new(f"extractelement {b.vector} {value}, i32 {lane}") for value in values]
            y = b.new(f"call {b.real} {function}({', '.join(f'{b.real} {one}' for one in x)})")
            total = b.new(f"insertelement {b.vector} {total}, {b.real} {y}, i32 {lane}")
        b.count_flops(1)
        return total


class CalledExpressions:
    """The results of a trace by a function of the module that is written once and called at each point."""

    def __init__(self, b: Builder, trace: Trace) -> None:
        self._b, self._trace = b, trace
        outputs = {node.index: node for node in trace.outputs if node.op != "const"}
        self._result = "{ " + ", ".join([b.vector] * len(outputs)) + " }"
        names = {key: f"%a{i}" for i, key in enumerate(trace.inputs)}
        before = b.flops
        arguments = ", ".join(f"{b.vector} {name}" for name in names.values())
        with b.function("pointwise", arguments, result=self._result):
            expressions = Expressions(b, trace, names.__getitem__)
            total = "poison"
            for i, node in enumerate(outputs.values()):
                total = b.new(f"insertvalue {self._result} {total}, {b.vector} {expressions[node]}, {i}")
            b.emit(f"ret {self._result} {total}")
        self._flops, b.flops = b.flops - before, before
        self._found = dict.fromkeys(outputs, "")

    def __getitem__(self, node: Expression) -> Operand:
        """Vector of a result of the last call, or its value if it is a constant."""
        return float(node.payload) if node.op == "const" else self._found[node.index]

    def call(self, source: Callable[[tuple[Any, ...]], str]) -> None:
        """Call the function."""
        b = self._b
        arguments = ", ".join([f"{b.vector} {source(key)}" for key in self._trace.inputs])
        b.count_flops(self._flops)
        call = b.new(f"call {self._result} @pointwise({arguments})")
        for i, index in enumerate(self._found):
            self._found[index] = b.new(f"extractvalue {self._result} {call}, {i}")


def write_function(trace: Trace, lanes: int) -> Program:
    """Write a function of the coordinates: x_i are at %in + i * %stride; component c goes to %out + c * %stride."""
    b = Builder(lanes, np.float64)
    assert trace.value is not None
    with b.function("run", ARGUMENTS, internal=False):
        parameters = load_parameters(b, trace)
        with b.loop("%g1", "%g0") as group:

            def place(array: str, number: int, group: Index = group) -> str:
                row = b.new(f"mul nsw i64 %stride, {number}")
                entry = b.new(f"add nsw i64 {row}, {b.new(f'mul nsw i64 {group.value}, {lanes}')}")
                return b.new(f"getelementptr double, ptr {array}, i64 {entry}")

            def source(key: tuple[Any, ...]) -> str:
                if key[0] == "param":
                    return parameters[key[1]]
                return b.new(f"load {b.vector}, ptr {place('%in', key[1])}, align 8")

            found = Expressions(b, trace, source)
            for number, node in enumerate(trace.value):
                value = b.operand(found[node])
                b.emit(f"store {b.vector} {value}, ptr {place('%out', number)}, align 8")
    return Program(b.module(), b.flops, 0, 0)
