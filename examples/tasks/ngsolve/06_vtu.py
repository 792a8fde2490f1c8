"""A file for ParaView: cells of order 2 at most."""

from pathlib import Path

import ngsolve as ng
from netgen.geom2d import unit_square
from ngsolve import dx, grad

mesh = ng.Mesh(unit_square.GenerateMesh(maxh=0.25))
fes = ng.H1(mesh, order=5, dirichlet=".*")
u, v = fes.TnT()
a = ng.BilinearForm((grad(u) * grad(v) + u * v) * dx).Assemble()
f = ng.LinearForm(v * dx).Assemble()
gfu = ng.GridFunction(fes)
gfu.vec.data = a.mat.Inverse(fes.FreeDofs()) * f.vec
ng.VTKOutput(mesh, [gfu], ["u"], "solution", subdivision=3, order=2).Do()
assert Path("solution.vtu").exists()
