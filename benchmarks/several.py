"""Scaling over GPUs, row by row: iterations, whole solutions, the largest problem, and a mesh from a file.

    mpiexec -n N python -m benchmarks.several -o FOLDER [ROW ...] [--backend cuda|cpu] [--small] [--cells 3e6]

Each number of processes, a GPU each, adds its results to FOLDER/scaling.json, which `hpfem plot` draws, and to
FOLDER/file.json: a mixed curved mesh that the first process writes to a file, read, parted by METIS and solved on, with
the seconds of every phase by number of processes. A row that fails is told, and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import hpfem as hp
from benchmarks.script import Content
from hpfem.assembly import BoundaryConditions, C0Space, GlobalOperator
from hpfem.benchmarks.problems import new_mesh
from hpfem.benchmarks.scaling import MIXED, TOLERANCE, box_counts
from hpfem.cli import main as hpfem
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.norms import load
from hpfem.support.communicator import world
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description

# Options of `hpfem scale`, and the unknowns of a problem, of each process unless it says --strong.
ROWS = {
    "hex": ("--shapes hex --orders 3", 5e7),
    "simplices": ("--shapes tet,mixed --orders 3", 1e7),
    "solutions": ("--shapes hex,tet --orders 4 --preconditioner multigrid", 5e6),
    "strong": ("--shapes hex --orders 3 --strong", 1e8),
    "strong-solutions": ("--shapes hex,tet --orders 4 --preconditioner multigrid --strong", 1e7),
    "largest": ("--shapes hex --orders 3", 3e8),
}
# Of the mesh in the file: its order, unknowns of each of its cells, roughly, and how much smaller small problems are.
ORDER, EACH, SMALL = 3, 9.5, 1e-4


def solved_from_file(folder: Path, backend: str, cells: float) -> Content:
    """Seconds of each phase from a file to a solution, of the slowest process; collective."""
    comm, seconds, path = world(), Content(), folder / f"mixed_{cells:.0f}.msh"

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        comm.sum(0.0)
        start = perf_counter()
        yield
        seconds[name] = round(comm.max(perf_counter() - start), 4)

    with phase("write the file"):
        with comm.together():
            if comm.rank == 0 and not path.exists():
                counts = box_counts("mixed", ORDER, EACH * cells)
                new_mesh(MIXED, counts, "deformed", comm=hp.ALONE).write(path)
    whole = None
    with phase("read"):
        with comm.together():
            if comm.rank == 0:
                whole = hp.read_mesh(path, comm=hp.ALONE)
    with phase("METIS and parts"):
        mesh = hp.distribute(whole, comm)
    del whole
    with phase("space"):
        space = hp.Space(mesh, ORDER, backend=backend)
    with phase("numbering and conditions"):
        c0 = C0Space(space)
        bc = BoundaryConditions(c0, dirichlet=0.0)
    with phase("operator, right-hand side"):
        A = GlobalOperator(hp.Laplacian(space), c0, bc)
        b = A.vectors.from_host(A.vectors.to_host(load(c0, 1.0)) * bc.free, space.dtype)
        A.vectors.norm(A.apply(b, A.device))
    with phase("multigrid"):
        M = Multigrid(A)
    for name in ("first solution", "second solution"):
        with phase(name):
            _, info = hp.cg(A, b, M, tol=TOLERANCE, bar=False)
    parts = {f"multigrid: {name}": round(comm.max(own), 4) for name, own in M.phases.items()}
    about = {"cells": mesh.n_cells if comm.size == 1 else int(comm.sum(mesh.n_cells)), "unknowns": c0.whole_size}
    shares = [mesh.n_cells / about["cells"] * comm.size, c0.size / about["unknowns"] * comm.size]
    most = {name: comm.max(own) for name, own in zip(("cells", "unknowns"), shares, strict=True)}
    return {**about, "iterations": info.iterations, "most over the mean": most, "seconds": seconds | parts}


def main(arguments: list[str] | None = None) -> int:
    """Run the rows; how many have failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)}, file; all but largest if left out")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", type=Path)
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--small", action="store_true", help="small problems, to try the script")
    parser.add_argument("--cells", type=float, default=3e6, help="cells of the mesh in the file (default 3e6)")
    given, comm = parser.parse_args(arguments), world()
    given.output.mkdir(parents=True, exist_ok=True)
    factor, failed = SMALL if given.small else 1.0, 0
    for row in given.rows or [name for name in (*ROWS, "file") if name != "largest"]:
        start = perf_counter()
        if row == "file":
            file = given.output / "file.json"
            found = solved_from_file(given.output, given.backend, given.cells * factor)
            if comm.rank == 0:
                content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
                write_json(file, content | {"machine": machine_description(), str(comm.size): found})
                print(json.dumps(found, indent=1))
        else:
            options, unknowns = ROWS[row]
            few = ["--iterations", "20"] if given.small and "--precond" not in options else []
            chosen = [*options.split(), "--dofs", f"{unknowns * factor:g}", "--backend", given.backend, *few]
            failed += bool(hpfem(["scale", *chosen, "-o", str(given.output / "scaling.json")]))
        if comm.rank == 0:
            print(f"{row}: {perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
