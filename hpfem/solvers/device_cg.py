"""The iterations of conjugate gradients on a device, bound by its memory instead of by the host.

An iteration is the kernels of the product and two or three more (`DeviceIteration`), and does not wait for the host.
The host reads the scalars of an earlier iteration while the next ones run. When the device meets the tolerance or
breaks down, later iterations change nothing, so that the result is that iteration's. If an application of the
preconditioner takes longer than to ask the device, the host asks before it where residuals are near the tolerance, and
makes none in vain.

If neither product nor preconditioner allocates, iterations are captured as graphs and started from then on with one
call. Graphs are kept with their vectors, for the next solve with the same operator and preconditioner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from threading import get_ident
from typing import Any
from weakref import finalize

import numpy as np

from ..backends.iteration import ConjugateVectors, Stop
from ..backends.vectors import VectorSpace
from ..errors import ArgumentError
from ..memory import every
from .breakdown import bad_operator, bad_preconditioner, no_convergence, not_finite
from .krylov import Iteration
from .preconditioners import Jacobi

# Iterations before a graph is made in a first solve, which takes as long as some of them; and those in it.
DIRECT, GRAPH_STEPS = 8, 4
# Times the tolerance that a residual is expected to fall to when the host asks whether it meets it; and the factor by
# which one is expected to fall that has none before it.
NEAR, FIRST = 10.0, 1e-3
# Unknowns, in the mean of the processes, up to which graphs and vectors are kept: with more, launches take no time.
KEPT = 20_000_000


def iterate_on_device(
    vectors: VectorSpace, A: Any, product: Any, M: Any, x: Any, r: Any, run: Iteration, keep: bool = False
) -> None:
    """Iterate on arrays of a device; x, r [n], and the product that leaves sums, if A has one. May `keep` what the next
    solve takes again, on all processes.
    """
    residuals, name, first = run.residuals, run.name, len(run.residuals)
    launcher = _Launcher(vectors, A, product, M, x, r, run, keep)
    try:
        pending = launcher.start()
        while True:
            latest = launcher.launch(residuals[first:]) if launcher.ahead else None
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
            pending = launcher.launch(residuals[first:]) if latest is None else latest
    finally:
        launcher.end()


def _release(graphs: list[Any]) -> None:
    while graphs:
        graphs.pop().release()


class _Kept:
    """Vectors at fixed addresses, and graphs of launches that use them; one solve takes them after the other."""

    def __init__(self, facts: Sequence[Any], vectors: ConjugateVectors) -> None:
        self.facts, self.vectors, self.graphs, self.failed = facts, vectors, list[Any](), False
        finalize(self, _release, self.graphs)

    def fits(self, facts: Sequence[Any]) -> bool:
        """Whether it was made for the same objects and, in tuples, numbers."""
        pairs = zip(facts, self.facts, strict=False)
        return len(facts) == len(self.facts) and all(a is b or (isinstance(a, tuple) and a == b) for a, b in pairs)


class _Launcher:
    """Launches iterations, kernel by kernel or as graphs, and begins to read their scalars.

    An iteration makes a residual and the next direction; or the residual alone, if the host asks before it applies M.
    """

    def __init__(
        self, vectors: VectorSpace, A: Any, product: Any, M: Any, x: Any, r: Any, run: Iteration, keep: bool
    ) -> None:
        assert vectors.iteration is not None
        self.device, self.A, self.product, self.x, self.run = vectors.iteration, A, product, x, run
        function, self.held = getattr(M, "function", M), ExitStack()
        inverse = function.inverse if isinstance(function, Jacobi) else None
        self.M: Any = M if inverse is None else None
        self.costly = getattr(function, "costly", False)
        # Applications of M that take r as it is made.
        self.cycles: Any = self.held.enter_context(function.cycles(r)) if hasattr(function, "cycles") else None
        # What lives no longer than that for which something is kept.
        self.holder = product if self.cycles is None else self.cycles
        self.capturable = product is not None and (self.M is None or getattr(self.cycles, "capturable", False))
        self.most, self.begun, self.directions = run.most - len(run.residuals), 0, 0
        self.asked = again = False
        self.keep = keep and self.capturable
        own, kept, facts = (x, r), None, list[Any]()
        if self.keep:
            facts = [*product.facts, inverse, (get_ident(),)]
            kept = vars(self.holder).pop("kept", None)  # nobody else has it now
            again = vectors.comm.all(kept is not None and kept.fits(facts))
            own = vectors.xp.empty_like(x), vectors.xp.empty_like(r)
        if kept is None or not again:
            _release([] if kept is None else kept.graphs)
            kept = _Kept(facts, self.device.conjugate_vectors(*own, inverse, product and product.blocks))
            if self.cycles is not None:
                kept.vectors.copy_residual(self.cycles.source, self.cycles.taken)
        self.kept, self.vectors = kept, kept.vectors
        if self.keep:
            self.vectors.x[...], self.vectors.r[...] = x, r

    def start(self) -> Any:
        """Make the first direction."""
        self.vectors.begin(self.run.scale, self.run.tol, self.most)
        return self._directed(self.costly and self.run.guessed)

    @property
    def ahead(self) -> bool:
        """Whether the next iteration can be launched before the scalars of the last one are known."""
        return not self.asked and self.begun < self.most

    def launch(self, residuals: list[float]) -> Any:
        """Launch an iteration, or those of a graph, on the current stream; the known residuals tell whether to ask."""
        if self.asked:
            self._launch(1)
        if self.cycles is None and (self.kept.graphs or self.begun >= DIRECT):
            self._capture(GRAPH_STEPS, self._step)
            if self.kept.graphs:
                self.kept.graphs[0].launch()
                self.begun += GRAPH_STEPS
                return self.vectors.read()
        self._launch(0)
        self.begun += 1
        return self._directed(self.costly and self._near(residuals))

    def _near(self, residuals: list[float]) -> bool:
        """Whether the next residual may meet the tolerance, if it falls as the known ones."""
        if not residuals:
            return self.run.guessed
        factor = residuals[-1] / residuals[-2] if residuals[1:] else FIRST
        return residuals[-1] * factor ** (self.begun + 1 - len(residuals)) <= NEAR * self.run.tol

    def _directed(self, ask: bool) -> Any:
        """Make the next direction, or tell whether one is needed."""
        self.asked = ask
        if ask:
            self.vectors.stop_if_done()
        else:
            self._launch(1)
        return self.vectors.read()

    def _launch(self, part: int) -> None:
        """The first or the second part of an iteration; what both call has run before it is captured."""
        if self.cycles is not None and self.keep and self.begun:
            self._capture(1, self._product, partial(self._direction, True))
        if self.cycles is None or not self.kept.graphs:
            (self._product, self._direction)[part]()
            return
        with self.cycles.lock:
            self.kept.graphs[part].launch()

    def _capture(self, count: int, *steps: Callable[[], None]) -> None:
        """Capture graphs, if there are none, all or none."""
        kept, lock = self.kept, getattr(self.cycles, "lock", nullcontext())
        if kept.graphs or kept.failed or not self.capturable:
            return
        for step in steps:
            with lock:
                graph = self.device.capture(step, count, "conjugate gradients")
            if graph is None:
                kept.failed = True
                _release(kept.graphs)
                return
            kept.graphs.append(graph)

    def _step(self) -> None:
        self._product()
        self._direction()

    def _product(self) -> None:
        v = self.vectors
        if self.product is not None:
            self.A.start(self.product.into, v.p, v.q, v.partials, v.stop)
        else:
            v.measure_product(self.A(v.p))
        v.update_residual()

    def _direction(self, captured: bool = False) -> None:
        z, r = None, self.vectors.r
        if self.cycles is not None:
            self.vectors.update_direction(*self.M.start(self.cycles, captured))
            return
        if self.M is not None:
            before = r.copy() if self.directions == 0 else None
            z = self.M(r)
            if before is not None and not every(r == before):
                raise ArgumentError(f"{self.run.name}: the preconditioner must not write into its argument")
        self.vectors.update_direction(z)
        self.directions += 1

    def end(self) -> None:
        """Wait for all that was launched, and keep what is kept, or free it."""
        if self.keep:
            self.x[...] = self.vectors.x
        self.vectors.finish()
        self.held.close()
        if self.keep:
            self.holder.kept = self.kept
        else:
            _release(self.kept.graphs)
