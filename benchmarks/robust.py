"""Problems that multigrid must bear: slender solids, random small problems, coefficients that change, Bratu's tangent.

    python -m benchmarks.robust -o OUT.json [TABLE ...] [--backend cuda] [--small]
    python -m benchmarks.robust --show OUT.json

Iterations are of `hp.solve` or `hp.cg` with multigrid to a residual of 1e-8. "Refused" is a problem that multigrid does
not take, or that solvers find it not to be positive definite for. Seconds are of one run.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import hpfem as hp
from benchmarks.script import Content, Tables, by_tables, run
from hpfem.mesh import box, read_mesh
from hpfem.solvers.multigrid import Multigrid
from tests.solvers.test_random_problems import random_problem
from tests.solvers.test_rigid_motions import beam, elastic

ROOT = Path(__file__).resolve().parent.parent
SOLIDS = ("hex", "prism", "pyramid", "tet")
SHAPES = (*SOLIDS, "quad", "tri")
MOST = 600
Record = dict[str, Any]
TABLES = Tables()
table = TABLES.add


@table
def cantilevers(given: argparse.Namespace) -> Iterator[Record]:
    """Cantilevers of elastic cells, nu = 0.3: iterations, and seconds of set-up and iterations."""
    for length in (3,) if given.small else (10, 30):
        for shape in SHAPES:
            for order in (1, 2) if given.small else (2, 4) if given.backend == "cuda" else range(1, 7):
                across = 1 if shape in ("tet", "pyramid") and length > 10 else 2
                A, b = beam(shape, order, length, given.backend, across=across)
                began = perf_counter()
                M = Multigrid(A)
                made = perf_counter() - began
                record = {"row": f"{shape} {length}:1", "column": f"P={order}", "set-up": made}
                record |= iterations(A, b, M)
                yield record | ({"from jacobi": _apart(A, b, M)} if order == 2 else {})


def _apart(A: hp.GlobalOperator, b: Any, M: Any) -> float:
    """Relative difference, in energy, of solutions to 1e-8 with multigrid and to 1e-10 with the diagonal."""
    x, y = (hp.solve(A, b, how, tol=tol, bar=False)[0] for how, tol in ((M, 1e-8), ("jacobi", 1e-10)))
    apart, size = (float(A.vectors.dot(own, A.apply(own, A.device))) for own in (x - y, y))
    return float(np.sqrt(apart / size))


def iterations(A: hp.GlobalOperator, b: Any, M: Any) -> Record:
    """Iterations of conjugate gradients, their seconds and the true residual; why there are none."""
    began = perf_counter()
    try:
        x, info = hp.cg(A, b, M, tol=1e-8, max_iterations=MOST, bar=False)
    except hp.HpfemError as error:
        return {"count": None, "failed": str(error)}
    A.vectors.to_host(x)
    return {"count": info.iterations, "seconds": perf_counter() - began, "residual": info.residual}


@table
def random_problems(given: argparse.Namespace) -> Iterator[Record]:
    """Random small problems of order 1 and 2, by hundreds, with multigrid: how many are refused."""
    each = 5 if given.small else 100
    for part in range(5):
        refused: dict[str, str] = {}
        for number in range(each * part, each * (part + 1)):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", hp.HpfemWarning)
                try:
                    problem, f = random_problem(np.random.default_rng(number), "multigrid", given.backend)
                    problem.solve(f)
                except hp.HpfemError as error:
                    refused[str(number)] = str(error)
            refused |= {str(number): str(own.message) for own in said if "multigrid" in str(own.message)}
        yield {"row": "refused", "column": f"{each * part} to {each * (part + 1) - 1}", "count": len(refused)} | refused


def varying(space: hp.Space) -> hp.Field:
    """A coefficient to be changed."""
    return space.evaluate(lambda *x: 1.5 + np.sin(3 * x[0]))


@table
def changes(given: argparse.Namespace) -> Iterator[Record]:
    """A coefficient changes: seconds of `refresh` over those of making it; iterations with it, and made anew."""
    for shape in SHAPES:
        n, P = (3, 2) if given.small else (64 if shape in ("quad", "tri") else 7, 4)
        space = hp.Space(box(shape, (n,) * (2 if shape in ("quad", "tri") else 3)), P, backend=given.backend)
        c0 = hp.C0Space(space)
        bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0})
        M: Any = None
        times: dict[str, float] = {}

        def least(what: str, call: Callable[[], Any], times: dict[str, float] = times) -> Any:
            """What a call gives, and its least time of five."""
            for _ in range(5):
                began = perf_counter()
                found = call()
                times[what] = min(times.get(what, np.inf), perf_counter() - began)
            return found

        for factor in (1.0, 1.3):
            k = space.field("phys", [factor * own**factor for own in varying(space).arrays])
            A = hp.GlobalOperator(hp.Helmholtz(space, 1.0, k), c0, bc)
            b = A.vectors.from_host(np.random.default_rng(0).standard_normal(c0.size) * bc.free)
            M = least("set-up", partial(Multigrid, A)) if M is None else M
        least("refresh", partial(M.refresh, A))
        ratio = round(times["refresh"] / times["set-up"], 2)
        yield {"row": shape, "column": "refresh / set-up", "count": ratio, "seconds": times}
        yield {"row": shape, "column": "refreshed"} | iterations(A, b, M)
        yield {"row": shape, "column": "made anew"} | iterations(A, b, Multigrid(A))


@table
def newton(given: argparse.Namespace) -> Iterator[Record]:
    """Newton's method for the p-Laplacian, p = 3, cube_mixed, P = 4: iterations of each step to 1e-2"""
    for dtype in ("float64", "float32"):
        for how in ("made anew", "kept", "refreshed"):
            yield from _newton(given, dtype, how)


