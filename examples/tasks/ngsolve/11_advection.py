"""Advection of a bump around a periodic square, by the classical Runge-Kutta method."""

import ngsolve as ng
from ngsolve import dx, grad, pi
from ngsolve.meshes import MakeStructured2DMesh

mesh = MakeStructured2DMesh(quads=True, nx=6, ny=6, periodic_x=True, periodic_y=True)
fes = ng.Periodic(ng.H1(mesh, order=6))
u, v = fes.TnT()
a = ng.BilinearForm(-grad(u)[0] * v * dx).Assemble()
m = ng.BilinearForm(u * v * dx).Assemble()
rate = m.mat.Inverse(fes.FreeDofs()) @ a.mat
bump = ng.exp(ng.sin(2 * pi * ng.x) + ng.cos(2 * pi * ng.y))
gfu, n = ng.GridFunction(fes), 200
gfu.Set(bump)
for _ in range(n):
    k1 = (rate * gfu.vec).Evaluate()
    k2 = (rate * (gfu.vec + 0.5 / n * k1).Evaluate()).Evaluate()
    k3 = (rate * (gfu.vec + 0.5 / n * k2).Evaluate()).Evaluate()
    k4 = (rate * (gfu.vec + 1 / n * k3).Evaluate()).Evaluate()
    gfu.vec.data += 1 / (6 * n) * (k1 + 2 * k2 + 2 * k3 + k4)
assert ng.Integrate((gfu - bump) ** 2, mesh) ** 0.5 < 2e-4
