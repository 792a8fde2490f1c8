"""A traced function of the coordinates, evaluated at points that lie in one array for each coordinate."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....forms.trace import Trace
from .ir import ARGUMENTS, Builder, Index, Program
from .pointwise import Expressions, load_parameters


def write_function(trace: Trace, lanes: int) -> Program:
    """Write a kernel that reads x_i at %in + i * %stride and writes component c at %out + c * %stride."""
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
