"""The teaching kernel of [Swirydowicz]'s ladders: every rung of every problem, in the host's shim and through NVRTC."""

import re
from functools import partial
from itertools import product

import pytest

from benchmarks.papers import EXPERIMENTS
from benchmarks.papers.blocks import Elements
from benchmarks.papers.experiments.swirydowicz import COUNTS
from benchmarks.papers.variants.gpu import filled, near_bandwidth, start
from benchmarks.papers.variants.ladder import experiments
from benchmarks.papers.variants.ladder.plan import COLUMNS, LADDERS, POINTS, PROBLEMS, Rung
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.errors import DeviceError, NotSuitable
from hpfem.operators import Mass
from tests.guard import SIDES, Crooked, faults
from tests.papers.host_variants import HostPrograms, check_errors, run_on_host
from tests.samples import long

LADDER = tuple(product(PROBLEMS, LADDERS))
# Small ones, rows of 8 and of 16 numbers, and the largest.
ORDERS = {COLUMNS: (1, 2, 3, 7, 15), POINTS: (1, 2, 3, 7)}
ALL = [
    Rung(problem, threads, name, order)
    for problem, threads in LADDER
    for name in LADDERS[threads]
    for order in ORDERS[threads]
]


def programs(rungs, folder, monkeypatch, counted=False):
    """Kernels of rungs on the CPU."""
    return HostPrograms([(rung.source(), "ladder") for rung in rungs], folder, counted).use(monkeypatch)


