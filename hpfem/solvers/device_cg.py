"""The iterations of conjugate gradients on a GPU, bound by its memory instead of by the host.

An iteration is the kernels of the product and two or three more (`cuda.vectors.conjugate`), and none of it waits
for the host. That reads the scalars of an earlier iteration while the next ones run; when the device meets the
tolerance or breaks down it changes nothing any more, so what is found is that iteration's.

Where neither product nor preconditioner allocate, some iterations are captured once as a CUDA graph and started from
then on with one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..assembly.indexed_product import IndexedProduct
from ..backends.cuda.runtime.scratch import captured
from ..backends.cuda.vectors.conjugate import RING, ConjugateVectors, Reading, Stop
from ..errors import ArgumentError, DeviceError
from ..support.log import report_once
from .breakdown import bad_operator, bad_preconditioner, no_convergence, not_finite
from .preconditioners import Jacobi

# Iterations before a graph is made, which takes as long as some of them; and those in it.
DIRECT, GRAPH_STEPS = 8, 4


def iterate_on_device(
    A: Callable[..., Any],
    product: IndexedProduct | None,
    M: Any,
    x: Any,
    r: Any,
    scale: float,
    tol: float,
    most: int,
    name: str,
    advance: Callable[..., None],
    residuals: list[float],
) -> None:
    """Iterate on CuPy arrays.

    Parameters
    ----------
    A : callable
        `product.into`, or x -> A x where there is no product.
    product : IndexedProduct or None
        One that is all of A.
    M : callable or None
        r -> M^-1 r.
    x, r : cupy.ndarray, [n]
        First guess and its residual; overwritten by the last ones.
    scale, tol : float
        Norm of the right-hand side, and the ratio to it at which to stop.
    most : int
        Iterations, with those before.
    name : str
        For messages.
    advance : callable
        Steps of a progress bar.
    residuals : list of float
        Those of iterations before these, over `scale`; added to.

    Raises
    ------
    SolverError
        As `cg`.
    ArgumentError
        For a preconditioner that writes into its argument.
    """
    jacobi = getattr(M, "function", M)
    inverse = jacobi.inverse if isinstance(jacobi, Jacobi) else None
    blocks = None if product is None else product.blocks
    vectors = ConjugateVectors(x, r, scale, tol, most - len(residuals), inverse, blocks)
    launcher = _Launcher(A, product, None if inverse is not None else M, vectors)
    first = len(residuals)
    try:
        pending = launcher.start(name)
        while True:
            launcher.launch()
            latest = vectors.read()
            seen = pending.wait()
            before, done = len(residuals) - first, int(seen["finished"])
            residuals += [float(seen["residual"][i % RING]) for i in range(before, done + 1)]
            if done >= before:
                advance(done + 1 - max(before, 1), description=f"{name} {residuals[-1]:.1e}")
            stopped = Stop(int(seen["stopped"]))
            if stopped == Stop.CONVERGED:
                return
            if stopped != Stop.RUNNING:
                rho, curvature = (float(seen[key][done % RING]) for key in ("rho", "curvature"))
                if stopped == Stop.NOT_FINITE and not np.isfinite(rho) and np.isfinite(residuals[-1]):
                    stopped = Stop.PRECONDITIONER
                done += first
                raise {
                    Stop.PRECONDITIONER: bad_preconditioner(name, rho, done),
                    Stop.OPERATOR: bad_operator(name, curvature, done),
                    Stop.NOT_FINITE: not_finite(name, done),
                    Stop.EXHAUSTED: no_convergence(name, residuals[-1], tol, done),
                }[stopped]
            pending = latest
    finally:
        vectors.finish()  # the graph and the host's memory go away
        launcher.give_back()


class _Launcher:
    """Launches iterations, kernel by kernel or as a graph."""

    def __init__(
        self,
        A: Callable[..., Any],
        product: IndexedProduct | None,
        M: Callable[[Any], Any] | None,
        vectors: ConjugateVectors,
    ) -> None:
        self.A, self.product, self.M, self.vectors = A, product, M, vectors
        self.capturable = product is not None and M is None
        self.launched = 0
        self.graph: Any = None
        self.used: list[Any] = []

    def start(self, name: str) -> Reading:
        """Make the first direction."""
        z, r = None, self.vectors.r
        if self.M is not None:
            before = r.copy()
            z = self.M(r)
            if not bool((r == before).all()):  # before the iterations, as it waits for the GPU
                raise ArgumentError(f"{name}: the preconditioner must not write into its argument")
        self.vectors.update_direction(z)
        return self.vectors.read()

    def launch(self) -> None:
        """Launch one iteration, or those of the graph, on the current stream."""
        if self.capturable and self.graph is None and self.launched >= DIRECT:
            self.graph = self._captured()
        if self.graph is not None:
            self.graph.launch()
            return
        self._step()
        self.launched += 1

    def _step(self) -> None:
        v = self.vectors
        if self.product is not None:
            self.A(v.p, v.q, v.partials, v.stop)
        else:
            v.measure_product(self.A(v.p))
        v.update_residual()
        v.update_direction(None if self.M is None else self.M(v.r))

    def _captured(self) -> Any:
        """Some iterations as a graph, written down on a stream of its own; nothing runs there."""
        import cupy

        stream, graph = cupy.cuda.Stream(non_blocking=True), None
        self.stream = stream
        with stream, captured(stream) as self.used:
            try:
                stream.begin_capture()
                for _ in range(GRAPH_STEPS):
                    self._step()
            except DeviceError as error:  # as where cuBLAS is not found
                report_once(f"cg/{error}", f"conjugate gradients run without a CUDA graph: {error}")
                self.capturable = False
            finally:
                if stream.is_capturing():
                    graph = stream.end_capture()
        return graph if self.capturable else None

    def give_back(self) -> None:
        """Give back what the graph has used, when nothing is under way any more."""
        self.graph = None
        for pool in self.used:
            pool.release(self.stream)
