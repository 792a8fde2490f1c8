"""Every kernel family compiles for every architecture, without a GPU; registers and spills as the assembler tells."""

import math
import os
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.dense.plan import DenseOptions, DensePlan
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.runtime.device import REGISTERS, Limits
from hpfem.backends.cuda.stdmat.strategy import source as stdmat_source
from hpfem.backends.cuda.sumfac.strategy import SumFacPlan
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions, SumFacTopPlan, default_plans
from hpfem.backends.cuda.sumfac_top.strategy import CudaSumFacTop
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import DeviceError, NotSuitable
from hpfem.mesh import box
from hpfem.support.log import forget_reports, reports
from tests.samples import NAMES, curved, long, skewed, straight

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
each_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)
# All have as many registers; one test compiles for each.
one_architecture = pytest.mark.parametrize("architecture", ["sm_90", *long("sm_80", "sm_100")])


def burning(u, du, x, k):
    """A pointwise function with every kind of argument and operation."""
    return np.exp(-u * u) + np.tanh(k) * x[0] ** 3, [np.where(du[0] < u, abs(d), np.minimum(d, k)) for d in du]


def problem_of(operator):
    """Problem and tables of an operator's first block."""
    problem = operator.choices[0].kernel.problem
    return problem, Levels.of(problem)


@one_architecture
@pytest.mark.parametrize(
    ("name", "algorithm"), [("hex", "noncollocated"), ("tet", "collocated"), ("quad", "collocated")]
)
def test_sumfac_top(name, algorithm, architecture):
    space = hp.Space(curved(name, order=2), 3, quadrature="collapsed")
    problem, levels = problem_of(hp.Helmholtz(space, lam=1.0, algorithm=algorithm, backend="numpy"))
    layout = SumFacTopPlan(problem, levels, CudaSumFacTop().chosen(problem, Limits()))
    binary = nvrtc.compile_source(program(layout.source()), architecture)
    assert binary.cubin.startswith(b"\x7fELF")
    assert binary.resources.spill_bytes == 0
    assert binary.resources.registers * layout.threads * layout.min_blocks <= REGISTERS


@one_architecture
def test_one_element_per_thread(architecture):
    space = hp.Space(skewed(straight("prism")), 1)
    problem, _ = problem_of(hp.Helmholtz(space, lam=1.0, algorithm="noncollocated", backend="numpy"))
    source = SumFacPlan(problem).source()
    assert nvrtc.compile_source(program(source), architecture).resources.spill_bytes == 0


@each_architecture
def test_stdmat_and_user_written_forms(architecture):
    space = hp.Space(curved("pyramid", order=2), 2, dtype=np.float32)
    form = hp.WeakForm(space, burning, fields={"k": lambda *x: x[0]}, backend="numpy")
    problem, levels = problem_of(form)
    for source in (
        stdmat_source(problem, Levels.plain(problem.tabulation, lines=True)),
        SumFacTopPlan(problem, levels, SumFacTopOptions(4)).source(),
    ):
        assert nvrtc.compile_source(program(source), architecture).resources.spill_bytes == 0


def test_long_functions_are_written_once():
    """At every point of a line, 400 nested sines would be a megabyte and take minutes to compile."""
    space, sizes = hp.Space(curved("hex", order=2), 3), []

    def nested(u, du):
        for _ in range(400):
            u = np.sin(u)
        return u, u * du

    for function in (lambda u, du: (np.sin(u), np.sin(u) * du), nested):
        problem, levels = problem_of(hp.WeakForm(space, function, backend="numpy"))
        source = SumFacTopPlan(problem, levels, SumFacTopOptions(4)).source()
        sizes.append(len(nvrtc.compile_source(program(source), "sm_90").cubin))
    assert sizes[1] < 1.5 * sizes[0]


@one_architecture
@pytest.mark.parametrize(
    ("name", "order", "options"),
    [
        ("tet", 2, DenseOptions(4, 0, 0, True, 3)),
        ("tet", 3, DenseOptions(4, 2)),
        ("tri", 6, DenseOptions(4, 1, 0, False, 2)),
        ("tet", 5, DenseOptions(8, 1, 4, False)),
    ],
)
def test_dense_matrices(name, order, options, architecture):
    space = hp.Space(skewed(straight(name)), order, quadrature="collapsed")
    problem, _ = problem_of(hp.Helmholtz(space, lam=1.0, algorithm="noncollocated", backend="numpy"))
    layout = DensePlan(problem, options)
    found = nvrtc.compile_source(program(layout.source()), architecture).resources
    assert found.spill_bytes == 0
    assert found.registers * layout.threads * options.min_blocks <= REGISTERS


