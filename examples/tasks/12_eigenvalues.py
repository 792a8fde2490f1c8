"""The smallest eigenvalues of the Laplacian on the disc: squares of zeros of Bessel functions."""

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.special import jn_zeros

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/disc.msh"), order=5)
c0 = hp.C0Space(space)
bc = hp.BoundaryConditions(c0, dirichlet=0.0)
K, M = (hp.GlobalOperator(form, c0).assemble() for form in (hp.Laplacian(space), hp.Mass(space)))
values, modes = eigsh(K[bc.free][:, bc.free], 4, M[bc.free][:, bc.free], sigma=0)
expected = np.array([jn_zeros(0, 1)[0], jn_zeros(1, 1)[0], jn_zeros(1, 1)[0], jn_zeros(2, 1)[0]]) ** 2
assert np.abs(values / expected - 1).max() < 1e-3
