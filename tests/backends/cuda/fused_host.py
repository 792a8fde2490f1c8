"""Runs the fused kernels on the CPU."""

import ctypes
from dataclasses import dataclass

import numpy as np

from hpfem.backends.cuda.codegen.layout import stored_factors, stored_kinds
from hpfem.backends.cuda.codegen.prelude import arguments
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.fused.plan import GROUP, FusedPlan
from tests.backends.cuda.host_kernels import OUTCOMES, first_block, pointer, shared_at


@dataclass(frozen=True, eq=False)
class FusedCase:
    """One specialisation; `blocks` of them share the elements."""

    plan: FusedPlan
    name: str
    blocks: int = 1
    alteration: tuple[str, str] | None = None

    @classmethod
    def of(cls, problem, name, options, blocks=1):
        """A case of options."""
        return cls(FusedPlan(problem, options), name, blocks)

    @property
    def problem(self):
        """The problem."""
        return self.plan.problem

    def source(self):
        """C++ of the kernel in a namespace of its own, with a plain function that launches it."""
        body = self.plan.source(self.name)
        if self.alteration is not None:
            assert self.alteration[0] in body
            body = body.replace(*self.alteration)
        arrays, parameters, _ = arguments(self.problem)
        given = [f"fields[{i}]" for i in range(len(arrays))]
        given += [f"real(parameters[{i}])" for i in range(len(parameters))]
        call = ", ".join(["n", "in", "out", "factors", "points", "tables", *given])
        return f"""
namespace {self.name}_ {{
{body}
static long long n; static const real *in, *points, *tables; static const stored_real *factors; static real *out;
static const real **fields; static const double *parameters;
static void call() {{ {self.name}({call}); }}
}}
extern "C" int run_{self.name}(long long n, const unsigned *grid, const void *in, void *out, const void *factors,
    const void *points, const void *tables, const void **fields, const double *parameters, int threads,
    long long shared, int descending) {{
  using namespace {self.name}_;
  {self.name}_::n = n; {self.name}_::in = (const real *)in; {self.name}_::out = (real *)out;
  {self.name}_::factors = (const stored_real *)factors; {self.name}_::points = (const real *)points;
  {self.name}_::tables = (const real *)tables; {self.name}_::fields = (const real **)fields;
  {self.name}_::parameters = parameters;
  return hpfem_host::launch(call, {{grid[0], grid[1], grid[2]}}, threads, shared, descending);
}}
"""


def apply(library, case, source, descending=False, guard=None, before=0):
    """Result of a case for an array [components, E, n_modes]; with a guard all that it sees is at the border.

    `before` as for `host_kernels.apply`.
    """
    place = np.ascontiguousarray if guard is None else guard.copy
    problem, plan = case.problem, case.plan
    levels = Levels.plain(problem.tabulation)
    kinds = stored_kinds(problem)
    factors, points = (None if k is None else place(stored_factors(problem, levels, GROUP, k)) for k in kinds)
    tables = place(plan.tables())
    size = problem.components_out(len(source)), problem.n_elements, problem.n_output
    source, out = place(source), place(np.full(size, np.nan))
    arrays, names, _ = arguments(problem)
    held = [place(problem.fields[name].values.astype(problem.dtype)) for name in arrays]
    fields = (ctypes.c_void_p * max(len(held), 1))(*[a.ctypes.data for a in held])
    parameters = (ctypes.c_double * max(len(names), 1))(*[problem.parameters[name] for name in names])
    n, at_once = problem.n_elements, plan.elements
    blocks = -(-(n + before) // at_once) if before else case.blocks
    missing = [before * (array.nbytes // n) for array in (source, out)]
    missing += [0 if a is None else before // GROUP * (a.nbytes // -(-n // GROUP)) for a in (factors, points)]
    with shared_at(guard, library, plan.shared_bytes), first_block(library, before // at_once):
        outcome = getattr(library, f"run_{case.name}")(
            ctypes.c_longlong(n + before),
            (ctypes.c_uint * 3)(blocks, len(source) // problem.coupled, 1),
            *map(pointer, (source, out, factors, points), missing),
            pointer(tables),
            fields,
            parameters,
            plan.threads,
            ctypes.c_longlong(plan.shared_bytes),
            int(descending),
        )
    assert outcome == 0, f"{case.name}: {OUTCOMES[outcome]}"
    return out