@pytest.mark.parametrize("name", NAMES)
def test_measured_options_fit(name):
    for order in range(1, 11):
        space = hp.Space(curved(name, order=2), order, quadrature="collapsed")
        for algorithm in ("collocated", "noncollocated"):
            problem, levels = problem_of(hp.Helmholtz(space, lam=1.0, algorithm=algorithm, backend="numpy"))
            layout = SumFacTopPlan(problem, levels, CudaSumFacTop().chosen(problem, Limits()))
            assert layout.shared_bytes <= Limits().shared_block
            assert layout.threads <= Limits().threads
            assert layout.threads >= math.prod(levels.counts[1:]) * layout.options.elements


def test_an_element_that_does_not_fit_is_refused():
    space = hp.Space(curved("hex", order=2), 10)
    problem, levels = problem_of(hp.Helmholtz(space, lam=1.0, backend="numpy"))
    with pytest.raises(NotSuitable, match="one element needs"):
        default_plans(problem, levels, Limits(shared_block=24 * 1024))


def source_of_order(order):
    problem, levels = problem_of(
        hp.Laplacian(hp.Space(straight("tet"), order, quadrature="collapsed"), backend="numpy")
    )
    layout = SumFacTopPlan(problem, levels, CudaSumFacTop().chosen(problem, Limits()))
    return program(layout.source())


def test_tables_fit_constant_memory():
    """Those of tets of order 15 take 72 KiB: some are elsewhere."""
    for order, elsewhere in ((9, False), (15, True)):
        tables = re.findall(r"^(HPFEM_\w+) real \w+\[\] = \{(.*)\};", source_of_order(order), re.MULTILINE)
        size = {kind: 8 * sum(numbers.count(",") + 1 for own, numbers in tables if own == kind) for kind, _ in tables}
        assert size["HPFEM_CONSTANT"] <= 64 * 1024
        assert (sum(size.values()) > 64 * 1024) == elsewhere, size


@pytest.mark.long
def test_tables_beyond_constant_memory_compile():
    assert nvrtc.compile_source(source_of_order(15), "sm_90").cubin.startswith(b"\x7fELF")


def test_a_source_that_does_not_compile_is_quoted():
    with pytest.raises(DeviceError, match=r"for sm_90: hpfem.cu\(1\): error: .*expected a"):
        nvrtc.compile_source("__global__ void broken( {}", "sm_90")


def test_the_cache_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    source = 'extern "C" __global__ void empty() {}'
    first = nvrtc.cached(source, "sm_90")
    monkeypatch.setattr(nvrtc, "compile_source", None)
    assert nvrtc.cached(source, "sm_90") == first
    assert first.read_bytes().startswith(b"\x7fELF")
    assert nvrtc.resources(first).spill_bytes == 0


def test_incomplete_files_of_a_crash_are_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    source = 'extern "C" __global__ void empty() {}'
    path = nvrtc.cached(source, "sm_90")
    whole = path.read_bytes()
    for left in (0, 10, 64, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:left])
        assert nvrtc.start(source, "sm_90").result() == path
        assert path.read_bytes() == whole
    monkeypatch.setattr(nvrtc, "compile_source", None)
    assert nvrtc.cached(source, "sm_90") == path  # a whole one is not compiled again


