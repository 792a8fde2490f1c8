"""The one parametrisation over shape × order × basis that all tests use.

@cases()                                        every shape, P = 1..10, every basis
@cases(shapes=SHAPES_3D, orders=range(1, 5), bases=("modified",))
def test_something(shape, order, basis): ...
"""

import itertools

import pytest

import hpfem.shapes

SHAPES = tuple(hpfem.shapes.SHAPES.values())
SHAPES_2D = tuple(shape for shape in SHAPES if shape.dim == 2)
SHAPES_3D = tuple(shape for shape in SHAPES if shape.dim == 3)
ORDERS = range(1, 11)
BASES = hpfem.shapes.BASES
MODAL = ("modified", "orthogonal")


def cases(shapes=SHAPES, orders=ORDERS, bases=BASES):
    """Mark that runs a test for every combination, as (shape, order, basis): a Shape, an int, a name."""
    combinations = itertools.product(shapes, orders, bases)
    return pytest.mark.parametrize(
        ("shape", "order", "basis"),
        [pytest.param(*case, id=f"{case[0].name}-P{case[1]}-{case[2]}") for case in combinations],
    )


def each_shape(shapes=SHAPES):
    """Mark that runs a test for every shape."""
    return pytest.mark.parametrize("shape", shapes, ids=lambda shape: shape.name)


def each_order(orders=ORDERS):
    """Mark that runs a test for every order."""
    return pytest.mark.parametrize("order", orders, ids=lambda order: f"P{order}")
