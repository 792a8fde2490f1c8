"""Errors of solutions on curved cells: symmetric rules of simplices beside the collapsed one, by order.

    python benchmarks/simplex_accuracy.py [OUT.json] [--orders 1:7]

-∇²u + u = f with a known solution on `meshes/ball.msh` (curved tets of order 3) and `meshes/pipe_mixed.msh` (all four
solids; only tets and their rule change). For each rule the relative error in L2; and, of the operator alone, how far
its result on random coefficients is from that with four more points in each direction.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import hpfem as hp
from hpfem.cli.options import parse_orders

RULES: dict[str, Any] = {"collapsed": None, "simplex": {"tet": "simplex"}}


def exact(x: Any, y: Any, z: Any) -> Any:
    """The solution."""
    return np.sin(2 * x + 0.3) * np.cos(1.5 * y) * np.exp(0.7 * z)


def source(x: Any, y: Any, z: Any) -> Any:
    """The right-hand side of the known solution."""
    return (1 + 4 + 2.25 - 0.49) * exact(x, y, z)


def errors(mesh: hp.Mesh, order: int, quadrature: Any) -> dict[str, float]:
    """Relative error of the solution in L2, and the points of the tets."""
    space = hp.Space(mesh, order, quadrature=quadrature)
    u = hp.solve_helmholtz(space, lam=1.0, f=source, dirichlet=exact, tol=1e-13)
    return {"error": hp.l2_error(u, exact) / space.norm(u), "points": float(points(space))}


def points(space: hp.Space) -> int:
    """Quadrature points of all tets."""
    return sum(block.n_elements * block.n_points for block in space.blocks if block.shape.name == "tet")


def operator_errors(mesh: hp.Mesh, order: int, quadrature: Any, rng: Any) -> float:
    """Largest difference of Helmholtz to that with many points, relative to the largest entry, on tets."""
    spaces = [hp.Space(mesh, order, quadrature=own) for own in (quadrature, 4)]
    sizes = [(1, block.n_elements, block.n_modes) for block in spaces[0].blocks]
    u = [rng.standard_normal(size) for size in sizes]
    found, fine = (hp.Helmholtz(space, lam=1.0)(u) for space in spaces)
    tets = [i for i, block in enumerate(spaces[0].blocks) if block.shape.name == "tet" and not block.affine]
    return max(float(np.abs(found[i] - fine[i]).max() / np.abs(fine[i]).max()) for i in tets)


def main() -> None:
    """Compute, print a table and write the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path, nargs="?", default=Path("benchmarks/results/simplex_accuracy.json"))
    parser.add_argument("--orders", type=parse_orders, default=tuple(range(1, 8)))
    given = parser.parse_args()
    rows = []
    print("| mesh | P | points of tets | error | | operator | |\n|---|---|---|---|---|---|---|")
    for name in ("ball", "pipe_mixed"):
        mesh = hp.read_mesh(f"meshes/{name}.msh")
        for order in given.orders:
            row: dict[str, Any] = {"mesh": name, "order": order}
            for rule, quadrature in RULES.items():
                rng = np.random.default_rng(order)
                row[rule] = errors(mesh, order, quadrature)
                row[rule]["operator"] = operator_errors(mesh, order, quadrature, rng)
            rows.append(row)
            a, b = (row[rule] for rule in RULES)
            print(
                f"| {name} | {order} | {a['points']:.0f} → {b['points']:.0f} | {a['error']:.3e} | {b['error']:.3e}"
                f" | {a['operator']:.1e} | {b['operator']:.1e} |",
                flush=True,
            )
    given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
