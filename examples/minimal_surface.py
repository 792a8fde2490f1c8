"""The surface of least area over a square, as of a soap film in a frame: Scherk's, which is known.

    python examples/minimal_surface.py
    python examples/minimal_surface.py --order 8 --backend cuda

Only the area is written down. The first guess is the harmonic function with the height of the frame, which hpfem makes
of the boundary values by the linearisation at zero.
"""

import argparse

import numpy as np

import hpfem as hp


def area(du):
    """Area of the surface over a unit of the plane."""
    return np.sqrt(1 + du.dot(du))


def scherk(x, y):
    """A minimal surface."""
    return np.log(np.cos(x) / np.cos(y))


def main(orders=(2, 4, 6), cells=(4, 4), side=1.0, backend="auto"):
    """Find the surface for some orders; -> dicts of "order", "steps" of Newton's method, "area", "error" in L2, "u"."""
    found = []
    for order in orders:
        mesh = hp.box(("quad", "tri"), cells, lower=(-side, -side), upper=(side, side))
        space = hp.Space(mesh, order, backend=backend)
        c0, energy = hp.C0Space(space), hp.Energy(space, area)
        u, info = hp.newton(energy, c0, hp.BoundaryConditions(c0, dirichlet=scherk), preconditioner="multigrid")
        row = {"order": order, "steps": len(info.steps), "area": energy(u), "error": hp.l2_error(u, scherk), "u": u}
        space.comm.print(f"P={order}: area {row['area']:.6f}, error {row['error']:.1e} after {row['steps']} steps")
        found.append(row)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A minimal surface.")
    parser.add_argument("--order", type=int, default=6)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(orders=(given.order,), backend=given.backend)
