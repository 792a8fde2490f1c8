"""CuPy's kernels that processes compile before CuPy asks for them: once on a machine, and CuPy does the others."""

import json
import sys
from concurrent.futures import Future, wait
from contextlib import nullcontext
from queue import PriorityQueue
from types import ModuleType, SimpleNamespace

import pytest

from hpfem.backends.cuda.runtime import ahead


class StandIn:
    """CuPy as far as it compiles kernels: what it has on disk, and what it has compiled itself."""

    def __init__(self, monkeypatch):
        self.disk, self.asked, self.own = {}, [], (own := [])

        class Program:
            def __init__(self, src, name):
                self.src, self.name = src, name

            def compile(self, options=(), log_stream=None):
                own.append(self.src)
                return b"by CuPy", None

        self.compiler = ModuleType("cupy.cuda.compiler")
        self.compiler._NVRTCProgram, self.compiler._get_nvrtc_version = Program, ahead.nvrtc.version
        self.compiler._compile_module_with_cache = self.found
        keep = SimpleNamespace(save=lambda name, made, source: self.disk.update({name: made}))
        self.compiler._kernel_cache_backend = keep
        modules = {name: ModuleType(name) for name in ("cupy", "cupy.cuda", "cupy._core", "cupy._core.core")}
        modules["cupy"].__version__ = "14.2.0"
        modules["cupy._core.core"].compile_with_cache = self.needed
        modules["cupy._core"].core, modules["cupy.cuda"].compiler = modules["cupy._core.core"], self.compiler
        modules["cupy"].cuda, modules["cupy.cuda"].Device = modules["cupy.cuda"], nullcontext
        modules["cupy.cuda"].runtime = SimpleNamespace(getDevice=int)
        for name, module in {**modules, "cupy.cuda.compiler": self.compiler}.items():
            monkeypatch.setitem(sys.modules, name, module)

    def needed(self, source, options=()):
        """Ask the compiler's module, as CuPy's kernels do."""
        return self.compiler._compile_module_with_cache(source, options, extra_source="of headers", backend="nvrtc")

    def found(self, source, options=(), **given):
        """Find or compile a kernel, as CuPy does."""
        self.asked.append(source)
        name = source.split()[4].removesuffix("()") + ".cubin"
        if name not in self.disk:
            program = self.compiler._NVRTCProgram(source, f"/somewhere/{name}.cu")
            self.disk[name] = program.compile((*options, "-arch=sm_90", "--pch"))[0]
        return self.disk[name]


SOURCES = [f'extern "C" __global__ void kernel{k}() {{}}' for k in range(5)]
WRONG = 'extern "C" __global__ void wrong() { none; }'


@pytest.fixture
def cupy(monkeypatch, tmp_path):
    """CuPy, with a table of its kernels; and threads that have no process yet."""
    monkeypatch.setattr(ahead.nvrtc, "_threads", [])
    monkeypatch.setattr(ahead, "_threads", [])
    monkeypatch.setattr(ahead.nvrtc, "_asked", PriorityQueue())
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ahead, "TABLE", tmp_path / "table.json")
    ahead.TABLE.write_text(json.dumps(["14.2.0", [[source, "--std=c++17"] for source in [*SOURCES, WRONG]]]))
    return StandIn(monkeypatch)


@pytest.fixture
def ended(monkeypatch):
    """Waits for all that was begun."""
    begin, begun = ahead.nvrtc.begin, []

    def noted(*given, **options):
        begun.append(begin(*given, **options))
        return begun[-1]

    monkeypatch.setattr(ahead.nvrtc, "begin", noted)
    return lambda: ahead.loaded() or wait(begun)


def test_cupy_gets_what_processes_compile(cupy, ended):
    ahead.begin(0)
    ended()
    cupy.disk.clear()
    assert all(cupy.needed(source).startswith(b"\x7fELF") for source in SOURCES) and not cupy.own
    assert cupy.needed(WRONG) == b"by CuPy" and cupy.own == [WRONG]
    assert len(cupy.disk) == 6


