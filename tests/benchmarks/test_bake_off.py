"""CEED's bake-off problems: sizes, operators, bytes and iterations are what they are said to be, on every shape."""

from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.base import BACKENDS, choose_backend
from hpfem.backends.roofline import Roofline
from hpfem.benchmarks import BOX_SHAPES, BenchSettings, Runner, measure
from hpfem.benchmarks.bake_off import BAKE_OFFS, global_bytes, global_sizes, unknowns
from hpfem.benchmarks.cases import Case, check_settings
from hpfem.benchmarks.global_phases import START, STEPS, MeasuredOperator
from hpfem.benchmarks.parts import suite_records
from hpfem.benchmarks.problems import ProblemSize, problem_mesh
from hpfem.mesh import box
from hpfem.shapes import SHAPES
from hpfem.solvers.breakdown import OutOfIterations
from tests.standin import StandIn, StandInBackend, StandInStrategy

LIMITS = dict.fromkeys(("float64", "float32"), Roofline(bandwidth=1e10, flops=1e11, details={}))
QUICK = {"repeats": 1, "min_seconds": 1e-4}
COLLOCATED = ("quad", "hex")
# Those that time an operator.
APPLIED = ("bp1", "bp3", "bp5")


def built(benchmark, shape, order, geometry="deformed", size=300, dtype="float64", backend="auto", **options):
    """What is measured of a small problem, of a size or about so many unknowns."""
    [size] = [size] if isinstance(size, ProblemSize) else global_sizes(shape, order, [size])
    block = Case(dtype, geometry, benchmark, shape, order, size).block(BenchSettings(benchmark, **options), backend)
    return block.build("auto", "auto", size.n_cells)


@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_unknowns_are_the_nodes_of_the_mesh(shape):
    dim = SHAPES[shape].dim
    for order in range(1, 9):
        for counts in ((1, 1, 1), (3, 2, 1)):
            nodes = box(shape, counts[:dim]).elevated(order).points
            assert unknowns(shape, order, counts[:dim]) == len(nodes)
    assert unknowns("hex", 8, (125, 125, 125)) == 1001**3


@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_sizes_are_near_those_wanted_and_of_whole_meshes(shape):
    for order in (1, 4, 8):
        sizes = global_sizes(shape, order, [1e4, 1e5, 1e6])
        assert [size.n_dofs for size in sizes] == pytest.approx([1e4, 1e5, 1e6], rel=0.2)
        assert all(size.copies == 1 for size in sizes)
    assert len(global_sizes(shape, 7, [1, 2, 3])) == 1
    [size] = global_sizes(shape, 3, [500])
    mesh = problem_mesh(shape, size.counts, "deformed")
    assert mesh.n_cells == size.n_cells
    c0 = hp.C0Space(hp.Space(mesh, 3))
    assert c0.size == size.n_dofs


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_the_application_is_the_product_with_the_matrix(shape, order):
    counts = (2, 1, 1)[: SHAPES[shape].dim]
    two = ProblemSize(counts, 1, box(shape, counts).n_cells, unknowns(shape, order, counts))
    for benchmark in APPLIED:
        if BAKE_OFFS[benchmark].refusal(shape) is None:
            # Of two small boxes, which have unknowns in common.
            found = built(benchmark, shape, order, size=two, backend="numpy")
            assert found.A.shape[0] == two.n_dofs and found.error() < 1e-12


def test_products_are_of_the_type_of_the_space():
    found = built("bp3", "prism", 3, dtype="float32")
    assert found.matrix.dtype == found.on(1).call().dtype == np.float32 and 1e-9 < found.error() < 1e-4


def test_operators_and_conditions_are_those_of_the_problems():
    mass = built("bp1", "hex", 3, "affine", basis="lagrange").A
    ones = np.ones(mass.shape[0])
    assert ones @ mass.apply(ones) == pytest.approx(1, rel=1e-12)  # the volume
    # x (1 - x) y (1 - y) by its nodes: its gradient squared has the integral 1/45.
    stiffness = built("bp5", "quad", 4, "affine").A
    space, c0 = stiffness.operator.space, stiffness.c0
    assert space.basis == "lagrange" and space.quadrature == "collocated"
    x, y = space.coordinates().arrays[0]
    u = c0.average(space.field("coeff", [(x * (1 - x) * y * (1 - y))[None]])).ravel()
    assert u @ stiffness.apply(u) == pytest.approx(1 / 45, rel=1e-12)
    # Unknowns on the boundary are those of the identity; mass has none.
    sides = np.ones(stiffness.shape[0]) * stiffness.bc.constrained
    assert sides.sum() > 0 and np.array_equal(stiffness.apply(sides), sides)
    assert mass.bc is None and built("bp3", "tet", 2).A.bc.constrained.any()
    assert [space.blocks[0].rule.counts for space in (built("bp3", "hex", 3).A.operator.space,)] == [(5, 5, 5)]


