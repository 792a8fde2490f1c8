"""Runs the dense kernels on the CPU."""

import ctypes
from dataclasses import dataclass

import numpy as np

from hpfem.backends.cuda.codegen.prelude import arguments
from hpfem.backends.cuda.dense.plan import DensePlan
from tests.backends.cuda.host_kernels import OUTCOMES, first_block, pointer, shared_at


@dataclass(frozen=True, eq=False)
class DenseCase:
    """One specialisation of a dense kernel; `blocks` of them share the elements."""

    plan: DensePlan
    name: str
    blocks: int = 1
    alteration: tuple[str, str] | None = None

    @classmethod
    def of(cls, problem, name, options, blocks=1):
        """A case of options."""
        return cls(DensePlan(problem, options), name, blocks)

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
        _, parameters, _ = arguments(self.problem)
        call = ", ".join(
            ["n", "in", "out", "factors", "matrices", *[f"real(parameters[{i}])" for i in range(len(parameters))]]
        )
        return f"""
namespace {self.name}_ {{
{body}
static long long n; static const real *in, *factors, *matrices; static real *out; static const double *parameters;
static void call() {{ {self.name}({call}); }}
}}
extern "C" int run_{self.name}(long long n, const unsigned *grid, const void *in, void *out, const void *factors,
    const void *matrices, const double *parameters, int threads, long long shared, int descending) {{
  using namespace {self.name}_;
  {self.name}_::n = n; {self.name}_::in = (const real *)in; {self.name}_::out = (real *)out;
  {self.name}_::factors = (const real *)factors; {self.name}_::matrices = (const real *)matrices;
  {self.name}_::parameters = parameters;
  return hpfem_host::launch(call, {{grid[0], grid[1], grid[2]}}, threads, shared, descending);
}}
"""


def apply(library, case, source, descending=False, guard=None, before=0):
    """Result of a case for an array [components, E, n_modes], on copies of the problem's elements where E is larger.

    With a guard all that the kernel sees is at the border; `before` as for `host_kernels.apply`.
    """
    place = np.ascontiguousarray if guard is None else guard.copy
    problem, plan = case.problem, case.plan
    n = source.shape[1]
    factors = problem.geometry.factors(problem.form.factor_kind, 1, problem.dtype)
    factors = place(factors[np.arange(n) % problem.n_elements])
    matrices = place(plan.stream().astype(problem.dtype))
    source, out = place(source), place(np.full_like(source, np.nan))
    names = arguments(problem)[1]
    parameters = (ctypes.c_double * max(len(names), 1))(*[problem.parameters[name] for name in names])
    all_of = -(-(n + before) // plan.elements)
    blocks = all_of if plan.options.tiles == 0 or before else case.blocks
    with shared_at(guard, library, plan.shared_bytes), first_block(library, before // plan.elements):
        outcome = getattr(library, f"run_{case.name}")(
            ctypes.c_longlong(n + before),
            (ctypes.c_uint * 3)(blocks, len(source), 1),
            *(pointer(array, before * (array.nbytes // n)) for array in (source, out, factors)),
            pointer(matrices),
            parameters,
            plan.threads,
            ctypes.c_longlong(plan.shared_bytes),
            int(descending),
        )
    assert outcome == 0, f"{case.name}: {OUTCOMES[outcome]}"
    return out
