"""The heat equation, by implicit time steps."""

import numpy as np

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/square_mixed.msh"), order=8)
c0 = hp.C0Space(space)
bc = hp.BoundaryConditions(c0, {"xmin": 0.0, "xmax": 0.0})
heat = hp.march(hp.Laplacian(space), lambda x, y: np.sin(np.pi * x), (0, 0.02), c0, bc, method="esdirk3", dt=2e-3)
assert hp.l2_error(heat.u, lambda x, y: np.exp(-0.02 * np.pi**2) * np.sin(np.pi * x)) < 1e-7
