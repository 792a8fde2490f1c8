"""What CUDA needs and what it says where that is missing; what is remembered of each GPU. Without a GPU."""

import importlib.util
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.runtime import device as cuda
from hpfem.backends.cuda.runtime.kernel import loaded
from hpfem.errors import DeviceError
from hpfem.memory import OutOfMemory
from tests.fake_cupy import FakeArray, fake_cuda
from tests.samples import straight


def refusal():
    """What asking for the backend says."""
    with pytest.raises(DeviceError) as caught:
        hp.Mass(hp.Space(straight("quad"), 1), backend="cuda")
    return str(caught.value)


@pytest.fixture
def nothing_known():
    """What keeps CUDA from working is asked for anew, before and after."""
    cuda.missing.cache_clear()
    yield
    cuda.missing.cache_clear()


def test_no_cupy(monkeypatch, nothing_known):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "cupy" else found(name))
    assert refusal() == (
        "backend 'cuda' cannot run here: CuPy is not installed; pip install 'hpfem[cuda13]' (or 'hpfem[cuda12]' for an"
        " older driver)"
    )


def test_cupy_that_cannot_be_imported(tmp_path, monkeypatch, nothing_known):
    (tmp_path / "cupy.py").write_text('raise ImportError("libcuda.so.1: cannot open shared object file")')
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert "CuPy is installed but cannot be imported (libcuda.so.1: cannot open shared object file); pip" in refusal()


def test_cupy_without_a_driver_or_a_gpu():
    with fake_cuda(count=RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")):
        text = refusal()
        assert "cannot reach a GPU (cudaErrorInsufficientDriver: CUDA driver version is insufficient)" in text
        assert "it needs NVIDIA's driver, of a version that fits: pip install" in text
    for count in (RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected"), 0):
        with fake_cuda(count=count):
            assert "there is no NVIDIA GPU" in refusal() and refusal().endswith("use backend 'cpu'")


@pytest.mark.parametrize("version", ["13.6.0", "14.1.9", "14.0.0rc1"])
def test_old_cupy(version):
    with fake_cuda(version):
        assert f"CuPy {version} is too old, 14.2 is needed; pip install" in refusal()


@pytest.mark.parametrize("version", ["14.2.0", "14.2.1rc1", "15.0.0a1"])
def test_new_enough(version):
    with fake_cuda(version):
        assert cuda.missing() is None


def test_each_gpu_is_asked_once():
    with fake_cuda() as gpus:
        for _ in range(2):
            assert (cuda.architecture(), cuda.limits().shared_block) == ("sm_90", 232448)
        gpus.current = 1
        for _ in range(2):
            assert (cuda.architecture(), cuda.limits().shared_block) == ("sm_80", 101376)
        gpus.current = 0
        assert cuda.architecture() == "sm_90"
        assert gpus.asked == [0, 0, 1, 1]


def test_one_device_per_gpu():
    with fake_cuda() as gpus:
        first = cuda.current_device()
        assert (first.name, first.number) == ("cuda:0", 0)
        assert cuda.current_device() is first and pickle.loads(pickle.dumps(first)) is first
        gpus.current = 1
        second = cuda.current_device()
        assert second.name == "cuda:1"
        # Memory is that of the device, whichever is current, and which one is stays as it was.
        assert (first.empty((2,), float).device.id, second.empty((2,), float).device.id) == (0, 1)
        assert gpus.current == 1


def test_uploads_are_waited_for():
    with fake_cuda() as gpus:
        array = np.arange(4.0)
        assert np.array_equal(cuda.upload(array).inside, array)
        assert gpus.waits == 1
        device, out = cuda.current_device(), np.empty(4)
        on_device = device.empty((4,), float)
        device.from_host(array, on_device)
        assert gpus.waits == 2
        device.to_host(on_device, out)
        assert np.array_equal(out, array) and gpus.waits == 2


def test_overlapping_memory():
    with fake_cuda():
        device, array = cuda.current_device(), np.arange(8.0)
        assert device.overlap(FakeArray(array[:5]), FakeArray(array[4:]))
        assert not device.overlap(FakeArray(array[:4]), FakeArray(array[4:]))


def test_no_room():
    with fake_cuda() as gpus:
        gpus.free = 1_000_000
        with pytest.raises(
            OutOfMemory, match=r"cuda:0 has no room for 0.008 GB: 0.001 GB of 2.15 GB are free"
        ) as caught:
            cuda.current_device().empty((1000, 1000), np.float64)
        assert (caught.value.needed, caught.value.free, caught.value.total) == (8_000_000, 1_000_000, 1 << 31)
        copy = pickle.loads(pickle.dumps(caught.value))
        assert str(copy) == str(caught.value) and copy.needed == 8_000_000
        assert isinstance(copy, DeviceError)
        gpus.limit, gpus.used = 3_000_000, 2_500_000
        with pytest.raises(OutOfMemory, match=r"0.0005 GB of 0.003 GB are free"):
            cuda.current_device().empty((1000, 1000), np.float64)


def test_a_driver_that_refuses_a_kernel(monkeypatch):
    class Refusing:
        def __init__(self, path):
            raise RuntimeError("CUDA_ERROR_UNSUPPORTED_PTX_VERSION")

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(RawModule=Refusing))
    with pytest.raises(DeviceError, match=r"driver does not take the kernel .*a\.cubin .*NVRTC \d+\.\d+; update it"):
        loaded(Path("a.cubin"), "sumfac_top", 0)
