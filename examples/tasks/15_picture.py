"""A picture of the solution."""

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/curved_mixed_2d.msh"), order=6)
u = hp.solve_helmholtz(space, lam=1.0, f=1.0, dirichlet=0.0)
u.plot("solution.png")
