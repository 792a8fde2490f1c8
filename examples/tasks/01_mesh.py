"""Load one's own curved mesh of gmsh, and look at it."""

import hpfem as hp

mesh = hp.read_mesh("meshes/disc.msh")  # quads and tris of order 2
print(mesh.summary())
assert abs(mesh.summary().volume / 3.14159265 - 1) < 2e-5
