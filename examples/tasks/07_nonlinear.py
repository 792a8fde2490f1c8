"""A nonlinear problem: -div grad u + u**3 = f, by Newton's method."""

import numpy as np

import hpfem as hp


def exact(x, y, z):
    return np.sin(np.pi * x) * np.exp(y - z)


space = hp.Space(hp.read_mesh("meshes/cube_mixed.msh"), order=6)
c0 = hp.C0Space(space)
bc = hp.BoundaryConditions(c0, dirichlet=exact)
form = hp.WeakForm(space, lambda u, du: (u**3, du))
u, _ = hp.newton(form, c0, bc, f=lambda *x: (np.pi**2 - 2) * exact(*x) + exact(*x) ** 3)
assert hp.l2_error(u, exact) < 1e-6
