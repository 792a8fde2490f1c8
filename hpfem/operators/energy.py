"""Energies: integrals of densities, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from hpfem.shapes.arguments import is_real, shown

from ..errors import ArgumentError
from ..forms.derivative import Weak
from ..forms.lowered import lowered
from ..space import Field, Space
from .linearised import checked_function, made_operator
from .on_boundary import BoundaryForm
from .operator import Coefficient, Operator, OperatorOptions
from .sums import Linear, OperatorSum, Summable
from .weak_form import AtPoints


class Energy(Linear["Energy", "Energy"]):
    """The integral of a density W(u, du, x, ..) over the mesh, or over a boundary.

    Energies on one space can be added, and multiplied by numbers: `E - load`, `E + 0.5 * springs`.

    Parameters
    ----------
    space : Space
    density : callable
        Takes what a function of `WeakForm` takes; returns one number.
    fields : mapping, optional
        As for `WeakForm`.
    components : int
        Components of u; with more than one, `u[c]` and `du[c]` are indexed.
    on : str, optional
        Name of a boundary over which to integrate.
    **options
        strategy, algorithm, backend, precision of `Operator`, of an energy in the volume.

    Attributes
    ----------
    space : Space
    residual : Operator, BoundaryForm or OperatorSum
        The derivative: a weak form, v -> d/dt E(u + t v) at t = 0.
    parameters : Parameters
        Of the energy and its derivative, as of `Operator`; a sum has those of its parts.

    Raises
    ------
    ArgumentError
        If the density returns no number, and as `WeakForm`.

    Examples
    --------
    >>> E = Energy(space, lambda du: 0.25 * du.dot(du) ** 2) - Energy(space, lambda u: u)  # doctest: +SKIP
    >>> value, forces, tangent = E(u), E.residual(u), E.linearised(u)  # doctest: +SKIP
    """

    residual: Any
    integrand: Operator | BoundaryForm  # its density at the points
    parts: Sequence[tuple[float, Energy]] = ()  # of a sum

    def __init__(
        self,
        space: Space,
        density: Callable[..., Any],
        fields: Mapping[str, Coefficient] | None = None,
        components: int = 1,
        on: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        boundary = None if on is None else BoundaryForm(space, density, on, fields, (), components)
        inner = AtPoints(space, density, fields, components, **options) if boundary is None else boundary.inner
        trace = inner.form.trace
        assert trace is not None
        if trace.given != 1:
            raise ArgumentError(f"density {inner.name!r} of an energy must return one number, it returns {trace.given}")
        self.space, self.name, self.parameters = space, inner.name, inner.parameters
        self.integrand = inner if boundary is None else boundary
        weak = Weak.of(trace).pullback("u", None, components)
        form = lowered(weak, (("u", components),), f"derivative of {self.name}")
        made = made_operator(inner, form, parameters=inner.parameters)
        self.residual = made if boundary is None else boundary.with_inner(made)

    def __repr__(self) -> str:
        return f"Energy({self.name}, {self.space!r})"

    def density(self, u: Field) -> Field:
        """The density of an energy in the volume, at the points.

        Parameters
        ----------
        u : Field
            In state "coeff".

        Returns
        -------
        Field
            In state "phys".

        Raises
        ------
        ArgumentError
            If it is on a boundary, or a sum: its parts have densities.
        """
        if self.parts or self.integrand.on is not None:
            raise ArgumentError(f"{self.name} is a sum of energies, or on a boundary, where no field is")
        return self.integrand(u)

    def __call__(self, u: Field) -> float:
        """The energy of a function; collective where processes share the mesh."""
        if self.parts:
            return sum(factor * part(u) for factor, part in self.parts)
        own = self.integrand
        u = checked_function(self, u, own.form.components, "the argument")
        inner, here = (own.inner, own.on_sides(u)) if isinstance(own, BoundaryForm) else (own, u)
        return float(np.atleast_1d(inner.space.integrate(inner(here)))[0])

    def linearised(self, u: Field, store: str = "cheap") -> Any:
        """Make the derivative of the residual, which is symmetric; see `Operator.linearised`."""
        return self.residual.linearised(u, store)

    def _total(self, *parts: tuple[Any, Any]) -> Energy:
        return _EnergySum(parts)


class _EnergySum(Energy):
    """A sum of energies, each times a number."""

    def __init__(self, parts: Sequence[tuple[float, Energy]]) -> None:
        for factor, own in parts:
            if not isinstance(own, Energy) or not is_real(factor):
                raise ArgumentError(f"energies are added and multiplied by numbers, got {shown(factor)}, {shown(own)}")
        self.parts, self.space = parts, parts[0][1].space
        self.name = " + ".join(own.name for _, own in parts)
        self.residual: Summable = OperatorSum([own.residual for _, own in parts], [float(f) for f, _ in parts])
