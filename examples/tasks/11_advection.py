"""Advection of a bump around a periodic square, by a Runge-Kutta method."""

import numpy as np

import hpfem as hp

space = hp.Space(hp.box("quad", 6, periodic=("x", "y")), order=6, basis="lagrange", quadrature="collocated")
flow = hp.AdvectionDiffusionReaction(space, velocity=[1.0, 0.0], diffusivity=0.0)


def bump(x, y):
    return np.exp(np.sin(2 * np.pi * x) + np.cos(2 * np.pi * y))


run = hp.march(flow, bump, (0, 1), hp.C0Space(space), method="low4", dt=1 / 200)
assert hp.l2_error(run.u, bump) < 1e-4
