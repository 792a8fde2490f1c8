"""A conductivity by region."""

import ngsolve as ng
from netgen.occ import Glue, OCCGeometry, Rectangle
from ngsolve import dx, grad

left, right = Rectangle(0.5, 1).Face(), Rectangle(0.5, 1).Face().Move((0.5, 0, 0))
left.faces.name, right.faces.name = "left", "right"
mesh = ng.Mesh(OCCGeometry(Glue([left, right]), dim=2).GenerateMesh(maxh=0.25))
fes = ng.H1(mesh, order=6, dirichlet=".*")
u, v = fes.TnT()
k = mesh.MaterialCF({"left": 10.0, "right": 1 + ng.y})
a = ng.BilinearForm(k * grad(u) * grad(v) * dx).Assemble()
f = ng.LinearForm(v * dx).Assemble()
gfu = ng.GridFunction(fes)
gfu.vec.data = a.mat.Inverse(fes.FreeDofs(), inverse="sparsecholesky") * f.vec
energy = ng.InnerProduct(gfu.vec, a.mat * gfu.vec)
assert abs(energy / ng.Integrate(gfu, mesh) - 1) < 1e-9
