"""The heat equation, by the backward Euler method."""

import numpy as np

import hpfem as hp

dt = 1e-3
space = hp.Space(hp.read_mesh("meshes/square_mixed.msh"), order=8)
heat, values = hp.Problem(space, lam=1 / dt, dirichlet={"xmin": 0.0, "xmax": 0.0}), hp.BwdTrans(space)
u = space.project(lambda x, y: np.sin(np.pi * x))
for _ in range(20):
    u = heat.solve(values(u) * (1 / dt))
decay = (1 + np.pi**2 * dt) ** -20
assert hp.l2_error(u, lambda x, y: decay * np.sin(np.pi * x)) < 1e-7
