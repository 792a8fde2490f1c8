"""Operators on plain arrays, on the host and on (fake) GPUs: kinds, memory, transfers; what is refused."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, DeviceError, StateError
from hpfem.memory import count_transfers
from hpfem.mesh import box
from hpfem.operators import InverseMass
from tests.fake_cupy import FakeArray, ForeignTensor, fake_cuda
from tests.samples import curved, norm_error


@pytest.fixture
def gpus():
    """Two GPUs, the first one current."""
    with fake_cuda() as found:
        yield found


def one(**options):
    """A space with one block."""
    return hp.Space(curved("quad", order=2), 3, **options)


def several(**options):
    """A space with two blocks."""
    return hp.Space(box(("quad", "tri"), (4, 2)), 2, **options)


def numbers(space, state, rng, components=1):
    """Random arrays, one per block."""
    return [rng.standard_normal(pair.shape).astype(space.dtype) for pair in space.empty(state, components).data]


class HostTensor:
    """An array of another library on the host, writable memory of its own, without any of NumPy's methods."""

    def __init__(self, inside):
        self.inside = inside

    def __array__(self, dtype=None, copy=None):
        return self.inside if dtype is None else self.inside.astype(dtype)

    def __dlpack_device__(self):
        return 1, 0


class Recording(HostTensor):
    """One that records gradients, as PyTorch's do, and gives its memory away after that only."""

    requires_grad = True

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")


class Reluctant(HostTensor):
    """One that gives copies only."""

    def __array__(self, dtype=None, copy=None):
        return self.inside.copy()


def test_arrays_that_record_gradients_are_refused_with_advice(rng):
    space = one(backend="numpy")
    mass, (array,) = hp.Mass(space), numbers(space, "coeff", rng)
    with pytest.raises(ArgumentError, match="does not differentiate.*detach.*constant to autograd.*autograd.Function"):
        mass(Recording(array))
    with pytest.raises(ArgumentError, match="records gradients"):
        space.field("coeff", [Recording(array)])
    # What the advice for backward says: the transpose of a symmetric form is the form.
    (other,) = numbers(space, "coeff", rng)
    assert np.vdot(mass(array), other) == pytest.approx(np.vdot(array, mass(other)), rel=1e-12)


