"""CuPy's kernels that are compiled some at a time before CuPy asks for them: once on a machine; CuPy does others."""

import ctypes
import json
import sys
from concurrent.futures import Future
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from itertools import chain
from queue import PriorityQueue
from types import ModuleType, SimpleNamespace

import pytest

from benchmarks.array_kernels import MOST, grouped
from hpfem.backends.cuda.runtime import ahead, device

HEAD = "#define FIRST 1\n"
SOURCES = [f'extern "C" __global__ void kernel{k}(int* x) {{ *x = FIRST; }}' for k in range(4)]
WRONG = 'extern "C" __global__ void wrong() { none; }'
OPTIONS = ("-I/somewhere", "--std=c++17")


class StandIn:
    """CuPy as far as it compiles kernels: what it has compiled itself, and the modules that were loaded."""

    def __init__(self, folder):
        self.own, self.files, self.number = [], [], 0
        (folder / "cupy").mkdir()
        (folder / "cupy" / "_version.py").write_text("__version__ = '14.2.0'\n")
        names = ("cupy", "cupy.cuda", "cupy.cuda.compiler", "cupy.cuda.function")
        self.modules = cupy, cuda, compiler, function = [ModuleType(name) for name in names]
        cupy.__spec__ = ModuleSpec("cupy", None, origin=str(folder / "cupy" / "__init__.py"))
        cupy.cuda, cuda.compiler, cuda.function = cuda, compiler, function
        cuda.Device = type("Device", (nullcontext,), {"compute_capability": "90"})
        cuda.runtime = SimpleNamespace(getDevice=lambda: self.number)
        compiler._compile_module_with_cache = self.found
        function.Module = lambda: SimpleNamespace(load_file=self.files.append)

    def found(self, source, options=(), **given):
        """Find or compile a kernel, as CuPy does."""
        self.own.append(source)
        return "by CuPy"

    def needed(self, source, options=OPTIONS, **given):
        """Ask as CuPy's kernels do."""
        asked = {"arch": None, "extra_source": b"of headers", "backend": "nvrtc", "jitify": False, **given}
        return self.modules[2]._compile_module_with_cache(HEAD + source, options, **asked)


@pytest.fixture
def cupy(monkeypatch, tmp_path):
    """CuPy, with a table of its kernels; and threads that have no process yet."""
    monkeypatch.setattr(ahead.nvrtc, "_threads", [])
    monkeypatch.setattr(ahead.nvrtc, "_asked", PriorityQueue())
    monkeypatch.setattr(ahead, "_threads", [])
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ahead, "TABLE", tmp_path / "table.json")
    ahead.TABLE.write_text(json.dumps(["14.2.0", HEAD, [SOURCES[:2], SOURCES[2:], [WRONG]]]))
    stand_in = StandIn(tmp_path)
    for module in stand_in.modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    ahead._groups.cache_clear()
    yield stand_in
    ahead._groups.cache_clear()


def test_cupy_gets_the_program_of_a_group(cupy):
    """One for its kernels, on each device; what does not compile is asked of CuPy, which says why."""
    for number in (0, 1):
        cupy.number = number
        ahead.begin(number)
        ahead.loaded()
        modules = [cupy.needed(source) for source in SOURCES]
        assert modules[0] is modules[1] and modules[2] is modules[3] is not modules[0] and not cupy.own
        assert len(cupy.files) == 2 * (number + 1)
    for first, file in zip((0, 2, 0, 2), cupy.files, strict=True):
        with open(file, "rb") as opened:
            cubin = opened.read()
        assert cubin.startswith(b"\x7fELF") and b"kernel%d" % first in cubin and b"kernel%d" % (first + 1) in cubin
    assert cupy.needed(WRONG) == "by CuPy" and cupy.own == [HEAD + WRONG]


@pytest.mark.parametrize(
    "given", [{"options": ("--std=c++17", "-G")}, {"options": ()}, {"jitify": True}, {"arch": "80"}]
)
def test_other_options_are_left_to_cupy(cupy, given):
    ahead.begin(0)
    assert cupy.needed(SOURCES[0], **given) == "by CuPy" and cupy.needed(SOURCES[0]) != "by CuPy"
    ahead.loaded()


def test_what_is_on_disk_is_loaded_without_a_compiler(cupy, monkeypatch):
    """And CUDA's libraries."""
    used = []
    monkeypatch.setattr(ahead, "_use_libraries", used.append)
    compiled, compile_one = [], ahead.nvrtc.compile_source
    monkeypatch.setattr(ahead.nvrtc, "compile_source", lambda *given: compiled.append(given) or compile_one(*given))
    for _ in range(2):
        ahead._groups.cache_clear()
        ahead.begin(0)
        ahead.loaded()
        assert cupy.needed(SOURCES[3]) != "by CuPy" and not cupy.own
    assert len(cupy.files) == 4 and used == [sys.modules["cupy"]] * 2
    assert len(compiled) == 2 + 2  # two of the one that does not compile


class Driver:
    """CUDA's, as far as it tells the architecture of the first GPU."""

    def __init__(self, wrong=0):
        self.cuInit = lambda flags: wrong

    @staticmethod
    def cuDeviceGetAttribute(number, what, which):
        number._obj.value = {75: 9, 76: 0}[what]
        return which


