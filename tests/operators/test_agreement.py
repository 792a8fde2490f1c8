"""Every strategy and algorithm gives what dense matrices from the definition give: all shapes, orders, bases."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from tests.cases import BASES, SHAPES_2D, SHAPES_3D, cases, each_shape
from tests.operators.reference import random_field, references
from tests.operators.ways import special, ways
from tests.samples import curved, dimension, norm_error, skewed, straight, tapered

SHAPES = SHAPES_2D + SHAPES_3D
TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
MESHES = {"affine": lambda name: skewed(straight(name)), "deformed": lambda name: curved(name, order=2)}
each_kind = pytest.mark.parametrize("kind", MESHES)


def diffusivity(*x):
    """A coefficient that is not a polynomial."""
    return 1.5 + np.sin(x[0] + 2 * x[1])


def reaction(*x):
    """Another one."""
    return 2.0 + x[0] * x[1]


@cases(SHAPES, range(1, 9))
def test_helmholtz_and_mass(backend, shape, order, basis, rng):
    # Affine and deformed cells take turns from order to order, each basis in its own time; compiled backends, where
    # every kernel costs a second, take the algorithms in turns too. Below, both meet both.
    turn = order + BASES.index(basis)
    space = hp.Space(
        MESHES["affine" if turn % 2 else "deformed"](shape.name), order, basis=basis, quadrature="collapsed"
    )
    field = random_field(space, rng)
    expected_mass, expected = [], []
    for ref, coefficients in zip(references(space), field.arrays, strict=True):
        value, derivative = ref.trial(coefficients)
        expected_mass.append(ref.test(value))
        expected.append(ref.test(1.7 * value, derivative))
    for way in ways(backend) if backend == "numpy" else ways(backend)[turn // 2 % 2 :: 2]:
        result = hp.Helmholtz(space, lam=1.7, **way)(field)
        assert result.state == "dual"
        for found, wanted in zip(result.arrays, expected, strict=True):
            assert norm_error(found, wanted) < 1e-12, way
    for way in ways(backend, gradients=False):
        for found, wanted in zip(hp.Mass(space, **way)(field).arrays, expected_mass, strict=True):
            assert norm_error(found, wanted) < 1e-12, way


@each_kind
@pytest.mark.parametrize("order", [1, 4, 7])
@each_shape(SHAPES)
def test_single_precision(backend, kind, shape, order, rng):
    space = hp.Space(MESHES[kind](shape.name), order, dtype=np.float32, quadrature="collapsed")
    field = random_field(space, rng)
    ref = references(space)[0]
    value, derivative = ref.trial(field.arrays[0].astype(np.float64))
    k, r = diffusivity(*ref.x), reaction(*ref.x)
    expected = ref.test(r * value, k * derivative)
    for way in ways(backend):
        result = hp.Helmholtz(space, lam=reaction, diffusivity=diffusivity, **way)(field)
        assert result.dtype == np.float32
        assert result.arrays[0].dtype == np.float32
        assert norm_error(result.arrays[0], expected) < 1e-5, way


@each_kind
@pytest.mark.parametrize("order", [1, 3])
@each_shape(SHAPES)
class TestOperators:
    """The other operators; coefficients vary, fields have components."""

    def space(self, kind, shape, order):
        """A space on a mesh of the kind."""
        return hp.Space(MESHES[kind](shape.name), order, quadrature="collapsed")

    def check(self, found, expected, way):
        """Compare a field with an array of its only block."""
        assert len(found.arrays) == 1
        assert found.arrays[0].shape == expected.shape
        assert norm_error(found.arrays[0], expected) < 1e-12, way

    def test_transforms(self, backend, kind, shape, order, rng):
        space = self.space(kind, shape, order)
        coeff, phys = random_field(space, rng, "coeff", 3), random_field(space, rng, "phys", 2)
        ref = references(space)[0]
        for way in ways(backend, gradients=False):
            self.check(hp.BwdTrans(space, **way)(coeff), ref.trial(coeff.arrays[0])[0], way)
            self.check(hp.IProductWRTBase(space, **way)(phys), ref.test(phys.arrays[0]), way)

    def test_derivatives(self, backend, kind, shape, order, rng):
        space = self.space(kind, shape, order)
        d = space.dim
        coeff, vector = random_field(space, rng, "coeff", 2), random_field(space, rng, "phys", 2 * d)
        ref = references(space)[0]
        phys = hp.BwdTrans(space, backend=backend)(coeff)
        derivatives = ref.trial(coeff.arrays[0])[1]
        for way in ways(backend, gradients=False):
            # Values of the basis are differentiated exactly.
            found = hp.PhysDeriv(space, **way)(phys)
            assert (found.state, found.components) == ("phys", 2 * d)
            self.check(found, derivatives.reshape(2 * d, *derivatives.shape[2:]), way)
        flux = vector.arrays[0].reshape(2, d, *vector.arrays[0].shape[1:])
        expected = ref.test(flux=flux)
        for way in ways(backend):
            found = hp.IProductWRTDerivBase(space, **way)(vector)
            assert (found.state, found.components) == ("dual", 2)
            self.check(found, expected, way)

    def test_laplacian(self, backend, kind, shape, order, rng):
        space = self.space(kind, shape, order)
        field = random_field(space, rng, components=2)
        ref = references(space)[0]
        expected = ref.test(flux=ref.trial(field.arrays[0])[1])
        for way in ways(backend):
            self.check(hp.Laplacian(space, **way)(field), expected, way)

    def test_variable_helmholtz(self, backend, kind, shape, order, rng):
        space = self.space(kind, shape, order)
        field = random_field(space, rng)
        ref = references(space)[0]
        value, derivative = ref.trial(field.arrays[0])
        expected = ref.test(reaction(*ref.x) * value, diffusivity(*ref.x) * derivative)
        # A function, and a field of its values, are the same coefficient.
        k = space.evaluate(diffusivity)
        for way in ways(backend):
            self.check(hp.Helmholtz(space, lam=reaction, diffusivity=k, **way)(field), expected, way)
        expected = ref.test(0.5 * value, 3.0 * derivative)
        for way in ways(backend):
            self.check(hp.Helmholtz(space, lam=0.5, diffusivity=3.0, **way)(field), expected, way)

    def test_advection_diffusion_reaction(self, backend, kind, shape, order, rng):
        space = self.space(kind, shape, order)
        field = random_field(space, rng)
        ref = references(space)[0]
        value, derivative = ref.trial(field.arrays[0])
        d, x = space.dim, ref.x
        constant = [0.7, -0.4, 1.1][:d]
        advection = np.einsum("i,cieq->ceq", constant, derivative)
        expected = ref.test(advection + 0.3 * value, 0.02 * derivative)
        for way in ways(backend):
            operator = hp.AdvectionDiffusionReaction(space, constant, diffusivity=0.02, reaction=0.3, **way)
            self.check(operator(field), expected, way)
        turning = [x[1] + 0.1, -x[0], 0.5 * x[0] * x[1]][:d]
        advection = np.einsum("ieq,cieq->ceq", np.array(turning), derivative)
        expected = ref.test(advection + reaction(*x) * value, diffusivity(*x) * derivative)
        for way in ways(backend):
            operator = hp.AdvectionDiffusionReaction(
                space,
                lambda *x: [x[1] + 0.1, -x[0], 0.5 * x[0] * x[1]][: len(x)],
                diffusivity=diffusivity,
                reaction=reaction,
                **way,
            )
            self.check(operator(field), expected, way)


@each_shape(SHAPES)
def test_straight_cells_that_are_not_affine(backend, shape, rng):
    space = hp.Space(tapered(shape.name), 3, quadrature="collapsed")
    field = random_field(space, rng)
    for number, ref in enumerate(references(space)):
        value, derivative = ref.trial(field.arrays[number])
        expected = ref.test(2.0 * value, derivative)
        for way in ways(backend):
            found = hp.Helmholtz(space, lam=2.0, **way)(field).arrays[number]
            assert norm_error(found, expected) < 1e-12, way


@pytest.mark.parametrize(
    ("names", "counts"), [(("hex", "prism", "pyramid", "tet"), (4, 2, 1)), (("quad", "tri"), (5, 3))]
)
def test_mixed_mesh_of_affine_and_deformed_blocks(backend, names, counts, rng):
    mesh = box(names, counts).elevated(2)

    def bend_half(x):
        # Cells in the lower half stay what they are.
        y = x.copy()
        y[:, 0] += 0.2 * np.maximum(x[:, 1] - 0.5, 0) ** 2
        return y

    orders = {"hex": 3, "prism": 2, "pyramid": 4, "tet": 1, "quad": 2, "tri": 5}
    space = hp.Space(mesh.transformed(bend_half), {name: orders[name] for name in names}, quadrature="collapsed")
    assert {block.affine for block in space.blocks} == {True, False}
    field = random_field(space, rng)
    expected = []
    for ref, coefficients in zip(references(space), field.arrays, strict=True):
        value, derivative = ref.trial(coefficients)
        expected.append(ref.test(1.1 * value, derivative))
    for way in ways(backend):
        found = hp.Helmholtz(space, lam=1.1, **way)(field)
        for one, wanted in zip(found.arrays, expected, strict=True):
            assert norm_error(one, wanted) < 1e-12, way


@pytest.mark.parametrize("elements", [1, 7, 33])
@pytest.mark.parametrize("name", ["hex", "tri"])
def test_any_number_of_elements(backend, name, elements, rng):
    mesh = box(name, (elements, 1, 1)[: dimension(name)]).transformed(lambda x: x + 0.05 * np.sin(x[:, ::-1] * 3))
    space = hp.Space(mesh, 2)
    field = random_field(space, rng, components=2)
    for number, ref in enumerate(references(space)):
        value, derivative = ref.trial(field.arrays[number])
        expected = ref.test(value, derivative)
        for way in ways(backend):
            assert norm_error(hp.Helmholtz(space, 1.0, **way)(field).arrays[number], expected) < 1e-12, way


@each_kind
@pytest.mark.parametrize("order", [1, 2, 4])
@each_shape(SHAPES)
def test_special_strategies(backend, kind, shape, order, rng):
    mesh = MESHES[kind](shape.name)
    for dtype in (np.float64, np.float32):
        space = hp.Space(mesh, order, dtype=dtype, quadrature="collapsed")
        d = space.dim
        fields = {state: random_field(space, rng, state, d) for state in ("coeff", "phys")}
        makers = [
            lambda space=space, **o: hp.BwdTrans(space, **o),
            lambda space=space, **o: hp.IProductWRTBase(space, **o),
            lambda space=space, **o: hp.PhysDeriv(space, **o),
            lambda space=space, **o: hp.IProductWRTDerivBase(space, **o),
            lambda space=space, **o: hp.Mass(space, **o),
            lambda space=space, **o: hp.Laplacian(space, **o),
            lambda space=space, **o: hp.Helmholtz(space, lam=0.7, diffusivity=2.0, **o),
            lambda space=space, **o: hp.Helmholtz(space, lam=reaction, diffusivity=diffusivity, **o),
            lambda space=space, d=d, **o: hp.AdvectionDiffusionReaction(space, [1.0] * d, 0.1, 0.5, **o),
        ]
        for make in makers:
            general = make(strategy="sumfac", backend="numpy")
            expected = general(fields[general.input_state])
            for strategy, operator in special(backend, make):
                found = operator(fields[general.input_state])
                for one, wanted in zip(found.arrays, expected.arrays, strict=True):
                    assert norm_error(one, wanted) < TOLERANCE[np.dtype(dtype)], (strategy, operator.name)
