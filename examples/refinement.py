"""How errors fall when a mesh is refined: -div grad u + u = f on a curved mesh of hexes, prisms, pyramids and tets.

    python examples/refinement.py
    python examples/refinement.py --order 4 --times 3

`mesh.refined()` divides every cell into smaller ones on the same curved geometry. With order P the error in L2 falls by
2^(P+1) from one mesh to the next, that in H1, which counts derivatives too, by 2^P. The solution on a mesh,
interpolated by `space.interpolate`, is the first guess on the next mesh.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp

MESH = Path(__file__).resolve().parent.parent / "meshes" / "curved_mixed.msh"


def exact(x, y, z):
    """The solution."""
    return np.sin(2 * x + y) * np.exp(z)


def gradient(x, y, z):
    """Its derivatives."""
    wave = np.cos(2 * x + y) * np.exp(z)
    return [2 * wave, wave, exact(x, y, z)]


def main(path=MESH, order=2, times=2, backend="auto"):
    """Solve on a mesh and its refinements; -> dicts of "cells", "unknowns", "iterations", "l2", "h1" (errors)."""
    mesh, u, rows = hp.read_mesh(path), None, []
    for _ in range(times + 1):
        space = hp.Space(mesh, order, backend=backend)
        # The Laplacian of the solution is -4 times itself.
        problem = hp.Problem(space, lam=1.0, dirichlet=exact, tol=1e-10)
        start = None if u is None else problem.c0.average(space.interpolate(u, tolerance=1e-6))
        u = problem.solve(lambda x, y, z: 5 * exact(x, y, z), start=start)
        errors = {"l2": hp.l2_error(u, exact), "h1": hp.h1_error(u, exact, gradient)}
        rows.append({"cells": mesh.n_cells, "unknowns": u.info.size, "iterations": u.info.iterations, **errors})
        mesh = mesh.refined()
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", default=MESH, help="mesh file")
    parser.add_argument("--order", type=int, default=2)
    parser.add_argument("--times", type=int, default=2, help="how often the mesh is refined")
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    found = main(given.path, given.order, given.times, given.backend)
    for row, before in zip(found, [None, *found], strict=False):
        rates = "" if before is None else "".join(f"   {np.log2(before[k] / row[k]):5.2f}" for k in ("l2", "h1"))
        print(
            f"{row['cells']:8,} cells {row['unknowns']:10,} unknowns   L2 {row['l2']:.2e}   H1 {row['h1']:.2e}{rates}"
        )
