"""One case of every family of CUDA kernels, small, compared with NumPy: to be run under compute-sanitizer.

compute-sanitizer --tool memcheck python -m benchmarks.sanitize_cuda [kernels | solves]
compute-sanitizer --tool racecheck python -m benchmarks.sanitize_cuda [kernels | solves]

With `--target-processes application-only` compilers that are ended are no errors, with `--kernel-name-exclude kns=cupy`
racecheck leaves out CuPy's kernels, of which `nonzero` has warnings.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import hpfem as hp
from benchmarks.tuner_loss import VARYING
from hpfem.backends.base import choose_backend
from hpfem.backends.cuda.backend import CudaBackend
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.backends.options import source_in
from hpfem.backends.strategy import Strategy
from hpfem.benchmarks.tiled import few_elements
from hpfem.forms.form import BlockProblem
from hpfem.forms.merged import merged_if_possible

ROOT = Path(__file__).resolve().parent.parent


def strain(du: Any) -> Any:
    """The density of energy of a solid."""
    return sum((du[i][j] + du[j][i]) ** 2 for i in range(3) for j in range(3))


def solid(space: hp.Space, backend: str) -> Any:
    """Three components that are coupled."""
    return hp.Energy(space, strain, components=3, backend=backend).residual


def state(du: Any, k: Any) -> Any:
    """More numbers at points than components."""
    return [k * du[i] * du[j] for i in range(3) for j in range(3)]


OPERATORS: dict[str, Any] = {
    "solid": solid,
    "state": lambda space, backend: hp.AtPoints(space, state, {"k": VARYING["lam"]}, backend=backend),
    "density": lambda space, backend: hp.AtPoints(space, strain, components=3, backend=backend),
    "mass": hp.Mass,
    "helmholtz": partial(hp.Helmholtz, lam=1.0),
    "laplacian": hp.Laplacian,
    "variable": partial(hp.Helmholtz, **VARYING),
}
NODES: dict[str, Any] = {"basis": "lagrange", "quadrature": "collocated"}
# Strategy, shape, order, geometry, operator, algorithm and options; "nodes" is "sumfac-top" in the basis of the points.
# Every kernel is applied to two components, or to two times those that are coupled, which share what is read.
CASES = [
    ("sumfac-top", "hex", 4, "deformed", "mass", "noncollocated", "elements=3 prefetch=6 l2"),
    ("sumfac-top", "hex", 4, "deformed", "helmholtz", "noncollocated", "elements=2 prefetch=2 late"),
    ("sumfac-top", "hex", 3, "affine", "helmholtz", "collocated", "elements=3"),
    ("sumfac-top", "quad", 5, "deformed", "helmholtz", "collocated", "elements=5 l2"),
    ("sumfac-top", "tri", 4, "deformed", "helmholtz", "noncollocated", "elements=5 prefetch=2 late"),
    ("sumfac-top", "tri", 4, "affine", "helmholtz", "collocated", "elements=4 split=7"),
    ("sumfac-top", "tet", 4, "deformed", "helmholtz", "collocated", "elements=4 l2"),
    ("sumfac-top", "tet", 4, "deformed", "mass", "noncollocated", "elements=4 split=7"),
    ("sumfac-top", "prism", 4, "deformed", "helmholtz", "noncollocated", "elements=3 tables_shared"),
    ("sumfac-top", "prism", 3, "affine", "helmholtz", "collocated", "elements=3 split=1"),
    ("sumfac-top", "pyramid", 4, "deformed", "helmholtz", "collocated", "elements=3 split=2"),
    ("sumfac-top", "pyramid", 3, "affine", "mass", "noncollocated", "elements=4"),
    ("sumfac", "tet", 2, "deformed", "helmholtz", "noncollocated", "stored"),
    ("sumfac", "prism", 1, "affine", "helmholtz", "noncollocated", "stored"),
    # Factors recomputed from maps.
    ("sumfac-top", "hex", 4, "multilinear", "helmholtz", "noncollocated", "elements=3 min_blocks=4 recomputed"),
    ("sumfac-top", "pyramid", 3, "multilinear", "helmholtz", "collocated", "elements=4 recomputed"),
    ("sumfac-top", "tet", 3, "deformed", "helmholtz", "noncollocated", "elements=5 split=3 recomputed"),
    ("sumfac-top", "quad", 4, "multilinear", "mass", "noncollocated", "elements=6 recomputed"),
    ("sumfac", "tet", 2, "deformed", "helmholtz", "noncollocated", "recomputed"),
    ("sumfac", "prism", 1, "multilinear", "helmholtz", "noncollocated", "recomputed"),
    # But for a scale.
    ("sumfac-top", "hex", 4, "multilinear", "helmholtz", "collocated", "elements=3 prefetch=2 late scaled"),
    ("sumfac-top", "prism", 3, "multilinear", "helmholtz", "noncollocated", "elements=5 l2 split=3 scaled"),
    ("sumfac", "tet", 2, "deformed", "helmholtz", "noncollocated", "scaled"),
    # Coefficients in the factors.
    ("sumfac-top", "hex", 4, "deformed", "variable", "collocated", "elements=3 prefetch=2 late merged"),
    ("sumfac-top", "tet", 3, "deformed", "variable", "noncollocated", "elements=4 l2 split=3 merged"),
    ("sumfac-top", "pyramid", 3, "multilinear", "variable", "noncollocated", "elements=4 split=7 scaled merged"),
    ("sumfac-top", "quad", 4, "multilinear", "variable", "collocated", "elements=6 scaled merged"),
    ("sumfac", "prism", 1, "multilinear", "variable", "noncollocated", "scaled merged"),
    ("sumfac", "tet", 2, "deformed", "variable", "noncollocated", "merged"),
    # Nodes on the points.
    ("nodes", "hex", 7, "deformed", "helmholtz", "collocated", "elements=2 prefetch=2"),
    ("nodes", "hex", 7, "multilinear", "laplacian", "collocated", "elements=1 recomputed"),
    ("nodes", "hex", 7, "multilinear", "variable", "collocated", "elements=2 scaled merged"),
    ("nodes", "hex", 7, "affine", "helmholtz", "collocated", "elements=2"),
    ("nodes", "quad", 4, "deformed", "mass", "noncollocated", "elements=6"),
    ("stdmat", "pyramid", 2, "deformed", "helmholtz", "collocated", None),
    ("dense", "tri", 3, "affine", "helmholtz", "noncollocated", "warps=4 tiles=0"),
    ("dense", "tet", 3, "affine", "helmholtz", "noncollocated", "warps=2 tiles=1"),
    ("dense", "tet", 5, "affine", "helmholtz", "noncollocated", "warps=2 tiles=1 stages=3 no-kept"),
    ("dense", "tet", 5, "affine", "mass", "noncollocated", None),
    ("kronecker", "hex", 4, "affine", "helmholtz", "noncollocated", "elements=3"),
    ("kronecker", "hex", 7, "affine", "laplacian", "noncollocated", None),
    ("kronecker", "quad", 5, "affine", "helmholtz", "noncollocated", "elements=4"),
    ("kronecker", "hex", 3, "affine", "mass", "noncollocated", None),
    # On simplex rules.
    ("fused", "tri", 4, "deformed", "helmholtz", "noncollocated", None),
    ("fused", "tet", 3, "deformed", "mass", "collocated", None),
    ("fused", "tet", 4, "deformed", "helmholtz", "noncollocated", "warps=2 kept=3"),
    ("fused", "tet", 5, "deformed", "helmholtz", "noncollocated", "warps=2 stages=3 ahead=1 no-mirror"),
    ("fused", "tet", 2, "affine", "helmholtz", "noncollocated", "warps=2 stages=2"),
    ("fused", "tet", 3, "deformed", "variable", "noncollocated", "warps=2 kept=3"),
    # Coupled components.
    ("fused", "tet", 2, "deformed", "solid", "noncollocated", None),
    ("fused", "tet", 4, "deformed", "solid", "noncollocated", None),
    ("fused", "tet", 3, "affine", "solid", "noncollocated", "warps=3 stages=2 ahead=1"),
    # Results at points.
    ("fused", "tet", 2, "deformed", "state", "noncollocated", None),
    ("fused", "tet", 4, "deformed", "density", "noncollocated", None),
    ("fused", "tet", 3, "affine", "density", "noncollocated", "warps=3 stages=2 ahead=1"),
    ("sumfac-top", "hex", 2, "deformed", "solid", "noncollocated", "elements=2"),
]
PROVIDERS = {own.name: own for own in CudaBackend.strategies}
# Solvers' kernels: index tables, conjugate gradients, cells' matrices and sparse ones of multigrid.
PRECONDITIONERS = ("none", "jacobi", "multigrid")


def made(
    mixed: bool, name: str, shape: str, order: int, geometry: str, operator: str, algorithm: str, options: str | None
) -> tuple[Strategy, BlockProblem] | None:
    """Strategy and problem of a case; None if mixed precision changes nothing."""
    how = NODES if name == "nodes" else {"quadrature": "simplex" if name == "fused" else "collapsed"}
    space = hp.Space(few_elements(shape, geometry), order, backend="numpy", **how)
    problem = OPERATORS[operator](space, backend="numpy").choices[0].kernel.problem
    problem = replace(problem, algorithm=algorithm, mixed=mixed)
    if mixed and (problem.factors_dtype == problem.dtype or source_in(options or "").recomputes):
        return None
    return PROVIDERS["sumfac-top" if name == "nodes" else name], problem


def error_of(strategy: Strategy, problem: BlockProblem, options: str | None) -> float:
    """Largest difference to NumPy, relative to the largest entry."""
    import cupy

    on_device = problem
    if merged_if_possible(problem) is problem:  # the kernel reads the fields themselves
        fields = {key: replace(f, device=CudaBackend.device()) for key, f in problem.fields.items()}
        on_device = replace(problem, fields=fields)
    kernel = strategy.build(on_device, options)
    kernel.finish()
    u = np.random.default_rng(0).standard_normal((2 * problem.coupled, problem.n_elements, problem.n_modes))
    wanted = np.empty((problem.components_out(len(u)), problem.n_elements, problem.n_output))
    out = cupy.full(wanted.shape, np.nan)
    # Where coefficients are rounded with the factors, NumPy's are.
    own = merged_if_possible(problem) if problem.mixed else problem
    NumpyKernel(own, "sumfac" if problem.tabulation.rule.tensor else "stdmat").apply(u, wanted)
    kernel.apply(cupy.asarray(u), out)
    return float(np.abs(out.get() - wanted).max() / np.abs(wanted).max())


def error_of_solve(preconditioner: str, backend: str) -> float:
    """Difference of a solution on all solid shapes to NumPy's, relative to it."""

    def solution(name: str) -> hp.Field:
        space = hp.Space(hp.read_mesh(ROOT / "meshes" / "cube_mixed.msh"), 3, backend=name)
        return hp.solve_helmholtz(space, 1.0, lambda x, y, z: x * y + z, preconditioner=preconditioner, tol=1e-10)

    return _difference(solution(backend), solution("numpy"))


