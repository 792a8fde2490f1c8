"""The acoustic wave equation M p_tt + c^2 K p = f, explicit in time ([Roget]: the spectral element proxy application).

Leapfrog: p^{n+1} = 2 p^n - p^{n-1} + dt^2 M^{-1} (f^n - K p^n), of second order and stable for dt below
2 / sqrt(largest eigenvalue of M^{-1} K). M is diagonal where the points of the rule are the nodes of the basis
(`Space(basis="lagrange", quadrature="collocated")` on quads and hexes); elsewhere it is inverted by CG.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import instance, real, reals, shown

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..backends.passes import LEAPFROG
from ..backends.vectors import VectorSpace
from ..errors import ArgumentError, SolverError
from ..operators import Helmholtz, Mass
from ..operators.operator import Coefficient
from ..space.field import Field
from .cg import cg
from .coefficients import check_positive
from .krylov import checked_limits
from .preconditioners import jacobi

Array = NDArray[np.float64]


class AcousticWave:
    """p_tt = div(c^2 grad p) + f, with p = 0 on named boundaries and reflecting ones elsewhere.

    It has a state, which `step` advances: one thread at a time may use it. Other threads make waves of their own, on
    the same `C0Space`.

    Parameters
    ----------
    c0 : C0Space
    speed_squared : float, callable, mapping or Field
        c^2.
    free_surface : sequence of str
        Names of boundaries with p = 0.
    dt : float, optional
        Time step; by default `courant` times the largest stable one.
    courant : float
    tol : float, optional
        Of the mass inversions by CG, where the mass is not diagonal; see `cg`.

    Attributes
    ----------
    time : float
    steps : int
    diagonal_mass : bool
    mass_iterations : int
        CG iterations spent on the mass so far.
    advance : callable
        (weights, force, now, before) -> None: before = 2 now - before + weights * force; the pass `LEAPFROG`

    Raises
    ------
    ArgumentError
        For a time step that is not positive.
    SolverError
        From `step`, if the solution grows without bound: the time step is too large.
    """

    def __init__(
        self,
        c0: C0Space,
        speed_squared: Coefficient = 1.0,
        free_surface: tuple[str, ...] = (),
        dt: float | None = None,
        courant: float = 0.9,
        tol: float | None = None,
    ) -> None:
        instance(c0, C0Space, "c0")
        if not isinstance(free_surface, (tuple, list)) or not all(isinstance(name, str) for name in free_surface):
            raise ArgumentError(f"free_surface must be a sequence of names of boundaries, got {shown(free_surface)}")
        bc = BoundaryConditions(c0, dirichlet=dict.fromkeys(free_surface, 0.0))
        self.c0, self.bc = c0, bc
        self.tol, _ = checked_limits(tol, None, "the mass")
        courant = real(courant, "courant", above=0)
        dt = None if dt is None else real(dt, "the time step", above=0)
        with c0.space.comm.together():
            stiffness = Helmholtz(c0.space, 0.0, speed_squared)
        self.K = GlobalOperator(stiffness, c0, bc)
        check_positive(self.K.operator, "diffusivity", "speed_squared", zero=True)
        self.M = GlobalOperator(Mass(c0.space), c0, bc)
        self.device = self.K.device
        self._free = self.vectors.from_host(bc.free, c0.space.dtype)
        diagonal = self.M.diagonal()
        # A matrix is diagonal if it only scales the entries of a random vector.
        probe = c0.vectors_on().agreed(np.random.default_rng(0).uniform(0.5, 1.5, c0.size)).astype(c0.space.dtype)
        largest = c0.vectors_on().max_norm
        error = largest(self.M.apply(probe) - diagonal * probe)
        self.diagonal_mass = bool(error < 1e4 * np.finfo(c0.space.dtype).eps * largest(diagonal))
        self._inverse = self.vectors.from_host(1.0 / diagonal, c0.space.dtype)
        self._precondition = jacobi(self.M)
        self.mass_iterations = 0
        if dt is None:
            dt = courant * 2 / np.sqrt(self.largest_eigenvalue())
        if not 0 < float(dt) * dt < np.inf:
            raise ArgumentError(f"no time step is stable and finite ({dt:g}): is the speed zero everywhere? Give dt")
        self.dt = float(dt)
        self.time, self.steps = 0.0, 0
        # Of K p - f, or M^-1 of that where the mass is not diagonal, in a step.
        self._weights = (-(self.dt**2)) * (self._free * self._inverse if self.diagonal_mass else self._free)
        self.advance: Callable[[Any, Any, Any, Any], None] = partial(_leapfrog, self.vectors)
        self._now = self._free * 0
        self._before = self._free * 0

    @property
    def vectors(self) -> VectorSpace:
        """Vectors on the wave's device."""
        return self.K.vectors

    def solve_mass(self, rhs: Any) -> Any:
        """Apply M^-1.

        Parameters
        ----------
        rhs : array, [size]
            On the device.

        Returns
        -------
        array, [size]
        """
        if self.diagonal_mass:
            return self._inverse * rhs
        x, info = cg(self.M, rhs, self._precondition, tol=self.tol, name="mass", bar=False)
        self.mass_iterations += info.iterations
        return x

    def _stiffness(self, p: Any) -> Any:
        return self._free * self.K.apply(p, self.device)

    def largest_eigenvalue(self, iterations: int = 60) -> float:
        """Upper estimate of the largest eigenvalue of M^-1 K, by power iteration with a margin of 5 %.

        Parameters
        ----------
        iterations : int

        Returns
        -------
        float
        """
        vectors, places = self.vectors, self.c0.coordinates
        # Irregular numbers, independent of the unit of length and of the number of processes.
        low, high = (
            np.array([sign * vectors.comm.max(float((sign * x).max(initial=-np.inf))) for x in places.T])
            for sign in (-1, 1)
        )
        rough = np.sin((places - low) @ (1e4 / (high - low).max() * np.sqrt([2.0, 3.0, 5.0][: len(low)])))
        x = self._free * vectors.from_host(self.c0.vectors_on().agreed(rough), self.c0.space.dtype)

        def mass(p: Any) -> float:
            return vectors.dot(p, self.M.apply(p, self.device))

        value = 0.0
        for _ in range(iterations):
            y = self._free * self.solve_mass(self._stiffness(x))
            growth = vectors.max_norm(y)
            y = y / growth
            value = growth * (mass(y) / mass(x)) ** 0.5
            x = y
        return 1.05 * value

    def start(self, pressure: Array, velocity: Array | None = None) -> None:
        """Set p and p_t at time 0.

        Parameters
        ----------
        pressure, velocity : ndarray, [size]
            Global vectors, such as `c0.project(function)`; the velocity is zero when left out.
        """
        self._now = self._global(pressure, "the pressure")
        rate = self._free * 0 if velocity is None else self._global(velocity, "the velocity")
        bend = self._free * self.solve_mass(self._stiffness(self._now))
        before = self._now - self.dt * rate - (self.dt**2 / 2) * bend
        self._before = self.vectors.xp.asarray(before, self._now.dtype)
        self.time, self.steps = 0.0, 0

    def _global(self, given: Any, what: str) -> Any:
        """A global vector given by the caller, on the device, zero on the free surface."""
        vector = reals(given, what)
        if vector.shape != (self.c0.size,):
            raise ArgumentError(f"{what} must be an array [{self.c0.size}], got {shown(given)}")
        return self._free * self.vectors.from_host(vector, self.c0.space.dtype)

    def step(self, load: Any | None = None) -> None:
        """Advance by dt.

        Parameters
        ----------
        load : array, [size], optional
            f at the present time, as a functional: on the device.

        Raises
        ------
        SolverError
            If the solution grows without bound: the time step is too large.
        """
        if load is not None:
            self._check_functional(load)
        force = self.K.apply(self._now, self.device)  # new memory
        if load is not None:
            force -= load
        if not self.diagonal_mass:
            force = self.vectors.xp.asarray(self.solve_mass(self._free * force), force.dtype)
        self.advance(self._weights, force, self._now, self._before)
        self._before, self._now = self._now, self._before
        self.time += self.dt
        self.steps += 1
        if self.steps % 100 == 0 and not np.isfinite(self.vectors.max_norm(self._now)):
            raise SolverError(f"the wave grows without bound after {self.steps} steps; take dt below {self.dt:.2e}")

    def energy(self) -> float:
        """(p_t, p_t)/2 + (c^2 grad p, grad p)/2 half a step ago; without a load it varies by O(dt^2) only.

        Returns
        -------
        float
        """
        middle = (self._now + self._before) * 0.5
        return self._energy(middle, middle)

    def invariant(self) -> float:
        """The energy that leapfrog conserves exactly: (p_t, p_t)/2 + (c^2 grad p^n, grad p^{n-1})/2.

        Returns
        -------
        float
        """
        return self._energy(self._now, self._before)

    def _energy(self, p: Any, q: Any) -> float:
        rate = (self._now - self._before) * (1 / self.dt)
        kinetic = self.vectors.dot(rate, self._free * self.M.apply(rate, self.device))
        return 0.5 * (kinetic + self.vectors.dot(p, self._stiffness(q)))

    def listen(self, receiver: Any) -> float:
        """Value of a functional such as `point_source` at the present p.

        Parameters
        ----------
        receiver : array, [size]
            On the device.

        Returns
        -------
        float
        """
        self._check_functional(receiver)
        return self.vectors.dot(receiver, self._now)

    def _check_functional(self, given: Any) -> None:
        """It is an array on the device, one number per unknown."""
        if getattr(given, "shape", None) != self._now.shape or not isinstance(given, type(self._now)):
            raise ArgumentError(f"a functional is an array [{self.c0.size}] where the wave is, got {shown(given)}")
        if given.dtype.kind not in "iuf":
            raise ArgumentError(f"a functional is of real numbers, got {given.dtype}")

    @property
    def vector(self) -> Array:
        """The present p as a global vector on the host, [size]."""
        return self.vectors.to_host(self._now).astype(np.float64)

    @property
    def pressure(self) -> Field:
        """The present p as a field."""
        return self.c0.scatter(self.vector.astype(self.c0.space.dtype))


