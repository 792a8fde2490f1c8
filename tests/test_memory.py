"""Host/device pairs: validity, lazy transfers and their counters, with a stand-in device."""

import pickle
import threading
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from hpfem.errors import ArgumentError, StateError
from hpfem.memory import FEW, HOST, PairArray, as_numpy, count_transfers, every, moved
from tests.fake_cupy import FakeArray
from tests.standin import StandIn


@pytest.fixture
def device():
    """A fresh device."""
    return StandIn()


@pytest.fixture
def pair():
    """Six numbers on the host."""
    return PairArray.of(np.arange(6.0).reshape(2, 3))


def test_of_wraps_without_copying():
    array = np.arange(6.0).reshape(2, 3)
    pair = PairArray.of(array)
    assert (pair.shape, pair.dtype, pair.nbytes) == ((2, 3), np.float64, 48)
    assert np.shares_memory(pair.read(), array)
    assert pair.home is HOST
    assert pair.device is None


def test_reading_on_a_device_moves_once(pair, device):
    with count_transfers() as count:
        on_device = pair.read(device)
        assert np.array_equal(on_device, np.arange(6.0).reshape(2, 3))
        assert not np.shares_memory(on_device, pair.read())
        pair.read(device)
    assert (count.to_device, count.to_host, count.total) == (1, 0, 1)
    assert (count.bytes_to_device, count.bytes_to_host) == (48, 0)
    assert (device.made, device.received, device.sent) == (1, 1, 0)
    assert pair.valid()
    assert pair.valid(device)
    assert pair.home is HOST
    assert pair.device is device


def test_writing_moves_nothing_and_makes_the_other_side_stale(pair, device):
    with count_transfers() as count:
        pair.write(device)[...] = 7.0
        assert not pair.valid()
        assert pair.valid(device)
        assert pair.home is device
    assert count.total == 0
    with count_transfers() as count:
        assert np.array_equal(pair.read(), np.full((2, 3), 7.0))
        pair.read()
    assert (count.to_device, count.to_host, count.bytes_to_host) == (0, 1, 48)
    assert pair.valid(device)
    pair.write()[...] = 1.0
    assert not pair.valid(device)


def test_readwrite_brings_the_values_and_makes_the_other_side_stale(pair, device):
    array = pair.readwrite(device)
    assert np.array_equal(array, np.arange(6.0).reshape(2, 3))
    assert not pair.valid()
    array *= 2
    host = pair.readwrite()
    assert np.array_equal(host, 2 * np.arange(6.0).reshape(2, 3))
    assert not pair.valid(device)
    host += 1
    assert np.array_equal(pair.read(device), 2 * np.arange(6.0).reshape(2, 3) + 1)
    assert (device.made, device.received, device.sent) == (1, 2, 1)


def test_arrays_read_on_the_host_are_read_only(pair):
    with pytest.raises(ValueError, match="read-only"):
        pair.read()[0, 0] = 1
    pair.readwrite()[0, 0] = 5
    assert pair.read()[0, 0] == 5


def test_array_of_a_device_comes_to_the_host_when_read(device):
    array = np.arange(4.0)
    pair = PairArray.of(array, device)
    assert pair.home is device
    assert np.shares_memory(pair.read(device), array)
    with count_transfers() as count:
        assert np.array_equal(pair.read(), array)
    assert (count.to_host, device.sent) == (1, 1)


def test_reading_before_writing_is_refused(device):
    pair = PairArray((2, 2), np.float32)
    assert pair.nbytes == 16
    for ask in (pair.read, pair.readwrite):
        for where in (HOST, device):
            with pytest.raises(StateError, match="before anything was written"):
                ask(where)
    # The refusals left nothing behind.
    assert pair.device is None
    pair.write()[...] = 3
    assert np.array_equal(pair.read(StandIn("another")), np.full((2, 2), 3, np.float32))