class TestHost:
    """NumPy's arrays and what is like them, on every backend."""

    @pytest.mark.parametrize("make", [hp.BwdTrans, hp.IProductWRTBase, hp.Mass, hp.FwdTrans, hp.PhysDeriv, InverseMass])
    def test_arrays_are_what_fields_are(self, make, backend, rng):
        for space in (one(backend=backend), several(backend=backend)):
            operator = make(space)
            arrays = numbers(space, operator.input_state, rng, 2)
            expected = operator(space.field(operator.input_state, arrays))
            found = operator(arrays)
            assert isinstance(found, list) and all(type(a) is np.ndarray for a in found)
            assert all(np.array_equal(a, b) for a, b in zip(found, expected.arrays, strict=True))
            assert all(a.flags.writeable for a in found)

    def test_one_array_of_one_block(self, backend, rng):
        space = one(backend=backend)
        (array,) = numbers(space, "coeff", rng)
        mass = hp.Mass(space)
        assert np.array_equal(mass(array), mass([array])[0])
        assert np.array_equal(mass((array,))[0], mass(array))

    def test_out_is_written_and_returned(self, rng):
        for space, wrap in ((one(), lambda arrays: arrays[0]), (several(), list)):
            given = wrap(numbers(space, "coeff", rng, 3))
            out = wrap([np.full_like(a, np.nan) for a in numbers(space, "dual", rng, 3)])
            helmholtz = hp.Helmholtz(space, lam=2.0)
            assert helmholtz(given, out=out) is out
            expected = helmholtz(given)
            if space.n_cells == 2:
                out, expected = [out], [expected]
            assert all(np.array_equal(a, b) for a, b in zip(out, expected, strict=True))

    def test_another_library_s_arrays(self, rng):
        space = one()
        (array,), out = numbers(space, "coeff", rng), HostTensor(np.full((1, 2, 16), np.nan))
        mass = hp.Mass(space)
        assert np.array_equal(mass(HostTensor(array)), mass(array))
        assert mass(HostTensor(array), out=out) is out
        assert np.array_equal(out.inside, mass(array))
        with pytest.raises(ArgumentError, match="out of Mass, block 0: Reluctant is read-only, or shares only copies"):
            mass(array, out=Reluctant(np.empty((1, 2, 16))))

    def test_single_precision(self, rng):
        space = one(dtype=np.float32)
        (array,) = numbers(space, "coeff", rng)
        assert hp.Mass(space)(array).dtype == np.float32

    def test_what_is_refused(self, rng):
        space, two = one(), several()
        mass, (array,) = hp.Mass(space), numbers(space, "coeff", rng)
        with pytest.raises(ArgumentError, match=r"holds \[components, 2, 16\].*got \[1, 2, 15\]"):
            mass(array[:, :, :15].copy())
        with pytest.raises(ArgumentError, match=r"holds \[components, 2, 16\].*got \[2, 16\]"):
            mass(array[0])
        with pytest.raises(StateError, match="dtype float32, the space float64; convert it first"):
            mass(array.astype(np.float32))
        with pytest.raises(ArgumentError, match=r"Mass, block 0: .*not in C order; give numpy.ascontiguousarray"):
            mass(np.asfortranarray(np.repeat(array, 2, axis=0)))
        with pytest.raises(
            StateError, match="Mass takes a Field on its own space, or a list of 2 arrays.* got ndarray"
        ):
            hp.Mass(two)(array)
        with pytest.raises(StateError, match="got 3 things"):
            hp.Mass(two)([array] * 3)
        for wrong in (3, "text", None, [[1.0, 2.0]], [space.zeros("coeff")], np.ndarray):
            with pytest.raises(StateError, match="Mass takes a Field on its own space, or an array; got"):
                mass(wrong)
        with pytest.raises(StateError, match="couples 2 components, got a field with 1"):
            hp.WeakForm(space, lambda u: [u[1], u[0]], test="value", components=2)(array)

    def test_invalid_outs(self, rng):
        space = one()
        mass, (array,) = hp.Mass(space), numbers(space, "coeff", rng)
        with pytest.raises(StateError, match="cannot write into its own argument"):
            mass(array, out=array)
        with pytest.raises(StateError, match="out of Mass must be an array as the argument is, got list"):
            mass(array, out=[array.copy()])
        with pytest.raises(
            StateError, match=r"out of Mass must be a list of 1 array\(s\) as the argument is, got ndarray"
        ):
            mass([array], out=array.copy())
        with pytest.raises(StateError, match="out of Mass must be an array as the argument is, got Field"):
            mass(array, out=space.zeros("dual"))
        with pytest.raises(StateError, match="out of Mass must be a Field, got ndarray"):
            mass(space.field("coeff", [array]), out=array.copy())
        with pytest.raises(StateError, match="with 1 component"):
            mass(array, out=np.empty((2, 2, 16)))
        fixed = array.copy()
        fixed.flags.writeable = False
        with pytest.raises(ArgumentError, match="out of Mass, block 0: ndarray is read-only"):
            mass(array, out=fixed)
        with pytest.raises(ArgumentError, match="not in C order"):
            mass(array, out=np.empty((1, 16, 2)).transpose(0, 2, 1))


