"""The conductivity of a plate from its temperature at some points, which is heated from the right: an inverse problem.

    python examples/conductivity.py
    python examples/conductivity.py --points 400 --noise 0.001

The unknown is m, with the conductivity exp(m), a function of the space. Gauss-Newton's method reduces the misfit of the
temperature at the points plus a small multiple of the slopes of m. Each product with its matrix takes two linear
solves: the change of the temperature by m, and the transposed one. `hp.SolutionMap` has both.
"""

import argparse

import numpy as np

import hpfem as hp


def conductivity(x, y):
    """What is to be found: a good conductor and a bad one."""
    return np.exp(np.exp(-30 * ((x - 0.3) ** 2 + (y - 0.65) ** 2)) - np.exp(-30 * ((x - 0.65) ** 2 + (y - 0.35) ** 2)))


def main(cells=12, points=144, noise=1e-3, alpha=1e-4, steps=4, backend="auto"):
    """Measure, with errors, and find the conductivity.

    Parameters
    ----------
    noise : float
        Of the temperature, whose largest value is about 1.
    alpha : float
        Factor of the slopes of m.

    Returns
    -------
    dict
        "misfit" (before each step), "error" of the conductivity relative to its difference from 1, "space", "found"
        (the global coefficients of m), "places" of the points.
    """
    space = hp.Space(hp.box(("quad", "tri"), (cells, cells)), 2, "lagrange", backend=backend)
    field = space.evaluate(lambda x, y: 1.0)  # it changes with the data of `solution`
    problem = hp.Problem(space, dirichlet={"xmin": 0.0}, neumann={"xmax": 1.0}, diffusivity=field, bar=False)
    solution = hp.SolutionMap(problem, {"diffusivity": "function"}, preconditioner="multigrid", tol=1e-8)
    c0 = problem.c0
    # Values at nodes are coefficients of this basis: measure at those nearest to a lattice.
    lattice = (np.stack(np.meshgrid(*[np.arange(round(points**0.5)) + 0.5] * 2), -1) / round(points**0.5)).reshape(
        -1, 2
    )
    at = np.unique(np.argmin(((c0.coordinates[:, None] - lattice) ** 2).sum(2), axis=0))
    exact = c0.project(conductivity)
    measured = solution({"diffusivity": exact}).vector[at]
    measured = measured + noise * np.random.default_rng(0).standard_normal(len(at))

    slopes = hp.GlobalOperator(hp.Helmholtz(space, 0.1), c0)
    precondition = hp.Multigrid(slopes)
    m, misfits = np.zeros(c0.size), []
    for _ in range(steps):
        k = {"diffusivity": np.exp(m)}
        u = solution(k).vector
        misfits.append(float(np.linalg.norm(u[at] - measured) / len(at) ** 0.5))

        def transposed(residual, k=k, u=u):
            w = np.zeros(c0.size)
            w[at] = residual
            return k["diffusivity"] * solution.pullback(k, w, u)["diffusivity"]

        def product(p, k=k, u=u, transposed=transposed):
            change = solution.forward(k, {"diffusivity": k["diffusivity"] * p}, u)
            return transposed(change[at]) + alpha * (slopes @ p)

        right = transposed(u[at] - measured) + alpha * (slopes @ m)
        step, _ = hp.cg(product, right, precondition, tol=0.1, bar=False)
        m = m - step
        space.comm.print(f"misfit {misfits[-1]:.2e}")
    error = np.linalg.norm(np.exp(m) - exact) / np.linalg.norm(exact - 1)
    space.comm.print(f"{len(at)} points, {c0.size} unknowns: error {error:.2f} of the difference from 1")
    return {
        "misfit": misfits,
        "error": float(error),
        "space": space,
        "found": c0.scatter(m),
        "places": c0.coordinates[at],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A conductivity from temperatures at points.")
    parser.add_argument("--points", type=int, default=144)
    parser.add_argument("--noise", type=float, default=1e-3)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    given = parser.parse_args()
    main(points=given.points, noise=given.noise, backend=given.backend)
