"""Iterations of conjugate gradients with multigrid, for every shape, order and condition.

    python -m benchmarks.multigrid -o OUT.json [TABLE ...] [--small]
    python -m benchmarks.multigrid --show OUT.json

Every problem is -div(k grad u) + lam u with a random right-hand side, k = lam = 1 by default. The tables have
iterations to a residual of 1e-8 or a given one. The file also has the true residual, computed from the solution. Only
the whole run is timed. `--show` prints the tables of a file.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hpfem as hp
from benchmarks.script import Content, Tables, by_tables, count_of, run
from hpfem.mesh import Mesh, box, read_mesh
from hpfem.solvers.gmres import gmres
from hpfem.solvers.multigrid import Multigrid

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "meshes", ROOT.parent / "shared" / "meshes")
SOLIDS, FLAT = ("hex", "prism", "pyramid", "tet"), ("quad", "tri")
# Largest numbers of unknowns and of iterations of a case.
MOST_UNKNOWNS, MOST_ITERATIONS = 1_200_000, 1000
# Boxes across in the tables of hard problems.
ACROSS = {"hex": 4, "prism": 4, "pyramid": 2, "tet": 2}
# A flow of speed 1, and the cells in each box of a mesh.
VELOCITY = np.array([6.0, 3.0, -2.0]) / 7
CELLS = {"hex": 1, "prism": 2, "pyramid": 6, "tet": 6, "quad": 1, "tri": 2}
ONE_SIDE: dict[str, Any] = {"dirichlet": {"xmin": 0.0}}
EVERYWHERE: dict[str, Any] = {"dirichlet": 0.0}

# Diffusion by cells: centres of the cells -> values; a function of the coordinates; or 1.
ByCells = Callable[[np.ndarray], np.ndarray]


class Case(NamedTuple):
    """A count: what is solved, and where it stands in its table. With a cell Peclet number, a flow by GMRES."""

    row: str
    column: str
    mesh: Callable[[], Mesh]
    order: int
    conditions: dict[str, Any] = ONE_SIDE
    lam: float = 1.0
    k: Callable[..., Any] | None = None
    by_cells: ByCells | None = None
    components: int | None = None
    peclet: float | None = None
    degree: int = 2
    dtype: str = "float32"
    tol: float = 1e-8


TABLES = Tables()
table = TABLES.add


def boxes(shape: str | Sequence[str], n: int, upper: Sequence[float] | None = None) -> Callable[[], Mesh]:
    """A square or cube, or another box, cut into n boxes across, and these into cells of a shape."""
    names = (shape,) if isinstance(shape, str) else tuple(shape)
    return lambda: _box(names, n, None if upper is None else tuple(upper))


@cache
def _box(names: tuple[str, ...], n: int, upper: tuple[float, ...] | None) -> Mesh:
    return box(names, (n,) * (2 if names[0] in FLAT else 3), upper=upper)


def from_file(path: Path) -> Callable[[], Mesh]:
    """A mesh file."""
    return lambda: read_mesh(path)


@table
def orders(small: bool) -> Iterator[Case]:
    """Shapes, orders and degrees of the smoother: Dirichlet values on one side."""
    for shape, n in {"hex": 5, "prism": 5, "pyramid": 4, "tet": 4, "quad": 8, "tri": 8}.items():
        for degree in (2,) if small else (1, 2, 3):
            for P in (1, 2) if small else range(1, 9):
                row = f"{shape} {n}{'²' if shape in FLAT else '³'}, V{degree}"
                yield Case(row, f"P={P}", boxes(shape, 2 if small else n), P, degree=degree)


@table
def sizes(small: bool) -> Iterator[Case]:
    """Sizes: Dirichlet values on one side, V2."""
    for P in (1, 2, 4):
        for shape in SOLIDS:
            for n in (2,) if small else (2, 4, 6, 8, 12, *((24,) if P < 4 else ())):
                yield Case(f"{shape}, P={P}", f"{n}³", boxes(shape, n), P)


@table
def files(small: bool) -> Iterator[Case]:
    """Mesh files: Dirichlet values everywhere, V2."""
    orders = (2,) if small else (2, 4, 6)
    # The second folder has some of Nektar++ and MFEM.
    for folder in FOLDERS[:1] if small else FOLDERS:
        for path in sorted((*folder.rglob("*.msh"), *folder.rglob("*.vtk"))):
            if not small or path.stem in ("curved_tri", "curved_hex"):
                yield from (Case(path.stem, f"P={P}", from_file(path), P, EVERYWHERE) for P in orders)
    n = 4 if small else 6
    for P in orders:
        yield Case(f"slabs of the four, {n}³", f"P={P}", boxes(SOLIDS, n), P, EVERYWHERE)


@table
def aspects(small: bool) -> Iterator[Case]:
    """Aspect ratios: P = 4, lam = 0, V2 and V3."""
    thin = {"z": ("xmin", (0, 0, 1)), "x": ("ymin", (1, 0, 0)), "y and z": ("xmin", (0, 1, 1))}
    for where, (side, axes) in list(thin.items())[: 1 if small else None]:
        for text, conditions in ((f"{side} given", {"dirichlet": {side: 0.0}}), ("all given", EVERYWHERE)):
            for shape, n in ACROSS.items():
                for degree in (2,) if small else (2, 3):
                    for a in (1, 4) if small else (1, 4, 10, 100):
                        mesh = boxes(shape, n, [1 / a if axis else 1.0 for axis in axes])
                        row = f"thin in {where}, {text}: {shape}, V{degree}"
                        yield Case(row, f"1:{a}", mesh, 2 if small else 4, conditions, 0.0, degree=degree)


@table
def stretched(small: bool) -> Iterator[Case]:
    """Stretched cells by order: thin in z or y, Dirichlet values on one small side, lam = 0, V2."""
    for shape, n in {"hex": 3, "prism": 3, "pyramid": 2, "tet": 2, "quad": 6, "tri": 6}.items():
        for a in (2,) if small else (10, 100):
            mesh = boxes(shape, n, [1.0] * (1 if shape in FLAT else 2) + [1 / a])
            for P in (1, 2) if small else range(1, 9):
                yield Case(f"{shape}, 1:{a}", f"P={P}", mesh, P, lam=0.0)


@table
def advection(small: bool) -> Iterator[Case]:
    """Advection: GMRES with V2 of the diffusion, P = 4, tol 1e-8, by the cells' Peclet number."""
    for text, given in (("all given", EVERYWHERE), ("xmin given", ONE_SIDE)):
        for shape, n in {"hex": 3, "prism": 3, "pyramid": 2, "tet": 2, "quad": 8, "tri": 8}.items():
            for peclet in ("1",) if small else ("1", "3", "10", "30"):
                mesh, P = boxes(shape, 2 if small else n), 2 if small else 4
                yield Case(f"{shape}, {text}", f"Pe={peclet}", mesh, P, given, 0.0, peclet=float(peclet))


