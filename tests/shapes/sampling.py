"""Points of the reference shapes for the tests."""

import numpy as np


def inside(shape, n, rng, margin=0.0):
    """Random points of a shape, [n, dim]; with a margin, pulled towards its middle."""
    points = shape.collapse(rng.uniform(-1, 1, (n, shape.dim)))
    return margin * shape.vertices.mean(axis=0) + (1 - margin) * points


def on_entity(shape, entity, s):
    """Local coordinates of a shape at reference points s [n, dim of the entity] of one of its entities."""
    origin, *corners = shape.vertices[list(entity.vertices)]
    axes = np.array(corners[: entity.shape.dim]).reshape(entity.shape.dim, shape.dim) - origin
    # In every vertex order of the package the vertices 1, 2 of a face are the ends of its axes.
    return origin + (1 + s) / 2 @ axes
