"""Products of a 1-D matrix with fibers in registers, at half the work where the matrix has parity.

Reversing the points of a symmetric rule maps a table of 1-D functions to itself: Legendre polynomials to plus or minus
themselves, Lagrange polynomials and the vertex pair of the modified basis to each other, derivatives with a sign more.
Found from the numbers: column j reversed is s_j times column j'. Then, with sums and differences of the inputs,

    y_i = S_i + A_i,   y_{n-1-i} = S_i - A_i,   S = (symmetric columns) x_s,   A = (antisymmetric columns) x_a

`Halves` holds S and A, so that a product and a derivative in the same pass exchange halves without forming the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .ir import Builder, Pack

Array = NDArray[np.floating[Any]]
Fiber = list[Pack]


@dataclass
class Halves:
    """A fiber by parity: `even` has ceil(n/2) values, `odd` floor(n/2)."""

    even: list[Pack]
    odd: list[Pack]


def product(b: Builder, matrix: Array, xs: Sequence[Pack], onto: Sequence[Pack] | None = None) -> Fiber:
    """Product matrix @ xs (+ onto), column by column: one independent chain per result; zeros cost nothing."""
    ys: list[Pack | None] = list(onto) if onto is not None else [None] * len(matrix)
    for j, x in enumerate(xs):
        for i in range(len(matrix)):
            if matrix[i, j] != 0:
                ys[i] = b.fma(float(matrix[i, j]), x, ys[i])
    width = len(xs[0]) if len(xs) else 1
    return [(b.splat(0.0),) * width if y is None else y for y in ys]


def split(b: Builder, xs: Sequence[Pack]) -> Halves:
    """Sums and differences of mirrored values; the middle one goes with the sums."""
    n = len(xs)
    even = [b.add(xs[i], xs[n - 1 - i]) for i in range(n // 2)] + ([xs[n // 2]] if n % 2 else [])
    return Halves(even, [b.sub(xs[i], xs[n - 1 - i]) for i in range(n // 2)])


def join(b: Builder, halves: Halves) -> Fiber:
    """The n values S + A, then S - A mirrored."""
    odd = halves.odd
    head = [b.add(s, a) for s, a in zip(halves.even, odd)]
    tail = [b.sub(s, a) for s, a in zip(halves.even, odd)]
    return head + halves.even[len(odd) :] + tail[::-1]


def join_onto(b: Builder, halves: Halves, onto: Sequence[Pack]) -> Fiber:
    """`onto` plus the values of `join`."""
    n, odd = len(onto), halves.odd
    out = list(onto)
    for i, a in enumerate(odd):
        out[i] = b.add(b.add(onto[i], halves.even[i]), a)
        out[n - 1 - i] = b.sub(b.add(onto[n - 1 - i], halves.even[i]), a)
    if n % 2:
        out[n // 2] = b.add(onto[n // 2], halves.even[-1])
    return out


class Line:
    """A matrix along one direction.

    Parameters
    ----------
    matrix : ndarray, [n_out, n_in]

    Attributes
    ----------
    has_parity : bool
        Whether its columns mirror each other.
    mirrors : bool
        Whether, on top, column j's mirror image is column n_in - 1 - j: inputs are points too.
    """

    def __init__(self, matrix: Array) -> None:
        self.matrix = np.asarray(matrix, dtype=float)
        # Partner and sign of each column: fixed columns are their own partner.
        self._fixed: list[tuple[int, int]] = []
        self._pairs: list[tuple[int, int, int]] = []
        self.has_parity = len(self.matrix) > 1 and self._find()
        n = self.matrix.shape[1]
        signs = {s for _, _, s in self._pairs}
        self.mirrors = self.has_parity and all(j + k == n - 1 for j, k, _ in self._pairs) and len(signs) == 1
        self.mirrors = self.mirrors and len(self._fixed) == n % 2 and len(self._pairs) == n // 2
        if self.has_parity:
            self._tabulate()

    def _find(self) -> bool:
        columns, size = self.matrix.T, np.abs(self.matrix).max()
        left = list(range(len(columns)))
        while left:
            j = left.pop(0)
            image = columns[j][::-1]
            for k in [j, *left]:
                sign = next((s for s in (1, -1) if np.abs(image - s * columns[k]).max() <= 1e-13 * size), 0)
                if sign:
                    break
            else:
                return False
            if k == j:
                self._fixed.append((j, sign))
            else:
                left.remove(k)
                self._pairs.append((j, k, sign))
        return True

    def _tabulate(self) -> None:
        m, half, floor = self.matrix, (len(self.matrix) + 1) // 2, len(self.matrix) // 2
        even = [m[:, j] for j, s in self._fixed if s > 0] + [(m[:, j] + s * m[:, k]) / 2 for j, k, s in self._pairs]
        odd = [m[:, j] for j, s in self._fixed if s < 0] + [(m[:, j] - s * m[:, k]) / 2 for j, k, s in self._pairs]
        self.even = np.array([c[:half] for c in even]).reshape(-1, half).T
        self.odd = np.array([c[:floor] for c in odd]).reshape(-1, floor).T

    def _inputs(self, b: Builder, xs: Sequence[Pack]) -> tuple[list[Pack], list[Pack]]:
        even = [xs[j] for j, s in self._fixed if s > 0]
        odd = [xs[j] for j, s in self._fixed if s < 0]
        for j, k, s in self._pairs:
            total, difference = b.add(xs[j], xs[k]), b.sub(xs[j], xs[k])
            even.append(total if s > 0 else difference)
            odd.append(difference if s > 0 else total)
        return even, odd

    def halves(self, b: Builder, xs: Sequence[Pack]) -> Halves:
        """The product by parity."""
        even, odd = self._inputs(b, xs)
        return Halves(product(b, self.even, even), product(b, self.odd, odd))

    def apply(self, b: Builder, xs: Sequence[Pack], onto: Sequence[Pack] | None = None) -> Fiber:
        """Product matrix @ xs (+ onto)."""
        if not self.has_parity:
            return product(b, self.matrix, xs, onto)
        halves = self.halves(b, xs)
        return join(b, halves) if onto is None else join_onto(b, halves, onto)

    def apply_halves(self, b: Builder, xs: Halves, onto: Halves | None = None) -> Halves:
        """Product matrix @ join(xs) (+ onto), all by parity; of a matrix that `mirrors`."""
        n = self.matrix.shape[1]
        sign = self._pairs[0][2] if self._pairs else self._fixed[0][1]
        # Inputs x_j + x_k = 2 S_j and x_j - x_k = 2 A_j; the middle one is S itself.
        middle = [xs.even[-1]] if n % 2 else []
        to_even = (xs.even if sign > 0 else xs.odd)[: n // 2]
        to_odd = (xs.odd if sign > 0 else xs.even)[: n // 2]
        fixed_even, fixed_odd = [s > 0 for _, s in self._fixed].count(True), [s < 0 for _, s in self._fixed].count(True)
        even, odd = self.even.copy(), self.odd.copy()
        even[:, fixed_even:] *= 2
        odd[:, fixed_odd:] *= 2
        ins_even, ins_odd = middle * fixed_even + to_even, middle * fixed_odd + to_odd
        return Halves(
            product(b, even, ins_even, onto.even if onto else None),
            product(b, odd, ins_odd, onto.odd if onto else None),
        )

    def test_halves(self, b: Builder, xs: Halves, onto: Sequence[Pack] | None = None) -> Fiber:
        """Product matrix.T @ (points whose `split` is xs) (+ onto)."""
        n = self.matrix.shape[1]
        out: list[Pack | None] = list(onto) if onto is not None else [None] * n
        even, odd = product(b, self.even.T, xs.even), product(b, self.odd.T, xs.odd)
        evens, odds = iter(even), iter(odd)

        def put(j: int, *parts: tuple[int, Pack]) -> None:
            for sign, part in parts:
                here = out[j]
                if here is None:
                    out[j] = part if sign > 0 else b.neg(part)
                else:
                    out[j] = b.add(here, part) if sign > 0 else b.sub(here, part)

        for j, s in self._fixed:
            put(j, (1, next(evens if s > 0 else odds)))
        for j, k, s in self._pairs:
            e, o = next(evens), next(odds)
            put(j, (1, e), (1, o))
            if s > 0:
                put(k, (1, e), (-1, o))
            else:
                put(k, (1, o), (-1, e))
        return [value for value in out if value is not None]

    def test(self, b: Builder, xs: Sequence[Pack], onto: Sequence[Pack] | None = None) -> Fiber:
        """Product matrix.T @ xs (+ onto)."""
        if not self.has_parity:
            return product(b, self.matrix.T, xs, onto)
        return self.test_halves(b, split(b, xs), onto)

    def test_split(self, b: Builder, xs: Halves, onto: Halves) -> Halves:
        """Split of (matrix.T @ points whose split is xs), plus onto; of a matrix that `mirrors`."""
        n = self.matrix.shape[1]
        sign = self._pairs[0][2] if self._pairs else self._fixed[0][1]
        fixed_even, fixed_odd = [s > 0 for _, s in self._fixed].count(True), [s < 0 for _, s in self._fixed].count(True)
        even, odd = self.even.T.copy(), self.odd.T.copy()
        even[fixed_even:] *= 2
        odd[fixed_odd:] *= 2
        out_even, out_odd = list(onto.even), list(onto.odd)
        # For s = -1 the even product lands in the differences and the odd one in the sums.
        for matrix, source, fixed, direct in (
            (even, xs.even, fixed_even, sign > 0),
            (odd, xs.odd, fixed_odd, sign < 0),
        ):
            target = out_even if direct else out_odd
            if fixed:
                out_even[n // 2 : n // 2 + 1] = product(b, matrix[:1], source, [out_even[n // 2]])
            target[: n // 2] = product(b, matrix[fixed:], source, target[: n // 2])
        return Halves(out_even, out_odd)
