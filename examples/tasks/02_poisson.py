"""Poisson's problem with boundary conditions by name."""

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/cube_mixed.msh"), order=4)
u = hp.solve_helmholtz(space, lam=0.0, f=1.0, dirichlet={"xmin": 0.0}, neumann={"xmax": 1.0})
error = hp.l2_error(u, lambda x, y, z: 2 * x - x**2 / 2)
assert error < 1e-9
