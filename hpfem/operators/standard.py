"""The standard weak forms: pointwise functions of value, gradient, point, fields and parameters; operators of them."""

from __future__ import annotations

from typing import Any, Unpack

from ..errors import ArgumentError
from ..forms import Pointwise, Vector
from ..space import Space
from .operator import Coefficient, Operator, OperatorOptions
from .tensors import entries


def mass(u: Any) -> Any:
    """(u, v)."""
    return u


def laplacian(du: Any) -> Any:
    """(grad u, grad v)."""
    return du


def helmholtz(u: Any, du: Any, lam: Any) -> Any:
    """(lam u, v) + (grad u, grad v)."""
    return lam * u, du


def variable_helmholtz(u: Any, du: Any, lam: Any, diffusivity: Any) -> Any:
    """(lam u, v) + (diffusivity grad u, grad v)."""
    return lam * u, _diffused(diffusivity, du)


def advection_diffusion_reaction(u: Any, du: Any, velocity: Any, diffusivity: Any, reaction: Any) -> Any:
    """(velocity . grad u + reaction u, v) + (diffusivity grad u, grad v)."""
    return velocity.dot(du) + reaction * u, _diffused(diffusivity, du)


def checked_reaction(lam: Coefficient | None, name: str) -> Coefficient:
    """A reaction coefficient, which nobody can guess."""
    if lam is None:
        raise ArgumentError(f"{name} takes the reaction coefficient lam; lam=0 for Poisson's problem")
    return lam


def _diffused(diffusivity: Any, du: Any) -> Any:
    """A gradient times a scalar, or times a tensor given by its entries."""
    if not isinstance(diffusivity, Vector):
        return diffusivity * du
    places, entry = range(len(du)), entries(diffusivity, len(du))
    if len(diffusivity) == len(du):
        return [entry(i, i) * du[i] for i in places]
    return [sum(entry(i, j) * du[j] for j in places) for i in places]


class Mass(Operator):
    """Mass matrix: (u, v) (BK1); for the options see `Operator`."""

    def __init__(self, space: Space, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, Pointwise(mass, ("value",)), name="Mass", **options)


class Laplacian(Operator):
    """Stiffness matrix: (grad u, grad v); for the options see `Operator`."""

    def __init__(self, space: Space, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, Pointwise(laplacian, ("grad",)), name="Laplacian", **options)


class Helmholtz(Operator):
    """Helmholtz matrix: (lam u, v) + (diffusivity grad u, grad v) (BK3 with constants; [Xing] eq. 3).

    Parameters
    ----------
    space : Space
    lam : float, callable, mapping, array or Field
        Reaction coefficient, to be given: 0 for Poisson's problem. A mapping has a value for each region (`by_region`),
        an array one for each cell.
    diffusivity : float, sequence, callable, mapping, array or Field, optional
        1 when left out. D numbers or components are the diagonal of a tensor, D x D a tensor, row by row.
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    vectors, tensors = (), ("diffusivity",)

    def __init__(
        self,
        space: Space,
        lam: Coefficient | None = None,
        diffusivity: Coefficient | None = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        coefficients = {"lam": checked_reaction(lam, "Helmholtz")}
        pointwise = Pointwise(helmholtz, ("value", "grad"))
        if diffusivity is not None:
            coefficients["diffusivity"] = diffusivity
            pointwise = Pointwise(variable_helmholtz, ("value", "grad"))
        super().__init__(space, pointwise, name="Helmholtz", coefficients=coefficients, **options)


class AdvectionDiffusionReaction(Operator):
    """(velocity . grad u + reaction u, v) + (diffusivity grad u, grad v).

    Parameters
    ----------
    space : Space
    velocity : sequence of D numbers, callable, mapping, array or Field
        Advection velocity; a mapping has a value for each region (`by_region`).
    diffusivity : float, sequence, callable, mapping, array or Field
        D numbers or components are the diagonal of a tensor, D x D a tensor, row by row.
    reaction : float, callable, mapping, array or Field
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    vectors, tensors = ("velocity",), ("diffusivity",)

    def __init__(
        self,
        space: Space,
        velocity: Coefficient,
        diffusivity: Coefficient = 1.0,
        reaction: Coefficient = 0.0,
        **options: Unpack[OperatorOptions],
    ) -> None:
        coefficients = {"velocity": velocity, "diffusivity": diffusivity, "reaction": reaction}
        pointwise = Pointwise(advection_diffusion_reaction, ("value", "grad"))
        name = "AdvectionDiffusionReaction"
        super().__init__(space, pointwise, name=name, coefficients=coefficients, **options)
