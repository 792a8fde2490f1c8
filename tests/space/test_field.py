"""Fields: states, arrays, arithmetic, products, devices; and what is refused."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, StateError
from hpfem.memory import HOST, PairArray, count_transfers
from hpfem.mesh import box
from tests.operators.reference import random_field
from tests.samples import curved
from tests.standin import StandIn


@pytest.fixture(scope="module")
def space():
    """A space with two blocks."""
    return hp.Space(box(("quad", "tri"), (3, 1)), 2)


@pytest.fixture(scope="module")
def other(space):
    """Another space on the same mesh."""
    return hp.Space(space.mesh, 2)


def same(field, function, *fields):
    """Whether a field's arrays are a function of those of others."""
    arrays = zip(field.arrays, *(f.arrays for f in fields), strict=True)
    return all(np.array_equal(found, function(*given)) for found, *given in arrays)


class TestArrays:
    """States, shapes and the arrays themselves."""

    @pytest.mark.parametrize("state", ["coeff", "phys", "dual"])
    def test_shapes(self, space, state):
        field = space.zeros(state, 3)
        sizes = [b.n_points if state == "phys" else b.n_modes for b in space.blocks]
        assert [a.shape for a in field.arrays] == [
            (3, b.n_elements, n) for b, n in zip(space.blocks, sizes, strict=True)
        ]
        assert (field.state, field.components, field.dtype) == (state, 3, np.float64)
        assert field.size == sum(a.size for a in field.arrays)
        assert field.nbytes == 8 * field.size
        assert not any(a.any() for a in field.arrays)
        assert repr(field) == f"Field({state!r}, components=3, size={field.size}, dtype=float64)"

    def test_points_are_in_tensor_order(self, space):
        block = space.blocks[0]
        points = space.coordinates().arrays[0].reshape(2, block.n_elements, *block.rule.counts)
        # On this straight quad the first direction is along x and the slowest.
        assert np.ptp(points[0], axis=2).max() < 1e-14
        assert np.ptp(points[1], axis=1).max() < 1e-14
        assert np.all(np.diff(points[0], axis=1) > 0)

    def test_arrays_can_be_changed_in_place(self, space):
        field = space.zeros("coeff")
        field.arrays[0][...] = 2
        assert field.dot(field) == 4 * field.arrays[0].size

    def test_field_of_arrays_shares_them(self, space):
        arrays = [np.ones((1, b.n_elements, b.n_modes)) for b in space.blocks]
        field = space.field("coeff", arrays)
        arrays[0][...] = 5
        assert field.arrays[0][0, 0, 0] == 5
        # Others are brought to C order.
        rotated = [np.asfortranarray(a) for a in arrays]
        assert all(a.flags.c_contiguous for a in space.field("coeff", rotated).arrays)

    def test_reading_before_writing(self, space):
        with pytest.raises(StateError, match="before anything was written"):
            _ = space.empty("coeff") + space.zeros("coeff")

    def test_wrong_arrays(self, space):
        good = [np.ones((1, b.n_elements, b.n_modes)) for b in space.blocks]
        with pytest.raises(ArgumentError, match="2 block arrays, got 1"):
            space.field("coeff", good[:1])
        with pytest.raises(ArgumentError, match=r"block 1 \(tri\) of a 'coeff' field holds \[components, 2, 6\]"):
            space.field("coeff", [good[0], good[1][:, :, :-1]])
        with pytest.raises(ArgumentError, match="holds"):
            space.field("coeff", [good[0][0], good[1]])
        with pytest.raises(ArgumentError, match="as many components"):
            space.field("coeff", [good[0], np.concatenate([good[1]] * 2)])
        with pytest.raises(StateError, match="block 0 has dtype float32, the space float64; convert"):
            space.field("coeff", [a.astype(np.float32) for a in good])
        with pytest.raises(StateError, match="dtype int64"):
            space.field("coeff", [a.astype(np.int64) for a in good])
        with pytest.raises(ArgumentError, match="unknown field state 'modes'; valid: coeff, phys, dual"):
            space.field("modes", good)

    def test_components(self, space, rng):
        field = random_field(space, rng, "coeff", 3)
        one = field.component(-1)
        assert same(one, lambda a: a[[2]], field)
        one.arrays[0][...] = 0
        assert field.arrays[0][2].any()
        for number in (3, -4):
            with pytest.raises(ArgumentError, match=f"component of a field with 3 must be .* got {number}"):
                field.component(number)

    def test_like(self, space, rng):
        field = random_field(space, rng, "coeff", 3)
        assert (field.like().state, field.like().components) == ("coeff", 3)
        assert (field.like("phys", 2).state, field.like("phys", 2).components) == ("phys", 2)


