"""Fields and pairs in the hands of other libraries: no copy, and the right side stale."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.runtime.device import current_device
from hpfem.backends.exchange import placed
from hpfem.errors import ArgumentError, StateError
from hpfem.memory import HOST, PairArray, count_transfers
from hpfem.mesh import box
from tests.fake_cupy import FakeArray, ForeignTensor, fake_cuda
from tests.samples import curved


@pytest.fixture
def field():
    """A field of two components on a space with one block."""
    space = hp.Space(curved("quad", order=2), 2)
    return space.field("coeff", [np.arange(36.0).reshape(2, 2, 9)])


@pytest.fixture
def gpu():
    """Memory of the first of two GPUs."""
    with fake_cuda():
        yield current_device()


def test_numpy_takes_the_memory(field):
    array = field.arrays[0]
    for taken in (np.asarray(field), np.from_dlpack(field), np.asarray(field.data[0]), np.from_dlpack(field.data[0])):
        assert np.shares_memory(taken, array)
        assert taken.shape == (2, 2, 9)
    np.asarray(field)[0, 0, 0] = 7
    assert field.arrays[0][0, 0, 0] == 7
    assert field.__dlpack_device__() == (1, 0)


def test_copies_only_where_needed(field):
    single = np.asarray(field, dtype=np.float32)
    assert single.dtype == np.float32 and np.array_equal(single, field.arrays[0])
    assert not np.shares_memory(np.array(field), field.arrays[0])
    assert np.shares_memory(np.asarray(field, copy=False), field.arrays[0])
    with pytest.raises(ValueError, match="needs a copy"):
        np.asarray(field, dtype=np.float32, copy=False)
    assert not np.shares_memory(np.from_dlpack(field, copy=True), field.arrays[0])


def test_what_is_taken_on_the_host_is_stale_on_the_device(field, gpu):
    pair = field.data[0]
    pair.read(gpu)
    assert pair.valid(gpu)
    np.asarray(field)[...] = 1
    assert not pair.valid(gpu)
    assert np.array_equal(pair.read(gpu).inside, np.ones((2, 2, 9)))
    np.from_dlpack(field)
    assert not pair.valid(gpu)


def test_what_is_taken_on_the_device_is_stale_on_the_host(field, gpu):
    pair = field.data[0]
    with pytest.raises(AttributeError, match="not on a device"):
        _ = field.__cuda_array_interface__
    assert not hasattr(pair, "__cuda_array_interface__")
    side = pair.read(gpu)
    # Valid on both sides: the interface is the device's, DLPack's device is the host.
    assert field.__dlpack_device__() == (1, 0)
    assert field.__cuda_array_interface__["data"][0] == side.data.ptr
    assert not pair.valid() and pair.valid(gpu)
    with count_transfers() as moved:
        assert field.__dlpack_device__() == (2, 0)
        capsule = field.__dlpack__(stream=5)
    assert moved.total == 0
    assert capsule.array is side and capsule.options == {"stream": 5}
    side.inside[...] = 3
    with count_transfers() as moved:
        assert np.array_equal(np.asarray(field), np.full((2, 2, 9), 3.0))
    assert moved.to_host == 1


def test_a_copy_on_the_host_of_what_is_on_the_device(field, gpu):
    pair = field.data[0]
    pair.readwrite(gpu).inside[...] = 4
    with pytest.raises(BufferError, match="the values are on cuda:0"):
        field.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(ValueError, match="on the host needs a copy of the values on cuda:0"):
        np.asarray(field, copy=False)
    with count_transfers() as moved:
        taken = np.from_dlpack(pair, device="cpu")
    assert moved.to_host == 1
    assert np.array_equal(taken, np.full((2, 2, 9), 4.0))
    assert not np.shares_memory(taken, pair.read())
    assert pair.valid(gpu)


def test_fields_of_several_blocks_say_where_their_arrays_are():
    space = hp.Space(box(("quad", "tri"), (2, 1)), 1)
    field = space.zeros("coeff")
    for ask in (np.asarray, np.from_dlpack, lambda f: f.__dlpack_device__()):
        with pytest.raises(StateError, match=r"2 arrays, one per block: use field.data\[i\]"):
            ask(field)
    assert not hasattr(field, "__cuda_array_interface__")
    assert [np.asarray(pair).shape for pair in field.data] == [pair.shape for pair in field.data]


def test_nothing_to_take():
    field = hp.Space(curved("quad"), 1).empty("coeff")
    for ask in (np.asarray, np.from_dlpack):
        with pytest.raises(StateError, match="before anything was written"):
            ask(field)


def test_arithmetic_with_arrays_is_still_refused(field):
    for add in (lambda: np.ones(9) + field, lambda: field + np.ones((2, 2, 9))):
        with pytest.raises(StateError, match="a number is added"):
            add()
    assert np.array_equal((2 * field).arrays[0], 2 * field.arrays[0])


def test_pickles(field):
    copy = pickle.loads(pickle.dumps(field))
    assert np.array_equal(np.asarray(copy), np.asarray(field))
    assert copy.space.memory_report()[0]["held"]["host"] == {"fields": field.nbytes}


def test_fields_are_made_of_any_library_s_arrays(field, gpu):
    space, array = field.space, field.arrays[0]
    for made in (FakeArray(array), ForeignTensor(array)):
        on_gpu = space.field("coeff", [made])
        assert on_gpu.home is gpu
        assert np.shares_memory(on_gpu.data[0].read(gpu).inside, array)
    with pytest.raises(ArgumentError, match=r"cuda:1, which no backend uses here and now"):
        space.field("coeff", [FakeArray(array, 1)])
    with pytest.raises(ArgumentError, match="expected an array of NumPy, CuPy or the like, got int"):
        space.field("coeff", [3])
    with pytest.raises(StateError, match="has dtype float32"):
        space.field("coeff", [FakeArray(array.astype(np.float32))])


def test_vectors_are_where_their_library_has_them(gpu):
    array = np.arange(3.0)
    for made in (FakeArray(array), ForeignTensor(array)):
        found, device = placed(made)
        assert device is gpu and np.shares_memory(found.inside, array)
    assert placed(array) == (array, HOST) and placed([1.0]) == ([1.0], HOST)


def test_overlaps_on_the_device(gpu):
    array = np.arange(8.0)
    first, second = (PairArray.of(FakeArray(array[part]), gpu) for part in (slice(0, 5), slice(4, 8)))
    apart = PairArray.of(FakeArray(array[5:]), gpu)
    assert first.overlaps(second) and not first.overlaps(apart)
    assert not first.overlaps(PairArray.of(array))
    assert first.held == {"cuda:0": 40}
    first.read(HOST)
    assert first.held == {"cuda:0": 40, "host": 40}
