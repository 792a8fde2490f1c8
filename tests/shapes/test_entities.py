"""Entities of modes: what makes a mesh of mixed shapes conforming without any renumbering."""

import numpy as np
from numpy.polynomial import chebyshev

from hpfem.shapes import HEX, PRISM, PYRAMID, QUAD, SEGMENT, TET, TRI, make_basis
from tests.cases import MODAL, cases, each_order, each_shape
from tests.shapes.exact import barycentric, edge, rise, simplex_mode
from tests.shapes.sampling import inside, on_entity


def closure(shape, entity):
    """Vertices of an entity (dimension, number)."""
    dim, number = entity
    return shape.entities[dim][number].vertices


def own_modes(basis):
    """Modes by (vertices of their entity, in its order; indices)."""
    found = {(closure(basis.shape, mode.entity), mode.indices): i for i, mode in enumerate(basis.modes)}
    assert len(found) == basis.n_modes
    return found


@cases(bases=("modified",))
def test_traces_are_the_modes_of_the_entity(shape, order, basis, rng):
    # On every vertex, edge and face: the modes of its closure are the modes of its own shape, and all others vanish.
    made = make_basis(basis, shape, order)
    modes = own_modes(made)
    for entities in shape.entities[1:-1]:
        for entity in entities:
            s = np.vstack([entity.shape.vertices, inside(entity.shape, 12, rng)])
            traces = made.evaluate(on_entity(shape, entity, s))
            below = make_basis(basis, entity.shape, order)
            expected = np.zeros_like(traces)
            values = below.evaluate(s)
            for (vertices, indices), i in own_modes(below).items():
                expected[modes[tuple(entity.vertices[v] for v in vertices), indices]] = values[i]
            np.testing.assert_allclose(traces, expected, atol=1e-12)


@cases(bases=("modified",))
def test_values_at_vertices(shape, order, basis):
    made = make_basis(basis, shape, order)
    expected = np.zeros((made.n_modes, shape.n_vertices))
    for i, mode in enumerate(made.modes):
        if mode.entity[0] == 0:
            expected[i, mode.entity[1]] = 1
    np.testing.assert_allclose(made.evaluate(shape.vertices), expected, atol=1e-14)


@each_shape()
@each_order()
def test_every_entity_has_its_family(shape, order):
    # As many modes as the interior of its shape has.
    made = make_basis("modified", shape, order)
    for dim, entities in enumerate(shape.entities):
        for number, entity in enumerate(entities):
            count = sum(mode.entity == (dim, number) for mode in made.modes)
            if dim == 0:
                assert count == 1
                continue
            interior = [m for m in make_basis("modified", entity.shape, order).modes if m.entity == (dim, 0)]
            assert count == len(interior)


@each_shape()
def test_edge_modes_are_one_family_along_every_edge(shape, rng):
    # A_p(t), from the explicit formula, from the edge's first vertex to its second.
    made, t = make_basis("modified", shape, 8), rng.uniform(-1, 1, (20, 1))
    x, y = (1 - t[:, 0]) / 2, (1 + t[:, 0]) / 2
    modes = own_modes(made)
    for each in shape.edges:
        values = made.evaluate(on_entity(shape, each, t))
        for p in range(2, 9):
            np.testing.assert_allclose(values[modes[each.vertices, (p,)]], edge(p, x, y), atol=1e-13)
            np.testing.assert_allclose(edge(p, y, x), (-1) ** p * edge(p, x, y), atol=1e-13)


@each_shape((SEGMENT, TRI, TET))
@each_order((1, 2, 3, 4, 9))
def test_simplex_modes_are_those_of_karniadakis_and_sherwin(shape, order, rng):
    # In barycentric coordinates: nothing of the collapse is in the formula.
    made, points = make_basis("modified", shape, order), inside(shape, 40, rng)
    corners = barycentric(points)
    expected = [simplex_mode(closure(shape, mode.entity), mode.indices, corners) for mode in made.modes]
    np.testing.assert_allclose(made.evaluate(points), expected, atol=1e-12)