class TestArithmetic:
    """Sums, products, dot products."""

    def test_of_fields(self, space, rng):
        for state in ("coeff", "phys", "dual"):
            u, w = random_field(space, rng, state, 2), random_field(space, rng, state, 2)
            assert same(u + w, lambda a, b: a + b, u, w)
            assert same(u - w, lambda a, b: a - b, u, w)
            assert same(-u, lambda a: -a, u)
            assert same(2 * u, lambda a: 2 * a, u)
            assert same(u * np.float64(0.5), lambda a: a * 0.5, u)
            assert same(u / 4, lambda a: a / 4, u)
            assert (u + w).state == state
            assert same(sum([u, w]), lambda a, b: a + b, u, w)
            copy = u.copy()
            copy.arrays[0][...] = 0
            assert u.arrays[0].any()

    def test_of_values(self, space, rng):
        u, w = random_field(space, rng, "phys"), random_field(space, rng, "phys")
        assert same(u * w, lambda a, b: a * b, u, w)
        assert same(u / w, lambda a, b: a / b, u, w)
        assert same(1 + u - 2, lambda a: 1 + a - 2, u)
        assert same(3.0 - u, lambda a: 3.0 - a, u)
        assert same(u + np.array(1.5), lambda a: a + 1.5, u)

    def test_axpy(self, space, rng):
        u, w = random_field(space, rng), random_field(space, rng)
        expected = [a + 0.3 * b for a, b in zip(u.arrays, w.arrays, strict=True)]
        assert u.axpy(0.3, w) is u
        assert all(np.abs(a - b).max() < 1e-15 for a, b in zip(u.arrays, expected, strict=True))
        with pytest.raises(StateError, match="sum of a 'coeff' and a 'dual'"):
            u.axpy(1.0, random_field(space, rng, "dual"))

    def test_dot(self, space, rng):
        u, v = random_field(space, rng, "coeff", 2), random_field(space, rng, "dual", 2)
        expected = sum(np.sum(a * b) for a, b in zip(u.arrays, v.arrays, strict=True))
        assert u.dot(v) == pytest.approx(expected, rel=1e-13)
        assert v.dot(u) == pytest.approx(expected, rel=1e-13)
        assert isinstance(u.dot(u), float)
        f = random_field(space, rng, "phys")
        assert f.dot(f) > 0

    def test_axpy_of_many_numbers_is_the_same(self, rng):
        """They are taken a cache's worth at a time."""
        space = hp.Space(box("quad", 60), 5)
        u, w = random_field(space, rng, "phys"), random_field(space, rng, "phys")
        expected = [a + 0.3 * b for a, b in zip(u.arrays, w.arrays, strict=True)]
        assert u.axpy(0.3, w).size > 1 << 17
        assert all(np.abs(a - b).max() < 1e-15 for a, b in zip(u.arrays, expected, strict=True))

    @pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 9])
    def test_axpy_of_several(self, space, rng, count):
        u, others = random_field(space, rng), [random_field(space, rng) for _ in range(count)]
        numbers = rng.standard_normal(count)
        expected = [
            a + sum((s * w.arrays[i] for s, w in zip(numbers, others, strict=True)), 0 * a)
            for i, a in enumerate(u.arrays)
        ]
        assert u.axpy(numbers, others) is u
        assert all(np.abs(a - b).max() < 1e-14 for a, b in zip(u.arrays, expected, strict=True))
        before = [2 * a for a in u.arrays]
        u.axpy([0.25, 0.75], [u, u])  # in place, also with itself
        assert all(np.abs(a - b).max() < 1e-14 for a, b in zip(u.arrays, before, strict=True))
        with pytest.raises(ArgumentError, match=f"a number for each field, got 1 for {count + 2}"):
            u.axpy(1.0, [u, u, *others])
        with pytest.raises(StateError, match="both must be fields"):
            u.axpy([1.0, 2.0], [u, 3.0])

    def test_axpy_that_is_interrupted_leaves_no_half(self, space, rng):
        class Interrupting:
            def reshape(self, *shape):
                raise KeyboardInterrupt

        u, w = random_field(space, rng), random_field(space, rng)
        w.data[1].read = lambda device: Interrupting()
        with pytest.raises(KeyboardInterrupt):
            u.axpy(0.3, w)
        with pytest.raises(StateError, match="interrupted"):
            u.dot(random_field(space, rng))

    def test_axpy_of_an_unwritten_field_changes_nothing(self, space, rng):
        u, w = random_field(space, rng), space.zeros("coeff")
        before = [a.copy() for a in u.arrays]
        w.data[1].discard()
        with pytest.raises(StateError, match="before anything was written"):
            u.axpy(0.3, w)
        assert all(np.array_equal(a, b) for a, b in zip(u.arrays, before, strict=True))

    @pytest.mark.parametrize("sizes", [(1e-25, 1e-25), (1e25, 1e25), (1e-38, 1e38), (1e-25, 1.0), (0.0, 1.0)])
    def test_dot_of_single_precision_has_the_range_of_double(self, space, rng, sizes):
        single = hp.Space(space.mesh, 2, dtype=np.float32)
        u, v = (random_field(single, rng, "phys") * size for size in sizes)
        exact = [np.float64(a) * np.float64(b) for a, b in zip(u.arrays, v.arrays, strict=True)]
        error = abs(u.dot(v) - sum(map(np.sum, exact)))
        assert error <= 1e-6 * sum(np.sum(np.abs(products)) for products in exact)

    def test_dot_of_products_of_all_sizes(self, space):
        single = hp.Space(space.mesh, 2, dtype=np.float32)
        u = single.zeros("coeff")
        u.arrays[0][...] = 1e-30
        u.arrays[1][0, 0, 0] = 1e25
        expected = u.arrays[0].size * 1e-60 + 1e50
        assert u.dot(u) == pytest.approx(expected, rel=1e-6)
        u.arrays[1][...] = 0
        assert u.dot(u) == pytest.approx(u.arrays[0].size * 1e-60, rel=1e-6)
        u.arrays[0][0, 0, 0] = np.nan
        assert np.isnan(u.dot(u))

    def test_single_precision_stays_single(self, space, rng):
        single = hp.Space(space.mesh, 2, dtype=np.float32)
        u = random_field(single, rng, "phys")
        for field in (
            u + u,
            u * 2.0,
            u / np.float64(3),
            u + 1,
            -u,
            u * u,
            u.copy(),
            u.component(0),
            u.axpy(2.0, u.copy()),
        ):
            assert all(a.dtype == np.float32 for a in field.arrays)

    def test_refused(self, space, other, rng):
        u, v = random_field(space, rng, "coeff"), random_field(space, rng, "dual")
        f, f2 = random_field(space, rng, "phys"), random_field(space, rng, "phys", 2)
        cases = [
            (lambda: u + v, "sum of a 'coeff' and a 'dual' field"),
            (lambda: f - u, "sum of a 'phys' and a 'coeff'"),
            (lambda: u + other.zeros("coeff"), "different spaces"),
            (lambda: f + f2, "1 and 2 components"),
            (lambda: f * f2, "1 and 2 components"),
            (lambda: u * u, "state 'phys', not 'coeff'; use BwdTrans"),
            (lambda: v / v, "state 'phys', not 'dual'"),
            (lambda: u + 1, "'phys' fields only, not to 'coeff'; use space.project"),
            (lambda: 1 - u, "'phys' fields only"),
            (lambda: f.dot(u), "dot product of a 'phys' and a 'coeff'"),
            (lambda: u.dot(f), "dot product of a 'coeff' and a 'phys'"),
            (lambda: u.dot(other.zeros("coeff")), "different spaces"),
            (lambda: f.dot(f2), "1 and 2 components"),
        ]
        for action, match in cases:
            with pytest.raises(StateError, match=match):
                action()
        for action in (lambda: f + "a", lambda: f * [1, 2], lambda: f / None, lambda: f * 1j, lambda: f + np.ones(3)):
            with pytest.raises(TypeError):
                action()

    def test_at_takes_coefficients(self, space, rng):
        for state in ("phys", "dual"):
            with pytest.raises(StateError, match=f"takes a 'coeff' field, got '{state}'"):
                random_field(space, rng, state).at([[0.5, 0.5]])

    def test_at(self):
        space = hp.Space(curved("tri"), 4)
        u = space.project(lambda x, y: [x, 2 * y])
        x = space.coordinates().arrays[0][:, 0, :3].T
        assert u.at(x) == pytest.approx(np.array([x[:, 0], 2 * x[:, 1]]), abs=1e-9)
        assert u.component(0).at(x) == pytest.approx(x[:, 0], abs=1e-9)


