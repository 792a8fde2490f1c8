"""Scaling over processes: conjugate gradients on a box by the protocol of DOLFINx's benchmark.

Laplacian with u = 0 on the boundary, random right-hand side, no preconditioner, a fixed number of iterations; the rate
is unknowns * iterations / seconds of the slowest process. Weak: a number of unknowns for each process. Strong: a number
of unknowns for all processes together. Alone: each process solves a problem of its own at the same time, which is a
bound of weak scaling on shared memory. With a preconditioner a whole solution is measured instead, to a tolerance, and
its rate is unknowns / seconds.

The model is a sum: the time of one process for its unknowns, bytes over the rate of a link, a time for each message,
and a sum over processes as a tree of messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..backends import choose_backend
from ..backends.sharing import Sharing
from ..errors import ArgumentError
from ..memory import OutOfMemory
from ..mesh import Mesh
from ..operators import Laplacian
from ..solvers import cg
from ..solvers.multigrid.irregular import entity_numbers, irregular
from ..solvers.preconditioners import make_preconditioner
from ..space import Space
from ..space.arguments import Quadrature
from ..support.communicator import ALONE, Communicator
from .bake_off import box_polynomial
from .global_phases import iterate
from .problems import new_mesh
from .results import rounded

Record = Mapping[str, Any]
MIXED = ("hex", "prism", "pyramid", "tet")
# From DOLFINx's benchmark: unknowns for each GPU by order, and iterations.
UNKNOWNS, ITERATIONS, WARM_UP = {3: 300e6, 6: 500e6}, 100, 12
SCALINGS = ("weak", "strong", "alone")
# Seconds of a message beside its bytes, and bytes a second between GPUs of different nodes (400 Gbit/s).
MESSAGE, LINK = 12e-6, 50e9
_PING = 1 << 23
# Arrays of local numbers and of unknowns: a product's argument and result; b, x, r, p, q and a result of a product.
_LOCAL, _VECTORS = 2, 6
# Of a whole solution, and how many of which the median is taken.
TOLERANCE, SOLUTIONS = 1e-8, 5
# Largest number of neighbours of a box among boxes.
_NEIGHBOURS = 26


def unknowns_per_box(shape: str, order: int) -> float:
    """Count the unknowns that a small box adds to a large one."""
    shapes = MIXED if shape == "mixed" else (shape,)
    return sum(float(box_polynomial(name, order)[1, 1, 1]) for name in shapes) / len(shapes)


def factors(n: int) -> tuple[int, int, int]:
    """Factorise the number of processes, such that their boxes form one that is nearly a cube."""
    triples = [
        (a, b, n // a // b) for a in range(1, n + 1) if n % a == 0 for b in range(1, n // a + 1) if n // a % b == 0
    ]
    return min(triples, key=lambda abc: (max(abc) - min(abc), abc[::-1]))


def box_counts(shape: str, order: int, unknowns: float, processes: int = 1) -> tuple[int, ...]:
    """Small boxes in each direction of a box of some unknowns."""
    side = max(1, round((unknowns / unknowns_per_box(shape, order)) ** (1 / 3)))
    counts = [side * n for n in factors(processes)]
    return (max(counts[0], len(MIXED)) if shape == "mixed" else counts[0], *counts[1:])


def expected_seconds(alone: float, unknowns: float, processes: int, link: float = LINK, size: int = 8) -> float:
    """Seconds of an iteration by the model of the module."""
    if processes == 1:
        return alone
    sides = [min(2, n - 1) for n in factors(processes)]
    neighbours = min(_NEIGHBOURS, math.prod(side + 1 for side in sides) - 1)
    nbytes = size * sum(sides) * unknowns ** (2 / 3)
    return alone + nbytes / link + MESSAGE * (neighbours + math.ceil(math.log2(processes)))


@dataclass
class ScalingRun:
    """One problem on all processes; collective. `unknowns` are of each process, or with scaling "strong" of all."""

    shape: str
    order: int
    scaling: str
    unknowns: float
    comm: Communicator
    backend: str = "auto"
    geometry: str = "multilinear"
    iterations: int = ITERATIONS
    quadrature: Quadrature = None
    preconditioner: str = "none"
    phases: dict[str, float] = field(default_factory=dict)  # seconds of the slowest process

    def __post_init__(self) -> None:
        if self.scaling not in SCALINGS:
            raise ArgumentError(f"unknown scaling {self.scaling!r}; valid: {', '.join(SCALINGS)}")
        self._mine = ALONE if self.scaling == "alone" else self.comm

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Time a phase between all processes."""
        self.comm.sum(0.0)
        start = perf_counter()
        yield
        self.phases[name] = self.comm.max(perf_counter() - start)

    def mesh(self) -> Mesh:
        """Make the mesh; each process gets its part."""
        processes = self.comm.size if self.scaling == "weak" else 1
        counts = box_counts(self.shape, self.order, self.unknowns, processes)
        # Cells of one shape however many processes there are: iterations of whole solutions depend on it.
        upper = [n / min(counts) for n in counts]
        shapes = MIXED if self.shape == "mixed" else self.shape
        return new_mesh(shapes, counts, self.geometry, upper=upper, comm=self._mine)

    def measure(self) -> dict[str, Any]:
        """Set it up and iterate."""
        with self._phase("mesh"):
            mesh = self.mesh()
        with self._phase("space"):
            space = Space(mesh, self.order, quadrature=self.quadrature, backend=self.backend)
        with self._phase("numbering"):
            c0 = C0Space(space)
            bc = BoundaryConditions(c0, dirichlet=0.0)
        device = choose_backend(space.backend).device()
        try:
            return self._solved(space, c0, bc)
        except MemoryError as error:
            needs = needed_bytes(space, c0.size)
            sorting, needed = needs.pop("sorting"), sum(needs.values())
            said = ", ".join(f"{what} {nbytes / 1e9:.3g} GB" for what, nbytes in needs.items() if nbytes)
            raise OutOfMemory(
                f"{self.shape} P={self.order}: {c0.size} unknowns take about {needed / 1e9:.3g} GB on {device.name},"
                f" a preconditioner apart ({said}; {sorting / 1e9:.3g} GB more than the tables while they are sorted):"
                f" {error}; give fewer to --dofs",
                int(needed),
            ) from error

    def _solved(self, space: Space, c0: C0Space, bc: BoundaryConditions) -> dict[str, Any]:
        """The rest of `measure`, on the device."""
        with self._phase("first product"):
            # Tables are sorted while there are no factors.
            bc.restriction(choose_backend(space.backend).device())
            A = GlobalOperator(Laplacian(space), c0, bc)
            vectors = A.vectors
            b = irregular(A, entity_numbers(c0.numbering, vectors.xp))
            b *= ~bc.constrained_on(vectors)
            vectors.norm(A.apply(b, A.device))
        if self.preconditioner == "none":
            for name, count in (("warm-up", WARM_UP), ("iterations", self.iterations)):
                with self._phase(name):
                    done = iterate(A, b, None, count)
                if done < count:
                    raise ArgumentError(f"{count} iterations solve it; use fewer iterations, or more unknowns")
            iterations, seconds = self.iterations, self.phases["iterations"] / self.iterations
        else:
            with self._phase("preconditioner"):
                M, _ = make_preconditioner(self.preconditioner, A)
            taken = []
            for name in ("warm-up", *["solution"] * SOLUTIONS):
                with self._phase(name):
                    iterations = cg(A, b, M, tol=TOLERANCE, bar=False)[1].iterations
                taken.append(self.phases[name])
            seconds = self.phases["solution"] = median(taken[1:])
        n = c0.whole_size * (self.comm.size if self.scaling == "alone" else 1)
        sharing = c0.numbering.sharing
        places = {} if sharing is None else sharing.places
        nbytes = space.dtype.itemsize * sum(map(len, places.values()))
        return rounded({
            **{name: getattr(self, name) for name in ("shape", "geometry", "order", "scaling", "preconditioner")},
            "quadrature": str(self.quadrature),
            "ranks": self.comm.size,
            "wanted": float(self.unknowns),
            "n_dofs": n,
            "iterations": iterations,
            "seconds": seconds,
            "dofs_per_second": n / seconds,
            "backend": A.operator.backend.name,
            "blocks": [repr(block) for block in space.blocks],
            "strategies": [choice.kernel.strategy for choice in A.operator.choices],
            "sent_bytes": self.comm.max(nbytes),
            "messages": self.comm.max(len(places)),
            "link_bytes_per_second": self._link(vectors, space.dtype),
            "phases": rounded(self.phases),
        })  # fmt: skip

    def _link(self, vectors: Any, dtype: Any) -> float:
        """Bytes a second that pairs of processes send each other at the same time; 0 where there is one."""
        other = self.comm.rank ^ 1
        if self._mine.size == 1:
            return 0.0
        sent = vectors.xp.zeros(_PING // dtype.itemsize, dtype)
        places = {other: slice(None)} if other < self.comm.size else {}
        best, messages = math.inf, vectors.messages(Sharing(self.comm, 0, {}))
        for _ in range(3):
            self.comm.sum(0.0)
            start = perf_counter()
            messages.started(lambda: sent, places)(lambda _, received: float(received[0]))  # waits for the device
            best = min(best, perf_counter() - start)
        return _PING / self.comm.max(best)


def needed_bytes(space: Space, size: int) -> dict[str, float]:
    """Estimate the memory of conjugate gradients where a space computes, and that of sorting before it is taken."""
    backend, number = choose_backend(space.backend), space.dtype.itemsize
    needs = backend.product_needs(space.n_dofs, size, 1, space.dtype)[backend.device().name]
    kept = _LOCAL * space.n_dofs * number
    geometries = [block.geometry for block in space.blocks]
    stored = (g.n_elements * g.n_factors("metric") * g.n_points("metric") for g in geometries)
    return {
        "geometry factors": float(number * sum(stored)),
        "index tables": needs["index tables"],
        "local numbers": float(kept),
        "vectors": float(_VECTORS * size * number),
        "sorting": max(0.0, needs.get("scratch", 0.0) - kept),
    }


def merged(records: Sequence[Record], more: Sequence[Record]) -> list[dict[str, Any]]:
    """Merge records; the later one counts for the same problem and number of processes."""
    kept = {(*_problem(record), record["ranks"]): dict(record) for record in (*records, *more)}
    return [kept[key] for key in sorted(kept)]


def _problem(record: Record) -> tuple[Any, ...]:
    how = str(record.get("quadrature")), record.get("preconditioner", "none")
    first = tuple(record[name] for name in ("shape", "order", "geometry", "backend"))
    return (*first, *how, record["scaling"], record["wanted"])


def efficiencies(records: Sequence[Record]) -> list[float]:
    """Rate per process relative to that of the same problem on the fewest processes; weak: beside "alone", if any."""
    rates = []
    for record in records:
        beside = {**record, "scaling": "alone" if record["scaling"] == "weak" else None}
        first = [r for r in records if _problem(r) == _problem(beside) and r["ranks"] == record["ranks"]]
        first += sorted((r for r in records if _problem(r) == _problem(record)), key=lambda r: int(r["ranks"]))
        rates.append(record["dofs_per_second"] / record["ranks"] / (first[0]["dofs_per_second"] / first[0]["ranks"]))
    return rates
