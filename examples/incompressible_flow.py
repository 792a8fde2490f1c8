"""Incompressible flow by velocity correction, of order 1 to 3 in time, of public operators and `Problem` alone.

    python examples/incompressible_flow.py kovasznay --output pictures/
    python examples/incompressible_flow.py cylinder -P 6 --output pictures/
    python examples/incompressible_flow.py taylor-green -P 7 --cells 8 --backend cuda

u_t + u . grad u = -grad p + nu laplace u, div u = 0, by the stiffly stable schemes of Karniadakis, Israeli and Orszag
[KIO]. Advection is explicit, at the points of a finer rule; a Poisson problem for the pressure
follows, whose Neumann data are what the equation says at walls, with the viscous term as -nu curl curl u of past steps;
then a Helmholtz problem for the velocity. Functions are continuous, all is set up once, and on a GPU nothing leaves it.
"""

import argparse
import time
from collections import deque
from pathlib import Path

import numpy as np

import hpfem as hp

MESHES = Path(__file__).resolve().parent.parent / "meshes"
# By order: gamma, and alpha of past velocities; latest first.
STIFFLY_STABLE = {1: (1.0, (1.0,)), 2: (3 / 2, (2.0, -1 / 2)), 3: (11 / 6, (3.0, -3 / 2, 1 / 3))}
# The polynomial through past values, latest first, a step ahead: by how many there are.
AHEAD = {1: (1.0,), 2: (2.0, -1.0), 3: (3.0, -3.0, 1.0), 4: (4.0, -6.0, 4.0, -1.0)}


def at_walls(u, du, n, nu, rate):
    """(n . grad p, q) over walls, in component 0: -(rate n . u, q) - (nu n x curl u, grad q), the latter by Stokes."""
    d = range(len(u))
    turned = [-nu * sum((du[j][i] - du[i][j]) * n[j] for j in d) for i in d]
    return [-rate * sum(u[i] * n[i] for i in d), *(0.0 for _ in d[1:])], [turned, *([0.0 for _ in d] for _ in d[1:])]


def advection(u, du):
    """The velocity's derivative along itself, u . grad u."""
    d = range(len(u))
    return [sum(u[j] * du[i][j] for j in d) for i in d]


