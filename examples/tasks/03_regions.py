"""A conductivity by region."""

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/curved_mixed_2d.msh"), order=6)
k = {"left": 10.0, "right": lambda x, y: 1 + y}
u = hp.solve_helmholtz(space, lam=0.0, f=1.0, diffusivity=k, dirichlet=0.0)
energy = u.dot(hp.Helmholtz(space, lam=0.0, diffusivity=k)(u))
assert abs(energy / space.integrate(u) - 1) < 1e-9
