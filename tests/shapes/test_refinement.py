"""Shapes cut into smaller ones."""

import itertools

import numpy as np
import pytest

from hpfem.errors import ArgumentError
from hpfem.shapes import SEGMENT, cone
from hpfem.shapes.refinement import refinements
from tests.cases import SHAPES as EVERY
from tests.cases import each_shape

COUNTS = {"segment": 2, "quad": 4, "tri": 4, "hex": 8, "prism": 8, "pyramid": 10, "tet": 8}


def placed(piece):
    """The affine map, as a matrix and a shift, that takes the shape of a piece to the piece."""
    corners = np.column_stack([piece.shape.vertices, np.ones(piece.shape.n_vertices)])
    solution = np.linalg.lstsq(corners, piece.corners - 1.0, rcond=None)[0]
    assert np.abs(corners @ solution - (piece.corners - 1)).max() < 1e-13
    return solution[:-1], solution[-1]


@each_shape(EVERY)
def test_pieces_fill_the_shape_without_overlap(shape, rng):
    unit = rng.random((2000, shape.dim)) * 2 - 1
    inside = unit[shape.depth(unit) > 1e-6]
    for way in refinements(shape):
        assert len(way) == COUNTS[shape.name]
        maps = [placed(piece) for piece in way]
        assert all(np.linalg.det(matrix) == pytest.approx(0.5**shape.dim) for matrix, _ in maps)
        total = sum(np.linalg.det(m) * piece.shape.volume for (m, _), piece in zip(maps, way, strict=True))
        assert total == pytest.approx(shape.volume, rel=1e-13)
        owners = np.zeros(len(inside), dtype=int)
        for (matrix, shift), piece in zip(maps, way, strict=True):
            owners += piece.shape.depth((inside - shift) @ np.linalg.inv(matrix)) > 0
        assert (owners <= 1).all()
        assert owners.mean() > 0.99


@each_shape(EVERY)
def test_ways_differ_inside_only_and_have_the_same_pieces(shape):
    first, *others = refinements(shape)
    assert len(others) == (2 if shape.name == "tet" else 0)
    for way in others:
        assert [piece.shape for piece in way] == [piece.shape for piece in first]


@each_shape([shape for shape in EVERY if shape.dim == 3])
def test_faces_are_cut_alike(shape):
    for way, face in itertools.product(refinements(shape), shape.faces):
        corners = np.rint(shape.vertices[list(face.vertices)] + 1).astype(int)
        wanted = {frozenset(tuple(corners[list(v)].sum(axis=0) // len(v)) for v in own) for own in cut_of(face.shape)}
        found = set()
        for piece in way:
            for own in piece.shape.faces:
                places = piece.corners[list(own.vertices)]
                normal = np.linalg.svd(corners - corners.mean(axis=0))[2][-1]
                if np.abs((places - corners[0]) @ normal).max() < 1e-9:
                    found.add(frozenset(map(tuple, places.tolist())))
        assert found == {frozenset(tuple(map(int, v)) for v in own) for own in wanted}


def cut_of(shape):
    """The pieces of a face by their corners, each the middle of some vertices."""
    if shape.n_vertices == 3:
        mids = [(0, 1), (1, 2), (0, 2)]
        return [[(v, v), *[m for m in mids if v in m]] for v in range(3)] + [mids]
    beside = {0: (1, 2), 1: (0, 3), 2: (0, 3), 3: (1, 2)}
    return [[(v, v), (v, a), (v, b), (0, 1, 2, 3)] for v, (a, b) in beside.items()]


def test_a_cone_without_a_table_says_so():
    with pytest.raises(ArgumentError, match="no way to refine the shape 'gable'"):
        refinements(cone(SEGMENT, "gable"))