class Flow:
    """A flow that advances by time steps.

    Parameters
    ----------
    c0 : C0Space
    nu, dt : float
        Viscosity and time step.
    order : int
        In time, 1 to 3; the first steps are of lower order where `start` is given one velocity.
    walls : {boundary name: data}
        Where the velocity is given; data of `Problem`. Past the other boundaries flows what does, at p = 0.
    more : int, optional
        Points of the rule for advection, more than the default in each direction; P / 2, which is exact on affine
        cells, when left out.
    tol : float
        Of both problems.
    """

    def __init__(self, c0, nu, dt, order=2, walls=None, more=None, tol=5e-9):
        space, walls, self.dim = c0.space, walls or {}, c0.space.dim
        outlets = dict.fromkeys(set(space.mesh.boundaries) - set(walls), 0.0)
        options = {"c0": c0, "tol": tol, "preconditioner": "multigrid", "bar": False}
        self.velocity = hp.Problem(space, 1 / dt, walls, diffusivity=nu, components=self.dim, **options)
        # Where all velocities are given they balance but for the error of their interpolation.
        self.pressure = hp.Problem(space, 0.0, outlets, data_tol=0.01, **options)
        more = max(space.orders.values()) // 2 if more is None else more
        self.c0, self.dt, self.order, self.fine = c0, dt, order, space.at(quadrature=more)
        self.values, self.derivatives = hp.BwdTrans(space, self.fine), hp.PhysDeriv(self.fine)
        self.test, self.test_gradient = (
            make(self.fine, space) for make in (hp.IProductWRTBase, hp.IProductWRTDerivBase)
        )
        self.advect = hp.AtPoints(space, advection, components=self.dim, target=self.fine)
        # Memory of what each step makes anew.
        self.w, self.gradient, self.scalar = (self.fine.empty("phys", n) for n in (self.dim, self.dim, 1))
        self.local, self.momentum, self.load = (
            space.empty(state, n) for state, n in (("coeff", self.dim), ("dual", self.dim), ("dual", 1))
        )
        given = {"nu": nu, "rate": 1 / dt}
        self.walls = [hp.WeakForm(space, at_walls, fields=given, components=self.dim, on=name) for name in walls]
        self.vectors, self.device = self.velocity.operator.vectors, self.velocity.operator.device
        conditions = self.velocity.conditions
        self.fixed, self.wall_values = (self.vectors.from_host(a) for a in (conditions.constrained, conditions.values))
        self.normals = {}

    def start(self, *velocities):
        """Begin at time 0 with a velocity, and those at -dt and -2 dt where they are known: global vectors."""
        # Solvers start ahead of more steps than the scheme knows.
        self.known, self.advection, self.pressures = (deque(maxlen=most) for most in (3, self.order, 4))
        self.time = 0.0
        for vector in velocities[::-1]:
            there = self.vectors.from_host(np.asarray(vector))
            self._remember(there, self._scattered(there))
        self._take_order(len(self.advection))

    def _take_order(self, order):
        (self.gamma, self.alpha), self.beta = STIFFLY_STABLE[order], AHEAD[order]
        self.velocity.update(lam=self.gamma / self.dt)
        for form in self.walls:
            form.parameters["rate"] = self.gamma / self.dt

    def _remember(self, vector, field):
        """Keep a velocity, and its advection at the points."""
        self.u = vector
        self.known.appendleft(vector)
        self.advection.appendleft(self.advect(field))

    def _scattered(self, vector):
        """A velocity as a field, until the next one."""
        return self.c0.scatter(vector, self.local, self.device)

    def _combined(self, numbers, arrays):
        """The sum of the latest arrays, each times its number."""
        out = self.vectors.xp.empty_like(arrays[0])
        self.vectors.combine(numbers[: len(arrays)], list(arrays)[: len(numbers)], out)
        return out

    def step(self, dirichlet=None):
        """Advance by dt; `dirichlet` are other values at the walls, a global vector where the problem computes."""
        if len(self.advection) != len(self.alpha):
            self._take_order(len(self.advection))
        before = self._combined([a / self.dt for a in self.alpha], self.known)
        w = self.values(self._scattered(before), out=self.w)
        w.axpy([-beta for beta in self.beta], list(self.advection))
        ahead = self._combined(self.beta, self.known)
        given = self.wall_values if dirichlet is None else dirichlet
        expected = self._scattered(self.vectors.xp.where(self.fixed, given, ahead))

        load = self.test_gradient(w, out=self.load)
        load.axpy([1.0] * len(self.walls), [form(expected)[0] for form in self.walls])
        guess = self._combined(AHEAD[len(self.pressures)], self.pressures) if self.pressures else None
        self.p = self.pressure.solve(load, start=guess)
        self.pressures.appendleft(self.p.pair.read(self.device))

        w.axpy(-1.0, self.derivatives(self.values(self.p, out=self.scalar), out=self.gradient))
        self.test(w, out=self.momentum)
        self.solution = self.velocity.solve(
            self.momentum, dirichlet, self._combined(AHEAD[len(self.known)], self.known)
        )
        self._remember(self.solution.pair.read(self.device), self.solution)
        self.time += self.dt

    def force_on(self, boundary):
        """Integral of p n - nu du/dn over a boundary where the velocity is given; the latter from the residual."""
        if boundary not in self.normals:
            ones = self.c0.space.project(lambda *x: [1.0] * len(x))
            along = hp.WeakForm(
                self.c0.space,
                lambda u, n: [a * b for a, b in zip(u, n, strict=True)],
                trial="value",
                test="value",
                components=self.dim,
                on=boundary,
            )
            self.normals[boundary] = self.c0.gather(along(ones), self.device)
        pressure = self.vectors.numbers(self.vectors.inner(self.normals[boundary], self.p.pair.read(self.device)))
        return np.array(pressure) - self.velocity.flux(self.solution, boundary, self.momentum)

    def vorticity(self):
        """Of a flow in 2-D, as a field for pictures."""
        space = self.c0.space
        slopes = hp.PhysDeriv(space)(hp.BwdTrans(space)(self.solution))
        return hp.FwdTrans(space)(slopes[2] - slopes[1])


