"""The heat equation, by the backward Euler method."""

import ngsolve as ng
from netgen.geom2d import unit_square
from ngsolve import dx, grad, pi

dt = 1e-3
mesh = ng.Mesh(unit_square.GenerateMesh(maxh=0.25))
fes = ng.H1(mesh, order=8, dirichlet="left|right")
u, v = fes.TnT()
m = ng.BilinearForm(u * v / dt * dx).Assemble()
a = ng.BilinearForm((u * v / dt + grad(u) * grad(v)) * dx).Assemble()
inverse = a.mat.Inverse(fes.FreeDofs())
gfu = ng.GridFunction(fes)
gfu.Set(ng.sin(pi * ng.x))
for _ in range(20):
    gfu.vec.data = inverse * (m.mat * gfu.vec)
decay = (1 + pi**2 * dt) ** -20
assert ng.Integrate((gfu - decay * ng.sin(pi * ng.x)) ** 2, mesh) ** 0.5 < 1e-7
