"""Multigrid: flat in order and size, symmetric positive definite, the same on all backends, for all shapes."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import scipy.sparse.linalg

import hpfem as hp
from hpfem.assembly.entries import element_matrices
from hpfem.backends import BACKENDS
from hpfem.backends.cellwise import CellwiseProduct
from hpfem.backends.cuda.vectors.cellwise import bfloat16
from hpfem.backends.vectors import HOST_VECTORS
from hpfem.forms.form import BlockKernel
from hpfem.mesh import box
from hpfem.shapes import SHAPES
from hpfem.shapes.low_energy import eigenbasis, reference_energies
from hpfem.solvers.multigrid import Multigrid, cycle
from hpfem.solvers.multigrid.chebyshev import largest_eigenvalue
from hpfem.solvers.multigrid.energies import cell_energies, refreshed
from hpfem.solvers.preconditioners import jacobi
from tests.assembly.meshes import ours, rotated
from tests.samples import long, norm_error, skewed

SOLIDS = ("hex", "prism", "pyramid", "tet")
SHAPES_OF_CELLS = (*SOLIDS, "quad", "tri")


def operator(mesh, order, basis="modified", lam=1.0, diffusivity=None, components=None, dtype="float64", **conditions):
    space = hp.Space(mesh, order, basis, dtype=dtype)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, **conditions)
    return hp.GlobalOperator(hp.Helmholtz(space, lam, diffusivity), c0, bc, components)


def iterations(A, rng, tol=1e-8, **options):
    free = np.tile(A.bc.free, A.components)
    b = rng.standard_normal(A.shape[0]).astype(A.dtype) * free
    x, info = hp.cg(A, b, Multigrid(A, **options), tol=tol)
    assert np.linalg.norm(A.apply(x) - b) <= 1.1 * max(tol, info.residual) * np.linalg.norm(b)
    return info.iterations


@pytest.mark.parametrize("shape", SOLIDS)
@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_every_shape_and_order(shape, order, rng):
    assert iterations(operator(box(shape, (3, 3, 3)), order, dirichlet={"xmin": 0.0}), rng) <= 12


@pytest.mark.parametrize("name", ["curved_mixed", "cube_mixed", "ball", "pipe_mixed", "square_mixed"])
@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_our_meshes_in_both_bases(name, basis, rng):
    counts = [iterations(operator(ours(f"{name}.msh"), order, basis, dirichlet=0.0), rng) for order in (2, 4)]
    assert max(counts) <= 14, counts


def test_what_is_dropped_gives_its_memory_back_at_once(backend):
    """Not when Python looks for circles: until then every problem would take memory of its own."""
    space = hp.Space(box("tet", (2, 2, 2)), 2, backend=backend)
    problem = hp.Problem(space, dirichlet=0.0, preconditioner="multigrid", bar=False)
    problem.solve(1.0)
    M = problem.preconditioner
    gone = [weakref.ref(own) for own in (problem, M, M.levels[0].smoothers[0])]
    gc.collect()
    gc.disable()
    try:
        del problem, M
        assert [own() for own in gone] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("shape", SHAPES_OF_CELLS)
def test_mean_energies_of_constant_coefficients(shape):
    """From one point of an affine cell; from all points, where functions give the same numbers."""
    space = hp.Space(skewed(box(shape, (2,) * SHAPES[shape].dim)), 2)
    found = cell_energies(hp.Helmholtz(space, 3.0, 2.0), 0, np)
    at_all = cell_energies(hp.Helmholtz(space, lambda *x: 3.0 + 0 * x[0], lambda *x: 2.0 + 0 * x[0]), 0, np)
    for own, other in zip(found, at_all, strict=True):
        assert norm_error(own.means, other.means) < 1e-13


@pytest.mark.parametrize("shape", SHAPES_OF_CELLS)
def test_mean_energies_of_coordinates(shape):
    """Of a form that reads gradients alone matrices tell the same as sums over points, also between components."""

    def coupled(du, k):
        divergence = sum(du[i][i] for i in range(len(du)))
        return [[k * (1 + i) * du[i][j] + (i == j) * divergence for j in range(len(du))] for i in range(len(du))]

    flat = box(shape, (2,) * (2 if shape in ("quad", "tri") else 3))
    bent = flat.elevated(2).transformed(lambda x: x + 0.05 * np.sin(3 * x.sum(axis=1, keepdims=True)))
    for mesh in (flat, bent):
        space, n = hp.Space(mesh, 1), mesh.dim
        form = hp.WeakForm(space, coupled, test="grad", fields={"k": lambda *x: 1 + x[0]}, components=n)
        summed = [cell_energies(form, c, np) for c in range(n)]
        matrices = [element_matrices(form, number) for number in range(len(space.blocks))]
        for found, expected in zip(refreshed(summed, form, matrices, np), summed, strict=True):
            for own, other in zip(found, expected, strict=True):
                assert norm_error(own.means, other.means) < 1e-13 and own.means is not other.means


@pytest.mark.parametrize("shape", SOLIDS)
def test_bounds_of_eigenvalues(shape, rng, monkeypatch):
    """Within what the smoother allows where coefficients jump at random, which takes Lanczos' method the most steps."""
    space = hp.Space(box(shape, (2, 2, 2)), 3)
    k = space.field("phys", [np.where(rng.random((1, b.n_elements, 1)) < 0.5, 1.0, 1e6) * np.ones((1, 1, b.n_points))
                             for b in space.blocks])  # fmt: skip
    found = []

    def more(*given):
        own = largest_eigenvalue(*given)
        with monkeypatch.context() as patch:
            patch.setattr("hpfem.solvers.multigrid.chebyshev._STEPS", 100)
            found.append((own.value, largest_eigenvalue(*given).value))
        return own

    monkeypatch.setattr(cycle, "largest_eigenvalue", more)
    c0 = hp.C0Space(space)
    A = hp.GlobalOperator(hp.Helmholtz(space, 0.0, k), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
    Multigrid(A, dtype=np.float64)
    assert found and all(0.93 * exact <= bound <= 1.01 * exact for bound, exact in found), found


def test_an_eigenvalue_that_grows_in_one_place():
    """From noise four steps of Lanczos' method find the same as before."""
    rng, before = np.random.default_rng(0), None
    noise, A = rng.standard_normal(2000), 4 * rng.random(2000)
    for largest in (4.8, 5.1, 5.4, 5.8):
        A[:2] = largest
        before = largest_eigenvalue(lambda x: A * x, np.copy, HOST_VECTORS, noise, before)
        assert before.value > 1.02 * largest
    again = largest_eigenvalue(lambda x: 1.01 * A * x, np.copy, HOST_VECTORS, noise, before)
    assert again.value == before.value


def test_iterations_do_not_grow_with_the_mesh(rng):
    counts = [iterations(operator(box(SOLIDS, (n, n, n)), 3, dirichlet={"xmin": 0.0}), rng) for n in (4, 8)]
    assert counts[1] <= counts[0] + 1, counts


@pytest.mark.parametrize(
    "conditions",
    [{}, {"dirichlet": 0.0}, {"robin": (2.0, 1.0)}, {"dirichlet": {"xmin": 0.0}, "robin": {"xmax": (1.0, 0.0)}}],
    ids=["neumann", "dirichlet", "robin", "mixed"],
)
@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_it_is_symmetric_positive_definite(conditions, basis, rng):
    A = operator(rotated(box(SOLIDS, (4, 1, 1)), rng), 3, basis, **conditions)
    M = Multigrid(A, dtype=np.float64)
    matrix = np.array([M(row) for row in np.eye(A.c0.size)])
    assert np.abs(matrix - matrix.T).max() < 1e-11 * np.abs(matrix).max()
    assert np.linalg.eigvalsh((matrix + matrix.T) / 2)[0] > 0
    # What is prescribed is left alone.
    x = rng.standard_normal(A.c0.size) * A.bc.constrained
    assert np.allclose(M(x), x)


@pytest.mark.parametrize("alpha", [1e-2, 1.0, 1e2, 1e4])
def test_robin_conditions_of_any_size(alpha, rng):
    assert iterations(operator(box("hex", (2, 2, 2)), 5, lam=0.0, robin=(alpha, 0.0)), rng) <= 14


@pytest.mark.parametrize("lam", [0.0, 1.0, 1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("shape", SOLIDS)
def test_reactions_of_any_size(lam, shape, rng):
    assert iterations(operator(box(shape, (2, 2, 2)), 4, lam=lam, dirichlet={"xmin": 0.0}), rng) <= 14


@pytest.mark.parametrize("jump", [1e3, 1e6])
def test_jumps_from_cell_to_cell(jump, rng):
    space = hp.Space(box("hex", (4, 4, 4)), 4)
    k = space.field("phys", [np.where(rng.random((1, b.n_elements, 1)) < 0.5, 1.0, jump) * np.ones((1, 1, b.n_points))
                             for b in space.blocks])  # fmt: skip
    c0 = hp.C0Space(space)
    A = hp.GlobalOperator(hp.Helmholtz(space, 0.0, k), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    assert iterations(A, rng) <= 16


@pytest.mark.parametrize("ratio", [10, 100])
@pytest.mark.parametrize("order", [2, 4, *long(6)])
@pytest.mark.parametrize("shape", ["hex", "prism", "quad"])
def test_layers_of_stretched_cells(shape, order, ratio, rng):
    flat = shape == "quad"
    mesh = box(shape, (3, 3) if flat else (2, 2, 3), upper=[1.0] * (1 if flat else 2) + [1 / ratio])
    A = operator(mesh, order, lam=0.0, dirichlet={"xmin": 0.0})
    M = Multigrid(A)
    assert any(level.smoothers[0].lines for level in M.levels[:-1])
    assert iterations(A, rng) <= 14


def test_vertices_of_stretched_hexes(rng):
    """Beyond what is inverted: few iterations, by few entries."""
    A = operator(box("hex", (9, 9, 9), upper=(1.0, 1.0, 1 / 24)), 1, lam=0.0, dirichlet={"xmin": 0.0})
    matrices = [own.A for own in Multigrid(A).vertices.made.levels]
    assert sum(own.nnz for own in matrices) <= 1.6 * matrices[0].nnz
    assert iterations(A, rng) <= 20


@pytest.mark.parametrize(("shape", "order"), [("tet", 2), ("tet", 3), ("prism", 2), ("tri", 2)])
def test_no_vertex_is_free(shape, order, rng):
    """One layer of cells between given values, without modes inside the cells."""
    mesh = box(shape, (6, 1) if shape == "tri" else (4, 4, 1))
    A = operator(mesh, order, lam=1.0, dirichlet=0.0)
    assert not A.bc.free[: A.c0.counts["vertices"]].any()
    assert iterations(A, rng) <= 18


# Shape, boxes, the thin direction, the side with values, the most iterations at 1:16 and 1:100.
STRETCHED = [
    ("tri", (6, 3), 1, "xmin", 10, 12),
    ("tet", (3, 3, 3), 2, "xmin", 12, 12),
    ("prism", (3, 3, 3), 0, "ymin", 12, 12),
    ("pyramid", (3, 3, 2), 2, "xmin", 9, 11),
]


@pytest.mark.parametrize("ratio", [0, 1], ids=["16", "100"])
@pytest.mark.parametrize(("shape", "counts", "axis", "side", "most", "more"), STRETCHED)
def test_stretched_cones(shape, counts, axis, side, most, more, ratio, rng):
    upper = [1.0] * len(counts)
    upper[axis] = (1 / 16, 1 / 100)[ratio]
    A = operator(box(shape, counts, upper=upper), 4, lam=0.0, dirichlet={side: 0.0})
    assert iterations(A, rng) <= (most, more)[ratio]


@pytest.mark.parametrize(("order", "slope", "most"), [(7, 0.0, 20), (4, 0.5, 15), (2, 0.5, 12), (3, 0.5, 14)])
def test_thin_pyramids_of_high_order_and_slanted(order, slope, most, rng):
    """Groups are not cut nor kept whole for few functions, and little energy is continued exactly: else 28 to 70."""
    counts, thickness = ((4, 3, 6), 1000) if slope else ((2, 2, 2), 100)

    def graded(x):
        z = np.expm1(np.log(thickness) * x[:, 2]) / (thickness - 1) * (1 + 0.1 * np.sin(3 * x[:, 0]))
        return np.column_stack([x[:, 0] + slope * z, x[:, 1], z if slope else x[:, 2] / thickness])

    mesh = box("pyramid", counts).transformed(graded)
    assert iterations(operator(mesh, order, lam=0.0, dirichlet={"xmin": 0.0}), rng) <= most


def test_very_thin_pyramids(rng):
    """Energies of continuations are right in float32: else 63."""
    A = operator(box("pyramid", (1, 1, 2), upper=(1.0, 1.0, 2e-3)), 6, lam=0.0, dirichlet={"xmin": 0.0})
    assert iterations(A, rng) <= 40


@pytest.mark.parametrize("backend", ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_vertices_of_thin_pyramids_are_bilinear_across_a_layer(backend, rng):
    """Else 16 iterations, and more on finer meshes; by the matrix of their continued functions, refreshed too."""
    space = hp.Space(box("pyramid", (6, 6, 4), upper=(1.0, 1.0, 1 / 24)), 2, backend=backend)
    c0, k = hp.C0Space(space), space.evaluate(lambda x, y, z: 1 + x * y)
    A = hp.GlobalOperator(hp.Helmholtz(space, 0.0, k), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
    M, b = Multigrid(A), A.vectors.from_host(rng.standard_normal(c0.size) * A.bc.free)
    assert M.vertices.sizes[0] == 7 * 6 * 5  # none at the apices
    assert hp.cg(A, b, M, tol=1e-8, bar=False)[1].iterations <= 9
    for own in k.arrays:
        own[...] = 1e3 / own
    M.refresh()
    assert hp.cg(A, b, M, tol=1e-8, bar=False)[1].iterations <= 9


@pytest.mark.parametrize("backend", ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_pyramids_between_other_cells(backend, rng):
    """And where functions of neighbours differ so much that groups are not eliminated."""
    for ratio, most in ((16, 12), (1000, 150)):
        space = hp.Space(box(("hex", "pyramid", "tet"), (3, 1, 2), upper=(1.0, 1.0, 1 / ratio)), 3, backend=backend)
        c0 = hp.C0Space(space)
        A = hp.GlobalOperator(hp.Laplacian(space), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
        M, b = Multigrid(A), A.vectors.from_host(rng.standard_normal(c0.size) * A.bc.free)
        assert M.levels[0].smoothers[0].has == (2 if ratio == 16 else 1)
        assert hp.cg(A, b, M, tol=1e-8, bar=False)[1].iterations <= most


def test_groups_that_go_on_beside_thin_pyramids(rng):
    """Their couplings are known in the cells beside, too, so that they can be eliminated: else 20 iterations."""

    def graded(x):
        z = (np.exp(4.6 * x[:, 2]) - 1) / 99 * (1 + 0.1 * np.sin(3 * x[:, 0]))
        return np.column_stack([x[:, 0] + 0.5 * z, x[:, 1], z])

    mesh = box(("prism", "tet"), (4, 2, 5)).transformed(graded)
    assert iterations(operator(mesh, 4, lam=0.0, dirichlet={"xmin": 0.0}), rng) <= 16


@pytest.mark.parametrize("backend", ["numpy", "cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_many_layers_cost_no_more(backend, rng):
    """Entries of the factors by unknown, and iterations, of layers of tets."""
    counts, entries = [], []
    for layers in (8, 32):
        space = hp.Space(box("tet", (2, 2, layers), upper=(1.0, 1.0, layers / 64)), 3, backend=backend)
        c0 = hp.C0Space(space)
        A = hp.GlobalOperator(hp.Laplacian(space), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
        M = Multigrid(A)
        (lines,) = M.levels[0].smoothers[0].lines
        entries.append(lines.entries / c0.size)
        b = A.vectors.from_host(rng.standard_normal(c0.size) * A.bc.free)
        counts.append(hp.cg(A, b, M, tol=1e-8, bar=False)[1].iterations)
    assert entries[1] <= 1.3 * entries[0] < 40 and max(counts) <= 16


@pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_groups_are_inverted_whole_where_a_device_wants_that(backend, rng, monkeypatch):
    """Groups of 47 and 62 functions, as a host eliminates them."""
    found, r = [], None
    for name in ("numpy", backend):
        space = hp.Space(box("tet", (2, 2, 16), upper=(1.0, 1.0, 0.25)), 3, backend=name)
        c0 = hp.C0Space(space)
        A = hp.GlobalOperator(hp.Laplacian(space), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
        r = rng.standard_normal(A.shape[0]) if r is None else r
        if name == "cpu":
            monkeypatch.setattr("hpfem.backends.vectors.VectorSpace.whole_group", 96)
        M, z = Multigrid(A), A.vectors.from_host(r, np.float32) * 1
        (lines,) = M.levels[0].smoothers[0].lines
        assert bool(lines._stages) == (name == "numpy")
        lines(z)
        found.append(A.vectors.to_host(z))
    assert np.abs(found[1] - found[0]).max() < 1e-4 * np.abs(found[0]).max()


@pytest.mark.parametrize(
    ("name", "order", "most"), [("tet", 6, 11), ("pyramid", 5, 10), ("pipe_mixed", 4, 10), *long(("ball", 6, 10))]
)
def test_cells_that_are_hardly_stretched(name, order, most, rng):
    """Weak couplings that make no groups, and classes of cells that are hardly alike, would cost 2 to 8 iterations."""
    mesh = box(name, 3, upper=(1.0, 1.0, 0.25)) if name in SOLIDS else ours(f"{name}.msh")
    given = {"xmin": 0.0} if name in SOLIDS else 0.0
    assert iterations(operator(mesh, order, lam=0.0, dirichlet=given), rng) <= most


@pytest.mark.parametrize(("name", "order", "most"), [("disc", 6, 15), ("ball", 3, 20)])
def test_groups_that_spread_sideways_are_cut(name, order, most, rng):
    """The smoother takes three steps on the disc, whose largest eigenvalue is 4.9: with two it takes 19 iterations."""
    mesh = ours(f"{name}.msh")
    flat = mesh.transformed(lambda x: x * np.array([1.0] * (mesh.dim - 1) + [1 / 16]))
    A = operator(flat, order, lam=0.0, dirichlet=0.0)
    assert iterations(A, rng) <= most
    M = Multigrid(A)
    assert [own.degree for own in copy.copy(M).levels] == [own.degree for own in M.levels]


def test_products_beside_stretched_cones(rng):
    """They have the traces of these where they meet: else the largest eigenvalue is 6.2."""
    counts = []
    for ratio in (16, 256):
        A = operator(box(("quad", "tri"), (4, 4), upper=(1.0, 1 / ratio)), 4, lam=0.0, dirichlet={"xmin": 0.0})
        assert Multigrid(A).levels[0].bounds.value <= 5
        counts.append(iterations(A, rng))
    assert max(counts) <= 12


def test_solutions_are_those_of_jacobi(rng, monkeypatch):
    """Also if the couplings are summed up in parts."""
    A = operator(box(("prism", "tet"), (2, 1, 2), upper=(1, 1, 0.05)), 3, lam=0.0, dirichlet={"xmin": 0.0})
    r = rng.standard_normal(A.c0.size)
    whole = Multigrid(A, dtype=np.float64)(r)
    monkeypatch.setattr("hpfem.solvers.multigrid.smoother._AT_ONCE", 1000)
    assert np.abs(Multigrid(A, dtype=np.float64)(r) - whole).max() < 1e-9 * np.abs(whole).max()
    b = rng.standard_normal(A.c0.size) * A.bc.free
    x, y = (hp.cg(A, b, make(A), tol=1e-10, bar=False)[0] for make in (Multigrid, jacobi))
    assert np.abs(x - y).max() < 1e-6 * np.abs(y).max()


def test_lines_of_several_components_in_single_precision_and_between_nodes(rng):
    mesh = box("hex", (2, 2, 3), upper=(1, 1, 0.02))
    three = operator(mesh, 3, lam=0.0, components=3, dtype="float32", dirichlet={"xmin": 0.0})
    assert iterations(three, rng, tol=1e-4) <= 14
    assert iterations(operator(mesh, 3, "lagrange", lam=0.0, dirichlet={"xmin": 0.0}), rng) <= 14


@pytest.mark.parametrize("shape", ["hex", "prism", "pyramid"])
def test_lines_are_symmetric_positive_definite(shape):
    A = operator(box(shape, (2, 1, 2), upper=(1, 1, 0.1)), 3, lam=0.0, dirichlet={"xmin": 0.0})
    M = Multigrid(A, dtype=np.float64)
    assert M.levels[0].smoothers[0].lines
    matrix = np.array([M(row) for row in np.eye(A.c0.size)])
    assert np.abs(matrix - matrix.T).max() < 1e-10 * np.abs(matrix).max()
    assert np.linalg.eigvalsh((matrix + matrix.T) / 2)[0] > 0


@pytest.mark.parametrize("shape", SHAPES_OF_CELLS)
@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_nearly_affine_cells_have_affine_levels(shape, basis, rng):
    flat = shape in ("quad", "tri")
    mesh = box(shape, (4,) * (2 if flat else 3)).elevated(2)
    bent, much = (mesh.transformed(lambda x, a=a: x + a * np.sin(np.pi * x[:, ::-1])) for a in (0.008, 0.1))
    A = operator(bent, 3, basis, lam=1.0, diffusivity=lambda *x: 1 + x[0] * x[1], dirichlet={"xmin": 0.0})
    assert not any(block.affine for block in A.c0.space.blocks)
    levels = Multigrid(A, dtype=np.float64).levels
    assert all(block.affine for level in levels for block in level.A.c0.space.blocks)
    count = iterations(A, rng)
    assert count <= iterations(operator(mesh, 3, basis, dirichlet={"xmin": 0.0}), rng) + 1
    levels = Multigrid(operator(much, 3, basis, dirichlet={"xmin": 0.0})).levels
    assert not any(block.affine for level in levels for block in level.A.c0.space.blocks)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_tiny_and_huge_meshes(scale, rng):
    mesh = box("tet", (2, 2, 2)).transformed(lambda points: scale * points)
    assert iterations(operator(mesh, 3, lam=1 / scale**2, dirichlet=0.0), rng) <= 14


def test_components_have_a_cycle_each(rng):
    three = operator(box("hex", (2, 2, 2)), 4, components=3, dirichlet={"xmin": 0.0})
    one = operator(box("hex", (2, 2, 2)), 4, dirichlet={"xmin": 0.0})
    r = rng.standard_normal((3, one.c0.size))
    M, of_three = (Multigrid(A, dtype=np.float64) for A in (one, three))
    for own, same in zip(of_three.levels, M.levels, strict=True):
        own.smoothers = same.smoothers  # scaled by an estimate from random vectors
    found = of_three(r.ravel()).reshape(3, -1)
    assert np.allclose(found, [M(row) for row in r], rtol=0, atol=1e-12 * np.abs(found).max())


def test_coupled_components(rng):
    def elastic(du):
        strain = [[(du[i][j] + du[j][i]) / 2 for j in range(3)] for i in range(3)]
        trace = strain[0][0] + strain[1][1] + strain[2][2]
        return [[2 * strain[i][j] + (trace if i == j else 0) for j in range(3)] for i in range(3)]

    space = hp.Space(box("tet", (2, 2, 2)), 3)
    c0 = hp.C0Space(space)
    form = hp.WeakForm(space, elastic, trial="grad", test="grad", components=3)
    A = hp.GlobalOperator(form, c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
    assert iterations(A, rng) <= 40


def test_different_orders(rng):
    orders = {"hex": 2, "prism": 3, "pyramid": 4, "tet": 3}
    assert iterations(operator(rotated(ours("cube_mixed.msh"), rng), orders, dirichlet=0.0), rng) <= 16


def test_float32_inside_costs_no_iterations(rng):
    A = operator(ours("curved_mixed.msh"), 4, dirichlet=0.0)
    counts = [iterations(A, np.random.default_rng(1), 1e-11, dtype=dtype) for dtype in (np.float32, np.float64)]
    assert abs(counts[0] - counts[1]) <= 1, counts


def test_single_precision_problems(rng):
    assert iterations(operator(ours("cube_mixed.msh"), 4, dtype="float32", dirichlet=0.0), rng, tol=1e-5) <= 14


def test_backends_agree(rng):
    mesh = ours("cube_mixed.msh")
    found = []
    r = None
    for backend in ("numpy", "cpu"):
        space = hp.Space(mesh, 4, backend=backend)
        c0 = hp.C0Space(space)
        A = hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
        r = rng.standard_normal(c0.size) if r is None else r
        found.append(Multigrid(A, dtype=np.float64)(r))
    assert np.allclose(*found, rtol=0, atol=1e-11 * np.abs(found[0]).max())


def test_eigenvectors_of_a_regular_face():
    for shape in (SHAPES["quad"], SHAPES["tri"]):
        U = eigenbasis(shape, 5)
        M = reference_energies(shape, 5)[1]
        inside = [m for m, mode in enumerate(hp.shapes.make_basis("modified", shape, 5).modes) if mode.entity[0] == 2]
        mass = U.T @ M[np.ix_(inside, inside)] @ U
        assert np.allclose(mass, np.diag(mass.diagonal()), rtol=0, atol=1e-12)
        # Those of a tri turn into each other.
        assert shape.base is None or not shape.collapsed or np.allclose(mass.diagonal(), mass[0, 0], rtol=1e-12)


def test_what_it_is_not_for(rng):
    with pytest.raises(hp.NotSuitable, match="elliptic"):
        Multigrid(operator(box("quad", (2, 2)), 3, diffusivity=[1.0, -1.0], dirichlet=0.0))
    space = hp.Space(box("hex", (2, 2, 2)), 3)
    A = hp.GlobalOperator(hp.AdvectionDiffusionReaction(space, velocity=(1.0, 0.0, 0.0)), hp.C0Space(space))
    with pytest.raises(hp.NotSuitable, match="symmetric"):
        Multigrid(A)
    with pytest.raises(hp.ArgumentError, match="degree"):
        Multigrid(operator(box("hex", (2, 2, 2)), 3), degree=4)
    with pytest.raises(hp.ArgumentError, match="GlobalOperator"):
        Multigrid(space)


def test_surfaces(rng):
    flat = box("quad", (6, 6))
    points = np.column_stack([flat.points, np.sin(3 * flat.points[:, 0]) * flat.points[:, 1]])
    mesh = hp.Mesh.from_cells(points, [(own.shape.name, own.order, own.nodes) for own in flat.cells])
    assert iterations(operator(mesh, 5, dirichlet=0.0), rng) <= 14


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("conditions", [{}, {"dirichlet": 0.0}], ids=["natural", "dirichlet"])
def test_one_cell(order, conditions, rng):
    assert iterations(operator(box("hex", (1, 1, 1)), order, **conditions), rng) <= 10


@pytest.mark.parametrize("shape", SOLIDS)
def test_points_of_other_rules(shape, rng):
    space = hp.Space(box(shape, (2, 2, 2)), 4, quadrature="collocated")
    c0 = hp.C0Space(space)
    A = hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    assert iterations(A, rng) <= 14


def test_an_operator_at_another_order_is_one_made_there():
    space = hp.Space(ours("curved_mixed.msh"), 4)
    k = space.evaluate(lambda x, y, z: 1 + x * y)
    lower = space.at(2, dtype=np.float32)
    found = hp.Helmholtz(space, 2.0, k).at(lower)
    expected = hp.Helmholtz(hp.Space(space.mesh, 2), 2.0, lambda x, y, z: 1 + x * y)
    u = lower.project(lambda x, y, z: x + y * z)
    v = expected.space.project(lambda x, y, z: x + y * z)
    for a, b in zip(found(u).arrays, expected(v).arrays, strict=True):
        assert np.abs(a - b).max() < 2e-4 * np.abs(b).max()
    assert [b.elements.tolist() for b in lower.blocks] == [b.elements.tolist() for b in space.blocks]


def test_maps_there_and_back_share_their_tables():
    """Of spaces whose rows are all one entry: the matrix and its transpose are one restriction."""
    space = hp.Space(box("hex", (3, 3, 3)), 3, backend="numpy")
    A = hp.GlobalOperator(hp.Helmholtz(space, 1.0), hp.C0Space(space))
    own = Multigrid(A).levels[0].smoothers[0]._T._product
    assert own.restriction is own._outer


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_residual_where_the_coarser_level_is(backend, components, rng):
    """Cycles are the same as with all of the residual."""
    c0 = hp.C0Space(hp.Space(rotated(ours("cube_mixed.msh"), rng), 5, backend=backend))
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0})
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=1.0), c0, bc, components)
    M = Multigrid(A, dtype=np.float64)
    r = A.vectors.from_host(rng.standard_normal(A.shape[0]) * np.tile(bc.free, components))
    own, own_levels = M.cycle(r), [level.residual_at_kept for level in M.levels]
    assert [found is not None for found in own_levels] == [True, True, False] and len(M.levels) == 3
    for level in M.levels:
        level.residual_at_kept = None
    assert abs(M.cycle(r) - own).max() < 1e-12 * abs(own).max()


class Rounding(CellwiseProduct):
    """Products as a GPU's tensor cores make them: of matrices and numbers in bfloat16."""

    def _dense(self, matrix):
        return self.rounded(super()._dense(matrix))

    def _in_cells(self, there, operands, x, weights, given, out):
        there.scatter((x if weights is None else weights * x)[None], given)
        for source, target, M in zip(given, out, operands, strict=True):
            self._vectors.multiply(self.rounded(source[0]), M, target[0])

    def rounded(self, values):
        """Numbers as bfloat16 has them."""
        assert values.dtype == np.float32
        return (bfloat16(values).astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("shape", SOLIDS)
@pytest.mark.parametrize("order", [4, 7])
@pytest.mark.parametrize("lam", [0.0, 1e4])
def test_bfloat16_in_the_smoother_takes_no_more_iterations(shape, order, lam, rng, monkeypatch):
    space = hp.Space(box(shape, 4 if shape == "hex" and order == 4 else 2), order, backend="numpy")
    c0 = hp.C0Space(space)
    A = hp.GlobalOperator(hp.Helmholtz(space, lam), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    counts = []
    for kind in (CellwiseProduct, Rounding):
        monkeypatch.setattr("hpfem.backends.base.CellwiseProduct", kind)
        counts.append(iterations(A, np.random.default_rng(0), degree=1))
    assert counts[1] <= counts[0] + 1


@pytest.mark.parametrize("shape", SHAPES_OF_CELLS)
def test_a_negative_reaction(shape, rng):
    """Bratu's tangent is positive definite, and takes multigrid of its elliptic part: found by CG, told, or by hand."""
    space = hp.Space(box(shape, (3,) * SHAPES[shape].dim), 2)
    c0, u = hp.C0Space(space), space.evaluate(lambda *x: x[0] * (1 - x[0]))
    form = hp.WeakForm(space, lambda u, du, w: (-2 * np.exp(w) * u, du), fields={"w": u})
    A = hp.GlobalOperator(form, c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0, "xmax": 0.0}))
    b = A.vectors.from_host(rng.standard_normal(c0.size) * A.bc.free)
    M = Multigrid(A)
    for how in (
        {"preconditioner": "multigrid"},
        {"preconditioner": "multigrid", "definite": True},
        {"preconditioner": M},
    ):
        _, info = hp.solve(A, b, tol=1e-8, bar=False, **how)
        assert info.method == "cg" and info.iterations <= 15
    M.refresh()
    assert hp.cg(A, b, M, tol=1e-8, bar=False)[1].iterations <= 15


def test_an_indefinite_operator_is_left_to_minres(rng):
    A = operator(box("hex", (3, 3, 3)), 3, lam=-80.0, dirichlet=0.0)
    b = rng.standard_normal(A.shape[0]) * A.bc.free
    x, info = hp.solve(A, b, "multigrid", tol=1e-8, bar=False)
    assert info.method == "minres" and np.linalg.norm(A @ x - b) <= 1.1e-8 * np.linalg.norm(b)


def test_it_serves_other_solvers_and_is_copied(rng):
    A = operator(box("tet", (2, 2, 2)), 3, dirichlet=0.0)
    M, b = hp.Multigrid(A), rng.standard_normal(A.shape[0]) * A.bc.free
    found = scipy.sparse.linalg.cg(A, b, rtol=1e-10, maxiter=30, M=M)
    assert found[1] == 0 and np.linalg.norm(A @ found[0] - b) <= 1e-9 * np.linalg.norm(b)
    for other in (copy.copy(M), pickle.loads(pickle.dumps(M))):
        assert np.abs(other(b) - M(b)).max() <= 1e-6 * np.abs(M(b)).max()
        assert repr(other).endswith(", degree=2, float32)")
    with pytest.raises(hp.ArgumentError, match="entries"):
        M(b[:-1])


def test_blocks_are_straight_by_all_their_cells_and_by_the_worst(monkeypatch):
    def bent(x):
        return x + 0.1 * x[:, ::-1] ** 3

    space = hp.Space(box("tri", (3, 3)).elevated(2).transformed(bent), 2)
    mean, worst = space.blocks[0].geometry.deviation()
    assert 0 < mean < worst
    for limits, straight in (((1.01, 1.01), True), ((0.99, 1.01), False), ((1.01, 0.99), False)):
        monkeypatch.setattr(cycle, "_STRAIGHT", (limits[0] * mean, limits[1] * worst))
        assert [block.affine for block in cycle.straightened(space, np).blocks] == [straight]


def test_kernels_of_all_levels_are_begun_before_one_is_waited_for(monkeypatch):
    """Those of products and smoothers, which need no matrix, and of order 1, those themselves."""
    c0, told = hp.C0Space(hp.Space(ours("cube_mixed.msh"), 4, backend="cpu")), []
    begin, keep = BlockKernel.begin, cycle.Level.keep
    monkeypatch.setattr(BACKENDS["cpu"].__class__, "begin_cellwise", lambda _, Q, dtype: told.append((Q, dtype)))
    monkeypatch.setattr(BlockKernel, "begin", lambda self: told.append(self) or begin(self))
    monkeypatch.setattr(cycle.Level, "keep", lambda self, lower: told.append(None) or keep(self, lower))
    A = hp.GlobalOperator(hp.Laplacian(c0.space), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    *finer, last = Multigrid(A).levels
    tables = [(level.A.c0.low_energy_matrix, np.float32) for level in finer]
    assert told == [*tables, *(choice.kernel for choice in last.A.operator.choices), *[None] * len(finer)]
