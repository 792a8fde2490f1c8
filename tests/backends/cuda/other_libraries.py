"""PyTorch and JAX beside hpfem on a GPU: the same memory, the caller's streams, results of the same library.

    python tests/backends/cuda/other_libraries.py

A script and no test: neither library is among the tests' requirements. It says what was checked, or fails.
"""

import os
import warnings

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import cupy
import numpy as np

import hpfem as hp
from hpfem.errors import ArgumentError, DeviceError
from hpfem.memory import count_transfers
from hpfem.mesh import box


def spaces():
    """With one block and with two, and the shapes of their arrays."""
    for shapes in ("quad", ("quad", "tri")):
        mesh = box(shapes, (4, 2)).elevated(2).transformed(lambda x: x + 0.05 * np.sin(1.3 * x[:, ::-1]))
        space = hp.Space(mesh, 3, backend="cuda")
        yield space, [pair.shape for pair in space.empty("coeff", 2).data]


def refused(what, call, *arguments, **options):
    """Check that a call gives an error of ours that says something."""
    text = "nothing"
    try:
        call(*arguments, **options)
    except (ArgumentError, DeviceError) as error:
        text = str(error)
    assert what in text, text


def close(found, expected):
    """Whether arrays on the host are equal but for rounding."""
    return np.abs(np.asarray(found) - expected).max() < 1e-12 * np.abs(expected).max()


def pytorch():
    """Tensors in and out, fields as tensors, PyTorch's stream."""
    import torch

    for space, shapes in spaces():
        host = [np.random.default_rng(0).standard_normal(shape) for shape in shapes]
        expected = hp.Helmholtz(space, lam=1.0, backend="numpy")(host)
        helmholtz = hp.Helmholtz(space, lam=1.0)
        tensors = [torch.from_numpy(a).cuda() for a in host]
        with count_transfers() as moved:
            found = helmholtz(tensors)
            out = [torch.full_like(t, float("nan")) for t in tensors]
            assert helmholtz(tensors, out=out) is out
        assert moved.total == 0
        assert all(type(t) is torch.Tensor and t.is_cuda for t in found)
        assert all(close(t.cpu(), e) for t, e in zip([*found, *out], expected * 2))
        # On the host.
        mine = hp.Helmholtz(space, lam=1.0, backend="numpy")
        there = [torch.full(shape, float("nan"), dtype=torch.float64) for shape in shapes]
        given = [torch.from_numpy(a) for a in host]
        assert mine(given, out=there) is there
        assert all(close(t, e) for t, e in zip([*there, *mine(given)], expected * 2))
        assert all(type(t) is torch.Tensor for t in mine(given))
        # A field's memory, and tensors as fields.
        field = space.field("coeff", tensors)
        taken = [torch.from_dlpack(pair) for pair in field.data]
        assert [t.data_ptr() for t in taken] == [t.data_ptr() for t in tensors]
        if len(taken) == 1:
            assert torch.from_dlpack(field).data_ptr() == torch.as_tensor(field, device="cuda").data_ptr()
            assert torch.from_dlpack(field).data_ptr() == tensors[0].data_ptr()
        # PyTorch's stream is current for CuPy: everything happens there, in order, and nobody waits.
        stream = torch.cuda.Stream()
        late = [torch.full_like(t, float("nan")) for t in tensors]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), cupy.cuda.ExternalStream(stream.cuda_stream):
            torch.cuda._sleep(200_000_000)
            for a, b in zip(late, tensors):
                a.copy_(b)
            result = helmholtz(late)
            assert not stream.query()
            result = [t * 2 for t in result]
        stream.synchronize()
        assert all(close(t.cpu() / 2, e) for t, e in zip(result, expected))
        # Different streams: DLPack orders them, without a word from the caller.
        for a in late:
            a.fill_(float("nan"))
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            for a, b in zip(late, tensors):
                a.copy_(b)
            with cupy.cuda.Stream(non_blocking=True):
                result = [t * 2 for t in helmholtz(late)]
        torch.cuda.synchronize()
        assert all(close(t.cpu() / 2, e) for t, e in zip(result, expected))
        refused("records gradients", helmholtz, [t.requires_grad_() for t in found])
        refused("writes on cuda:0, got torch.Tensor on the host", helmholtz, tensors, out=given)
        refused("computes on host and got torch.Tensor on cuda:0", mine, tensors)
        refused("not in C order", helmholtz, [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors])
    print(f"PyTorch {torch.__version__}: tensors in, out and as fields; streams", flush=True)


def jax():
    """Arrays in, arrays out; fields as arrays."""
    import jax
    import jax.numpy as jnp

    for space, shapes in spaces():
        host = [np.random.default_rng(0).standard_normal(shape) for shape in shapes]
        expected = hp.Helmholtz(space, lam=1.0, backend="numpy")(host)
        helmholtz = hp.Helmholtz(space, lam=1.0)
        arrays = [jax.device_put(a, jax.devices("gpu")[0]) for a in host]
        with count_transfers() as moved:
            found = helmholtz(arrays)
        assert moved.total == 0
        assert all(isinstance(a, jax.Array) and a.devices() == arrays[0].devices() for a in found)
        assert all(close(a, e) for a, e in zip(found, expected))
        assert all(close(jax.jit(lambda a: 2 * a)(a) / 2, e) for a, e in zip(found, expected))
        refused("arrays of JAX cannot be written to", helmholtz, arrays, out=arrays)
        field = space.field("coeff", [cupy.asarray(a) for a in host])
        taken = [jnp.from_dlpack(pair) for pair in field.data]
        pointers = [pair.read(helmholtz.device).data.ptr for pair in field.data]
        assert [a.unsafe_buffer_pointer() for a in taken] == pointers
        made = space.field("coeff", arrays)
        assert [p.read(helmholtz.device).data.ptr for p in made.data] == [a.unsafe_buffer_pointer() for a in arrays]
        on_host = [jax.device_put(a, jax.devices("cpu")[0]) for a in host]
        there = hp.Helmholtz(space, lam=1.0, backend="numpy")(on_host)
        assert all(isinstance(a, jax.Array) and close(a, e) for a, e in zip(there, expected))
    print(f"JAX {jax.__version__}: arrays in, out and as fields", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of a stream that is taken by its number
    print(f"CuPy {cupy.__version__}, NumPy {np.__version__}")
    pytorch()
    jax()
