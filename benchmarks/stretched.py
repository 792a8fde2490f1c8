"""Multigrid on stretched cells: iterations, and a cycle over one on cubes of as many unknowns.

    python -m benchmarks.stretched -o OUT.json [TABLE ...] [--backend cpu|cuda|numpy] [--jacobi] [--small]
    mpiexec -n 2 python -m benchmarks.stretched -o OUT.json [TABLE ...]
    python -m benchmarks.stretched --show OUT.json

-lap u with a random right-hand side, to 1e-8. Values are given on one small side, which is the worst case, unless a
row says otherwise. `--jacobi`: solve by Jacobi's preconditioner too, and record the difference of the solutions.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hpfem as hp
from benchmarks.multigrid import FLAT, FOLDERS, files
from benchmarks.script import Content, Tables, by_tables, count_of, run
from hpfem.backends import choose_backend
from hpfem.mesh import Mesh, box, read_mesh
from hpfem.solvers import make_preconditioner
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.multigrid.irregular import entity_numbers, irregular
from hpfem.support.communicator import world

MOST_ITERATIONS = 1000
# Boxes across the layers, layers, and the axis across the layers.
LAYERS = {
    "tri": ("tri", 12, 4, -1),
    "quad": ("quad", 12, 4, -1),
    "tet": ("tet", 4, 3, -1),
    "prism thin in x": ("prism", 4, 3, 0),
    "prism thin in z": ("prism", 4, 3, -1),
    "pyramid": ("pyramid", 3, 2, -1),
    "hex": ("hex", 4, 3, -1),
}
RATIOS = (1, 4, 16, 32, 100)


# Times as many boxes across, and as many layers, of meshes for the time of a cycle, by backend.
LARGER = {"cuda": {2: 20, 3: 6}, "cpu": {2: 5, 3: 3}, "numpy": {2: 3, 3: 2}}


class Case(NamedTuple):
    """A count, and where it stands in its table."""

    row: str
    column: str
    mesh: Callable[[], Mesh]
    order: int
    given: Any = "xmin"  # sides with values, or None for all


TABLES = Tables()
table = TABLES.add


def layers(shape: str, n: int, ratio: float, count: int, axis: int = -1) -> Mesh:
    """Layers of boxes stretched 1:ratio, n boxes across each."""
    d = 2 if shape in FLAT else 3
    counts, upper = [n] * d, [1.0] * d
    counts[axis], upper[axis] = count, count / n / ratio
    return box(shape, counts, upper=upper)


def _layers(small: bool, orders: Sequence[int], times: Mapping[int, int], ratios: Sequence[int]) -> Iterator[Case]:
    for name, (shape, n, count, axis) in LAYERS.items():
        finer = times[2 if shape in FLAT else 3]
        for P in orders:
            for ratio in ratios[-1:] if small else ratios:
                mesh = partial(layers, shape, finer * n, ratio, finer * count, axis)
                yield Case(f"{name}, P={P}", f"1:{ratio}", mesh, P, "ymin" if axis == 0 else "xmin")


@table
def boxes(small: bool, backend: str) -> Iterator[Case]:
    """Layers of boxes: values on one small side."""
    yield from _layers(small, (2,) if small else (2, 3, 4, 5, 6, 8), {2: 1, 3: 1}, RATIOS)


@table
def finer(small: bool, backend: str) -> Iterator[Case]:
    """The same, twice as fine."""
    yield from _layers(small, (2,) if small else (2, 4), {2: 1, 3: 1} if small else {2: 2, 3: 2}, RATIOS)


@table
def cycles(small: bool, backend: str) -> Iterator[Case]:
    """Larger meshes, for the time of a cycle."""
    yield from _layers(small, (2,) if small else (4,), {2: 1, 3: 1} if small else LARGER[backend], (1, 16, 100))


def thin(path: Path, ratio: float) -> Mesh:
    """A mesh squeezed in its last direction."""
    found = read_mesh(path)
    return found.transformed(lambda x: x * np.array([1.0] * (found.dim - 1) + [1 / ratio]))


@table
def squeezed(small: bool, backend: str) -> Iterator[Case]:
    """Unstructured meshes squeezed in their last direction: values on xmin, or all around (ball, disc)."""
    for name in ("square_mixed",) if small else ("square_mixed", "disc", "cube_mixed", "ball"):
        path = FOLDERS[0] / f"{name}.msh"
        for P in (2,) if small else (2, 3, 4, 6):
            for ratio in (16,) if small else (1, 4, 16, 64):
                yield Case(
                    f"{name}, P={P}", f"1:{ratio}", partial(thin, path, ratio), P, "xmin" if "mixed" in name else None
                )


def graded_mesh(shapes: Any, ratio: float, slope: float) -> Mesh:
    """Layers graded to 1:ratio in the last direction, sheared."""
    flat = (shapes if isinstance(shapes, str) else shapes[0]) in FLAT
    g = math.log(ratio)

    def graded(x: np.ndarray) -> np.ndarray:
        y = np.array(x)
        y[:, -1] = (np.exp(g * y[:, -1]) - 1) / (np.exp(g) - 1) * (1 + 0.1 * np.sin(3 * y[:, 0]))
        y[:, 0] += slope * y[:, -1]
        return y

    return box(shapes, (8, 8) if flat else (4, 3, 6) if isinstance(shapes, str) else (4, 2, 4)).transformed(graded)


@table
def graded(small: bool, backend: str) -> Iterator[Case]:
    """Layers graded and sheared, of one shape or several: the wall given, or one small side."""
    several = (("quad", "tri"), ("hex", "prism"), ("prism", "tet"), ("hex", "prism", "tet"), ("hex", "pyramid", "tet"))
    one = ("tri", "quad", "tet", "prism", "hex", "pyramid")
    for shapes in several[2:3] if small else (*one, *several):
        name = shapes if isinstance(shapes, str) else " beside ".join(shapes)
        flat = name.startswith(FLAT)
        for P in (2,) if small else (2, 4):
            for ratio in (10,) if small else (100, 1000):
                for given in ("xmin",) if small else ("ymin" if flat else "zmin", "xmin"):
                    for slope in (0.5,) if small else (0.0, 0.5):
                        column = f"1:{ratio}{', sheared' if slope else ''}, {'xmin' if given == 'xmin' else 'wall'}"
                        yield Case(f"{name}, P={P}", column, partial(graded_mesh, shapes, ratio, slope), P, given)


@table
def ordinary(small: bool, backend: str) -> Iterator[Case]:
    """Mesh files that are not stretched: values all around."""
    for case in files(small):
        yield Case(case.row, case.column, case.mesh, case.order, None)


def solved(case: Case, backend: str, jacobi: bool, cubes: list[Any]) -> dict[str, Any]:
    """Count the iterations of a case; what went wrong in place of them. Its cycle is timed in turns with that of
    `cubes`: the first case of its row and its cycle, which are kept there.
    """
    record: dict[str, Any] = {"iterations": None}
    mesh, comm = case.mesh(), world()
    try:
        space = hp.Space(hp.distribute(mesh, comm) if comm.size > 1 else mesh, case.order, backend=backend)
        c0 = hp.C0Space(space)
        bc = hp.BoundaryConditions(c0, dirichlet=0.0 if case.given is None else {case.given: 0.0})
        A = hp.GlobalOperator(hp.Laplacian(space), c0, bc)
        if not comm.any(bool(bc.free.any())):
            return record | {"failed": "no unknown is free"}
        began = time.perf_counter()
        M = Multigrid(A)
        record |= {"unknowns": c0.whole_size, "setup_s": round(time.perf_counter() - began, 3)}
        b = irregular(A, entity_numbers(c0.numbering, A.vectors.xp)) * A.vectors.from_host(bc.free)
        x, info = hp.cg(A, b, M, tol=1e-8, max_iterations=MOST_ITERATIONS, bar=False)
        if not cubes or cubes[0] != case.row:
            cubes[:] = case.row, lambda: M(b)
        times = _milliseconds([lambda: M(b), cubes[1]], backend, comm)
        record |= {"iterations": info.iterations, "cycle_ms": times[0], "on_cubes_ms": times[1]}
        if jacobi:
            y, other = hp.cg(A, b, make_preconditioner("jacobi", A)[0], tol=1e-8, bar=False)
            record |= {"jacobi": other.iterations, "difference": float(A.vectors.norm(x - y) / A.vectors.norm(y))}
    except hp.HpfemError as error:
        return record | {"failed": str(error)}
    return record


def _milliseconds(calls: Sequence[Callable[[], Any]], backend: str, comm: Any) -> list[float]:
    timer, counts, least = choose_backend(backend).timer(), [1] * len(calls), [math.inf] * len(calls)
    for k, call in enumerate(calls):
        while comm.max(timer.seconds(call, counts[k])) < 0.02 and counts[k] < 1000:
            counts[k] *= 2
    for _ in range(7):
        least = [min(t, timer.seconds(call, n) / n) for t, call, n in zip(least, calls, counts, strict=True)]
    return [round(1e3 * t, 4) for t in least]


def _share(first: dict[str, float], one: Content) -> str:
    """The time of a cycle over that of the first case of its row, in earlier files not in turns."""
    return f"{one['cycle_ms'] / one.get('on_cubes_ms', first.setdefault(one['row'], one['cycle_ms'])):.2f}"


def text_of(content: Content) -> str:
    """The tables of a file: iterations, and where cells are stretched more and more what a cycle takes."""
    if world().rank:
        return ""
    texts = [by_tables(content, count_of)]
    for name, found in content["tables"].items():
        if name in ("boxes", "finer", "cycles"):
            timed = [one for one in found["cases"] if one["iterations"] is not None]
            shares = {"title": f"{found['title']}: a cycle over one of the first column", "cases": timed}
            texts.append(by_tables({"tables": {name: shares}}, partial(_share, {})))
    return "\n".join(texts)


def measure(given: argparse.Namespace, content: Content) -> Iterator[None]:
    """Solve the cases of the tables; a line for each goes to the error stream."""
    content |= {"backend": given.backend, "processes": world().size, "small": given.small}
    cubes = list[Any]()
    for cases, keep in TABLES.asked(given, content):
        for case in cases(given.small, given.backend):
            if given.orders and case.order not in given.orders:
                continue
            keep({"row": case.row, "column": case.column} | solved(case, given.backend, given.jacobi, cubes))
            if world().rank == 0:  # which writes the file
                yield


def main(arguments: Sequence[str] | None = None) -> Content:
    """Solve, print and write."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        TABLES.add_option(parser)
        parser.add_argument("--orders", type=int, nargs="*", help="these orders alone")
        parser.add_argument("--jacobi", action="store_true", help="compare with solutions by Jacobi's preconditioner")

    return run(__doc__, measure, text_of, arguments, ("numpy", "cpu", "cuda"), add_options=add_options)


if __name__ == "__main__":
    main()