class TestDevices:
    """Fields whose values are on a device."""

    def test_arithmetic_stays_where_the_values_are(self, space, rng):
        device = StandIn()
        u, w = random_field(space, rng), random_field(space, rng)
        expected = [2 * a + b for a, b in zip(u.arrays, w.arrays, strict=True)]
        for field in (u, w):
            for pair in field.data:
                pair.readwrite(device)
        assert u.home is device
        with count_transfers() as count:
            total = 2 * u + w
            total.axpy(1.0, u)
            total = total - u
            number = total.dot(total)
            copy = total.copy()
            part = copy.component(0)
        assert count.total == 0
        assert total.home is copy.home is part.home is device
        assert number == pytest.approx(sum(np.sum(e**2) for e in expected))
        with count_transfers() as count:
            arrays = total.arrays
        assert count.to_host == len(space.blocks)
        assert all(np.allclose(a, e, rtol=1e-14) for a, e in zip(arrays, expected, strict=True))
        assert total.home is HOST

    def test_field_on_a_device_from_the_start(self, space):
        device = StandIn()
        pairs = [PairArray.of(np.ones((1, b.n_elements, b.n_modes)), device) for b in space.blocks]
        field = hp.Field(space, "coeff", pairs)
        assert field.home is device
        with count_transfers() as count:
            assert field.dot(field) == field.size
        assert count.total == 0


