"""What the graph of a form tells: its coefficients and its elliptic part."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.forms.linear import coefficients, is_symmetric
from hpfem.mesh import box
from tests.assembly.meshes import ours
from tests.cases import each_shape

# Neither symmetric nor diagonal.
TENSOR = np.array([[2.0, 0.7, -0.3], [0.1, 1.5, 0.4], [-0.5, 0.2, 3.0]])


def matrix(operator):
    return hp.GlobalOperator(operator, hp.C0Space(operator.space)).assemble()


def same(one, other):
    return abs(one - other).max() <= 1e-12 * abs(other).max()


@each_shape([s for s in hp.shapes.SHAPES.values() if s.dim > 1])
@pytest.mark.parametrize("order", [1, 2, 4, 8])
def test_of_advection_diffusion_it_is_diffusion_and_reaction(shape, order):
    d = shape.dim
    space = hp.Space(box(shape.name, (2,) + (1,) * (d - 1)), order, backend="numpy")
    form = hp.AdvectionDiffusionReaction(space, [3.0, -2.0, 1.0][:d], 0.7, lambda *x: 1 + x[0] ** 2)
    found = form.elliptic_part()
    assert same(matrix(found), matrix(hp.Helmholtz(space, lambda *x: 1 + x[0] ** 2, 0.7)))
    # A multiple of the gradient stays one, and the velocity is not there any more.
    assert not found.form.trace.general and is_symmetric(found.form.trace) and set(found.fields) == {"reaction"}


@pytest.mark.parametrize("mesh", ["cube_mixed.msh", "curved_mixed.msh"])
def test_of_a_tensor_it_is_the_symmetric_part(mesh):
    space = hp.Space(ours(mesh), 3)

    def form(T, first=1.0):
        def flux(u, du, x):
            own = [sum(T[i][j] * du[j] for j in range(3)) * (1 + x[0]) + first * u * x[1] for i in range(3)]
            return -5.0 * u + first * (du[0] - x[2] * du[1]), own

        return hp.WeakForm(space, flux)

    expected = form((TENSOR + TENSOR.T) / 2, 0.0)
    expected = matrix(expected) + 10 * matrix(hp.Mass(space))  # |reaction|
    found = matrix(form(TENSOR).elliptic_part())
    assert same(found, expected) and same(found, found.T)


def test_components_by_themselves():
    space = hp.Space(box("tet", (1, 1, 1)), 2)

    def coupled(u, du, k):
        return [2 * u[0] - u[1], u[0] + 3 * u[1]], [k * du[0] + 0.5 * du[1], 4 * k * du[1] / 2]

    found = hp.WeakForm(space, coupled, fields={"k": 0.25}, components=2).elliptic_part()
    blocks = [matrix(hp.Helmholtz(space, lam, k)).toarray() for lam, k in ((2.0, 0.25), (3.0, 0.5))]
    n = len(blocks[0])
    assert same(matrix(found).toarray(), np.block([[blocks[0], np.zeros((n, n))], [np.zeros((n, n)), blocks[1]]]))


def test_fields_and_parameters_are_those_of_the_form():
    space = hp.Space(box("quad", (2, 2)), 3)
    k = space.evaluate(lambda x, y: 1 + x * y)
    form = hp.AdvectionDiffusionReaction(space, [1.0, 0.0], k, 2.0)
    found = form.elliptic_part()
    assert found.fields["diffusivity"] is k and found.parameters == {"reaction": 2.0}
    assert same(matrix(found), matrix(hp.Helmholtz(space, 2.0, k)))


def test_only_values_or_only_gradients():
    space = hp.Space(box("tri", (2, 2)), 2)
    for form in (hp.Mass(space), hp.Laplacian(space)):
        assert same(matrix(form.elliptic_part()), matrix(form))


def test_coefficients_are_the_matrix_of_the_function():
    space = hp.Space(box("hex", (1, 1, 1)), 1)

    def form(u, du):
        return 3 * u + du[1] / 2, [4 * du[0], 5 * u - du[2], 0.0]

    _, K = coefficients(hp.WeakForm(space, form).form.trace)
    assert {place: node.payload for place, node in K.items()} == {
        (0, 0): 3, (0, 2): 0.5, (1, 1): 4, (2, 0): 5, (2, 3): -1,
    }  # fmt: skip


@pytest.mark.parametrize(("form", "reason"), [
    (lambda u, du: (u**2, du), "not linear"),
    (lambda u, du: (u + 1, du), "not linear"),
    (lambda u, du: (u * du[0], du), "not linear"),
    (lambda u, du: (u, u * du), "not linear"),
    (lambda u, du: (np.exp(u), du), "not linear"),
    (lambda u, du: (du[0] + du[1], [0.0, 0.0]), "neither diffusion nor reaction"),
])  # fmt: skip
def test_what_has_none(form, reason):
    space = hp.Space(box("quad", (1, 1)), 1)
    with pytest.raises(hp.NotSuitable, match=reason):
        hp.WeakForm(space, form).elliptic_part()
    with pytest.raises(hp.NotSuitable, match="only weak forms"):
        hp.BwdTrans(space).elliptic_part()


def test_it_is_its_own_elliptic_part():
    once = hp.Helmholtz(hp.Space(box("quad", (1, 1)), 1), 2.0).elliptic_part()
    assert once.elliptic_part().form.trace.outputs[1].payload == once.form.trace.outputs[1].payload == 1
    assert not once.guarded  # a device would wait after every product
