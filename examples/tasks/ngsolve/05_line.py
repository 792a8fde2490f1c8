"""Values along a line."""

import netgen.geom2d
import ngsolve as ng
import numpy as np

mesh = ng.Mesh(netgen.geom2d.unit_square.GenerateMesh(maxh=0.25))
u = ng.GridFunction(ng.H1(mesh, order=8))
u.Set(ng.sin(3 * ng.x) * ng.y)
x = np.linspace(0.2, 0.9, 1001)
values = u(mesh(x, 0 * x + 0.5))[:, 0]
assert np.abs(values - np.sin(3 * x) * 0.5).max() < 1e-7
