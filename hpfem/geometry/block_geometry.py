"""The maps of the elements of one block at the points of one rule, and their geometric factors, made at first use."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes import Shape, ShapeRule
from hpfem.shapes.arrays import Array, Floats, Indices, Mask
from hpfem.shapes.cached import cached_property

from ..memory import as_numpy, moved
from .element_map import CACHED, CHUNK, FLAT_TOLERANCE, ON_DEVICE, SURE, Elements, at_once, chunks
from .factors import PointMap, by_group
from .jacobians import determinant, determinant_and_inverse, scaled_jacobian
from .kinds import AFFINE, GENERAL, GeometryKind
from .products import Coefficients, NoCoefficients, magnitudes, products


class BlockGeometry(PointMap):
    """The maps of a block's elements at the points of a rule; `merged` are coefficients in the factors. `unit`: all
    elements are the reference element, and kernels need no factors.
    """

    def __init__(
        self,
        shape: Shape,
        order: int,
        coefficients: Any,
        rule: ShapeRule,
        kind: GeometryKind,
        merged: Coefficients | None = None,
        unit: bool = False,
        *,
        xp: Any = np,
    ) -> None:
        n_scales = 1 if merged is None or not merged.reacts else 2
        super().__init__(shape, order, coefficients, rule, kind, xp, n_scales)
        self.unit, self.merged, self.tensor = unit, merged, merged is not None and merged.tensor
        self.by_element = not self.tensor  # every element has its coefficients: no need of `write_factors`
        self._deviation: tuple[float, float] | None = None
        # Operators on the same block share their factors for as long as one of them lives.
        self._made: WeakValueDictionary[tuple[str, int, str], Floats] = WeakValueDictionary()
        self._merged: WeakValueDictionary[int, BlockGeometry] = WeakValueDictionary()

    def __reduce__(self) -> tuple[type[BlockGeometry], tuple[Any, ...]]:
        return BlockGeometry, (self.shape, self.order, self.coefficients, self.rule, self.kind, self.merged, self.unit)

    def part(self, n_elements: int) -> BlockGeometry:
        """The first elements by themselves, which share no factors with these."""
        given = self.given[:n_elements]
        return BlockGeometry(self.shape, self.order, given, self.rule, self.kind, self.merged, self.unit, xp=self.xp)

    def without_elements(self) -> BlockGeometry:
        """The same without elements, and without coefficients' values: small when pickled."""
        none = None if self.merged is None else NoCoefficients(self.merged.tensor, self.merged.reacts)
        return BlockGeometry(self.shape, self.order, self.given[:0], self.rule, self.kind, none, self.unit, xp=self.xp)

    def _again(self, rule: ShapeRule, kind: GeometryKind, merged: Coefficients | None = None) -> BlockGeometry:
        """The same maps, on the same devices, with other factors."""
        other = BlockGeometry(self.shape, self.order, self.given, rule, kind, merged, xp=self.xp)
        other._copies = self._copies
        return other

    def on_rule(self, rule: ShapeRule) -> BlockGeometry:
        """The same elements at the points of another rule."""
        return self._again(rule, self.kind)

    def straightened(self) -> BlockGeometry:
        """The same elements as affine ones, with their mean Jacobians."""
        return self._again(self.rule, AFFINE)

    def with_coefficients(self, coefficients: Coefficients) -> BlockGeometry:
        """The same elements with factors that coefficients are multiplied into; made anew, and shared with nobody."""
        found = self._again(self.rule, self.kind, coefficients)
        self._merged[id(found)] = found
        return found

    def related(self) -> list[BlockGeometry]:
        """Itself, and the geometries that were made of it by `with_coefficients` and are in use."""
        # Taken at once: other threads may make some meanwhile.
        return [self, *(found for ref in self._merged.valuerefs() if (found := ref()) is not None)]

    def deviation(self, xp: Any = np) -> tuple[float, float]:
        """Root mean squares over elements of |J_0^-1 J - I| (Frobenius; J_0: mean): of all, and the largest."""
        if self._deviation is not None:
            return self._deviation
        mean, _ = self.reference(AFFINE)
        rest, weights = self.gradient - mean, self.rule.weights / self.rule.weights.sum()
        # J_0^-1 J - I is a sum over the modes of the map of J_0^-1 c times what differs from the mean gradient.
        products = xp.asarray(np.einsum("amq,anq->mn", rest * weights, rest, optimize=True))
        total = largest = 0.0
        most = CHUNK * (1 if xp is np else ON_DEVICE)
        for some in chunks(self.n_elements, 4 * self.space_dim * self.basis.n_modes, most=most):
            _, inverse = determinant_and_inverse(self.jacobian(mean, some, xp), xp)
            bent = xp.matmul(inverse[..., 0].transpose(2, 0, 1), self.coefficients_of(some, xp))
            # As one product, of which batches take several times as long.
            squares = ((bent.reshape(-1, len(products)) @ products).reshape(bent.shape) * bent).sum(axis=(1, 2))
            total, largest = total + float(squares.sum()), max(largest, float(squares.max()))
        self._deviation = sqrt(total / max(1, self.n_elements)), sqrt(largest)
        return self._deviation

    @cached_property
    def widths(self) -> Array:
        """Sizes of the elements, roughly: of their largest coefficients but the constant ones, [E]."""
        xp, widths = self.xp, np.empty(len(self.given))
        for part in chunks(len(widths), self.given[:1].size, most=at_once(xp)):
            own = abs(self.given[part, :, 1:])
            widths[part] = as_numpy(own.reshape(len(own), -1).max(axis=1))
        return widths

    @cached_property
    def magnitudes(self) -> tuple[Array, ...]:
        """Largest and smallest of each element's merged coefficients, if there are some; see `magnitudes`."""
        return () if self.merged is None else magnitudes(self, self.merged)

    def weights(self) -> Array:
        """Quadrature weights times |J|, [E, Q]."""
        stored = self.factors("wJ")[:, 0, :, 0]
        return np.asarray(stored * self.rule.weights if self.affine else stored, dtype=np.float64)

    def inverse_and_weights(self, elements: Elements, xp: Any = np) -> tuple[Any, Any]:
        """For derivatives and integrals, of any kind: d eta_a/dx_i [d, D, E, Q], and weights times |J| [E, Q]."""
        gradient, weights = self.reference(GENERAL)
        det, inverse = determinant_and_inverse(self.jacobian(gradient, elements, xp), xp)
        return inverse, moved(weights, xp) * det

    def volume_factors(self, elements: Elements = slice(None), xp: Any = np) -> Any:
        """|J| by xi, the factor in integrals over the reference element, [E, Q], or [E, 1] where it is constant."""
        gradient, weights = self.reference()
        det = determinant(self.jacobian(gradient, elements, xp), xp)
        return det if self.affine else det * moved(weights / self.rule.weights, xp)

    def surely_regular(self) -> Mask:
        """Elements whose scaled Jacobians are above `FLAT_TOLERANCE` by a bound, see `sure_signs`; [E]."""
        # det J C over the product of its columns' lengths is at least that share of det J over the largest length.
        C = self.shape.collapse_matrix(self.rule.eta)
        share = np.linalg.det(C) / np.abs(C).sum(axis=1).prod(axis=1)
        if share.min() * SURE <= FLAT_TOLERANCE:
            return np.zeros(self.n_elements, dtype=bool)
        return np.asarray(as_numpy(self.sure_signs(self.gradient) > 0))

    def scaled_jacobian(self, elements: Indices, xp: Any = np) -> Array:
        """Smallest scaled Jacobian at the points, of each of some elements, [n]: positive unless tangled there."""
        smallest = np.empty(len(elements))
        numbers = 2 * len(self.rule) * self.dim * self.space_dim
        for chunk in chunks(len(elements), numbers, most=CACHED if xp is np else CHUNK):
            J = self.jacobian(self.gradient_eta, elements[chunk], xp)
            smallest[chunk] = as_numpy(scaled_jacobian(J, determinant(J, xp), xp).min(axis=1))
        return smallest

    def factors_of(self, kind: str, elements: Elements, xp: Any = np) -> Iterator[Any]:
        """Factors of some elements, one [E, S] after the other."""
        if self.merged is None:
            return self.plain_factors(kind, elements, xp)
        return products(self, self.merged, kind, elements, xp)

    def factors(self, kind: str, lanes: int = 1, dtype: DTypeLike = np.float64) -> Floats:
        """Factors of a kind, zeros past the last element, read-only; -> [groups, n_factors, n_points, lanes]."""
        key = (kind, lanes, np.dtype(dtype).name)
        made = self._made.get(key)
        if made is None:
            made = self._make_factors(kind, lanes, dtype)
            made.flags.writeable = False
            self._made[key] = made
        return made

    def _make_factors(self, kind: str, lanes: int, dtype: DTypeLike) -> Floats:
        groups = -(-self.n_elements // lanes)
        out = np.empty((groups, self.n_factors(kind), self.n_points(kind), lanes), dtype)
        self.write_factors(kind, out)
        return out

    def write_factors(self, kind: str, out: Any, xp: Any = np, size: int | None = None) -> None:
        """Write factors, computed in float64; out [groups, n_factors, *points, lanes], a view; see `chunks`."""
        lanes = out.shape[-1]
        for chunk in self.chunks(lanes, size):
            for row, values in enumerate(self.factors_of(kind, chunk, xp)):
                for place, own in by_group(out[:, row], chunk, values, xp):
                    place[...] = own
        if rest := self.n_elements % lanes:
            out[-1, ..., rest:] = 0

    def held(self) -> dict[str, int]:
        """Count the bytes of the factors on the host that are in use now, by kind."""
        found: dict[str, int] = {}
        # Taken at once: other threads may make factors meanwhile.
        for reference in [reference for one in self.related() for reference in one._made.valuerefs()]:
            array = reference()
            if array is not None:
                kind = reference.key[0]
                found[kind] = found.get(kind, 0) + array.nbytes
        return found
