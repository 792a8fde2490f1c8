"""The physics of the standard operators, as pointwise functions of value, gradient, point, fields and parameters."""

from __future__ import annotations

from typing import Any

from ..forms import Vector
from .tensors import entries


def mass(u: Any) -> Any:
    """(u, v); see `Mass`."""
    return u


def laplacian(du: Any) -> Any:
    """(grad u, grad v); see `Laplacian`."""
    return du


def helmholtz(u: Any, du: Any, lam: Any) -> Any:
    """(lam u, v) + (grad u, grad v); see `Helmholtz`."""
    return lam * u, du


def variable_helmholtz(u: Any, du: Any, lam: Any, diffusivity: Any) -> Any:
    """(lam u, v) + (diffusivity grad u, grad v); see `Helmholtz`."""
    return lam * u, _diffused(diffusivity, du)


def advection_diffusion_reaction(u: Any, du: Any, velocity: Any, diffusivity: Any, reaction: Any) -> Any:
    """(velocity . grad u + reaction u, v) + (diffusivity grad u, grad v); see `AdvectionDiffusionReaction`."""
    return velocity.dot(du) + reaction * u, _diffused(diffusivity, du)


def _diffused(diffusivity: Any, du: Any) -> Any:
    """A gradient times a scalar, or times a tensor given by its entries."""
    if not isinstance(diffusivity, Vector):
        return diffusivity * du
    places, entry = range(len(du)), entries(diffusivity, len(du))
    if len(diffusivity) == len(du):
        return [entry(i, i) * du[i] for i in places]
    return [sum(entry(i, j) * du[j] for j in places) for i in places]
