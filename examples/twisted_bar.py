"""A bar of rubber, of hexes and prisms, twisted by half a turn: Neo-Hooke's material in large deformation.

    python examples/twisted_bar.py
    python examples/twisted_bar.py --order 4 --backend cuda

Only the energy is written down. hpfem makes the forces, its first derivative, and the tangent, its second. One end is
held and the other turned step by step; each step starts from the last one, and the linearisation continues what is
added to the boundary values into the bar.
"""

import argparse

import numpy as np

import hpfem as hp


def neo_hooke(du, mu, lam):
    """Energy of a displacement: mu/2 (|F|^2 - 3) - mu log(J) + lam/2 log(J)^2, with F = 1 + grad u and J = det F."""
    F = [[du[i][j] + (1.0 if i == j else 0.0) for j in range(3)] for i in range(3)]
    a, b, c = F
    cross = [b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0]]
    log = np.log(sum(a[i] * cross[i] for i in range(3)))
    return mu / 2 * (sum(f * f for row in F for f in row) - 3.0) - mu * log + lam / 2 * log * log


def turned(angle):
    """Displacement of an end that turns around the bar's axis."""
    s, c = np.sin(angle), np.cos(angle) - 1
    return lambda x, y, z: [0 * x, c * (y - 0.5) - s * (z - 0.5), s * (y - 0.5) + c * (z - 0.5)]


def main(order=3, cells=(8, 2, 2), angles=(0.5, 1.0, 1.5, 2.0, 2.5, np.pi), backend="auto"):
    """Twist; -> the displacement "u", by angle "energies", "steps" of Newton's method and most "iterations" of one."""
    mesh = hp.box(("hex", "prism"), cells, upper=(4.0, 1.0, 1.0))
    space = hp.Space(mesh, order, backend=backend)
    c0 = hp.C0Space(space)
    energy = hp.Energy(space, neo_hooke, fields={"mu": 1.0, "lam": 2.0}, components=3)
    u, energies, steps, iterations = None, [], [], 0
    for angle in angles:
        bc = hp.BoundaryConditions(c0, {"xmin": 0.0, "xmax": turned(angle)}, components=3)
        u, info = hp.newton(energy, c0, bc, u, preconditioner="multigrid", name="twist")
        energies.append(energy(u))
        steps.append(len(info.steps))
        iterations = max(iterations, *(step.iterations for step in info.steps))
        space.comm.print(f"{np.degrees(angle):.0f} degrees: energy {energies[-1]:.6f}, {steps[-1]} steps")
    return {"u": u, "energies": energies, "steps": steps, "iterations": iterations}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A bar that is twisted.")
    parser.add_argument("--order", type=int, default=3)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(order=given.order, backend=given.backend)
