"""Arrays to and from NumPy and SciPy."""

import ngsolve as ng
import numpy as np
from netgen.geom2d import unit_square
from ngsolve import dx, grad
from scipy.sparse import csr_array
from scipy.sparse.linalg import cg

mesh = ng.Mesh(unit_square.GenerateMesh(maxh=0.25))
fes = ng.H1(mesh, order=4, dirichlet=".*")
u, v = fes.TnT()
a = ng.BilinearForm((grad(u) * grad(v) + u * v) * dx).Assemble()
f = ng.LinearForm(v * dx).Assemble()
free = np.array(fes.FreeDofs(), dtype=bool)
x, info = cg(csr_array(a.mat.CSR())[free][:, free], f.vec.FV().NumPy()[free], rtol=1e-10)
gfu, twice = ng.GridFunction(fes), ng.GridFunction(fes)
gfu.vec.FV().NumPy()[free] = x
twice.vec.FV().NumPy()[:] = 2 * gfu.vec.FV().NumPy()
assert info == 0 and abs(ng.Integrate(twice, mesh) / ng.Integrate(gfu, mesh) - 2) < 1e-12
