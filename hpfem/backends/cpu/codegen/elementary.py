"""Sines, cosines and exponentials of all lanes at once, in float64, to about an ulp.

LLVM calls the C library for them, lane by lane, which takes 20 times as long.

Sine and cosine: x = n pi/2 + r with |r| <= pi/4, pi/2 as a sum of three numbers, x - n P1 exact, and the minimax
polynomials of fdlibm. Exponential: x = k log 2 + r with |r| <= log(2)/2, the Taylor polynomial, and 2^k put together
from its bits. Arguments that are too large for that, or no numbers, go to the C library with all lanes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .ir import Builder

# pi/2 to 160 bits: three numbers, the first two with all of their 53 bits.
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_SINE = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
_COSINE = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
    -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip
_LOG_2 = (0.6931471805599453, 2.3190468138462996e-17)
_DEGREE = 13
# Up to here n has 20 bits, and 2^k is neither infinite nor subnormal.
_LARGEST = {"sin": 2.0**20, "cos": 2.0**20, "exp": 708.0}
# What rounds numbers to integers, which then are in their last bits.
_ROUNDER = 1.5 * 2.0**52


def elementary(b: Builder, name: str, x: str) -> str:
    """A function of a vector."""
    if name not in b.written:
        b.written.add(name)
        flops = b.flops
        with b.function(f"all_{name}", f"{b.vector} %x", result=b.vector):
            _write(b, name)
        b.flops = flops
    b.count_flops(1)
    return b.new(f"call {b.vector} @all_{name}({b.vector} {x})")


def _write(b: Builder, name: str) -> None:
    """The body: those that are too large are rare."""
    bits = f"<{b.lanes} x i1>"
    large = b.new(f"fcmp ugt {b.vector} {b.call('fabs', '%x')}, {b.operand(_LARGEST[name])}")
    reduce = f"@llvm.vector.reduce.or.v{b.lanes}i1"
    b.declare(f"declare i1 {reduce}({bits})")
    b.emit(f"br i1 {b.new(f'call i1 {reduce}({bits} {large})')}, label %slow, label %fast")
    b.lines.append("slow:")
    b.emit(f"ret {b.vector} {b.call(name, '%x')}")
    b.lines.append("fast:")
    found = _exponential(b) if name == "exp" else _wave(b, 0.0 if name == "sin" else 1.0)
    b.emit(f"ret {b.vector} {found}")


def _horner(b: Builder, x: str, coefficients: Sequence[float]) -> str:
    total = b.operand(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = b.fma(total, x, b.operand(coefficient))
    return total


def _wave(b: Builder, quarters: float) -> str:
    """Sine of x plus some quarters of a period."""
    n = b.call("rint", b.mul("%x", 2 / math.pi))
    r = "%x"
    for part in _HALF_PI:
        r = b.fma(n, -part, r)
    z = b.mul(r, r)
    sine = b.fma(b.mul(r, z), _horner(b, z, _SINE), r)
    half = b.mul(z, 0.5)
    w = b.sub(1.0, half)
    # What rounding of 1 - z/2 has lost; the sum must not be reordered.
    lost = b.sub(b.sub(1.0, w), half)
    cosine = b.add(w, b.fma(b.mul(z, z), _horner(b, z, _COSINE), lost))
    quarter = b.add(n, quarters) if quarters else n
    quadrant = b.fma(b.call("floor", b.mul(quarter, 0.25)), -4.0, quarter)
    bits = f"<{b.lanes} x i1>"
    second = b.new(f"fcmp oge {b.vector} {quadrant}, {b.operand(2.0)}")
    within = b.new(f"select {bits} {second}, {b.vector} {b.sub(quadrant, 2.0)}, {b.vector} {quadrant}")
    odd = b.new(f"fcmp oge {b.vector} {within}, {b.operand(1.0)}")
    found = b.new(f"select {bits} {odd}, {b.vector} {cosine}, {b.vector} {sine}")
    return b.new(f"select {bits} {second}, {b.vector} {b.neg(found)}, {b.vector} {found}")


def _exponential(b: Builder) -> str:
    integers = f"<{b.lanes} x i64>"

    rounded = b.fma("%x", 1 / math.log(2), b.operand(_ROUNDER))
    k = b.sub(rounded, _ROUNDER)
    r = b.fma(k, -_LOG_2[1], b.fma(k, -_LOG_2[0], "%x"))
    total = _horner(b, r, [1 / math.factorial(i) for i in range(_DEGREE + 1)])
    shifted = b.new(f"shl {integers} {b.new(f'bitcast {b.vector} {rounded} to {integers}')}, splat (i64 52)")
    power = b.new(f"add {integers} {shifted}, splat (i64 {1023 << 52})")
    return b.mul(total, b.new(f"bitcast {integers} {power} to {b.vector}"))
