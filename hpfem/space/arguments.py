"""Checks of what a space is made of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes import SHAPES, PointRule, Shape, ShapeRule, default_counts, quadrature, simplex_quadrature
from hpfem.shapes.arguments import integer, name_of, shown
from hpfem.shapes.quadrature import SIMPLEX_UP_TO

from ..errors import ArgumentError
from ..mesh import Mesh

# Beyond these, bases and rules still work but take minutes to make and gigabytes to hold.
MAX_ORDER = 32
MAX_POINTS = 100
MAX_COMPONENTS = 100_000

# A user's choice of quadrature: a name, a number of additional points, or one of these for each shape.
Quadrature = str | int | None | Mapping[str, str | int | None]


def checked_dtype(given: DTypeLike) -> np.dtype[Any]:
    """Type of the values on a space."""
    try:
        dtype = np.dtype(given)
    except Exception:  # noqa: BLE001 - NumPy asks the object itself for what it is
        dtype = None
    if dtype not in (np.float64, np.float32):
        raise ArgumentError(f"a dtype is float64 or float32, got {shown(given)}")
    return dtype


def checked_orders(order: int | Mapping[str, int], mesh: Mesh) -> dict[str, int]:
    """Polynomial orders of the shapes of a mesh."""
    names = list(dict.fromkeys(group.shape.name for group in mesh.cells))
    if not isinstance(order, Mapping):
        order = dict.fromkeys(names, order)
    for name in order:
        name_of(name, SHAPES, "shape", " in order")
    missing = [name for name in names if name not in order]
    if missing:
        raise ArgumentError(f"order has no value for {', '.join(missing)}, which the mesh has")
    for name in names:
        integer(order[name], 1, f"the order for {name}", MAX_ORDER)
    return {name: int(order[name]) for name in names}


def checked_quadrature(quadrature: Quadrature) -> Quadrature:
    """Check the names of shapes in a choice by shape, and copy the choice."""
    if not isinstance(quadrature, Mapping):
        return quadrature
    for name in quadrature:
        name_of(name, SHAPES, "shape", " in quadrature")
    return dict(quadrature)


def simplex_rules(orders: Mapping[str, int]) -> dict[str, PointRule]:
    """Symmetric rules of those shapes that have one."""
    found = {}
    for name, order in orders.items():
        with suppress(ArgumentError):
            found[name] = simplex_quadrature(SHAPES[name], order)
    return found


def named_rules(choice: Quadrature, orders: Mapping[str, int]) -> dict[str, str | int]:
    """The choice of each shape, with the default rule by its name."""
    given = choice if isinstance(choice, Mapping) else dict.fromkeys(orders, choice)
    own = {name: rule for name, rule in given.items() if rule is not None}
    defaults = {name: "simplex" if P <= SIMPLEX_UP_TO.get(name, 0) else "collapsed" for name, P in orders.items()}
    return defaults | own


def other_rule(shape: Shape, order: int, rule: ShapeRule) -> tuple[str, ShapeRule] | None:
    """Of the simplex and the collapsed rule, if a shape has both, the one that is not given, with its name."""
    name = "simplex" if rule.tensor else "collapsed"
    found = simplex_rules({shape.name: order}).get(shape.name)
    return None if found is None else (name, found if rule.tensor else chosen_rule(shape, order, name))


def chosen_rule(shape: Shape, order: int, choice: Quadrature) -> ShapeRule:
    """Quadrature of a shape."""
    choice = named_rules(choice, {shape.name: order})[shape.name]
    if isinstance(choice, str) and choice == "collapsed":
        return quadrature(shape, default_counts(shape, order))
    if isinstance(choice, str) and choice == "gauss":
        return quadrature(shape, default_counts(shape, order), ["gauss"] * shape.dim)
    if isinstance(choice, str) and choice == "collocated":
        return quadrature(shape, [order + 1] * shape.dim)
    if isinstance(choice, str) and choice == "simplex":
        return simplex_quadrature(shape, order)
    if isinstance(choice, (int, np.integer)) and not isinstance(choice, bool):
        counts = default_counts(shape, order, int(choice)) if abs(choice) <= MAX_POINTS else (0,)
        if not 2 <= min(counts) <= max(counts) <= MAX_POINTS:
            raise ArgumentError(
                f"quadrature={shown(choice)} of order {order} on a {shape.name} must give 2 to {MAX_POINTS} points in"
                f" each direction; the collapsed rule, quadrature=0, has {default_counts(shape, order)}"
            )
        return quadrature(shape, counts)
    raise ArgumentError(
        f"unknown quadrature {shown(choice)}; valid: None, 'collapsed', 'simplex', 'gauss', 'collocated' or a number of"
        " further points"
    )
