"""A file for ParaView that shows curved cells and the polynomials on them as they are."""

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/curved_mixed_2d.msh"), order=5)
u = hp.solve_helmholtz(space, lam=1.0, f=1.0, dirichlet=0.0)
hp.write_vtu("solution.vtu", u)
assert hp.read_mesh("solution.vtu").n_cells == space.n_cells  # a cell each, of order 5
