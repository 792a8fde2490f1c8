"""Time of multigrid's cycle by level, beside a product of the operator in conjugate gradients.

    python benchmarks/cycle.py [--backend cuda] [--small] [-o OUT.json]
    python benchmarks/cycle.py --show OUT.json

On curved boxes of every shape. A cycle is run as solvers run it, on a GPU as one graph; copies between host and device
are counted. By level: the operator A, the smoother's B = T D^-1 T^t, and all work of the cycle.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hpfem as hp
from hpfem.backends import choose_backend
from hpfem.memory import count_transfers
from hpfem.mesh import box
from hpfem.solvers.multigrid import Multigrid
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description

# Shape, boxes across, order: about 1e7 unknowns on a GPU, 2e5 on a CPU.
CASES = {
    "cuda": (("hex", 54, 4), ("hex", 31, 7), ("prism", 46, 4), ("pyramid", 42, 4), ("tet", 72, 3), ("tet", 54, 4)),
    "cpu": (("hex", 16, 4), ("hex", 8, 8), ("prism", 14, 4), ("pyramid", 10, 4), ("tet", 16, 3), ("tet", 12, 4)),
}
CALLS = 10


def curved(shape: str, n: int) -> hp.Mesh:
    """A box whose cells are of order 2."""
    return box(shape, (n, n, n)).elevated(2).transformed(lambda x: x + 0.02 * np.sin(2 * np.pi * x[:, ::-1]))


def measured(shape: str, n: int, order: int, backend: str) -> dict[str, Any]:
    """Times in milliseconds of one case."""
    space = hp.Space(curved(shape, n), order, backend=backend)
    c0, timer = hp.C0Space(space), choose_backend(backend).timer()
    A = hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    M = Multigrid(A)

    def milliseconds(call: Any) -> float:
        call(), call()
        return round(1e3 * min(timer.seconds(call, CALLS) for _ in range(3)) / CALLS, 3)

    r = A.vectors.from_host(np.random.default_rng(0).standard_normal(c0.size))
    found: dict[str, Any] = {"shape": shape, "order": order, "unknowns": c0.size, "degree": M.degree}
    found["product"], found["cycle"] = milliseconds(lambda: A.apply(r, A.device)), milliseconds(lambda: M(r))
    with count_transfers() as moved:
        M(r)
    found["transfers"], found["levels"] = moved.total, []
    for number, level in enumerate(M.levels):
        x = r[: level.A.shape[0]].astype(M.dtype)
        below = as_one_graph(A.vectors.iteration, partial(M.in_modes, number, x))
        own = {"orders": level.A.c0.space.orders, "unknowns": len(x), "from here": milliseconds(below)}
        if level.smoothers:
            own |= {"A": milliseconds(partial(level.product, x)), "B": milliseconds(partial(level.smooth, x))}
        found["levels"].append(own)
    return found


def as_one_graph(iteration: Any, call: Any) -> Any:
    """A call, launched as a graph where the device has such."""
    if iteration is None:
        return call
    call()
    return iteration.capture(call, 1, "a cycle").launch


def text_of(content: dict[str, Any]) -> str:
    """The table of a file, in Markdown."""
    lines = [
        "| cells | unknowns | product | cycle | by level: A, B, all of the level | vertices |",
        "|---|---|---|---|---|---|",
    ]
    for case in content["cases"]:
        levels = case["levels"]
        rest = [one["from here"] for one in levels[1:]] + [0.0]
        parts = [
            f"P={max(one['orders'].values())}: {one['A']:.2f}, {one['B']:.2f}, {one['from here'] - lower:.2f}"
            for one, lower in zip(levels[:-1], rest, strict=False)
        ]
        lines.append(
            f"| {case['shape']} | {case['unknowns']:.2e} | {case['product']:.2f} | {case['cycle']:.2f} |"
            f" {'; '.join(parts)} | {levels[-1]['from here']:.2f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=tuple(CASES), default="cpu")
    parser.add_argument("--small", action="store_true", help="small meshes, to try the script")
    parser.add_argument("--show", metavar="FILE", help="measure nothing, print the table of a file")
    parser.add_argument("-o", "--output", metavar="FILE", help="JSON file to write")
    given = parser.parse_args(arguments)
    if given.show:
        content = json.loads(Path(given.show).read_text(encoding="utf-8"))
    else:
        content = {"machine": machine_description(), "unit": "ms", "cases": []}
        for shape, n, order in CASES[given.backend]:
            content["cases"].append(measured(shape, 3 if given.small else n, order, given.backend))
            if given.output:
                write_json(given.output, content)
    print(text_of(content))
    return content


if __name__ == "__main__":
    main()
