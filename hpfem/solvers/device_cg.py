"""The iterations of conjugate gradients on a device, bound by its memory instead of by the host.

An iteration is the kernels of the product and two or three more (`DeviceIteration`), and does not wait for the host.
The host reads the scalars of an earlier iteration while the next ones run. When the device meets the tolerance or
breaks down, later iterations change nothing, so that the result is that iteration's. If an application of the
preconditioner takes longer than to ask the device, the host asks before it where residuals are near the tolerance, and
makes none in vain.

If neither product nor preconditioner allocates, some iterations are captured once as a graph and started from then on
with one call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from ..backends.iteration import ConjugateVectors, DeviceIteration, Stop
from ..errors import ArgumentError
from ..memory import every
from .breakdown import bad_operator, bad_preconditioner, no_convergence, not_finite
from .krylov import Iteration
from .preconditioners import Jacobi

# Iterations before a graph is made, which takes as long as some of them; and those in it.
DIRECT, GRAPH_STEPS = 8, 4
# Times the tolerance that a residual is expected to fall to when the host asks whether it meets it.
NEAR = 10.0


def iterate_on_device(
    device: DeviceIteration, A: Callable[..., Any], blocks: int | None, M: Any, x: Any, r: Any, run: Iteration
) -> None:
    """Iterate on arrays of a device; x, r [n]."""
    jacobi = getattr(M, "function", M)
    inverse = jacobi.inverse if isinstance(jacobi, Jacobi) else None
    residuals, name = run.residuals, run.name
    vectors = device.conjugate_vectors(x, r, run.scale, run.tol, run.most - len(residuals), inverse, blocks)
    ask_first = getattr(jacobi, "costly", False)
    launcher = _Launcher(device, A, blocks is not None, None if inverse is not None else M, vectors, ask_first, name)
    first = len(residuals)
    try:
        launcher.next_direction()
        pending = vectors.read()
        while True:
            ask = ask_first and _near(residuals[first:], run.tol)
            latest = None if ask else launcher.launch()
            seen = pending.wait()
            before, done = len(residuals) - first, int(seen["finished"])
            ring = len(seen["residual"])
            residuals += [float(seen["residual"][i % ring]) for i in range(before, done + 1)]
            if done >= before:
                run.advance(done + 1 - max(before, 1), description=f"{name} {residuals[-1]:.1e}")
            stopped = Stop(int(seen["stopped"]))
            if stopped == Stop.CONVERGED:
                return
            if stopped != Stop.RUNNING:
                rho, curvature = (float(seen[key][done % ring]) for key in ("rho", "curvature"))
                if stopped == Stop.NOT_FINITE and not np.isfinite(rho) and np.isfinite(residuals[-1]):
                    stopped = Stop.PRECONDITIONER
                done += first
                raise {
                    Stop.PRECONDITIONER: bad_preconditioner(name, rho, done),
                    Stop.OPERATOR: bad_operator(name, curvature, done),
                    Stop.NOT_FINITE: not_finite(name, done),
                    Stop.EXHAUSTED: no_convergence(name, residuals[-1], run.tol, done),
                }[stopped]
            pending = launcher.launch() if latest is None else latest
    finally:
        vectors.finish()  # the graph and the host's memory are freed
        launcher.release()


def _near(residuals: list[float], tol: float) -> bool:
    """Whether the residual after these may meet the tolerance, if it falls as they do."""
    return len(residuals) < 2 or residuals[-1] ** 2 <= NEAR * tol * residuals[-2]


class _Launcher:
    """Launches iterations, kernel by kernel or as a graph."""

    def __init__(
        self,
        device: DeviceIteration,
        A: Callable[..., Any],
        leaves_sums: bool,
        M: Any,
        vectors: ConjugateVectors,
        ask_first: bool,
        name: str,
    ) -> None:
        self.device, self.A, self.M, self.vectors, self.ask_first, self.name = device, A, M, vectors, ask_first, name
        self.leaves_sums, self.capturable = leaves_sums, leaves_sums and M is None
        self.launched = self.directions = 0
        self.graph: Any = None
        # Applications of M that take r as it is made.
        self.held, self.run = ExitStack(), None
        if hasattr(getattr(M, "function", M), "cycles"):
            self.run = self.held.enter_context(M.function.cycles(vectors.r))
            vectors.copy_residual(self.run.source, self.run.taken)

    def launch(self) -> Any:
        """Launch one iteration, or those of the graph, on the current stream, and begin to read its scalars."""
        if self.capturable and self.graph is None and self.launched >= DIRECT:
            self.graph = self.device.capture(self._step, GRAPH_STEPS, "conjugate gradients")
            self.capturable = self.graph is not None
        if self.graph is not None:
            self.graph.launch()
        else:
            self._step()
            self.launched += 1
        return self.vectors.read()

    def _step(self) -> None:
        v = self.vectors
        if self.ask_first:
            self._new_direction()
        if self.leaves_sums:
            self.A(v.p, v.q, v.partials, v.stop)
        else:
            v.measure_product(self.A(v.p))
        v.update_residual()
        self.next_direction()

    def next_direction(self) -> None:
        """Make the next direction; or, if the host may ask first, tell whether one is needed."""
        if self.ask_first:
            self.vectors.stop_if_done()
        else:
            self._new_direction()

    def _new_direction(self) -> None:
        z, r = None, self.vectors.r
        if self.run is not None:
            self.vectors.update_direction(*self.M.start(self.run))
            return
        if self.M is not None:
            before = r.copy() if self.directions == 0 else None
            z = self.M(r)
            if before is not None and not every(r == before):
                raise ArgumentError(f"{self.name}: the preconditioner must not write into its argument")
        self.vectors.update_direction(z)
        self.directions += 1

    def release(self) -> None:
        """Free the graph's memory and M, after all work is done."""
        self.held.close()
        if self.graph is not None:
            self.graph.release()
