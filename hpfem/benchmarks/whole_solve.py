"""A whole solve of -div(grad u) + u = f, u = 0 on the boundary, with multigrid: the time for a user, by phase.

It begins with a new mesh without cached results, and ends with the solution on the host; a `Problem` records its own
times. The phases are

    all in             from the mesh to the solution
    space              cells in order, numbers of edges and faces, geometry
    operator           numbering, boundary conditions, geometric factors, kernels
    multigrid          levels, energies and smoothers
    vertices           the matrix of the vertices, and pyamg's set-up for it
    right-hand side    integrals of f
    iterations         conjugate gradients, the solution brought to the host
    first              all in, for the first solve, which compiles kernels
    pyamg              SciPy's conjugate gradients with pyamg's smoothed aggregation on the assembled matrix: set-up and
                       iterations, without assembling, on the host alone

and throughput is unknowns over their seconds. No bytes are counted, because the compulsory bytes of a solve are
unknown. Work of a device in the background may count for the phase that waits for it.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from scipy.sparse.linalg import cg as scipy_cg

from hpfem.shapes.arrays import Array

from ..backends.timer import SLOW_SECONDS, Timing
from ..errors import NotSuitable, SolverError
from ..solvers import Problem, SolveInfo
from ..solvers.norms import load
from ..space import Space
from .global_phases import matrix_refusal
from .problems import Application, BuiltOperator

# Tolerances of residuals, by precision.
TOLERANCE = {"float64": 1e-8, "float32": 1e-5}
# Default for the largest number of entries of element matrices that are assembled for a peer: about 20 s.
PEER_ENTRIES = 2e7
# Iterations of a peer at most, and whole solves that are timed at most where one takes longer than a second; a peer's
# are timed once then.
PEER_ITERATIONS, SLOW_REPEATS = 2000, 3


def source(*x: Any) -> Any:
    """The right-hand side of the problem."""
    return math.prod(np.sin(1.5 * c + 0.3 * i) for i, c in enumerate(x))


class MeasuredSolve(BuiltOperator):
    """Phases of a whole solve of a `GlobalBlock`; the first solve is made here, `repeats` more are timed."""

    # Coefficients [n] and report of the last solution.
    vector: Array
    info: SolveInfo

    def __init__(self, block: Any) -> None:
        self._block, self._settings = block, block.settings
        self._no_matrix: str | None = None
        self.refused = []
        try:
            self._first = self.solve()
        except SolverError as error:
            raise NotSuitable(str(error)) from error

    def _problem(self, space: Space, preconditioner: str) -> Problem:
        how: dict[str, Any] = {"tol": TOLERANCE[space.dtype.name], "precision": self._settings.precision}
        return Problem(space, lam=1.0, dirichlet=0.0, preconditioner=preconditioner, bar=False, **how)

    def solve(self) -> dict[str, float]:
        """Solve once, from a mesh to the solution."""
        gc.collect()  # memory of the previous solve is held until then
        mesh = self._block.fresh_mesh()
        began = perf_counter()
        space = Space(mesh, **self._block.options)
        after = perf_counter()
        problem = self._problem(space, self._block.problem.preconditioner)
        solution = problem.solve(source)
        ended = perf_counter()
        [self.choice], self.vector, self.info = problem.operator.operator.choices, solution.vector, solution.info
        entries = self._settings.matrix_entries
        self._no_matrix = matrix_refusal("SciPy with pyamg", space, problem.operator.device, entries)
        seconds = problem.phases
        vertices = getattr(problem.preconditioner, "phases", {}).get("vertices", 0.0)
        return {
            "all in": ended - began,
            "space": after - began,
            "operator": sum(seconds.values()) - seconds["preconditioner"],
            "multigrid": seconds["preconditioner"] - vertices,
            "vertices": vertices,
            "right-hand side": self.info.set_up_time,
            "iterations": self.info.time - self.info.set_up_time,
        }

    def _application(
        self, phase: str, seconds: Sequence[float], call: Callable[[], object], **info: Any
    ) -> Application:
        return Application(call, None, None, len(self.vector), phase, timing=Timing.of(seconds, 1), **info)

    def on(self, n_elements: int) -> Application:
        """The whole solve; see `BuiltOperator.on`."""
        return next(self.phases(n_elements))

    def phases(self, n_elements: int) -> Iterator[Application]:
        """All in, its parts, the first time, and the peer; see `BuiltOperator.phases`."""
        slow = self._first["all in"] > SLOW_SECONDS
        repeats = self._settings.repeats
        timed = [self.solve() for _ in range(min(repeats, SLOW_REPEATS) if slow else repeats)]
        went = {"iterations": self.info.iterations, "residual": self.info.residual}
        for phase in self._first:
            yield self._application(phase, [seconds[phase] for seconds in timed], self.solve, **went)
        yield self._application("first", [self._first["all in"]], self.solve, **went)
        peer = self._no_matrix or self.peer()
        if isinstance(peer, Application):
            yield peer
        else:
            self.refused = [*self.refused, {"phase": "pyamg", "reason": peer}]

    def peer(self) -> Application | str:
        """Solve the same with the assembled matrix, by SciPy and pyamg."""
        from pyamg import smoothed_aggregation_solver

        problem = self._problem(Space(self._block.fresh_mesh(), **self._block.options), "none")
        A, free = problem.operator, problem.conditions.free
        if not free.any():
            return "SciPy with pyamg: there are no unknowns but on the boundary"
        matrix = csr_matrix(csr_array(A.assemble(), dtype=A.dtype)[free][:, free])
        rhs = A.vectors.to_host(load(problem.c0, source))[free].astype(A.dtype)
        tol = TOLERANCE[A.dtype.name]

        def solved() -> tuple[float, int, NDArray[Any]]:
            began, count = perf_counter(), 0

            def counted(x: Any) -> None:
                nonlocal count
                count += 1

            M = smoothed_aggregation_solver(matrix).aspreconditioner()
            x, _ = scipy_cg(matrix, rhs, rtol=tol, maxiter=PEER_ITERATIONS, M=M, callback=counted)
            return perf_counter() - began, count, x

        seconds, iterations, x = solved()
        residual = float(np.linalg.norm(rhs - matrix @ x) / np.linalg.norm(rhs))
        if not residual < 10 * tol:
            return f"SciPy with pyamg: the residual is {residual:.1e} after {iterations} iterations"
        more = self._settings.repeats - 1 if seconds < SLOW_SECONDS else 0
        times = [seconds, *(solved()[0] for _ in range(more))]
        return self._application("pyamg", times, solved, iterations=iterations, residual=residual)
