"""One case of every family of CUDA kernels, small, compared with NumPy: to be run under compute-sanitizer.

compute-sanitizer --tool memcheck python benchmarks/sanitize_cuda.py
compute-sanitizer --tool racecheck python benchmarks/sanitize_cuda.py
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

import hpfem as hp
from hpfem.backends.base import choose_backend
from hpfem.backends.cuda.dense.strategy import CudaDense
from hpfem.backends.cuda.fused.strategy import CudaFused
from hpfem.backends.cuda.stdmat.strategy import CudaStdMat
from hpfem.backends.cuda.sumfac.strategy import CudaSumFac
from hpfem.backends.cuda.sumfac_top.strategy import CudaSumFacTop
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.benchmarks.tiled import few_elements

# Strategy, shape, order, geometry, benchmark, algorithm and options.
CASES = [
    ("sumfac-top", "hex", 4, "deformed", "bk1", "noncollocated", "elements=3 prefetch=6 l2"),
    ("sumfac-top", "hex", 4, "deformed", "bk3", "noncollocated", "elements=2 prefetch=2 late"),
    ("sumfac-top", "hex", 3, "affine", "bk3", "collocated", "elements=3"),
    ("sumfac-top", "quad", 5, "deformed", "bk3", "collocated", "elements=5 l2"),
    ("sumfac-top", "tri", 4, "deformed", "bk3", "noncollocated", "elements=5 prefetch=2 late"),
    ("sumfac-top", "tri", 4, "affine", "bk3", "collocated", "elements=4 split=7"),
    ("sumfac-top", "tet", 4, "deformed", "bk3", "collocated", "elements=4 l2"),
    ("sumfac-top", "tet", 4, "deformed", "bk1", "noncollocated", "elements=4 split=7"),
    ("sumfac-top", "prism", 4, "deformed", "bk3", "noncollocated", "elements=3 tables_shared"),
    ("sumfac-top", "prism", 3, "affine", "bk3", "collocated", "elements=3 split=1"),
    ("sumfac-top", "pyramid", 4, "deformed", "bk3", "collocated", "elements=3 split=2"),
    ("sumfac-top", "pyramid", 3, "affine", "bk1", "noncollocated", "elements=4"),
    ("sumfac", "tet", 2, "deformed", "bk3", "noncollocated", None),
    ("sumfac", "prism", 1, "affine", "bk3", "noncollocated", None),
    # Factors recomputed from maps.
    ("sumfac-top", "hex", 4, "multilinear", "bk3", "noncollocated", "elements=3 min_blocks=4 recomputed"),
    ("sumfac-top", "pyramid", 3, "multilinear", "bk3", "collocated", "elements=4 recomputed"),
    ("sumfac-top", "tet", 3, "deformed", "bk3", "noncollocated", "elements=5 split=3 recomputed"),
    ("sumfac-top", "quad", 4, "multilinear", "bk1", "noncollocated", "elements=6 recomputed"),
    ("sumfac", "tet", 2, "deformed", "bk3", "noncollocated", "recomputed"),
    ("sumfac", "prism", 1, "multilinear", "bk3", "noncollocated", "recomputed"),
    # But for a scale.
    ("sumfac-top", "hex", 4, "multilinear", "bk3", "collocated", "elements=3 prefetch=2 late scaled"),
    ("sumfac-top", "prism", 3, "multilinear", "bk3", "noncollocated", "elements=5 l2 split=3 scaled"),
    ("sumfac", "tet", 2, "deformed", "bk3", "noncollocated", "scaled"),
    ("stdmat", "pyramid", 2, "deformed", "bk3", "collocated", None),
    ("dense", "tri", 3, "affine", "bk3", "noncollocated", "warps=4 tiles=0"),
    ("dense", "tet", 3, "affine", "bk3", "noncollocated", "warps=2 tiles=1"),
    ("dense", "tet", 5, "affine", "bk3", "noncollocated", "warps=2 tiles=1 stages=3 no-kept"),
    ("dense", "tet", 5, "affine", "bk1", "noncollocated", None),
    # On simplex rules.
    ("fused", "tri", 4, "deformed", "bk3", "noncollocated", None),
    ("fused", "tet", 3, "deformed", "bk1", "collocated", None),
    ("fused", "tet", 4, "deformed", "bk3", "noncollocated", "warps=2 kept=3"),
    ("fused", "tet", 5, "deformed", "bk3", "noncollocated", "warps=2 stages=3 ahead=1 no-mirror"),
    ("fused", "tet", 2, "affine", "bk3", "noncollocated", "warps=2 stages=2"),
]


def run(
    mixed: bool, strategy: str, shape: str, order: int, geometry: str, benchmark: str, algorithm: str, options: Any
) -> float | None:
    """Largest difference to NumPy, relative to the largest entry; None if mixed precision changes nothing."""
    import cupy

    quadrature = "simplex" if strategy == "fused" else None
    space = hp.Space(few_elements(shape, geometry), order, quadrature=quadrature, backend="numpy")
    problem = BENCHMARKS[benchmark](space).choices[0].kernel.problem
    problem = replace(problem, algorithm=algorithm, mixed=mixed)
    if mixed and (problem.factors_dtype == problem.dtype or {"recomputed", "scaled"} & {*(options or "").split()}):
        return None
    provider = next(
        p for p in (CudaSumFacTop(), CudaSumFac(), CudaStdMat(), CudaDense(), CudaFused()) if p.name == strategy
    )
    kernel = provider.build(problem, options)
    kernel.finish()
    u = np.random.default_rng(0).standard_normal((2, problem.n_elements, problem.n_modes))
    wanted, out = np.empty_like(u), cupy.full(u.shape, np.nan)
    NumpyKernel(problem, "stdmat" if quadrature else "sumfac").apply(u, wanted)
    kernel.apply(cupy.asarray(u), out)
    return float(np.abs(out.get() - wanted).max() / np.abs(wanted).max())


def main() -> None:
    """Run every case; a wrong one ends the program."""
    choose_backend("cuda")  # says what is missing
    for mixed, case in product((False, True), CASES):
        error = run(mixed, *case)
        if error is None:
            continue
        print(*case, "mixed" * mixed, f"{error:.1e}", flush=True)
        if not error < 1e-12:
            raise SystemExit("wrong")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
