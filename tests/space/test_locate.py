"""Finding points in cells of every shape and evaluating fields there: Field.at and Locator."""

import pickle
import sys
import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem import ArgumentError, StateError
from hpfem.mesh import box, read_mesh
from hpfem.shapes import BASES, equispaced_nodes
from hpfem.space import locate
from hpfem.space.locate import Locator, _BlockMap
from meshes import generate
from tests import samples

FILES = sorted(path.stem for path in generate.FOLDER.glob("*.msh"))


@cache
def mesh_of(kind, name, order=1):
    """A small mesh: straight, skewed, tapered or curved."""
    if kind == "curved":
        return samples.curved(name, order)
    return samples.skewed(samples.straight(name)) if kind == "skewed" else samples.tapered(name)


@cache
def file(name):
    return read_mesh(generate.FOLDER / f"{name}.msh")


KINDS = [("skewed", 1), ("tapered", 1), ("curved", 2), ("curved", 3), ("curved", 5)]
each_mesh = pytest.mark.parametrize(
    "mesh",
    [pytest.param((kind, name, k), id=f"{kind}-{name}-{k}") for name in samples.NAMES for kind, k in KINDS],
    indirect=True,
)


@pytest.fixture
def mesh(request):
    return mesh_of(*request.param)


def linear(*x):
    """A function that every map leaves in the space: isoparametric."""
    return 0.7 + sum((i + 1.5) * x_i for i, x_i in enumerate(x))


def mapped(block, xi):
    """Where the local coordinates xi [n, d] are, in every element, [E, n, D]."""
    values = block.geometry.basis.evaluate(xi)
    return (block.geometry.coefficients @ values).transpose(0, 2, 1)


def inner(shape, rng, count=20):
    """Points inside a reference shape, some of them close to its collapsed vertices and edges."""
    eta = rng.uniform(-0.99, 0.99, (count, shape.dim))
    eta[::3] = 1 - 10.0 ** rng.uniform(-2, 0, eta[::3].shape)
    return shape.collapse(eta)


def check_found_again(space, rng):
    """Points mapped out of known cells come back to these cells and local coordinates."""
    for number, block in enumerate(space.blocks):
        xi = inner(block.shape, rng)
        x = mapped(block, xi)
        n = x.shape[1]
        found, element, local = space.locator.find(x.reshape(-1, x.shape[2]))
        assert np.all(found == number)
        assert np.array_equal(element, np.repeat(np.arange(block.n_elements), n))
        assert np.abs(local.reshape(-1, n, block.shape.dim) - xi).max() < 1e-9


@each_mesh
def test_interior_points_are_found_in_their_cell(mesh, rng):
    check_found_again(hp.Space(mesh, 1), rng)


@pytest.mark.parametrize("name", FILES)
def test_interior_points_are_found_in_the_committed_meshes(name, rng):
    check_found_again(hp.Space(file(name), 1), rng)


SHARED = [
    "mfem/fichera-mixed-p2.vtk", "mfem/star-mixed-p2.vtk", "mfem/periodic-torus-sector.msh", "nektar/cube_all.msh",
    "nektar/cube_hex.msh", "nektar/cube_prism.msh", "nektar/extract_square_circ.msh",
]  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_interior_points_are_found_in_meshes_of_others(name, shared_meshes, rng):
    check_found_again(hp.Space(read_mesh(shared_meshes / name), 1), rng)


@each_mesh
def test_vertices_edges_faces_and_apexes(mesh):
    space = hp.Space(mesh, 5)
    u = space.project(linear)
    for block in space.blocks:
        # Order 3 has points on vertices, edges and faces of every shape.
        x = mapped(block, equispaced_nodes(block.shape, 3)).reshape(-1, space.dim)
        assert np.abs(u.at(x) - linear(*x.T)).max() < 1e-11


@pytest.mark.parametrize("name", [name for name in FILES if name != "bench_mixed"])
def test_vertices_of_the_committed_meshes(name):
    mesh = file(name)
    space = hp.Space(mesh, 3)
    values = space.project(linear).at(mesh.points)
    assert np.abs(values - linear(*mesh.points.T)).max() < 1e-10


