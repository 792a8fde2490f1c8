"""An acoustic pulse in two layers of different speed: spectral elements in space, leapfrog in time.

    python examples/acoustic_wave.py --output pictures/

A Ricker wavelet is fired at a point; receivers listen a little below the surface, where the pressure is held at zero.
Quads with Gauss-Lobatto points have a diagonal mass, so a time step is one operator and a few vector operations. After
the source has died the energy stays, up to the square of the time step.
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp
from hpfem.assembly.devices import vector_on
from hpfem.mesh import box
from hpfem.solvers import AcousticWave, point_source, ricker
from hpfem.vtu import write_vtu

SOURCE = (0.5, 0.75)
RECEIVERS = ((0.25, 0.95), (0.5, 0.95), (0.85, 0.95))


def speed_squared(x, y):
    """Faster below y = 0.5."""
    return np.where(y < 0.5, 4.0, 1.0)


def main(counts=(16, 16), order=5, end=0.9, frequency=8.0, courant=0.5, backend="auto", frames=40, output=None):
    """Fire, propagate, record.

    Returns
    -------
    dict
        "dt", "steps", "diagonal_mass", "times", "traces" [receiver, step], "energies" after the source has died and
        "variation", the relative range of them.
    """
    space = hp.Space(box("quad", counts), order, "lagrange", "collocated", backend=backend)
    c0 = hp.C0Space(space)
    wave = AcousticWave(c0, speed_squared, free_surface=("ymax",), courant=courant)
    wave.start(np.zeros(c0.size))
    steps = int(np.ceil(end / wave.dt))
    print(f"{c0.size:,} unknowns, {steps} steps of {wave.dt:.2e}, diagonal mass: {wave.diagonal_mass}")

    wavelet = ricker(frequency)
    dies = 2.4 / frequency
    source = point_source(c0, SOURCE)
    on_device = vector_on(source, wave.device, space.dtype)
    receivers = np.array([point_source(c0, point) for point in RECEIVERS])
    listening = [vector_on(row, wave.device, space.dtype) for row in receivers]
    times, traces, energies, pictures = [], [], [], []
    for step in range(steps):
        wave.step(wavelet(wave.time) * on_device if wave.time < dies else None)
        times.append(wave.time)
        traces.append([wave.listen(row) for row in listening])
        if wave.time > dies + 2 * wave.dt:
            energies.append(wave.energy())
        if output is not None and step % max(1, steps // frames) == 0:
            pictures.append((wave.time, wave.pressure))
    variation = float(np.ptp(energies) / energies[0])
    print(f"energy {energies[0]:.4e}, varying by {variation:.1e} of it over {len(energies)} steps")
    if output is not None:
        output = Path(output)
        output.mkdir(parents=True, exist_ok=True)
        seismogram(times, traces, output / "wave_receivers.png")
        movie(pictures, output)
        write_vtu(output / "wave.vtu", {"pressure": wave.pressure})
    return {
        "dt": wave.dt,
        "steps": steps,
        "diagonal_mass": wave.diagonal_mass,
        "times": np.array(times),
        "traces": np.array(traces).T,
        "energies": np.array(energies),
        "variation": variation,
    }


def seismogram(times, traces, path):
    """What the receivers heard."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for place, trace in zip(RECEIVERS, np.array(traces).T):
        axis.plot(times, trace, label=f"{place}")
    axis.set(xlabel="time", ylabel="pressure", title="Receivers")
    axis.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print("written", path)


def movie(pictures, folder):
    """The pressure, as a picture of the last frame and a GIF of all."""
    plt = pyplot()
    from matplotlib.animation import FuncAnimation, PillowWriter

    line = np.linspace(1e-6, 1 - 1e-6, 140)
    x, y = np.meshgrid(line, line)
    points = np.column_stack([x.ravel(), y.ravel()])
    images = [field.at(points).reshape(x.shape) for _, field in pictures]
    limit = 0.5 * max(np.abs(image).max() for image in images)
    figure, axis = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
    drawn = axis.imshow(images[-1], extent=(0, 1, 0, 1), origin="lower", cmap="RdBu", vmin=-limit, vmax=limit)
    axis.axhline(0.5, color="black", linewidth=0.6)
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
    parser.add_argument("--counts", type=int, nargs=2, default=(16, 16))
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="folder for pictures, the movie and the last pressure")
    given = parser.parse_args()
    main(given.counts, given.order, backend=given.backend, output=given.output)