def test_second_device_is_refused(pair, device):
    pair.read(device)
    with pytest.raises(ArgumentError, match="lives on 'stand-in' and the host.*'another'"):
        pair.read(StandIn("another"))


def test_pickles_by_value_and_lands_on_the_host(pair, device):
    pair.readwrite(device)[0, 0] = 9
    copy = pickle.loads(pickle.dumps(pair))
    assert copy.home is HOST
    assert copy.device is None
    assert np.array_equal(copy.read(), pair.read())
    copy.readwrite()[0, 0] = 1
    assert pair.read()[0, 0] == 9
    assert not pickle.loads(pickle.dumps(PairArray((3,), np.float64))).valid()


def test_interfaces_of_a_device_are_those_of_what_is_there(pair, device, monkeypatch):
    monkeypatch.setattr(StandIn, "interfaces", ("__array_interface__",))
    assert not hasattr(pair, "__array_interface__")
    side = pair.read(device)
    assert pair.__array_interface__ == side.__array_interface__
    assert pair.valid(device) and not pair.valid()
    with pytest.raises(AttributeError, match="'PairArray' object has no attribute 'shade'"):
        _ = pair.shade
    pair.readwrite()
    assert not hasattr(pair, "__array_interface__") and not hasattr(pair, "__cuda_array_interface__")


def test_overlaps_in_memory(pair):
    assert pair.overlaps(pair)
    assert pair.overlaps(PairArray.of(pair.readwrite()[1:]))
    assert not pair.overlaps(PairArray.of(pair.read().copy()))
    assert not pair.overlaps(PairArray((2, 3), np.float64))


def test_nested_counters_count_each_their_own(pair, device):
    with count_transfers() as outer:
        with count_transfers() as inner:
            pass
        pair.read(device)
    assert (outer.total, inner.total) == (1, 0)
    with count_transfers() as outer:
        pair.write()[...] = 0
        with count_transfers() as inner:
            pair.read(device)
        pair.write(device)
        pair.read()
    assert (outer.to_device, outer.to_host, inner.total) == (1, 1, 1)
    pair.write()
    pair.read(device)
    assert outer.total == 2


def test_counters_go_when_the_body_raises(pair, device):
    def body():
        with count_transfers() as count:
            seen.append(count)
            raise KeyError

    seen = []
    with pytest.raises(KeyError):
        body()
    pair.read(device)
    assert seen[0].total == 0


def test_threads_use_pairs_of_their_own():
    device = StandIn()
    results = []

    def work(k):
        pair = PairArray((100,), np.float64)
        pair.write()[...] = k
        for _ in range(50):
            pair.readwrite(device)[...] += 1
            pair.readwrite()[...] += 1
        results.append((k, pair.read().copy()))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    with count_transfers() as count:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(np.array_equal(values, np.full(100, k + 100.0)) for k, values in results)
    assert len(results) == 4
    assert count.total > 0


@pytest.mark.parametrize("library", ["numpy", pytest.param("cupy", marks=pytest.mark.cuda)])
def test_every_is_all(library):
    xp = import_module(library)
    some = xp.arange(12).reshape(3, 4)
    assert every(some >= 0) and every(some[:, ::2] < 11) and every(some[:0] > 0)
    assert not every(some > 0) and not every(some.T < 11)


@pytest.mark.parametrize("size", [10, 4 * FEW + 2])
@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_arrays_go_to_a_device_and_back(size, dtype):
    """Without `asarray`, with which CuPy takes pinned memory first."""
    xp = SimpleNamespace(asarray=None, empty=lambda shape, dtype: FakeArray(np.full(shape, 7, dtype)))
    for array in (np.arange(size).astype(dtype), np.arange(2 * size).astype(dtype).reshape(2, -1).T):
        there = moved(array, xp)
        assert isinstance(there, FakeArray) and moved(there.inside, np) is there.inside
        back = as_numpy(there)
        assert np.array_equal(back, array) and back.dtype == dtype
