"""A nonlinear problem of your own on a CPU or a GPU: Bratu's, -laplace(u) = lam exp(u), by Newton's method.

    python examples/bratu.py
    python examples/bratu.py --backend cuda --order 6

The residual and its linearisation are plain Python functions; they become kernels of the backend. On a GPU nothing is
copied to the host from the first guess to the solution. With u = 0 at two opposite sides of the cube and no flux
through the others the solution is known: it depends on x alone. The cells are hexes, prisms, pyramids and tets.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp
from hpfem.memory import count_transfers
from hpfem.solvers import make_preconditioner

MESH = Path(__file__).resolve().parent.parent / "meshes" / "cube_mixed.msh"


def bratu(u, du, lam):
    """(grad u, grad v) - (lam exp(u), v)."""
    return -lam * np.exp(u), du


# About a function w, which is one more coefficient.
def linearised(u, du, lam, w):
    """(grad u, grad v) - (lam exp(w) u, v)."""
    return -lam * np.exp(w) * u, du


def exact(lam):
    """The smaller one of the two solutions, for 0 < lam < 3.51: 2 log(cosh(t/4) / cosh(t (x - 1/2) / 2))."""
    t = 0.0
    for _ in range(200):
        t = np.sqrt(2 * lam) * np.cosh(t / 4)
    return lambda x, y, z: 2 * np.log(np.cosh(t / 4) / np.cosh(t * (x - 0.5) / 2))


def main(path=MESH, order=5, lam=2.0, backend="auto", tol=1e-11, most=10):
    """Solve, and compare with the known solution.

    Parameters
    ----------
    lam : float
        Below 3.51: for larger values there is no solution.
    tol : float
        Ratio of the residual's norm to that of the first guess, zero.

    Returns
    -------
    dict
        "error" (in L2), "residuals" (ratios, one a step of Newton's method), "iterations" (of CG, one number a step),
        "to_host" (copies from a device to the host while solving: none).
    """
    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0, "xmax": 0.0})
    residual = hp.GlobalOperator(hp.WeakForm(space, bratu, fields={"lam": lam}), c0, bc)
    device = residual.device
    # The Laplacian is similar enough to every linearisation.
    precondition, used = make_preconditioner("multigrid", hp.GlobalOperator(hp.Laplacian(space), c0, bc))
    space.comm.print(f"{c0.whole_size:,} unknowns on {device.name}, preconditioner {used}")

    u = residual.vectors.from_host(np.zeros(c0.size))
    w, r = c0.scatter(u, device=device), residual.apply(u, device)
    norm = residual.vectors.norm  # of vectors that processes may share
    residuals, iterations, first = [], [], norm(r)
    with count_transfers() as moved:
        for step in range(most):
            residuals.append(norm(r) / first)
            space.comm.print(f"step {step}: residual {residuals[-1]:.1e}")
            if residuals[-1] < tol:
                break
            tangent = hp.GlobalOperator(hp.WeakForm(space, linearised, fields={"lam": lam, "w": w}), c0, bc)
            # No more digits than Newton's method can use: each step squares its residual.
            wanted = max(1e-2 * residuals[-1], 1e-2 * tol / residuals[-1], 1e-13)
            options = {"tol": wanted, "bar": False, "shared": tangent.vectors}
            correction, info = hp.cg(lambda v, A=tangent: A.apply(v, device), -r, precondition, **options)
            iterations.append(info.iterations)
            u = u + correction
            w, r = c0.scatter(u, device=device), residual.apply(u, device)
    error = hp.l2_error(c0.scatter(residual.vectors.to_host(u)), exact(lam))
    space.comm.print(f"error {error:.1e} after {sum(iterations)} iterations of CG, {moved.to_host} copies to the host")
    return {"error": error, "residuals": residuals, "iterations": iterations, "to_host": moved.to_host}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Bratu's problem on a mesh of all shapes.")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--lam", type=float, default=2.0)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(order=given.order, lam=given.lam, backend=given.backend)