@table
def reactions(small: bool) -> Iterator[Case]:
    """Reactions: P = 4, Dirichlet values on one side, V2."""
    for shape, n in ACROSS.items():
        for lam in "0 1 1e2 1e4 1e6 1e8".split():
            yield Case(f"{shape} {n}³", f"lam={lam}", boxes(shape, n), 2 if small else 4, lam=float(lam))


def checkerboard(jump: float, n: int) -> ByCells:
    """1 and `jump` in turns in the n^3 boxes that cells are cut from."""
    return lambda x: np.where(np.floor(n * x).sum(axis=-1) % 2 == 0, 1.0, jump)


def at_random(jump: float) -> ByCells:
    """1 or `jump` in each cell."""
    return lambda x: np.where(np.random.default_rng(0).random(len(x)) < 0.5, 1.0, jump)


def smooth(x: Any, y: Any, z: Any) -> Any:
    """Between 0.14 and 7.4."""
    return np.exp(2 * np.sin(5 * x) * np.cos(4 * y + z))


@table
def coefficients(small: bool) -> Iterator[Case]:
    """Coefficients: P = 4, lam = 0, Dirichlet values on one side, V2 and V3."""
    for shape, n in ACROSS.items():
        for degree in (2,) if small else (2, 3):
            jumps = {"checkerboard 1e3": checkerboard(1e3, n), "checkerboard 1e6": checkerboard(1e6, n)}
            jumps |= {"random 1e3": at_random(1e3), "random 1e6": at_random(1e6)}
            how = {name: {"by_cells": jump} for name, jump in jumps.items()} | {"smooth": {"k": smooth}}
            for name, k in how.items():
                row, P = f"{shape} {n}³, V{degree}", 2 if small else 4
                yield Case(row, name, boxes(shape, n), P, lam=0.0, degree=degree, **k)
    for shape, n in {"hex": 8, "prism": 8, "pyramid": 4, "tet": 4}.items():
        if not small:
            yield Case(f"{shape} {n}³, V2", "smooth", boxes(shape, n), 4, lam=0.0, k=smooth)


@table
def conditions(small: bool) -> Iterator[Case]:
    """Neumann and Robin conditions all around: P = 5, V2."""
    for shape, n in ACROSS.items():
        mesh, P = boxes(shape, n), 2 if small else 5
        yield Case(f"{shape} {n}³", "Neumann, lam=1", mesh, P, {})
        for alpha in ("1e-2", "1", "1e2", "1e4"):
            yield Case(f"{shape} {n}³", f"Robin, alpha={alpha}", mesh, P, {"robin": (float(alpha), 0.0)}, 0.0)


