"""A shape is built from the point by `product` (an ordinary direction) and `cone` (a collapsed one).

Local coordinates xi live in the bi-unit shape, collapsed coordinates eta in [-1, 1]^dim.

    product(base):  xi = (xi', eta_d)
    cone(base):     xi_k = (1 + xi'_k)(1 - eta_d)/2 - 1 for the base's coordinates,  xi_d = eta_d

Vertices, sub-entities, the collapse and its Jacobian all follow from these two; there is no table per shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from .arguments import coordinates, instance, integer, name_of, shown
from .arrays import Array
from .cached import cached_property
from .errors import ArgumentError

_REGISTRY: dict[str, Shape] = {}


@dataclass(frozen=True)
class Direction:
    """One collapsed coordinate: ordinary, or collapsed with the Jacobian factor ((1-z)/2)^alpha.

    Attributes
    ----------
    alpha : int
        Number of coordinates that the direction collapses; 0 in an ordinary one.
    """

    alpha: int

    @property
    def collapsed(self) -> bool:
        """Whether the direction is a collapsed one."""
        return self.alpha > 0


@dataclass(frozen=True)
class Entity:
    """A vertex, edge, face or the interior of a shape.

    Attributes
    ----------
    shape : Shape
        Shape of the entity.
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
        The shape to which the last direction was added; None for the point.
    directions : tuple of Direction
        One per collapsed coordinate.
    vertices : ndarray, [n_vertices, dim]
        Local coordinates of the vertices.
    boundary : tuple of tuple of Entity
        Sub-entities by dimension, 0 to dim - 1.
    """

    name: str
    base: Shape | None
    directions: tuple[Direction, ...]
    vertices: Array
    boundary: tuple[tuple[Entity, ...], ...] = field(repr=False)

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

    @cached_property
    def entities(self) -> tuple[tuple[Entity, ...], ...]:
        """Sub-entities by dimension, 0 to dim; the last is the shape itself."""
        return (*self.boundary, (Entity(self, tuple(range(self.n_vertices))),))

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
        xi = coordinates(eta, self.dim, self.name).copy()
        for k, direction in enumerate(self.directions):
            if direction.collapsed:
                xi[:, :k] = (1 + xi[:, :k]) * (1 - xi[:, k : k + 1]) / 2 - 1
        return xi

    def inverse_collapse(self, xi: Array) -> Array:
        """Collapsed coordinates of local ones, both [n, dim]; see `collapse`.

        At the apex of a cone, the base's coordinates are arbitrary; they are set to -1.
        """
        eta = coordinates(xi, self.dim, self.name).copy()
        for k in reversed(range(self.dim)):
            if self.directions[k].collapsed:
                height = 1 - eta[:, k : k + 1]
                near = np.abs(height) < 1e-14
                eta[:, :k] = np.where(near, -1.0, 2 * (1 + eta[:, :k]) / np.where(near, 1.0, height) - 1)
        return eta

    def collapse_matrix(self, eta: Array) -> Array:
        """Derivatives d xi_i / d eta_j of the collapse, [n, dim, dim]; see `collapse`."""
        xi = coordinates(eta, self.dim, self.name).T.copy()
        matrix = np.zeros((self.dim, *xi.shape))
        for k, (direction, z) in enumerate(zip(self.directions, xi, strict=True)):
            matrix[k, k] = 1
            if direction.collapsed:
                matrix[:k, :k] *= (1 - z) / 2
                matrix[:k, k] = -(1 + xi[:k]) / 2
                xi[:k] = (1 + xi[:k]) * (1 - z) / 2 - 1
        return np.moveaxis(matrix, 2, 0)

    def depth(self, xi: Array) -> Array:
        """Distance of points from the boundary, by the facets' inequalities.

        Parameters
        ----------
        xi : ndarray, [n, dim]
            Local coordinates.

        Returns
        -------
        ndarray, [n]
            The margin in the inequality of the closest facet, such as xi_1 >= -1 or xi_1 + xi_2 <= 0; negative outside.
        """
        unit = (1 + coordinates(xi, self.dim, self.name)) / 2
        return 2 * self._slack(unit, np.ones(len(unit)))

    def _slack(self, unit: Array, size: Array) -> Array:
        """Least of x_k and `size` - x_k.. over the facets of the unit shape scaled by `size`; negative outside."""
        if self.base is None:
            return size
        last = unit[:, -1]
        # At height x_d a cone's section is its base, scaled by the remaining height.
        section = self.base._slack(unit[:, :-1], size - last if self.collapsed else size)
        slack = np.minimum(section, last)
        return slack if self.collapsed else np.minimum(slack, size - last)

    def entity_number(self, vertices: tuple[int, ...]) -> tuple[int, int]:
        """Which entity has these vertices.

        Parameters
        ----------
        vertices : tuple of int
            Local vertex numbers, in any order.

        Returns
        -------
        tuple of int
            (dimension, number) of the entity.

        Raises
        ------
        ArgumentError
            If no entity has exactly these vertices.
        """
        if isinstance(vertices, (tuple, list)) and all(isinstance(vertex, (int, np.integer)) for vertex in vertices):
            wanted = frozenset(vertices)
            for dim, entities in enumerate(self.entities):
                for number, entity in enumerate(entities):
                    if frozenset(entity.vertices) == wanted:
                        return dim, number
        raise ArgumentError(f"a {self.name} has no entity with the vertices {shown(vertices)}")

    def lift(self, entity: tuple[int, int], to: Literal["low", "high", "swept"]) -> tuple[int, int]:
        """Entity of this shape that belongs to an entity of its base.

        Parameters
        ----------
        entity : tuple of int
            (dimension, number) of an entity of the base.
        to : str
            "low": the same entity at the base; "high": its copy at the top of a product, or the apex of a cone;
            "swept": the product of the entity and the segment, or the cone over it.

        Returns
        -------
        tuple of int
            (dimension, number) of the entity of this shape.

        Raises
        ------
        ArgumentError
            If the shape is the point, which has no base, or the base has no such entity.
        """
        if self.base is None:
            raise ArgumentError("a point has no base")
        if not isinstance(entity, (tuple, list)) or len(entity) != 2:
            raise ArgumentError(f"an entity is a pair (dimension, number), got {shown(entity)}")
        dim = integer(entity[0], 0, "the dimension of an entity", self.base.dim)
        number = integer(entity[1], 0, "the number of an entity", len(self.base.entities[dim]) - 1)
        name_of(to, ("low", "high", "swept"), "place above the base")
        copies = 1 if self.collapsed else 2
        if to == "low":
            return dim, number
        if to == "high":
            return (0, self.n_vertices - 1) if self.collapsed else (dim, number + len(self.base.entities[dim]))
        return dim + 1, number + (copies * len(self.base.entities[dim + 1]) if dim < self.base.dim else 0)


def get_shape(name: str) -> Shape:
    """The shape of that name.

    Parameters
    ----------
    name : str
        "point", "segment", "quad", "tri", "hex", "prism", "pyramid" or "tet".

    Returns
    -------
    Shape

    Raises
    ------
    ArgumentError
        If there is none; the message lists the names.
    """
    return _REGISTRY[name_of(name, _REGISTRY, "shape")]


def _register(shape: Shape) -> Shape:
    if not isinstance(shape.name, str) or not shape.name:
        raise ArgumentError(f"the name of a shape must be a text that is not empty, got {shown(shape.name)}")
    if shape.name in _REGISTRY:
        raise ArgumentError(f"there is a shape {shown(shape.name)} already; choose another name")
    shape.vertices.flags.writeable = False
    _REGISTRY[shape.name] = shape
    return shape


def _above(base: Shape, direction: Direction) -> Shape:
    """The registered shape that is `base` with a direction added; a cone over a point is the segment."""
    for shape in _REGISTRY.values():
        if shape.base is base and shape.directions[-1] == direction:
            return shape
    raise ArgumentError(f"make the {'cone' if direction.collapsed else 'product'} over a {base.name} first")


def product(base: Shape, name: str) -> Shape:
    """Append an ordinary direction: base x segment.

    Vertices are the base's at -1, then the base's at +1. The entities of dimension k are the base's k-entities
    at -1 and at +1, then its (k-1)-entities times the segment.

    Parameters
    ----------
    base : Shape
        Of any dimension.
    name : str
        Name of the new shape.

    Returns
    -------
    Shape

    Raises
    ------
    ArgumentError
        If the name is taken.
    """
    instance(base, Shape, "the base of a product")
    n, direction = base.n_vertices, Direction(0)
    vertices = np.concatenate([np.column_stack([base.vertices, np.full(n, end)]) for end in (-1.0, 1.0)])
    boundary = []
    for k in range(base.dim + 1):
        flat = [Entity(e.shape, tuple(v + shift for v in e.vertices)) for shift in (0, n) for e in base.entities[k]]
        swept = [
            Entity(_above(e.shape, direction), e.vertices + tuple(v + n for v in e.vertices))
            for e in (base.entities[k - 1] if k else ())
        ]
        boundary.append((*flat, *swept))
    return _register(Shape(name, base, (*base.directions, direction), vertices, tuple(boundary)))


def cone(base: Shape, name: str) -> Shape:
    """Append a collapsed direction: the cone over the base.

    Vertices are the base's, then the apex at (-1, .., -1, 1). The entities of dimension k are the base's
    k-entities, then the cones over its (k-1)-entities. The base is no point; for the rest see `product`.
    """
    if instance(base, Shape, "the base of a cone").dim == 0:
        raise ArgumentError("the cone over a point is the segment; use product")
    n, point = base.n_vertices, base.entities[0][0].shape
    vertices = np.concatenate([np.column_stack([base.vertices, np.full(n, -1.0)]), [[-1.0] * base.dim + [1.0]]])
    boundary = [tuple(Entity(point, (v,)) for v in range(n + 1))]
    for k in range(1, base.dim + 1):
        swept = [Entity(_above(e.shape, Direction(k - 1)), (*e.vertices, n)) for e in base.entities[k - 1]]
        boundary.append((*base.entities[k], *swept))
    return _register(Shape(name, base, (*base.directions, Direction(base.dim)), vertices, tuple(boundary)))


POINT = _register(Shape("point", None, (), np.zeros((1, 0)), ()))
