"""Advection of a bump around a periodic square, by the classical Runge-Kutta method."""

import numpy as np

import hpfem as hp

space = hp.Space(hp.box("quad", 6, periodic=("x", "y")), order=6, basis="lagrange", quadrature="collocated")
c0 = hp.C0Space(space)
A = hp.GlobalOperator(hp.AdvectionDiffusionReaction(space, velocity=[1.0, 0.0], diffusivity=0.0), c0)
M = hp.GlobalOperator(hp.Mass(space), c0).diagonal()  # all of it, on these points


def bump(x, y):
    return np.exp(np.sin(2 * np.pi * x) + np.cos(2 * np.pi * y))


def rate(u):
    return -(A @ u) / M


u, n = c0.project(bump), 200
for _ in range(n):
    k1 = rate(u)
    k2 = rate(u + k1 / (2 * n))
    k3 = rate(u + k2 / (2 * n))
    k4 = rate(u + k3 / n)
    u = u + (k1 + 2 * k2 + 2 * k3 + k4) / (6 * n)
assert hp.l2_error(c0.scatter(u), bump) < 1e-4
