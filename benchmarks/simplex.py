"""Two rules of triangles and tets, the collapsed one and the symmetric one, "simplex": rates, solves, errors.

    python -m benchmarks.simplex -o OUT.json [TABLE ...] [--backend cpu|cuda] [--orders 1 2 ...] [--small]
    python -m benchmarks.simplex --show OUT.json

Times are of both rules in turns, and on CPUs of the process on one core, so that ratios hold on a machine that others
use. A gain is how many times as fast the simplex rule is: the median of the turns, and in the file its quartiles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import hpfem as hp
from benchmarks.script import Content, Tables, by_tables, run
from hpfem.backends import choose_backend
from hpfem.backends.timer import Timer
from hpfem.benchmarks import thread_limit
from hpfem.benchmarks.tiled import TiledBlock
from hpfem.benchmarks.turns import gain, time_in_turns
from hpfem.mesh import Mesh, box, read_mesh
from hpfem.shapes import SHAPES
from hpfem.solvers.multigrid import Multigrid

ROOT = Path(__file__).resolve().parent.parent
RULES = "collapsed", "simplex"
KINDS = {"affine": "affine", "deformed": "curved"}
DOFS = {"cpu": 2e5, "cuda": 2e7}
# Boxes across meshes for solves of about as many unknowns for each order, by backend: this over the order.
ACROSS = {"cpu": {"tri": 240, "tet": 28}, "cuda": {"tri": 2000, "tet": 96}}
FILES = {
    "tri": ("curved_tri", "disc", "square_mixed", "curved_mixed_2d"),
    "tet": ("cube_mixed", "curved_tet", "ball", "pipe_mixed"),
}
Record = dict[str, Any]
TABLES = Tables()
table = TABLES.add


class ProcessTimer(Timer):
    """A clock for what the process computes, which leaves out what others do meanwhile."""

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Time calls in a row."""
        start = time.process_time()
        for _ in range(calls):
            call()
        return time.process_time() - start


def in_turns(calls: Mapping[str, Callable[[], object]], backend: str, small: bool) -> Record:
    """Seconds by rule, and what the simplex rule gains."""
    timer = ProcessTimer() if backend == "cpu" else choose_backend(backend).timer()
    times = time_in_turns(calls, timer, 3 if small else 40, 0.0003 if small else 0.002)
    gained = gain(times["simplex"], times["collapsed"])
    return {"seconds": {rule: times[rule].median for rule in RULES}, "gain": gained.median, "quartiles": gained[::2]}


@table
def rates(given: argparse.Namespace, orders: Sequence[int]) -> Iterator[Record]:
    """Helmholtz operator, float64: rate of the collapsed rule → of the simplex rule in GDoF/s, and the gain."""
    for (kind, column), shape, order in product(KINDS.items(), ("tri", "tet"), orders):
        n, chosen, calls = 1, {}, {}
        for rule in RULES:
            block = TiledBlock("bk3", shape, order, kind, given.backend, quadrature=rule)
            [n] = block.sizes([2e3 if given.small else DOFS[given.backend]])
            built = block.build("auto", "auto", n)
            error = built.error()
            if not error < 1e-10:
                raise SystemExit(f"{shape}, P={order}, {kind}, {rule}: wrong by {error}")
            chosen[rule], calls[rule] = str(built.choice.config), built.on(n).call
        record = in_turns(calls, given.backend, given.small)
        rate = {rule: n * block.problem.n_modes * 1e-9 / record["seconds"][rule] for rule in RULES}
        yield {"row": f"{shape}, P={order}", "column": column, "chosen": chosen, "rate": rate, **record}


def reaction(u: Any, du: Any) -> Any:
    """A nonlinear form."""
    return np.exp(u), du


def elastic(u: Any, du: Any) -> Any:
    """A form that couples components."""
    every = range(len(u))
    trace = sum(du[i][i] for i in every)
    return [[du[i][j] + du[j][i] + (trace if i == j else 0.0) for j in every] for i in every]


def varying(*x: Any) -> Any:
    """A coefficient."""
    return 2 + np.sin(x[0] + x[1])


FORMS: dict[str, Callable[[hp.Space], Any]] = {
    "mass": hp.Mass,
    "Helmholtz": partial(hp.Helmholtz, lam=1.0),
    "varying": partial(hp.Helmholtz, lam=varying, diffusivity=varying),
    "advection": lambda space: hp.AdvectionDiffusionReaction(space, velocity=[1.0] * space.dim, diffusivity=varying),
    "nonlinear": partial(hp.WeakForm, pointwise=reaction),
    "elastic": lambda space: hp.WeakForm(space, elastic, components=space.dim, test="grad"),
    "values": hp.BwdTrans,
    "derivatives": hp.PhysDeriv,
    "projection": hp.FwdTrans,
}