def block_of(problem, threads, order, n, backend="cpu"):
    """A block whose kernels are those of a ladder; on the host NumPy's arrays stand for the GPU's."""
    case = {"benchmark": problem, "shape": "hex", "order": order, "geometry": "deformed", "elements": n}
    return experiments._block(threads, case, backend)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All rungs in one library."""
    return HostPrograms([(rung.source(), "ladder") for rung in ALL], tmp_path_factory.mktemp("ladder"))


@pytest.mark.parametrize(("problem", "threads"), LADDER)
def test_rungs_against_numpy(problem, threads, library, monkeypatch):
    library.use(monkeypatch)
    for order in ORDERS[threads]:
        library.check(block_of(problem, threads, order, 3), LADDERS[threads], 3)


def test_launches_are_of_the_whole_block(library, monkeypatch):
    library.use(monkeypatch)
    block = block_of("BP3.5", COLUMNS, 2, 9)
    application = block.build("symmetry", "auto", 9).on(9)
    application.call()
    assert application.n_dofs == 9 * 27
    assert application.nbytes == 9 * 27 * 9 * 8  # Table 2
    assert block.auto(9) == ()


def test_rungs_touch_nothing_else(library, monkeypatch):
    every = product(LADDER, (1, 2, 3))
    cases = [(block_of(problem, threads, order, 3), LADDERS[threads], 3) for (problem, threads), order in every]
    library.check_borders(monkeypatch, cases)
    block = block_of("BP3.0", COLUMNS, 2, 3)
    for which, side in product(range(1, 7), SIDES):
        library.guard = partial(Crooked, side, which)
        assert faults(partial(check_errors, block, ["global scratch"], 3)), (which, side)


@pytest.mark.parametrize("experiment", [name for name in EXPERIMENTS if name.startswith("swirydowicz-ladder")])
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
    assert near["variant"] == "measured in the run: 10 TB/s of shared, 10 TB/s of L1"
    problem, series = near["benchmark"], EXPERIMENTS[experiment].series[0]
    traffic = 3 * Rung(problem, series.name, "fewer barriers", 3).shared_traffic
    assert near["value"] == pytest.approx(3 * COUNTS[problem].flops(3) / (traffic / 1e13) / 1e12)  # eq. 13


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_bytes_of_shared_memory_are_those_moved(problem, order, tmp_path, monkeypatch):
    rungs = [Rung(problem, threads, name, order) for threads in LADDERS for name in LADDERS[threads]]
    library = programs(rungs, tmp_path, monkeypatch, counted=True)
    for rung in rungs:
        before = library.accesses(rung.source(), "ladder")
        assert block_of(problem, rung.threads, order, 2).build(rung.name, "auto", 2).error() < 1e-12
        moved = 8 * (library.accesses(rung.source(), "ladder") - before)
        assert moved == 2 * rung.shared_traffic, rung


def without_barrier(source, function, number):
    """The source of a kernel whose function lacks a barrier."""
    [name] = re.findall(rf"(?:void|real) {function}\(", source)
    head, _, body = source.partition(name)
    parts = body.split("__syncthreads();")
    return head + name + "__syncthreads();".join(parts[:number]) + ";" + "__syncthreads();".join(parts[number:])


@pytest.mark.parametrize(
    ("rung", "function", "barriers"),
    [
        (Rung("BP3.5", COLUMNS, "global scratch", 3), "columns_in_global_memory", [1]),
        (Rung("BP3.5", COLUMNS, "padding", 3), "differentiate", [1, 2]),
        (Rung("BP1.0", COLUMNS, "padding", 3), "interpolated", [1, 2]),
        (Rung("BP1.0", COLUMNS, "padding", 3), "project", [1, 2]),
        (Rung("BP3.5", COLUMNS, "symmetry", 3), "differentiate_lines", [1, 2, 3, 4]),
        (Rung("BP3.0", COLUMNS, "symmetry", 3), "lines", [1, 2, 3, 4]),
        (Rung("BP3.5", POINTS, "padding", 3), "threads_of_points", [1, 3, 4, 5, 6, 7, 8]),
        (Rung("BP3.0", POINTS, "padding", 3), "threads_of_points", [9]),
        (Rung("BP3.5", POINTS, "fewer barriers", 3), "threads_of_points", [1, 2]),
        (Rung("BP3.0", POINTS, "padding", 3), "stage", [1, 2]),
        (Rung("BP3.0", POINTS, "padding", 3), "project_stages", [1]),
    ],
    ids=lambda value: value.name if isinstance(value, Rung) else None,
)
def test_every_barrier_is_needed(rung, function, barriers, tmp_path, monkeypatch):
    broken = [without_barrier(rung.source(), function, number) for number in barriers]
    library = HostPrograms([(source, "ladder") for source in broken], tmp_path).use(monkeypatch)
    for source in broken:
        monkeypatch.setattr(Rung, "source", lambda self, source=source: source)
        built = block_of(rung.problem, rung.threads, rung.order, 2).build(rung.name, "auto", 2)
        errors = []
        for library.descending in (False, True):
            errors.append(built.error())
        assert not max(errors) < 1e-12


def test_each_rung_switches_one_more_on():
    for threads, ladder in LADDERS.items():
        sizes = [len(Rung("BP3.0", threads, name, 7).switches) for name in ladder]
        assert sizes == list(range(1, len(ladder) + 1))
        before = list(ladder)[list(ladder).index("padding") - 1]
        assert Rung("BP3.5", threads, "padding", 4).source() == Rung("BP3.5", threads, before, 4).source()
    for problem in PROBLEMS:
        barriers = Rung(problem, COLUMNS, "fewer barriers", 15)
        assert barriers.shared_bytes < 227 * 1024
        assert Rung(problem, COLUMNS, "symmetry", 15).shared_traffic < 0.61 * barriers.shared_traffic
        assert barriers.shared_traffic < 0.7 * Rung(problem, COLUMNS, "unrolling", 15).shared_traffic
        assert experiments.orders(problem, COLUMNS) == list(range(1, 16))
        assert experiments.orders(problem, POINTS) == list(range(1, 10 - PROBLEMS[problem][0]))


@pytest.mark.parametrize("order", [3, 7, *long(15)])
@pytest.mark.parametrize("name", LADDERS[COLUMNS])
@pytest.mark.parametrize(("problem", "threads"), LADDER)
def test_rungs_compile(problem, threads, name, order):
    ladder = list(LADDERS[threads])
    if name not in ladder or order not in experiments.orders(problem, threads):
        return
    before = ladder[max(ladder.index(name) - 1, 0)]
    rung = Rung(problem, threads, name, order)
    if name == before or rung.source() != Rung(problem, threads, before, order).source():
        found = nvrtc.compile_source(rung.source(), "sm_90").resources
        assert found.registers * rung.block <= 65536, rung
        if order < 11:  # beyond, columns of 13 to 17 numbers are more than the registers hold
            assert found.spill_bytes <= 64, rung
            assert "UNROLLED" not in rung.switches or found.stack_bytes <= 64, rung  # columns are in registers


def test_near_memory_needs_no_local_memory():
    for shared in (True, False):
        source = filled("near_memory.h", THREADS=512, NUMBERS=2048, SHARED=shared)
        found = nvrtc.compile_source(source, "sm_90").resources
        assert found.stack_bytes == found.spill_bytes == 0


@pytest.mark.cuda
@pytest.mark.parametrize(("problem", "threads"), LADDER)
def test_rungs_on_a_gpu(problem, threads):
    blocks = [block_of(problem, threads, order, 37, "cuda") for order in experiments.orders(problem, threads)]
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
    curved = partial(Elements, shape="hex", order=2, geometry="deformed", backend="cpu", counts=(1,))
    for problem, given in (
        ("BP3.5", curved(BENCHMARKS["bk3"])),
        ("BP3.0", curved(Mass, basis="lagrange", quadrature="gauss")),
        ("BP1.0", curved(Mass, basis="lagrange", quadrature="collocated")),
    ):
        with pytest.raises(NotSuitable, match=f"the ladder of {problem} is of curved hexes"):
            experiments.LadderKernel(problem, COLUMNS, given.problem, "symmetry")
    with pytest.raises(NotSuitable, match="a block has no 1331 threads"):
        block_of("BP3.5", POINTS, 10, 1).build("padding", "auto", 1)


def test_rooflines(monkeypatch):
    case = {"benchmark": "BP3.5", "shape": "hex", "order": 3, "geometry": "deformed", "elements": 512}
    block = experiments._copies(case, "cpu")
    built = block.build("copying", "auto", 512)
    application = built.on(512)
    assert built.error() is None
    assert application.timing.calls == 10 and application.timing.median > 0
    near = experiments._near(COLUMNS, case, "cpu")
    monkeypatch.setattr("benchmarks.papers.variants.gpu.near_bandwidth", lambda: {"shared": 1e13})
    timing = near.build("shared memory of symmetry", "auto", 512).on(512).timing
    assert timing.median == pytest.approx(512 * Rung("BP3.5", COLUMNS, "symmetry", 3).shared_traffic / 1e13)
    assert near.auto(512) == () and block.auto(512) == ()
