"""The smallest eigenvalues of the Laplacian on the disc: squares of zeros of Bessel functions."""

import ngsolve as ng
import numpy as np
from netgen.occ import Circle, OCCGeometry
from ngsolve import dx, grad
from scipy.sparse import csr_array
from scipy.sparse.linalg import eigsh
from scipy.special import jn_zeros

mesh = ng.Mesh(OCCGeometry(Circle((0, 0), 1).Face(), dim=2).GenerateMesh(maxh=0.5)).Curve(5)
fes = ng.H1(mesh, order=5, dirichlet=".*")
u, v = fes.TnT()
a = ng.BilinearForm(grad(u) * grad(v) * dx).Assemble()
m = ng.BilinearForm(u * v * dx).Assemble()
free = np.array(fes.FreeDofs(), dtype=bool)
K, M = (csr_array(form.mat.CSR())[free][:, free] for form in (a, m))
values, modes = eigsh(K, 4, M, sigma=0)
expected = np.array([jn_zeros(0, 1)[0], jn_zeros(1, 1)[0], jn_zeros(1, 1)[0], jn_zeros(2, 1)[0]]) ** 2
assert np.abs(values / expected - 1).max() < 1e-3