@table
def forms(given: argparse.Namespace, orders: Sequence[int]) -> Iterator[Record]:
    """Gain by operator, float64 and float32: blocks that fit in cache, on a GPU that do not."""
    cases = product(("float64", "float32"), KINDS.items(), ("tri", "tet"), orders)
    for dtype, (kind, column), shape, order in cases:
        n = max(1, (8 if given.small else ACROSS[given.backend][shape]) // (order + 1))
        mesh = bent(shape, kind, n).transformed(lambda x: x @ (np.eye(x.shape[1]) + 0.2 * np.tri(x.shape[1])))
        spaces = [hp.Space(mesh, order, quadrature=rule, dtype=dtype, backend=given.backend) for rule in RULES]
        for name, make in FORMS.items():
            calls, chosen = {}, {}
            for rule, space in zip(RULES, spaces, strict=True):
                A = make(space)
                u = space.zeros(A.input_state, space.dim if name == "elastic" else 1)
                for array in u.arrays:
                    array[...] = np.random.default_rng(0).random(array.shape)
                calls[rule] = partial(A, u, out=A(u))
                chosen[rule] = [str(choice.config) for choice in getattr(A, "choices", ())]
            row = f"{shape}, P={order}, {column}, {dtype}"
            yield {"row": row, "column": name, "chosen": chosen, **in_turns(calls, given.backend, given.small)}


def bent(shape: str, kind: str, n: int) -> Mesh:
    """A box of cells of a kind."""
    mesh = box(shape, (n,) * SHAPES[shape].dim)
    return mesh if kind == "affine" else mesh.elevated(2).transformed(lambda x: x + 0.03 * np.sin(3 * x[:, ::-1]))


@table
def solves(given: argparse.Namespace, orders: Sequence[int]) -> Iterator[Record]:
    """Poisson problems: gain of product, cycle, set-up of multigrid, diagonal; iterations of each rule."""
    for (kind, column), shape, order in product(KINDS.items(), ("tri", "tet"), orders):
        mesh = bent(shape, kind, max(1, (8 if given.small else ACROSS[given.backend][shape]) // (order + 1)))
        made: dict[str, Any] = {}
        iterations: dict[str, int] = {}
        for rule in RULES:
            c0 = hp.C0Space(hp.Space(mesh, order, backend=given.backend, quadrature=rule))
            A = hp.GlobalOperator(hp.Laplacian(c0.space), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
            b = A.vectors.from_host(np.random.default_rng(0).random(A.shape[0]) * A.bc.free)
            made[rule] = A, b, Multigrid(A)
            iterations[rule] = hp.cg(A, b, made[rule][2], tol=1e-8, bar=False)[1].iterations
        calls: dict[str, Callable[..., Any]] = {
            "product": lambda A, b, M: A.apply(b, A.device),
            "cycle": lambda A, b, M: M(b),
            "set-up": lambda A, b, M: Multigrid(A),
            "diagonal": lambda A, b, M: A.diagonal(),
        }
        for name, call in calls.items():
            own = {rule: partial(call, *made[rule]) for rule in RULES}
            record = in_turns(own, given.backend, given.small)
            yield {"row": f"{shape}, P={order}, {column}", "column": name, **record}
        yield {"row": f"{shape}, P={order}, {column}", "column": "iterations", "iterations": iterations}


def exact(*x: Any) -> Any:
    """The solution."""
    return np.sin(2 * x[0] + 0.3) * np.cos(1.5 * x[1]) * (np.exp(0.7 * x[2]) if len(x) > 2 else 1.0)


def source(*x: Any) -> Any:
    """What -div grad u + u makes of it."""
    return (1 + 4 + 2.25 - 0.49 * (len(x) > 2)) * exact(*x)


@table
def errors(given: argparse.Namespace, orders: Sequence[int]) -> Iterator[Record]:
    """-∇²u + u = f with a known solution: relative error in L2 of the collapsed rule → of the simplex rule."""
    affine = {shape: bent(shape, "affine", 4 if shape == "tri" else 2) for shape in FILES}
    for shape, names in FILES.items():
        for name, order in product((f"box of {shape}s", *(() if given.small else names)), orders):
            mesh = affine[shape] if name.startswith("box") else read_mesh(ROOT / "meshes" / f"{name}.msh")
            found = {}
            for rule in RULES:
                space = hp.Space(mesh, order, quadrature={shape: rule}, backend=given.backend)
                u = hp.solve_helmholtz(space, lam=1.0, f=source, dirichlet=exact, tol=1e-13)
                found[rule] = hp.l2_error(u, exact, relative=True)
            yield {"row": name, "column": f"P={order}", "error": found}


def _cell(record: Record) -> str:
    if "iterations" in record:
        return " → ".join(str(record["iterations"][rule]) for rule in RULES)
    if "error" in record:
        return " → ".join(f"{record['error'][rule]:.3e}" for rule in RULES)
    rate = " → ".join(f"{record['rate'][rule]:.3g}" for rule in RULES) + ": " if "rate" in record else ""
    return f"{rate}{record['gain']:.2f}"


def measure(given: argparse.Namespace, content: Content) -> Iterator[None]:
    """Measure the cases of the tables; a line for each goes to the error stream."""
    content |= {"backend": given.backend, "small": given.small}
    with thread_limit(1):
        for cases, keep in TABLES.asked(given, content):
            for record in cases(given, given.orders or ([2] if given.small else range(1, 11))):
                keep(record)
                yield


def main(arguments: Sequence[str] | None = None) -> Content:
    """Measure, print and write."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        TABLES.add_option(parser)
        parser.add_argument("--orders", type=int, nargs="*", metavar="P", help="these orders alone (1 to 10)")

    return run(__doc__, measure, partial(by_tables, cell=_cell), arguments, ("cpu", "cuda"), add_options=add_options)


if __name__ == "__main__":
    main()
