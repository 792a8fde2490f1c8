"""What every test may use, and which skips are allowed."""

import gc
import importlib.util
import os
import signal
import zlib
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from tests.covering import left_out

CACHE = "HPFEM_CACHE_DIR"
# Protecting pages of memory takes POSIX.
collect_ignore = [] if os.name == "posix" else ["backends/test_guarded.py"]
SHARED = Path(__file__).resolve().parent.parent.parent / "shared"

# Tables are as wide in workers of pytest-xdist, which say 80, as in one process.
os.environ.pop("COLUMNS", None)

# Operators of tests that are not the same at every call.
UNSTEADY = {"disturbed"}

# The same examples in every run, and no clock: the machines of CI are of all speeds.
hypothesis.settings.register_profile("hpfem", deadline=None, derandomize=True)
hypothesis.settings.load_profile("hpfem")


@pytest.fixture
def rng(request):
    """A random generator seeded by the test's name: the same numbers in every run and in any order."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def shared_meshes():
    """Folder of meshes made by other programs; a test that uses it is skipped where it is absent."""
    if not (SHARED / "meshes").is_dir():
        pytest.skip("../shared is absent")
    return SHARED / "meshes"


@pytest.fixture(scope="session", autouse=True)
def no_tuning_results(tmp_path_factory):
    """What this machine's user has tuned changes no test: results are in a folder of the tests' own."""
    from hpfem.tuning import store

    folder, elsewhere, given = store.cache_folder, tmp_path_factory.mktemp("cache"), os.environ.get(CACHE)

    def own(kind):
        """That of a test which names one, too."""
        return elsewhere / kind if os.environ.get(CACHE) == given else folder(kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "cache_folder", own)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_kernels(request):
    """`make test` compiles at level 0, in a third of the time, but in tests/backends/cpu; some other processes too.

    And no turns of timings are added until differences are settled.
    """
    from hpfem.backends.cpu.runtime import target
    from hpfem.benchmarks import turns

    with pytest.MonkeyPatch.context() as patch:
        if "not long" in request.config.option.markexpr:
            patch.setattr(target, "LEVEL", 0)
            patch.setattr(turns, "LONGEST", 1)
            patch.setenv("HPFEM_TEST_LEVEL", "0")
        yield


@pytest.fixture(autouse=True)
def closed_pipes():
    """A pipe that is closed is an error, and does not end the process, as it does from gmsh's start on."""
    yield
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def true_residuals():
    """Every solve of every test reports the residual that its solution has: computed here once more."""
    from hpfem.solvers.krylov import Method

    solve = Method.__call__

    def checked(method, apply, rhs, *arguments, dtype=None, **options):
        x, info = solve(method, apply, rhs, *arguments, dtype=dtype, **options)
        if isinstance(rhs, np.ndarray) and getattr(apply, "__name__", "") not in UNSTEADY:
            size, largest = (max(float(np.abs(v).max(initial=0.0)), np.finfo(np.float64).tiny) for v in (rhs, x))
            inside, unit = (x.dtype, 1) if dtype in (None, x.dtype) else (dtype, largest)
            product = getattr(apply, "apply", apply)((x / unit).astype(inside))
            true, scale = (
                np.linalg.norm(np.asarray(v, np.float64) / size) for v in (rhs - product * np.array([unit]), rhs)
            )
            assert abs(true - info.residual * scale) <= 0.01 * true + 10 * np.finfo(inside).eps * scale
        return x, info

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Method, "__call__", checked)
        yield


def _backends():
    """Every backend there is, fastest last; "cuda" only where there is a GPU."""
    from hpfem.backends.base import BACKENDS

    return [pytest.param(name, marks=pytest.mark.cuda) if name == "cuda" else name for name in BACKENDS]


@pytest.fixture(params=_backends())
def backend(request):
    """Name of a backend: what is tested with it is run on every one."""
    return request.param


@pytest.fixture(params=[own for own in _backends() if own != "numpy"])
def fast_backend(request):
    """Name of a backend that is compared with NumPy's."""
    return request.param


def has_gpu():
    """Whether CuPy is installed and sees a device."""
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def pytest_report_header():
    """Say which hpfem is tested: that of the checkout, or one that is installed."""
    import hpfem

    return f"hpfem from {Path(hpfem.__file__).parent}"


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Tests and modules stay until the end: the search for garbage leaves them out."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out the tests marked `cuda` on a machine without a GPU; mark what only `make test-all` runs as long."""
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if marked and not has_gpu():
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if not item.get_closest_marker("cuda")]
    for item in left_out(items):
        item.add_marker(pytest.mark.long)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker runs a file: what it has made serves all its tests. One runs all that several processes do together."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "tests/distributed" if nodeid.startswith("tests/distributed/") else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A skip for any other reason than an absent GPU, ../shared or an extra is a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker("cuda"):
        fail_unless_shared(report, str(call.excinfo.value))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    """The same for a module skipped as a whole."""
    report = yield
    if report.skipped:
        fail_unless_shared(report, report.longrepr[-1])
    return report


def fail_unless_shared(report, reason):
    """Turn a skip into a failure unless ../shared or an extra is the reason."""
    if not any(
        known in reason
        for known in (
            "../shared",
            "h5py is absent",
            "mpi4py or mpiexec is absent",
            "ngsolve is absent",
            "jax is absent",
            "torch is absent",
            "network namespaces are absent",
            "LLVM for",
            "NVRTC of the reference",
        )
    ):
        report.outcome, report.longrepr = "failed", f"unexpected skip: {reason}"