def run(flow, steps, every=1, seen=None, boundary=None):
    """Take steps, with the wall values of `boundary(time)`; call `seen()` after every so many of them.

    Returns
    -------
    dict
        "unknowns" of velocity and pressure, "steps_per_second", "unknowns_per_second", "iterations" (mean of the
        pressure's and of the velocity's).
    """
    iterations, unknowns, began = np.zeros(2), (flow.dim + 1) * flow.c0.size, time.perf_counter()
    flow.c0.space.comm.print(f"{unknowns:,} unknowns on {flow.device.name}, {steps} steps of {flow.dt:g}")
    with hp.progress("steps", steps) as advance:
        for step in range(steps):
            flow.step(None if boundary is None else boundary(flow.time + flow.dt))
            iterations += flow.p.info.iterations, flow.solution.info.iterations
            if seen is not None and (step + 1) % every == 0:
                seen()
            advance()
    rate = steps / (time.perf_counter() - began)
    means = (iterations / steps).tolist()
    flow.c0.space.comm.print(
        f"{rate:.3g} steps/s, {rate * unknowns:.3g} unknowns/s, iterations {means[0]:.1f} and {means[1]:.1f}"
    )
    return {
        "unknowns": unknowns,
        "steps_per_second": rate,
        "unknowns_per_second": rate * unknowns,
        "iterations": means,
    }


def kovasznay(order=8, dt=2e-3, steps=50, order_in_time=3, cells=4, backend="auto", reynolds=40.0):
    """Kovasznay's flow behind a grid, moving with the mean flow: known exactly; -> as `run`, and "error" in L2."""
    rate = reynolds / 2 - np.hypot(reynolds / 2, 2 * np.pi)
    mesh = hp.box(("quad", "tri"), cells, lower=(-0.5, -0.5), upper=(1.0, 0.5)).elevated(2)
    mesh = mesh.transformed(lambda x: x + 0.03 * np.sin(2 * np.pi * (x[:, ::-1] + 0.5)))
    c0 = hp.C0Space(hp.Space(mesh, order, backend=backend))

    def at(t):
        def exact(x, y):
            e = np.exp(rate * (x + t))
            return [-e * np.cos(2 * np.pi * y), rate / (2 * np.pi) * e * np.sin(2 * np.pi * y)]

        return exact

    flow = Flow(c0, 1 / reynolds, dt, order_in_time, dict.fromkeys(mesh.boundaries, at(0.0)), tol=1e-11)
    flow.start(*(c0.project(at(-dt * k)) for k in range(order_in_time)))
    initial = flow.u * 1
    found = run(flow, steps, boundary=lambda t: np.exp(rate * t) * initial)
    found["error"] = hp.l2_error(flow.solution, at(flow.time))
    c0.space.comm.print(f"P={order}, dt={dt:g}, order {order_in_time} in time: error {found['error']:.2e}")
    return found


def convergence(backend="auto", orders=(2, 4, 6, 8, 10), times=(0.04, 0.02, 0.01), output=None):
    """Errors of Kovasznay's flow by the order in space, and at the highest by the time step for each order in time.

    Returns
    -------
    dict
        "space": errors by P; "time": {order: errors by dt}.
    """
    space = [kovasznay(order, 2e-3, 20, backend=backend)["error"] for order in orders]
    by_time = {
        k: [kovasznay(max(orders), dt, round(0.4 / dt), k, backend=backend)["error"] for dt in times]
        for k in STIFFLY_STABLE
    }
    if output is not None:
        plt = pyplot()
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        left.semilogy(orders, space, "o-")
        left.set(xlabel="order P", ylabel="error of the velocity", title="Kovasznay's flow")
        for k, errors in by_time.items():
            right.loglog(times, errors, "o-", label=f"order {k}: {np.log2(errors[-2] / errors[-1]):.2f}")
        right.set(xlabel="time step", title=f"in time, P = {max(orders)}")
        right.legend()
        save(figure, output, "kovasznay.png")
    return {"space": space, "time": by_time}


