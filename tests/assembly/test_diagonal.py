"""Diagonals made by kernels and without matrices, against those of assembled matrices and of element matrices."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.assembly.entries import element_matrices
from hpfem.mesh import read_mesh
from hpfem.shapes import make_basis, quadrature
from hpfem.shapes.squares import pair_tree, squared
from hpfem.shapes.tabulation import Tabulation
from tests.assembly.meshes import OURS, ours, rotated
from tests.cases import SHAPES_2D, SHAPES_3D
from tests.operators.ways import ways
from tests.samples import curved, straight

SHAPES = SHAPES_2D + SHAPES_3D
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)


def forms(space):
    """Mass, diffusion, variable coefficients, and what is not symmetric or couples derivatives and values."""
    dim = space.dim

    def general(u, du, x):
        return u * x[0] + 2 * du[0] + du[1], [
            x[1] * du[0] + 3 * du[1] + u,
            *[1.5 * du[i] + du[0] for i in range(1, dim)],
        ]

    def along(u, du, a):
        return u + du[0] * a

    yield "mass", lambda **way: hp.Mass(space, **way)
    yield "diffusion", lambda **way: hp.Laplacian(space, **way)
    k = space.evaluate(lambda *x: 1 + x[0] ** 2)
    yield "variable", lambda **way: hp.Helmholtz(space, lam=k, diffusivity=k, **way)
    yield "general", lambda **way: hp.WeakForm(space, general, **way)
    yield "advection", lambda **way: hp.WeakForm(space, along, test="value", fields={"a": 0.7}, **way)


def pair(u, du):
    """Two components that are coupled, with different diagonals."""
    return (2 * u[0] + u[1], 3 * u[1]), (du[0] + du[1], 4 * du[1])


@pytest.mark.parametrize(
    ("basis", "bent"), [("modified", False), ("modified", True), ("orthogonal", True), ("lagrange", False)]
)
@each_shape
def test_diagonals_of_blocks_are_those_of_the_element_matrices(shape, bent, basis, backend):
    mesh = curved(shape.name) if bent else straight(shape.name)
    space = hp.Space(mesh, 3, basis, "collapsed", backend=backend)
    for _, make in forms(space):
        for way in ways(backend):
            operator = make(**way)
            made = operator.choices[0].kernel.diagonal()
            if made is None:
                continue
            expected = np.einsum("jmiem->em", element_matrices(operator, 0))
            found = np.asarray(made.get() if hasattr(made, "get") else made)[0]
            assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("order", [1, 2, 5, 8])
@each_shape
def test_diagonals_at_any_order(shape, order, backend):
    space = hp.Space(curved(shape.name), order, backend=backend)
    A = hp.GlobalOperator(hp.Helmholtz(space, lam=1.5), hp.C0Space(space))
    assert_diagonal(A)


def assert_diagonal(A, tolerance=1e-12):
    expected = A.assemble().diagonal()
    assert np.abs(A.diagonal() - expected).max() < tolerance * np.abs(expected).max()


@pytest.mark.parametrize("path", [p for p in OURS if p.stem != "bench_mixed"], ids=lambda p: p.stem)
def test_diagonals_on_our_meshes(path, backend):
    space = hp.Space(read_mesh(path), 3, backend=backend)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, robin=(2.0, 0.0))
    for name, make in forms(space):
        assert_diagonal(hp.GlobalOperator(make(), c0, bc)), name


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("orders", [4, {"hex": 4, "prism": 3, "pyramid": 2, "tet": 3}])
def test_turned_faces_orders_components_and_conditions(orders, dtype, backend, rng):
    # In some numberings all collapsed directions agree.
    meshes = (rotated(ours("cube_mixed.msh"), rng) for _ in range(20))
    spaces = (hp.Space(mesh, orders, dtype=dtype, backend=backend) for mesh in meshes)
    c0 = next(c0 for c0 in map(hp.C0Space, spaces) if not c0.signed)
    space = c0.space
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}, robin={"ymax": (3.0, 0.0)})
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert_diagonal(hp.GlobalOperator(hp.WeakForm(space, pair, components=2), c0, bc), tolerance)
    assert_diagonal(hp.GlobalOperator(hp.Helmholtz(space, lam=2.0), c0, bc, components=3), tolerance)


@pytest.mark.parametrize("basis", ["modified", "orthogonal"])
@each_shape
def test_pairs_of_leaves_are_squares_of_modes(shape, basis):
    for order in (1, 2, 4):
        plain = Tabulation(
            make_basis(basis, shape, order), quadrature(shape, [order + 2] * shape.dim, ["gauss"] * shape.dim)
        )
        pairs, tree = pair_tree(plain.basis), squared(plain).basis.tree
        leaves = tree.leaf_functions
        for a in range(shape.dim):
            eta = [np.meshgrid(*map(np.arange, plain.rule.counts), indexing="ij")[k].ravel() for k in range(shape.dim)]
            products = np.ones((tree.n_leaves, len(plain.rule)))
            for k in range(shape.dim):
                products *= pairs.table(plain, k, (k == a, False))[leaves[:, k]][:, eta[k]]
            found = np.zeros((plain.basis.n_modes, len(plain.rule)))
            np.add.at(found, tree.leaf_to_mode, products)
            expected = plain.dense * plain.dense_gradient[a]
            assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()
