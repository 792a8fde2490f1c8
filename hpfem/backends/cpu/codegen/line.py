"""Products of a 1-D matrix with fibers in registers, at half the work where the matrix has parity.

Reversing the points of a symmetric rule maps a table of 1-D functions to itself: Legendre polynomials to plus or minus
themselves, Lagrange polynomials and the vertex pair of the modified basis to each other, derivatives with a sign more.
Found from the numbers: column j reversed is s_j times column j'. Then, with sums and differences of the inputs,

    y_i = S_i + A_i,   y_{n-1-i} = S_i - A_i,   S = (symmetric columns) x_s,   A = (antisymmetric columns) x_a

`_Halves` holds S and A, so that a product and a derivative in the same pass exchange halves without forming the points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hpfem.shapes.arrays import Floats

from .ir import Builder, Index

Fiber = list[str]


@dataclass
class _Halves:
    """A fiber by parity: `even` has ceil(n/2) values, `odd` floor(n/2)."""

    even: Fiber
    odd: Fiber


def matrix_product(b: Builder, matrix: Floats, xs: Sequence[str], onto: Sequence[str] | None = None) -> Fiber:
    """Product matrix @ xs (+ onto), column by column: one independent chain per result; zeros cost nothing."""
    ys: list[str | None] = list(onto) if onto is not None else [None] * len(matrix)
    for j, x in enumerate(xs):
        for i in range(len(matrix)):
            if matrix[i, j] != 0:
                ys[i] = b.fma(float(matrix[i, j]), x, ys[i])
    return [b.operand(0.0) if y is None else y for y in ys]


def summed_products(b: Builder, matrices: Iterable[Floats], fibers: Iterable[Sequence[str]]) -> Fiber:
    """Sum of the products of matrices with their fibers, at least one."""
    total: Fiber | None = None
    for matrix, fiber in zip(matrices, fibers, strict=True):
        total = matrix_product(b, matrix, fiber, total)
    assert total is not None
    return total


def table_product(
    b: Builder, table: str, source: str, n_in: int, n_out: int, beside: Callable[[], object] = lambda: None
) -> Fiber:
    """Product of a matrix with vectors, both in memory, results in registers; -> [n_out]."""

    def column(j: Index, sums: list[str]) -> list[str]:
        beside()
        x = b.load(b.at(source, (j, 1)))
        return [b.fma(b.load_scalar(table, (j, n_out), (i, 1)), x, s) for i, s in enumerate(sums)]

    return b.reduce(n_in, [0.0] * n_out, column)


def _split(b: Builder, xs: Sequence[str]) -> _Halves:
    """Sums and differences of mirrored values; the middle one goes with the sums."""
    n = len(xs)
    even = [b.add(xs[i], xs[n - 1 - i]) for i in range(n // 2)] + ([xs[n // 2]] if n % 2 else [])
    return _Halves(even, [b.sub(xs[i], xs[n - 1 - i]) for i in range(n // 2)])


def _join(b: Builder, halves: _Halves) -> Fiber:
    """The n values S + A, then S - A mirrored."""
    odd = halves.odd
    head = [b.add(s, a) for s, a in zip(halves.even, odd)]
    tail = [b.sub(s, a) for s, a in zip(halves.even, odd)]
    return head + halves.even[len(odd) :] + tail[::-1]


class Line:
    """A matrix [n_out, n_in] along a direction, which may have parity: columns that mirror each other."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix = np.asarray(matrix, dtype=float)
        # Partner and sign of each column: fixed columns are their own partner.
        self._fixed: list[tuple[int, int]] = []
        self._pairs: list[tuple[int, int, int]] = []
        self.has_parity = len(self.matrix) > 1 and self._find()
        self.mirrors = False
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
        self._even = np.array([c[:half] for c in even]).reshape(-1, half).T
        self._odd = np.array([c[:floor] for c in odd]).reshape(-1, floor).T
        n, signs = m.shape[1], {s for _, _, s in self._pairs}
        self.mirrors = len(self._fixed) == n % 2 and len(signs) == 1 and all(j + k == n - 1 for j, k, _ in self._pairs)
        if self.mirrors:
            # Of inputs by parity: x_j + x_k = 2 S_j and x_j - x_k = 2 A_j; the middle one is S itself.
            self._sign = signs.pop()
            self._fixed_even, self._fixed_odd = len(even) - len(self._pairs), len(odd) - len(self._pairs)
            self._of_even, self._of_odd = self._even.copy(), self._odd.copy()
            self._of_even[:, self._fixed_even :] *= 2
            self._of_odd[:, self._fixed_odd :] *= 2

    def _halves(self, b: Builder, xs: Sequence[str]) -> _Halves:
        """The product by parity."""
        even = [xs[j] for j, s in self._fixed if s > 0]
        odd = [xs[j] for j, s in self._fixed if s < 0]
        for j, k, s in self._pairs:
            total, difference = b.add(xs[j], xs[k]), b.sub(xs[j], xs[k])
            even.append(total if s > 0 else difference)
            odd.append(difference if s > 0 else total)
        return _Halves(matrix_product(b, self._even, even), matrix_product(b, self._odd, odd))

    def _apply_halves(self, b: Builder, xs: _Halves) -> _Halves:
        """Product matrix @ join(xs), all by parity; of a matrix that `mirrors`."""
        n = self.matrix.shape[1]
        middle = [xs.even[-1]] if n % 2 else []
        even, odd = (xs.even, xs.odd) if self._sign > 0 else (xs.odd, xs.even)
        return _Halves(
            matrix_product(b, self._of_even, middle * self._fixed_even + even[: n // 2]),
            matrix_product(b, self._of_odd, middle * self._fixed_odd + odd[: n // 2]),
        )

    def _test_halves(self, b: Builder, xs: _Halves, onto: Sequence[str] | None = None) -> Fiber:
        """Product matrix.T @ (points whose `_split` is xs) (+ onto)."""
        out: list[str | None] = list(onto) if onto is not None else [None] * self.matrix.shape[1]
        evens, odds = iter(matrix_product(b, self._even.T, xs.even)), iter(matrix_product(b, self._odd.T, xs.odd))

        def put(j: int, *parts: tuple[int, str]) -> None:
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

    def _test_split(self, b: Builder, xs: _Halves, onto: _Halves) -> _Halves:
        """Split of (matrix.T @ points whose split is xs), plus onto; of a matrix that `mirrors`."""
        n = self.matrix.shape[1]
        out_even, out_odd = list(onto.even), list(onto.odd)
        # For s = -1 the even product lands in the differences and the odd one in the sums.
        for matrix, source, fixed, direct in (
            (self._of_even.T, xs.even, self._fixed_even, self._sign > 0),
            (self._of_odd.T, xs.odd, self._fixed_odd, self._sign < 0),
        ):
            target = out_even if direct else out_odd
            if fixed:
                out_even[n // 2 : n // 2 + 1] = matrix_product(b, matrix[:1], source, [out_even[n // 2]])
            target[: n // 2] = matrix_product(b, matrix[fixed:], source, target[: n // 2])
        return _Halves(out_even, out_odd)

    def apply(self, b: Builder, xs: Sequence[str]) -> Fiber:
        """Product matrix @ xs; xs [n_in] -> [n_out]."""
        return _join(b, self._halves(b, xs)) if self.has_parity else matrix_product(b, self.matrix, xs)

    def test(self, b: Builder, xs: Sequence[str], onto: Sequence[str] | None = None) -> Fiber:
        """Product matrix.T @ xs (+ onto); xs [n_out], onto [n_in] -> [n_in]."""
        if not self.has_parity:
            return matrix_product(b, self.matrix.T, xs, onto)
        return self._test_halves(b, _split(b, xs), onto)

    def apply_and_differentiate(self, b: Builder, derivative: Line, xs: Sequence[str]) -> tuple[Fiber, Fiber]:
        """Values at the points, and the derivatives of these; xs [n_in] -> [n_out]."""
        if self.has_parity and derivative.mirrors:
            halves = self._halves(b, xs)
            return _join(b, halves), _join(b, derivative._apply_halves(b, halves))
        values = self.apply(b, xs)
        return values, derivative.apply(b, values)

    def test_differentiated(self, b: Builder, derivative: Line, values: Sequence[str], fluxes: Sequence[str]) -> Fiber:
        """Test values, and fluxes by derivatives: transpose of `Line.apply_and_differentiate`; [n_out] -> [n_in]."""
        if self.has_parity and derivative.mirrors:
            halves = derivative._test_split(b, _split(b, fluxes), _split(b, values))
            return self._test_halves(b, halves)
        return self.test(b, derivative.test(b, fluxes, values))