def channel(order, dt, start=None, backend="auto"):
    """The flow of `cylinder` at its beginning."""
    mesh = hp.read_mesh(MESHES / "channel.msh")
    c0 = hp.C0Space(hp.Space(mesh, order, backend=backend))

    def inflow(x, y):
        return [6.0 * y * (0.41 - y) / 0.41**2, 0 * x]

    flow = Flow(c0, 1e-3, dt, 2, {"inlet": inflow, "walls": 0.0, "cylinder": 0.0})
    flow.start(c0.project(inflow if start is None else hp.load(start)["u"]))
    return flow


def cylinder(order=5, dt=5e-4, steps=15000, start=None, backend="auto", output=None, frames=60):
    """Flow around a cylinder in a channel at Re = 100, benchmark 2D-2 of Schäfer and Turek [ST].

    Parameters
    ----------
    start : path, optional
        Of a file of `hp.save` with a velocity "u" to begin with; the inflow everywhere when left out.

    Returns
    -------
    dict
        Of `run`, and "times", "drag", "lift" (coefficients), "largest drag", "largest lift" and "Strouhal" of the last
        period. Published: 3.22 to 3.24, 0.99 to 1.01, 0.295 to 0.305.
    """
    flow = channel(order, dt, start, backend)
    rows, pictures, lasting = [], [], min(0.66, steps * dt)

    def seen():
        rows.append((flow.time, *(2 / 0.1 * flow.force_on("cylinder"))))
        if output is not None and flow.time > steps * dt - lasting * (1 - len(pictures) / frames):
            pictures.append(flow.vorticity())

    found = run(flow, steps, 2, seen)
    times, drag, lift = np.array(rows).T
    found |= {"times": times, "drag": drag, "lift": lift, **last_period(times, drag, lift)}
    print({key: found[key] for key in ("largest drag", "largest lift", "Strouhal")})
    if output is not None:
        plt = pyplot()
        figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
        axis.plot(times, drag, label="drag")
        axis.plot(times, lift, label="lift")
        axis.set(xlabel="time", ylim=(-1.5, 4), title="Coefficients of the forces on the cylinder")
        axis.legend()
        save(figure, output, "cylinder_forces.png")
        movie(pictures, output)
        hp.write_vtu(Path(output) / "cylinder.vtu", {"velocity": flow.solution, "pressure": flow.p})
        hp.save(Path(output) / "cylinder.h5", {"u": flow.solution, "p": flow.p})
    return found


def last_period(times, drag, lift):
    """Largest coefficients and the Strouhal number between the last two times where the lift begins to be positive."""
    rises = np.flatnonzero((lift[:-1] <= 0) & (lift[1:] > 0))
    if len(rises) < 2:
        return {"largest drag": float(drag.max()), "largest lift": float(lift.max()), "Strouhal": np.nan}
    first, last = rises[-2:]
    zeros = times[rises] - lift[rises] * (times[rises + 1] - times[rises]) / (lift[rises + 1] - lift[rises])
    return {
        "largest drag": float(drag[first : last + 1].max()),
        "largest lift": float(lift[first : last + 1].max()),
        "Strouhal": float(0.1 / (zeros[-1] - zeros[-2])),
    }


# Dissipation at Re = 100, read off the figure of [Brachet].
BRACHET = {1.0: 0.00777, 2.0: 0.00928, 3.0: 0.01122, 4.0: 0.01258, 4.9: 0.01298, 6.0: 0.01230, 8.0: 0.00871}


def vortex(order, cells, dt, reynolds=100.0, backend="auto"):
    """The flow of `taylor_green` at its beginning."""
    mesh = hp.box(("hex", "prism", "tet"), cells, upper=(2 * np.pi,) * 3, periodic=("x", "y", "z"))
    c0, sin, cos = hp.C0Space(hp.Space(mesh, order, backend=backend)), np.sin, np.cos
    flow = Flow(c0, 1 / reynolds, dt, 3)
    flow.start(c0.project(lambda x, y, z: [sin(x) * cos(y) * cos(z), -cos(x) * sin(y) * cos(z), 0 * x]))
    return flow