@pytest.fixture
def before_cupy(cupy, monkeypatch):
    """CuPy is installed, but not imported."""
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(ahead, "find_spec", lambda name: cupy.modules[0].__spec__)
    monkeypatch.setattr(
        ahead.ctypes, "CDLL", lambda name, CDLL=ctypes.CDLL: Driver() if "cuda." in name else CDLL(name)
    )
    return cupy


def test_compilation_begins_before_cupy_is_there(before_cupy, monkeypatch):
    begun, start = [], ahead.nvrtc.start
    monkeypatch.setattr(ahead.nvrtc, "start", lambda *given: begun.append(given[1]) or start(*given))
    ahead.begin_first()
    ahead.loaded()
    assert begun == ["sm_90"] * 3 and not before_cupy.files
    monkeypatch.setitem(sys.modules, "cupy", before_cupy.modules[0])
    ahead.begin_first()  # another GPU may be chosen already
    ahead.begin(0)
    ahead.loaded()
    assert len(begun) == 3 and before_cupy.needed(SOURCES[0]) != "by CuPy"


@pytest.mark.parametrize("why", ["variable", "driver", "no driver", "version", "cupy"])
def test_nothing_is_begun_before_cupy_is_there(before_cupy, monkeypatch, why):
    begun = []
    monkeypatch.setattr(ahead.nvrtc, "start", lambda *given: begun.append(given))
    if why == "variable":
        monkeypatch.setenv("HPFEM_AHEAD", "0")
    elif why == "version":
        ahead.TABLE.write_text(json.dumps(["14.3.0", HEAD, [SOURCES]]))
    elif why == "cupy":
        monkeypatch.setattr(ahead, "find_spec", lambda name: None)
    else:
        monkeypatch.setattr(ahead.ctypes, "CDLL", (lambda name: Driver(100)) if why == "driver" else None)
    ahead.begin_first()
    ahead.loaded()
    assert not begun and ahead._groups.cache_info().currsize == (why == "version")


def test_processes_of_one_alone_begin_before_cupy_is_there(monkeypatch):
    begun = []
    monkeypatch.setattr(device, "begin_first", lambda: begun.append(True))
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: ModuleSpec("cupy", None))
    for size in (2, 1):
        assert not begun
        monkeypatch.setattr(device, "told", lambda size=size: size)
        device.missing.__wrapped__()
    assert begun == [True]


@pytest.mark.parametrize("why", ["variable", "version", "nvrtc", "no answer", "cupy"])
def test_where_nothing_is_begun_cupy_compiles(cupy, monkeypatch, why):
    if why == "variable":
        monkeypatch.setenv("HPFEM_AHEAD", "0")
    elif why == "nvrtc":
        monkeypatch.setattr(ahead.nvrtc, "library", lambda: 1 / 0)
    elif why == "version":
        ahead.TABLE.write_text(json.dumps(["99.0.0", HEAD, [SOURCES]]))
    elif why == "no answer":
        monkeypatch.setattr(ahead, "PATIENCE", 0.01)
        monkeypatch.setattr(ahead.nvrtc, "start", lambda *given: Future())
    else:
        monkeypatch.delitem(sys.modules, "cupy.cuda.compiler")
        del cupy.modules[1].compiler
        assert ahead.begin(0) is None
        return
    ahead.begin(0)
    ahead.loaded()
    assert cupy.needed(SOURCES[0]) == "by CuPy"


def test_a_program_at_its_end_waits_for_no_compiler(cupy, monkeypatch):
    """And kernels of a group do not wait one after the other."""
    group = ahead._Group(Future())
    monkeypatch.setattr(ahead, "main_thread", lambda: SimpleNamespace(is_alive=lambda: False))
    with pytest.raises(TimeoutError):
        group.module(sys.modules["cupy"])
    monkeypatch.undo()
    group._patience = 0.0
    with pytest.raises(TimeoutError):
        group.module(cupy.modules[0])


def test_kernels_of_a_program_do_not_meet():
    """Types, functions and macros of the same names, and headers of numbers that none uses."""
    sources = [
        f'\ntypedef {kind} T;\n#include "cupy/float16.cuh"\n #define REDUCE(a) (a + {k})\n'
        f'__device__ T add(T x) {{ return REDUCE(x); }}\nextern "C" __global__ void own{k}(T* x) {{ *x = add(*x); }}'
        for k, kind in enumerate(("double", "float", "char"))
    ]
    made = ahead.nvrtc.compile_source(ahead.program(HEAD, sources), "sm_90")
    assert all(b"own%d" % k in made.cubin for k in range(3)) and "warning" not in made.log


def test_shipped_table():
    version, head, groups = json.loads(ahead.TABLE.read_text(encoding="utf-8"))
    sources = list(chain(*groups))
    assert version.count(".") == 2 and "#include <cupy/" in head and len(set(sources)) == len(sources) > 100
    assert groups == grouped(sources) and max(map(len, groups)) == MOST
    assert not any("cub/" in source for source in sources)
