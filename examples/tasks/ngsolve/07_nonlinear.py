"""A nonlinear problem: -div grad u + u**3 = f, by Newton's method."""

import ngsolve as ng
from netgen.csg import unit_cube
from ngsolve import dx, grad, pi
from ngsolve.solvers import Newton

mesh = ng.Mesh(unit_cube.GenerateMesh(maxh=0.5))
fes = ng.H1(mesh, order=6, dirichlet=".*")
u, v = fes.TnT()
exact = ng.sin(pi * ng.x) * ng.exp(ng.y - ng.z)
f = (pi**2 - 2) * exact + exact**3
a = ng.BilinearForm(fes)
a += (grad(u) * grad(v) + (u**3 - f) * v) * dx
gfu = ng.GridFunction(fes)
gfu.Set(exact, definedon=mesh.Boundaries(".*"))
Newton(a, gfu, printing=False)
assert ng.Integrate((gfu - exact) ** 2, mesh) ** 0.5 < 1e-5
