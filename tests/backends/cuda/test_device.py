"""On a GPU: what the operators' tests do not show. One element per thread, memory, streams, graphs, large arrays."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.runtime.device import current_device
from hpfem.errors import NotSuitable
from hpfem.memory import PairArray, count_transfers
from hpfem.mesh import box
from tests.samples import NAMES, curved, norm_error, skewed, straight

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def cupy():
    """CuPy, imported where there is a GPU only."""
    import cupy

    return cupy


def operators(space, **how):
    """One operator per kind of form and of factors."""
    velocity, plain = [0.3, -0.2, 0.5][: space.dim], {key: how[key] for key in how if key != "algorithm"}
    yield hp.BwdTrans, {}, plain
    yield hp.IProductWRTBase, {}, plain
    yield hp.IProductWRTDerivBase, {}, how
    yield hp.Mass, {}, plain
    yield hp.Helmholtz, {"lam": lambda *x: 1 + x[0] ** 2, "diffusivity": 0.7}, how
    yield hp.AdvectionDiffusionReaction, {"velocity": velocity, "reaction": 1.5, "diffusivity": 0.4}, how


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kind", ["affine", "deformed"])
@pytest.mark.parametrize("name", NAMES)
def test_one_element_per_thread(name, kind, order, dtype, rng):
    mesh = skewed(straight(name)) if kind == "affine" else curved(name, order=2)
    space = hp.Space(mesh, order, dtype=dtype, quadrature="collapsed")
    served = 0
    for make, coefficients, how in operators(space, strategy="sumfac", algorithm="noncollocated", backend="cuda"):
        try:
            operator = make(space, **coefficients, **how)
        except NotSuitable:
            continue
        served += 1
        components = space.dim if make is hp.IProductWRTDerivBase else 2
        field = space.empty(operator.input_state, components)
        for pair in field.data:
            pair.write()[...] = rng.standard_normal(pair.shape)
        expected = make(space, **coefficients, backend="numpy")(field)
        for found, wanted in zip(operator(field).arrays, expected.arrays, strict=True):
            assert norm_error(found, wanted) < (1e-12 if dtype == np.float64 else 1e-5)
    assert served == 6 or order == 3


def test_applications_move_and_allocate_nothing(cupy):
    mesh = box(("hex", "prism", "pyramid", "tet"), (4, 4, 4)).elevated(2)
    space = hp.Space(mesh, 3, backend="cuda")
    helmholtz = hp.Helmholtz(space, lam=1.0)
    u, out = space.zeros("coeff"), space.empty("dual")
    for pair in u.data:
        pair.readwrite(helmholtz.backend.device())
    helmholtz(u, out=out)
    pool = cupy.get_default_memory_pool()
    before, taken = pool.used_bytes(), []

    class Hook(cupy.cuda.MemoryHook):
        name = "count"

        def malloc_preprocess(self, **what):
            taken.append(what)

    with count_transfers() as moved, Hook():
        for _ in range(200):
            helmholtz(u, out=out)
    assert moved.total == 0
    assert not taken
    assert pool.used_bytes() == before


def test_a_number_without_axes_is_an_array(cupy):
    found = PairArray.of(np.array(2.5)).read(current_device())
    assert found.shape == () and float(found) == 2.5


def test_a_graph_captures_the_caller_s_stream(cupy, rng):
    space = hp.Space(curved("hex", order=2), 3, backend="cuda")
    helmholtz = hp.Helmholtz(space, lam=1.0)
    device = helmholtz.backend.device()
    u, out = space.zeros("coeff"), space.empty("dual")
    u.data[0].write(device)[...] = 1.0
    helmholtz(u, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        helmholtz(u, out=out)
        graph = stream.end_capture()
    values = cupy.asarray(rng.standard_normal(u.data[0].shape))
    u.data[0].readwrite(device)[...] = values
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = hp.Helmholtz(space, lam=1.0, backend="numpy")(u)
    assert norm_error(out.data[0].read(device).get(), expected.arrays[0]) < 1e-12


def test_cupy_arrays_become_fields(cupy, rng):
    space = hp.Space(curved("tet", order=2), 2, backend="cuda", quadrature="collapsed")
    helmholtz = hp.Helmholtz(space, lam=1.0)
    device = helmholtz.backend.device()
    values = cupy.asarray(rng.standard_normal((1, space.n_cells, space.blocks[0].n_modes)))
    field = hp.Field(space, "coeff", [PairArray.of(values, device)])
    with count_transfers() as moved:
        result = helmholtz(field)
    assert moved.total == 0
    assert isinstance(result.data[0].read(device), cupy.ndarray)
    expected = hp.Helmholtz(space, lam=1.0, backend="numpy")(field)
    assert norm_error(result.arrays[0], expected.arrays[0]) < 1e-12
