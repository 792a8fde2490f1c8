"""An acoustic pulse in two layers of different speed: spectral elements in space, leapfrog in time.

    python examples/acoustic_wave.py --output pictures/
    python examples/acoustic_wave.py --shapes quad tri --output pictures/
    python examples/acoustic_wave.py --mesh meshes/curved_mixed_2d.msh --order 8 --frequency 5 --output pictures/

A Ricker wavelet is emitted at a point. Receivers are a little below the surface, where the pressure is zero.
Quads with Gauss-Lobatto points have a diagonal mass: a time step is one operator and one pass over the vectors. Where
there are tris the mass is inverted by CG, some 35 iterations a step at order 5. After the source has ended, the energy
is constant up to the square of the time step in both cases.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp
from hpfem.mesh import box, read_mesh
from hpfem.solvers import point_source, ricker
from hpfem.space import facet_sides
from hpfem.vtu import write_vtu

SOURCE = (0.5, 0.75)
RECEIVERS = ((0.25, 0.95), (0.5, 0.95), (0.85, 0.95))


def layers(space):
    """Speed squared, constant in each cell and larger below y = 0.5; and the facets between the layers."""
    speed_squared = space.evaluate(lambda x, y: y)
    fast = np.zeros(space.n_cells, dtype=bool)
    for block, values in zip(space.blocks, speed_squared.arrays):
        fast[block.elements] = values[0].mean(axis=1) < 0.5
        values[0] = np.where(fast[block.elements], 4.0, 1.0)[:, None]
    facets = space.mesh.facets
    between = fast[facets.cells[facets.interior]].sum(axis=1) == 1
    return speed_squared, facets.interior[between]


def nodal_space(mesh, order, backend):
    """Nodal space with a diagonal mass if no cell is collapsed: points at the nodes; else with rules that are exact."""
    collapsed = any(group.shape.collapsed for group in mesh.cells)
    return hp.Space(mesh, order, "lagrange", None if collapsed else "collocated", backend=backend)


def main(mesh=None, order=5, end=0.9, frequency=8.0, courant=0.5, backend="auto", frames=40, output=None):
    """Fire, propagate, record.

    Parameters
    ----------
    mesh : Mesh, optional
        About the unit square, with a boundary "ymax"; 16 x 16 quads when left out.

    Returns
    -------
    dict
        "dt", "steps", "times", "traces" [receiver, step], "energies" after the source has died and "variation", the
        relative range of them.
    """
    space = nodal_space(mesh or box("quad", (16, 16)), order, backend)
    c0 = hp.C0Space(space)
    speed_squared, interface = layers(space)
    stiffness, bc = hp.Helmholtz(space, 0.0, speed_squared), hp.BoundaryConditions(c0, {"ymax": 0.0})
    K, M = hp.GlobalOperator(stiffness, c0, bc), hp.GlobalOperator(hp.Mass(space), c0, bc)
    vectors, device = K.vectors, K.device

    wavelet = ricker(frequency)
    dies = 2.4 / frequency
    source = vectors.from_host(point_source(c0, SOURCE), space.dtype)
    listening = [vectors.from_host(point_source(c0, point), space.dtype) for point in RECEIVERS]
    past, times, traces, energies, pictures = [(0.0, 0 * source)], [], [], [], []

    def watch(t, p):
        """Record a step; the energy is that half a step ago."""
        before, last = past.pop()
        past.append((t, p))
        times.append(t)
        traces.append(vectors.dots(*((row, p) for row in listening)))
        if before > dies + t - before:
            rate, middle = (p - last) / (t - before), (p + last) / 2
            energies.append(0.5 * sum(vectors.dots((rate, M.apply(rate, device)), (middle, K.apply(middle, device)))))
        if output is not None and t >= len(pictures) * end / frames:
            pictures.append((t, c0.scatter(vectors.to_host(p))))

    run = hp.march(
        stiffness,
        0.0,
        (0, end),
        c0,
        bc,
        method="leapfrog",
        courant=courant,
        load=lambda t: wavelet(t) * source if t < dies else None,
        watch=watch,
        name="steps",
    )
    variation = float(np.ptp(energies) / energies[0])
    space.comm.print(f"{c0.size:,} unknowns, {run.steps} steps of {run.dt:.2e}")
    space.comm.print(f"energy {energies[0]:.4e}, varying by {variation:.1e} of it over {len(energies)} steps")
    if output is not None:
        output = Path(output)
        output.mkdir(parents=True, exist_ok=True)
        seismogram(times, traces, output / "wave_receivers.png")
        every = np.arange(len(space.mesh.facets))
        movie(pictures, edges(c0, every), edges(c0, interface), output)
        write_vtu(output / "wave.vtu", {"pressure": run.u})
    return {
        "dt": run.dt,
        "steps": run.steps,
        "times": np.array(times),
        "traces": np.array(traces).T,
        "energies": np.array(energies),
        "variation": variation,
    }


def seismogram(times, traces, path):
    """The pressure at the receivers."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for place, trace in zip(RECEIVERS, np.array(traces).T):
        axis.plot(times, trace, label=f"{place}")
    axis.set(xlabel="time", ylabel="pressure", title="Receivers")
    axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print("written", path)