def test_only_fields_are_accepted():
    space = hp.Space(box("tri", (1, 1)), 2)
    u = space.project(lambda x, y: x * y)
    for wrong in (3, None, np.zeros(3)):
        with pytest.raises(StateError, match="both must be fields"):
            u.dot(wrong)
        with pytest.raises(StateError, match="both must be fields"):
            u.axpy(1.0, wrong)
        if wrong is not None:
            with pytest.raises(StateError, match="out of Mass must be a Field"):
                hp.Mass(space)(u, out=wrong)
    for wrong, fields in (("a", u), (["a", 1.0], [u, u])):
        with pytest.raises(ArgumentError, match="scaled by a number, got (str|str_)$"):
            u.axpy(wrong, fields)
    with pytest.raises(ArgumentError, match="number of a component of a field with . must be an integer"):
        u.component("a")
    with pytest.raises(ArgumentError, match="components must be an integer >= 1"):
        u.like(components=0)
    with pytest.raises(ArgumentError, match="unknown field state ''"):
        u.like(state="")
    with pytest.raises(ArgumentError, match="one array per block, got NoneType"):
        space.field("coeff", None)
    with pytest.raises(StateError, match="it is a functional, not a function"):
        hp.Mass(space)(hp.Mass(space)(u))


class TestNumbersAndComponents:
    """Numbers of NumPy, powers, quotients; components by index."""

    @pytest.mark.parametrize("kind", [float, int, np.float64, np.float32, np.int64, np.uint8, np.array])
    def test_numbers_of_all_kinds(self, space, kind, rng):
        two = kind(2)
        for state in ("coeff", "phys"):
            u = random_field(space, rng, state)
            for found in (two * u, u * two):
                assert same(found, lambda a: 2 * a, u)
            assert same(u / two, lambda a: a / 2, u)
        v = random_field(space, rng, "phys")
        assert same(two / v, lambda a: 2 / a, v)
        assert same(two + v, lambda a: a + 2, v) and same(two - v, lambda a: 2 - a, v)
        assert same(v**two, lambda a: a**2, v)

    def test_only_values_have_powers_and_quotients(self, space):
        u = space.zeros("coeff")
        with pytest.raises(StateError, match="raised to powers point by point in state 'phys', not 'coeff'"):
            u**2
        with pytest.raises(StateError, match="divide point by point in state 'phys', not 'coeff'"):
            1 / u
        with pytest.raises(TypeError):
            space.zeros("phys") ** space.zeros("phys")

    def test_components_by_index(self, space, rng):
        u = random_field(space, rng, components=3)
        assert same(u[1], lambda a: a[[1]], u) and same(u[-1], lambda a: a[[2]], u)
        assert same(u[np.int64(0)], lambda a: a[[0]], u)
        assert same(u[1:], lambda a: a[1:], u) and same(u[::-1], lambda a: a[::-1], u)
        first, second, third = u
        assert [c.components for c in (first, second, third)] == [1, 1, 1]
        assert same(third, lambda a: a[[2]], u)
        u[0].arrays[0][...] = 7
        assert not (u.arrays[0] == 7).any()

    @pytest.mark.parametrize(
        "number", [3, -4, "a", 1.5, None, (0, 1), slice(3, None), slice("a"), slice(None, None, 0)]
    )
    def test_components_that_are_not_there(self, space, number):
        with pytest.raises(ArgumentError, match="component"):
            space.zeros("coeff", 3)[number]