@cases(shapes=(SEGMENT, QUAD, HEX, PRISM), bases=("modified",), orders=(1, 2, 3, 4, 9))
def test_product_modes_are_those_of_karniadakis_and_sherwin(shape, order, basis, rng):
    made, points = make_basis(basis, shape, order), inside(shape, 40, rng)
    t = points[:, -1]
    line = barycentric(t[:, None])
    base = (
        np.ones((1, len(points))) if shape.dim == 1 else make_basis(basis, shape.base, order).evaluate(points[:, :-1])
    )
    base_modes = {((0,), ()): 0} if shape.dim == 1 else own_modes(make_basis(basis, shape.base, order))
    n = shape.base.n_vertices
    values = made.evaluate(points)
    for i, mode in enumerate(made.modes):
        vertices = closure(shape, mode.entity)
        below = tuple(dict.fromkeys(v % n for v in vertices))
        levels = sorted({v // n for v in vertices})
        if len(levels) == 2:
            *indices, p = mode.indices
            factor = edge(p, *line)
        else:
            indices, factor = mode.indices, line[levels[0]]
        expected = base[base_modes[below, tuple(indices)]] * factor
        np.testing.assert_allclose(values[i], expected, atol=1e-13)


@each_order((1, 2, 3, 4, 9))
def test_pyramid_modes(order, rng):
    # Functions of x/h, y/h on the section of height h, times the powers of h and z that the degree max(p, q) allows.
    made, points = make_basis("modified", PYRAMID, order), inside(PYRAMID, 40, rng)
    x, y, z = (1 + points.T) / 2
    h = 1 - z
    values = made.evaluate(points)

    def line(end, p, s):
        return edge(p, 1 - s, s) if end is None else (1 - s, s)[end]

    for i, mode in enumerate(made.modes):
        vertices, indices = set(closure(PYRAMID, mode.entity)), list(mode.indices)
        base = sorted(vertices - {4})
        if not base:
            np.testing.assert_allclose(values[i], z, atol=1e-14)
            continue
        ends = [next(iter(e)) if len(e := {(v >> k) & 1 for v in base}) == 1 else None for k in (0, 1)]
        p, q = (indices.pop(0) if end is None else 1 for end in ends)
        mu = max(p, q)
        section = line(ends[0], p, x / h) * line(ends[1], q, y / h) * h**mu
        if 4 in vertices and len(base) == 1:
            expected = section / h * edge(indices[0], h, z)
        elif 4 in vertices:
            expected = section * rise(mu, indices[0], h, z)
        else:
            expected = section
        np.testing.assert_allclose(values[i], expected, atol=1e-12)


@cases(bases=("orthogonal",), orders=(1, 5))
def test_orthogonal_modes_belong_to_the_interior(shape, order, basis):
    made = make_basis(basis, shape, order)
    assert {mode.entity for mode in made.modes} == {(shape.dim, 0)}
    assert len({mode.indices for mode in made.modes}) == made.n_modes


def generic_lines(shape):
    """Directions whose largest polynomial degree is mu: along each factor of a product, anyhow in a simplex."""
    if shape.collapsed:
        return [np.arange(1.0, shape.dim + 1)]
    below = generic_lines(shape.base) if shape.dim > 1 else []
    return [*(np.append(line, 0.0) for line in below), np.eye(shape.dim)[-1]]


@cases(shapes=(SEGMENT, QUAD, TRI, HEX, PRISM, TET), bases=MODAL, orders=(1, 2, 5))
def test_degree_of_a_mode(shape, order, basis, rng):
    made = make_basis(basis, shape, order)
    t = chebyshev.chebpts1(4 * order)
    degrees = np.zeros(made.n_modes, dtype=int)
    for line in generic_lines(shape):
        values = made.evaluate(inside(shape, 1, rng, margin=0.5) + 0.05 * t[:, None] * line)
        coefficients = np.abs(chebyshev.chebfit(t, values.T, 4 * order - 1))
        significant = coefficients > 1e-13 * coefficients.max(axis=0)
        along = np.array([np.flatnonzero(column).max() for column in significant.T])
        degrees = np.maximum(degrees, along)
    assert [mode.degree for mode in made.modes] == degrees.tolist()


@cases(bases=("lagrange",), orders=(*range(1, 8), 10))
def test_traces_of_nodal_bases_are_the_nodal_bases_of_the_entities(shape, order, basis, rng):
    made = make_basis(basis, shape, order)
    for entities in shape.entities[1:-1]:
        for entity in entities:
            below = make_basis(basis, entity.shape, order)
            nodes = on_entity(shape, entity, below.nodes)
            distance = np.abs(made.nodes[:, None] - nodes[None]).max(axis=-1)
            mode = distance.argmin(axis=0)
            assert distance.min(axis=0).max() < 1e-13
            s = inside(entity.shape, 12, rng)
            traces = made.evaluate(on_entity(shape, entity, s))
            expected = np.zeros_like(traces)
            expected[mode] = below.evaluate(s)
            np.testing.assert_allclose(traces, expected, atol=1e-11)
            owned = {i for i, m in enumerate(made.modes) if set(closure(shape, m.entity)) <= set(entity.vertices)}
            assert owned == set(mode)
