"""Linear elasticity: a beam, clamped at one end, under its weight."""

import hpfem as hp


def stress(du, lam, mu):
    trace = sum(du[i][i] for i in range(3))
    return [[mu * (du[i][j] + du[j][i]) + (lam * trace if i == j else 0) for j in range(3)] for i in range(3)]


space = hp.Space(hp.box("hex", (8, 1, 1), upper=(8.0, 1.0, 1.0)), order=4)
c0 = hp.C0Space(space)
bc = hp.BoundaryConditions(c0, dirichlet={"xmin": (0.0, 0.0, 0.0)}, components=3)
form = hp.WeakForm(space, stress, "grad", "grad", components=3, fields={"lam": 576.9, "mu": 384.6})
A = hp.GlobalOperator(form, c0, bc)
weight = hp.IProductWRTBase(space)(space.evaluate(lambda x, y, z: [0 * x, 0 * x, 0 * x - 0.01]))
u, info = hp.solve(A, A.right_hand_side(c0.gather(weight)), preconditioner="multigrid")
end = c0.scatter(u.reshape(3, -1)).at([[8.0, 0.5, 0.5]])[2, 0]
print(end, info.iterations)
assert abs(end / -0.0624 - 1) < 0.02
