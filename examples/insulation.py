"""The best shape of the insulation around a pipe, by the derivatives of its cost by the nodes of the mesh.

    python examples/insulation.py
    python examples/insulation.py --order 6 --geometry 6

The inside of the insulation is at temperature 1 and the outside at 0. The cost is the heat that is lost, the integral
of |grad u|^2, and a price times the area of the insulation. At the best shape the flux through the outside is the root
of the price everywhere. Around a round pipe the best shape is a ring about its middle, wherever the first guess is.

The temperature makes the heat least. So the derivative of the cost is that at a fixed temperature, and no adjoint
problem is solved.
"""

import argparse

import numpy as np
from scipy.optimize import minimize

import hpfem as hp


def radii(theta, numbers):
    """The radius as a series of sines and cosines, and its derivatives by the numbers."""
    waves = np.arange(1, (len(numbers) + 1) // 2)[:, None] * theta
    terms = np.concatenate([np.ones((1, len(theta))), np.cos(waves), np.sin(waves)])
    return numbers @ terms, terms


class Insulation:
    """Cells between a pipe and an outside with a radius; `pipe` is a function from angles to points, [2, n]."""

    def __init__(self, pipe, price=1.0, order=4, geometry=4, cells=(12, 2), backend="auto"):
        box = hp.box("quad", cells, periodic=("x",)).elevated(geometry)
        self.box, self.pipe, self.price, self.order, self.backend = box, pipe, price, order, backend
        self.theta, self.part = -2 * np.pi * box.points[:, 0], box.points[:, 1]
        self.out = np.stack([np.cos(self.theta), np.sin(self.theta)])

    def solve(self, numbers):
        """The cost, the temperature, and the change of the points by each of the numbers, [numbers, n, 2]."""
        radius, terms = radii(self.theta, numbers)
        points = (1 - self.part) * self.pipe(self.theta) + self.part * radius * self.out
        space = hp.Space(self.box.transformed(lambda _: points.T), self.order, backend=self.backend)
        u = hp.solve_helmholtz(space, 0.0, dirichlet={"ymin": 1.0, "ymax": 0.0}, tol=1e-11, bar=False)
        cost = hp.Energy(space, lambda du: du.dot(du)) + self.price * hp.Energy(space, lambda u: 1.0)
        return cost, u, (self.part * terms)[:, :, None] * self.out.T

    def cost(self, numbers):
        """The cost of a shape and its derivatives by the numbers."""
        cost, u, changes = self.solve(numbers)
        return cost(u), hp.node_gradient(cost, u, along=changes)

    def flux(self, numbers):
        """Mean and standard deviation of the flux through the outside."""
        _, u, _ = self.solve(numbers)
        length = u.space.integrate_boundary(1.0, "ymax")
        mean = hp.Energy(u.space, lambda du: np.sqrt(du.dot(du)), on="ymax")(u) / length
        apart = hp.Energy(u.space, lambda du, m: (np.sqrt(du.dot(du)) - m) ** 2, {"m": mean}, on="ymax")(u)
        return mean, np.sqrt(apart / length)


def round_pipe(theta, radius=0.4, middle=(0.15, 0.1)):
    """A circle, seen from a point beside its middle."""
    along = middle[0] * np.cos(theta) + middle[1] * np.sin(theta)
    across = middle[0] * np.sin(theta) - middle[1] * np.cos(theta)
    return (along + np.sqrt(radius**2 - across**2)) * np.stack([np.cos(theta), np.sin(theta)])


def main(pipe=round_pipe, waves=6, start=0.8, **options):
    """Find the best shape.

    Parameters
    ----------
    pipe : callable
        The inside.
    waves : int
        Of the series for the radius of the outside.
    start : float
        Radius of the first guess, a circle.

    Returns
    -------
    dict
        "numbers" (of the radius), "cost" and "flux" (mean and deviation) before and after, "solves".
    """
    shape, first = Insulation(pipe, **options), np.array([start, *[0.0] * (2 * waves)])
    # The cost of a wave grows with its number; without this guess the first step would tangle cells.
    curvature = 20 * (1 + np.concatenate([[0], np.arange(waves), np.arange(waves)]))
    how = {"gtol": 1e-7, "hess_inv0": np.diag(1 / curvature)}
    found = minimize(shape.cost, first, jac=True, method="BFGS", options=how)
    costs, fluxes = (shape.cost(first)[0], float(found.fun)), (shape.flux(first), shape.flux(found.x))
    for name, cost, (mean, deviation) in zip(("first", "best"), costs, fluxes, strict=True):
        shape.box.comm.print(f"{name} shape: cost {cost:.6f}, flux {mean:.4f} with deviation {deviation:.1e}")
    shape.box.comm.print(f"{found.nfev} solves")
    return {"numbers": found.x, "cost": costs, "flux": fluxes, "solves": found.nfev}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The best insulation around a pipe.")
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--geometry", type=int, default=4, help="order of the cells' sides")
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(order=given.order, geometry=given.geometry, backend=given.backend)
