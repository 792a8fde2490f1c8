"""Linear elasticity: a cantilever against beam theory, and a displacement that is known on curved cells of all shapes.

    python examples/elasticity.py
    python examples/elasticity.py --order 6 --backend cuda

Components are coupled by the form, and have boundary conditions of their own: on the beam's plane of symmetry the
normal displacement is zero, and the others are free.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp
from hpfem.mesh import box
from hpfem.solvers import make_preconditioner

MESH = Path(__file__).resolve().parent.parent / "meshes" / "curved_mixed.msh"


def stress(du, lam, mu):
    """Stress of a displacement, for the gradient of the test function: lam div(u) I + mu (grad u + its transpose)."""
    d = len(du)
    divergence = sum(du[i][i] for i in range(d))
    return [[mu * (du[i][j] + du[j][i]) + (lam * divergence if i == j else 0) for j in range(d)] for i in range(d)]


def solve(space, lam, mu, dirichlet, neumann):
    """Displacement under tractions; -> the field, the sum [3] of reactions where values are prescribed, iterations."""
    c0 = hp.C0Space(space)
    conditions = hp.BoundaryConditions(c0, dirichlet, neumann, components=3)
    form = hp.WeakForm(space, stress, trial="grad", test="grad", components=3, fields={"lam": lam, "mu": mu})
    A = hp.GlobalOperator(form, c0, conditions)
    precondition, _ = make_preconditioner("multigrid", A)
    x, info = hp.cg(A, A.right_hand_side(np.zeros(A.shape[0])), precondition, tol=1e-10)
    x = A.vectors.to_host(x)
    rest = hp.GlobalOperator(form, c0, conditions.natural) @ x - conditions.load.ravel()
    forces = c0.vectors_on().inner(rest.reshape(3, -1), c0.project(1.0))
    return c0.scatter(x.reshape(3, -1)), forces, info.iterations


def cantilever(order=4, length=8.0, young=1000.0, poisson=0.3, backend="auto"):
    """Bend half a beam of section 1 x 1, of slabs of all shapes, by a load on its end.

    Returns
    -------
    dict
        "deflection" of the end, that of "beam" theory with shear [Timoshenko], "forces" that hold it (a load of 1 on
        the whole beam), "iterations".
    """
    mesh = box(("hex", "prism", "pyramid", "tet"), (8, 1, 2), upper=(length, 0.5, 1.0))
    lam, mu = young * poisson / ((1 + poisson) * (1 - 2 * poisson)), young / (2 * (1 + poisson))
    fixed = {"xmin": (0.0, 0.0, 0.0), "ymin": (None, 0.0, None)}
    space = hp.Space(mesh, order, backend=backend)
    u, forces, iterations = solve(space, lam, mu, fixed, {"xmax": (0.0, 0.0, -1.0)})
    deflection = -float(u.component(2).at([[length, 0.0, 0.5]])[0])
    beam = 4 * length**3 / young + length / (5 / 6 * mu)
    held = np.round(forces, 12) + 0.0
    space.comm.print(
        f"P={order}: deflection {deflection:.5f}, beam theory {beam:.5f}, forces {held}, {iterations} iterations"
    )
    return {"deflection": deflection, "beam": beam, "forces": forces, "iterations": iterations}


def known(x, y, z):
    """The gradient of a harmonic function: no body force, whatever the material."""
    return [np.exp(x) * np.sin(y) + z, np.exp(x) * np.cos(y), x]


def manufactured(order=4, lam=1.3, mu=0.8, path=MESH, backend="auto"):
    """Find it again from values on a side, a component on another, and tractions; -> "error" in L2, "iterations"."""

    def traction(x, y, z, *n):
        hessian = [
            [np.exp(x) * np.sin(y), np.exp(x) * np.cos(y), 1],
            [np.exp(x) * np.cos(y), -np.exp(x) * np.sin(y), 0],
            [1, 0, 0],
        ]
        return [2 * mu * sum(row[j] * n[j] for j in range(3)) for row in hessian]

    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    fixed = {"xmin": known, "ymin": (None, None, lambda x, y, z: x)}
    loads = {
        name: lambda x, y, z, nx, ny, nz: traction(x, y, z, nx, ny, nz)
        for name in space.mesh.boundaries
        if name != "xmin"
    }
    u, _, iterations = solve(space, lam, mu, fixed, loads)
    error = hp.l2_error(u, known)
    space.comm.print(f"P={order}: error {error:.2e}, {iterations} iterations")
    return {"error": error, "iterations": iterations}


def main(order=4, backend="auto"):
    """Both; -> "cantilever", "manufactured"."""
    return {"cantilever": cantilever(order, backend=backend), "manufactured": manufactured(order, backend=backend)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Linear elasticity.")
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(given.order, given.backend)
