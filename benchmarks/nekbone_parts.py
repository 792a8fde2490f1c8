"""The time of an iteration of conjugate gradients on a GPU, kernel by kernel: Nekbone's problem, a box of hexes.

    python benchmarks/nekbone_parts.py -o OUT.json [--order 7] [--counts 8 16] [--tune SECONDS]

Each part runs 20 times in a CUDA graph, so that no launch is timed; so does an iteration (4 times) as a whole. Parts
that are alone find more of their data in the cache than they do within an iteration. A solve is timed by the host's
clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hpfem as hp
from hpfem.mesh import box
from hpfem.solvers.preconditioners import Jacobi
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description


def graphed(call: Callable[[], Any], calls: int = 20, repeats: int = 9) -> float:
    """Microseconds of a call on the device, of many in a CUDA graph; the median."""
    import cupy

    call()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(calls):
            call()
        graph = stream.end_capture()
    times = []
    for _ in range(repeats + 1):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        graph.launch()
        stop.record()
        stop.synchronize()
        times.append(1e3 * cupy.cuda.get_elapsed_time(start, stop) / calls)
    return float(np.median(times[1:]))


def solve(A: hp.GlobalOperator, rhs: Any, M: Jacobi | None) -> dict[str, float]:
    """Iterations of a solve, and microseconds of one, start and end of the solve included."""
    import cupy

    device = cupy.cuda.Device()
    device.synchronize()
    start = time.perf_counter()
    _, info = hp.cg(A, rhs, M, tol=1e-8 if A.dtype == np.float64 else 1e-3, bar=False)
    device.synchronize()
    return {"iterations": info.iterations, "microseconds": 1e6 * (time.perf_counter() - start) / info.iterations}


def measure(count: int, order: int, components: int, dtype: str, tune: float) -> dict[str, Any]:
    """Times of one problem in microseconds."""
    space = hp.Space(box("hex", (count,) * 3), order, "lagrange", "collocated", backend="cuda", dtype=dtype)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet=0.0)
    A = hp.GlobalOperator(hp.Helmholtz(space, lam=0.1), c0, bc, components=components)
    if tune:
        A.operator.tune(tune)
    rng = np.random.default_rng(0)
    rhs = A.vectors.from_host((rng.standard_normal((components, c0.size)) * bc.free).ravel(), dtype)
    # Any diagonal takes the same time.
    M = Jacobi(A.vectors.from_host(rng.uniform(0.9, 1.1, A.shape[0]), dtype), A.vectors)
    hp.cg(A, rhs, M, tol=0.5, bar=False)
    product = A.product_on(A.device)
    scale, iteration = A.vectors.dot(rhs, rhs) ** 0.5, A.vectors.iteration
    assert iteration is not None
    v = iteration.conjugate_vectors(rhs * 0, rhs * 1, scale, 1e-300, 1 << 40, M.inverse, product.blocks)
    v.update_direction()
    parts: dict[str, Callable[[], Any]] = {**product.parts(v.p, v.q, v.partials, v.stop)}
    parts["iteration"] = lambda: (product.into(v.p, v.q, v.partials, v.stop), v.update_residual(), v.update_direction())
    parts["residual"], parts["direction"] = v.update_residual, v.update_direction
    return {
        "elements": space.n_cells,
        "components": components,
        "dtype": dtype,
        "unknowns": A.shape[0],
        "local": space.n_dofs * components,
        "tuned": tune > 0,
        "operator": A.operator.explain().splitlines()[1].strip(),
        "jacobi": solve(A, rhs, M),
        "none": solve(A, rhs, None),
        "parts": {name: graphed(call, 4 if name == "iteration" else 20) for name, call in parts.items()},
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", type=int, default=7)
    parser.add_argument("--counts", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--tune", type=float, default=0.0, help="seconds for choosing the operator's kernel")
    parser.add_argument("-o", "--output", required=True)
    given = parser.parse_args()
    rows = []
    for count in given.counts:
        for components, dtype in ((1, "f8"), (3, "f8"), (1, "f4")):
            rows.append(measure(count, given.order, components, dtype, given.tune))
            print(rows[-1], flush=True)
            about = {"machine": machine_description(), "order": given.order, "rows": rows}
            write_json(given.output, about)


if __name__ == "__main__":
    main()
