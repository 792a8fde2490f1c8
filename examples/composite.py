"""A body of two materials: conductivity by region, and the heat that passes through it.

    python examples/composite.py
    python examples/composite.py --order 6 --backend cuda

One side is kept at 0, the opposite one at 1, the others are insulated. The heat flux lies between those of layers of
the same materials in series and in parallel (Wiener's bounds).
"""

import argparse
from pathlib import Path

import hpfem as hp

MESH = Path(__file__).resolve().parent.parent / "meshes" / "cube_distorted.msh"


def main(path=MESH, order=4, inner=10.0, backend="auto"):
    """Conductivity `inner` in region "left", 1 in "right"; -> "flux" out by xmax, "in" by xmin, "bounds"."""
    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    k = {"left": inner, "right": 1.0}
    share = space.integrate(space.evaluate({"left": 1.0, "right": 0.0})) / space.integrate(space.evaluate(lambda *x: 1))
    problem = hp.Problem(space, lam=0.0, dirichlet={"xmin": 0.0, "xmax": 1.0}, diffusivity=k)
    u = problem.solve()
    found = {
        "flux": problem.flux(u, "xmax"),
        "in": -problem.flux(u, "xmin"),
        "bounds": (1 / (share / inner + 1 - share), share * inner + 1 - share),
        "iterations": u.info.iterations,
    }
    space.comm.print(
        f"P={order}: heat {found['flux']:.6f}, in series {found['bounds'][0]:.6f}, parallel {found['bounds'][1]:.6f}"
    )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Heat through a body of two materials.")
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(order=given.order, backend=given.backend)