def _leapfrog(vectors: VectorSpace, weights: Any, force: Any, now: Any, before: Any) -> None:
    vectors.run(LEAPFROG, (before, now, force, weights), (2.0,))


def point_source(c0: C0Space, point: Any) -> Array:
    """The functional v -> v(point): a point source of strength one, or a receiver; collective where processes share c0.

    Parameters
    ----------
    c0 : C0Space
    point : array_like, [D]

    Returns
    -------
    ndarray, [size]

    Raises
    ------
    ArgumentError
        If the point is in no cell.
    """
    space = instance(c0, C0Space, "c0").space
    block, element, xi = space.locator.find(reals(point, "a point")[None])
    inside = space.comm.allgather(bool(block[0] >= 0))
    if not any(inside):
        raise ArgumentError(f"the point {shown(point)} is in no cell of the mesh")
    load = space.zeros("dual")
    if inside.index(True) == space.comm.rank:
        load.arrays[block[0]][0, element[0]] = space.blocks[block[0]].basis.evaluate(xi)[:, 0]
    return np.asarray(c0.gather(load), dtype=np.float64)


def ricker(frequency: float, delay: float | None = None) -> Callable[[float], float]:
    """Ricker's wavelet (1 - 2 a^2) exp(-a^2), a = pi f (t - delay).

    Parameters
    ----------
    frequency : float
        Peak frequency, > 0.
    delay : float, optional
        1.2 / frequency when left out, so that it starts from nothing.

    Returns
    -------
    callable
        t -> amplitude.
    """
    frequency = real(frequency, "the frequency of a wavelet", above=0)
    middle = 1.2 / frequency if delay is None else real(delay, "the delay of a wavelet")

    def wavelet(t: float) -> float:
        a = (np.pi * frequency * (t - middle)) ** 2
        return float((1 - 2 * a) * np.exp(-a))

    return wavelet
