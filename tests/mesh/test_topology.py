"""Edges, faces, orientations and neighbours against a slow dictionary."""

import pickle

import numpy as np
import pytest

from hpfem.mesh import Mesh, box, symmetries
from hpfem.mesh.cells import CellArray
from hpfem.mesh.sorting import TupleIndex, comparisons, distinct, in_order, sorted_rows, turned, unique
from hpfem.mesh.topology import Topology
from hpfem.support.threads import in_parts
from tests.mesh.examples import ALL_3D, BOXES, Elsewhere, sample, scrambled


def slow_entities(mesh: Mesh, dim: int) -> dict[frozenset[int], list[tuple[int, int]]]:
    """Cells and local numbers by vertex set."""
    found: dict[frozenset[int], list[tuple[int, int]]] = {}
    for group in mesh.cells:
        for cell, vertices in zip(group.indices, group.vertices, strict=True):
            for number, entity in enumerate(group.shape.entities[dim]):
                found.setdefault(frozenset(vertices[list(entity.vertices)].tolist()), []).append((int(cell), number))
    return found


@pytest.mark.parametrize("name", BOXES)
def test_ids_tell_vertex_sets_apart(name: str, rng: np.random.Generator) -> None:
    mesh = scrambled(sample(name, 2), rng)
    for dim, entities in ((1, mesh.edges), (2, mesh.faces)):
        slow = slow_entities(mesh, dim)
        assert entities.count == len(slow)
        for owners in slow.values():
            ids = {
                int(entities.ids[position][row, number])
                for cell, number in owners
                for position, row in [(mesh.locations[0][cell], mesh.locations[1][cell])]
            }
            assert len(ids) == 1
            assert mesh.topology.cells_around[dim][ids.pop()] == len(owners)
        everything = np.concatenate([ids.ravel() for ids in entities.ids])
        assert np.array_equal(np.unique(everything), np.arange(entities.count))


@pytest.mark.parametrize("name", BOXES)
def test_orientations_lead_to_one_global_order(name: str, rng: np.random.Generator) -> None:
    mesh = scrambled(sample(name), rng)
    for dim, entities in ((1, mesh.edges), (2, mesh.faces)):
        order_of: dict[int, tuple[int, ...]] = {}
        codes_seen = set()
        for position, group in enumerate(mesh.cells):
            for number, entity in enumerate(group.shape.entities[dim]):
                table = symmetries(entity.shape)
                for row in range(len(group)):
                    code = entities.orientation[position][row, number]
                    codes_seen.add(int(code))
                    local = group.vertices[row][list(entity.vertices)]
                    in_order = tuple(int(v) for v in local[table[code]])
                    assert order_of.setdefault(int(entities.ids[position][row, number]), in_order) == in_order
        assert len(codes_seen) > 1
        for ordered in order_of.values():
            assert ordered[0] == min(ordered)
            assert ordered[1] < ordered[2] if len(ordered) > 2 else True


@pytest.mark.parametrize("name", BOXES)
def test_properties_of_groups(name: str) -> None:
    mesh = sample(name)
    for position, group in enumerate(mesh.cells):
        assert group.edges is mesh.edges.ids[position]
        assert group.edge_orientation is mesh.edges.orientation[position]
        assert group.faces is mesh.faces.ids[position]
        assert group.face_orientation is mesh.faces.orientation[position]
        assert group.facets is (group.edges if mesh.dim == 2 else group.faces)


@pytest.mark.parametrize("name", BOXES)
def test_facets(name: str, rng: np.random.Generator) -> None:
    mesh = scrambled(sample(name), rng)
    slow = slow_entities(mesh, mesh.dim - 1)
    facets = mesh.facets
    assert len(facets) == len(slow) == len(facets.boundary) + len(facets.interior)
    assert len(facets.non_manifold) == 0
    group_of, row_of = mesh.locations
    for number in range(len(facets)):
        owners = [(int(c), int(k)) for c, k in zip(facets.cells[number], facets.local[number], strict=True) if c >= 0]
        cell, local = owners[0]
        group = mesh.cells[group_of[cell]]
        key = frozenset(group.vertices[row_of[cell]][list(group.shape.facets[local].vertices)].tolist())
        assert sorted(slow[key]) == owners
    assert np.all(facets.cells[facets.boundary, 1] == -1)


