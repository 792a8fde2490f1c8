"""The picture of the README: a pipe of hexes, prisms, pyramids and tets, hot inside, cooled by wind outside.

python examples/picture.py --output pipe.png
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp

MESH = Path(__file__).resolve().parent.parent / "meshes" / "pipe_mixed.msh"


def wind(x, y, z):
    """The heat transfer coefficient of the air."""
    return 4 * np.exp(2 * (x - y) + z)


def main(path=MESH, order=6, backend="auto", output=None):
    """Solve -div grad u = 0 with u = 1 inside, du/dn + wind u = 0 outside, and no flux at the ends.

    Returns
    -------
    dict
        "heat" in through the inside, "lost" by the wind, "iterations".
    """
    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    conditions = {"dirichlet": {"inside": 1.0}, "robin": {"outside": (wind, 0.0)}}
    problem = hp.Problem(space, lam=0.0, **conditions, preconditioner="multigrid")
    u = problem.solve()
    found = {
        "heat": problem.flux(u, "inside"),
        "lost": -problem.flux(u, "outside"),
        "iterations": u.info.iterations,
    }
    space.comm.print(
        f"P={order}: {found['heat']:.6f} of heat in, {found['lost']:.6f} out, {found['iterations']} iterations"
    )
    if output is not None:
        u.plot(output, name="temperature", cmap="plasma")
        print(f"written {output}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The picture of the README.")
    parser.add_argument("--order", type=int, default=6)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="a .png file; needs pyvista")
    given = parser.parse_args()
    main(order=given.order, backend=given.backend, output=given.output)
