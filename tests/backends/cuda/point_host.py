"""Runs StdMat's pointwise kernel on the CPU."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfem.backends.cuda.codegen.layout import stored_factors, stored_kinds
from hpfem.backends.cuda.codegen.prelude import arguments
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.stdmat.strategy import THREADS, slots
from hpfem.backends.cuda.stdmat.strategy import source as stdmat_source
from tests.backends.cuda.host_kernels import pointer


@dataclass(frozen=True, eq=False)
class PointCase:
    """One specialisation."""

    problem: Any
    levels: Levels
    name: str

    @classmethod
    def of(cls, problem, name):
        """The case of a problem."""
        return cls(problem, Levels.plain(problem.tabulation, lines=True), name)

    def source(self):
        """C++ of the kernel in a namespace of its own, with a plain function that launches it."""
        arrays, parameters, _ = arguments(self.problem)
        given = [f"fields[{i}]" for i in range(len(arrays))]
        given += [f"real(parameters[{i}])" for i in range(len(parameters))]
        call = ", ".join(["n", "first", "chunk", "in", "out", "work", "factors", "points", *given])
        return f"""
namespace {self.name}_ {{
{stdmat_source(self.problem, self.levels, self.name)}
static long long n, first, chunk; static const real *in, *points; static const stored_real *factors;
static real *out, *work;
static const real **fields; static const double *parameters;
static void call() {{ {self.name}({call}); }}
}}
extern "C" int run_{self.name}(long long n, long long first, long long chunk, const void *in, void *out, void *work,
    const void *factors, const void *points, const void **fields, const double *parameters, int descending) {{
  using namespace {self.name}_;
  {self.name}_::n = n; {self.name}_::first = first; {self.name}_::chunk = chunk;
  {self.name}_::in = (const real *)in; {self.name}_::out = (real *)out; {self.name}_::work = (real *)work;
  {self.name}_::factors = (const stored_real *)factors; {self.name}_::points = (const real *)points;
  {self.name}_::fields = (const real **)fields; {self.name}_::parameters = parameters;
  const unsigned blocks = (chunk * Q1 * Q2 * Q3 + {THREADS - 1}) / {THREADS};
  return hpfem_host::launch(call, {{blocks, 1, 1}}, {THREADS}, 0, descending);
}}
"""


def apply(library, case, source, descending=False, guard=None, evaluated=None):
    """What a case leaves of an array [components, E, points], in two parts: its result, and `work` of each, which is
    random or has what a product evaluated.

    With a guard all that the kernel sees is at the border; arrays that it is to leave alone are empty.
    """
    place = np.ascontiguousarray if guard is None else guard.copy
    p = case.problem
    reads, writes = p.form.source == "phys" and p.form.to_modes, not p.form.to_modes
    source = place(source if reads else np.empty(0, p.dtype))
    out = place(np.zeros((p.components_out(p.coupled), p.n_elements, p.n_points) if writes else 0, p.dtype))
    layout = p, case.levels, 1
    factors, points = (None if kind is None else place(stored_factors(*layout, kind)) for kind in stored_kinds(p))
    arrays, names, _ = arguments(p)
    held = [place(p.fields[name].values.astype(p.dtype)) for name in arrays]
    fields = (ctypes.c_void_p * max(len(held), 1))(*[a.ctypes.data for a in held])
    parameters = (ctypes.c_double * max(len(names), 1))(*[p.parameters[name] for name in names])
    shape = p.form.components, p.n_elements, sum(slots(p)), p.n_points
    work_of = np.random.default_rng(3).standard_normal(shape) if evaluated is None else evaluated
    half = p.n_elements // 2
    parts = []
    for first, n in ((0, half), (half, p.n_elements - half)):
        work = place(work_of[:, first : first + n].astype(p.dtype))
        if n:
            given = [*map(pointer, (source, out, work, factors, points)), fields, parameters, int(descending)]
            assert not getattr(library, f"run_{case.name}")(*map(ctypes.c_longlong, (p.n_elements, first, n)), *given)
        parts.append(work)
    return out, *parts
