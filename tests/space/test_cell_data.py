"""Numbers by cell as a coefficient: as a function that is constant in each cell; with what is refused."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import Mesh, box
from tests.samples import dimension, norm_error


def with_data(name, n=3, **data):
    """A box whose cells have the data that functions of their middles give."""
    mesh = box(name, (n,) + (1,) * (dimension(name) - 1))
    cells = [(group.shape.name, group.order, group.nodes) for group in mesh.cells]
    middles = np.concatenate([mesh.points[group.nodes].mean(axis=1) for group in mesh.cells])
    values = {key: function(*middles.T) for key, function in data.items()}
    return Mesh.from_cells(mesh.points, cells, cell_data=values).with_sides(mesh.boundary_sides)


def layer(x, *_):
    """The number of the layer that x is in."""
    return np.floor(3 * x)


@pytest.mark.parametrize("name", ["tri", "hex", "pyramid"])
def test_whatever_takes_a_coefficient_takes_data(name, backend):
    """Scalars, diagonals, tensors, vectors, right-hand sides: as fields that are constant in each cell."""
    d = dimension(name)
    tensor = lambda *x: np.eye(d) * (1 + layer(*x))[:, None, None] + 0.1  # noqa: E731
    mesh = with_data(name, k=lambda *x: 1 + layer(*x).astype(int), t=tensor, v=lambda *x: np.stack(x, axis=1))
    space = hp.Space(mesh, 2, backend=backend)
    u, (k, t, v) = space.project(lambda x, *y: x**2 + y[0]), (mesh.cell_data[key] for key in "ktv")
    scalar = space.evaluate(k)
    for block, values in zip(space.blocks, scalar.arrays, strict=True):
        assert np.array_equal(values[0], np.broadcast_to(k[block.elements][:, None], values[0].shape))
    full, vector = space.evaluate(t), space.evaluate(v)
    for made in (
        lambda k, t, v: hp.Helmholtz(space, lam=k, diffusivity=t)(u),
        lambda k, t, v: hp.Helmholtz(space, lam=1.0, diffusivity=k)(u),
        lambda k, t, v: hp.AdvectionDiffusionReaction(space, v, k)(u),
        lambda k, t, v: hp.WeakForm(space, lambda u, du, k: (k * u**3, k * du), fields={"k": k})(u),
    ):
        for found, expected in zip(made(k, t, v).arrays, made(scalar, full, vector).arrays, strict=True):
            assert norm_error(found, expected) < 1e-13
    assert space.integrate(scalar) == pytest.approx(2)
    assert hp.l2_error(space.project(k), k) < 1e-13
    assert space.integrate_boundary(k, "xmax") == pytest.approx(3)


@pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid"])
@pytest.mark.parametrize("name", ["quad", "tet"])
def test_a_wall_of_layers_is_solved_exactly(name, preconditioner):
    """-(k u')' = 0 through layers: the flux is that of resistances in a row; a source by cell is their sum."""
    mesh = with_data(name, k=lambda *x: 1 + layer(*x), f=lambda *x: layer(*x) == 2)
    space, k = hp.Space(mesh, 2, backend="numpy"), mesh.cell_data["k"]
    given = {"dirichlet": {"xmin": 0.0, "xmax": 1.0}, "preconditioner": preconditioner, "bar": False}
    for conductivity in (k, 2 * k / 2, k.astype(int)):
        problem = hp.Problem(space, 0.0, diffusivity=conductivity, **given)
        flux = 1 / ((1 + 1 / 2 + 1 / 3) / 3)
        assert problem.flux(problem.solve(), "xmax") == pytest.approx(flux, rel=1e-10)
    f = mesh.cell_data["f"]
    heated = problem.solve(f * 1.0)
    assert problem.flux(heated, "xmin", f * 1.0) + problem.flux(heated, "xmax", f * 1.0) == pytest.approx(-1 / 3)


def test_data_of_files(tmp_path):
    """Cells that the file gives no value have a value that is no number, which is refused where it is used."""
    file = tmp_path / "data.msh"
    file.write_text(
        "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n"
        "$Nodes\n6\n1 0 0 0\n2 1 0 0\n3 1 1 0\n4 0 1 0\n5 2 0 0\n6 2 1 0\n$EndNodes\n"
        "$Elements\n3\n1 3 2 0 1 1 2 3 4\n2 2 2 0 1 2 5 6\n3 2 2 0 1 2 6 3\n$EndElements\n"
        '$ElementData\n1\n"k"\n1\n0\n3\n0\n1\n2\n1 2.5\n3 4.5\n$EndElementData\n'
    )
    mesh = hp.read_mesh(file)
    assert np.array_equal(mesh.cell_data["k"], [2.5, np.nan, 4.5], equal_nan=True)
    with pytest.raises(hp.ArgumentError, match="not finite"):
        hp.Helmholtz(hp.Space(mesh, 1, backend="numpy"), lam=mesh.cell_data["k"])


def test_refusals():
    mesh = with_data("tri", 2, k=lambda x, y: 1.0 + 0 * x)
    space = hp.Space(mesh, 2, backend="numpy")
    assert mesh.n_cells == 4
    for make in (
        lambda k: hp.Helmholtz(space, lam=k),
        lambda k: hp.Problem(space, lam=1.0, diffusivity=k, bar=False),
        lambda k: space.evaluate(k),
        lambda k: hp.Problem(space, lam=1.0, bar=False).solve(k),
    ):
        make(np.ones(4))
        with pytest.raises(hp.ArgumentError):
            make(np.ones(5))
    two = with_data("quad", 2, k=lambda x, y: 1 + x)
    space = hp.Space(two, 2, backend="numpy")
    with pytest.raises(hp.ArgumentError, match=r"shape \(2,\) may be the same in all cells, or a value for each"):
        hp.Helmholtz(space, lam=1.0, diffusivity=np.array([1.0, 2.0]))
    by_cell = hp.Helmholtz(space, lam=1.0, diffusivity=two.cell_data["k"])
    assert by_cell.fields["diffusivity"].components == 1
    assert hp.Helmholtz(space, lam=1.0, diffusivity=[1.0, 2.0]).fields["diffusivity"].components == 2
    bad = with_data("quad", 2, k=lambda x, y: np.where(x < 0.5, np.nan, 1.0))
    with pytest.raises(hp.ArgumentError, match="not finite"):
        hp.Helmholtz(hp.Space(bad, 2, backend="numpy"), lam=bad.cell_data["k"])
