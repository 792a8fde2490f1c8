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
from hpfem.solvers import make_preconditioner

MESH = Path(__file__).resolve().parent.parent / "meshes" / "cube_mixed.msh"


# The factor of the test function on the wall; a pointwise function may take the normal `n`, too.
def radiated(u, s):
    """(s u^4, v) over the wall."""
    return s * u**4


def linearised(u, w, s):
    """(4 s w^3 u, v) over the wall, about a temperature w."""
    return 4 * s * w**3 * u


def main(path=MESH, order=3, s=2.0, backend="auto"):
    """Solve by Newton's method.

    Returns
    -------
    dict
        "residuals" by step, "error" (largest), "heat" through the wall and "exact" heat.
    """
    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    c0 = hp.C0Space(space)
    conditions = hp.BoundaryConditions(c0, dirichlet={"xmin": 1.0})
    stiffness = hp.Laplacian(space)
    loss = hp.WeakForm(space, radiated, trial="value", test="value", fields={"s": s}, on="xmax")
    conduction = hp.GlobalOperator(stiffness, c0, conditions)
    # The wall adds little to it.
    precondition, _ = make_preconditioner("multigrid", conduction)
    device, vectors = conduction.device, conduction.vectors
    free, where = vectors.from_host(conditions.free), vectors.xp.where

    u, residuals = vectors.from_host(np.asarray(c0.project(1.0))), []
    for _ in range(8):
        field = c0.scatter(u, device=device)
        residual = free * (c0.gather(stiffness(field), device) + c0.gather(loss(field), device))
        residuals.append(vectors.norm(residual))
        space.comm.print(f"residual {residuals[-1]:.1e}")
        if residuals[-1] < 1e-12:
            break
        fields = {"w": field, "s": s}
        wall = hp.WeakForm(space, linearised, trial="value", test="value", fields=fields, on="xmax")

        def tangent(x, wall=wall):
            given = c0.scatter(where(free, x, 0.0), device=device)
            return where(free, c0.gather(stiffness(given), device) + c0.gather(wall(given), device), x)

        step, _ = hp.cg(tangent, -residual, precondition, tol=1e-10, shared=vectors)
        u = u + step
    a = brentq(lambda a: a - s * (1 - a) ** 4, 0.0, 1.0, xtol=1e-15)
    exact = vectors.from_host(np.asarray(c0.project(lambda x, y, z: 1 - a * x)))
    heat = loss(c0.scatter(u, device=device)).dot(space.project(lambda x, y, z: 1.0))
    space.comm.print(f"P={order}: heat {heat:.10f}, exact {a:.10f}")
    return {"residuals": residuals, "error": vectors.max_norm(u - exact), "heat": heat, "exact": a}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A body that radiates.")
    parser.add_argument("--order", type=int, default=3)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(order=given.order, backend=given.backend)
