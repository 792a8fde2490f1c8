"""Calling operators: results, `out`, what is refused; the public example of the README."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, StateError
from hpfem.mesh import box
from hpfem.operators import OPERATORS
from tests.operators.reference import random_field, references
from tests.operators.toy_operator import Slope
from tests.operators.ways import ways
from tests.samples import NAMES, curved, norm_error

STATES = {
    "BwdTrans": ("coeff", "phys"), "IProductWRTBase": ("phys", "dual"), "PhysDeriv": ("phys", "phys"),
    "IProductWRTDerivBase": ("phys", "dual"), "FwdTrans": ("phys", "coeff"), "Mass": ("coeff", "dual"),
    "Laplacian": ("coeff", "dual"), "Helmholtz": ("coeff", "dual"), "AdvectionDiffusionReaction": ("coeff", "dual"),
    "Slope": ("coeff", "dual"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def toy_operator(monkeypatch):
    """A row for a newcomer's operator."""
    monkeypatch.setitem(OPERATORS, "Slope", Slope)


@pytest.fixture
def space(backend):
    """A space of two blocks."""
    return hp.Space(box(("quad", "tri"), (3, 1)), 2, backend=backend)


def make(name, space):
    """An operator by name."""
    given = {"AdvectionDiffusionReaction": {"velocity": [1.0, 2.0]}, "Helmholtz": {"lam": 1.0}}
    return OPERATORS[name](space, **given.get(name, {}))


@pytest.mark.parametrize("name", STATES)
class TestEvery:
    """What holds for every operator."""

    def components(self, name, space):
        """Components of a field that it takes."""
        return space.dim if name == "IProductWRTDerivBase" else 1

    def test_states(self, space, name, rng):
        operator = make(name, space)
        assert (operator.input_state, operator.output_state) == STATES[name]
        assert operator.name == name
        field = random_field(space, rng, operator.input_state, self.components(name, space))
        result = operator(field)
        assert result.state == operator.output_state
        assert result.space is space
        assert repr(operator).startswith(name)

    def test_out(self, space, name, rng):
        operator = make(name, space)
        field = random_field(space, rng, operator.input_state, self.components(name, space))
        expected = operator(field)
        out = expected.like()
        for array in out.data:
            array.write()[...] = np.nan  # nothing of what was there is read
        assert operator(field, out=out) is out
        assert all(np.array_equal(a, b) for a, b in zip(out.arrays, expected.arrays, strict=True))

    def test_wrong_states(self, space, name, rng):
        operator = make(name, space)
        for state in ("coeff", "phys", "dual"):
            if state != operator.input_state:
                field = random_field(space, rng, state, self.components(name, space))
                advice = "it is a functional" if state == "dual" else "use"
                message = f"{name} takes a '{operator.input_state}' field, got '{state}'; {advice}"
                with pytest.raises(StateError, match=message):
                    operator(field)

    def test_wrong_spaces_and_things(self, space, name, rng):
        operator = make(name, space)
        other = hp.Space(space.mesh, 2, backend=space.backend)
        field = random_field(other, rng, operator.input_state, self.components(name, space))
        with pytest.raises(StateError, match=f"{name} .*space"):
            operator(field)
        single = hp.Space(space.mesh, 2, dtype=np.float32, backend=space.backend)
        with pytest.raises(StateError, match=f"{name} .*space"):
            operator(random_field(single, rng, operator.input_state, self.components(name, space)))
        with pytest.raises(StateError, match="takes a [Ff]ield"):
            operator(field.arrays[0])
        with pytest.raises(ArgumentError, match=f"{name} is made on a Space, got Mesh"):
            make(name, space.mesh)

    def test_wrong_out(self, space, name, rng):
        operator = make(name, space)
        field = random_field(space, rng, operator.input_state, self.components(name, space))
        good = operator(field)
        state = {"coeff": "dual", "dual": "coeff", "phys": "coeff"}[operator.output_state]
        other = hp.Space(space.mesh, 2, backend=space.backend)
        for out in (
            space.zeros(state, good.components),
            space.zeros(good.state, good.components + 1),
            other.zeros(good.state, good.components),
        ):
            with pytest.raises(
                StateError, match=f"out of {name} must be a '{good.state}' field with {good.components}"
            ):
                operator(field, out=out)


