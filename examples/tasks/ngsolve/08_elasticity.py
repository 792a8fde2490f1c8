"""Linear elasticity: a beam, clamped at one end, under its weight."""

import ngsolve as ng
from netgen.occ import Box, OCCGeometry, X
from ngsolve import dx, grad

beam = Box((0, 0, 0), (8, 1, 1))
beam.faces.Min(X).name = "clamp"
mesh = ng.Mesh(OCCGeometry(beam).GenerateMesh(maxh=1))
fes = ng.VectorH1(mesh, order=4, dirichlet="clamp")
u, v = fes.TnT()


def strain(u):
    return (grad(u) + grad(u).trans) / 2


stress = 576.9 * ng.Trace(strain(u)) * ng.Id(3) + 2 * 384.6 * strain(u)
a = ng.BilinearForm(ng.InnerProduct(stress, strain(v)) * dx).Assemble()
f = ng.LinearForm(-0.01 * v[2] * dx).Assemble()
gfu = ng.GridFunction(fes)
gfu.vec.data = a.mat.Inverse(fes.FreeDofs()) * f.vec
end = gfu(mesh(8, 0.5, 0.5))[2]
assert abs(end / -0.0624 - 1) < 0.02
