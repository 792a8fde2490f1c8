"""The teaching kernel of [Swirydowicz]'s ladders: every rung at every order, in the host's shim and through NVRTC."""

from functools import partial
from itertools import product

import pytest

from hpfem.backends.cuda.runtime import nvrtc
from hpfem.errors import DeviceError, NotSuitable
from hpfem.operators import Helmholtz, Mass
from hpfem.reproduction import EXPERIMENTS
from hpfem.reproduction.blocks import Copies, Elements
from hpfem.reproduction.variants.gpu import LaunchedElements, NearMemory, filled, near_bandwidth, start
from hpfem.reproduction.variants.ladder import experiments
from hpfem.reproduction.variants.ladder.plan import COLUMNS, LADDERS, NODES, Rung
from tests.guard import SIDES, Crooked, Guard, faults
from tests.reproduction.host_variants import HostPrograms, run_on_host

NODAL = {"basis": "lagrange", "quadrature": "collocated"}
# The largest order of each, in the shim, is the last one that differs.
ORDERS = {COLUMNS: (*range(1, 9), 15), NODES: range(1, 10)}
ALL = [Rung(threads, name, order + 1) for threads in LADDERS for name in LADDERS[threads] for order in ORDERS[threads]]


def programs(rungs, folder, monkeypatch, counted=False):
    """Kernels of rungs on the CPU."""
    return HostPrograms([(rung.source(), "ladder") for rung in rungs], folder, counted).use(monkeypatch)