def test_all_names_are_registered():
    assert set(STATES) == set(OPERATORS)


@pytest.mark.parametrize("shape", NAMES)
def test_a_newcomers_operator_on_every_shape(shape, backend, rng):
    space = hp.Space(curved(shape, 2), 3, backend=backend, quadrature="collapsed")
    field = random_field(space, rng)
    value, derivative = references(space)[0].trial(field.arrays[0])
    expected = references(space)[0].test(2.0 * value + derivative[:, 0])
    for way in ways(backend):
        assert norm_error(OPERATORS["Slope"](space, **way)(field).arrays[0], expected) < 1e-12, way
    assert len(hp.tune(space, "Slope", 1e-9)) == 1


def test_out_may_not_be_the_argument(space, rng):
    derivative = hp.PhysDeriv(space)
    field = random_field(space, rng, "phys")
    with pytest.raises(StateError, match="'phys' field with 2"):
        derivative(field, out=field)


def test_out_may_not_share_memory_with_the_argument(space, rng):
    u = random_field(space, rng)
    shared = space.field("dual", list(u.arrays))
    with pytest.raises(StateError, match="cannot write into its own argument"):
        hp.Mass(space)(u, out=shared)


def test_components(space, rng):
    with pytest.raises(StateError, match="takes vectors of 2 components, got a field with 3"):
        hp.IProductWRTDerivBase(space)(random_field(space, rng, "phys", 3))

    def swap(u):
        return [u[1], u[0]]

    form = hp.WeakForm(space, swap, test=("value",), components=2)
    for components in (1, 3):
        with pytest.raises(StateError, match=f"couples 2 components, got a field with {components}"):
            form(random_field(space, rng, "coeff", components))
    field = random_field(space, rng, "coeff", 4)
    for first in (0, 2):
        pair = form(hp.Field(space, "coeff", [hp.memory.PairArray.of(a[first : first + 2]) for a in field.arrays]))
        for one, two in zip(form(field).arrays, pair.arrays, strict=True):
            np.testing.assert_array_equal(one[first : first + 2], two)


@pytest.mark.parametrize("components", [0, -1, 1.5, True, "2"])
def test_bad_numbers_of_components(space, components):
    with pytest.raises(ArgumentError, match="components"):
        hp.WeakForm(space, lambda u: u, test=("value",), components=components)


def test_work_is_counted(space):
    helmholtz = hp.Helmholtz(space, lam=1.0, strategy="sumfac")
    assert helmholtz.flops == sum(
        c.kernel.flops * b.n_elements for c, b in zip(helmholtz.choices, space.blocks, strict=True)
    )
    assert helmholtz.flops > hp.Mass(space, strategy="sumfac").flops > 0
    assert helmholtz.nbytes > hp.Mass(space).nbytes > 0


def test_the_public_example(backend):
    mesh = box(("hex", "prism", "pyramid", "tet"), (4, 1, 1))
    space = hp.Space(mesh, order=4, backend=backend, quadrature="collapsed")
    f = space.evaluate(lambda x, y, z: x * y + z)
    u = space.project(lambda x, y, z: x * y + z)
    strategy = "sumfac-top" if backend == "cuda" else "sumfac"  # on a GPU the latter is noncollocated
    v = hp.Helmholtz(space, lam=1.0, strategy=strategy, algorithm="collocated")(u)
    assert (f.state, u.state, v.state) == ("phys", "coeff", "dual")
    # The integrals of xy + z, (xy + z)^2 and y^2 + x^2 + 1 over the unit cube.
    assert space.integrate(f) == pytest.approx(3 / 4, rel=1e-12)
    assert u.dot(v) == pytest.approx(1 / 9 + 1 / 3 + 1 / 4 + 2 / 3 + 1, rel=1e-12)
    assert [b.shape.name for b in space.blocks] == ["hex", "prism", "pyramid", "tet"]
    assert v.arrays[0].shape == (1, 1, 125)
    assert sorted(np.concatenate([b.elements for b in space.blocks])) == list(range(mesh.n_cells))
