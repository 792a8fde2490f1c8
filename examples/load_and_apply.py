"""Load a mesh of hexes, prisms, pyramids and tets, and apply an operator to a field on it.

python examples/load_and_apply.py --output helmholtz.vtu
python examples/load_and_apply.py --backend cuda
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp
from hpfem.operators import InverseMass
from hpfem.vtu import write_vtu

MESH = Path(__file__).resolve().parent.parent / "meshes" / "curved_mixed.msh"


def main(path=MESH, order=5, backend="auto", output=None):
    """Check Helmholtz against its integral; -> "volume", "energy" u . H u, "integral", "projection_error"."""
    # A mesh file holds cells of any shapes and geometry orders. Cells of one shape, straight or curved, make a block.
    mesh = hp.read_mesh(path)
    mesh.comm.print(mesh.summary())
    space = hp.Space(mesh, order, backend=backend)
    mesh.comm.print(space)

    # A field is a function of the coordinates, projected element by element: coefficients of the basis' functions.
    def wave(x, y, z):
        return np.sin(2 * x + y) * np.cos(z)

    u = space.project(wave)
    error = space.norm(hp.BwdTrans(space)(u) - space.evaluate(wave))

    # The weak Helmholtz operator, (grad u, grad v) + lam (u, v), gives a functional: one number per basis function v.
    helmholtz = hp.Helmholtz(space, lam=1.0)
    v = helmholtz(u)
    mesh.comm.print(helmholtz.explain())

    # Tested with u itself, it is the integral of |grad u|^2 + u^2, which quadrature gives as well.
    values = hp.BwdTrans(space)(u)
    gradient = hp.PhysDeriv(space)(values)
    integral = np.sum(space.integrate(gradient * gradient)) + space.integrate(values * values)
    mesh.comm.print(f"u . H u = {u.dot(v):.12f}, integral = {integral:.12f}, projection error {error:.1e}")

    # For a picture, the functional is made a function: the one with the same inner products.
    if output is not None:
        write_vtu(output, {"u": u, "Hu": InverseMass(space)(v)})
        print(f"written {output}")
    return {
        "volume": mesh.summary().volume,
        "energy": u.dot(v),
        "integral": float(integral),
        "projection_error": error,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Apply the Helmholtz operator on a mixed mesh.")
    parser.add_argument("mesh", nargs="?", default=MESH)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="a .vtu file")
    arguments = parser.parse_args()
    main(arguments.mesh, arguments.order, arguments.backend, arguments.output)
