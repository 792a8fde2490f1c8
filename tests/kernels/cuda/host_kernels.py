"""Runs CUDA kernels on the CPU: many specialisations in one library, made by a C++ compiler from a wheel."""

import ctypes
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfem.kernels.cuda.layout import fiber_factors, fiber_points
from hpfem.kernels.cuda.prelude import arguments, fiber_source, header
from hpfem.kernels.cuda.tables import Levels
from hpfem.kernels.cuda.variant import FiberPlan, Limits, default_variants, plan

OUTCOMES = {1: "threads of a block parted at a barrier", 2: "a kernel wrote behind the end of shared memory"}


@dataclass(frozen=True, eq=False)
class Case:
    """One specialisation."""

    problem: Any
    plan: FiberPlan
    levels: Levels
    name: str

    @classmethod
    def of(cls, problem, name, variant=None):
        """A case of the fiber kernel; the variant is the default one where it is left out."""
        levels = Levels.of(problem.tabulation)
        chosen = default_variants(problem, levels, Limits())[0] if variant is None else plan(problem, levels, variant)
        return cls(problem, chosen, levels, name)

    def source(self):
        """C++ of the kernel in a namespace of its own, with a plain function that launches it."""
        arrays, parameters, _ = arguments(self.problem)
        body = fiber_source(self.problem, self.levels, self.plan, self.name)
        given = [f"fields[{i}]" for i in range(len(arrays))] + [
            f"real(parameters[{i}])" for i in range(len(parameters))
        ]
        call = ", ".join(["n", "groups", "in", "out", "factors", "points", *given])
        return f"""
namespace {self.name}_ {{
{body}
static long long n; static int groups; static const real *in, *factors, *points; static real *out;
static const real **fields; static const double *parameters;
static void call() {{ {self.name}({call}); }}
}}
extern "C" int run_{self.name}(long long n, int groups, int batches, const void *in, void *out, const void *factors,
    const void *points, const void **fields, const double *parameters, int threads, long long shared, int descending) {{
  using namespace {self.name}_;
  {self.name}_::n = n; {self.name}_::groups = groups; {self.name}_::in = (const real *)in;
  {self.name}_::out = (real *)out; {self.name}_::factors = (const real *)factors;
  {self.name}_::points = (const real *)points; {self.name}_::fields = (const real **)fields;
  {self.name}_::parameters = parameters;
  return hpfem_host::launch(call, groups, batches, threads, shared, descending);
}}
"""


def build(cases, folder):
    """Compile cases into one library.

    Parameters
    ----------
    cases : list of Case
    folder : Path
        Where to put it.

    Returns
    -------
    ctypes.CDLL
    """
    text = "\n".join([header("host.h"), *(case.source() for case in cases)])
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "ziglang", "c++", "-shared", "-fPIC", os.environ.get("ZO","-O0"), "-std=c++17", "-nostdlib++", "-w"]
    command += ["-fno-exceptions", "-fno-sanitize=all", "-ffp-contract=off"]
    done = subprocess.run([*command, "-o", str(library), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def pointer(array):
    """Address of an array, or none."""
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def apply(library, case, source, descending=False):
    """Result of a case for an array [components, E, n_input] of the tree's modes or of points."""
    problem, layout = case.problem, (case.problem, case.levels, case.plan)
    components = problem.components_out(len(source))
    n_output = problem.n_points if problem.form.stage in ("bwd_trans", "phys_deriv") else case.levels.n_modes
    out = np.full((components, problem.n_elements, n_output), np.nan, problem.dtype)
    factors, points = fiber_factors(*layout), fiber_points(*layout)
    arrays, names, _ = arguments(problem)
    held = [np.ascontiguousarray(problem.fields[name].values, problem.dtype) for name in arrays]
    fields = (ctypes.c_void_p * max(len(held), 1))(*[a.ctypes.data for a in held])
    parameters = (ctypes.c_double * max(len(names), 1))(*[problem.parameters[name] for name in names])
    groups = -(-problem.n_elements // case.plan.variant.elements)
    outcome = getattr(library, f"run_{case.name}")(
        ctypes.c_longlong(problem.n_elements),
        groups,
        len(source) // problem.coupled,
        pointer(np.ascontiguousarray(source)),
        pointer(out),
        pointer(factors),
        pointer(points),
        fields,
        parameters,
        case.plan.threads,
        ctypes.c_longlong(case.plan.shared_bytes),
        int(descending),
    )
    assert outcome == 0, f"{case.name}: {OUTCOMES[outcome]}"
    return out
