"""Geometric factors from their definition: every kind, layout and shape; affine, deformed, solid, surface."""

import pickle
import sys
import threading

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError
from hpfem.geometry import AFFINE, GENERAL, MULTILINEAR, QUADRATIC, ElementMap, GeometryKind, MapLines
from hpfem.geometry.block_geometry import BlockGeometry
from hpfem.geometry.element_map import FLAT_TOLERANCE
from hpfem.geometry.factors import KINDS, expansion
from hpfem.geometry.jacobians import symmetric_pairs
from hpfem.geometry.kinds import by_kind
from hpfem.mesh.cells import CellArray
from hpfem.shapes import default_counts, equispaced_nodes, make_basis, quadrature
from hpfem.tuning.key import tuning_key
from tests.cases import SHAPES_2D, SHAPES_3D, each_shape
from tests.samples import (
    FLAT,
    NAMES,
    NAMES_2D,
    SKEW,
    curved,
    dimension,
    norm_error,
    plane_in_space,
    skewed,
    sphere_patch,
    straight,
    tapered,
)

each_name = pytest.mark.parametrize("name", NAMES)


def block_of(mesh, order=2):
    """The first block of a space."""
    return hp.Space(mesh, order).blocks[0]


def local_jacobian(mesh, block):
    """dx/dxi at the points, [E, Q, D, d], from the nodes."""
    group = mesh.aligned[0]
    xi = block.shape.collapse(block.rule.eta)
    basis = make_basis("orthogonal", block.shape, group.order)
    inverse = np.linalg.inv(basis.evaluate(equispaced_nodes(block.shape, group.order)))
    nodes = mesh.points[group.nodes[np.searchsorted(group.indices, block.elements)]]
    return np.einsum("eni,nm,amq->eqia", nodes, inverse, basis.gradient(xi), optimize=True)


def factors_by_definition(block, jacobian):
    """The kinds in collapsed coordinates, [factor, element, point], from dx/dxi at the points."""
    collapse = block.shape.collapse_matrix(block.rule.eta)
    along = np.einsum("eqia,qab->eqib", jacobian, collapse)
    wJ = block.rule.weights * np.sqrt(np.linalg.det(np.swapaxes(jacobian, 2, 3) @ jacobian))
    inverse = np.linalg.pinv(along)
    metric = inverse @ np.swapaxes(inverse, 2, 3)
    d, space_dim = block.shape.dim, jacobian.shape[2]
    return {
        "wJ": wJ[None],
        "metric": np.stack([*(wJ * metric[..., a, b] for a in range(d) for b in range(a, d)), wJ]),
        "jacobian": np.stack([*(inverse[..., a, i] for a in range(d) for i in range(space_dim)), wJ]),
    }


def expanded(block, kind):
    """Factors as the package has them, brought to the points, [factor, element, point]."""
    factors = block.geometry.factors(kind)[..., 0]
    if not block.affine:
        return factors.transpose(1, 0, 2)
    return np.einsum("fqk,ek->feq", expansion(block.geometry, kind), factors[:, :, 0])


MESHES = {"affine": lambda name: skewed(straight(name)), "deformed": curved, "straight": tapered}


@pytest.mark.parametrize("kind", ["wJ", "metric", "jacobian"])
@pytest.mark.parametrize("mesh", MESHES)
@each_name
def test_factors_of_solid_cells(mesh, name, kind):
    mesh = MESHES[mesh](name)
    block = block_of(mesh)
    expected = factors_by_definition(block, local_jacobian(mesh, block))[kind]
    for found, one in zip(expanded(block, kind), expected, strict=True):
        assert np.abs(found - one).max() < 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["wJ", "metric", "jacobian"])
@pytest.mark.parametrize("make", [plane_in_space, sphere_patch])
@pytest.mark.parametrize("name", NAMES_2D)
def test_factors_of_surfaces(make, name, kind):
    mesh = make(name)
    block = block_of(mesh)
    expected = factors_by_definition(block, local_jacobian(mesh, block))[kind]
    assert norm_error(expanded(block, kind), expected) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mesh", ["affine", "deformed"])