@table
def components(small: bool) -> Iterator[Case]:
    """Components: Dirichlet values on one side, V2."""
    for shape, n in ACROSS.items():
        for P in (2,) if small else (2, 4, 6):
            for number in (None, 3):
                column = f"P={P}, {number or 1}"
                yield Case(f"{shape} {n}³", column, boxes(shape, n), P, components=number)


@table
def precisions(small: bool) -> Iterator[Case]:
    """Numbers inside: float32 against float64, V2."""
    meshes: dict[str, tuple[Callable[[], Mesh], int, dict[str, Any]]] = {
        name: (from_file(FOLDERS[0] / f"{name}.msh"), P, EVERYWHERE)
        for name, P in {"curved_mixed": 6, "pipe_mixed": 6, "curved_hex": 8}.items()
    }
    meshes |= {f"{shape} {n}³": (boxes(shape, n), 4, ONE_SIDE) for shape, n in ACROSS.items()}
    for name, (mesh, order, given) in list(meshes.items())[-1 if small else 0 :]:
        P = 2 if small else order
        for tol in ("1e-8", "1e-11", "1e-12"):
            for dtype in ("float32", "float64"):
                yield Case(f"{name}, P={P}", f"{tol}, {dtype}", mesh, P, given, dtype=dtype, tol=float(tol))


def solved(case: Case) -> dict[str, Any]:
    """Count the iterations of a case; what went wrong in place of them."""
    count: dict[str, Any] = {"iterations": None, "residual": None, "unknowns": None}
    try:
        space = hp.Space(case.mesh(), case.order)
        c0 = hp.C0Space(space)
        count["unknowns"] = c0.size * (case.components or 1)
        if count["unknowns"] > MOST_UNKNOWNS:
            return count | {"failed": f"more than {MOST_UNKNOWNS} unknowns"}
        k: Any = case.k
        if case.by_cells is not None:
            k = _by_cells(space, case.by_cells)
        bc = hp.BoundaryConditions(c0, **case.conditions)
        form: Any = hp.Helmholtz(space, case.lam, k)
        if case.peclet is not None:
            width = round(space.n_cells / CELLS[space.blocks[0].shape.name]) ** (-1 / space.dim)
            velocity = list(VELOCITY[: space.dim])
            form = hp.AdvectionDiffusionReaction(space, velocity, width / (2 * case.peclet), case.lam)
        A = hp.GlobalOperator(form, c0, bc, case.components)
        b = np.random.default_rng(0).standard_normal(A.shape[0]) * np.tile(bc.free, A.components)
        if not b.any():
            return count | {"failed": "no unknown is free"}
        flow = case.peclet is not None
        M = Multigrid(A.elliptic_part() if flow else A, degree=case.degree, dtype=case.dtype)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            x, info = (gmres if flow else hp.cg)(A, b, M, tol=case.tol, max_iterations=MOST_ITERATIONS, bar=False)
    except hp.HpfemError as error:
        return count | {"failed": str(error)}
    count |= {"iterations": info.iterations, "residual": float(np.linalg.norm(b - A.apply(x)) / np.linalg.norm(b))}
    return count | ({"warned": [str(warning.message) for warning in warned]} if warned else {})


def _by_cells(space: hp.Space, k: ByCells) -> hp.Field:
    """A coefficient that is the same all over each cell, given from the mean of its points."""
    x, y, z = (space.evaluate(lambda *x, i=i: x[i]).arrays for i in range(3))
    arrays = []
    for coordinates in zip(x, y, z, strict=True):
        centres = np.stack([values[0].mean(axis=-1) for values in coordinates], axis=-1)
        arrays.append(np.broadcast_to(k(centres)[None, :, None], coordinates[0].shape).copy())
    return space.field("phys", arrays)


def measure(given: argparse.Namespace, content: Content) -> Iterator[None]:
    """Solve the cases of the tables; a line for each goes to the error stream."""
    began = time.perf_counter()
    content |= {"small": given.small, "seconds": 0.0}
    for cases, keep in TABLES.asked(given, content):
        for case in cases(given.small):
            keep({"row": case.row, "column": case.column, "tol": case.tol} | solved(case))
        content["seconds"] = round(time.perf_counter() - began)
        yield


def main(arguments: Sequence[str] | None = None) -> Content:
    """Solve, print and write."""
    return run(__doc__, measure, partial(by_tables, cell=count_of), arguments, add_options=TABLES.add_option)


if __name__ == "__main__":
    main()
