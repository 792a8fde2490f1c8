"""Kernels of the variants on the CPU, in place of CuPy: many in one library, launched as CuPy launches."""

import ctypes
import re
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np

from benchmarks.papers import Reproduction
from benchmarks.papers.variants import gpu
from hpfem.backends.vectors import HOST_VECTORS
from tests.backends.cuda.host_kernels import HOST, OUTCOMES, compiled, shared_at
from tests.guard import SIDES, Guard, faults

# Numbers in shared memory, whose reads and writes are counted.
COUNTED = """struct Shared {{
  real value;
  operator real() const {{ return accesses_{number}++, value; }}
  void operator=(real given) {{ accesses_{number}++, value = given; }}
}};"""


class HostPrograms:
    """A library of kernels.

    Parameters
    ----------
    sources : iterable of (str, str)
        Source and name of each.
    folder : Path
    counted : bool
        Whether accesses to shared memory are counted.

    Attributes
    ----------
    descending : bool
        Order of the threads of a block.
    guard : callable or None
        Makes the `Guard` of a launch, at whose border all lies that the kernel sees.
    """

    def __init__(self, sources, folder, counted=False):
        self.descending, self.guard, self.numbers = False, None, {}
        for source, name in sources:
            self.numbers.setdefault((source, name), len(self.numbers))
        texts = [_in_namespace(source, name, n, counted) for (source, name), n in self.numbers.items()]
        self.library = compiled("\n".join([HOST, *texts]), folder, bounds=True)

    def start(self, source, name, shared_bytes=0):
        """Stand in for `gpu.start`."""
        return SimpleNamespace(result=lambda: (self.numbers[source, name], self.function(source, name)))

    def function(self, source, name):
        """What launches a kernel, called as CuPy's functions are."""
        run = getattr(self.library, f"run_{self.numbers[source, name]}")

        def launch(blocks, threads, arguments, shared_mem=0):
            guard, own = None if self.guard is None else self.guard(), [np.asarray(given) for given in arguments]
            held = own if guard is None else [guard.copy(array) if array.ndim else array for array in own]
            given = (ctypes.c_void_p * len(held))(*[array.ctypes.data for array in held])
            with shared_at(guard, self.library, shared_mem):
                outcome = run(given, blocks[0], threads[0], ctypes.c_longlong(shared_mem), int(self.descending))
            assert outcome == 0, f"{name}: {OUTCOMES[outcome]}"
            for array, result in zip(own, held, strict=True):
                if array is not result and array.flags.writeable:
                    array[...] = result

        launch.num_regs, launch.local_size_bytes = 32, 0
        return launch

    def check(self, block, names, n):
        """NumPy's results on n elements, and the same bits in any order of the threads."""
        u, _ = block.arrays(n)
        for name in names:
            built = block.build(name, "auto", n)
            results = []
            for self.descending in (False, True):
                assert built.error() < 1e-12, (name, block.problem.tabulation.basis.order)
                out = np.empty_like(u)
                built.choice.kernel.apply(u, out)
                results.append(out)
            assert np.array_equal(*results), (name, block.problem.tabulation.basis.order)

    def fill(self, number, name, values):
        """Stand in for `gpu.fill`."""
        address = getattr(self.library, f"{name}_{number}")
        address.restype = ctypes.c_void_p
        ctypes.memmove(address(), values.ctypes.data, values.nbytes)

    def accesses(self, source, name):
        """How often shared memory was read or written by a kernel so far."""
        return ctypes.c_longlong.in_dll(self.library, f"accesses_{self.numbers[source, name]}").value

    def use(self, monkeypatch):
        """Let the variants run here."""
        monkeypatch.setattr(gpu, "start", self.start)
        monkeypatch.setattr(gpu, "memory", lambda: HOST_VECTORS)
        monkeypatch.setattr(gpu, "fill", self.fill)
        return self

    def check_borders(self, monkeypatch, cases):
        """All arrays and shared memory at the border of memory, which is a fault to touch: (block, names, elements)."""
        monkeypatch.setattr(self, "guard", None)
        self.use(monkeypatch)
        for case, side in product(cases, SIDES):
            self.guard = partial(Guard, side)
            assert not faults(partial(check_errors, *case)), (case, side)
            check_errors(*case)


def check_errors(block, names, n):
    """Apply kernels of a block."""
    assert all(block.build(name, "auto", n).error() < 1e-12 for name in names)


def run_on_host(experiment, monkeypatch, only=(), **changed):
    """Run an experiment of the GPU here, on cases with other values; returns its records.

    Parameters
    ----------
    experiment : Experiment
        Whose kernels run on the CPU already.
    monkeypatch : MonkeyPatch
    only : tuple of str
        Names of series; all if empty.
    **changed
        Values of all cases.
    """
    series = [
        replace(
            one,
            backends=("cpu",),
            strategies={"cpu": one.strategies["cuda"]},
            cases=lambda backend, quick, one=one: [dict(one.cases("cuda", True)[0], **changed)],
        )
        for one in experiment.series
        if not only or one.name in only
    ]
    monkeypatch.setattr(gpu, "near_bandwidth", lambda: {"shared": 1e13, "L1": 1e13})
    run = Reproduction([replace(experiment, series=tuple(series))], ("cpu",), quick=True)
    assert len(list(run.run(lambda *done: None))) == len(series)
    assert {r["strategy"] for r in run.records if "value" in r} == {n for s in series for n in s.strategies["cpu"]}
    return run.records


def _in_namespace(source, name, number, counted):
    """C++ of a kernel in a namespace of its own, with a plain function that launches it."""
    [parameters] = re.findall(rf"\b{name}\(([^)]*)\) {{", source)
    passed = [
        f"({kind.rpartition('*')[0]} *)given[{n}]" if "*" in kind else f"*({kind.rpartition(' ')[0]} *)given[{n}]"
        for n, kind in enumerate(parameters.replace("__restrict__ ", "").split(","))
    ]
    body = source.replace('extern "C" ', "")
    if counted:
        assert "using Shared = real;" in body
        body = body.replace("using Shared = real;", COUNTED.format(number=number))
    filled = re.findall(r"^FILLED_CONSTANT\(real (\w+)", source, flags=re.MULTILINE)
    addresses = [f'extern "C" void *{array}_{number}() {{ return n{number}::{array}; }}' for array in filled]
    return f"""
extern "C" {{ long long accesses_{number}; }}
namespace n{number} {{
{body}
static void **given;
static void call() {{ {name}({", ".join(passed)}); }}
}}
#undef LOOP
extern "C" int run_{number}(void **given, unsigned blocks, int threads, long long shared, int descending) {{
  n{number}::given = given;
  return hpfem_host::launch(n{number}::call, {{blocks, 1, 1}}, threads, shared, descending);
}}
{"".join(addresses)}"""
