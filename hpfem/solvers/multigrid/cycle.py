"""V-cycles through orders P, P/2, .., 1 on one mesh: coarse functions are the modes of lower order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle, pairwise
from threading import Lock, get_ident
from time import perf_counter
from typing import Any
from weakref import finalize, proxy

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array, eye_array, kron

from hpfem.shapes.arguments import instance, integer, name_of, shown
from hpfem.shapes.overlap import stacked

from ...assembly import GlobalOperator
from ...assembly.entries import between, element_matrices
from ...backends.cellwise import FactorisedMatrix
from ...backends.vectors import HOST_VECTORS, VectorSpace, sparse_on_host
from ...errors import ArgumentError, MeshError, NotSuitable
from ...forms.linear import ignores_rotations
from ...memory import FEW, as_numpy, xp_for
from ...operators import Operator
from ...space import Space
from ...space.arguments import checked_dtype
from ...space.block import Block
from ...space.transforms import Evaluated, resampled
from .algebraic import AlgebraicMultigrid, Hierarchy, VertexMatrix, made_on
from .bilinear import continuation
from .cell_map import CellMap
from .chebyshev import WEIGHTS, chebyshev, first_step, largest_eigenvalue
from .energies import Energies, cell_energies, refreshed
from .irregular import Numbers, entity_numbers, irregular
from .shared_vertices import SharedVertices
from .smoother import LowEnergySmoother

# What the vertices interpolate exactly.
NEAR_NULL = ("auto", "constants", "rigid")
# Beyond this eigenvalue the functions of neighbours differ too much.
_LARGEST = 50.0
# One from which on another step of the smoother takes fewer iterations and no more time.
_LARGE = 3.4
# By how much it may grow in kept groups of functions.
_WORSE = 1.25
# Smallest eigenvalue of the coarsest matrix, with a unit diagonal, below which float32 takes more iterations.
_ILL = 1e-6
# Deviations of Jacobians from their cell's mean that are neglected inside the cycle: of all cells, and of any.
_STRAIGHT = 0.04, 0.15
# One thread at a time launches cycles on a device: launches of others would end a capture.
_LAUNCHES = Lock()


class Level:
    """The operator of one order; `kept` are numbers on the next finer level, or None: of its unknowns, or of what these
    are `continued` to.
    """

    def __init__(self, A: GlobalOperator, kept: Any) -> None:
        self.A, self.kept, self.n = A, kept, A.components
        # P and P^T, if functions are not those of the finer level.
        self.continued: tuple[Any, Any] | None = None
        self.product: Any = None  # of order 1 there is a matrix
        if max(A.c0.space.orders.values()) > 1:  # first what is waited for first
            A.operator.backend.begin_cellwise(A.c0.low_energy_matrix, A.c0.space.dtype)
            self.product = A.product_on(A.device)
        else:
            for choice in A.operator.choices:
                choice.kernel.begin()
        # r, x -> r - A x at the next coarser level's unknowns (`Product.restricted`); r of this process alone.
        self.residual_at_kept: Callable[[Any, Any], Any] | None = None
        # Unknowns without Dirichlet values, [components, size].
        self.free = ~_fixed(A)
        # One per coupled component, or per component where these have Dirichlet values in different places.
        self.smoothers: list[LowEnergySmoother] = []
        self.degree, self.numbers = 0, list[Numbers]()  # of entities, for `irregular`
        self.bounds: Any = None  # on the largest eigenvalue
        self.noise: Any = None  # where its estimate starts; of few unknowns kept

    def keep(self, lower: Level) -> None:
        """Take the unknowns that the next coarser level has."""
        kept = lower.kept
        columns = self.A.vectors.xp.arange(self.A.c0.size)[kept] if isinstance(kept, slice) else kept
        self.residual_at_kept = self.product.restricted(columns)

    def continue_by(self, P: csr_array, more: NDArray[np.int64], dtype: DTypeLike) -> None:
        """Continue functions by P to unknowns of the finer level: those that are kept, and more."""
        vectors = self.A.vectors
        kept = np.arange(P.shape[1])[self.kept] if isinstance(self.kept, slice) else as_numpy(self.kept)
        self.kept = vectors.from_host(np.append(kept, more))
        self.free = self.free & (np.bincount(P.indices, minlength=P.shape[1]) > 0)
        self.continued = vectors.sparse(P.astype(dtype)), vectors.sparse(csr_array(P.T.astype(dtype)))

    def by_component(self, which: int, rows: Any) -> Any:
        """Continue vectors, or restrict them; [components, n]."""
        if self.continued is None:
            return rows
        found = [self.continued[which] @ row for row in rows]
        return (found[0] if self.n == 1 else self.A.vectors.xp.concatenate(found)).reshape(self.n, -1)

    def smooth(self, r: Any, onto: Any = None) -> Any:
        """Apply B times `first_step`, component by component, to the sum of the processes' vectors; see `chebyshev`."""
        targets = [None] * self.n if onto is None else onto.reshape(self.n, -1)
        rows = zip(cycle(self.smoothers), r.reshape(self.n, -1), targets)
        found = [smoother(row, out) for smoother, row, out in rows]
        if onto is not None:
            return onto
        return found[0] if self.n == 1 else self.A.vectors.xp.concatenate(found)

    def make_smoothers(self, energies: list[list[Energies]], finer: Level | None) -> None:
        """Make the smoothers; classes of cells are those of a finer level."""
        c0, backend = self.A.c0, self.A.operator.backend
        self.smoothers = [
            LowEnergySmoother(c0, energies[c % len(energies)], free, backend, finer.smoothers[c] if finer else None)
            for c, free in enumerate(self.free[: _together(self.A)])
        ]

    def start_smoothers(self, energies: list[list[Energies]], degrees: tuple[int, int]) -> None:
        """Take means of cells for the first time: smoothers are of the first degree or, where the largest eigenvalue is
        large, of the second; groups are eliminated unless functions of neighbours differ too much then.
        """
        self._degrees = degrees
        self.refresh(energies)
        if self.bounds.value > _LARGEST and any(own.has > 1 for own in self.smoothers):
            for own in self.smoothers:
                own.eliminate_no_more()
            self.bounds, self.degree = None, 0
            self.refresh(energies)

    def refresh(self, energies: list[list[Energies]]) -> None:
        """Take means of the same cells; groups are kept unless that raises the largest eigenvalue."""
        vectors, noise = self.A.vectors, irregular(self.A, self.numbers) if self.noise is None else self.noise
        self.noise = noise if len(noise) < FEW else None
        for anew in (False, True):
            for c, own in enumerate(self.smoothers):
                own.refresh(energies[c % len(energies)], self.A.values_on_boundaries(c % self.A.coupled), anew)
            # Functions of equal energy, whatever the coefficients: so that few steps find what is largest.
            sizes = [self.smoothers[c % len(self.smoothers)].residuals for c in range(self.n)]
            start, B = noise * vectors.xp.concatenate(sizes), lambda r: self.smooth(vectors.owned(r))
            self.bounds = largest_eigenvalue(self.product, B, vectors, start, self.bounds)
            largest = self.bounds.value
            if not any(own.kept for own in self.smoothers):
                self.first = largest  # with groups as they are
            if largest <= _WORSE * self.first:
                break
        self.degree = self.degree or self._degrees[largest > _LARGE]
        for own in self.smoothers:
            own.scale(first_step(largest, self.degree))


