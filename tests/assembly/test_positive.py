"""Operators that are seen to be positive semidefinite: never one that is not, against eigenvalues."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from tests.assembly.meshes import ours, rotated


def made(form, conditions, space):
    c0 = hp.C0Space(space)
    return hp.GlobalOperator(form(space), c0, hp.BoundaryConditions(c0, **conditions))


def tensor(T):
    T = np.asarray(T, float)
    return lambda s: hp.WeakForm(
        s, lambda du: [sum(T[i][j] * du[j] for j in range(2)) for i in range(2)], "grad", "grad"
    )


def elastic(space):
    def stress(du):
        strain = [[(du[i][j] + du[j][i]) / 2 for j in range(2)] for i in range(2)]
        return [[2 * strain[i][j] + (strain[0][0] + strain[1][1] if i == j else 0) for j in range(2)] for i in range(2)]

    return hp.WeakForm(space, stress, "grad", "grad", components=2)


SEEN = {
    "mass": (hp.Mass, {}),
    "laplacian": (hp.Laplacian, {}),
    "helmholtz": (lambda s: hp.Helmholtz(s, 1.0), {}),
    "no reaction": (lambda s: hp.Helmholtz(s, 0.0), {}),
    "fields": (lambda s: hp.Helmholtz(s, lambda x, y: x, lambda x, y: 1 + y), {"robin": (lambda x, y: x, 0.0)}),
    "tensor": (tensor([[2.0, 1.0], [1.0, 2.0]]), {}),
    "along a line": (tensor([[1.0, 1.0], [1.0, 1.0]]), {}),
    "elasticity": (elastic, {}),
    "little advection": (lambda s: hp.AdvectionDiffusionReaction(s, [0.1, 0.1], 1.0, 1.0), {}),
}
NOT_SEEN = {
    "negative reaction": (lambda s: hp.Helmholtz(s, -1e-9), {}),
    "negative in a corner": (lambda s: hp.Helmholtz(s, lambda x, y: 1.0 - 1.01 * x * y), {}),
    "negative diffusion": (lambda s: hp.Helmholtz(s, 1e9, -1.0), {}),
    "huge diffusion": (lambda s: hp.Helmholtz(s, -1.0, 1e20), {}),
    "negative alpha": (lambda s: hp.Helmholtz(s, 1.0), {"robin": {"xmin": (-1e-3, 0.0)}}),
    "indefinite tensor": (tensor([[1.0, 2.0], [2.0, 1.0]]), {}),
    "off the diagonal": (tensor([[0.0, 1.0], [1.0, 0.0]]), {}),
    "not linear": (lambda s: hp.WeakForm(s, lambda u: u**3, "value", "value"), {}),
    "nan": (lambda s: hp.Helmholtz(s, s.field("phys", [np.full((1, 4, b.n_points), np.nan) for b in s.blocks])), {}),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", SEEN)
def test_seen(case, dtype):
    A = made(*SEEN[case], hp.Space(box("quad", (2, 2)), 3, dtype=dtype))
    assert A.is_positive() is True
    matrix = A.assemble().toarray().astype(float)
    values = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    assert values[0] > -1e-6 * values[-1]


@pytest.mark.parametrize("case", NOT_SEEN)
def test_not_seen(case):
    assert made(*NOT_SEEN[case], hp.Space(box("quad", (2, 2)), 3)).is_positive() is False


def test_it_is_that_of_the_present_coefficients():
    space = hp.Space(box("tri", (2, 2)), 2)
    form = hp.Helmholtz(space, 1.0)
    A = hp.GlobalOperator(form, hp.C0Space(space))
    assert A.is_positive()
    form.parameters["lam"] = -1.0
    assert not A.is_positive()


def test_an_elliptic_part_keeps_conditions_that_are_positive():
    c0 = hp.C0Space(hp.Space(box("quad", (2, 2)), 2))
    for alpha in (2.0, -2.0):
        bc = hp.BoundaryConditions(c0, dirichlet={"xmax": 1.0}, robin={"xmin": (alpha, 0.0)})
        A = hp.GlobalOperator(hp.AdvectionDiffusionReaction(c0.space, [1.0, 2.0]), c0, bc)
        part = A.elliptic_part()
        assert part.is_positive() and part.symmetric
        assert np.array_equal(part.bc.constrained, bc.constrained)
        assert (part.bc.matrix is not None) == (alpha > 0)


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("mesh", ["cube_mixed.msh", "curved_mixed_2d.msh"])
def test_the_diagonal_of_an_elliptic_part(mesh, components, rng):
    c0 = hp.C0Space(hp.Space(rotated(ours(mesh), rng), 4))
    d = c0.space.mesh.dim

    def form(u, du, x):
        return -3 * u + 2 * du[0], [du[i] * (1 + x[0] ** 2) + (u if i else 0) for i in range(d)]

    bc = hp.BoundaryConditions(c0, dirichlet={sorted(c0.space.mesh.boundaries)[0]: 0.0})
    A = hp.GlobalOperator(hp.WeakForm(c0.space, form), c0, bc, components)
    found, expected = A.diagonal(elliptic=True), A.elliptic_part().assemble().diagonal()
    assert np.abs(found - expected).max() <= 1e-12 * expected.max()