@pytest.mark.parametrize("name", samples.NAMES_3D)
def test_close_to_apexes_at_all_distances(name, rng):
    space = hp.Space(mesh_of("curved", name, 3), 3)
    u = space.project(linear)
    for block in space.blocks:
        apex = block.shape.vertices[-1]
        way = block.shape.collapse(rng.uniform(-1, 1, (30, block.shape.dim))) - apex
        x = mapped(block, apex + 10.0 ** rng.uniform(-16, 0, (30, 1)) * way).reshape(-1, space.dim)
        assert np.abs(u.at(x) - linear(*x.T)).max() < 1e-11


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("order", [1, 2, 4, 7])
@pytest.mark.parametrize("name", samples.NAMES)
def test_values_are_those_of_the_modes(name, order, basis, rng):
    """A random field jumps between cells: only the right cell has the right value."""
    space = hp.Space(mesh_of("curved", name, 2), order, basis=basis)
    u = space.field("coeff", [rng.normal(size=(2, b.n_elements, b.n_modes)) for b in space.blocks])
    for block, array in zip(space.blocks, u.arrays, strict=True):
        xi = inner(block.shape, rng)
        expected = array @ block.basis.evaluate(xi)
        found = u.at(mapped(block, xi).reshape(-1, space.dim))
        assert np.abs(found - expected.reshape(2, -1)).max() < 1e-9 * np.abs(array).sum(axis=2).max()


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("name", samples.NAMES)
def test_polynomials_of_degree_p_on_affine_cells(name, order, rng):
    mesh = mesh_of("skewed", name)
    d = mesh.dim
    function = samples.Polynomial(rng, d, order)
    x = rng.uniform(0, 1, (200, d)) @ samples.SKEW[:d, :d].T + samples.SHIFT[:d]
    values = hp.Space(mesh, order).project(function).at(x)
    assert samples.norm_error(values, function(*x.T)) < 1e-10


def test_error_of_a_smooth_function_falls_with_the_order(rng):
    mesh = box(("tet", "prism", "hex"), (3, 1, 1)).transformed(lambda x: samples.bulge(x, 0.2))
    x = rng.uniform(0, 1, (500, 3))

    def function(x, y, z):
        return np.sin(2 * x + y) * np.exp(z)

    errors = [np.abs(hp.Space(mesh, p).project(function).at(x) - function(*x.T)).max() for p in (2, 4, 6, 8)]
    assert errors[-1] < 1e-6
    assert all(later < 0.15 * earlier for earlier, later in pairwise(errors))


def test_components_and_dtype():
    space = hp.Space(box("hex", (2, 2, 2)), 2, dtype=np.float32)
    x = np.array([[0.1, 0.2, 0.3], [0.9, 0.5, 0.7], [2.0, 0, 0]])
    one = space.project(lambda x, y, z: x + y)
    assert one.at(x).shape == (3,)
    three = space.project(lambda x, y, z: [x, y * z, 2.0]).at(x)
    assert three.shape == (3, 3)
    assert np.abs(three[:, :2] - [[0.1, 0.9], [0.06, 0.35], [2, 2]]).max() < 1e-6
    assert np.all(np.isnan(three[:, 2]))


@pytest.mark.parametrize("name", samples.NAMES)
def test_points_outside_are_nan(name, rng):
    mesh = samples.straight(name)
    u = hp.Space(mesh, 2).project(linear)
    d = mesh.dim
    inside = rng.uniform(0, 1, (100, d))
    assert np.all(np.isfinite(u.at(inside)))
    axis = rng.integers(0, d, 100)
    for distance in (1e-7, 1e-2, 0.5, 1e6):
        outside = inside.copy()
        side = rng.integers(0, 2, 100)
        outside[np.arange(100), axis] = side + distance * (2 * side - 1)
        assert np.all(np.isnan(u.at(outside)))
        block, element, xi = u.space.locator.find(outside)
        assert np.all(block == -1)
        assert np.all(element == -1)
        assert np.all(np.isnan(xi))


@pytest.mark.parametrize(("name", "dim"), [("disc", 2), ("ball", 3)])
def test_a_round_boundary(name, dim, rng):
    """The boundary is a polynomial close to the unit circle or sphere."""
    space = hp.Space(file(name), 3)
    way = rng.normal(size=(500, dim))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    u = space.project(linear)
    assert np.all(np.isfinite(u.at(0.97 * way)))
    assert np.all(np.isnan(u.at(1.01 * way)))


