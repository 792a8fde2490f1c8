"""A problem -div(k grad u) + lam u = f that is set up once and solved for many right-hand sides, matrix-free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import flag, instance, integer, is_real, name_of, real, reals, shown
from hpfem.shapes.arrays import Array

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..assembly.boundary import Condition, RobinCondition
from ..backends.vectors import VectorSpace, scaled
from ..errors import ArgumentError, SolverError, StateError
from ..memory import Device, PairArray, every
from ..operators import Helmholtz
from ..operators.operator import Coefficient
from ..operators.tensors import check_positive
from ..space.arguments import MAX_COMPONENTS
from ..space.field import Field, check_state
from ..space.regions import ByRegion, regional
from ..space.space import Space
from ..support.compiling import compile_seconds
from ..support.log import warn
from ..support.progress import progress, silent
from ..support.reuse import memory_kept
from .cg import CG
from .constants import Constants, hidden_constants
from .info import SolveInfo
from .krylov import checked_limits, default_tolerance, unscaled
from .l2_projection import domain_boundary_values
from .needs import Needs
from .norms import Loads, Source
from .preconditioners import checked_preconditioner, each_component, instead_of_multigrid, make_preconditioner

# Up to this order, values of one function for the whole boundary come from its projection over the domain.
_DOMAIN_ORDER = 2


class Solution(Field):
    """A field with the record of the solve that made it.

    Attributes
    ----------
    pair : PairArray, [size] or [components, size] with more than one component
        Its global coefficients on `c0`, on the device that computed them: `pair.read(device)`.
    c0 : C0Space
    info : SolveInfo
    """

    pair: PairArray
    c0: C0Space
    info: SolveInfo
    # What its Dirichlet values take, and its problem's conditions; without operators, whose memory is large.
    _reactions: tuple[_Fluxes, Any] | None = None

    @classmethod
    def of(cls, vector: Any, device: Device, c0: C0Space, info: SolveInfo) -> Solution:
        """Make one of a global vector, as `C0Space.scatter` takes it, and the record of its solve."""
        local = c0.scatter(vector, device=device)
        result = cls(local.space, local.state, local.data)
        result.pair, result.c0, result.info = PairArray.of(vector, device), c0, info
        return result

    @property
    def vector(self) -> NDArray[Any]:
        """Its global coefficients on the host, [size] or [components, size]."""
        return np.asarray(self.pair.read())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reactions": None}

    def _coefficients(self) -> Any:
        """Those that were solved for, where they are; None if its values were written since. Collective."""
        device = self.pair.home
        solved = self.c0.scatter(self.pair.read(device), device=device)
        # Devices round differently, and the values may be on another one now.
        close = 100 * np.finfo(self.space.dtype).eps
        pairs = [(a.read(device), b.read(device)) for a, b in zip(self.data, solved.data, strict=True)]
        same = (not b.size or bool(abs(a - b).max() <= close * abs(b).max()) for a, b in pairs)
        return self.pair.read(device) if self.space.comm.all(all(same)) else None

    def flux(self, boundary: str) -> float | Array:
        """Flux of k du/dn out through a boundary, with the f, coefficients and conditions that it was solved with.

        Parameters
        ----------
        boundary : str
            Name in ``mesh.boundaries``; see `Problem.flux`.

        Returns
        -------
        float, or ndarray [components] with more than one component

        Raises
        ------
        ArgumentError
            If only a part of the boundary has Dirichlet values.
        StateError
            If it is a copy, its values were changed, or no Problem made it.
        """
        if self._reactions is None or self._coefficients() is None:
            raise StateError(
                "this field does not know its problem: it was copied, changed or unpickled since it was solved for, or"
                " not made by a Problem; Problem.flux(u, boundary, f) takes it with its f"
            )
        fluxes, reactions = self._reactions
        return fluxes.through(boundary, self.pair, reactions)


class _Fluxes:
    """Fluxes through the boundaries of a problem."""

    def __init__(self, conditions: BoundaryConditions, vectors: VectorSpace) -> None:
        self.conditions, self.vectors, self.n = conditions, vectors, conditions.components
        self._held = vectors.xp.asarray(np.flatnonzero(conditions.fixed(self.n).any(axis=0)))
        self._sharing: dict[str, tuple[list[bool], Any]] = {}

    def reactions(self, residual: Any) -> Any:
        """The residual without Dirichlet conditions at the unknowns with such values, [components, held]."""
        return residual.reshape(self.n, -1)[:, self._held]

    def through(self, boundary: str, u: PairArray, reactions: Any) -> float | Array:
        """Flux of a function of these coefficients."""
        fixed, shares = self._shares(boundary)
        flux = np.zeros(self.n)
        if not all(fixed):
            flux += np.where(fixed, 0.0, self.conditions.prescribed_flux(boundary, u.read().astype(np.float64)))
        if any(fixed):
            here = np.array(self.vectors.numbers((shares * reactions).sum(axis=1)))
            flux += self.conditions.c0.space.mesh.comm.sum(here)
        return float(flux[0]) if self.n == 1 else flux

    def _shares(self, boundary: str) -> tuple[list[bool], Any]:
        """Which components have Dirichlet values on a boundary, and `BoundaryConditions.shares` of them; made once."""
        c0, mesh = self.conditions.c0, self.conditions.c0.space.mesh
        if name_of(boundary, mesh.boundaries, "boundary") not in self._sharing:
            facets = mesh.boundaries[boundary]
            of_each = [self.conditions.of_component(c) for c in range(self.n)]
            fixed = [mesh.comm.any(bool(np.isin(facets, bc.dirichlet_facets).any())) for bc in of_each]
            shares = [bc.shares(boundary) if some else 0 * bc.values for bc, some in zip(of_each, fixed, strict=True)]
            self._sharing[boundary] = fixed, self.reactions(self.vectors.from_host(np.stack(shares) * c0.owned))
        return self._sharing[boundary]


class Problem:
    """Solve -div(k grad u) + lam u = f with continuous high-order elements, for one f after the other.

    Numbering, boundary conditions, kernels and preconditioner are made once, here.

    Parameters
    ----------
    space : Space
        With the basis "modified" or "lagrange".
    lam : float, callable, mapping, array or Field
        Reaction coefficient, >= 0; when left out 0, Poisson's problem. A mapping has a number or function for each
        region (`by_region`), an array a number for each cell, as those of `Mesh.cell_data`.
    dirichlet : callable, float or {boundary name: callable or float}, optional
        Values of u; without any condition the flux is zero. A function without a name is for all of the boundary that
        `neumann` and `robin` do not name. If there is only one function, then up to order 2 its boundary values come
        from its L2 projection over the domain, if that fits on the boundary (`domain_boundary_values`).
    neumann : callable, float or {boundary name: callable or float}, optional
        Outward flux k du/dn; a function of the coordinates, or of them and the outward normal (`BoundaryConditions`).
    robin : (alpha, g) or {boundary name: (alpha, g)}, optional
        k du/dn + alpha u = g.
    diffusivity : float, sequence, callable, mapping, array or Field, optional
        k > 0; 1 when left out. D numbers or components are the diagonal of a tensor, D x D a tensor: symmetric and
        positive definite.
    tol : float, optional
        Ratio of the residual's norm to that of the right-hand side at which to stop; as for `cg` when left out: 1e-12,
        or 1.2e-6 in float32.
    preconditioner : str or callable
        "auto", "jacobi", "multigrid", "none", or a function r -> M^-1 r of global vectors.
    max_iterations : int, optional
    c0 : C0Space, optional
        Of the space, to be made once for several problems.
    components : int, optional
        Number of components of u, all with the same coefficients. Functions return a value for each; a number is for
        all, and a sequence has a number for each. In a Dirichlet condition, None stands for a free component.
    bar : bool, optional
        Whether to show progress, on a terminal or in a notebook.
    data_tol : float, optional
        If a constant is undetermined: the sum of the data, over that of their absolute values, up to which the data are
        compatible and there is no warning. More than 0 where the data are those of another computation, which have its
        errors.
    precision : str, optional
        "full", or "mixed", which allows geometric factors in float32 (`Operator`). The solution is then that of a
        slightly different operator, whatever `tol` is: see `precision_error`.

    Attributes
    ----------
    space : Space
    c0 : C0Space
    conditions : BoundaryConditions
    operator : GlobalOperator
        The operator with the conditions, which the solver applies.
    preconditioner : callable or None
    phases : {str: float}
        Seconds of each part of the set-up.
    needs : Needs
        Estimate of the memory that it takes: `needs.by_device`.

    Raises
    ------
    OutOfMemory
        If there is not enough memory: the message says how much each part needs. It is a `MemoryError`.
    SolverError
        If the operator is indefinite.
    ArgumentError
        For boundary names, functions or options that do not fit.

    Examples
    --------
    Several right-hand sides, and another coefficient; the set-up is done once:

    >>> problem = Problem(space, lam=2.0, dirichlet=0.0)  # doctest: +SKIP
    >>> first, second = problem.solve(f=1.0), problem.solve(f=lambda *x: x[0])  # doctest: +SKIP
    >>> problem.update(lam=3.0)  # doctest: +SKIP
    >>> third = problem.solve(f=1.0, start=first)  # doctest: +SKIP
    """

    def __init__(
        self,
        space: Space,
        lam: Coefficient = 0.0,
        dirichlet: Condition | None = None,
        neumann: Condition | None = None,
        robin: RobinCondition | None = None,
        *,
        diffusivity: Coefficient | None = None,
        tol: float | None = None,
        preconditioner: str | Callable[[Any], Any] = "auto",
        max_iterations: int | None = None,
        c0: C0Space | None = None,
        components: int = 1,
        bar: bool = True,
        data_tol: float = 0.0,
        precision: str = "full",
    ) -> None:
        self._tol, self._most = checked_limits(tol, max_iterations, "Helmholtz")
        self.components, self._bar = integer(components, 1, "components", MAX_COMPONENTS), flag(bar, "bar")
        self._data_tol = real(data_tol, "data_tol", least=0)
        self.phases: dict[str, float] = {}
        with self._phase("continuous space"):
            c0 = C0Space(space) if c0 is None else instance(c0, C0Space, "c0")
        if c0.space is not space:
            raise ArgumentError("c0 is for another space")
        preconditioner = checked_preconditioner(preconditioner)
        self.space, self.c0, self._asked = space, c0, preconditioner
        coefficients = {"lam": lam, "diffusivity": diffusivity}
        named = preconditioner if isinstance(preconditioner, str) else "user"
        with space.comm.together():
            self.needs = Needs(c0, coefficients, named, self.components)
            self.needs.check()
        with self._phase("conditions"):
            self.conditions = bc = BoundaryConditions(c0, dirichlet, neumann, robin, self.components)
            values = self._domain_values(dirichlet, bc.values)
        with self._phase("operator"):
            with space.comm.together():
                self._local = Helmholtz(space, lam, diffusivity, precision=precision)
            # The operator of one component; of all components, with the conditions and without.
            self._single = GlobalOperator(self._local, c0, bc.natural if bc.differ else bc)
            several = self.components > 1
            self.operator = GlobalOperator(self._local, c0, bc, self.components) if several else self._single
            self._whole = GlobalOperator(self._local, c0, bc.natural)
            self._vectors = vectors = self.operator.vectors
            self.operator.product_on(self.operator.device)  # its kernels are compiled while the rest is set up
            self._loads = Loads(c0, self.components)
            self._loads.begin()
            self._values, self._load = self._on_device(values), self._on_device(bc.load)
            self._constrained = vectors.xp.asarray(bc.constrained)
            self._fluxes = _Fluxes(bc, vectors)
        self._lift: tuple[dict[str, float], Any] = {}, None
        self.update()

    def __copy__(self) -> Problem:
        return deepcopy(self)  # with an operator of its own, which `update` changes

    def __repr__(self) -> str:
        return f"Problem({self.space!r}, {self.c0.size} dofs, preconditioner={self._used!r})"

    @property
    def precision_error(self) -> float:
        """Relative error of the operator by `precision="mixed"`, measured; 0 if nothing is rounded.

        Of an error d in all cells, the solution differs by at most d / (1 - d) from that of full precision, both in the
        norm of the operator's energy, relative to the solution.
        """
        return self._local.precision_error

    @contextmanager
    def _phase(self, name: str, phases: dict[str, float] | None = None) -> Iterator[None]:
        """Show the present phase, and record its time."""
        began = perf_counter()
        with memory_kept(), progress(name) if self._bar else silent():
            yield
        (self.phases if phases is None else phases)[name] = perf_counter() - began

    def _domain_values(self, dirichlet: Condition | None, values: Array) -> Array:
        """Boundary values of a condition, from the domain if those are better."""
        function = _only_function(dirichlet)
        if function is None or max(self.space.orders.values()) > _DOMAIN_ORDER or self.conditions.below_facets:
            return values
        if not self.space.mesh.comm.any(bool(self.conditions.constrained.any())):
            return values
        of_each = [
            domain_boundary_values(self.c0, _component(function, c, self.components), self.conditions, given)
            for c, given in enumerate(values.reshape(self.components, -1))
        ]
        return np.reshape(of_each, values.shape)

    def update(self, lam: float | None = None, diffusivity: float | None = None) -> None:
        """Set coefficients to other numbers, and read fields again; nothing is compiled again.

        Parameters
        ----------
        lam, diffusivity : float, optional
            New numbers for coefficients that were numbers. Coefficients that are "phys" fields are read again.

        Raises
        ------
        ArgumentError
            If the coefficient was not a number before.
        SolverError
            If the operator becomes indefinite.
        """
        parameters = self._local.parameters
        new = {name: value for name, value in (("lam", lam), ("diffusivity", diffusivity)) if value is not None}
        for name in new:
            if name not in parameters:
                raise ArgumentError(f"{name} of this problem is not a number that can be updated; make another Problem")
        before = {name: parameters[name] for name in new}
        try:
            for name, value in new.items():
                parameters[name] = value
            check_positive(self._local, "diffusivity", "diffusivity")
        except ArgumentError:
            for name, value in before.items():
                parameters[name] = value
            raise
        with self._phase("preconditioner"):
            if callable(self._asked):
                self.preconditioner: Callable[[Any], Any] | None = self._asked
                self._used, self._steps = "user", getattr(self._asked, "degree", 0)
            else:
                self._make_preconditioner(self._asked)
        with self._phase("constants"):
            self._constants: list[Constants | None]
            if self.conditions.differ:
                each = [self.conditions.of_component(c) for c in range(self.components)]
                self._constants = [hidden_constants(GlobalOperator(self._local, self.c0, bc), bc) for bc in each]
            else:
                self._constants = [hidden_constants(self._single, self.conditions)] * self.components

    def _make_preconditioner(self, name: str) -> None:
        together = self.conditions.differ
        made, self._used = make_preconditioner(name, self.operator if together else self._single)
        copies, self._steps = 1 if together else self.components, getattr(made, "degree", 0)
        self.preconditioner = made and each_component([made] * copies, self._vectors)

    def solve(
        self,
        f: Source = 0.0,
        dirichlet: Condition | Solution | None = None,
        start: Source | NDArray[Any] | None = None,
        *,
        tol: float | None = None,
        max_iterations: int | None = None,
    ) -> Solution:
        """Solve for a right-hand side.

        Parameters
        ----------
        f : callable, float, sequence of float, mapping, array or Field
            Right-hand side: a function of the coordinates, a number, a number for each component, one of these for
            each region (`by_region`), or a field in state "phys" or "dual".
        dirichlet : optional
            Other values on the boundaries with Dirichlet values: as for `Problem`, or the global coefficients of a
            function, as a Solution or an array like `start`. Coefficients are used directly, without an evaluation.
        start : Field, callable, float, mapping or array, [size] or [components, size], optional
            First guess, such as the solution of the step before: a field in state "coeff" (interpolated if it is on
            another space, as one that was loaded) or "phys", a function, a number or values by region (projected); or
            its global coefficients, on the host or on the operator's device.
        tol, max_iterations : optional
            For this solve, in place of those of the problem.

        Returns
        -------
        Solution
            Field in state "coeff" with `info` (iterations, residuals, times), `vector` and `c0`. If a constant is
            undetermined (lam = 0 and fluxes on all of the boundary of a connected part of the mesh), it is the solution
            of mean zero there; the mean of the data is removed, and `info.incompatibility` has its size.

        Raises
        ------
        SolverError
            If the solver does not converge.
        ArgumentError
            If the data do not fit.

        Warns
        -----
        HpfemWarning
            If a constant is undetermined and the data do not sum to zero, or rounding keeps the residual above `tol`.
        """
        began, compiled = perf_counter(), compile_seconds()
        A, space, phases, incompatibility = self.operator, self.space, dict[str, float](), dict[str, float]()
        apply: Callable[[Any], Any] | GlobalOperator = A
        constants, n, vectors, xp = self._constants, self.components, self._vectors, self._vectors.xp
        tol, most = self._tol if tol is None else tol, self._most if max_iterations is None else max_iterations
        tol, most = checked_limits(tol, most, "Helmholtz")
        with self._phase("right-hand side", phases):
            values = self._values if dirichlet is None else self._other_values(dirichlet)
            data = self._functional(f)
            rhs = self._freed(data if values is None else data - self._lifted(values))
            guess = None if start is None else self._coefficients(first_guess(start, self.c0, self.components), "start")
            if guess is not None:
                guess = self._freed(guess if values is None else guess - values).reshape(-1)
            possible, missing, function = rhs, 0.0, None
            if any(constants):
                split: list[tuple[Any, Any, Any]] = []
                for c, (row, hidden) in enumerate(zip(rhs.reshape(n, -1), constants, strict=True)):
                    of = "" if n == 1 else f", component {c}"
                    ratios = {} if hidden is None else hidden.incompatibility(row, space.dtype, self._data_tol)
                    incompatibility |= {name + of: ratio for name, ratio in ratios.items()}
                    split.append((row, None, row) if hidden is None else hidden.split(row))
                possible = xp.stack([fits for _, _, fits in split]).reshape(rhs.shape)
                missing, rhs = rhs - possible, xp.stack([rest for rest, _, _ in split]).reshape(rhs.shape)
                functional, function = _projections(constants, space.dtype, vectors)
                apply = _chain(partial(A.apply, device=A.device), functional)

        def solved() -> tuple[Any, SolveInfo]:
            M = self.preconditioner if function is None else _chain(self.preconditioner or _same, function)
            options: dict[str, Any] = {"name": "Helmholtz", "bar": self._bar, "shared": vectors, "dtype": space.dtype}
            options |= {"tol": tol, "max_iterations": most, "start": guess}
            with memory_kept():
                return CG(apply, rhs.reshape(-1), M, **options)

        set_up = perf_counter() - began
        vector, info = instead_of_multigrid(solved, self._used, self._make_preconditioner, vectors.comm)
        vector = vector.reshape(rhs.shape)
        if any(constants):
            rests = zip(constants, vector.reshape(n, -1), split, strict=True)
            joined = [rest if own is None else own.join(rest, amounts) for own, rest, (_, amounts, _) in rests]
            vector = xp.stack(joined).reshape(vector.shape)
        if values is not None:
            vector = vector + values
        largest = vectors.max_norm(vector.reshape(-1))
        if not isfinite(largest):
            raise SolverError("solve_helmholtz: the solution is not finite; look at the data and the coefficients")
        vector = unscaled(vector.reshape(-1), 0, space.dtype, "Helmholtz", vectors, largest).reshape(vector.shape)
        vector = vector.astype(space.dtype, copy=False)
        residual = self._applied(vector.astype(np.float64, copy=False)) - data
        missed = self._freed(residual) + missing
        info = replace(
            info,
            time=perf_counter() - began,
            set_up_time=set_up,
            compile_time=compile_seconds() - compiled,
            preconditioner=self._used,
            smoother_steps=self._steps,
            residual=self._checked_residual(missed, possible, info.residual, tol),
            incompatibility=incompatibility,
            phases=phases,
        )
        solution = Solution.of(vector, A.device, self.c0, info)
        solution._reactions = self._fluxes, self._fluxes.reactions(residual)
        return solution

    def _checked_residual(self, missed: Any, rhs: Any, iterated: float, tol: float | None) -> float:
        """The true residual's norm over that of the right-hand side; warns if constants and boundary values cost it."""
        vectors, wanted = self._vectors, tol or default_tolerance(self.space.dtype)
        size = vectors.norm(rhs.reshape(-1))
        residual = vectors.norm(missed.reshape(-1)) / size if size else 0.0
        if residual > (wanted if tol else 100 * wanted) and residual > 2 * iterated and vectors.comm.rank == 0:
            warn(
                f"Helmholtz: the solution stands at rounding: its residual is {residual:.1e}, wanted {wanted:.1e};"
                " where lam and alpha are small, a large constant in u leaves the rest fewer digits"
            )
        return residual

    def _on_device(self, values: Array) -> Any:
        """Global numbers where the operator computes; None if all are zero."""
        there = self.space.mesh.comm.any(bool(values.any()))
        return self._vectors.from_host(values, np.float64) if there else None

    def _functional(self, f: Source) -> Any:
        """The functional of f and of the boundary data."""
        functional = self._loads(f)
        return functional if self._load is None else functional + self._load

    def _lifted(self, values: Any) -> Any:
        """The operator's product with boundary values, kept while coefficients stay; fields may change any time."""
        if values is not self._values or self._local.fields:
            return self._applied(values)
        parameters = dict(self._local.parameters)
        if self._lift[1] is None or self._lift[0] != parameters:
            self._lift = parameters, self._applied(values)
        return self._lift[1]

    def _freed(self, vector: Any) -> Any:
        """A vector of the unknowns, zero where values are prescribed."""
        return self._vectors.xp.where(self._constrained, 0.0, vector)

    def _other_values(self, dirichlet: Any) -> Any:
        """Dirichlet values of other data, or of a function given by its coefficients."""
        if isinstance(dirichlet, Solution) or getattr(dirichlet, "shape", None) == self.conditions.load.shape:
            xp = self._vectors.xp
            return xp.where(self._constrained, self._coefficients(dirichlet, "dirichlet"), 0.0)
        return self._on_device(self._domain_values(dirichlet, self.conditions.values_of(dirichlet)))

    def _coefficients(self, given: Any, what: str) -> Any:
        """Global coefficients given by the caller, in float64 on the operator's device."""
        vectors = self._vectors
        if isinstance(given, Solution):
            vector = given.pair.read(vectors.device).astype(np.float64)
        elif vectors.has(given):
            vector = vectors.checked(given, what).astype(np.float64)
        else:
            vector = vectors.from_host(reals(given, what), np.float64)
        wanted = self.conditions.load.shape
        fits = vector.shape == wanted and every(vectors.xp.isfinite(vector))
        if not self.space.comm.all(fits):
            raise ArgumentError(
                f"{what} is {shown(given)} of shape {vector.shape}; give a finite vector of"
                f" {' x '.join(map(str, wanted))} unknowns"
            )
        return vector

    def _applied(self, values: Any) -> Any:
        """Apply the operator with Robin conditions but without Dirichlet ones, to values of any size."""
        vectors, xp = self._vectors, self._vectors.xp
        unit = vectors.exponent(values)
        near = scaled(values, -unit).astype(self.space.dtype)
        images = [self._whole.apply(row, self.operator.device) for row in near.reshape(self.components, -1)]
        return scaled(xp.stack(images).reshape(values.shape).astype(np.float64), unit)

    def flux(self, u: Field, boundary: str, f: Source | None = None) -> float | Array:
        """Flux of k du/dn out through a boundary; collective.

        Where u is prescribed, the flux comes from the residual of the weak form: it is as accurate as the solution's
        energy, unlike the integral of a derivative. If two such boundaries meet, the residual at their common unknowns
        is divided as if the flux were a polynomial of order P - 2 on each facet there (P - 3 on triangles, at least 0):
        with cells of size h each flux has an additional error of order h^P (h^(P - 1), at least h^2), their sum has
        none. Elsewhere it is the integral of the prescribed flux: g for Neumann data, g - alpha u for Robin data, else
        zero. On an interface inside the mesh it is the sum from both sides, each with its outward normal: the heat
        produced there. The fluxes through all boundaries balance the sources, if none overlap.

        Parameters
        ----------
        u : Field
            A solution of this problem; or with f, any field in state "coeff" on its space.
        boundary : str
            Name in ``mesh.boundaries``.
        f : callable, float, sequence of float, mapping, array or Field, optional
            The right-hand side. When left out, f and the coefficients are those with which u was solved for.

        Returns
        -------
        float, or ndarray [components] with more than one component

        Raises
        ------
        ArgumentError
            If only a part of the boundary has Dirichlet values, or u is not a solution of this problem and there is no
            f.
        StateError
            For a field in another state, or a solution that was changed.
        """
        if f is None and isinstance(u, Solution) and u._reactions and u._reactions[0] is self._fluxes:
            return u.flux(boundary)
        if f is None or not isinstance(u, Field) or u.space is not self.space or u.components != self.components:
            raise ArgumentError("flux takes a solution of this problem; another field on its space, with its f")
        check_state(u, "coeff", "flux")
        values = u._coefficients() if isinstance(u, Solution) and u.c0 is self.c0 else None
        values = self._coefficients(self.c0.average(u) if values is None else values, "u")
        reactions = self._fluxes.reactions(self._applied(values) - self._functional(f))
        return self._fluxes.through(boundary, PairArray.of(values, self.operator.device), reactions)


