"""A nonlinear problem of your own on a CPU or a GPU: Bratu's, -laplace(u) = lam exp(u), by Newton's method.

    python examples/bratu.py
    python examples/bratu.py --backend cuda --order 6

The residual is a plain Python function; it and its linearisation become kernels of the backend. On a GPU nothing is
copied to the host from the first guess to the solution. With u = 0 at two opposite sides of the cube and no flux
through the others the solution is known: it depends on x alone. The cells are hexes, prisms, pyramids and tets.

Up to lam = 3.51 there are two solutions, which meet there: `fold` follows them.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp
from hpfem.memory import count_transfers

MESH = Path(__file__).resolve().parent.parent / "meshes" / "cube_mixed.msh"


def bratu(u, du, lam):
    """(grad u, grad v) - (lam exp(u), v)."""
    return -lam * np.exp(u), du


def exact(lam):
    """The smaller one of the two solutions, for 0 < lam < 3.51: 2 log(cosh(t/4) / cosh(t (x - 1/2) / 2))."""
    t = 0.0
    for _ in range(200):
        t = np.sqrt(2 * lam) * np.cosh(t / 4)
    return lambda x, y, z: 2 * np.log(np.cosh(t / 4) / np.cosh(t * (x - 0.5) / 2))


def problem(path, order, lam, backend):
    """The residual, the continuous space and the conditions."""
    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0, "xmax": 0.0})
    return hp.WeakForm(space, bratu, fields={"lam": lam}), c0, bc


def main(path=MESH, order=5, lam=2.0, backend="auto", tol=1e-11):
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
    form, c0, bc = problem(path, order, lam, backend)
    # The Laplacian is similar enough to every linearisation.
    precondition = hp.Multigrid(hp.GlobalOperator(hp.Laplacian(c0.space), c0, bc))
    with count_transfers() as moved:
        u, info = hp.newton(form, c0, bc, tol=tol, preconditioner=precondition)
    error = hp.l2_error(u, exact(lam))
    c0.space.comm.print(f"{info}\nerror {error:.1e}, {moved.to_host} copies to the host")
    iterations = [step.iterations for step in info.steps]
    return {"error": error, "residuals": info.residuals, "iterations": iterations, "to_host": moved.to_host}


def fold(path=MESH, order=3, numbers=(3.4, 3.0, 2.0, 1.0), backend="auto"):
    """Follow both solutions from the largest "lam" that has one; -> "lower", "upper" value in the middle by number."""
    form, c0, bc = problem(path, order, 1.0, backend)
    found = {"lower": [], "upper": []}
    try:
        hp.newton(form, c0, bc, parameters={"lam": [1.0, 4.0]})
    except hp.NewtonError as stop:  # it keeps the last solution
        turn, found["lam"] = stop.u, form.parameters["lam"]
    lower = upper = turn
    for lam in numbers:
        lower, _ = hp.newton(form, c0, bc, lower, parameters={"lam": [lam]})
        # Near the turn the other solution is as far away on the other side; there the linearisation is indefinite.
        guess = 2 * turn - lower if upper is turn else upper
        upper, _ = hp.newton(form, c0, bc, guess, parameters={"lam": [lam]}, definite=False)
        for name, u in (("lower", lower), ("upper", upper)):
            found[name].append(float(u(0.5, 0.5, 0.5)))
        c0.space.comm.print(f"lam = {lam}: {found['lower'][-1]:.6f} and {found['upper'][-1]:.6f} in the middle")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Bratu's problem on a mesh of all shapes.")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--lam", type=float, default=2.0)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(order=given.order, lam=given.lam, backend=given.backend)
    fold(order=given.order, backend=given.backend)