@each_name
def test_layouts_hold_the_same_numbers(mesh, name, kind):
    geometry = block_of(MESHES[mesh](name)).geometry
    one = geometry.factors(kind)
    assert one.shape == (geometry.n_elements, geometry.n_factors(kind), geometry.n_points(kind), 1)
    for lanes in (2, 4, 100):
        many = geometry.factors(kind, lanes)
        groups = -(-geometry.n_elements // lanes)
        assert many.shape == (groups, *one.shape[1:3], lanes)
        assert many.flags.c_contiguous
        flat = many.transpose(0, 3, 1, 2).reshape(groups * lanes, *one.shape[1:3])
        assert np.array_equal(flat[: geometry.n_elements], one[..., 0])
        assert not flat[geometry.n_elements :].any()
    single = geometry.factors(kind, 4, np.float32)
    assert single.dtype == np.float32
    assert np.array_equal(single, geometry.factors(kind, 4).astype(np.float32))


@each_name
def test_counts_of_numbers(name):
    d = dimension(name)
    geometry = block_of(curved(name)).geometry
    assert [geometry.n_factors(kind) for kind in KINDS] == [
        *(1, d * (d + 1) // 2 + 1, d * d + 1, d, 1),
        d * (geometry.basis.n_modes - 1),
    ]
    assert len(symmetric_pairs(d)) == d * (d + 1) // 2
    affine = block_of(skewed(straight(name))).geometry
    assert [affine.n_points(kind) for kind in KINDS] == [1, 1, 1, len(affine.rule), 1, 1]
    assert [geometry.n_points(kind) for kind in KINDS] == [*[len(geometry.rule)] * 5, 1]


@each_name
def test_affine_factors_are_those_of_the_map(name):
    d = dimension(name)
    mesh = skewed(straight(name))
    block = block_of(mesh)
    jacobian = local_jacobian(mesh, block)[:, 0]
    gram = np.linalg.inv(np.swapaxes(jacobian, 1, 2) @ jacobian)
    det = np.linalg.det(jacobian)
    found = block.geometry.factors("metric")[:, :, 0, 0]
    for number, (a, b) in enumerate(symmetric_pairs(d)):
        assert found[:, number] == pytest.approx(det * gram[:, a, b], rel=1e-12, abs=1e-13)
    assert block.geometry.factors("wJ")[:, 0, 0, 0] == pytest.approx(det, rel=1e-12)


@pytest.mark.parametrize("mesh", MESHES)
@each_name
def test_volumes_and_points(mesh, name):
    mesh = MESHES[mesh](name)
    geometry = hp.Space(mesh, 2, quadrature=3).blocks[0].geometry
    weights = geometry.factors("wJ")[:, 0, :, 0]
    if geometry.affine:
        assert geometry.volumes() == pytest.approx(weights[:, 0] * geometry.shape.volume, rel=1e-12)
    else:
        assert geometry.volumes() == pytest.approx(weights.sum(axis=1), rel=1e-12)
    x = geometry.coordinates()
    assert np.array_equal(geometry.factors("points")[..., 0].transpose(1, 0, 2), x)
    low, high = mesh.points.min(axis=0) - 0.05, mesh.points.max(axis=0) + 0.05
    assert np.all((x >= low[:, None, None]) & (x <= high[:, None, None]))


def test_volume_of_a_skewed_box():
    for name in NAMES:
        d = dimension(name)
        geometry = block_of(skewed(straight(name))).geometry
        assert geometry.volumes().sum() == pytest.approx(np.linalg.det(SKEW[:d, :d]), rel=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [1, 3])
def test_many_elements_are_made_in_chunks(lanes, kind, monkeypatch):
    mesh = straight("tri", (3, 2)).elevated(2).transformed(lambda x: x + 0.1 * np.sin(x[:, ::-1]))
    geometry = block_of(mesh, 3).geometry
    whole = geometry.factors(kind, lanes)
    size = len(geometry.rule) * 4
    monkeypatch.setattr("hpfem.geometry.element_map.CHUNK", 2 * 5 * size)
    assert [c.stop - c.start for c in geometry.chunks(3)] == [3, 3, 3, 3]
    assert [c.stop - c.start for c in geometry.chunks()] == [5, 5, 2]
    assert [c.stop - c.start for c in geometry.chunks(7, size)] == [7, 5]
    assert norm_error(geometry._make_factors(kind, lanes, np.float64), whole) < 1e-15


def test_factors_are_written_into_any_layout():
    geometry = block_of(curved("hex"), 1).geometry
    whole = geometry.factors("metric", 4, np.float32)
    out = np.full((3, 7, geometry.n_factors("metric"), 27, 5), np.nan, np.float32)
    geometry.write_factors("metric", out[:, 2:3, :, ::3, :4].transpose(1, 2, 0, 3, 4))
    taken = out[:, 2, :, ::3, :4].transpose(1, 0, 2, 3)
    assert np.array_equal(taken.reshape(whole.shape), whole)
    out[:, 2, :, ::3, :4] = np.nan
    assert np.isnan(out).all()


def test_unknown_kinds_are_refused():
    geometry = block_of(straight("quad")).geometry
    with pytest.raises(ArgumentError, match="'normal'; valid: wJ, metric, jacobian, points"):
        geometry.factors("normal")
    with pytest.raises(ArgumentError, match="'points' have no affine form"):
        expansion(geometry, "points")


class Straight(GeometryKind):
    """A third kind for the tests: elements of order 1, whose maps are given by their vertices."""

    name = "straight"

    def includes(self, elements):
        return np.full(elements.n_elements, elements.order == 1)


def test_files_that_another_geometry_kind_changes(monkeypatch):
    """A class and a place in the list: blocks, messages, keys and pickles have it, and all kernels are right on it."""
    mesh = tapered("hex")
    plain = hp.Space(mesh, 2)
    kind = Straight()
    monkeypatch.setattr("hpfem.geometry.kinds.GEOMETRY_KINDS", [AFFINE, kind, MULTILINEAR, QUADRATIC, GENERAL])
    space = hp.Space(mesh, 2)
    assert [block.geometry.kind for block in space.blocks] == [kind]
    block, geometry = space.blocks[0], space.blocks[0].geometry
    assert not block.affine and " straight hex" in repr(block)
    assert pickle.loads(pickle.dumps(geometry)).kind is kind
    # What knows nothing of it works with factors at the points.
    assert geometry.n_points("metric") == len(geometry.rule)
    assert np.array_equal(geometry.factors("metric"), plain.blocks[0].geometry.factors("metric"))
    assert geometry.held() == plain.blocks[0].geometry.held()
    for backend in ("numpy", "cpu"):
        operator, expected = (
            hp.Helmholtz(space, lam=1.0, backend=backend),
            hp.Helmholtz(plain, lam=1.0, backend=backend),
        )
        u = space.project(lambda x, y, z: x * y + z)
        assert np.array_equal(operator(u).arrays[0], expected(plain.field("coeff", u.arrays)).arrays[0])
        problem = operator.choices[0].kernel.problem
        assert tuning_key(problem, "auto", "auto", operator.backend)["geometry"] == "straight"


@pytest.mark.parametrize("mesh", MESHES)
def test_kinds_share_out_the_elements(mesh):
    cells, points = MESHES[mesh]("prism").cells[0], MESHES[mesh]("prism").points
    elements = ElementMap.of(cells, points)
    found = list(by_kind(cells, points))
    assert np.array_equal(np.sort(np.concatenate([chosen for _, chosen, _ in found])), np.arange(elements.n_elements))
    for kind, chosen, own in found:
        assert (kind is AFFINE) == elements.affine_elements[chosen].all()
        np.testing.assert_allclose(own.coefficients, elements.coefficients[chosen], rtol=1e-12, atol=1e-14)
        assert pickle.loads(pickle.dumps(kind)) is kind


@each_shape(SHAPES_2D + SHAPES_3D)
@pytest.mark.parametrize("points", [2, 6])
def test_elements_are_surely_regular_only_where_they_are(shape, points, rng):
    order, count = 2, 300
    nodes = equispaced_nodes(shape, order)
    amount = np.geomspace(1e-3, 2, count)[:, None, None]
    places = (nodes + amount * rng.uniform(-1, 1, (count, *nodes.shape))) * np.geomspace(1, 30, shape.dim)
    cells = CellArray(shape, order, np.arange(count * len(nodes)).reshape(count, -1), np.arange(count))
    elements = ElementMap.of(cells, places.reshape(-1, shape.dim))
    rule = quadrature(shape, default_counts(shape, points))
    geometry = BlockGeometry(shape, order, elements.coefficients, rule, GENERAL)
    scaled, sure = geometry.scaled_jacobian(np.arange(count)), geometry.surely_regular()
    assert (scaled[sure] > FLAT_TOLERANCE).all()
    assert sure[: count // 20].all() and not sure[scaled <= 0].any() and (scaled <= 0).any()


def kinds_of(mesh):
    """Kinds of all cells of the mesh's first group."""
    found = {}
    for kind, chosen, _ in by_kind(mesh.aligned[0], mesh.points):
        found |= dict.fromkeys(chosen.tolist(), kind)
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize("place", [0.0, 1e6, -3e6])
@each_name
def test_kinds_depend_on_no_place_and_no_order_of_nodes(name, place):
    """Midpoints of straight cells are rounded to their coordinates, which are large far from the origin."""
    straight_kinds = set(kinds_of(tapered(name)))
    assert straight_kinds == ({AFFINE} if name in FLAT else straight_kinds - {QUADRATIC, GENERAL})
    assert name in FLAT or MULTILINEAR in straight_kinds
    for mesh, kinds in (
        (tapered(name), straight_kinds),
        (tapered(name).elevated(2), straight_kinds),
        (tapered(name).elevated(3), straight_kinds),
        (curved(name, 2), {QUADRATIC}),
        (curved(name, 2).elevated(4), {QUADRATIC}),
        (curved(name, 3), {GENERAL}),
        (skewed(straight(name)).elevated(2), {AFFINE}),
    ):
        for moved in (mesh.transformed(lambda x: x + place), mesh.transformed(lambda x: 1e-3 * x + 1e-3 * place)):
            assert set(kinds_of(moved)) == kinds


@pytest.mark.parametrize("name", ["quad", "hex", "prism", "pyramid"])
@pytest.mark.parametrize("order", [2, 3])
def test_cells_that_are_bent_a_little_are_not_straight(name, order):
    """Taken for multilinear, a bend of 1e-9 of the size would change results by more than 1e-12."""
    mesh = tapered(name).elevated(order)
    for amount, kind in ((1e-9, QUADRATIC), (1e-12, QUADRATIC), (1e-16, MULTILINEAR)):
        bend = amount * mesh.points[:, :1] * (1 - mesh.points[:, :1]) * np.sin(40 * mesh.points)
        bent = mesh.transformed(lambda x, bend=bend: x + bend)
        found = set(kinds_of(bent)) - {AFFINE}
        assert found == ({kind} if order == 2 or kind is MULTILINEAR else {GENERAL}), amount


def test_few_cells_of_a_kind_are_with_those_of_the_next(monkeypatch):
    """Unless they are affine: small blocks cost more than they save."""
    mesh = tapered("hex").elevated(2)

    def bend(x):  # the cells of one side alone
        return x + 0.05 * np.maximum(x[:, :1] - 0.7, 0) ** 2

    mixed = mesh.transformed(bend)
    assert kinds_of(mixed) == [QUADRATIC] * 8
    monkeypatch.setattr("hpfem.geometry.kinds.FEW", 4)
    kinds = kinds_of(mixed)
    assert sorted(kind.name for kind in kinds) == ["multilinear"] * 4 + ["quadratic"] * 4
    space = hp.Space(mixed, 3)
    assert [block.n_elements for block in space.blocks] == [4, 4]
    u = space.project(lambda x, y, z: x * y + z)
    monkeypatch.undo()
    other = hp.Space(mixed, 3)
    v = other.project(lambda x, y, z: x * y + z)
    assert hp.Helmholtz(space, lam=1.0)(u).dot(u) == pytest.approx(hp.Helmholtz(other, lam=1.0)(v).dot(v), rel=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@each_shape(SHAPES_2D + SHAPES_3D)
def test_jacobians_on_lines(shape, order, rng):
    rule = quadrature(shape, default_counts(shape, 4))
    basis = make_basis("orthogonal", shape, order)
    coefficients = rng.standard_normal(basis.n_modes)
    gradient = np.einsum("m,amq->aq", coefficients, basis.gradient_eta(rule.eta))
    weights = rule.weights / np.linalg.det(shape.collapse_matrix(rule.eta))
    for axes in ([*range(shape.dim)], [*range(shape.dim)][::-1], [shape.dim - 1, *range(shape.dim - 1)]):
        lines = MapLines.of(basis, rule, axes)
        rows = np.zeros((len(lines.directions), lines.across.shape[1]))
        for row, mode, function in lines.terms:
            rows[row] += coefficients[mode + 1] * lines.across[function]
        found = np.zeros((shape.dim, lines.along.shape[1], lines.across.shape[1]))
        for row, a in enumerate(lines.directions):
            found[a] += np.outer(lines.along[row], rows[row])
        by_line = gradient.reshape(-1, *rule.counts).transpose(0, *(1 + a for a in axes)).reshape(found.shape)
        assert norm_error(found, by_line) < 1e-14
        wanted = weights.reshape(rule.counts).transpose(axes).reshape(found.shape[1:])
        assert norm_error(np.outer(lines.weights_along, lines.weights_across), wanted) < 1e-14
        most = {"hex": (5, 8), "prism": (5, 8), "quad": (3, 5)}.get(shape.name, (5, 10))
        assert len(rows) <= most[order - 1]


def test_bytes_are_counted_while_others_make_factors():
    geometry = hp.Space(hp.box("hex", 1), 1).blocks[0].geometry
    counting, before = threading.Event(), sys.getswitchinterval()

    def make():
        while not counting.is_set():
            kept = [np.zeros(1) for _ in range(50)]
            for array in kept:
                geometry._made["wJ", id(array), "host"] = array

    maker = threading.Thread(target=make)
    sys.setswitchinterval(1e-6)
    try:
        maker.start()
        for _ in range(1000):
            assert set(geometry.held()) <= {"wJ"}
    finally:
        counting.set()
        maker.join()
        sys.setswitchinterval(before)


@each_name
def test_the_deviation_from_the_mean_jacobian(name):
    mesh = curved(name)
    block = block_of(mesh)
    J = local_jacobian(mesh, block)
    mean = np.einsum("q,eqia->eia", block.rule.weights, J) / block.rule.weights.sum()
    change = np.linalg.pinv(mean)[:, None] @ (J - mean[:, None])
    weights = block.rule.weights / block.rule.weights.sum()
    exact = np.sqrt((change**2).sum(axis=(2, 3)) @ weights)
    found = block.geometry.deviation()
    assert found == pytest.approx((np.sqrt((exact**2).mean()), exact.max()), rel=1e-9)
    affine = block.geometry.straightened()
    assert affine.affine and not block.geometry.affine and affine.deviation() == found
    assert np.allclose(affine.factors("wJ").ravel(), np.linalg.det(mean), rtol=1e-12)
    assert max(block_of(skewed(straight(name))).geometry.deviation()) < 1e-7
