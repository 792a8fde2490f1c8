"""Solve -laplace(u) + u = f on a mesh of hexes, prisms, pyramids and tets, and watch the error fall with the order.

    python examples/helmholtz_manufactured.py --output pictures/
    python examples/helmholtz_manufactured.py --mesh my.msh --orders 2 4 6 --backend cuda

The solution is known, u = sin(pi x) cos(pi y) exp(z), and f follows from it. Smooth solutions converge exponentially:
about a digit more with every order, on straight and on curved cells alike.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp
from hpfem.vtu import write_vtu

MESH = Path(__file__).resolve().parent.parent / "meshes" / "curved_mixed.msh"


def exact(x, y, z):
    """The solution."""
    return np.sin(np.pi * x) * np.cos(np.pi * y) * np.exp(z)


def source(x, y, z):
    """-laplace(u) + u."""
    return 2 * np.pi**2 * exact(x, y, z)


def gradient(x, y, z):
    """Of the solution: its flux through the boundary."""
    return [
        np.pi * np.cos(np.pi * x) * np.cos(np.pi * y) * np.exp(z),
        -np.pi * np.sin(np.pi * x) * np.sin(np.pi * y) * np.exp(z),
        exact(x, y, z),
    ]


def robin(x, y, z, nx, ny, nz):
    """du/dn + u on the boundary, from the point and the outward normal."""
    dx, dy, dz = gradient(x, y, z)
    return dx * nx + dy * ny + dz * nz + exact(x, y, z)


CONDITIONS = {"dirichlet": {"dirichlet": exact}, "neumann": {"neumann": gradient}, "robin": {"robin": (1.0, robin)}}


def main(path=MESH, orders=(1, 2, 3, 4, 5, 6), conditions=tuple(CONDITIONS), backend="auto", output=None):
    """Solve at every order; -> by condition dicts of "order", "dofs", "error" (relative), "iterations", "seconds"."""
    mesh = hp.read_mesh(path)
    mesh.comm.print(mesh.summary())
    results = {name: [] for name in conditions}
    for order in orders:
        space = hp.Space(mesh, order, backend=backend)
        for name in conditions:
            u = hp.solve_helmholtz(space, lam=1.0, f=source, preconditioner="multigrid", **CONDITIONS[name])
            row = {
                "order": order,
                "dofs": u.c0.whole_size,
                "error": hp.l2_error(u, exact),
                "iterations": u.info.iterations,
                "seconds": u.info.time,
            }
            results[name].append(row)
            mesh.comm.print(
                f"P={order} {name:10} {row['dofs']:8,} unknowns, error {row['error']:.2e},"
                f" {row['iterations']:3} iterations ({u.info.preconditioner}), {row['seconds']:.2f} s"
            )
    if output is not None:
        output = Path(output)
        output.mkdir(parents=True, exist_ok=True)
        write_vtu(output / "helmholtz_solution.vtu", {"u": u})
        plot(results, u, output / "helmholtz_convergence.png")
    return results


def plot(results, u, path):
    """Error against order, and the last solution half way up the mesh."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, (axis, slice_) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=(3, 2))
    for (name, rows), marker in zip(results.items(), "osd"):
        axis.semilogy([r["order"] for r in rows], [r["error"] for r in rows], marker=marker, label=name)
    axis.set(xlabel="order P", ylabel="relative L2 error", title="Helmholtz problem, curved cells of all shapes")
    axis.set_xticks([row["order"] for row in rows])
    axis.grid(alpha=0.3)
    axis.legend(title="on the boundary")
    nodes = u.space.mesh.points
    lower, upper = nodes.min(axis=0), nodes.max(axis=0)
    x, y = np.meshgrid(*np.linspace(lower[:2], upper[:2], 120).T)
    points = np.stack([x, y, np.full_like(x, (lower[2] + upper[2]) / 2)], axis=-1)
    values = u.at(points.reshape(-1, 3)).reshape(x.shape)
    drawn = slice_.contourf(x, y, np.ma.masked_invalid(values), 20, cmap="RdBu")
    slice_.set(aspect="equal", xlabel="x", ylabel="y", title=f"u at z = {points[0, 0, 2]:.2f}")
    figure.colorbar(drawn, ax=slice_)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print("written", path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Convergence of a Helmholtz problem with the order.")
    parser.add_argument("--mesh", default=MESH, help="a 3-D mesh file")
    parser.add_argument("--orders", type=int, nargs="+", default=(1, 2, 3, 4, 5, 6))
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="folder for the picture and the solution")
    given = parser.parse_args()
    main(given.mesh, given.orders, backend=given.backend, output=given.output)