class Multigrid:
    """r -> M^-1 r: a V-cycle of p-multigrid, symmetric positive definite; for `cg`, `solve`, SciPy's or other solvers.

    Parameters
    ----------
    A : GlobalOperator
        Of a symmetric form in the basis "modified" or "lagrange", whose numbers are copied. If the form is not elliptic
        in every cell, as with a negative reaction, its elliptic part takes its place (`GlobalOperator.elliptic_part`).
    degree : int, optional
        Steps of the smoother: 1, 2 or 3. By default those that take least time by a table that was measured, by device,
        shapes, order, whether components are coupled and whether cells are stretched (`Backend.smoother_steps`), and
        one more on levels where BA has a large eigenvalue.
    dtype : dtype
        Type inside the cycle; float64 is used if numbers leave the range of float32 or energies differ too much.
    near_null : str
        What the vertices interpolate exactly: "constants" of each component, "rigid" motions, or "auto", which takes
        rigid motions for a form that is zero for them.

    Attributes
    ----------
    levels : list of Level
        Finest first; the last is of order 1, which `vertices` solves.
    vertices : AlgebraicMultigrid, SharedVertices or None
    rigid : bool
        Whether the near-null space has rigid motions.
    phases : {str: float}
        Seconds of each part of the set-up.
    shape : tuple of int
        Rows and columns.
    costly : bool
        True: to ask a device whether another cycle is needed takes less time than a cycle.

    Raises
    ------
    NotSuitable
        If the form is not symmetric, or has no elliptic part.
    SolverError
        If the operator is singular on a part of the mesh.
    ArgumentError
        For an invalid option.

    Examples
    --------
    Newton's method: the linearisation `A` reads a field that each step changes.

    >>> M = Multigrid(A)  # doctest: +SKIP
    >>> step, info = cg(A, r, M)  # doctest: +SKIP
    >>> M.refresh(A)  # doctest: +SKIP
    """

    name = "multigrid"
    costly = True
    # From the unknowns of order 1 to those of the operator that their matrix is made of, if these are others.
    _P: csr_array | None
    _vertex_matrix: VertexMatrix | None

    def __init__(
        self,
        A: GlobalOperator,
        degree: int | None = None,
        dtype: DTypeLike = np.float32,
        near_null: str = "auto",
    ) -> None:
        instance(A, GlobalOperator, "the operator of a preconditioner")
        self._near = name_of(near_null, NEAR_NULL, "near-null space")
        if near_null == "rigid" and _together(A) % A.c0.space.dim:
            raise ArgumentError(f"rigid motions have {A.c0.space.dim} components, {A!r} couples {A.coupled}")
        self._by_table, self.degree = degree is None, 0
        if degree is not None:
            self.degree = integer(degree, 1, "the degree of multigrid's smoother", max(WEIGHTS))
        if not A.symmetric:
            raise NotSuitable("multigrid is for symmetric forms")
        self.A, self.vectors, self.phases = A, A.vectors, dict[str, float]()
        self.shape: tuple[int, int] = A.shape
        self.dtype, self._of_part = checked_dtype(dtype), False
        self._made_elliptic(self._make_in)

    def __repr__(self) -> str:
        return f"Multigrid({self.A!r}, degree={self.degree}, {self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Multigrid, (self.A, None if self._by_table else self.degree, self.dtype, self._near)

    def _made_elliptic(self, make: Callable[[], None]) -> None:
        """Make it, of the form's elliptic part if the form is not elliptic."""
        try:
            make()
        except NotSuitable:
            if self._of_part:
                raise
            self._of_part = True
            self._make_in()

    def _make_in(self) -> None:
        """Make it in its type, or in float64."""
        try:
            self._make(self.dtype)
        except (MeshError, ArgumentError):
            if self.dtype == np.float64:
                raise
            self._make(np.dtype(np.float64))

    def refresh(self, A: GlobalOperator | None = None) -> None:
        """Take the coefficients that an operator has now; the set-up is not repeated.

        Functions of low energy and the interpolation of the vertices stay those of the coefficients before, as do the
        matrices of groups of functions, but for their scale, while couplings do not change much: after large changes a
        new `Multigrid` takes fewer iterations. With forms on boundaries it is made anew.

        Parameters
        ----------
        A : GlobalOperator, optional
            With the same form, continuous space and conditions as the operator that it was made from; by default that
            one, with its present numbers.

        Raises
        ------
        ArgumentError
            If A has another form, space or other conditions.
        NotSuitable, SolverError
            As when it is made; it is not to be used then.
        """
        A = self.A if A is None else instance(A, GlobalOperator, "the operator of a preconditioner")
        old, same = self.A, A.c0 is self.A.c0 and A.components == self.A.components
        same = same and _form_of(A) == _form_of(old) and len(A.boundary_terms) == len(old.boundary_terms)
        if not old.c0.space.comm.all(same and np.array_equal(_fixed(A), _fixed(old))):
            raise ArgumentError(
                f"multigrid was made from {old!r} and cannot take the coefficients of {A!r}: give an operator of the"
                " same form, C0Space and conditions, or make another Multigrid"
            )
        self.A = A
        self._made_elliptic(self._make_in if _on_boundaries(A) else self._take)

    def _take(self) -> None:
        """Take the coefficients of `A`, on all levels; those of a level are from the points of the finer one."""
        self._pool, source = self.vectors.pool(), self.A.elliptic_part() if self._of_part else self.A
        *finer, last = (level.A for level in self.levels)
        for own in (*finer, self._wide, last):
            if own is not source:
                with self.vectors.comm.together():
                    _take_numbers(own.operator, source.operator)
            source = own
        with self.vectors.comm.together():
            matrices = _matrices(last.operator, self.vectors)
        energies = refreshed(self._energies, last.operator, matrices, self.vectors.xp)
        for level in self.levels[:-1]:
            level.refresh(energies)
        if self._make_vertices(self.vertices, matrices if self._wide is last else None):
            self._make(np.dtype(np.float64))

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = perf_counter()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + perf_counter() - began

    def _make(self, dtype: np.dtype[Any]) -> None:
        A, self.dtype = self.A.elliptic_part() if self._of_part else self.A, dtype
        vectors, space = self.vectors, A.c0.space
        free = ~_fixed(A).ravel()
        self._free = None if free.all() else vectors.from_host(free)
        # What a cycle takes: each unknown on one process.
        self._taken = self._free if vectors.comm.size == 1 else vectors.owned(vectors.from_host(free))
        self._pool = vectors.pool()
        with self._phase("levels"):
            self._change = None
            with vectors.comm.together():
                same = space.at(None, "modified", space.quadrature, dtype)
                top = straightened(same, vectors.xp)
            if space.basis != "modified":
                first, self._change = _in_modes(A, top)
            else:
                kept = dtype == space.dtype and vectors.comm.all(top is same)
                first = A.at(A.c0, slice(None), A.matrix) if kept else _at(A, top)[0]
            self.levels = [Level(first, None)]
            rule = None if space.quadrature == "collocated" else space.quadrature
            while max((orders := self.levels[-1].A.c0.space.orders).values()) > 1:
                below = {name: max(1, order // 2) for name, order in orders.items()}
                with vectors.comm.together():
                    # Of order 1 in float64: rounding must not hide what has little energy.
                    lower = top.at(below, None, rule, None if max(below.values()) > 1 else np.float64)
                self.levels.append(Level(*_at(self.levels[-1].A, lower)))
        with self._phase("energies"):
            last, coupled = self.levels[-1], range(A.operator.form.components)
            self._energies = [cell_energies(last.A.operator, c, vectors.xp) for c in coupled]
            if self._by_table:
                self.degree = smoother_steps(self.A, self._energies)
            self._continue()
        with self._phase("vertices"):
            ill = self._make_vertices()
        if ill:
            self._make(np.dtype(np.float64))
            return
        with self._phase("smoothers"):
            numbers = entity_numbers(last.A.c0.numbering, vectors.xp) if len(self.levels) > 1 else []
            degrees = self.degree, min(self.degree + self._by_table, max(WEIGHTS))
            for finer, level in zip([None, *self.levels], self.levels[:-1]):
                level.make_smoothers(self._energies, finer)
            # Here kernels of products, which have been begun with the levels, are waited for.
            for level, coarser in pairwise(self.levels):
                level.keep(coarser)
                level.numbers = numbers
                level.start_smoothers(self._energies, degrees)
        # Other coefficients have other means; those of many cells take much memory.
        self._energies = [[replace(own, means=None) for own in each] for each in self._energies]
        # The last step of a cycle ends with a sum onto x, in which its exchange is beside the rest.
        finest, self.agrees = self.levels[0], False
        for own in finest.smoothers[: finest.n == 1 and vectors.comm.size > 1]:
            self.agrees = own.agree(finest.degree == 1 and self._change is None)

    def _continue(self) -> None:
        """Continue the vertices' functions, and take the operator in float64 for their matrix."""
        *finer, last = self.levels
        space, vectors = last.A.c0.space, self.vectors
        self._wide, self._P, self._vertex_matrix = last.A, None, None
        if finer:
            c0, free = finer[-1].A.c0, finer[-1].free.all(axis=0)
            more, P = continuation(c0, last.A.c0, self._energies, free)
            if vectors.comm.any(len(more) > 0):
                last.continue_by(P, more, self.dtype)
                with vectors.comm.together():
                    fine = c0.space.at(None, None, space.quadrature, np.float64)
                self._wide = _at(finer[-1].A, fine)[0]
                kept = as_numpy(last.kept)
                entries = P.tocoo()
                self._P = csr_array((entries.data, (kept[entries.row], entries.col)), shape=(c0.size, P.shape[1]))
        elif self._wide.dtype != np.float64:  # the only level
            self._wide, _ = _at(self._wide, space.at(None, None, space.quadrature, np.float64))

    def _make_vertices(self, before: Any = None, matrices: Any = None) -> bool:
        """Solve for the vertices, with the interpolation of before, and by matrices of cells if these are known; ->
        whether float32 is not enough.
        """
        last, vectors, A = self.levels[-1], self.vectors, self._wide
        n, c0 = _together(A), last.A.c0
        single = A if A.components == n else A.of_parts(A.operator, A.c0, A.bc, A.boundary_terms, n)
        found = self._near == "rigid"
        if self._near == "auto":
            # A linearisation of an energy that ignores rotations does so only near the state of no stress.
            stored = any(isinstance(field, Evaluated) for field in A.operator.fields.values())
            found = ignores_rotations(A.operator.form.trace, stored and not self._of_part)
        self.rigid = vectors.comm.all(found)
        free = last.free[:n]
        # By blocks, vertices with free unknowns have all, and those with given values are taken out.
        chosen = np.broadcast_to(free.any(axis=0), free.shape) if self.rigid else free
        vertices, component = np.nonzero(chosen.T)
        inside, self._inside = component * c0.size + vertices, None
        self.vertices: AlgebraicMultigrid | SharedVertices | None = None
        if not vectors.comm.any(len(inside) > 0):
            return False
        given, where = free.ravel()[inside], made_on(len(inside), vectors)
        plain = self._P is None and single.components == A.operator.form.components and not _on_boundaries(A)
        # On hosts what it finds is worth it for several matrices.
        if plain and (where is not HOST_VECTORS or before is not None):
            if self._vertex_matrix is None:
                number = np.full((n, c0.size), -1, np.int32)
                number.ravel()[inside[given]] = np.flatnonzero(given)
                self._vertex_matrix = VertexMatrix(A.c0.block_matrix, number, len(inside), where)
            known = matrices is not None and where.xp is vectors.xp
            matrix = self._vertex_matrix(matrices if known else _matrices(A.operator, where))
        else:
            matrix = single.assemble()
            if self._P is not None:
                P = kron(eye_array(n), self._P, format="csr")
                matrix = csr_array(P.T @ matrix @ P)
            matrix = between(csr_array(matrix[inside][:, inside]), given)
        if where is HOST_VECTORS or vectors.comm.size > 1:
            matrix = sparse_on_host(matrix)
            if not matrix.data.all():
                matrix = matrix.copy()
                matrix.eliminate_zeros()
        points = c0.coordinates[vertices] if self.rigid else None
        self._inside = vectors.xp.asarray(inside)
        if vectors.comm.size == 1:
            made = before and before.made.again(matrix, vectors)
            made = made or Hierarchy.of(matrix, component, points, vectors)
            self.vertices = AlgebraicMultigrid(made, vectors, self.dtype, before)
        else:
            self.vertices = before or SharedVertices(vertices, component, points, c0, vectors, self.dtype)
            self.vertices.take(matrix)
        return self.dtype != np.float64 and self.vertices.least < _ILL

    @property
    def on_devices(self) -> bool:
        """Whether nothing of a cycle waits for a host, if its devices can do without."""
        return not isinstance(self.vertices, SharedVertices) or self.vertices.everywhere

    def __call__(self, r: Any) -> Any:
        """Apply to a residual on the operator's device.

        Parameters
        ----------
        r : array, [components * size]

        Returns
        -------
        array, [components * size]
            A new one.
        """
        r = self.vectors.checked(r, "a residual")
        if r.shape != self.shape[:1]:
            raise ArgumentError(f"a residual has {self.shape[0]} entries for {self!r}, got {shown(r)}")
        with self.cycles(r) as run:
            z, free, agree = run()
            agree()
            return z.astype(r.dtype) if free is None else self.vectors.xp.where(free, z, r).astype(r.dtype, copy=False)

    matvec = __call__  # as SciPy's solvers call it

    @contextmanager
    def cycles(self, r: Any) -> Iterator[_Run]:
        """Make what applies cycles to its `source`, where r is now, and a device writes what comes next; see `_Run`."""
        run = self._pool.take(lambda: _Run(self))
        try:
            if self._taken is None:
                run.source[...] = r
            else:
                self.vectors.xp.multiply(r, self._taken, out=run.source, casting="unsafe")
            yield run
        finally:
            self._pool.give(run)

    def cycle(self, r: Any) -> Any:
        """Apply in the type that is used inside; r and result are zero at Dirichlet values, and r where another process
        owns the unknown; on several processes equal up to rounding; see `__call__`.
        """
        return self.to_nodes(self.in_modes(0, self.to_modes(r)))

    def to_modes(self, r: Any) -> Any:
        """A residual in the modified basis; see `cycle`."""
        if self._change is None:
            return r
        r = self._changed(r, self._change.transposed)
        return r if self._taken is None else r * self._taken

    def to_nodes(self, z: Any) -> Any:
        """A correction in the operator's basis; see `cycle`."""
        return z if self._change is None else self._changed(z, self._change)

    def _changed(self, vector: Any, change: Callable[[Any], Any]) -> Any:
        return self.vectors.xp.concatenate([change(row) for row in vector.reshape(self.A.components, -1)])

    def in_modes(self, number: int, r: Any) -> Any:
        """The cycle from a level on, in the modified basis, for the sum of the processes' r; see `cycle`."""
        level = self.levels[number]
        if number == len(self.levels) - 1:
            return self._at_vertices(level, r)
        lower, smooth = self.levels[number + 1], partial(chebyshev, level.product.residual, level.smooth, level.degree)
        x = smooth(r, self.vectors)
        if level.residual_at_kept is None:
            residual = level.product.residual(r, x).reshape(level.n, -1)[:, lower.kept]
        else:
            at_kept = self.vectors.xp.ascontiguousarray(r.reshape(level.n, -1)[:, lower.kept])
            residual = level.residual_at_kept(at_kept, x)
        correction = self.in_modes(number + 1, lower.by_component(1, residual).reshape(-1))
        correction = lower.by_component(0, correction.reshape(level.n, -1))
        self.vectors.add_at(lower.kept, correction, x.reshape(level.n, -1))
        return smooth(level.product.residual(r, x), self.vectors, onto=x)

    def _at_vertices(self, level: Level, r: Any) -> Any:
        x = self.vectors.xp.zeros_like(r)
        if self.vertices is not None:
            alike = level.n // _together(level.A)
            for row, out in zip(r.reshape(alike, -1), x.reshape(alike, -1), strict=True):
                out[self._inside] = self.vertices(row[self._inside])
        return x


class _Run:
    """Cycles in arrays of their own: recorded, or from the second one on launched as a graph, where a backend can."""

    def __init__(self, M: Multigrid) -> None:
        # Not held, as it holds this: what is dropped gives its memory back at once.
        self.M: Any = proxy(M)
        self.source = M.vectors.xp.zeros(M.A.shape[0], M.dtype)
        self.result, alone = self.source, M.vectors.comm.size == 1
        self.recorded = M.A.operator.backend.recorded(partial(M.in_modes, 0), self.source) if alone else None
        self.thread: int | None = None
        self.graph: Any = None

    lock = _LAUNCHES

    @property
    def capturable(self) -> bool:
        """Whether a graph of more than a cycle can be made: where nothing waits for a host."""
        return self.M.vectors.iteration is not None and self.recorded is None and self.M.on_devices

    @property
    def taken(self) -> Any:
        """Where the source is not zero; None: everywhere."""
        return self.M._taken

    def __call__(self, captured: bool = False) -> tuple[Any, Any, Callable[[], Any]]:
        """M^-1 r in the type that is used inside; where it counts (None: everywhere), as elsewhere it is r; and what
        ends the exchange after which all processes have the same. In a graph of more it is not one of its own.
        """
        z = self.M.cycle(self.source) if captured else self._applied()
        return z, self.M._free, (lambda: z) if self.M.agrees else self.M.vectors.agreeing(z)

    def _applied(self) -> Any:
        if self.recorded is not None:
            self.source[...] = self.M.to_modes(self.source)
            return self.M.to_nodes(self.recorded())
        iteration = self.M.vectors.iteration if self.M.on_devices else None
        # The first cycle of a thread is plain: libraries then make what the thread needs, which cannot be captured.
        with _LAUNCHES if iteration is not None else nullcontext():
            if self.graph is None and iteration is not None and self.thread == get_ident():
                self.graph = iteration.capture(self._step, 1, "multigrid")
                if self.graph is not None:
                    finalize(self, self.graph.release)
            if self.graph is not None:
                self.graph.launch()
            else:
                self._step()
        self.thread = get_ident()
        return self.result

    def _step(self) -> None:
        self.result = self.M.cycle(self.source)


def smoother_steps(A: GlobalOperator, energies: list[list[Energies]]) -> int:
    """Steps of the smoother that suit the cells of a mesh: the most that any takes; collective."""
    most, space = 1, A.c0.space
    for number, block in enumerate(space.blocks):
        by_order = A.operator.backend.smoother_steps.get(block.shape.name, ((2, 2, 2),))
        steps = by_order[min(block.order, len(by_order)) - 1]
        most = max(most, steps[A.coupled > 1])
        if steps[2] > most and any(stacked(block.shape, S) for own in energies for S, _ in own[number].classes):
            most = steps[2]
    return int(A.vectors.comm.max(float(most)))


def straightened(space: Space, xp: Any) -> Space:
    """Take nearly affine cells for affine ones, with few factors: in a cycle this costs at most one iteration."""
    blocks = []
    for own in space.blocks:
        found = () if own.affine else own.geometry.deviation(xp)
        nearly = found and all(here <= most for here, most in zip(found, _STRAIGHT, strict=True))
        blocks.append(Block(own.tabulation, own.geometry.straightened(), own.elements) if nearly else own)
    return space if blocks == list(space.blocks) else space.on_blocks(blocks)


def _together(A: GlobalOperator) -> int:
    """Number of components that are smoothed together: those that the form couples, or all if conditions differ."""
    return A.components if A.bc is not None and A.bc.differ else A.coupled


def _form_of(A: GlobalOperator) -> Any:
    """What tells apart the forms of operators, and the kinds of their coefficients."""
    trace, fields = A.operator.form.trace, A.operator.fields
    return trace and trace.key, sorted(A.operator.parameters), {key: own.components for key, own in fields.items()}


def _on_boundaries(A: GlobalOperator) -> bool:
    """Whether an operator has Robin conditions or forms on boundaries."""
    return A.matrix is not None or bool(A.boundary_terms)


def _fixed(A: GlobalOperator) -> Any:
    """Unknowns with Dirichlet values, [components, size]."""
    return np.zeros((A.components, A.c0.size), dtype=bool) if A.bc is None else A.bc.fixed(A.components)


def _take_numbers(own: Operator, source: Operator) -> None:
    """Give an operator the present numbers of one of the same form, at its points."""
    for key, field in own.fields.items():
        found = resampled(source.fields[key], own.space, own.device)
        for pair, new in zip(field.data, found.data, strict=True):
            pair.write(own.device)[...] = new.read(own.device)
    own.parameters.update(source.parameters)


def _matrices(operator: Operator, vectors: VectorSpace) -> list[Any]:
    """The `element_matrices` of each block."""
    return [element_matrices(operator, number, vectors) for number in range(len(operator.space.blocks))]


def _at(A: GlobalOperator, space: Space) -> tuple[GlobalOperator, Any]:
    """An operator between modes of lower order or another type, and the numbers of these modes."""
    c0 = A.c0.at(space)
    kept = A.c0.numbering.truncation(c0.numbering, xp_for(A.c0.size, A.vectors.xp))
    host = np.arange(A.c0.size)[kept] if isinstance(kept, slice) else as_numpy(kept)
    kept = kept if isinstance(kept, slice) else A.vectors.xp.asarray(kept)
    matrix = A.matrix
    if matrix is not None:
        those = (np.arange(A.coupled)[:, None] * A.c0.size + host).ravel()
        matrix = csr_array(matrix[those][:, those])
    return A.at(c0, host, matrix), kept


def _in_modes(A: GlobalOperator, space: Space) -> tuple[GlobalOperator, CellMap]:
    """An operator between modes in place of nodes, and the change from modes to nodes."""
    c0 = A.c0.at(space)
    blocks = zip(space.blocks, A.c0.space.blocks, strict=True)
    values = [
        FactorisedMatrix([csr_array(block.basis.evaluate(np.asarray(own.basis.nodes)).T)]) for block, own in blocks
    ]
    change = CellMap(c0.block_matrix, A.c0.inverse_matrix, values, A.c0, A.operator.backend, space.dtype)
    matrix = A.matrix
    if matrix is not None:
        n, entries = A.c0.size, matrix.tocoo()
        pattern = csr_array((np.ones(entries.nnz), (entries.row % max(n, 1), entries.col % max(n, 1))), shape=(n, n))
        rows, chosen = change.congruent(pattern)
        rows = kron(eye_array(A.coupled), rows, format="csr")
        those = (np.arange(A.coupled)[:, None] * A.c0.size + chosen).ravel()
        matrix = csr_array(rows.T @ matrix[those][:, those] @ rows)
    return A.at(c0, slice(None), matrix), change
