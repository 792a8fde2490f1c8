"""An h-refinement study on a curved mesh: the error falls with h to the power of P + 1."""

import ngsolve as ng
import numpy as np
from netgen.occ import Circle, OCCGeometry
from ngsolve import dx, grad

mesh = ng.Mesh(OCCGeometry(Circle((0, 0), 1).Face(), dim=2).GenerateMesh(maxh=0.7))
exact, errors = ng.sin(2 * ng.x + ng.y), []
for _ in range(4):
    mesh.Curve(3)
    fes = ng.H1(mesh, order=3, dirichlet=".*")
    u, v = fes.TnT()
    a = ng.BilinearForm((grad(u) * grad(v) + u * v) * dx).Assemble()
    f = ng.LinearForm(6 * exact * v * dx).Assemble()
    gfu = ng.GridFunction(fes)
    gfu.Set(exact, definedon=mesh.Boundaries(".*"))
    gfu.vec.data += a.mat.Inverse(fes.FreeDofs()) * (f.vec - a.mat * gfu.vec)
    errors.append(ng.Integrate((gfu - exact) ** 2, mesh) ** 0.5)
    mesh.Refine()
rates = np.log2(np.divide(errors[:-1], errors[1:]))
assert abs(rates[-1] - 4) < 0.15
