"""A shape is built from the point by `product` (an ordinary direction) and `cone` (a collapsed one).

Local coordinates xi live in the bi-unit shape, collapsed coordinates eta in [-1, 1]^dim.

    product(base):  xi = (xi', eta_d)
    cone(base):     xi_k = (1 + xi'_k)(1 - eta_d)/2 - 1 for the base's coordinates,  xi_d = eta_d

Vertices, sub-entities, the collapse and its Jacobian all follow from these two; there is no table per shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .errors import ArgumentError
from .polynomials import Array

_REGISTRY: dict[str, Shape] = {}


@dataclass(frozen=True)
class Direction:
    """One collapsed coordinate: ordinary (alpha 0) or collapsed with Jacobian factor ((1-z)/2)^alpha."""

    collapsed: bool
    alpha: int


@dataclass(frozen=True)
class Entity:
    """A vertex, edge, face or the interior of a shape.

    Attributes
    ----------
    shape : Shape
        What the entity is.
    vertices : tuple of int
        Local vertex numbers of the shape it belongs to, in the vertex order of `Entity.shape`.
    """

    shape: Shape
    vertices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Shape:
    """A reference element.

    Attributes
    ----------
    name : str
        "point", "segment", "quad", "tri", "hex", "prism", "pyramid" or "tet".
    base : Shape or None
        What the last direction was added to.
    directions : tuple of Direction
        One per collapsed coordinate.
    vertices : ndarray, [n_vertices, dim]
        Local coordinates of the vertices.
    entities : tuple of tuple of Entity
        Sub-entities by dimension, 0 to dim.
    """

    name: str
    base: Shape | None
    directions: tuple[Direction, ...]
    vertices: Array
    entities: tuple[tuple[Entity, ...], ...] = field(repr=False)

    def __reduce__(self) -> tuple[Callable[[str], Shape], tuple[str]]:
        return get_shape, (self.name,)

    def __repr__(self) -> str:
        return f"Shape({self.name!r})"

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.directions)

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        return len(self.vertices)

    @property
    def collapsed(self) -> bool:
        """Whether the last direction is a collapsed one."""
        return self.dim > 0 and self.directions[-1].collapsed

    @property
    def edges(self) -> tuple[Entity, ...]:
        """Entities of dimension 1."""
        return self.entities[1]

    @property
    def faces(self) -> tuple[Entity, ...]:
        """Entities of dimension 2."""
        return self.entities[2]

    @property
    def facets(self) -> tuple[Entity, ...]:
        """Entities of dimension dim - 1."""
        return self.entities[self.dim - 1]

    @cached_property
    def volume(self) -> float:
        """Volume of the reference shape."""
        return float(np.prod([2.0 / (direction.alpha + 1) for direction in self.directions]))

    def collapse(self, eta: Array) -> Array:
        """Local coordinates of collapsed ones (the Duffy map).

        Parameters
        ----------
        eta : ndarray, [n, dim]
            Points of [-1, 1]^dim.

        Returns
        -------
        ndarray, [n, dim]
        """
        eta = np.asarray(eta, dtype=float)
        if self.base is None:
            return eta.copy()
        xi, z = self.base.collapse(eta[:, :-1]), eta[:, -1:]
        if self.collapsed:
            xi = (1 + xi) * (1 - z) / 2 - 1
        return np.concatenate([xi, z], axis=1)

    def inverse_collapse(self, xi: Array) -> Array:
        """Collapsed coordinates of local ones.

        At the apex of a cone, where any base point would do, the base's coordinates are -1.

        Parameters
        ----------
        xi : ndarray, [n, dim]
            Local coordinates.

        Returns
        -------
        ndarray, [n, dim]
        """
        xi = np.asarray(xi, dtype=float)
        if self.base is None:
            return xi.copy()
        base, z = xi[:, :-1], xi[:, -1:]
        if self.collapsed:
            height = 1 - z
            near = np.abs(height) < 1e-14
            base = np.where(near, -1.0, 2 * (1 + base) / np.where(near, 1.0, height) - 1)
        return np.concatenate([self.base.inverse_collapse(base), z], axis=1)

    def collapse_matrix(self, eta: Array) -> Array:
        """Derivatives d xi_i / d eta_j of the collapse.

        Parameters
        ----------
        eta : ndarray, [n, dim]
            Collapsed coordinates.

        Returns
        -------
        ndarray, [n, dim, dim]
        """
        eta = np.asarray(eta, dtype=float)
        matrix = np.zeros((len(eta), self.dim, self.dim))
        if self.base is None:
            return matrix
        inner, z = self.base.collapse_matrix(eta[:, :-1]), eta[:, -1]
        matrix[:, -1, -1] = 1
        if self.collapsed:
            matrix[:, :-1, :-1] = inner * ((1 - z) / 2)[:, None, None]
            matrix[:, :-1, -1] = -(1 + self.base.collapse(eta[:, :-1])) / 2
        else:
            matrix[:, :-1, :-1] = inner
        return matrix

    def contains(self, xi: Array, tolerance: float = 1e-10) -> np.ndarray:
        """Whether local coordinates lie in the shape, [n] of bool."""
        xi = np.asarray(xi, dtype=float)
        if self.base is None:
            return np.ones(len(xi), dtype=bool)
        base, z = xi[:, :-1], xi[:, -1]
        inside = np.abs(z) <= 1 + tolerance
        if self.collapsed:
            height = np.maximum((1 - z) / 2, 1e-300)[:, None]
            scaled = (1 + base) / height - 1
            near = height[:, 0] < tolerance
            loose = np.all(np.abs(1 + base) <= 4 * tolerance, axis=1)
            return inside & np.where(
                near, loose, self.base.contains(scaled, tolerance / np.maximum(height[:, 0], tolerance))
            )
        return inside & self.base.contains(base, tolerance)

    def entity_number(self, vertices: tuple[int, ...]) -> tuple[int, int]:
        """Dimension and number of the entity with this set of local vertices."""
        wanted = frozenset(vertices)
        for dim, entities in enumerate(self.entities):
            for number, entity in enumerate(entities):
                if frozenset(entity.vertices) == wanted:
                    return dim, number
        raise ArgumentError(f"{self.name} has no entity with vertices {vertices}")


def get_shape(name: str) -> Shape:
    """The shape of that name.

    Raises
    ------
    ArgumentError
        If there is none; the message lists the names.
    """
    try:
        return _REGISTRY[name]
    except KeyError:
        raise ArgumentError(f"unknown shape {name!r}; valid: {', '.join(_REGISTRY)}") from None


def _register(
    name: str,
    base: Shape | None,
    directions: tuple[Direction, ...],
    vertices: Array,
    signature: list[list[tuple[str, tuple[int, ...]]]],
) -> Shape:
    vertices.flags.writeable = False
    entities: list[tuple[Entity, ...]] = [
        tuple(Entity(get_shape(kind), numbers) for kind, numbers in of_dim) for of_dim in signature
    ]
    shape = Shape(name, base, directions, vertices, tuple(entities))
    own = Entity(shape, tuple(range(len(vertices))))
    object.__setattr__(shape, "entities", (*entities, (own,)))
    _REGISTRY[name] = shape
    return shape


def _extruded(shape: Shape) -> str:
    return {"point": "segment", "segment": "quad", "quad": "hex", "tri": "prism"}[shape.name]


def _coned(shape: Shape) -> str:
    return {"point": "segment", "segment": "tri", "tri": "tet", "quad": "pyramid"}[shape.name]


def product(base: Shape, name: str) -> Shape:
    """Append an ordinary direction: base x segment.

    Vertices are the base's at -1, then the base's at +1. The entities of dimension k are the base's k-entities
    at -1 and at +1, then its (k-1)-entities times the segment.

    Parameters
    ----------
    base : Shape
        Of dimension 0 to 2.
    name : str
        Name of the new shape.

    Returns
    -------
    Shape
    """
    n = base.n_vertices
    vertices = np.concatenate([np.column_stack([base.vertices, np.full(n, end)]) for end in (-1.0, 1.0)])
    signature = []
    for k in range(base.dim + 1):
        flat = [(e.shape.name, tuple(v + shift for v in e.vertices)) for shift in (0, n) for e in base.entities[k]]
        tall = (
            [(_extruded(e.shape), e.vertices + tuple(v + n for v in e.vertices)) for e in base.entities[k - 1]]
            if k
            else []
        )
        signature.append(flat + tall)
    return _register(name, base, (*base.directions, Direction(False, 0)), vertices, signature)


def cone(base: Shape, name: str) -> Shape:
    """Append a collapsed direction: the cone over the base.

    Vertices are the base's, then the apex at (-1, .., -1, 1). The entities of dimension k are the base's
    k-entities, then the cones over its (k-1)-entities.

    Parameters
    ----------
    base : Shape
        Of dimension 1 or 2.
    name : str
        Name of the new shape.

    Returns
    -------
    Shape
    """
    n = base.n_vertices
    vertices = np.concatenate([np.column_stack([base.vertices, np.full(n, -1.0)]), [[-1.0] * base.dim + [1.0]]])
    signature = [[("point", (v,)) for v in range(n + 1)]]
    for k in range(1, base.dim + 1):
        flat = [(e.shape.name, e.vertices) for e in base.entities[k]]
        signature.append(flat + [(_coned(e.shape), (*e.vertices, n)) for e in base.entities[k - 1]])
    return _register(name, base, (*base.directions, Direction(True, base.dim)), vertices, signature)


POINT = _register("point", None, (), np.zeros((1, 0)), [])
