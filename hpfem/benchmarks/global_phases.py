"""The timed phases of a global operator: an application, an iteration of conjugate gradients, the matrix product.

An application is Q^T A Q: the coefficients of every element are read from the unknowns, the operator is applied, and
what elements share is summed. An iteration is one of `hpfem.solvers.cg`: the time of START + STEPS iterations minus
that of START, divided by STEPS; none stops early. Throughput is unknowns per second, those with Dirichlet values
counted, as CEED does. With n unknowns, L element-local coefficients (cells * modes) and s bytes per number, compulsory
bytes are

    application      2 n s      the vectors, in and out
                     + G        geometric factors, as the operator alone has them (`hpfem.forms.cost`)
                     + 4 L      the index and sign of every element-local coefficient
    iteration        an application, with which p.q comes
                     + 8 n s    r -= alpha q reads r, q and writes r; x += alpha p, p = r + beta p reads x, p, r and
                                writes x, p. With Jacobi 10 n s: its diagonal is read with r, both times
    CSR product      2 n s + 4 n + (s + 4) nnz

so per unknown in float64 16 + G / n + 4 L / n bytes of an application and 80 + G / n + 4 L / n of an iteration without
preconditioner. On many hexes L / n is (1 + 1 / P)^3, and G / n of bp3 56 (1 + 2 / P)^3 where cells are curved, with
seven factors at each point, 56 / P^3 where they are straight; of bp1 a seventh of that. A GPU's iterations move these
bytes, and also the element-local coefficients if gather, operator and scatter are not one kernel. A host's iterations
are separate NumPy statements, which move the vectors about three times as often.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from hpfem.shapes.cached import cached_property

from ..assembly import GlobalOperator
from ..errors import HpfemWarning, SolverError
from ..memory import HOST, Device
from ..solvers import cg
from ..solvers.breakdown import OutOfIterations
from ..solvers.preconditioners import make_preconditioner
from ..space import Space
from ..support.machine import available_memory
from .problems import Application, BuiltOperator

# Iterations of a measured run: those of the start, in which a device captures its graph, and those that count.
START, STEPS = 12, 20
# Vectors of n unknowns that an iteration moves beside its application, and its operations per unknown.
VECTORS = {"none": 8, "jacobi": 10}
OPERATIONS = {"none": 10, "jacobi": 13}
# Default for the largest number of entries of element matrices that are assembled: this takes about 20 s.
MATRIX_ENTRIES = 1e8
# Bytes of assembling for each entry, measured on boxes of hexes, tets and tris, P = 1 .. 4.
MATRIX_BYTES = 80


def matrix_refusal(what: str, space: Space, device: Device, most: float) -> str | None:
    """Say why an operator is not assembled."""
    entries = sum(block.n_elements * block.n_modes**2 for block in space.blocks)
    if device.name != HOST.name:
        return f"{what} is measured on the host alone, the operator computes on a GPU"
    if entries > most:
        return f"{what}: matrices of more than {most:.0e} element entries are not made"
    if MATRIX_BYTES * entries > available_memory():
        return f"{what}: there is not enough memory for assembling the larger matrices"
    return None


class MeasuredOperator(BuiltOperator):
    """Phases of a global operator of one block: application, iteration of conjugate gradients, CSR product."""

    reference = "SciPy's product"

    def __init__(self, A: GlobalOperator, preconditioner: str = "none", matrix_entries: float = MATRIX_ENTRIES) -> None:
        self.A, self.preconditioner, self.matrix_entries = A, preconditioner, matrix_entries
        [self.choice] = A.operator.choices
        self.refused = []
        self._given = np.random.default_rng(0).standard_normal(A.shape[0]).astype(A.dtype)

    @property
    def nbytes(self) -> float:
        """Compulsory bytes of an application."""
        operator, itemsize = self.A.operator, self.A.dtype.itemsize
        local = operator.space.n_dofs
        factors = operator.nbytes - 2 * local * itemsize
        return float(2 * self.A.shape[0] * itemsize + factors + 4 * local)

    @property
    def flops(self) -> float:
        """Nominal operations of an application: those of the operator, and sums."""
        operator = self.A.operator
        return float(self.A.components * (operator.flops + operator.space.n_dofs))

    @cached_property
    def matrix(self) -> csr_array | str:
        """The assembled matrix, or the reason why there is none."""
        space = self.A.operator.space
        refused = matrix_refusal("SciPy's CSR product", space, self.A.device, self.matrix_entries)
        return csr_array(self.A.assemble(), dtype=self.A.dtype) if refused is None else refused

    def error(self) -> float | None:
        """Compare with the product with the matrix, if there is one; see `BuiltOperator.error`."""
        if isinstance(self.matrix, str):
            return None
        wanted = self.matrix @ self._given
        return float(np.abs(self.A.apply(self._given) - wanted).max() / np.abs(wanted).max())

    def on(self, n_elements: int) -> Application:
        """The application; see `BuiltOperator.on`."""
        call = partial(self.A.apply, self.A.vectors.from_host(self._given), self.A.device)
        return Application(call, self.nbytes, self.flops, self.A.shape[0], "application")

    def phases(self, n_elements: int) -> Iterator[Application]:
        """Application, iteration and CSR product; see `BuiltOperator.phases`."""
        yield self.on(n_elements)
        for phase, make in (("iteration", self.iteration), ("csr", self.csr)):
            made = make()
            if isinstance(made, Application):
                yield made
            else:
                self.refused = [*self.refused, {"phase": phase, "reason": made}]

    def csr(self) -> Application | str:
        """Make the product with the matrix ready to be timed, or say why it cannot be; see `iteration`."""
        if isinstance(self.matrix, str):
            return self.matrix
        n, itemsize = self.A.shape[0], self.A.dtype.itemsize
        nbytes = 2 * n * itemsize + 4 * n + self.matrix.nnz * (itemsize + 4)
        return Application(partial(self.matrix.dot, self._given), nbytes, 2.0 * self.matrix.nnz, n, "csr")

    def iteration(self) -> Application | str:
        """Make an iteration ready to be timed, or say why not: few unknowns are solved for in fewer iterations."""
        A, n = self.A, self.A.shape[0]
        try:
            M, _ = make_preconditioner(self.preconditioner, A)
            free = True if A.bc is None else np.tile(A.bc.free, A.components)
            rhs = A.vectors.from_host(self._given * free)
            done = iterate(A, rhs, M, START + STEPS)
        except SolverError as error:
            return f"no iterations of conjugate gradients: {error}"
        if done < START + STEPS:
            return f"no iterations of conjugate gradients: fewer than {START + STEPS} solve problems of few unknowns"
        nbytes = self.nbytes + VECTORS[self.preconditioner] * n * A.dtype.itemsize
        flops = self.flops + OPERATIONS[self.preconditioner] * n
        whole, start = (partial(iterate, A, rhs, M, count) for count in (START + STEPS, START))
        return Application(whole, nbytes, flops, n, "iteration", start, STEPS)


def iterate(A: GlobalOperator, rhs: Any, M: Any, count: int) -> int:
    """Iterate a number of times; -> the number of iterations done, fewer where the system is solved."""
    try:
        with warnings.catch_warnings():
            # The warning that rounding allows no smaller residual is expected here.
            warnings.simplefilter("ignore", HpfemWarning)
            return cg(A, rhs, M, tol=1e-300, max_iterations=count, bar=False)[1].iterations
    except OutOfIterations:
        return count