def test_a_point_just_off_the_boundary_counts_as_on_it():
    space = hp.Space(box("tet", (1, 1, 1)), 2)
    u = space.project(linear)
    x = np.array([[1 + 1e-12, 0.3, 0.4], [-1e-12, 0.1, 0.7], [1 + 1e-12, 1 + 1e-12, 1 + 1e-12]])
    assert np.abs(u.at(x) - linear(*x.T)).max() < 1e-10
    further = [[1 + 5e-4, 0.3, 0.4]]
    assert Locator(space, 1e-3).find(further)[0][0] == 0
    assert Locator(space, 1e-4).find(further)[0][0] == -1


@pytest.mark.parametrize("name", samples.NAMES_2D)
def test_a_curved_surface_in_space(name, rng):
    mesh = samples.sphere_patch(name, order=4)
    space = hp.Space(mesh, 4)
    check_found_again(space, rng)
    u = space.project(linear)
    block = space.blocks[0]
    x = mapped(block, inner(block.shape, rng, 60)).reshape(-1, 3)
    assert np.abs(u.at(x) - linear(*x.T)).max() < 1e-10
    # The closest point of a sphere is the one below.
    above = 1.001 * x
    assert np.all(np.isnan(u.at(above)))
    locator = Locator(space, 1e-2)
    found = locator.evaluate([pair.read() for pair in u.data], above)[0]
    assert np.abs(found - linear(*x.T)).max() < 1e-4
    assert np.all(locator.find(1.1 * x)[0] == -1)


def test_a_plane_in_space(rng):
    space = hp.Space(samples.plane_in_space("tri"), 3)
    check_found_again(space, rng)


@pytest.mark.parametrize("name", samples.NAMES)
def test_thin_cells_far_from_the_origin(name, rng):
    d = samples.dimension(name)
    scale = np.array([1.0, 1e-2, 1e-4])[:d]

    def stretch(x):
        return x * scale + 10.0

    mesh = samples.tapered(name, 0.2).transformed(stretch)
    u = hp.Space(mesh, 2).project(linear)
    x = stretch(rng.uniform(1e-3, 1 - 1e-3, (200, d)))
    assert np.abs(u.at(x) - linear(*x.T)).max() < 1e-9


@pytest.mark.parametrize("shapes", ["quad", "tri", ("tri", "quad")])
def test_cells_that_turn_by_a_right_angle(shapes, rng):
    """Each layer of this half ring is one strongly curved cell across an angle of 90 degrees."""

    def wrap(x):
        radius, angle = 1 + x[:, 0], np.pi * x[:, 1]
        return np.stack([radius * np.cos(angle), -radius * np.sin(angle)], axis=1)

    mesh = box(shapes, (2, 2)).elevated(7).transformed(wrap)
    space = hp.Space(mesh, 7)
    check_found_again(space, rng)
    x = wrap(rng.uniform(0.001, 0.999, (300, 2)))
    u = space.project(linear)
    assert np.abs(u.at(x) - linear(*x.T)).max() < 1e-9
    assert np.isnan(u.at([[0.0, 0.0], [0.0, -0.98], [0.0, 0.5]])).all()


@pytest.mark.parametrize("name", [*samples.NAMES, "curved_mixed", "pipe_mixed", "ball"])
def test_short_cuts_change_nothing(name, rng, monkeypatch):
    """What is found quickly, or left out, is what careful inversion in every box around a point finds."""
    mesh = samples.curved(name, 3) if name in samples.NAMES else file(name)
    low, high = mesh.points.min(axis=0), mesh.points.max(axis=0)
    # A third of the points is close to vertices, most of which are on the boundary.
    x = rng.uniform(low - 0.02, high + 0.02, (600, mesh.dim))
    x[::3] = rng.choice(mesh.points, 200) + rng.normal(size=(200, mesh.dim)) * 10.0 ** rng.uniform(-12, -2, (200, 1))
    block, element, xi = hp.Space(mesh, 1).locator.find(x)

    def undecided(self, elements, points, width):
        no = np.zeros(len(points), dtype=bool)
        return no, np.zeros((len(points), mesh.dim)), no

    monkeypatch.setattr(_BlockMap, "quick", undecided)
    careful = hp.Space(mesh, 1).locator
    for own in careful._maps:
        own.departure[:] = np.inf
    wanted = careful.find(x)
    assert np.array_equal(block < 0, wanted[0] < 0)
    same = (block == wanted[0]) & (element == wanted[1]) & (block >= 0)
    assert same.sum() > 0.9 * (block >= 0).sum() > 90  # others are on sides that cells share
    assert np.abs(xi[same] - wanted[2][same]).max() < 1e-8