@pytest.mark.parametrize("place", [".cubin", ".log"])
@pytest.mark.parametrize("obstacle", ["other", "flip", "pipe", "loop", "writable"])
def test_foreign_cache_entries_are_compiled_again(tmp_path, monkeypatch, obstacle, place):
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    source, other = (f'extern "C" __global__ void {name}() {{}}' for name in ("mine", "theirs"))
    path, foreign = (nvrtc.cached(text, "sm_90").with_suffix(place) for text in (source, other))
    whole = path.read_bytes()
    if obstacle in ("other", "flip"):
        path.write_bytes(foreign.read_bytes() if obstacle == "other" else whole[:-1] + bytes([whole[-1] ^ 1]))
    elif obstacle == "writable":
        path.chmod(0o666)
    else:
        path.unlink()
        os.mkfifo(path) if obstacle == "pipe" else path.symlink_to(path)
    compiled = []
    compile_source = nvrtc.compile_source
    monkeypatch.setattr(nvrtc, "compile_source", lambda *a: compiled.append(a) or compile_source(*a))
    nvrtc.start(source, "sm_90").result()
    assert compiled == [(source, "sm_90", True, ())] and path.is_file() and not path.stat().st_mode & 0o022
    nvrtc.start(source, "sm_90").result()
    assert len(compiled) == 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache of kernels."""
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    return tmp_path / "cuda"


def test_kernels_of_four_shapes_compile_side_by_side(folder):
    space = hp.Space(box(("hex", "prism", "pyramid", "tet"), (4, 1, 1)).elevated(2), 2)
    operator = hp.Helmholtz(space, lam=1.0, backend="numpy")
    sources = []
    for choice in operator.choices:
        problem, levels = choice.kernel.problem, Levels.of(choice.kernel.problem)
        layout = SumFacTopPlan(problem, levels, CudaSumFacTop().chosen(problem, Limits()))
        sources.append(program(layout.source()))
    assert len(sources) == 4
    begun = [nvrtc.start(source, "sm_90") for source in sources]
    found = [future.result() for future in begun]
    assert sorted(found) == sorted(folder.glob("*.cubin"))
    assert [nvrtc.cached(source, "sm_90") for source in sources] == found
    for path in found:
        assert path.read_bytes().startswith(b"\x7fELF")
        assert nvrtc.resources(path).spill_bytes == 0
    assert all(nvrtc.start(source, "sm_90").done() for source in sources)


def test_a_kernel_that_does_not_compile_in_a_thread_raises_where_it_is_waited_for(folder):
    good = 'extern "C" __global__ void empty() {}'
    begun = [nvrtc.start(source, "sm_90") for source in ("__global__ void broken( {}", good)]
    with pytest.raises(DeviceError, match="does not compile for sm_90"):
        begun[0].result()
    assert [begun[1].result()] == list(folder.glob("*.cubin"))


@pytest.mark.parametrize("executable", ["/nowhere/python", "/opt/viewer", "/bin/false-python", None])
def test_where_there_are_no_processes_kernels_are_compiled_here(monkeypatch, executable):
    source = 'extern "C" __global__ void here() {}'
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "compiled", None)  # it is not needed here
        apart = nvrtc.compile_source(source, "sm_90", apart=True)
    nvrtc._end_process()
    monkeypatch.setattr(nvrtc.sys, "executable", executable)
    assert nvrtc.compile_source(source, "sm_90", apart=True).resources == apart.resources


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "cuda").write_text("a file where the folder should be")
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    forget_reports()
    found = [nvrtc.start('extern "C" __global__ void lost() {}', "sm_90").result() for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].read_bytes().startswith(b"\x7fELF")
    assert tmp_path not in found[0].parents
    assert "not kept" in reports()["cache"]


def test_kernels_are_all_begun_before_one_is_waited_for(monkeypatch):
    seen = []
    monkeypatch.setattr(NumpyKernel, "finish", lambda self: seen.append("finish"))

    def in_product(kernel, restriction, number):
        seen.append(f"begin {number}")
        return lambda: seen.append(f"finish {number}")

    monkeypatch.setattr(NumpyKernel, "in_product", in_product)
    space = hp.Space(box(("hex", "tet"), (2, 1, 1)), 1, backend="numpy")
    A = hp.GlobalOperator(hp.Mass(space), hp.C0Space(space))
    assert seen == []  # the first application waits, so that operators are compiled side by side
    x = np.ones(A.shape[0])
    assert np.isfinite(A @ x).all() and (A @ x).sum() == pytest.approx(1)
    n = len(space.blocks)
    assert n > 1 and seen == [f"{what} {number}" for what in ("begin", "finish") for number in range(n)]


def test_a_forked_process_has_threads_of_its_own(folder):
    nvrtc.start('extern "C" __global__ void before() {}', "sm_90").result()
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        assert pool.submit(_compiled_in_a_thread, 'extern "C" __global__ void after() {}').result(timeout=60)
    assert len(list(folder.glob("*.cubin"))) == 2


def _compiled_in_a_thread(source):
    return nvrtc.start(source, "sm_90").result().is_file()
