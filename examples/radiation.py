"""A body that is kept hot on one side and radiates from the other: a nonlinear weak form on a boundary.

    python examples/radiation.py
    python examples/radiation.py --order 5 --backend cuda

-div(grad u) = 0 with u = 1 on one side and du/dn = -s u^4 on the opposite one, by Newton's method. Between them the
temperature is linear, u = 1 - a x with a = s (1 - a)^4.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

import hpfem as hp

MESH = Path(__file__).resolve().parent.parent / "meshes" / "cube_mixed.msh"


# The factor of the test function on the wall; a pointwise function may take the normal `n`, too.
def radiated(u, s):
    """(s u^4, v) over the wall."""
    return s * u**4


def main(path=MESH, order=3, s=2.0, backend="auto"):
    """Solve by Newton's method; -> "residuals" by step, largest "error", "heat" through the wall and "exact" heat."""
    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    c0 = hp.C0Space(space)
    loss = hp.WeakForm(space, radiated, trial="value", test="value", fields={"s": s}, on="xmax")
    conditions = hp.BoundaryConditions(c0, dirichlet={"xmin": 1.0})
    u, info = hp.newton(hp.Laplacian(space) + loss, c0, conditions, start=1.0, tol=1e-12, preconditioner="multigrid")
    space.comm.print(info)
    a = brentq(lambda a: a - s * (1 - a) ** 4, 0.0, 1.0, xtol=1e-15)
    error = np.abs(u.vector - c0.project(lambda x, y, z: 1 - a * x)).max(initial=0.0)
    heat = loss(u).dot(space.project(lambda x, y, z: 1.0))
    space.comm.print(f"P={order}: heat {heat:.10f}, exact {a:.10f}")
    return {"residuals": info.residuals, "error": space.comm.max(error), "heat": heat, "exact": a}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A body that radiates.")
    parser.add_argument("--order", type=int, default=3)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(order=given.order, backend=given.backend)
