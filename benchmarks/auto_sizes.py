"""From which size on multigrid beats the diagonal in a single solve, with set-up: the sizes behind "auto".

    python benchmarks/auto_sizes.py [--backend cuda] [--seconds 140] [--small] [-o OUT.json]

Poisson problems on straight boxes of every shape, Dirichlet values everywhere, to 1e-8. Each solve is timed with its
preconditioner's set-up, kernels compiled. Sizes grow until multigrid is faster; between the last two sizes the
logarithm of the ratio is interpolated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from typing import Any

import numpy as np

import hpfem as hp
from hpfem.mesh import box
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description

# Boxes across are chosen for about so many unknowns.
SIZES = {"cpu": (3e3, 1e4, 3e4, 1e5, 3e5), "cuda": (3e4, 1e5, 3e5, 1e6, 3e6, 1e7)}
ORDERS = (4, 2, 1, 7)
CELLS = ("hex", "tet", "quad", "tri", "prism", "pyramid")
MOST_ITERATIONS = 20_000


def solves(shape: str, order: int, size: float, backend: str, repeats: int) -> dict[str, Any] | None:
    """Seconds of single solves by both preconditioners; None where no unknown is free."""
    dim = 2 if shape in ("quad", "tri") else 3
    # A box of six pyramids has about twice as many, around its centre.
    per_box = order**dim * (1 if shape != "pyramid" else 2)
    n = max(1, round((size / per_box) ** (1 / dim)))
    c0 = hp.C0Space(hp.Space(box(shape, (n,) * dim), order, backend=backend))
    bc = hp.BoundaryConditions(c0, dirichlet=0.0)
    if not bc.free.any():
        return None
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, 0.0), c0, bc)
    b = A.vectors.from_host(np.random.default_rng(0).standard_normal(c0.size) * bc.free, A.dtype)
    found: dict[str, Any] = {"shape": shape, "order": order, "unknowns": c0.size}
    for name in ("jacobi", "multigrid"):
        times = []
        for _ in range(repeats):
            _, info = hp.solve(A, b, name, tol=1e-8, max_iterations=MOST_ITERATIONS, bar=False)
            times.append(info.time)
        found[name] = {"seconds": min(times[1:] or times), "first": times[0], "iterations": info.iterations}
    return found


def crossing(runs: Sequence[dict[str, Any]]) -> float | None:
    """Unknowns at which both take the same time; None if multigrid is never or always faster."""
    ratios = [log(one["jacobi"]["seconds"] / one["multigrid"]["seconds"]) for one in runs]
    for (a, x), (b, y) in pairwise(zip(ratios, runs, strict=True)):
        if a < 0 <= b:
            low, high = log(x["unknowns"]), log(y["unknowns"])
            return exp(low + (high - low) * a / (a - b))
    return None


def _both(run: dict[str, Any], what: str, unit: float = 1.0) -> str:
    return " / ".join(f"{unit * run[name][what]:.0f}" for name in ("jacobi", "multigrid"))


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=tuple(SIZES), default="cpu")
    parser.add_argument("--seconds", type=float, default=140.0, help="no case begins later")
    parser.add_argument("--small", action="store_true", help="one small size, to try the script")
    parser.add_argument("-o", "--output", metavar="FILE", help="JSON file to write")
    given = parser.parse_args(arguments)
    content: dict[str, Any] = {"machine": machine_description(), "unit": "s", "runs": [], "left": []}
    began = time.perf_counter()
    print("| cells | P | multigrid from | by unknowns: jacobi / multigrid in ms, iterations |\n|---|---|---|---|")
    for order in ORDERS[:1] if given.small else ORDERS:
        for shape in CELLS:
            runs: list[dict[str, Any]] = []
            for size in SIZES[given.backend][: 1 if given.small else None]:
                if time.perf_counter() - began > given.seconds:
                    content["left"].append([shape, order, size])
                    break
                one = solves(shape, order, size, given.backend, 2 if given.small else 3)
                if one is None or (runs and one["unknowns"] == runs[-1]["unknowns"]):
                    continue
                runs.append(one)
                if one["multigrid"]["seconds"] < one["jacobi"]["seconds"] and len(runs) > 1:
                    break
            at = crossing(runs)
            cells = [f"{one['unknowns']:.1e}: {_both(one, 'seconds', 1e3)}, {_both(one, 'iterations')}" for one in runs]
            print(f"| {shape} | {order} | {'-' if at is None else f'{at:.1e}'} | {'; '.join(cells)} |", flush=True)
            content["runs"] += runs
            if given.output:
                write_json(given.output, content)
    return content


if __name__ == "__main__":
    main()
