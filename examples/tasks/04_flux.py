"""The heat that flows through a wall."""

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/curved_mixed.msh"), order=4)
problem = hp.Problem(space, lam=0.0, dirichlet={"xmin": 0.0, "xmax": 1.0})
u = problem.solve()
heat = {wall: problem.flux(u, wall) for wall in ("xmin", "xmax")}
assert abs(heat["xmin"] + heat["xmax"]) < 1e-9 * heat["xmax"]
