"""Advection and diffusion: velocity . grad(u) - k laplace(u) = f on hexes, prisms, pyramids and tets.

    python examples/advection_diffusion.py
    python examples/advection_diffusion.py --backend cuda --diffusivity 0.05 --orders 2 4 8

`hp.solve` finds that the operator is not symmetric, takes GMRES, with multigrid of its symmetric part, the diffusion.
If advection does not dominate over diffusion in a cell, the iterations grow neither with the order nor with the mesh.
The solution is known, u = sin(pi x) cos(pi y) exp(z), and f follows from it; the velocity turns around an axis and
rises.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp

MESH = Path(__file__).resolve().parent.parent / "meshes" / "cube_mixed.msh"


def exact(x, y, z):
    """The solution."""
    return np.sin(np.pi * x) * np.cos(np.pi * y) * np.exp(z)


def gradient(x, y, z):
    """Of the solution."""
    return [
        np.pi * np.cos(np.pi * x) * np.cos(np.pi * y) * np.exp(z),
        -np.pi * np.sin(np.pi * x) * np.sin(np.pi * y) * np.exp(z),
        exact(x, y, z),
    ]


def velocity(x, y, z):
    """Without sources."""
    return [0.5 - y, x - 0.5, 0.5 + 0 * z]


def main(
    path=MESH, orders=(1, 2, 3, 4, 5, 6), diffusivity=0.1, backend="auto", preconditioners=("multigrid", "jacobi")
):
    """Solve by order and preconditioner; -> dicts of "order", "dofs", "method", "iterations", "error", "seconds"."""
    mesh = hp.read_mesh(path)
    rows = []

    def source(*x):
        flow = sum(v * du for v, du in zip(velocity(*x), gradient(*x), strict=True))
        return flow + diffusivity * (2 * np.pi**2 - 1) * exact(*x)

    for order in orders:
        # More points for functions that are not polynomials of the order.
        space = hp.Space(mesh, order, quadrature=2, backend=backend)
        c0 = hp.C0Space(space)
        bc = hp.BoundaryConditions(c0, dirichlet=exact)
        form = hp.AdvectionDiffusionReaction(space, velocity, diffusivity)
        A = hp.GlobalOperator(form, c0, bc)
        # Known values are moved to the right-hand side; their rows are those of the identity.
        load = c0.gather(hp.IProductWRTBase(space)(space.evaluate(source)))
        b = np.where(bc.constrained, bc.values, load - hp.GlobalOperator(form, c0).apply(bc.values))
        for preconditioner in preconditioners:
            x, info = hp.solve(A, b, preconditioner, tol=1e-10)
            row = {
                "order": order,
                "dofs": c0.size,
                "preconditioner": info.preconditioner,
                "method": info.method,
                "iterations": info.iterations,
                "error": hp.l2_error(c0.scatter(x), exact),
                "seconds": info.time,
            }
            rows.append(row)
            space.comm.print(
                f"P={order} {c0.size:8,} unknowns, error {row['error']:.2e}, {info.iterations:4} iterations of"
                f" {info.method} with {info.preconditioner}, {info.time:.2f} s"
            )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Advection and diffusion on cells of all shapes.")
    parser.add_argument("--mesh", default=MESH, help="a 3-D mesh file")
    parser.add_argument("--orders", type=int, nargs="+", default=(1, 2, 3, 4, 5, 6))
    parser.add_argument("--diffusivity", type=float, default=0.1)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(given.mesh, given.orders, given.diffusivity, given.backend)