@pytest.mark.parametrize("name", BOXES)
def test_euler_characteristic(name: str) -> None:
    mesh = sample(name)
    faces = mesh.faces.count if mesh.dim == 3 else 0
    assert mesh.n_vertices - mesh.edges.count + faces + (-1) ** mesh.dim * mesh.n_cells == 1


def corners_of(topology: Topology, facets: np.ndarray) -> np.ndarray:
    """Vertices of facets as `Topology.cut` takes them, [n, 2 or 4]."""
    width, (array, row) = 2 * topology.dim - 2, topology.locations
    rows = np.full((len(facets), width), -1)
    given = topology.facets.cells[facets, 0], topology.facets.local[facets, 0]
    for found, cell, local in zip(rows, *given, strict=True):
        corners = list(topology.cells[array[cell]].shape.facets[local].vertices)
        found[width - len(corners) :] = sorted(topology.vertices[array[cell]][row[cell], corners])
    return rows


@pytest.mark.parametrize("name", BOXES)
def test_a_cut_is_the_same_before_and_after_facets_are_found(name: str) -> None:
    whole = sample(name).topology
    fresh = pickle.loads(pickle.dumps(whole))
    beyond = whole.facets.boundary[::2]
    sides = corners_of(whole, beyond)
    one, other = (own.cut(sides).facets for own in (whole, fresh))
    assert all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("cells", "local", "non_manifold"))
    assert (one.cells[beyond, 1] == -2).all() and len(one.boundary) == len(whole.facets.boundary) - len(beyond)
    assert whole.edges is whole.cut(sides).edges  # what is found is not found again


