"""A nonlinear problem: -div grad u + u**3 = f, by Newton's method."""

import numpy as np

import hpfem as hp


def exact(x, y, z):
    return np.sin(np.pi * x) * np.exp(y - z)


def residual(u, du, f):
    return u**3 - f, du


def tangent(u, du, w):
    return 3 * w**2 * u, du


space = hp.Space(hp.read_mesh("meshes/cube_mixed.msh"), order=6)
c0 = hp.C0Space(space)
bc = hp.BoundaryConditions(c0, dirichlet=exact)
f = space.evaluate(lambda *x: (np.pi**2 - 2) * exact(*x) + exact(*x) ** 3)
F = hp.GlobalOperator(hp.WeakForm(space, residual, fields={"f": f}), c0)
u = bc.values
for _ in range(6):
    w = c0.scatter(u)
    A = hp.GlobalOperator(hp.WeakForm(space, tangent, fields={"w": w}), c0, bc)
    u = u - hp.solve(A, bc.free * (F @ u), tol=1e-10)[0]
assert hp.l2_error(c0.scatter(u), exact) < 1e-6