def _residual(du: Any) -> Any:
    k = (1e-4 + sum(own * own for own in du)) ** 0.5
    return [k * own for own in du]


def _tangent(du: Any, p: Any, q: Any, r: Any) -> Any:
    """About a function whose gradient is (p, q, r)."""
    w = (p, q, r)
    k = (1e-4 + sum(own * own for own in w)) ** 0.5
    along = sum(a * b for a, b in zip(w, du, strict=True)) / k
    return [k * du[i] + along * w[i] for i in range(3)]


def _newton(given: argparse.Namespace, dtype: str, how: str) -> Iterator[Record]:
    mesh, P = read_mesh(ROOT / "meshes" / "cube_mixed.msh"), 2 if given.small else 4
    space = hp.Space(mesh, P, dtype=dtype, backend=given.backend)
    c0 = hp.C0Space(space)
    bc, one = hp.BoundaryConditions(c0, dirichlet=0.0), space.evaluate(lambda *x: 1 + 0 * x[0])
    fields = {name: space.field("phys", [1 * own for own in one.arrays]) for name in ("p", "q", "r")}
    F = hp.GlobalOperator(hp.WeakForm(space, _residual, trial="grad", test="grad"), c0, bc)
    J = hp.GlobalOperator(hp.WeakForm(space, _tangent, trial="grad", test="grad", fields=fields), c0, bc)
    load = np.asarray(c0.gather(hp.IProductWRTBase(space)(one))) * bc.free
    u, info = hp.solve(hp.GlobalOperator(hp.Laplacian(space), c0, bc), load, tol=1e-4, bar=False)
    M: Any = None
    seconds, tol = 0.0, 1e-8 if dtype == "float64" else 1e-4
    for step in range(12):
        r = (F @ u - load) * bc.free
        if np.linalg.norm(r) < tol * np.linalg.norm(load):
            break
        gradient = hp.PhysDeriv(space)(hp.BwdTrans(space)(c0.scatter(u)))
        for name, number in (("p", 0), ("q", 1), ("r", 2)):
            for own, values in zip(fields[name].arrays, gradient.arrays, strict=True):
                own[...] = values[number : number + 1]
        began = perf_counter()
        if M is None or how == "made anew":
            M = Multigrid(J)
        elif how == "refreshed":
            M.refresh(J)
        seconds += perf_counter() - began
        found = {"row": f"{dtype}, {how}", "column": f"step {step + 1}", "set-up": seconds}
        try:
            d, info = hp.solve(J, r, M, definite=True, tol=1e-2, bar=False)
        except hp.HpfemError as error:
            yield found | {"count": None, "failed": str(error)}
            break
        yield found | {"count": info.iterations}
        length = 1.0
        while length > 1e-3 and abs(((F @ (u - length * d) - load) * bc.free) @ d) > 0.8 * abs(r @ d):
            length *= 0.5
        u = u - length * d