def edges(c0, facets):
    """Points along edges of the cells, [edge, point, 2]."""
    return np.concatenate([np.moveaxis(side.coordinates, 0, -1) for side in facet_sides(c0.space, facets)])


def movie(pictures, lines, interface, folder):
    """The pressure in the mesh, as a picture of the last frame and a GIF of all."""
    plt = pyplot()
    from matplotlib.animation import FuncAnimation, PillowWriter
    from matplotlib.collections import LineCollection

    lower, upper = lines.min(axis=(0, 1)), lines.max(axis=(0, 1))
    inset = 1e-6 * (upper - lower)
    x, y = np.meshgrid(*np.linspace(lower + inset, upper - inset, 140).T)
    points = np.column_stack([x.ravel(), y.ravel()])
    images = [field.at(points).reshape(x.shape) for _, field in pictures]
    limit = 0.5 * max(np.nanmax(np.abs(image)) for image in images)
    figure, axis = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
    extent = (lower[0], upper[0], lower[1], upper[1])
    drawn = axis.imshow(images[-1], extent=extent, origin="lower", cmap="RdBu", vmin=-limit, vmax=limit)
    axis.add_collection(LineCollection(lines, colors="black", linewidths=0.3, alpha=0.3))
    axis.add_collection(LineCollection(interface, colors="black", linewidths=0.8))
    axis.plot(*np.array(RECEIVERS).T, "kv")
    axis.set_title(f"pressure at t = {pictures[-1][0]:.2f}")
    figure.savefig(folder / "wave.png", dpi=150)

    def show(k):
        drawn.set_data(images[k])
        axis.set_title(f"pressure at t = {pictures[k][0]:.2f}")
        return (drawn,)

    FuncAnimation(figure, show, frames=len(images)).save(folder / "wave.gif", writer=PillowWriter(fps=12))
    plt.close(figure)
    print("written", folder / "wave.png", folder / "wave.gif")


def pyplot():
    """Matplotlib without a window."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An acoustic pulse in two layers.")
    parser.add_argument("--mesh", help="mesh file about the unit square, with a boundary ymax, instead of a box")
    parser.add_argument("--shapes", nargs="+", default=["quad"], help="of the box, side by side: quad tri")
    parser.add_argument("--counts", type=int, nargs=2, default=(16, 16))
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--frequency", type=float, default=8.0, help="peak frequency of the source")
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="folder for pictures, the movie and the last pressure")
    given = parser.parse_args()
    main(
        box(given.shapes, given.counts) if given.mesh is None else read_mesh(given.mesh),
        given.order,
        frequency=given.frequency,
        backend=given.backend,
        output=given.output,
    )
