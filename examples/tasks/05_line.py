"""Values along a line."""

import numpy as np

import hpfem as hp

space = hp.Space(hp.read_mesh("meshes/curved_mixed_2d.msh"), order=8)
u = space.project(lambda x, y: np.sin(3 * x) * y)
x = np.linspace(0.2, 0.9, 1001)
values = u(x, 0.5)
assert np.abs(values - np.sin(3 * x) * 0.5).max() < 1e-7
