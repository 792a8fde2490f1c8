"""On a GPU: whose memory and whose stream; no allocation, no transfer, no waiting; arrays of more than 2^31 entries."""

import gc
import warnings
from dataclasses import replace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.codegen.layout import stored_factors
from hpfem.backends.cuda.dense.strategy import CudaDense
from hpfem.backends.cuda.runtime import kernel as kernels
from hpfem.backends.cuda.stdmat.strategy import CudaStdMat
from hpfem.backends.cuda.sumfac.strategy import CudaSumFac
from hpfem.backends.cuda.sumfac_top.strategy import CudaSumFacTop
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import ArgumentError, DeviceError, StateError
from hpfem.geometry.block_geometry import BlockGeometry
from hpfem.memory import HOST, count_transfers
from hpfem.mesh import box
from tests.samples import curved, norm_error, skewed, straight

pytestmark = pytest.mark.cuda

# Every strategy with what it can serve on cells of all shapes at order 2, curved ones but for "dense".
WAYS = {
    "sumfac-top": {"strategy": "sumfac-top"},
    "sumfac": {"strategy": "sumfac", "algorithm": "noncollocated"},
    "stdmat": {"strategy": "stdmat"},
    "stdmat, collocated": {"strategy": "stdmat", "algorithm": "collocated"},
    "dense": {"strategy": "dense", "algorithm": "noncollocated"},
}
each_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def cupy():
    """CuPy, with what other tests left in its pool given back."""
    import cupy

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    return cupy


def several(order=2, shapes=("hex", "prism", "pyramid", "tet"), bent=True, **options):
    """A space with a block of each shape, curved or affine."""
    mesh = box(shapes, (4, 1, 1) if len(shapes) == 4 else (4, 2))
    if bent:
        mesh = mesh.elevated(2).transformed(lambda x: x + 0.05 * np.sin(1.3 * x[:, ::-1]))
    return hp.Space(mesh, order, backend="cuda", **{"quadrature": "collapsed"} | options)


def on_gpu(cupy, space, state, components, rng):
    """Random CuPy arrays, one per block, and the same on the host."""
    host = [rng.standard_normal(pair.shape).astype(space.dtype) for pair in space.empty(state, components).data]
    return [cupy.asarray(array) for array in host], host


def coupled(u, du, k):
    """Two components that meet in the value and in the flux."""
    return [k * u[1], u[0] * u[1]], [du[1] + k * du[0], du[0]]


def occupied(cupy, seconds=0.2):
    """Give the current stream work for a while, and return at once."""
    spin = cupy.RawKernel(
        'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n); }', "spin"
    )
    rate = 1e3 * cupy.cuda.Device().attributes.get("ClockRate", 2_000_000)
    spin((1,), (1,), (np.int64(seconds * rate),))