def test_what_is_not_asked_for_is_kept_too(cupy, ended):
    ahead.begin(0)
    ended()
    assert len(cupy.disk) == 5 and not cupy.own


def test_what_is_on_disk_is_loaded_once(cupy, ended, monkeypatch):
    """CuPy gets what a thread has loaded, the same once; what it asks for with other options it loads itself."""
    cupy.disk |= {f"kernel{k}.cubin": b"before" for k in range(5)} | {"wrong.cubin": b"before"}
    monkeypatch.setattr(ahead.nvrtc, "begin", None)
    used = []
    monkeypatch.setattr(ahead, "_use_libraries", used.append)
    ahead.begin(0)
    ended()
    assert len(cupy.asked) == 6 and set(cupy.disk.values()) == {b"before"} and used == [sys.modules["cupy"]]
    for others in ((), ("-more",)):
        assert cupy.needed(SOURCES[0], ("--std=c++17", *others)) == b"before"
        assert len(cupy.asked) == 6 + len(others)
    assert cupy.needed(SOURCES[0], ("--std=c++17",)) == b"before" and len(cupy.asked) == 8
    assert not cupy.own


def test_cupy_does_not_wait_for_a_kernel_that_is_not_begun(cupy, monkeypatch):
    begun = []
    monkeypatch.setattr(ahead.nvrtc, "begin", lambda work, late: begun.append((work, Future())) or begun[-1][1])
    ahead.begin(0)
    ahead.loaded()
    assert cupy.needed(SOURCES[0]) == b"by CuPy" and sum(future.cancelled() for _, future in begun) == 1
    assert all(future.cancelled() or work()[:4] in (b"\x7fELF", b"") for work, future in begun)


def test_an_error_ends_what_the_thread_asks(cupy, monkeypatch):
    """A later thread may have its number, and gets its kernels from CuPy."""
    monkeypatch.setattr(ahead, "get_ident", lambda: 7)
    monkeypatch.setattr(ahead.nvrtc, "begin", None)  # of the first kernel that is not on disk
    ahead.begin(0)
    ahead.loaded()
    assert cupy.needed(SOURCES[0]) == b"by CuPy"


def test_long_ones_are_first_and_have_no_precompiled_headers(cupy, ended, monkeypatch):
    """Those of CUB take 250 MB a process."""
    long, given = 'extern "C" __global__ void last() {}\n#include <cub/block.cuh>', []
    ahead.TABLE.write_text(json.dumps(["14.2.0", [[source] for source in [*SOURCES, long]]]))
    monkeypatch.setattr(ahead.nvrtc, "by_process", lambda *kernel: given.append(kernel) or (0, "", b"made"))
    monkeypatch.setattr(ahead.nvrtc.os, "cpu_count", lambda: 1)
    ahead.begin(0)
    ended()
    assert given[0] == (long, ["-arch=sm_90"])
    assert [options for _, options in given[1:]] == [["-arch=sm_90", "--pch"]] * 5


@pytest.mark.parametrize("why", ["variable", "memory", "version", "nvrtc", "python", "processes", "cupy"])
def test_where_nothing_is_begun_cupy_compiles(cupy, ended, monkeypatch, why):
    if why == "variable":
        monkeypatch.setenv("HPFEM_AHEAD", "0")
    elif why == "memory":
        monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    elif why == "nvrtc":
        cupy.compiler._get_nvrtc_version = lambda: (11, 2)
    elif why == "version":
        sys.modules["cupy"].__version__ = "99.0.0"
    elif why == "python":
        monkeypatch.setattr(sys, "executable", "/opt/viewer/bin/viewer")
    elif why == "processes":
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    else:
        del cupy.compiler._NVRTCProgram
        assert ahead.begin(0) is None
        return
    ahead.begin(0)
    ended()
    assert cupy.needed(SOURCES[0]) == b"by CuPy"


def test_shipped_table():
    version, kernels = json.loads(ahead.TABLE.read_text(encoding="utf-8"))
    assert version.count(".") == 2 and len(kernels) > 100
    assert all("__global__" in source and not any(o.startswith("-I") for o in options) for source, *options in kernels)