@pytest.mark.parametrize("geometry", ["affine", "deformed"])
@pytest.mark.parametrize("shape", BOX_SHAPES)
def test_bytes_and_operations_are_those_of_the_model(shape, geometry):
    order, dim = 3, SHAPES[shape].dim
    for benchmark, factors, vectors, flops in (("bp1", 1, 10, 13), ("bp3", dim * (dim + 1) // 2 + 1, 8, 10)):
        found = built(benchmark, shape, order, geometry, backend="numpy")
        [block] = found.A.operator.space.blocks
        n, local, points = found.A.shape[0], block.n_elements * block.n_modes, block.n_elements * block.n_points
        stored = points if geometry == "deformed" else block.n_elements
        application, iteration, product = found.phases(block.n_elements)
        assert [part.phase for part in (application, iteration, product)] == ["application", "iteration", "csr"]
        assert application.nbytes == 16 * n + 8 * factors * stored + 4 * local
        assert iteration.nbytes == application.nbytes + 8 * vectors * n
        assert application.flops == found.A.operator.flops + local
        assert iteration.flops == application.flops + flops * n
        nnz = found.A.assemble().nnz
        assert (product.nbytes, product.flops) == (20 * n + 12 * nnz, 2 * nnz)
        assert {part.n_dofs for part in (application, iteration, product)} == {n}


def test_iterations_are_as_many_as_are_said(monkeypatch):
    found = built("bp3", "hex", 3, size=3000)
    done = []
    solve = hp.benchmarks.global_phases.cg

    def counted(A, rhs, M, **options):
        done.append(0)
        try:
            return solve(lambda x: done.__setitem__(-1, done[-1] + 1) or A.apply(x), rhs, M, **options)
        except OutOfIterations:
            raise

    monkeypatch.setattr("hpfem.benchmarks.global_phases.cg", counted)
    iteration = found.iteration()
    assert iteration.steps == STEPS and iteration.call() == START + STEPS and iteration.start() == START
    assert done[1] - done[2] == STEPS  # what there is besides is in both
    # Jacobi divides by the diagonal of the matrix.
    mass = built("bp1", "tet", 2)
    M = hp.solvers.make_preconditioner("jacobi", mass.A)[0]
    np.testing.assert_allclose(M.inverse * mass.matrix.diagonal(), 1, rtol=1e-12)


def test_a_step_is_timed_as_a_difference():
    class Clock:
        """A clock that is disturbed once while what is taken off runs."""

        def __init__(self):
            self.times = {"whole": 10.0, "start": 4.0}
            self.disturbed = False

        def seconds(self, call, calls):
            if call() == "start" and not self.disturbed and calls == 1 and self.times.pop("warm", None) is None:
                self.disturbed = True
                return 50.0
            return self.times[call()] * calls

    clock = Clock()
    clock.times["warm"] = 0.0
    timing = measure(lambda: "whole", clock, 3, 1.0, lambda: "start", 12)
    assert clock.disturbed
    assert (timing.median, timing.best, timing.worst, timing.repeats) == (0.5, 0.5, 0.5, 3)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("benchmark", APPLIED)
def test_a_run_measures_every_shape(benchmark, backend):
    if choose_backend("auto").name != "cpu" and backend == "cpu":
        pytest.skip("no compiler")
    wanted = {"shapes": BOX_SHAPES, "orders": (1, 2), "dofs": (300,), "backend": backend}
    run = Runner(BenchSettings(benchmark, **wanted, **QUICK), LIMITS)
    cases = list(run)
    shapes = COLLOCATED if benchmark == "bp5" else BOX_SHAPES
    assert len(cases) == len(shapes) * 2 * 2
    assert {entry["shape"] for entry in run.skipped} == set(BOX_SHAPES) - set(shapes)
    found = {(m.shape, m.geometry, m.order, m.phase) for m in run.measurements}
    assert len(found) == len(run.measurements) == 3 * len(cases)
    for m in run.measurements:
        assert m.benchmark == benchmark and m.backend == backend and m.error < 1e-12
        assert m.operator == ("Mass" if benchmark == "bp1" else "Laplacian")
        assert m.dofs_per_second == pytest.approx(m.n_dofs / m.seconds) and m.best <= m.seconds <= m.worst
        assert m.fraction == pytest.approx(max(m.nbytes / 1e10, m.flops / 1e11) / m.seconds)
        assert m.n_dofs < m.n_cells * m.n_modes
    assert [record["phase"] for record in suite_records(run.measurements)[:3]] == ["application", "iteration", "csr"]


def test_shapes_without_nodes_at_the_points_are_left_out_with_the_reason():
    assert [shape for shape in BOX_SHAPES if BAKE_OFFS["bp5"].refusal(shape) is None] == list(COLLOCATED)
    settings = BenchSettings("bp5", ("tet", "hex"), (2,), (300,))
    assert (settings.basis, settings.quadrature, settings.strategies) == ("lagrange", "collocated", ("auto",))
    assert settings.measured_shapes == ("hex",) and list(settings.left_out) == ["tet"]
    assert settings.left_out["tet"].startswith("bp5: tet elements are left out: the points are to be the nodes")
    assert not BenchSettings("bp3").left_out and not BenchSettings().left_out
    # Others take any basis, as before.
    assert BenchSettings("bp1", basis="lagrange", quadrature="gauss").basis == "lagrange"
    assert (BenchSettings().basis, BenchSettings("bp1").basis) == ("modified", "modified")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmark": "bp2"}, "unknown benchmark 'bp2'; valid: bk1, bk3, bp1, bp3, bp5, solve"),
        ({"benchmark": "bp5", "basis": "modified"}, "bp5 is defined on basis 'lagrange', got 'modified'"),
        ({"benchmark": "bp5", "quadrature": "gauss"}, "bp5 is defined on quadrature 'collocated', got 'gauss'"),
        ({"benchmark": "bp3", "dofs": (1e11,)}, r"1e\+11 degrees of freedom on .* are free; measure at most about"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(hp.ArgumentError, match=message):
        check_settings(BenchSettings(**changes))


def test_matrices_that_do_not_fit_are_not_made(monkeypatch):
    found = built("bp3", "tet", 2)
    found.matrix_entries = 100
    assert "more than 1e+02 element entries" in found.matrix and found.error() is None
    assert [part.phase for part in found.phases(1)] == ["application", "iteration"]
    assert [entry["phase"] for entry in found.refused] == ["csr"] and found.refused[0]["reason"] == found.matrix
    monkeypatch.setattr("hpfem.benchmarks.global_phases.available_memory", lambda: 1e5)
    assert "not enough memory" in built("bp3", "tet", 2).matrix
    monkeypatch.setattr(hp.GlobalOperator, "device", SimpleNamespace(name="cuda:0"))
    assert "on the host alone" in MeasuredOperator(found.A).matrix


def test_problems_with_few_unknowns_have_no_iterations():
    for benchmark, shape, order in (("bp3", "hex", 1), ("bp3", "quad", 2)):
        found = built(benchmark, shape, order, size=1)
        assert [part.phase for part in found.phases(1)] == ["application", "csr"]
        [refused] = found.refused
        assert refused["phase"] == "iteration" and refused["reason"].startswith("no iterations of conjugate gradients")


def test_wrong_results_are_not_timed(monkeypatch):
    monkeypatch.setattr(MeasuredOperator, "error", lambda self: 1e-3)
    run = Runner(BenchSettings("bp3", ("quad",), (2,), (300,), **QUICK), LIMITS)
    list(run)
    assert not run.measurements
    assert {entry["reason"] for entry in run.wrong} == {"the result differs from SciPy's product by 0.001"}


def test_the_estimate_of_memory_covers_permanent_arrays():
    for benchmark, shape, geometry in (("bp1", "tet", "affine"), ("bp3", "hex", "deformed")):
        [size] = global_sizes(shape, 3, [2e4])
        estimate = global_bytes(benchmark, shape, 3, size, geometry, backend="numpy")
        found = built(benchmark, shape, 3, geometry, size=2e4)
        assert found.nbytes + 12 * 8 * size.n_dofs < estimate < 1e4 * size.n_cells + 10 * found.nbytes


@pytest.mark.parametrize("benchmark", APPLIED)
def test_on_a_device_nothing_is_transferred_while_it_is_timed(benchmark, monkeypatch):
    device = StandIn()
    monkeypatch.setitem(BACKENDS, "stand-in", StandInBackend("stand-in", device, [StandInStrategy()]))
    found = built(benchmark, "quad", 3, backend="stand-in")
    phases = []
    for part in found.phases(1):
        part.call()
        before = device.received, device.sent
        part.call()
        if part.start is not None:
            part.start()
        assert (device.received, device.sent) == before
        phases.append(part.phase)
    assert phases == ["application", "iteration"] and found.error() is None
    assert found.refused[0]["reason"].startswith("SciPy's CSR product is measured on the host alone")
    # And in a run.
    settings = BenchSettings(benchmark, ("quad",), (2,), (300,), backend="stand-in", **QUICK)
    run = Runner(settings, LIMITS)
    list(run)
    assert [m.phase for m in run.measurements] == 2 * ["application", "iteration"]
