"""Geometric factors of a block, made on first need and in the layout that a strategy asks for.

J = dx/d xi is D x d with D >= d; |J| = sqrt(det(J^T J)), the metric is (J^T J)^-1. With C = d xi/d eta the collapse:

    kind        affine (one value an element)          deformed (one value a point)
    "wJ"        |J|                                    w |J|
    "metric"    |J| (J^T J)^-1 in xi, then |J|         w |J| (J_eta^T J_eta)^-1 with J_eta = J C, then w |J|
    "jacobian"  d xi_a/dx_i, then |J|                  d eta_a/dx_i, then w |J|
    "points"    -                                      x_i (for both geometry kinds)

A symmetric matrix is stored as (0,0) (0,1) .. (0,d-1) (1,1) .. ; d xi_a/dx_i as a*D + i. Layout of every array:

    factors[group, factor, point, lane],  element = group * lanes + lane,  zeros past the last element

With one lane this is [element, factor, point]. Affine factors have one point; `expansion` is what a kernel multiplies
them by to get the deformed ones.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes import Basis, Shape, TensorRule, make_basis
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError

Array = NDArray[np.float64]

KINDS = ("wJ", "metric", "jacobian", "points")
# Entries of Jacobians that are made at a time: with everything made of them ten times as many numbers.
CHUNK = 2_000_000


def symmetric_pairs(dim: int) -> list[tuple[int, int]]:
    """Index pairs of a stored symmetric matrix, row by row of its upper triangle."""
    return [(a, b) for a in range(dim) for b in range(a, dim)]


def cofactor(J: Any, a: int, i: int) -> Any:
    """Cofactor of the entry J[i, a] of many d x d matrices [d, d, ...], d <= 3: entry (a, i) of the adjugate."""
    if len(J) == 1:
        return 0 * J[0, 0] + 1
    if len(J) == 2:
        return J[1 - i, 1 - a] if i == a else -J[1 - i, 1 - a]
    # Cyclic neighbours instead of minors: the signs come out by themselves.
    (i1, i2), (a1, a2) = ((i + 1) % 3, (i + 2) % 3), ((a + 1) % 3, (a + 2) % 3)
    return J[i1, a1] * J[i2, a2] - J[i1, a2] * J[i2, a1]


def gram(J: Any, xp: Any = np) -> Any:
    """J^T J of many matrices [D, d, ...]."""
    return xp.einsum("ia...,ib...->ab...", J, J)


def determinant(J: Any, xp: Any = np) -> Any:
    """Determinant of many small matrices; of tall ones the area.

    Parameters
    ----------
    J : array, [D, d, ...]
        D >= d.
    xp : module
        NumPy, or another module of arrays like it that J is of: CuPy.

    Returns
    -------
    array, [...]
        det J, or sqrt(det(J^T J)) for D > d.
    """
    if J.shape[0] > J.shape[1]:
        return xp.sqrt(xp.maximum(determinant(gram(J, xp), xp), 0.0))
    return sum((J[i, 0] * cofactor(J, 0, i) for i in range(1, len(J))), J[0, 0] * cofactor(J, 0, 0))


def determinant_and_inverse(J: Any, xp: Any = np) -> tuple[Any, Any]:
    """Determinant and inverse of many small matrices, by cofactors; of tall ones the area and the left inverse.

    Parameters
    ----------
    J : array, [D, d, ...]
        D >= d.
    xp : module
        See `determinant`.

    Returns
    -------
    determinant : array, [...]
        See `determinant`.
    inverse : array, [d, D, ...]
        J^-1, or (J^T J)^-1 J^T. Not finite where J is singular.
    """
    big, d = J.shape[:2]
    if big > d:
        det, inverse = determinant_and_inverse(gram(J, xp), xp)
        return xp.sqrt(xp.maximum(det, 0.0)), xp.einsum("ab...,ib...->ai...", inverse, J)
    inverse = xp.empty(J.shape)
    for a in range(d):
        for i in range(d):
            inverse[a, i] = cofactor(J, a, i)
    det = sum((J[i, 0] * inverse[0, i] for i in range(1, d)), J[0, 0] * inverse[0, 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse /= det
    return det, inverse


class BlockGeometry:
    """The mapping of the elements of one block, at the points of one rule.

    Parameters
    ----------
    shape : Shape
    order : int
        Geometry order k.
    coefficients : ndarray, [E, D, n_geometry_modes]
        Coordinates in the orthogonal basis of order k.
    rule : TensorRule
        Where the factors are needed.
    affine : bool
        Whether the Jacobian is constant in every element.
    """

    def __init__(self, shape: Shape, order: int, coefficients: Array, rule: TensorRule, affine: bool) -> None:
        self.shape = shape
        self.order = order
        self.coefficients = coefficients
        self.rule = rule
        self.affine = affine
        # Operators on the same block share their factors for as long as one of them lives.
        self._made: WeakValueDictionary[tuple[str, int, str], NDArray[np.floating[Any]]] = WeakValueDictionary()

    def __reduce__(self) -> tuple[type[BlockGeometry], tuple[Any, ...]]:
        return BlockGeometry, (self.shape, self.order, self.coefficients, self.rule, self.affine)

    def part(self, n_elements: int) -> BlockGeometry:
        """Take the first elements by themselves.

        Parameters
        ----------
        n_elements : int
            At most as many as there are.

        Returns
        -------
        BlockGeometry
            A new one, that shares no factors with this one.
        """
        return BlockGeometry(self.shape, self.order, self.coefficients[:n_elements], self.rule, self.affine)

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return len(self.coefficients)

    @property
    def dim(self) -> int:
        """Reference dimension d."""
        return self.shape.dim

    @property
    def space_dim(self) -> int:
        """Dimension D of the coordinates."""
        return int(self.coefficients.shape[1])

    @cached_property
    def basis(self) -> Basis:
        """Basis of the coordinates."""
        return make_basis("orthogonal", self.shape, self.order)

    @cached_property
    def _values(self) -> Array:
        return self.basis.evaluate(self.shape.collapse(self.rule.eta))

    @cached_property
    def _derivatives(self) -> Array:
        return self.basis.gradient_eta(self.rule.eta)

    @cached_property
    def _collapse(self) -> Array:
        return self.shape.collapse_matrix(self.rule.eta)

    @cached_property
    def _mean_derivatives(self) -> Array:
        """Mean over the element of the basis' derivatives by xi, [n_geometry_modes, d].

        The Jacobian of an affine element through them is exact where the test of affinity holds to rounding.
        """
        w = self.rule.weights / self.rule.weights.sum()
        return np.einsum("q,amq,qab->mb", w, self._derivatives, np.linalg.inv(self._collapse), optimize=True)

    def n_factors(self, kind: str) -> int:
        """Numbers per point (deformed) or element (affine) of a kind of factors."""
        d, big = self.dim, self.space_dim
        counts = {"wJ": 1, "metric": d * (d + 1) // 2 + 1, "jacobian": d * big + 1, "points": big}
        if kind not in counts:
            raise ArgumentError(f"unknown kind of geometric factors {kind!r}; valid: {', '.join(KINDS)}")
        return counts[kind]

    def n_points(self, kind: str) -> int:
        """Points that a kind of factors is stored at: 1 for affine ones."""
        return 1 if self.affine and kind != "points" else len(self.rule)

    def chunks(self, lanes: int = 1, size: int | None = None) -> list[slice]:
        """Ranges of elements whose values at the points take tens of megabytes.

        Parameters
        ----------
        lanes : int
            Elements that stay together.
        size : int, optional
            Entries of Jacobians of a range at most, if it has more than `lanes` elements; `CHUNK` when left out.

        Returns
        -------
        list of slice
        """
        fit = (CHUNK if size is None else size) // (len(self.rule) * self.dim * self.space_dim)
        step = max(1, fit // lanes) * lanes
        return [slice(e, min(e + step, self.n_elements)) for e in range(0, self.n_elements, step)]

    def coordinates(self, elements: slice = slice(None)) -> Array:
        """Points in space.

        Parameters
        ----------
        elements : slice
            Which elements of the block.

        Returns
        -------
        ndarray, [D, E, Q]
        """
        return np.matmul(self.coefficients[elements].transpose(1, 0, 2), self._values)

    def jacobian(self, elements: slice = slice(None)) -> Array:
        """Derivatives dx_i/d eta_a at the points.

        Parameters
        ----------
        elements : slice
            Which elements of the block.

        Returns
        -------
        ndarray, [E, Q, D, d]
        """
        return np.ascontiguousarray(self._columns(elements).transpose(3, 2, 0, 1))

    def _columns(self, elements: slice, xp: Any = np) -> Any:
        """Derivatives dx_i/d eta_a at the points, [D, d, Q, E]."""
        c = xp.asarray(self.coefficients[elements]).transpose(1, 2, 0)
        derivatives = xp.asarray(self._derivatives.transpose(0, 2, 1).reshape(-1, self.basis.n_modes))
        return xp.matmul(derivatives, c).reshape(self.space_dim, self.dim, len(self.rule), -1)

    def _factors(self, kind: str, elements: slice, xp: Any = np) -> Any:
        """Factors of a chunk, [factor, point, element]."""
        c = xp.asarray(self.coefficients[elements])
        if kind == "points":
            return xp.matmul(c.transpose(1, 0, 2), xp.asarray(self._values)).transpose(0, 2, 1)
        if self.affine:
            jacobian = xp.matmul(c, xp.asarray(self._mean_derivatives)).transpose(1, 2, 0)[:, :, None]
            scale = np.ones(1)
        else:
            jacobian = self._columns(elements, xp)
            scale = self.rule.weights / np.linalg.det(self._collapse)
        weight = xp.asarray(scale)[:, None]
        if kind == "wJ":
            return (weight * determinant(jacobian, xp))[None]
        det, inverse = determinant_and_inverse(jacobian, xp)
        weighted = weight * det
        if kind == "metric":
            rows = [
                weighted * sum(inverse[a, i] * inverse[b, i] for i in range(self.space_dim))
                for a, b in symmetric_pairs(self.dim)
            ]
        else:
            rows = list(inverse.reshape(-1, *weighted.shape))
        return xp.stack([*rows, weighted])

    def flatness(self) -> Array:
        """Smallest det J over the product of the lengths of J's columns, of every element.

        Returns
        -------
        ndarray, [E]
            In [-1, 1]; where it is not positive, the element is tangled at a point of the rule.
        """
        smallest = np.empty(self.n_elements)
        for chunk in self.chunks():
            J = self._columns(chunk)
            lengths = np.prod(np.sqrt(np.sum(J * J, axis=0)), axis=0)
            det = determinant(J)
            smallest[chunk] = np.divide(det, lengths, out=np.zeros_like(det), where=lengths > 0).min(axis=0)
        return smallest

    def factors(self, kind: str, lanes: int = 1, dtype: DTypeLike = np.float64) -> NDArray[np.floating[Any]]:
        """Make the factors of a kind.

        Parameters
        ----------
        kind : str
            "wJ", "metric", "jacobian" or "points".
        lanes : int
            Elements stored next to each other.
        dtype : dtype
            float64 or float32; computed in float64.

        Returns
        -------
        ndarray, [groups, n_factors, n_points, lanes]
            C-ordered and read-only; zeros past the last element.
        """
        key = (kind, lanes, np.dtype(dtype).name)
        made = self._made.get(key)
        if made is None:
            made = self._make_factors(kind, lanes, dtype)
            made.flags.writeable = False
            self._made[key] = made
        return made

    def _make_factors(self, kind: str, lanes: int, dtype: DTypeLike) -> NDArray[np.floating[Any]]:
        groups = -(-self.n_elements // lanes)
        out = np.empty((groups, self.n_factors(kind), self.n_points(kind), lanes), dtype)
        self.write_factors(kind, out)
        return out

    def write_factors(self, kind: str, out: Any, xp: Any = np, size: int | None = None) -> None:
        """Make the factors of a kind where they are wanted.

        Parameters
        ----------
        kind : str
            "wJ", "metric", "jacobian" or "points".
        out : array of xp, [groups, n_factors, *points, lanes]
            Overwritten: computed in float64, then rounded; zeros past the last element. It may be a view with any
            strides, with its points in as many axes as that takes, the first direction slowest.
        xp : module
            NumPy or CuPy: where `out` is, and where everything is computed.
        size : int, optional
            See `chunks`.
        """
        lanes = out.shape[-1]
        for chunk in self.chunks(lanes, size):
            values = self._factors(kind, chunk, xp)
            first, (full, rest) = chunk.start // lanes, divmod(values.shape[-1], lanes)
            groups = values[..., : full * lanes].reshape(*values.shape[:-1], full, lanes)
            out[first : first + full] = xp.moveaxis(groups, 2, 0).reshape(full, *out.shape[1:])
            if rest:
                last = out[first + full]
                last[...] = 0
                last[..., :rest] = values[..., full * lanes :].reshape(*out.shape[1:-1], rest)

    def held(self) -> dict[str, int]:
        """Bytes of the factors on the host that something uses now, by kind."""
        found: dict[str, int] = {}
        for (kind, *_), array in list(self._made.items()):
            found[kind] = found.get(kind, 0) + array.nbytes
        return found

    def expansion(self, kind: str) -> Array:
        """Matrix from the affine factors of an element to the factors at the points.

        Parameters
        ----------
        kind : str
            "wJ", "metric" or "jacobian".

        Returns
        -------
        ndarray, [n_factors at a point, Q, n_factors of the element]
        """
        return reference_expansion(self.shape, self.rule, self.space_dim, kind)

    def volumes(self) -> Array:
        """Volume of every element by the rule, [E]."""
        total = np.concatenate([self._factors("wJ", chunk)[0].sum(axis=0) for chunk in self.chunks()] or [np.empty(0)])
        return total * self.shape.volume if self.affine else total


def reference_expansion(shape: Shape, rule: TensorRule, space_dim: int, kind: str) -> Array:
    """Affine factors of an element to factors at the points: the collapse, as reference data.

    Parameters
    ----------
    shape : Shape
    rule : TensorRule
    space_dim : int
        D.
    kind : str
        "wJ", "metric" or "jacobian".

    Returns
    -------
    ndarray, [n_factors at a point, Q, n_factors of the element]
    """
    w, d = rule.weights, shape.dim
    inverse = np.linalg.inv(shape.collapse_matrix(rule.eta))  # [Q, a, i] = d eta_a/d xi_i
    if kind == "wJ":
        return w[None, :, None].copy()
    if kind == "metric":
        pairs = symmetric_pairs(d)
        matrix = np.zeros((len(pairs) + 1, len(rule), len(pairs) + 1))
        for row, (a, b) in enumerate(pairs):
            for column, (i, j) in enumerate(pairs):
                term = inverse[:, a, i] * inverse[:, b, j]
                matrix[row, :, column] = w * (term if i == j else term + inverse[:, a, j] * inverse[:, b, i])
    elif kind == "jacobian":
        matrix = np.zeros((d * space_dim + 1, len(rule), d * space_dim + 1))
        for a in range(d):
            for i in range(d):
                for k in range(space_dim):
                    matrix[a * space_dim + k, :, i * space_dim + k] = inverse[:, a, i]
    else:
        raise ArgumentError(f"geometric factors {kind!r} have no affine form; valid: wJ, metric, jacobian")
    matrix[-1, :, -1] = w
    return matrix
