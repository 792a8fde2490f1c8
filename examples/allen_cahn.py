"""Two phases that part, and boundaries that shrink, in time: the equation of Allen and Cahn, by implicit steps.

    python examples/allen_cahn.py --output pictures/
    python examples/allen_cahn.py --order 6 --backend cuda

u_t = eps^2 laplace(u) + u - u^3 goes down the energy of `density`: u tends to -1 or 1, and then a boundary of curvature
k moves by eps^2 k, so that a disc loses an area of 2 pi eps^2 in each unit of time. `hp.march` differentiates the
energy, takes steps as long as the error allows, and solves their systems with multigrid.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp


def density(u, du, eps):
    """Of the energy: of the boundary, and of what is neither -1 nor 1."""
    return 0.5 * eps**2 * du.dot(du) + 0.25 * (u**2 - 1) ** 2


def mixed(x, y):
    """Waves of many directions, small, without a preferred sign."""
    rng = np.random.default_rng(3)
    angles, phases = rng.uniform(0, 2 * np.pi, (2, 60))
    waves = zip(angles, phases, rng.uniform(20, 50, 60), strict=True)
    return 0.02 * sum(np.cos(k * (x * np.cos(a) + y * np.sin(a)) + b) for a, b, k in waves)


def disc(x, y, eps=0.04, radius=0.3):
    """A disc of one phase in the other, with the profile of a boundary at rest."""
    return np.tanh((radius - np.hypot(x - 0.5, y - 0.5)) / (np.sqrt(2) * eps))


def main(start=mixed, times=(3.0, 8.0, 40.0), cells=12, order=4, eps=0.03, tol=1e-3, backend="auto", output=None):
    """March to the last of the times; -> "energies" and "areas" of phase 1 at start and times, "steps", "dofs"."""
    space = hp.Space(hp.box(("quad", "tri"), cells), order, backend=backend)
    c0 = hp.C0Space(space)
    energy = hp.Energy(space, density, fields={"eps": eps})
    area = hp.Energy(space, lambda u: 0.5 + 0.5 * u)
    begin = c0.scatter(c0.project(start))
    run = hp.march(energy, begin, (0, times[-1]), c0, method="esdirk3", dt=0.1, tol=tol, save=times, name="allen-cahn")
    found = {
        "energies": [energy(u) for u in (begin, *run.saved)],
        "areas": [area(u) for u in (begin, *run.saved)],
        "steps": run.steps,
        "dofs": c0.size,
    }
    space.comm.print(
        f"{c0.size:,} unknowns, {run.steps} steps; energies {', '.join(f'{e:.4f}' for e in found['energies'])}"
    )
    if output is not None:
        picture([0.0, *run.times], [begin, *run.saved], Path(output) / "allen_cahn.png")
    return found


def picture(times, fields, path):
    """The phases at some times."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    x, y = np.meshgrid(*[np.linspace(1e-6, 1 - 1e-6, 160)] * 2)
    figure, axes = plt.subplots(1, len(times), figsize=(2.3 * len(times) + 0.7, 2.6), layout="constrained")
    for axis, t, field in zip(axes, times, fields, strict=True):
        drawn = axis.imshow(field(x, y), extent=(0, 1, 0, 1), origin="lower", cmap="RdBu", vmin=-1, vmax=1)
        axis.set(title=f"t = {t:g}", xticks=[], yticks=[])
    figure.colorbar(drawn, ax=axes, label="u", ticks=(-1, 0, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The equation of Allen and Cahn.")
    parser.add_argument("--cells", type=int, default=12, help="in each direction")
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--eps", type=float, default=0.03, help="width of the boundaries")
    parser.add_argument("--tol", type=float, default=1e-3, help="error of a step")
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="folder for a picture")
    given = parser.parse_args()
    options = {key: vars(given)[key] for key in ("cells", "order", "eps", "tol", "backend", "output")}
    main(**options)