def first_guess(start: Any, c0: C0Space, components: int) -> Any:
    """Global coefficients of a field on any space, a function, a number or values by region; what else is given."""
    space = c0.space
    if isinstance(start, (Mapping, ByRegion)):
        with space.comm.together():
            start = space.project(regional(start, space.mesh).spread(components))
    if is_real(start):
        shape = (c0.size,) if components == 1 else (components, c0.size)
        return np.broadcast_to(c0.one * real(start, "start"), shape)
    if isinstance(start, Field):
        if start.state == "phys":
            start = space.project(start)
        check_state(start, "coeff", "start")
        if isinstance(start, Solution) and start.c0 is c0:
            return start
        return c0.average(start if start.space is space else space.interpolate(start))
    return c0.project(start) if callable(start) else start


def _only_function(condition: Condition | None) -> Callable[..., Any] | None:
    """The function of a condition that has one only, for one boundary or several."""
    values = list(condition.values()) if isinstance(condition, Mapping) else [condition]
    first = values[0] if values else None
    return first if callable(first) and all(other is first for other in values) else None


def _component(function: Callable[..., Any], number: int, components: int) -> Callable[..., Any]:
    """A component of a function of several."""
    return function if components == 1 else lambda *x: function(*x)[number]


def _projections(constants: Sequence[Constants | None], dtype: Any, vectors: VectorSpace) -> list[Callable[[Any], Any]]:
    """The projections that remove constants from functionals and from functions, component by component."""
    of_each = [(_same, _same) if own is None else own.projections(dtype) for own in constants]
    return [each_component(functions, vectors) for functions in zip(*of_each, strict=True)]


def _same(vector: Any) -> Any:
    return vector


def _chain(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda vector: then(first(vector))
