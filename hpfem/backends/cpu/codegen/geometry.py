"""Geometric factors of a block in the order in which kernels read them: Jacobians and what follows from them.

One element per lane. Tables of the coordinates' basis are data of the caller, `%points`: [point, mode, direction], with
the weights behind them in `%parameters`. See `hpfem.geometry.factors` for what factors are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ....geometry.block_geometry import BlockGeometry
from ....geometry.jacobians import symmetric_pairs
from .ir import ARGUMENTS, Builder, Index, Program, Where
from .transpose import Layout, write_reader

Matrix = list[list[str]]


def write_geometry(
    geometry: BlockGeometry, kind: str, lanes: int, width: int, dtype: DTypeLike, stride: int
) -> Program:
    """Write the kernel that makes factors of a kind; it computes in float64."""
    b = Builder(width, np.float64)
    n, space_dim = geometry.coefficients.shape[2], geometry.space_dim
    directions = 1 if kind == "points" else geometry.dim
    n_points, n_factors = geometry.n_points(kind), geometry.n_factors(kind)
    out = Builder(width, dtype)
    write_reader(b, "read", Layout(n * space_dim))

    def combined(q: Where) -> Matrix:
        """Sums over modes of coefficients times the table, [D][directions]."""

        def add(m: Index, sums: list[str]) -> list[str]:
            c = [b.load(b.at("%scratch", (m, 1), (i * n, 1))) for i in range(space_dim)]
            row = b.at("%points", (q, n * directions), (m, directions), unit=b.real)
            t = [b.load_scalar(row, (a, 1)) for a in range(directions)]
            return [b.fma(c[k // directions], t[k % directions], total) for k, total in enumerate(sums)]

        sums = b.reduce(n, [0.0] * (space_dim * directions), add)
        return [sums[i * directions : (i + 1) * directions] for i in range(space_dim)]

    with b.function("run", ARGUMENTS, internal=False):
        b.emit("%last = sub nsw i64 %elements, 1")
        with b.loop("%g1", "%g0") as part:
            b.emit(f"call void @read(ptr %in, ptr %scratch, i64 {part.value}, i64 %last)")
            group = Index(b.new(f"udiv i64 {part.value}, {lanes // width}"))
            among = Index(b.new(f"urem i64 {part.value}, {lanes // width}"))
            start = b.at("%out", (group, stride), (among, width), unit=out.real)
            with b.each(n_points) as q:
                J = combined(q)
                values = [row[0] for row in J] if kind == "points" else _factors(b, kind, J, q)[:n_factors]
                target = b.at(start, (q, n_factors * lanes), unit=out.real)
                for number, value in enumerate(values):
                    if out.real != b.real:
                        value = b.new(f"fptrunc {b.vector} {value} to {out.vector}")
                    place = b.at(target, (number, lanes), unit=out.real)
                    b.emit(f"store {out.vector} {value}, ptr {place}, align {out.nbytes}")
    return Program(b.module(), b.flops, n * space_dim, 0)


def _factors(b: Builder, kind: str, J: Matrix, q: Where) -> list[str]:
    """Factors that are stored at a point, from its Jacobian."""
    weight = b.load_scalar("%parameters", (q, 1))
    det, inverse = _determinant_and_inverse(b, J)
    if kind == "scale":
        return [b.div(weight, det), b.mul(weight, det)]
    weighted = b.mul(weight, det)
    if kind == "wJ":
        return [weighted]
    if kind == "jacobian":
        return [*(entry for row in inverse for entry in row), weighted]
    pairs = symmetric_pairs(len(inverse))
    return [*(b.mul(weighted, b.dot(zip(inverse[a], inverse[c], strict=True))) for a, c in pairs), weighted]


def _determinant_and_inverse(b: Builder, J: Matrix) -> tuple[str, Matrix]:
    """See `hpfem.geometry.jacobians.determinant_and_inverse`."""
    space_dim, d = len(J), len(J[0])
    if space_dim > d:
        columns = list(zip(*J, strict=True))
        gram = [[b.dot(zip(one, other, strict=True)) for other in columns] for one in columns]
        det, inverse = _determinant_and_inverse(b, gram)
        area = b.call("sqrt", b.call("maxnum", det, 0.0))
        return area, [[b.dot(zip(row, coordinate, strict=True)) for coordinate in J] for row in inverse]
    adjugate = [[cofactor(b, J, a, i) for i in range(d)] for a in range(d)]
    det = b.dot((J[i][0], adjugate[0][i]) for i in range(d))
    return det, [[b.div(entry, det) for entry in row] for row in adjugate]


def cofactor(b: Builder, J: Matrix, a: int, i: int) -> str:
    """Write the cofactor of an entry of a square matrix; J [d]."""
    if len(J) == 1:
        return b.operand(1.0)
    if len(J) == 2:
        return J[1 - i][1 - a] if i == a else b.neg(J[1 - i][1 - a])
    (i1, i2), (a1, a2) = ((i + 1) % 3, (i + 2) % 3), ((a + 1) % 3, (a + 2) % 3)
    return b.sub(b.mul(J[i1][a1], J[i2][a2]), b.mul(J[i1][a2], J[i2][a1]))
