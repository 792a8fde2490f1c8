"""Poisson's problem with boundary conditions by name."""

import ngsolve as ng
from netgen.csg import unit_cube
from ngsolve import dx, grad

mesh = ng.Mesh(unit_cube.GenerateMesh(maxh=0.5))
fes = ng.H1(mesh, order=4, dirichlet="back")
u, v = fes.TnT()
a = ng.BilinearForm(grad(u) * grad(v) * dx).Assemble()
f = ng.LinearForm(v * dx + v * ng.ds("front")).Assemble()
gfu = ng.GridFunction(fes)
gfu.vec.data = a.mat.Inverse(fes.FreeDofs()) * f.vec
error = ng.Integrate((gfu - (2 * ng.x - ng.x**2 / 2)) ** 2, mesh) ** 0.5
assert error < 1e-9