def check_found(topology: Topology, xp: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found where a module's arrays are is what the host finds."""
    here, there = topology, pickle.loads(pickle.dumps(topology))
    names = ("edges", "faces", "facets")[: 3 if topology.dim == 3 else 1] + ("facets",) * (topology.dim == 2)
    there.find_on(xp)
    assert not {*names} & {*there.__dict__}  # too few
    monkeypatch.setattr("hpfem.mesh.topology.MANY", 0)
    there.find_on(xp)
    assert {"edges", "faces", "facets"} & {*there.__dict__} == {*names}
    for name in names[:-1]:
        found, wanted = there.__dict__[name], getattr(here, name)
        assert found.count == wanted.count and isinstance(found.index.ids, np.ndarray)
        for a, b in zip((*found.ids, *found.orientation), (*wanted.ids, *wanted.orientation), strict=True):
            assert np.array_equal(a, b) and a.dtype == b.dtype and not a.flags.writeable
        dim = names.index(name) + 1
        for position, _, entity in here.local_entities(dim):
            corners = np.sort(here.vertices[position][:, entity.vertices], axis=1)
            assert np.array_equal(found.index.find(corners), wanted.index.find(corners))
    for part in ("cells", "local", "non_manifold"):
        a, b = (getattr(own.facets, part) for own in (there, here))
        assert isinstance(a, np.ndarray) and np.array_equal(a, b) and a.dtype == b.dtype
        assert a.flags.writeable == b.flags.writeable


@pytest.mark.parametrize("name", BOXES)
def test_sides_are_found_elsewhere(name: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    check_found(scrambled(sample(name), rng).topology, Elsewhere(), monkeypatch)


@pytest.mark.cuda
@pytest.mark.parametrize("name", BOXES)
def test_sides_are_found_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    check_found(scrambled(sample(name), rng).topology, pytest.importorskip("cupy"), monkeypatch)


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize("name", BOXES)
def test_facets_of_several_cells_are_found_elsewhere(name: str, copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = overlapping(sample(name).topology, copies)
    assert len(topology.facets.non_manifold) > 0
    check_found(topology, Elsewhere(), monkeypatch)


@pytest.mark.cuda
@pytest.mark.parametrize("name", BOXES)
def test_facets_of_several_cells_are_found_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(overlapping(sample(name).topology, 3), pytest.importorskip("cupy"), monkeypatch)


def overlapping(topology: Topology, copies: int) -> Topology:
    """All cells several times on the same vertices, as in a mesh that was merged with itself."""
    n = sum(map(len, topology.cells))
    cells = [
        CellArray(own.shape, own.order, own.nodes, own.indices + copy * n)
        for copy in range(copies)
        for own in topology.cells
    ]
    return Topology(cells, topology.vertices * copies, topology.n_vertices)


def test_a_part_is_found_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sample("3-D mixed").topology
    check_found(whole.cut(corners_of(whole, whole.facets.boundary[::2])), Elsewhere(), monkeypatch)


def test_sides_are_found_on_the_host_without_room_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Elsewhere):
        def full(self, *_: object, **__: object) -> None:
            raise MemoryError

        def concatenate(self, *_: object, **__: object) -> None:
            raise MemoryError

    monkeypatch.setattr("hpfem.mesh.topology.MANY", 0)
    topology = sample("tet").topology
    topology = Topology(topology.cells, topology.vertices, topology.n_vertices)
    topology.find_on(Full())
    # Facets are made from faces, which the host finds.
    assert not {"edges", "facets"} & {*topology.__dict__}
    assert topology.edges.count > 0 and len(topology.facets) == topology.faces.count > 0


def test_counts_of_a_structured_box() -> None:
    mesh = box("hex", (3, 4, 5))
    assert mesh.n_vertices == 4 * 5 * 6
    assert mesh.edges.count == 3 * 5 * 6 + 4 * 4 * 6 + 4 * 5 * 5
    assert mesh.faces.count == 4 * 4 * 5 + 3 * 5 * 5 + 3 * 4 * 6
    assert len(mesh.facets.boundary) == 2 * (3 * 4 + 4 * 5 + 3 * 5)


def test_large_ids_do_not_collide() -> None:
    limit = 2_900_000_000
    rows = np.array([[0, 1, 2, limit - 1], [0, 1, limit - 2, limit - 1], [0, 1, 2, limit - 1], [-1, 0, 1, 2]])
    index = TupleIndex(rows, limit)
    assert index.count == 3
    assert index.ids[0] == index.ids[2]
    np.testing.assert_array_equal(index.find(rows), index.ids)
    assert index.find(np.array([[0, 1, 2, 3], [5, 6, 7, 8]])).tolist() == [-1, -1]


@pytest.mark.parametrize("limit", [7, 1000, 2**21, 2**31 - 2, 2_900_000_000])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_rows_are_numbered_in_lexicographic_order(limit: int, width: int, rng: np.random.Generator) -> None:
    values = rng.integers(0, limit, 12)
    rows = rng.choice(values, (3000, width))
    rows[::3, 0] = -1
    index = TupleIndex(rows, limit)
    known, ids = np.unique(rows, axis=0, return_inverse=True)
    np.testing.assert_array_equal(index.ids, ids.ravel())
    assert index.count == len(known)
    np.testing.assert_array_equal(index.find(rows[::-1]), ids.ravel()[::-1])
    padded = np.column_stack([np.full(len(rows), -1), rows])
    np.testing.assert_array_equal(index.find(padded), ids.ravel())
    assert (index.find(np.abs(padded)) == -1).all()


def test_a_table_of_triangles_finds_no_quads() -> None:
    index = TupleIndex(np.array([[-1, 0, 1, 2], [-1, 1, 2, 3]]), 10)
    assert index.find(np.array([[1, 2, 3], [0, 1, 3]])).tolist() == [1, -1]
    assert index.find(np.array([[0, 1, 2, 3], [-1, 0, 1, 2]])).tolist() == [-1, 0]


@pytest.mark.parametrize("bound", [10, 16, 2**62])
def test_numbers_are_sorted_with_labels(bound: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr("hpfem.mesh.sorting._FEW", 16 if bound == 16 else 0)  # 16 are counted
    numbers, labels = rng.integers(0, 10, 500), rng.permutation(1000)[:500]
    order = np.lexsort((labels, numbers))
    found = in_order(numbers.copy(), bound, labels, 1000)
    np.testing.assert_array_equal(found, [labels[order], numbers[order]])
    places = np.argsort(numbers, kind="stable")
    found = in_order(numbers.copy(), bound, np.sort(labels), 1000)
    np.testing.assert_array_equal(found, [np.sort(labels)[places], numbers[places]])
    np.testing.assert_array_equal(in_order(numbers.copy(), bound)[0], places)
    known, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(unique(numbers), np.unique(numbers))
    np.testing.assert_array_equal(distinct(numbers.copy(), bound)[0], first)
    np.testing.assert_array_equal(distinct(numbers.copy(), bound)[1], which)
    assert len(known) == len(first)


@pytest.mark.parametrize("many", [100, 1000])
def test_rows_are_sorted_and_told_by_their_order(
    many: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr("hpfem.mesh.sorting.MANY", 10 * many)  # 300 rows: on several threads, or one
    monkeypatch.setattr("hpfem.mesh.sorting._CACHED", many)
    for width in (2, 3, 4):
        rows = rng.integers(0, 5, (200, width))
        np.testing.assert_array_equal(sorted_rows(rows), np.sort(rows, axis=1))
    rows = rng.permuted(np.tile(np.arange(8), (300, 1)), axis=1)
    same = (comparisons(rows.T)[:, None] == comparisons(rows.T)[None]).astype(bool)
    np.testing.assert_array_equal(same, (rows[:, None] == rows[None]).all(axis=2))


def test_rows_are_turned_in_pieces_that_fit_into_a_cache(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Numbers decide on pieces and threads, not rows: a million of cells have ten million nodes."""
    monkeypatch.setattr("hpfem.mesh.sorting.MANY", 2000)
    monkeypatch.setattr("hpfem.mesh.sorting._CACHED", 100)
    asked = []

    def noted(work, parts, worth) -> None:
        asked.append((max(part.stop - part.start for part in parts), worth))
        in_parts(work, parts, worth)

    monkeypatch.setattr("hpfem.mesh.sorting.in_parts", noted)
    rows, which = rng.integers(0, 99, (300, 10)), rng.integers(0, 5, 300)
    permutations = rng.permuted(np.tile(np.arange(10), (5, 1)), axis=1)
    expected = np.take_along_axis(rows, permutations[which], axis=1)
    np.testing.assert_array_equal(turned(rows, permutations, which), expected)
    np.testing.assert_array_equal(turned(rows[:100], permutations, which[:100]), expected[:100])
    assert asked == [(10, True), (10, False)]


def periodic_pairs(mesh: Mesh, axis: int) -> np.ndarray:
    """Points of the lower and the upper side of a box that are images of each other."""
    low = np.flatnonzero(mesh.points[:, axis] == 0)
    high = np.flatnonzero(mesh.points[:, axis] == 1)
    others = [k for k in range(mesh.dim) if k != axis]
    key = lambda rows: np.lexsort(np.round(mesh.points[rows][:, others].T, 9))  # noqa: E731
    return np.column_stack([low[key(low)], high[key(high)]])


def rebuilt(mesh: Mesh, **arguments) -> Mesh:
    return Mesh.from_cells(mesh.points, [(g.shape.name, g.order, g.nodes) for g in mesh.cells], **arguments)


@pytest.mark.parametrize(
    ("name", "counts"), [("quad", (3, 4)), ("tri", (3, 4)), ("hex", (3, 3, 4)), ("prism", (3, 3, 3))]
)
def test_a_periodic_box_is_a_torus(name: str, counts: tuple[int, ...]) -> None:
    mesh = box(name, counts)
    torus = rebuilt(mesh, periodic=[periodic_pairs(mesh, axis) for axis in range(mesh.dim)])
    assert torus.periodic
    assert not mesh.periodic
    assert torus.n_vertices == np.prod(counts)
    assert len(torus.facets.boundary) == 0
    faces = torus.faces.count if mesh.dim == 3 else 0
    assert torus.n_vertices - torus.edges.count + faces + (-1) ** mesh.dim * torus.n_cells == 0
    raised = torus.elevated(3)
    assert raised.n_vertices == torus.n_vertices
    assert len(raised.facets.boundary) == 0
    assert len(raised.points) == len(mesh.elevated(3).points)


def test_only_what_is_paired_is_periodic() -> None:
    mesh = box("hex", (3, 2, 2))
    channel = rebuilt(mesh, periodic=[periodic_pairs(mesh, 0)])
    assert channel.n_vertices == 3 * 3 * 3
    assert len(channel.facets.boundary) == 4 * 3 * 2


@pytest.mark.parametrize("name", ALL_3D)
def test_topology_pickles_without_what_it_made(name: str) -> None:
    mesh = sample(name)
    before = len(pickle.dumps(mesh))
    ids = [group.faces for group in mesh.cells]
    assert len(pickle.dumps(mesh)) == before
    copy = pickle.loads(pickle.dumps(mesh))
    for own, group in zip(ids, copy.cells, strict=True):
        np.testing.assert_array_equal(group.faces, own)