@table
def bratu(given: argparse.Namespace) -> Iterator[Record]:
    """Bratu's tangent at the solution, lam = 2, P = 4, solved by `hp.solve`."""
    for shape in SHAPES:
        n, d = (8, 2) if shape in ("quad", "tri") else (4, 3)
        space = hp.Space(box(shape, (n,) * d), 2 if given.small else 4, backend=given.backend)
        c0, t = hp.C0Space(space), 0.0
        for _ in range(200):
            t = 2 * np.cosh(t / 4)
        u = space.evaluate(lambda *x, t=t: 2 * np.log(np.cosh(t / 4) / np.cosh(t * (x[0] - 0.5) / 2)))
        form = hp.WeakForm(space, lambda u, du, w: (-2 * np.exp(w) * u, du), fields={"w": u})
        A = hp.GlobalOperator(form, c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0, "xmax": 0.0}))
        b = A.vectors.from_host(np.random.default_rng(0).standard_normal(c0.size) * A.bc.free)
        for known in (None, True):
            column = "definite=True" if known else "unasked"
            try:
                _, info = hp.solve(A, b, "multigrid", definite=known, tol=1e-8, bar=False)
                found: Record = {"count": info.iterations, "method": info.method}
            except hp.HpfemError as error:
                found = {"count": None, "failed": str(error)}
            yield {"row": shape, "column": column} | found


# Unknowns of a component in the table of steps, about.
SIZES = {"cpu": 40_000, "numpy": 4_000, "cuda": 1_000_000}


@table
def steps(given: argparse.Namespace) -> Iterator[Record]:
    """Steps of the smoother: iterations, and milliseconds of them, least of three; curved cells."""
    for shape in SHAPES:
        flat = shape in ("quad", "tri")
        for order in (2,) if given.small else (2, 4) if flat else (2, 4, 7):
            for coupled in (False, True)[: 1 if order == 7 or flat else 2]:
                unknowns = (SIZES[given.backend] if not given.small else 500) / (3 if coupled else 1)
                n = max(2, round(unknowns ** (1 / (2 if flat else 3)) / order))
                mesh = box(shape, (n,) * (2 if flat else 3)).elevated(2)
                mesh = mesh.transformed(lambda x: x + 0.02 * np.sin(2 * np.pi * x[:, ::-1]))
                space = hp.Space(mesh, order, backend=given.backend)
                c0 = hp.C0Space(space)
                bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0})
                form: Any = hp.Helmholtz(space, 1.0)
                if coupled:
                    form = hp.WeakForm(space, elastic(3), trial="grad", test="grad", components=3)
                A = hp.GlobalOperator(form, c0, bc)
                free = np.tile(bc.free, A.components)
                b = A.vectors.from_host(np.random.default_rng(0).standard_normal(A.shape[0]) * free)
                for degree in (1, 2, 3):
                    M = Multigrid(A, degree)
                    found = [iterations(A, b, M) for _ in range(4)]
                    seconds = min(own["seconds"] for own in found[1:])
                    row = f"{shape}, P={order}" + ", elastic" * coupled
                    record = found[0] | {"row": row, "column": f"{degree}", "size": A.shape[0], "seconds": seconds}
                    yield record | {"text": f"{record['count']}, {1e3 * seconds:.3g} ms"}


def _cell(one: Record) -> str:
    """Iterations and the method, "x" where no solution came, or the text of a case."""
    count, method = one["count"], one.get("method", "cg")
    return str(one.get("text", "x" if count is None else f"{count}" + f" ({method})" * (method != "cg")))


def measure(given: argparse.Namespace, content: Content) -> Iterator[None]:
    """Solve the cases of the tables; a line for each goes to the error stream."""
    content |= {"small": given.small, "backend": given.backend}
    for cases, keep in TABLES.asked(given, content):
        for record in cases(given):
            keep(record)
            yield


def main(arguments: Sequence[str] | None = None) -> Content:
    """Solve, print and write."""
    return run(__doc__, measure, partial(by_tables, cell=_cell), arguments, ("numpy", "cpu", "cuda"), TABLES.add_option)


if __name__ == "__main__":
    main()
