"""A kernel that runs others one after the other, so that Python calls once where it would call several times."""

from __future__ import annotations

import numpy as np

from .ir import ARGUMENTS, Builder

_TYPES = [argument.split()[0] for argument in ARGUMENTS.split(",")]
# Of a call, 8 bytes each: the address of the kernel, and its arguments.
WORDS = 1 + len(_TYPES)


def write_sequence() -> str:
    """Write a kernel that makes calls %g0 to %g1 of those at %in, [calls, WORDS]."""
    b = Builder(1, np.float64)
    with b.function("run", ARGUMENTS, internal=False), b.loop("%g1", "%g0") as call:
        first = b.new(f"mul nsw i64 {call.value}, {WORDS}")

        def word(number: int, type_: str) -> str:
            place = b.new(f"getelementptr i64, ptr %in, i64 {b.new(f'add nsw i64 {first}, {number}')}")
            return b.new(f"load {type_}, ptr {place}, align 8")

        kernel = word(0, "ptr")
        arguments = ", ".join(f"{type_} {word(number, type_)}" for number, type_ in enumerate(_TYPES, start=1))
        b.emit(f"call void {kernel}({arguments})")
    return b.module()
