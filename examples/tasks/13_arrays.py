"""Arrays to and from NumPy, SciPy and PyTorch."""

import numpy as np
from scipy.sparse.linalg import cg

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/square_mixed.msh"), order=4)
c0 = hp.C0Space(space)
bc = hp.BoundaryConditions(c0, dirichlet=0.0)
A = hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0, bc)  # of SciPy
x, info = cg(A, bc.free * c0.gather(hp.IProductWRTBase(space)(space.evaluate(lambda x, y: 1 + 0 * x))), rtol=1e-10)
u = c0.scatter(x)
arrays = [np.asarray(block) for block in u.data]  # torch.from_dlpack(block) takes them likewise
v = space.field("coeff", [2 * array for array in arrays])
assert info == 0 and abs(space.integrate(v) / space.integrate(u) - 2) < 1e-12
