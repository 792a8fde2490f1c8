"""An h-refinement study on a curved mesh: the error falls with h to the power of P + 1."""

import numpy as np

import hpfem as hp


def exact(x, y):
    return np.sin(2 * x + y)


mesh, errors = hp.read_mesh("meshes/curved_mixed_2d.msh"), []
for _ in range(4):
    u = hp.solve_helmholtz(hp.Space(mesh, order=3), lam=1.0, f=lambda x, y: 6 * exact(x, y), dirichlet=exact)
    errors.append(hp.l2_error(u, exact))
    mesh = mesh.refined()
rates = np.log2(np.divide(errors[:-1], errors[1:]))
print(rates)
assert abs(rates[-1] - 4) < 0.15
