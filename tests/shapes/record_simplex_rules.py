"""Writes shapes/simplex_rules.json from modepy's tables: `python tests/shapes/record_simplex_rules.py` (modepy 2026.1
beside hpfem).

Triangles: [XG]; tets: [JS]. An orbit of points under the permutations of the vertices is kept as its weight and the
barycentric coordinates of one point, the last left out. Coordinates that are equal but for rounding are made equal, and
Newton's method takes what is left of the error away.
"""

import itertools
import json
from pathlib import Path

import numpy as np

from hpfem.shapes import SHAPES, make_basis, quadrature


def orbit(point):
    """All permutations of barycentric coordinates, once each."""
    return np.array(sorted(set(itertools.permutations(point.tolist()))))


def orbits(nodes, weights):
    """Sorted barycentric coordinates, with equal ones equal, and weights of the orbits of a rule."""
    unit = (1 + nodes) / 2
    points = np.vstack([unit, 1 - unit.sum(axis=0)]).T
    points.sort(axis=1)
    weights = weights / weights.sum()
    found = []
    left = np.ones(len(points), bool)
    while left.any():
        own = left & (np.abs(points - points[left][0]).max(axis=1) < 1e-9)
        left &= ~own
        point = points[own].mean(axis=0)
        classes = np.cumsum(np.diff(point, prepend=point[0]) > 1e-9)
        found.append((np.array([point[classes == c].mean() for c in classes]), weights[own].mean(), classes))
        assert len(orbit(found[-1][0])) == own.sum()
    return found


def polished(shape, found, degree):
    """Newton's method, least norm, on weights and distinct coordinates, for integrals of orthogonal polynomials.

    Monomials would not do: their integrals are right to rounding where those of polynomials of high degree are not.
    """
    basis = make_basis("orthogonal", shape, degree)
    fine = quadrature(shape, [degree + 1] * shape.dim, ["gauss"] * shape.dim)
    norms = np.sqrt(basis.evaluate_eta(fine.eta) ** 2 @ fine.weights / shape.volume)

    def unpack(x):
        rows, at = [], 0
        for _, _, classes in found:
            n = classes[-1]  # the last class follows from the others
            values, sizes = x[at + 1 : at + 1 + n], np.bincount(classes)
            last = (1 - values @ sizes[:n]) / sizes[n]
            rows.append((np.append(values, last)[classes], x[at]))
            at += 1 + n
        return rows

    def errors(x):
        rows = unpack(x)
        points = [orbit(point) for point, _ in rows]
        weights = np.concatenate([np.full(len(p), w) for p, (_, w) in zip(points, rows)])
        integrals = basis.evaluate(np.concatenate(points) @ shape.vertices) @ weights / norms
        integrals[0] -= 1
        return integrals

    x = np.concatenate([[w, *[p[c == k][0] for k in range(c[-1])]] for p, w, c in found])
    for _ in range(3):
        steps = 1e-7 * np.eye(len(x))
        jacobian = np.array([errors(x + step) - errors(x - step) for step in steps]).T / 2e-7
        x = x - np.linalg.lstsq(jacobian, errors(x), rcond=1e-10)[0]
    return unpack(x), np.abs(errors(x)).max()


def main():
    import modepy

    shapes = []
    for shape, most, rule in (
        ("tri", 15, lambda p: modepy.XiaoGimbutasSimplexQuadrature(2 * p, 2)),
        ("tet", 10, lambda p: modepy.JaskowiecSukumarQuadrature(2 * p - 1, 3)),
    ):
        rules = []
        for p in range(1, most + 1):
            made = rule(p)
            rows, error = polished(SHAPES[shape], orbits(made.nodes, made.weights), 2 * p)
            print(shape, p, len(made.weights), error)
            numbers = [[float(x) for x in (weight, *point[:-1])] for point, weight in rows]
            rules.append(f'    "{p}": {json.dumps(numbers)}')
        shapes.append(f'  "{shape}": {{\n' + ",\n".join(rules) + "\n  }")
    Path("shapes/simplex_rules.json").write_text("{\n" + ",\n".join(shapes) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