def block_of(threads, order, n, backend="cpu"):
    """A block whose kernels are those of a ladder; on the host NumPy's arrays stand for the GPU's."""
    make = partial(experiments.LadderKernel, threads)
    return LaunchedElements(make, "collocated", Helmholtz, "hex", order, "deformed", backend, (n,), **NODAL)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All rungs in one library."""
    return HostPrograms([(rung.source(), "ladder") for rung in ALL], tmp_path_factory.mktemp("ladder"))


@pytest.mark.parametrize("threads", LADDERS)
def test_rungs_against_numpy(threads, library, monkeypatch):
    library.use(monkeypatch)
    for order in ORDERS[threads]:
        library.check(block_of(threads, order, 3), LADDERS[threads], 3)


def test_launches_are_of_the_whole_block(library, monkeypatch):
    library.use(monkeypatch)
    block = block_of(COLUMNS, 2, 9)
    application = block.build("symmetry", "auto", 9).on(9)
    application.call()
    assert application.n_dofs == 9 * 27
    assert application.nbytes == 9 * 27 * 9 * 8  # Table 2
    assert block.auto(9) == ()


def test_rungs_touch_nothing_else(library, monkeypatch):
    """All arrays and shared memory at the border of memory, which is a fault to touch."""
    monkeypatch.setattr(library, "guard", None)
    library.use(monkeypatch)

    def errors(block, names):
        assert all(block.build(name, "auto", 3).error() < 1e-12 for name in names)

    for threads, order, side in product(LADDERS, (1, 2, 3), SIDES):
        library.guard = partial(Guard, side)
        action = partial(errors, block_of(threads, order, 3), LADDERS[threads])
        assert not faults(action), (threads, order, side)
        action()
    block = block_of(COLUMNS, 2, 3)
    for which, side in product((1, 2, 3, 4, 5), SIDES):
        library.guard = partial(Crooked, side, which)
        assert faults(partial(errors, block, ["global scratch"])), (which, side)


@pytest.mark.parametrize("experiment", ["swirydowicz-ladder-2d", "swirydowicz-ladder-3d"])
def test_the_experiment_as_the_command_runs_it(experiment, library, monkeypatch):
    library.use(monkeypatch)
    library.descending = False
    records = run_on_host(EXPERIMENTS[experiment], monkeypatch, elements=3)
    for record in records:
        assert record["value"] > 0
        assert record["n_dofs"] == 3 * 64
        if not record["series"].startswith("roofline"):
            assert record["error"] < 1e-12
            assert record["variant"] == "32 registers, 0 bytes of local memory"
    [near] = [r for r in records if r["strategy"] == "shared memory of fewer barriers"]
    traffic = 3 * Rung(EXPERIMENTS[experiment].series[0].name, "fewer barriers", 4).shared_traffic
    assert near["value"] == pytest.approx(3 * experiments.bp35_flops(3) / (traffic / 1e13) / 1e12)  # eq. 13


@pytest.mark.parametrize("points", [2, 3, 4, 6])
def test_bytes_of_shared_memory_are_those_moved(points, tmp_path, monkeypatch):
    rungs = [Rung(threads, name, points) for threads in LADDERS for name in LADDERS[threads]]
    library = programs(rungs, tmp_path, monkeypatch, counted=True)
    for rung in rungs:
        before = library.accesses(rung.source(), "ladder")
        assert block_of(rung.threads, points - 1, 2).build(rung.name, "auto", 2).error() < 1e-12
        moved = 8 * (library.accesses(rung.source(), "ladder") - before)
        assert moved == 2 * rung.shared_traffic, rung


def without_barrier(source, function, number):
    """The source of a kernel whose function lacks a barrier."""
    head, name, body = source.partition(f"void {function}(")
    parts = body.split("__syncthreads();")
    return head + name + "__syncthreads();".join(parts[:number]) + ";" + "__syncthreads();".join(parts[number:])


@pytest.mark.parametrize(
    ("rung", "function", "barriers"),
    [
        (Rung(COLUMNS, "global scratch", 4), "columns_in_global_memory", [1]),
        (Rung(COLUMNS, "padding", 4), "slices", [1, 2]),
        (Rung(COLUMNS, "symmetry", 4), "lines", [1, 2, 3, 4]),
        (Rung(NODES, "padding", 4), "nodes", [1, 2, 3]),
        (Rung(NODES, "fewer barriers", 4), "nodes", [1, 4]),
    ],
    ids=lambda value: value.name if isinstance(value, Rung) else None,
)
def test_every_barrier_is_needed(rung, function, barriers, tmp_path, monkeypatch):
    broken = [without_barrier(rung.source(), function, number) for number in barriers]
    library = HostPrograms([(source, "ladder") for source in broken], tmp_path).use(monkeypatch)
    for source in broken:
        monkeypatch.setattr(Rung, "source", lambda self, source=source: source)
        built = block_of(rung.threads, rung.points - 1, 2).build(rung.name, "auto", 2)
        errors = []
        for library.descending in (False, True):
            errors.append(built.error())
        assert not max(errors) < 1e-12


def test_each_rung_switches_one_more_on():
    for threads, ladder in LADDERS.items():
        sizes = [len(Rung(threads, name, 8).switches) for name in ladder]
        assert sizes == list(range(1, len(ladder) + 1))
        before = list(ladder)[list(ladder).index("padding") - 1]
        assert Rung(threads, "padding", 5).source() == Rung(threads, before, 5).source()  # nothing is compiled again
    barriers = Rung(COLUMNS, "fewer barriers", 16)
    assert barriers.shared_bytes < 227 * 1024
    assert Rung(COLUMNS, "symmetry", 16).shared_traffic < 0.6 * barriers.shared_traffic
    assert barriers.shared_traffic < 0.7 * Rung(COLUMNS, "unrolling", 16).shared_traffic


@pytest.mark.parametrize("name", LADDERS[COLUMNS])
@pytest.mark.parametrize("threads", LADDERS)
def test_rungs_compile(threads, name):
    ladder = list(LADDERS[threads])
    if name not in ladder:
        return
    before = ladder[max(ladder.index(name) - 1, 0)]
    for order in experiments.ORDERS[threads]:
        rung = Rung(threads, name, order + 1)
        if name == before or rung.source() != Rung(threads, before, order + 1).source():
            found = nvrtc.compile_source(rung.source(), "sm_90").resources
            assert found.spill_bytes <= 64, rung  # of five columns of 16 numbers
            assert found.registers * rung.block <= 65536, rung
            assert "UNROLLED" not in rung.switches or found.stack_bytes <= 64, rung  # columns are in registers


def test_near_memory_needs_no_local_memory():
    for shared in (True, False):
        source = filled("near_memory.h", THREADS=512, NUMBERS=2048, SHARED=shared)
        found = nvrtc.compile_source(source, "sm_90").resources
        assert found.stack_bytes == found.spill_bytes == 0


@pytest.mark.cuda
@pytest.mark.parametrize("threads", LADDERS)
def test_rungs_on_a_gpu(threads):
    blocks = [block_of(threads, order, 37, "cuda") for order in experiments.ORDERS[threads]]
    built = [block.build(name, "auto", 37) for block in blocks for name in LADDERS[threads]]
    for one in built:
        assert one.error() < 1e-12, one.choice.kernel.rung


@pytest.mark.cuda
def test_near_memory_of_a_gpu():
    rates = near_bandwidth()
    assert all(1e12 < rate < 1e15 for rate in rates.values()), rates
    with pytest.raises(DeviceError, match="does not compile"):
        start("no kernel", "none").result()


def test_refusals():
    for operator, options in ((Helmholtz, {}), (Mass, {})):
        problem = Elements(operator, "hex", 2, "deformed", "cpu", (1,), **options).problem
        with pytest.raises(NotSuitable, match="whose nodes are the points"):
            experiments.LadderKernel(COLUMNS, problem, "symmetry")
    problem = Elements(Helmholtz, "hex", 10, "deformed", "cpu", (1,), **NODAL).problem
    with pytest.raises(NotSuitable, match="a block has no 1331 threads"):
        experiments.LadderKernel(NODES, problem, "padding")


def test_rooflines(monkeypatch):
    what = Helmholtz, "hex", 3, "deformed", "cpu", (512,)
    block = Copies(*what, **NODAL)
    built = block.build("copying", "auto", 512)
    application = built.on(512)
    assert built.error() is None
    assert application.timing.calls == 10 and application.timing.median > 0
    [series] = [s for s in EXPERIMENTS["swirydowicz-ladder-2d"].series if s.name == "roofline of shared memory"]
    case = dict(series.cases("cuda", True)[0])
    near = experiments._near(COLUMNS, case, "cpu")
    monkeypatch.setattr("hpfem.reproduction.variants.gpu.near_bandwidth", lambda: {"shared": 1e13})
    assert isinstance(near, NearMemory)
    timing = near.build("shared memory of symmetry", "auto", 512).on(512).timing
    assert timing.median == pytest.approx(512 * Rung(COLUMNS, "symmetry", 4).shared_traffic / 1e13)
    assert near.auto(512) == () and block.auto(512) == ()