def taylor_green(order=5, cells=6, dt=0.02, steps=500, reynolds=100.0, backend="auto", output=None):
    """The vortex of Taylor and Green (1937) in a periodic box of hexes, prisms, pyramids and tets.

    Returns
    -------
    dict
        Of `run`, and "times", "energy", "dissipation" (nu times the mean of |grad u|^2) and "lost": what the energy
        loses by time, which is the dissipation of all that is resolved.
    """
    flow, volume = vortex(order, cells, dt, reynolds, backend), (2 * np.pi) ** 3
    c0 = flow.c0
    forms = [hp.GlobalOperator(form(c0.space), c0, components=3) for form in (hp.Mass, hp.Laplacian)]
    rows = []

    def seen():
        u = flow.u.ravel()
        mass, stiffness = (flow.vectors.dot(u, A.apply(u, flow.device)) / volume for A in forms)
        rows.append((flow.time, mass / 2, stiffness / reynolds))

    seen()
    found = run(flow, steps, 1, seen)
    times, energy, dissipation = np.array(rows).T
    lost = -np.gradient(energy, times, edge_order=2)
    found |= {"times": times, "energy": energy, "dissipation": dissipation, "lost": lost}
    for at, published in BRACHET.items() if reynolds == 100.0 else ():
        if at <= times[-1] + dt / 2:
            now = np.interp(at, times, dissipation)
            c0.space.comm.print(
                f"t={at:4.1f} dissipation {now:.5f}, lost {np.interp(at, times, lost):.5f}, published {published:.5f}"
            )
    if output is not None:
        plt = pyplot()
        figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
        axis.plot(times, dissipation, label="dissipation")
        axis.plot(times, lost, ":", label="-dE/dt")
        if reynolds == 100.0:
            axis.plot(*zip(*BRACHET.items(), strict=True), "ko", label="Brachet et al. 1983")
        axis.set(xlabel="time", title=f"Taylor-Green vortex, Re = {reynolds:g}, P = {order}, {c0.size:,} nodes")
        axis.legend()
        save(figure, output, "taylor_green.png")
        hp.write_vtu(Path(output) / "taylor_green.vtu", {"velocity": flow.solution, "pressure": flow.p})
    return found


def pyplot():
    """Matplotlib without a window."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure, folder, name):
    """Write a picture."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(folder) / name, dpi=150)
    pyplot().close(figure)
    print("written", Path(folder) / name)


def movie(pictures, folder):
    """The vorticity behind the cylinder: the last frame, and a GIF of all."""
    plt = pyplot()
    from matplotlib.animation import FuncAnimation, PillowWriter

    x, y = np.meshgrid(np.linspace(0.001, 2.199, 500), np.linspace(0.001, 0.409, 94))
    images = [field(x, y) for field in pictures]
    figure, axis = plt.subplots(figsize=(8, 2.0), layout="constrained")
    drawn = axis.imshow(images[-1], extent=(0, 2.2, 0, 0.41), origin="lower", cmap="RdBu_r", vmin=-40, vmax=40)
    axis.set_title("vorticity")
    save(figure, folder, "cylinder.png")

    def show(k):
        drawn.set_data(images[k])
        return (drawn,)

    FuncAnimation(figure, show, frames=len(images)).save(Path(folder) / "cylinder.gif", writer=PillowWriter(fps=15))
    print("written", Path(folder) / "cylinder.gif")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Incompressible flow by velocity correction.")
    parser.add_argument("case", choices=("kovasznay", "cylinder", "taylor-green"))
    parser.add_argument("-P", "--order", type=int, default=5)
    parser.add_argument("--dt", type=float, help="time step")
    parser.add_argument("--steps", type=int, help="number of time steps")
    parser.add_argument("--cells", type=int, default=6, help="taylor-green: boxes in each direction")
    parser.add_argument("--reynolds", type=float, default=100.0, help="taylor-green: 1 / viscosity")
    parser.add_argument("--start", help="cylinder: file of hp.save with the velocity to begin with")
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="folder for pictures, the movie and VTU files")
    given = parser.parse_args()
    common = {"backend": given.backend, "output": given.output}
    chosen = {key: value for key, value in (("dt", given.dt), ("steps", given.steps)) if value is not None}
    if given.case == "kovasznay":
        convergence(**common)
    elif given.case == "cylinder":
        cylinder(given.order, start=given.start, **chosen, **common)
    else:
        taylor_green(given.order, given.cells, reynolds=given.reynolds, **chosen, **common)
