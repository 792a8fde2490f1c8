"""The p-Laplacian, -div(|grad u|^(p-2) grad u) = 1, on a disc, from the energy: p from 1.5 to 6.

    python examples/p_laplacian.py
    python examples/p_laplacian.py --order 6 --backend cuda

With u = 0 on the circle the solution is known. For p > 2 the coefficient vanishes in the middle of the disc, for p < 2
it is infinite there: a small number is added to |grad u|^2. Each p starts from the one before.
"""

import argparse
from pathlib import Path

import hpfem as hp

MESH = Path(__file__).resolve().parent.parent / "meshes" / "disc.msh"


def density(du, p, small):
    """Energy at a point."""
    return (small + du.dot(du)) ** (p / 2) / p


def exact(p):
    """The solution on the disc."""
    q = p / (p - 1)
    return lambda x, y: 2 ** (1 - q) / q * (1 - (x**2 + y**2) ** (q / 2))


def main(path=MESH, order=4, numbers=(1.5, 2.0, 4.0, 6.0), small=1e-6, backend="auto"):
    """Solve for several p; -> dicts of "p", "steps" of Newton's method, "iterations" (the most), "error" in L2, "u"."""
    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet=0.0)
    energy = hp.Energy(space, density, fields={"p": 2.0, "small": small})
    u, found = None, []
    for p in numbers:
        u, info = hp.newton(energy, c0, bc, u, f=1.0, parameters={"p": [p]}, preconditioner="multigrid")
        iterations = max(step.iterations for step in info.steps)
        error = hp.l2_error(u, exact(p))
        found.append({"p": p, "steps": len(info.steps), "iterations": iterations, "error": error, "u": u})
        space.comm.print(f"p = {p}: {len(info.steps)} steps of at most {iterations} iterations, error {error:.1e}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The p-Laplacian on a disc.")
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(order=given.order, backend=given.backend)