def error_at_points(backend: str) -> float:
    """Difference of a function of values and gradients at the points to NumPy's, relative to it."""

    def at_points(name: str) -> hp.Field:
        space = hp.Space(few_elements("hex", "deformed"), 3, backend=name)
        u = space.project(lambda x, y, z: x * y + z)
        return hp.AtPoints(space, lambda u, du, x: u * du[0] + x[1])(u)

    return _difference(at_points(backend), at_points("numpy"))


def _difference(u: hp.Field, wanted: hp.Field) -> float:
    worst = max(np.abs(array - right).max() for array, right in zip(u.arrays, wanted.arrays, strict=True))
    return float(worst / max(np.abs(right).max() for right in wanted.arrays))


def shown(error: float, *what: Any, most: float = 1e-12) -> None:
    """Print what was compared; a wrong result ends the program."""
    print(*what, f"{error:.1e}", flush=True)
    if not error < most:
        raise SystemExit("wrong")


def kernels() -> None:
    """Run every case; a wrong one ends the program."""
    for mixed, case in product((False, True), CASES):
        found = made(mixed, *case)
        if found is not None:
            shown(error_of(*found, case[-1]), *case, "mixed" * mixed)


def solves() -> None:
    """Solve with every preconditioner, and evaluate a function at points; see `kernels`."""
    for preconditioner in PRECONDITIONERS:
        shown(error_of_solve(preconditioner, "cuda"), "solve", preconditioner, most=1e-8)
    shown(error_at_points("cuda"), "at points")


PARTS = {"kernels": kernels, "solves": solves}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS, help="the only one to run")
    asked = parser.parse_args().part
    # CuPy's kernels are not in question, and CUDA's libraries that a thread has begun crash at the end under racecheck.
    os.environ["HPFEM_AHEAD"] = "0"
    choose_backend("cuda")  # says what is missing
    for part in PARTS if asked is None else (asked,):
        PARTS[part]()