class TestNothingHidden:
    """What an application with `out` does beside computing: nothing."""

    @each_way
    def test_no_transfer_and_no_allocation(self, way, cupy, rng):
        bent, how = way != "dense", WAYS[way]
        plane = several(shapes=("quad", "tri"), bent=bent)
        operators = [hp.Helmholtz(several(bent=bent), lam=1.3, **how), hp.Mass(plane, strategy=how["strategy"])]
        if way not in ("sumfac", "dense"):
            operators.append(hp.WeakForm(plane, coupled, fields={"k": 2.0}, components=2, **how))
            operators.append(hp.PhysDeriv(plane, strategy=how["strategy"]))
        pool = cupy.get_default_memory_pool()
        for operator in operators:
            space = operator.space
            arrays, host = on_gpu(cupy, space, operator.input_state, 2, rng)
            out = [cupy.full_like(a, np.nan) for a in operator(arrays)]
            field = space.field(operator.input_state, arrays)
            result = operator(field)
            cupy.cuda.Device().synchronize()
            gc.collect()  # what others left in circles would be given back meanwhile
            used, taken = pool.used_bytes(), []

            class Hook(cupy.cuda.MemoryHook):
                name = "count"

                def alloc_preprocess(self, taken=taken, **what):
                    taken.append(what)

                def malloc_preprocess(self, taken=taken, **what):
                    taken.append(what)

            with count_transfers() as moved, Hook():
                for _ in range(20):
                    assert operator(arrays, out=out) is out
                    operator(field, out=result)
            assert moved.total == 0 and not taken and pool.used_bytes() == used
            made = hp.WeakForm if operator.name == "coupled" else type(operator)
            expected = made(space, **self.options(operator))(host)
            for a, b, c in zip(out, result.data, expected, strict=True):
                assert norm_error(a.get(), c) < 1e-12
                assert norm_error(b.read(operator.device).get(), c) < 1e-12

    @staticmethod
    def options(operator):
        """What the same operator is made of on the host."""
        options = {"backend": "numpy"}
        if operator.name == "Helmholtz":
            options["lam"] = 1.3
        if operator.name == "coupled":
            options |= {"pointwise": coupled, "fields": {"k": 2.0}, "components": 2}
        return options

    @pytest.mark.parametrize("basis", ["modified", "lagrange"])
    @each_way
    def test_a_graph_captures_all_of_it(self, way, basis, cupy, rng):
        space = several(shapes=("quad", "tri"), bent=way != "dense", basis=basis)
        helmholtz = hp.Helmholtz(space, lam=1.3, **WAYS[way])
        arrays, host = on_gpu(cupy, space, "coeff", 2, rng)
        out = helmholtz(arrays)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            helmholtz(arrays, out=out)  # what libraries set up per stream
            stream.synchronize()
            stream.begin_capture()
            helmholtz(arrays, out=out)
            graph = stream.end_capture()
        for array, values in zip(arrays, host, strict=True):
            array.set(-values)
        for array in out:
            array.fill(np.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        for a, b in zip(out, hp.Helmholtz(space, lam=1.3, backend="numpy")(host), strict=True):
            assert norm_error(-a.get(), b) < 1e-12

    @each_way
    def test_work_is_on_the_caller_s_stream_and_does_not_wait(self, way, cupy, rng):
        space = several(bent=way != "dense")
        helmholtz = hp.Helmholtz(space, lam=1.3, **WAYS[way])
        arrays, host = on_gpu(cupy, space, "coeff", 2, rng)
        out, late = helmholtz(arrays), [cupy.full_like(a, np.nan) for a in arrays]
        own = cupy.cuda.Stream(non_blocking=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            foreign = cupy.cuda.ExternalStream(own.ptr)  # as another library's stream is taken: by its number
        for stream in (own, foreign):
            with stream:
                helmholtz(late, out=out)
            for array in (*late, *out):
                array.fill(np.nan)
            cupy.cuda.Device().synchronize()
            with stream:
                occupied(cupy)
                for a, b in zip(late, arrays, strict=True):
                    cupy.copyto(a, b)
                helmholtz(late, out=out)
                assert not own.done
                field = helmholtz(space.field("coeff", late))
                found = [a.get() for a in out]  # waits for this stream only
            expected = hp.Helmholtz(space, lam=1.3, backend="numpy")(host)
            for a, b, c in zip(found, field.arrays, expected, strict=True):
                assert norm_error(a, c) < 1e-12 and norm_error(b, c) < 1e-12

    def test_transfers_are_on_the_caller_s_stream(self, cupy, rng):
        space = several()
        mass = hp.Mass(space)
        arrays, host = on_gpu(cupy, space, "coeff", 1, rng)
        late = [cupy.full_like(a, np.nan) for a in arrays]
        cupy.cuda.Device().synchronize()
        with cupy.cuda.Stream(non_blocking=True):
            occupied(cupy)
            for a, b in zip(late, arrays, strict=True):
                cupy.copyto(a, b)
            field = space.field("coeff", late)
            assert all(np.array_equal(a, b) for a, b in zip(field.arrays, host, strict=True))
            result = mass(host)
        for a, b in zip(result, hp.Mass(space, backend="numpy")(host), strict=True):
            assert norm_error(a, b) < 1e-12


class TestArrays:
    """CuPy's arrays, and fields in the hands of CuPy."""

    @pytest.mark.parametrize("make", [hp.BwdTrans, hp.IProductWRTBase, hp.PhysDeriv, hp.Laplacian, hp.FwdTrans])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_what_goes_in_comes_out(self, make, dtype, cupy, rng):
        for space in (
            several(dtype=dtype),
            hp.Space(curved("tet", order=2), 3, dtype=dtype, backend="cuda", quadrature="collapsed"),
        ):
            operator = make(space)
            arrays, host = on_gpu(cupy, space, operator.input_state, 2, rng)
            expected, found = make(space, backend="numpy")(host), operator(arrays)
            assert all(isinstance(a, cupy.ndarray) for a in found)
            for a, b, c in zip(found, operator(host), expected, strict=True):
                assert type(b) is np.ndarray
                assert max(norm_error(a.get(), c), norm_error(b, c)) < (1e-11 if dtype == np.float64 else 1e-4)

    def test_what_is_refused(self, cupy):
        space = hp.Space(curved("tet", order=2), 2, backend="cuda", quadrature="collapsed")
        mass, u = hp.Mass(space), cupy.ones((1, space.n_cells, 10))
        with pytest.raises(
            ArgumentError, match="Mass computes on host and got cupy.ndarray on cuda:0; copy it to the host"
        ):
            hp.Mass(space, backend="numpy")(u)
        with pytest.raises(ArgumentError, match="Mass writes on cuda:0, got numpy.ndarray on the host"):
            mass(u, out=np.empty(u.shape))
        with pytest.raises(StateError, match="dtype float32"):
            mass(u.astype(np.float32))
        with pytest.raises(ArgumentError, match="give cupy.ascontiguousarray"):
            mass(cupy.asfortranarray(cupy.ones((2, *u.shape[1:]))))
        with pytest.raises(StateError, match="cannot write into its own argument"):
            mass(u, out=u)
        with pytest.raises(ArgumentError, match=r"holds \[components"):
            mass(u[0])

    def test_cupy_takes_a_field_s_memory(self, cupy, rng):
        space = hp.Space(curved("tet", order=2), 2, backend="cuda", quadrature="collapsed")
        (array,), (host,) = on_gpu(cupy, space, "coeff", 2, rng)
        field = space.field("coeff", [array])
        with count_transfers() as moved:
            for taken in (cupy.asarray(field), cupy.from_dlpack(field), cupy.from_dlpack(field.data[0])):
                assert taken.data.ptr == array.data.ptr and taken.shape == array.shape
            assert field.__dlpack_device__() == (2, 0)
        assert moved.total == 0
        assert np.array_equal(np.asarray(field), host)
        assert not hasattr(field, "__cuda_array_interface__")  # the host's side may have been written to
        field.data[0].readwrite(field.data[0].device)
        cupy.asarray(field)[...] = 2
        with count_transfers() as moved:
            assert np.array_equal(np.from_dlpack(field, device="cpu"), np.full(array.shape, 2.0))
        assert moved.to_host == 1

    def test_operators_in_a_loop_of_cupy(self, cupy, rng):
        """Power iteration on plain arrays: largest eigenvalue of the mass matrix, nothing moves."""
        space = hp.Space(curved("hex", order=2), 3, backend="cuda")
        mass = hp.Mass(space)
        (u,), (host,) = on_gpu(cupy, space, "coeff", 1, rng)
        v, expected = cupy.empty_like(u), hp.Mass(space, backend="numpy")
        with count_transfers() as moved:
            for _ in range(30):
                mass(u, out=v)
                u, v = v / cupy.linalg.norm(v), u
        assert moved.total == 0
        for _ in range(30):
            host = expected(host)
            host /= np.linalg.norm(host)
        assert norm_error(u.get(), host) < 1e-11


class TestRoom:
    """What is held, and what is said where there is no room."""

    def test_memory_report(self, cupy):
        pool = cupy.get_default_memory_pool()
        before = pool.used_bytes()
        space = several(4, ("quad", "tri"))
        u = space.zeros("coeff")
        operators = [hp.Helmholtz(space, lam=1.0, strategy=s) for s in ("sumfac-top", "stdmat")]
        results = [operator(u) for operator in operators]
        rows = [row["held"]["cuda:0"] for row in space.memory_report()]
        assert all({"fields", "metric", "matrices", "scratch"} <= set(row) for row in rows)
        total = sum(sum(row.values()) for row in rows)
        held = pool.used_bytes() - before
        # The pool gives multiples of 512 bytes.
        assert total <= held < total + 512 * 40
        assert [row["fields"] for row in rows] == [3 * pair.nbytes for pair in u.data]
        del results, operators, u
        left = [row["held"]["cuda:0"] for row in space.memory_report()]
        assert not any({"fields", "matrices", "scratch"} & set(row) for row in left)

    def test_no_room(self, cupy):
        mesh = box("hex", (12, 12, 12)).elevated(2).transformed(lambda x: x + 0.05 * np.sin(1.3 * x[:, ::-1]))
        space = hp.Space(mesh, 4, backend="cuda")
        pool, u = cupy.get_default_memory_pool(), space.zeros("coeff")
        operator = hp.Mass(space)
        moved = operator(u)
        del moved
        pool.free_all_blocks()
        before = pool.get_limit()
        pool.set_limit(pool.total_bytes() + u.nbytes // 2)
        try:
            with pytest.raises(DeviceError) as caught:
                operator(u)
            with pytest.raises(DeviceError, match="there is room for about"):
                hp.Helmholtz(space, lam=1.0)
        finally:
            pool.set_limit(before)
        assert "Mass on block 0, Block(1728" in str(caught.value) and "cuda:0 has no room" in str(caught.value)
        assert "all of them in float32" in str(caught.value)
        assert np.isfinite(operator(u).dot(u))


LARGE = 1 << 31
# Operator, shape, order, affine or not, strategy, algorithm: every kernel family, few and many modes.
CASES = [
    (hp.BwdTrans, "hex", 7, True, CudaSumFacTop(), "collocated"),
    (hp.Mass, "hex", 7, True, CudaSumFacTop(), "collocated"),
    (hp.Helmholtz, "hex", 7, True, CudaSumFacTop(), "collocated"),
    (hp.Mass, "hex", 5, False, CudaSumFacTop(), "collocated"),
    (hp.Helmholtz, "tet", 3, True, CudaSumFacTop(), "noncollocated"),
    (hp.Mass, "hex", 2, True, CudaSumFac(), "noncollocated"),
    (hp.Helmholtz, "tri", 2, True, CudaSumFac(), "noncollocated"),
    (hp.BwdTrans, "hex", 7, True, CudaStdMat(), "collocated"),
    (hp.Mass, "hex", 5, True, CudaStdMat(), "collocated"),
    (hp.Helmholtz, "tet", 3, True, CudaDense(), "noncollocated"),
    (hp.Helmholtz, "tet", 1, True, CudaDense(), "noncollocated"),
]


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{c[0].__name__}-{c[1]}{c[2]}-{'affine' if c[3] else 'deformed'}-{c[4].name}" for c in CASES]
)
def test_more_than_2_31_entries(case, cupy, monkeypatch):
    make, name, order, affine, strategy, algorithm = case
    mesh = skewed(straight(name)) if affine else curved(name, order=2)
    plain = {"lam": 1.3, "algorithm": algorithm} if make is hp.Helmholtz else {}
    # Tensor cores are used in double precision only.
    dtype = np.dtype(np.float64 if strategy.name == "dense" and order > 1 else np.float32)
    space = hp.Space(mesh, order, dtype=dtype, quadrature="collapsed")
    few = make(space, backend="numpy", **plain).choices[0].kernel.problem
    base, width = few.n_elements, few.n_input + few.n_output
    kind = few.form.factor_kind
    width += few.geometry.n_factors(kind) * few.geometry.n_points(kind) if kind else 0
    n = LARGE // min(few.n_input, few.n_output) + base + 1
    # On a smaller GPU as many as there is room for.
    room = int(0.85 * cupy.cuda.Device().mem_info[0] - (9 << 30 if strategy.name == "stdmat" else 1 << 30))
    fit = room // (dtype.itemsize * width)
    assert fit > 1000
    n = min(n, fit)

    def repeated(problem, levels, elements, kind):
        """Factors of elements that repeat, in the layout of the kernel."""
        cycle = np.tile(few.geometry.coefficients, (elements, 1, 1))
        cycle = BlockGeometry(few.shape, few.geometry.order, cycle, few.geometry.rule, few.geometry.kind)
        part = stored_factors(replace(few, geometry=cycle), levels, elements, kind)
        wanted = n if problem.geometry.n_points(kind) == 1 else -(-n // elements)
        return cupy.tile(cupy.asarray(part), (-(-wanted // len(part)), 1, 1, 1))

    monkeypatch.setattr(kernels, "device_factors", repeated)
    # A geometry of many elements that takes no memory: its factors are given.
    many = np.broadcast_to(few.geometry.coefficients[:1], (n, *few.geometry.coefficients.shape[1:]))
    geometry = BlockGeometry(few.shape, few.geometry.order, many, few.geometry.rule, few.geometry.kind)
    kernel = strategy.build(replace(few, geometry=geometry))
    kernel.finish()

    given = np.random.default_rng(1).standard_normal((1, base, few.n_input))
    wanted = np.empty((1, base, few.n_output))
    NumpyKernel(replace(few, dtype=np.dtype(np.float64)), "sumfac").apply(given, wanted)
    scale = float(np.abs(wanted).max())
    given, wanted = (cupy.asarray(a[0], dtype) for a in (given, wanted))
    source, out = (cupy.empty((1, n, m), dtype) for m in (few.n_input, few.n_output))
    out.fill(np.nan)
    step = max(base, (1 << 26) // max(few.n_input, few.n_output) // base * base)
    for first in range(0, n, step):
        piece = source[0, first : first + step]
        piece[...] = given[cupy.arange(len(piece)) % base]
    kernel.apply(source, out)
    worst = cupy.zeros(())
    for first in range(0, n, step):
        piece = out[0, first : first + step]
        worst = cupy.maximum(worst, cupy.abs(piece - wanted[cupy.arange(len(piece)) % base]).max())
    assert float(worst) < 1e-4 * scale
    assert min(source.size, out.size) > LARGE or n == fit


def test_pairs_of_several_devices_stay_apart(cupy):
    """The second GPU, where there is one; else the same by its name."""
    space = hp.Space(curved("quad"), 2, backend="cuda")
    mass = hp.Mass(space)
    assert mass.device.name == f"cuda:{cupy.cuda.Device().id}"
    u = mass(space.zeros("coeff"))
    assert u.home.name == mass.device.name and u.data[0].read(mass.device).device.id == mass.device.number
    if cupy.cuda.runtime.getDeviceCount() > 1:
        with cupy.cuda.Device(1), pytest.raises(DeviceError, match="Mass was made on cuda:0"):
            mass(space.zeros("coeff"))
    assert u.data[0].read(HOST).shape == (1, space.n_cells, 9)