@pytest.mark.parametrize("name", ["quad", "tri", "hex", "prism", "pyramid", "tet"])
def test_one_jacobian_serves_several_steps(name, rng, monkeypatch):
    """Where cells bend as little as on a mesh of some size, a point takes one, and four or five values of the map."""
    flat = box(name, 4).elevated(3)
    mesh = flat.transformed(lambda x: x + 0.03 * np.sin(3 * np.roll(x, 1, axis=1)))
    count = dict.fromkeys(("modes_at", "gradients_at"), 0)

    def counted(what, made):
        def run(basis, eta):
            count[what] += len(eta)
            return made(basis, eta)

        return run

    for what in count:
        monkeypatch.setattr(locate, what, counted(what, getattr(locate, what)))
    x = rng.uniform(0.15, 0.9, (20_000, mesh.dim))
    assert (hp.Space(mesh, 1).locator.find(x)[0] >= 0).all()
    assert count["gradients_at"] < 1.3 * len(x)
    assert count["modes_at"] < 5 * len(x)


OURS, SHAPES = (str(Path(package.__file__).parent) for package in (hp, hp.shapes))


def our_lines(function):
    """How many lines of hpfem, without shapes/, run in `function`: a loop over points or cells counts each turn."""
    count = 0

    def counts(code):
        return code.co_filename.startswith(OURS) and not code.co_filename.startswith(SHAPES)

    def tick(frame, event, argument):
        nonlocal count
        count += event == "line"
        return tick

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: tick if counts(frame.f_code) else None)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", ["quad", "hex", "pyramid", "tet"])
def test_no_python_loop_runs_over_points(name, rng):
    mesh = samples.curved(name, 2)
    locator = hp.Space(mesh, 2).locator
    x = mesh.points.mean(axis=0) + rng.uniform(-0.4, 0.4, (12_000, mesh.dim))
    assert our_lines(lambda: locator.find(x)) < len(x)


def test_no_python_loop_runs_over_cells(rng):
    locator = hp.Space(box("tet", (12, 12, 12)), 1).locator
    assert our_lines(lambda: locator.find(rng.uniform(0, 1, (100, 3)))) < 12**3


def test_lines_of_a_loop_are_counted(rng):
    locator = hp.Space(box("tet", (1, 1, 1)), 1).locator
    few = our_lines(lambda: locator.find(rng.uniform(0, 1, (1, 3))))
    assert 10 < few < our_lines(lambda: [locator.find(x[None]) for x in rng.uniform(0, 1, (20, 3))]) / 10


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([[0.1, 0.2]], r"\[n, 3\].*\[1, 2\]"),
        ([0.1, 0.2, 0.3], r"\[n, 3\].*\[3\]"),
        ([[[0.1, 0.2, 0.3]]], r"\[n, 3\]"),
        ([[0.1, 0.2, 0.3], [0, np.nan, 0]], "point 1 is not finite"),
        ([[np.inf, 0, 0]], "point 0 is not finite"),
        ([["a", "b", "c"]], "numbers"),
        ([[0.1, 0.2, 0.3], [0.1, 0.2]], "numbers"),
        (None, "array of real numbers, got None"),
    ],
)
def test_bad_points(points, message):
    u = hp.Space(box("hex", (1, 1, 1)), 1).zeros("coeff")
    with pytest.raises(ArgumentError, match=message):
        u.at(points)


@pytest.mark.parametrize("tolerance", [-1.0, np.nan, np.inf, "small", True])
def test_bad_tolerances(tolerance):
    with pytest.raises(ArgumentError, match="tolerance"):
        Locator(hp.Space(box("hex", (1, 1, 1)), 1), tolerance)


@pytest.mark.parametrize("state", ["phys", "dual"])
def test_only_coefficients_are_evaluated(state):
    u = hp.Space(box("hex", (1, 1, 1)), 1).zeros(state)
    with pytest.raises(StateError, match="coeff"):
        u.at([[0.5, 0.5, 0.5]])


def test_no_points():
    u = hp.Space(box("hex", (1, 1, 1)), 1).zeros("coeff")
    assert u.at(np.empty((0, 3))).shape == (0,)


