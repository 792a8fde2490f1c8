"""The heat that flows through a wall."""

import ngsolve as ng
from netgen.csg import unit_cube
from ngsolve import dx, grad

mesh = ng.Mesh(unit_cube.GenerateMesh(maxh=0.5))
fes = ng.H1(mesh, order=4, dirichlet="back|front")
u, v = fes.TnT()
a = ng.BilinearForm(grad(u) * grad(v) * dx).Assemble()
gfu, one = ng.GridFunction(fes), ng.GridFunction(fes)
gfu.Set(1, definedon=mesh.Boundaries("front"))
gfu.vec.data -= a.mat.Inverse(fes.FreeDofs()) * (a.mat * gfu.vec)
heat = {}
for wall in ("back", "front"):
    one.Set(1, definedon=mesh.Boundaries(wall))
    heat[wall] = ng.InnerProduct(one.vec, a.mat * gfu.vec)
assert abs(heat["back"] + heat["front"]) < 1e-9 * heat["front"]
