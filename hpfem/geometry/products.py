"""Products of geometric factors and coefficients of a form: sources "merged" and "scaled merged" of factors.

"wJ" is then m w |J|, "metric" w |J| J^-1 A J^-T and m w |J|, and "scale" A w / |J| and, if a value is tested, m w |J|,
with the diffusion A and the reaction m. Affine elements store too few factors for this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hpfem.shapes.arrays import Array, Floats

from .element_map import Elements
from .factors import PointMap, by_group
from .jacobians import determinant_and_inverse, symmetric_pairs


class Coefficients(Protocol):
    """A form's coefficients at the points of a block: is the diffusion a `tensor` [D, D], is a value tested."""

    tensor: bool
    reacts: bool

    def values(self, geometry: PointMap, elements: Elements, xp: Any) -> tuple[Any, Any]:
        """Diffusion and reaction, [E, Q] or a number each; for a tensor a list of these, row by row."""


@dataclass
class NoCoefficients:
    """Coefficients without values."""

    tensor: bool
    reacts: bool

    def values(self, geometry: PointMap, elements: Elements, xp: Any) -> tuple[Any, Any]:
        """A geometry without elements has none."""
        raise AssertionError("a geometry without elements has no coefficients at points")


def _multipliers(geometry: PointMap, given: Coefficients, kind: str, elements: Elements, xp: Any) -> list[Any]:
    """What each factor of a kind is multiplied by."""
    if kind in ("points", "map"):
        return [1.0] * geometry.n_factors(kind)
    diffusion, reaction = given.values(geometry, elements, xp)
    if kind == "metric":
        return [*[diffusion] * (geometry.n_factors(kind) - 1), reaction]
    return [reaction] if kind == "wJ" else [diffusion, reaction][: geometry.n_factors(kind)]


def products(geometry: PointMap, given: Coefficients, kind: str, elements: Elements, xp: Any) -> Iterator[Any]:
    """Factors of some elements times coefficients, one [E, S] after the other."""
    multipliers = _multipliers(geometry, given, kind, elements, xp)
    if kind != "metric" or not given.tensor:
        plain = geometry.plain_factors(kind, elements, xp)
        yield from (own * scale for own, scale in zip(plain, multipliers, strict=True))
        return
    gradient, weights = geometry.reference()
    det, inverse = determinant_and_inverse(geometry.jacobian(gradient, elements, xp), xp)
    weighted, tensor, n = xp.asarray(weights) * det, multipliers[0], range(geometry.space_dim)
    for a, b in symmetric_pairs(geometry.dim):
        along = [sum(tensor[i * len(n) + j] * inverse[b, j] for j in n) for i in n]
        yield weighted * sum(inverse[a, i] * along[i] for i in n)
    yield weighted * multipliers[-1]


def multiply(geometry: PointMap, given: Coefficients, kind: str, out: Floats) -> None:
    """Multiply factors without coefficients by these; out [groups, n_factors, *points, lanes]."""
    if kind in ("points", "map"):
        return
    for chunk in geometry.chunks(out.shape[-1]):
        for row, scale in enumerate(_multipliers(geometry, given, kind, chunk, np)):
            values = np.broadcast_to(scale, (chunk.stop - chunk.start, geometry.n_points(kind)))
            for place, own in by_group(out[:, row], chunk, values, np):
                place *= own


def magnitudes(geometry: PointMap, given: Coefficients) -> tuple[Array, Array]:
    """Of each element's coefficients that are not 0: the largest and the smallest, or 1, [E]."""
    largest, smallest = np.ones(geometry.n_elements), np.ones(geometry.n_elements)
    for chunk in geometry.chunks():
        diffusion, reaction = given.values(geometry, chunk, np)
        for values in (*(diffusion if given.tensor else [diffusion]), reaction):
            size = np.abs(np.broadcast_to(values, (chunk.stop - chunk.start, len(geometry.rule))))
            largest[chunk] = np.maximum(largest[chunk], size.max(axis=1))
            smallest[chunk] = np.minimum(smallest[chunk], size.min(axis=1, where=size > 0, initial=1.0))
    return largest, smallest