def test_a_pickled_space_finds_points_again():
    space = hp.Space(samples.curved("prism", 2), 2)
    u = space.project(linear)
    x = space.mesh.points
    expected = u.at(x)
    assert np.array_equal(pickle.loads(pickle.dumps(u)).at(x), expected)


def disc(order, n=16):
    """Triangles around a centre, with straight sides or of order 2, whose corners are on the unit circle."""
    angles = np.linspace(0, 2 * np.pi, n, endpoint=False)
    points = np.concatenate([[[0.0, 0.0]], np.column_stack([np.cos(angles), np.sin(angles)])])
    rows = np.column_stack([np.zeros(n, int), 1 + np.arange(n), 1 + (1 + np.arange(n)) % n])
    return hp.Space(hp.Mesh.from_cells(points, [("tri", 1, rows)]), order, backend="numpy")


@pytest.mark.parametrize(
    "call", [lambda u, x, **o: u(x, **o), lambda u, x, **o: u(*x.T, **o), lambda u, x, **o: u.at(x, **o)]
)
def test_points_beside_the_domain_take_the_closest_cell(call):
    """On the true circle around a polygon: counted in one warning, or the value at the closest point of the polygon."""
    u, n = disc(2).project(lambda x, y: 1 + x + y), 200
    angles = np.linspace(0, 2 * np.pi, n, endpoint=False)
    x = np.column_stack([np.cos(angles), np.sin(angles)])
    with pytest.warns(hp.HpfemWarning, match=r"192 of 200 points are outside the mesh") as said:
        found = call(u, x)
    assert np.isnan(found).sum() == 192 and len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = call(u, x, tolerance=0.05)
    sagitta = 1 - np.cos(np.pi / 16)
    assert np.abs(found - (1 + x.sum(axis=1))).max() < np.sqrt(2) * sagitta * (1 + 1e-9)
    # The value is that of the closest point of all sides.
    ends = np.column_stack([np.cos(np.arange(17) * np.pi / 8), np.sin(np.arange(17) * np.pi / 8)])
    t = np.clip(
        np.einsum("nsd,sd->ns", x[:, None] - ends[:-1], np.diff(ends, axis=0)) / (2 * np.sin(np.pi / 16)) ** 2, 0, 1
    )
    near = ends[:-1] + t[..., None] * np.diff(ends, axis=0)
    side = np.argmin(((x[:, None] - near) ** 2).sum(axis=2), axis=1)
    assert np.abs(found - 1 - near[np.arange(n), side].sum(axis=1)).max() < 1e-9
    with pytest.warns(hp.HpfemWarning, match="1 of 1 points are outside .*; a tolerance larger than 0.05 takes"):
        assert np.isnan(call(u, 1.2 * x[1:2], tolerance=0.05)).all()


@pytest.mark.parametrize("name", ["tri", "quad", "tet", "hex", "prism", "pyramid"])
def test_the_closest_point_is_found_in_sheared_cells(name, rng):
    """Points around a mesh of curved, sheared cells are as far from it as the closest of many points of its cells."""
    mesh = samples.curved(name, 2, 0.15)
    mesh = mesh.transformed(lambda p: p @ (np.eye(mesh.dim) + 0.9 * np.eye(mesh.dim, k=-1)))
    space = hp.Space(mesh, 1, backend="numpy")
    lower, upper = mesh.points.min(axis=0) - 0.1, mesh.points.max(axis=0) + 0.1
    x = rng.uniform(lower, upper, (150, mesh.dim))
    locator = Locator(space, 0.05)
    block, _, _, away = locator._located(x)
    least, size = np.full(len(x), np.inf), np.inf
    for own, known in zip(space.blocks, locator._maps, strict=True):
        lattice = np.stack(np.meshgrid(*[np.linspace(-1, 1, 13)] * mesh.dim), axis=-1).reshape(-1, mesh.dim)
        nodes = own.geometry.positions(own.geometry.basis.evaluate(own.shape.collapse(lattice)), slice(None))
        gaps = x[:, :, None, None] - nodes[None]
        least = np.minimum(least, np.sqrt((gaps**2).sum(axis=1)).min(axis=(1, 2)))
        size = min(size, known.reach.min())
    outside = space.locator.find(x)[0] < 0
    assert (block[least < size] >= 0).all() and (outside & (block >= 0)).sum() > 5
    assert (away[block >= 0] <= least[block >= 0] + 1e-9).all()
