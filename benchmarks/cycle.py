"""Time of multigrid's cycle by level, beside a product of the operator in conjugate gradients.

    python -m benchmarks.cycle [--backend cuda] [--files] [--small] [-o OUT.json]
    python -m benchmarks.cycle --show OUT.json

On curved boxes of every shape, or on files with four shapes in one, refined. A cycle is run as solvers run it, on a GPU
as one graph, whose launches are counted; so are copies between host and device. By level: the operator A, the
smoother's B = T D^-1 T^t, and all work of the cycle. A solution is to a residual of 1e-8.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import hpfem as hp
from benchmarks.script import Content, markdown_table, run
from hpfem.backends import choose_backend
from hpfem.memory import count_transfers
from hpfem.mesh import box
from hpfem.solvers.multigrid import Multigrid

# Shape, boxes across, order: about 1e7 unknowns on a GPU, 2e5 on a CPU.
CASES = {
    "cuda": (("hex", 54, 4), ("hex", 31, 7), ("prism", 46, 4), ("pyramid", 42, 4), ("tet", 72, 3), ("tet", 54, 4)),
    "cpu": (("hex", 16, 4), ("hex", 8, 8), ("prism", 14, 4), ("pyramid", 10, 4), ("tet", 16, 3), ("tet", 12, 4)),
}
# File in `meshes`, how often it is refined, order.
FILES = {
    "cuda": (("pipe_mixed", 2, 6), ("curved_mixed", 3, 4)),
    "cpu": (("curved_mixed", 2, 4),),
}
CALLS = 10
MESHES = Path(__file__).parent.parent / "meshes"


def curved(shape: str, n: int) -> hp.Mesh:
    """A box whose cells are of order 2."""
    return box(shape, (n, n, n)).elevated(2).transformed(lambda x: x + 0.02 * np.sin(2 * np.pi * x[:, ::-1]))


def refined(name: str, times: int) -> hp.Mesh:
    """A file's mesh with smaller cells."""
    mesh = hp.read_mesh(MESHES / f"{name}.msh")
    for _ in range(times):
        mesh = mesh.refined()
    return mesh


def measured(name: str, mesh: hp.Mesh, order: int, backend: str) -> dict[str, Any]:
    """Times in milliseconds of one case."""
    space = hp.Space(mesh, order, backend=backend)
    c0, timer = hp.C0Space(space), choose_backend(backend).timer()
    A = hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    M = Multigrid(A)

    def milliseconds(call: Any) -> float:
        call(), call()
        return round(1e3 * min(timer.seconds(call, CALLS) for _ in range(3)) / CALLS, 3)

    r = A.vectors.from_host(np.random.default_rng(0).standard_normal(c0.size))
    case: dict[str, Any] = {"shape": name, "order": order, "unknowns": c0.size, "degree": M.degree}
    case["product"], case["cycle"] = milliseconds(lambda: A.apply(r, A.device)), milliseconds(lambda: M(r))
    with count_transfers() as moved:
        M(r)
    case["transfers"], case["levels"] = moved.total, []
    for number, level in enumerate(M.levels):
        x = r[: level.A.shape[0]].astype(M.dtype)
        below = as_one_graph(A.vectors.iteration, partial(M.in_modes, number, x))
        times = {"orders": level.A.c0.space.orders, "unknowns": len(x), "from here": milliseconds(below.launch)}
        times["launches"] = sum(Counter(below.nodes).values())
        if number == 0:
            case["launches"] = dict(Counter(below.nodes).most_common())
        for key, call in (("A", level.product), ("B", level.smooth)) if level.smoothers else ():
            times[key] = milliseconds(as_one_graph(A.vectors.iteration, partial(call, x)).launch)
        case["levels"].append(times)
    _, info = hp.cg(A, r, M, tol=1e-8)
    case["iterations"], case["solution"] = info.iterations, milliseconds(lambda: hp.cg(A, r, M, tol=1e-8))
    return case


def as_one_graph(iteration: Any, call: Any) -> Any:
    """A call, launched as a graph where the device has such, and what it launches then."""
    if iteration is None:
        return SimpleNamespace(launch=call, nodes=[])
    call()
    return iteration.capture(call, 1, "a cycle")


def text_of(content: Content) -> str:
    """The table of a file, in Markdown."""
    rows = []
    for case in content["cases"]:
        levels = case["levels"]
        below = [level["from here"] for level in levels[1:]] + [0.0]
        by_level = [
            f"P={max(level['orders'].values())}: {level['A']:.2f}, {level['B']:.2f}, {level['from here'] - rest:.2f}"
            for level, rest in zip(levels[:-1], below, strict=False)
        ]
        times = [f"{seconds:.2f}" for seconds in (case["product"], case["cycle"], levels[-1]["from here"])]
        rows.append([case["shape"], f"{case['unknowns']:.2e}", *times[:2], "; ".join(by_level), times[2]])
        if case.get("launches"):
            rows[-1] += [str(levels[0]["launches"]), f"{case['solution']:.1f} ({case['iterations']})"]
    heads = ["cells", "unknowns", "product", "cycle", "by level: A, B, all of the level", "vertices"]
    return markdown_table([*heads, *["launches", "solution (iterations)"][: len(rows[0]) - len(heads)]], rows)


def measure(given: argparse.Namespace, content: Content) -> Iterator[None]:
    """Time the cases of the backend."""
    content |= {"unit": "ms", "cases": []}
    for name, n, order in (FILES if given.files else CASES)[given.backend]:
        mesh = refined(name, 0 if given.small else n) if given.files else curved(name, 3 if given.small else n)
        content["cases"].append(measured(name, mesh, order, given.backend))
        yield


def main(arguments: Sequence[str] | None = None) -> Content:
    """Measure, print and write."""
    return run(__doc__, measure, text_of, arguments, tuple(CASES), add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the option of this script."""
    parser.add_argument("--files", action="store_true", help="meshes of four shapes in place of boxes")


if __name__ == "__main__":
    main()
