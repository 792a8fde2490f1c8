"""Vectors and gradients in a pointwise function, made of scalars, which are expressions or numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import ArgumentError


def _check_scalar(scale: Any, what: str) -> None:
    if isinstance(scale, (Vector, Gradient, list, tuple)):
        raise ArgumentError(f"a pointwise function has a vector {what} a vector; use a.dot(b), or their components")


class _NoArray:
    """Keeps NumPy from making an array of a vector's components."""

    __array_ufunc__ = None

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise ArgumentError("NumPy does not take vectors in a pointwise function; use a.dot(b), or components")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise ArgumentError(
            f"np.{function.__name__} does not take vectors in a pointwise function; use a.dot(b), or components"
        )


class Vector(_NoArray):
    """A vector with one scalar (array or expression) per space direction, or one object per component of a field.

    Parameters
    ----------
    components : sequence
        D scalars.
    """

    def __init__(self, components: Sequence[Any]) -> None:
        self.components = list(components)

    def __len__(self) -> int:
        return len(self.components)

    def __getitem__(self, i: int) -> Any:
        return self.components[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.components)

    def dot(self, other: Any) -> Any:
        """Scalar product.

        Parameters
        ----------
        other : Vector, Gradient or sequence
            D scalars.

        Returns
        -------
        scalar

        Raises
        ------
        ArgumentError
            If the numbers of components differ.
        """
        if len(other) != len(self):
            raise ArgumentError(f"dot product of vectors with {len(self)} and {len(other)} components")
        total = self[0] * other[0]
        for i in range(1, len(self)):
            total = total + self[i] * other[i]
        return total

    __matmul__ = dot

    def _pairs(self, other: Any) -> Iterator[tuple[Any, Any]]:
        if not isinstance(other, (Vector, Gradient, list, tuple)) or len(other) != len(self):
            raise ArgumentError(
                f"a vector of {len(self)} components can only be added to a vector of {len(self)} components, not to"
                f" {type(other).__name__}; a pointwise function has to say which component it means"
            )
        return zip(self, other, strict=True)

    def __add__(self, other: Any) -> Vector:
        return Vector([a + b for a, b in self._pairs(other)])

    __radd__ = __add__

    def __sub__(self, other: Any) -> Vector:
        return Vector([a - b for a, b in self._pairs(other)])

    def __rsub__(self, other: Any) -> Vector:
        return Vector([b - a for a, b in self._pairs(other)])

    def __mul__(self, scale: Any) -> Vector:
        _check_scalar(scale, "multiplied by")
        return Vector([a * scale for a in self])

    __rmul__ = __mul__

    def __truediv__(self, scale: Any) -> Vector:
        _check_scalar(scale, "divided by")
        return Vector([a / scale for a in self])

    def __neg__(self) -> Vector:
        return Vector([-a for a in self])


class Gradient(_NoArray):
    """A linear combination of the gradients of the trial's components, with scalar coefficients.

    It stays a combination under scaling and addition; asking for a component makes it a `Vector`.

    Parameters
    ----------
    terms : dict
        Coefficient of each trial component's gradient.
    source : callable
        c -> the D scalars of the gradient of component c.
    """

    def __init__(self, terms: dict[int, Any], source: Callable[[int], Sequence[Any]]) -> None:
        self.terms = terms
        self.source = source

    def vector(self) -> Vector:
        """Take the components, in x.

        Returns
        -------
        Vector

        Raises
        ------
        ArgumentError
            If there are no terms.
        """
        total: Vector | None = None
        for c, scale in self.terms.items():
            one = Vector(self.source(c))
            one = one if isinstance(scale, float) and scale == 1.0 else one * scale
            total = one if total is None else total + one
        if total is None:
            raise ArgumentError("a gradient flux without terms")
        return total

    def __len__(self) -> int:
        return len(self.vector())

    def __getitem__(self, i: int) -> Any:
        return self.vector()[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.vector())

    def dot(self, other: Any) -> Any:
        """Scalar product with a vector, a gradient or a sequence of D scalars; see `Vector.dot`."""
        return self.vector().dot(other.vector() if isinstance(other, Gradient) else other)

    __matmul__ = dot

    def _combined(self, other: Any, sign: float) -> Any:
        if isinstance(other, Gradient):
            terms = dict(self.terms)
            for c, scale in other.terms.items():
                scale = scale if sign > 0 else -scale
                terms[c] = terms[c] + scale if c in terms else scale
            return Gradient(terms, self.source)
        if isinstance(other, (int, float)) and other == 0:
            return self
        return self.vector() + other if sign > 0 else self.vector() - other

    def __add__(self, other: Any) -> Any:
        return self._combined(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combined(other, -1.0)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, scale: Any) -> Gradient:
        _check_scalar(scale, "multiplied by")
        return Gradient({c: s * scale for c, s in self.terms.items()}, self.source)

    __rmul__ = __mul__

    def __truediv__(self, scale: Any) -> Gradient:
        _check_scalar(scale, "divided by")
        return Gradient({c: s / scale for c, s in self.terms.items()}, self.source)

    def __neg__(self) -> Gradient:
        return Gradient({c: -s for c, s in self.terms.items()}, self.source)