class TestGpu:
    """CuPy's arrays and what is like them, on backend "cuda" with fake GPUs."""

    def test_what_goes_in_comes_out(self, gpus, rng):
        for space in (one(backend="cuda"), several(backend="cuda")):
            arrays = numbers(space, "coeff", rng, 2)
            expected = hp.Helmholtz(space, lam=1.0, backend="numpy")(arrays)
            helmholtz = hp.Helmholtz(space, lam=1.0)
            with count_transfers() as moved:
                found = helmholtz([FakeArray(a) for a in arrays])
            assert moved.total == 0
            assert all(isinstance(a, FakeArray) for a in found)
            assert all(norm_error(a.inside, b) < 1e-13 for a, b in zip(found, expected, strict=True))
            with count_transfers() as moved:
                found = helmholtz(arrays)
            assert moved.to_device == moved.to_host == len(arrays)
            assert all(norm_error(a, b) < 1e-13 for a, b in zip(found, expected, strict=True))

    def test_out_is_the_caller_s_memory(self, gpus, rng):
        space = one(backend="cuda")
        (array,) = numbers(space, "coeff", rng)
        mass, out = hp.Mass(space), FakeArray(np.full((1, 2, 16), np.nan))
        with count_transfers() as moved:
            assert mass(FakeArray(array), out=out) is out
        assert moved.total == 0
        assert norm_error(out.inside, hp.Mass(space, backend="numpy")(array)) < 1e-13
        out.inside[...] = np.nan
        assert mass(array, out=out) is out  # the argument moves
        assert norm_error(out.inside, hp.Mass(space, backend="numpy")(array)) < 1e-13

    def test_a_projection_computes_on_the_host(self, gpus, rng):
        space = one(backend="cuda")
        (array,) = numbers(space, "phys", rng)
        expected, out = hp.FwdTrans(one())(array), FakeArray(np.full((1, 2, 16), np.nan))
        found = hp.FwdTrans(space)(FakeArray(array))
        assert isinstance(found, FakeArray) and norm_error(found.inside, expected) < 1e-12
        assert hp.FwdTrans(space)(FakeArray(array), out=out) is out
        assert norm_error(out.inside, expected) < 1e-12

    def test_another_library_s_arrays(self, gpus, rng):
        space = one(backend="cuda")
        (array,), out = numbers(space, "coeff", rng), ForeignTensor(np.full((1, 2, 16), np.nan))
        mass = hp.Mass(space)
        assert isinstance(mass(ForeignTensor(array)), FakeArray)  # its library is not told how to take them
        with count_transfers() as moved:
            assert mass(ForeignTensor(array), out=out) is out
        assert moved.total == 0
        assert norm_error(out.inside, hp.Mass(space, backend="numpy")(array)) < 1e-13

    def test_fields_of_device_arrays(self, gpus, rng):
        space = several(backend="cuda")
        arrays = numbers(space, "coeff", rng)
        with count_transfers() as moved:
            field = space.field("coeff", [FakeArray(a) for a in arrays])
            assert field.home.name == "cuda:0"
        assert moved.total == 0
        assert all(np.shares_memory(p.read(p.device).inside, a) for p, a in zip(field.data, arrays, strict=True))
        fortran = [FakeArray(np.asfortranarray(np.repeat(a, 2, axis=0))) for a in arrays]
        assert all(
            np.array_equal(a[1], b[0]) for a, b in zip(space.field("coeff", fortran).arrays, arrays, strict=True)
        )

    def test_wrong_devices(self, gpus, rng):
        space = one(backend="cuda")
        (array,) = numbers(space, "coeff", rng)
        mass, good = hp.Mass(space), FakeArray(array)
        with pytest.raises(
            ArgumentError, match="Mass computes on host and got cupy.FakeArray on cuda:0; copy it to the host"
        ):
            hp.Mass(one())(good)
        with pytest.raises(
            ArgumentError, match=r"out of Mass, block 0: Mass writes on host, got cupy.FakeArray on cuda:0"
        ):
            hp.Mass(one())(array, out=FakeArray(array.copy()))
        with pytest.raises(
            ArgumentError, match=r"out of Mass, block 0: Mass writes on cuda:0, got numpy.ndarray on the host"
        ):
            mass(good, out=np.empty_like(array))
        with pytest.raises(
            ArgumentError, match=r"FakeArray on cuda:1, which no backend uses here and now \(host, cuda:0\)"
        ):
            mass(FakeArray(array, 1))
        with pytest.raises(ArgumentError, match="ForeignTensor on cuda:1, which no backend uses"):
            mass(good, out=ForeignTensor(array.copy(), 1))
        with pytest.raises(StateError, match="cannot write into its own argument"):
            mass(good, out=FakeArray(array))
        with pytest.raises(ArgumentError, match="not in C order; give cupy.ascontiguousarray"):
            mass(FakeArray(np.asfortranarray(np.repeat(array, 2, axis=0))))
        two = several(backend="cuda")
        first, second = numbers(two, "coeff", rng)
        with pytest.raises(ArgumentError, match="arrays on the host and on cuda:0; give all of them on one"):
            hp.Mass(two)([FakeArray(first), second])

    def test_an_operator_belongs_to_its_gpu(self, gpus, rng):
        space = one(backend="cuda")
        (array,) = numbers(space, "coeff", rng)
        mass, u = hp.Mass(space), space.field("coeff", [array])
        assert mass.device.name == "cuda:0"
        gpus.current = 1
        with pytest.raises(DeviceError, match=r"Mass was made on cuda:0, .* cuda:1 is the current device"):
            mass(u)
        other = hp.Mass(space)
        assert other.device.name == "cuda:1"
        v = other(u)
        assert v.home.name == "cuda:1" and u.data[0].device.name == "cuda:1"
        # A pair has one device: what is on the second GPU is not silently taken to the first.
        gpus.current = 0
        with pytest.raises(ArgumentError, match="lives on 'cuda:1' and the host; copy it before using it on 'cuda:0'"):
            mass(u)
        assert pickle.loads(pickle.dumps(other)).device.name == "cuda:0"

    def test_errors_say_what_would_fit(self, gpus, rng):
        space = hp.Space(box("hex", (4, 4, 4)).elevated(2).transformed(lambda x: x + 0.1 * np.sin(x[:, ::-1])), 3)
        u = space.field("coeff", numbers(space, "coeff", rng))
        mass = hp.Mass(space, backend="cuda")
        gpus.free = u.nbytes + 1000
        u.data[0].read(mass.device)
        gpus.free = u.nbytes // 2
        with pytest.raises(DeviceError) as caught:
            mass(u)
        text = str(caught.value)
        assert type(caught.value) is DeviceError
        assert "Mass on block 0, Block(64 quadratic hex, P=3" in text
        assert "cuda:0 has no room for 3.28e-05 GB: 1.64e-05 GB of 2.15 GB are free" in text
        # An argument, a result and 125 weights an element; half the result fits, and half of that in float32.
        assert "takes 0.00013 GB; there is room for about 32 of its 64 elements, or for all of them at order" in text
        assert text.endswith("or for all of them in float32")
        gpus.free = 100
        with pytest.raises(DeviceError, match="Helmholtz on block 0.*about 0 of its 64 elements"):
            hp.Helmholtz(space, lam=1.0, backend="cuda")

    def test_memory_report(self, gpus, rng):
        space = one(backend="cuda")
        u, mass = space.field("coeff", numbers(space, "coeff", rng)), hp.Mass(space, backend="numpy")
        hp.Mass(space)(u)
        (row,) = space.memory_report()
        assert row["held"]["host"] == {"wJ": row["wJ"], "fields": u.nbytes}
        assert row["held"]["cuda:0"] == {"fields": u.nbytes, "wJ": row["wJ"]}
        result = mass(u)
        (row,) = space.memory_report()
        assert row["held"]["host"]["fields"] == u.nbytes + result.nbytes
        copy = hp.Field(space, "coeff", u.data)  # the same memory
        assert space.memory_report() == [row]
        # The factors on a GPU stay for the space's next operators.
        del copy, u, result, mass
        assert space.memory_report()[0]["held"] == {"host": {}, "cuda:0": {"wJ": row["wJ"]}}
