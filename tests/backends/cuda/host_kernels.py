"""Runs CUDA kernels on the CPU: many specialisations in one library, made by a C++ compiler from a wheel."""

import ctypes
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from llvmlite.binding import get_host_cpu_name

from hpfem.backends.cuda.codegen.layout import stored_factors, stored_kinds
from hpfem.backends.cuda.codegen.prelude import arguments
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.kronecker.strategy import KroneckerOptions, KroneckerPlan
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.cuda.runtime.planned import Plan
from hpfem.backends.cuda.sumfac.strategy import SPILLING, SumFacPlan
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopPlan
from hpfem.backends.cuda.sumfac_top.strategy import CudaSumFacTop
from hpfem.backends.options import source_in
from hpfem.forms.kronecker import check_kronecker
from hpfem.forms.sources import of_source
from tests.kept import kept

# A CPU for kernels.
HOST = Path(__file__).with_name("host.h").read_text(encoding="utf-8")
COMPILER = (
    *(sys.executable, "-m", "ziglang", "c++", "-shared", "-fPIC", "-O0", "-g0", "-nostdlib", "-std=c++17"),
    *("-nostdlib++", "-w", "-fno-exceptions", "-fno-sanitize=all", "-ffp-contract=off"),
)
BOUNDS = ("-fsanitize=bounds", "-fsanitize-trap=bounds")
OUTCOMES = {1: "threads of a block parted at a barrier", 2: "a kernel wrote behind the end of shared memory"}


@dataclass(frozen=True, eq=False)
class Case:
    """One specialisation."""

    plan: Plan
    name: str
    alteration: tuple[str, str] | None = None
    scattered: bool = False

    @classmethod
    def of(cls, problem, name, options=None):
        """A case of "sumfac-top" (None: its default options), or of what takes the options; "sumfac" takes words."""
        if isinstance(options, str):
            problem = of_source(problem, source_in(options))
            return cls(SumFacPlan(problem, options == SPILLING), name)
        if isinstance(options, KroneckerOptions):
            check_kronecker(problem)
            return cls(KroneckerPlan(problem, options), name)
        chosen = CudaSumFacTop().chosen(problem, Limits()) if options is None else options
        return cls(SumFacTopPlan(problem, Levels.of(problem), chosen), name)

    @property
    def problem(self):
        """With the source of factors of the plan."""
        return self.plan.problem

    @property
    def levels(self):
        """Of the plan."""
        return self.plan.levels

    def altered(self, old, new):
        """The case with a text of its source replaced by another."""
        return replace(self, alteration=(old, new))

    @property
    def block(self):
        """Elements, threads and bytes of shared memory of a block."""
        return self.plan.elements, self.plan.threads, self.plan.shared_bytes

    @property
    def group(self):
        """Elements whose factors are stored side by side."""
        return self.plan.group

    def source(self):
        """C++ of the kernel in a namespace of its own, with a plain function that launches it."""
        arrays, parameters, _ = arguments(self.problem)
        body = self.plan.source(self.name)
        if self.alteration is not None:
            assert self.alteration[0] in body
            body = body.replace(*self.alteration)
        if self.scattered:
            body = f"#define HPFEM_INDEX int\n{body}\n#undef HPFEM_INDEX"
        given = [f"fields[{i}]" for i in range(len(arrays))] + [
            f"real(parameters[{i}])" for i in range(len(parameters))
        ]
        if self.scattered:
            given += ["*(const long long *)Q[0]", *(f"(const int *)Q[{i}]" for i in (1, 2, 3)), "(const real *)Q[4]"]
        call = ", ".join(["n", "in", "out", "factors", "points", *given])
        return f"""
namespace {self.name}_ {{
{body}
static long long n; static const real *in, *points; static const stored_real *factors; static real *out;
static const real **fields; static const double *parameters; static const void **Q;
static void call() {{ {self.name}({call}); }}
}}
extern "C" int run_{self.name}(long long n, const unsigned *grid, const void *in, void *out, const void *factors,
    const void *points, const void **fields, const double *parameters, int threads, long long shared, int descending,
    const void **Q) {{
  using namespace {self.name}_;
  {self.name}_::n = n; {self.name}_::in = (const real *)in;
  {self.name}_::out = (real *)out; {self.name}_::factors = (const stored_real *)factors;
  {self.name}_::points = (const real *)points; {self.name}_::fields = (const real **)fields;
  {self.name}_::parameters = parameters; {self.name}_::Q = Q;
  return hpfem_host::launch(call, {{grid[0], grid[1], grid[2]}}, threads, shared, descending);
}}
"""


