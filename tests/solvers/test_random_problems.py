"""Random small problems of order 1 and 2: solution, residual and fluxes against the assembled matrix and NumPy."""

import warnings
from typing import Any

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import Mesh
from tests.assembly.meshes import _corners
from tests.samples import long

PLANE, SOLID = ("quad", "tri", ("quad", "tri")), ("hex", "prism", "tet", "pyramid", ("hex", "prism", "pyramid", "tet"))
NAMES = ("xmin", "xmax", "ymin", "ymax", "zmin", "zmax")


def random_mesh(rng):
    """A box of any cells, stretched and sheared, with two regions."""
    dim = int(rng.integers(2, 4))
    kind = (PLANE, SOLID)[dim - 2][rng.integers(3 if dim == 2 else 5)]
    counts = tuple(int(n) for n in rng.integers(2, 5 if dim == 2 else 3, dim))
    if isinstance(kind, tuple) and dim == 3:
        counts = (4, 1, 1)
    box = hp.box(kind, counts)
    scale, shear = 10 ** rng.uniform(-1.5, 1.5, dim), np.triu(rng.uniform(-0.5, 0.5, (dim, dim)), 1)
    points = (box.points @ (np.eye(dim) + shear)) * scale
    cells = [(group.shape.name, group.order, group.nodes) for group in box.cells]
    numbers, first = np.arange(len(points)), box.n_cells // 2
    boundaries = {name: _corners(box, facets, numbers) for name, facets in box.boundaries.items()}
    regions = {"a": np.arange(first), "b": np.arange(first, box.n_cells)}
    return Mesh.from_cells(points, cells, boundaries=boundaries, regions=regions)


def random_coefficient(rng, dim, tensors):
    """A number, a function, numbers by region, a diagonal or a tensor; all of one size, but with large ratios."""
    size = 10 ** rng.uniform(-3, 3)
    kinds = [size, lambda *x: size * (1.5 + np.sin(x[0])), {"a": size, "b": size * 10 ** rng.uniform(-3, 3)}]
    if tensors:
        turned = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        diagonal = size * 10 ** rng.uniform(-1.5, 1.5, dim)
        kinds += [list(diagonal), ((turned * diagonal) @ turned.T).tolist()]
    return kinds[rng.integers(len(kinds))]


def random_problem(rng, preconditioner=None, backend="numpy"):
    """A Problem and its right-hand side; any preconditioner where none is given."""
    mesh = random_mesh(rng)
    space = hp.Space(mesh, int(rng.integers(1, 3)), ("modified", "lagrange")[rng.integers(2)], backend=backend)
    lam = (0.0, 10 ** rng.uniform(-14, -4), random_coefficient(rng, mesh.dim, False))[rng.integers(3)]
    conditions: dict[str, Any] = {"dirichlet": {}, "neumann": {}, "robin": {}}
    for name in NAMES[: 2 * mesh.dim]:
        size = float(rng.uniform(-2, 2))
        given = (("dirichlet", size), ("dirichlet", lambda *x, c=size: c + x[0]), ("neumann", size),
                 ("robin", (10 ** rng.uniform(-13, 1), size)), (None, None))[rng.integers(5)]  # fmt: skip
        if given[0] is not None:
            conditions[given[0]][name] = given[1]
    k = random_coefficient(rng, mesh.dim, True)
    how = ("jacobi", "multigrid", "none", "auto")[rng.integers(4)]
    how = how if preconditioner is None else preconditioner
    f = (1.0, lambda *x: 1.0 + x[0], {"a": 1.0, "b": -2.0})[rng.integers(3)]
    kept = {name: given for name, given in conditions.items() if given}
    return hp.Problem(space, lam, **kept, diffusivity=k, preconditioner=how, bar=False), f


@pytest.mark.filterwarnings("ignore::hpfem.HpfemWarning")
@pytest.mark.parametrize("part", [0, *long(*range(1, 20))])
def test_they_are_right(part):
    for number in range(25 * part, 25 * part + 25):
        problem, f = random_problem(np.random.default_rng(number))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", hp.HpfemWarning)
            u = problem.solve(f)
        bc, x = problem.conditions, u.vector
        A = hp.GlobalOperator(problem.operator.operator, problem.c0, bc.natural).assemble().toarray()
        load = np.asarray(problem._loads(f))
        b, free = load + bc.load, ~bc.constrained
        terms = np.abs(A) @ np.abs(x)
        lost = 1e-15 * np.linalg.norm(terms[free])
        right = b[free] - A[free] @ np.where(free, 0.0, x)
        if u.info.incompatibility:  # the only null vector, and the mean of its function, which solve takes out
            one, integral = problem.c0.project(1.0), np.asarray(problem._loads(1.0))
            right = right - integral * (one @ right) / (one @ integral)
        # The residual is that of the solution, up to rounding; it is small, or the solution is at rounding and says so.
        missed, size = np.linalg.norm(right - A[np.ix_(free, free)] @ x[free]), np.linalg.norm(right)
        assert abs(u.info.residual * size - missed) <= 0.1 * missed + 20 * lost, number
        assert missed <= 1e-10 * size + 100 * lost, number
        assert u.info.residual <= 1e-10 or any("rounding" in str(own.message) for own in said), number
        if not u.info.incompatibility:
            wanted = np.linalg.solve(A[np.ix_(free, free)], right)
            least = np.linalg.eigvalsh(A[np.ix_(free, free)])[0]
            if least > 1e-12 * np.abs(A).max():  # else NumPy's own solution has no digits
                near = (missed + np.linalg.norm(right - A[np.ix_(free, free)] @ wanted) + 20 * lost) / least
                assert np.linalg.norm(wanted - x[free]) <= near, number
            # What flows out is what the sources give: the integral of lam u - f.
            robin = 0.0 if bc.matrix is None else bc.matrix.toarray()
            wanted = problem.c0.project(1.0) @ ((A - robin) @ x - load)
            found = sum(u.flux(name) for name in problem.space.mesh.boundaries)
            assert abs(found - wanted) <= 1e-10 * np.abs(b).sum() + np.sqrt(len(x)) * (missed + 20 * lost), number


@pytest.mark.filterwarnings("ignore:dirichlet:hpfem.HpfemWarning")
@pytest.mark.parametrize("part", [7, *long(*range(7), 8, 9)])
def test_multigrid_refuses_none(part):
    for number in range(50 * part, 50 * part + 50):
        problem, f = random_problem(np.random.default_rng(number), "multigrid")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", hp.HpfemWarning)
            assert problem.solve(f).info.iterations <= 200, number
        assert not [own for own in said if "multigrid" in str(own.message)], number


def test_a_constant_of_little_energy():
    """Rounding of the vertices' matrix to float32 would hide it."""
    space = hp.Space(hp.box("quad", (4, 2)), 1)
    A = hp.GlobalOperator(hp.Helmholtz(space, 1e-3, [1e3, 1.0]), hp.C0Space(space))
    _, info = hp.solve(A, np.random.default_rng(0).standard_normal(A.shape[0]), "multigrid", tol=1e-8, bar=False)
    assert info.preconditioner == "multigrid" and info.iterations <= 3