def build(cases, folder, bounds=False):
    """Compile cases into one library.

    Parameters
    ----------
    cases : list of Case
    folder : Path
        Where to put it.
    bounds : bool
        As for `compiled`.

    Returns
    -------
    ctypes.CDLL
    """
    return compiled("\n".join([HOST, *(case.source() for case in cases)]), folder, bounds)


def compiled(text, folder, bounds=False):
    """A library of a C++ source.

    Parameters
    ----------
    text : str
    folder : Path
        Where to put it.
    bounds : bool
        Whether an index beyond a table or a local array is a fault.

    Returns
    -------
    ctypes.CDLL
    """
    command = [*COMPILER, *BOUNDS * bounds]
    # A file for each call: two libraries that are loaded share no variables.
    place = Path(tempfile.mkdtemp(dir=folder))
    source, library = place / "kernels.cpp", place / "kernels.so"

    def made():
        source.write_text(text, encoding="utf-8")
        files = ["-o", str(library), str(source)]
        done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        return library.read_bytes()

    code = kept([text, *command, version("ziglang"), get_host_cpu_name()], made)
    library.write_bytes(code)
    return ctypes.CDLL(str(library))


def pointer(array, before=0):
    """Address of an array, or none; or that of a larger array, of which so many bytes before this one are missing."""
    return None if array is None else ctypes.c_void_p(array.ctypes.data - before)


@contextmanager
def first_block(library, number):
    """Leave out the blocks before one."""
    first = ctypes.c_uint.in_dll(library, "hpfem_first_block")
    first.value = number
    yield
    first.value = 0


@contextmanager
def shared_at(guard, library, nbytes):
    """Shared memory at the border, if there is a guard; what is not a multiple of 16 bytes leaves a gap behind it."""
    given = ctypes.c_void_p.in_dll(library, "hpfem_given_shared")
    memory = None if guard is None else guard.array(nbytes, np.uint8, 16)
    given.value = None if guard is None else memory.ctypes.data
    yield
    given.value = None


def apply(library, case, source, descending=False, guard=None, Q=(), before=0):
    """Result of a case for an array [components, E, n_input] of the tree's modes or of points.

    With a guard all that the kernel sees is at the border. One that is scattered takes [components, size], and Q as its
    further arguments. The elements may be the last ones of more: `before` are missing, whole blocks of them.
    """
    place = np.ascontiguousarray if guard is None else guard.copy
    problem, layout = case.problem, (case.problem, case.levels, case.group)
    components = problem.components_out(len(source))
    n_output = case.levels.n_modes if problem.form.to_modes else problem.n_points
    source, out = place(source), place(np.full((components, problem.n_elements, n_output), np.nan, problem.dtype))
    kinds = stored_kinds(problem)
    factors, points = (None if kind is None else place(stored_factors(*layout, kind)) for kind in kinds)
    arrays, names, _ = arguments(problem)
    held = [place(problem.fields[name].values.astype(problem.dtype)) for name in arrays]
    fields = (ctypes.c_void_p * max(len(held), 1))(*[a.ctypes.data for a in held])
    parameters = (ctypes.c_double * max(len(names), 1))(*[problem.parameters[name] for name in names])
    held_Q = [place(np.atleast_1d(array)) for array in Q]
    further = (ctypes.c_void_p * max(len(Q), 1))(*[array.ctypes.data for array in held_Q])
    elements, threads, shared = case.block
    n, size = problem.n_elements + before, problem.dtype.itemsize
    # Factors of groups of elements, or of affine ones.
    missing = [0 if a is None else before * a.nbytes // (len(a) * case.group) for a in (factors, points)]
    if problem.geometry.affine and factors is not None:
        missing[0] = before * factors.nbytes // problem.n_elements
    with shared_at(guard, library, shared), first_block(library, before // elements):
        outcome = getattr(library, f"run_{case.name}")(
            ctypes.c_longlong(n),
            (ctypes.c_uint * 3)(-(-n // elements), len(source) // problem.coupled, 1),
            pointer(source, before * size * source.shape[-1]),
            pointer(out, before * size * n_output),
            pointer(factors, missing[0]),
            pointer(points, missing[1]),
            fields,
            parameters,
            threads,
            ctypes.c_longlong(shared),
            int(descending),
            further,
        )
    assert outcome == 0, f"{case.name}: {OUTCOMES[outcome]}"
    return out
