"""Multigrid owns its coefficients and takes new ones: as one made anew, on every backend; Newton's method with it."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.vectors import HOST_VECTORS
from hpfem.mesh import box
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.multigrid.chebyshev import Largest, largest_eigenvalue
from hpfem.solvers.multigrid.energies import cell_energies
from hpfem.solvers.multigrid.smoother import _energies_of_pairs
from tests.assembly.meshes import ours
from tests.samples import norm_error


def varying(space, number):
    """A coefficient, of which 1 is four times 0, whose roots round alike, and 2 is another one."""
    return space.evaluate(lambda *x: 4 ** min(number, 1) * (1.5 + np.sin((1 + 2 * (number > 1)) * x[0])))


def problem(shape="hex", order=3, backend="auto", dtype="float64", basis="modified", lam=1.0, **conditions):
    """An operator with a field as diffusivity, and the field."""
    mesh = ours(shape) if shape.endswith("msh") else box(shape, (3,) * (2 if shape in ("quad", "tri") else 3))
    space = hp.Space(mesh, order, basis, dtype=dtype, backend=backend)
    c0, k = hp.C0Space(space), varying(space, 0)
    bc = hp.BoundaryConditions(c0, **(conditions or {"dirichlet": {"xmin": 0.0}}))
    return hp.GlobalOperator(hp.Helmholtz(space, lam, k), c0, bc), k


def change(k, number):
    """Give a field other values."""
    for own, new in zip(k.arrays, varying(k.space, number).arrays, strict=True):
        own[...] = new


def vector(A):
    return A.vectors.from_host(np.random.default_rng(0).standard_normal(A.shape[0]), A.dtype)


def apart(A, x, y):
    return float(A.vectors.max_norm(x - y) / A.vectors.max_norm(y))


ALL = ["hex", "prism", "pyramid", "tet", "quad", "tri", "cube_mixed.msh"]


@pytest.mark.parametrize(
    ("shape", "basis", "dtype"),
    [*((name, "modified", "float32") for name in ALL), ("cube_mixed.msh", "lagrange", "float64")],
)
def test_it_is_as_made_anew(shape, basis, dtype, backend):
    A, k = problem(shape, 3 if shape == "hex" else 2, backend, dtype, basis, lam=0.0, dirichlet=0.0)
    M, r = Multigrid(A), vector(A)
    first = M(r)
    change(k, 1)
    assert apart(A, M(r), first) < 1e-6  # its coefficients are its own
    M.refresh()
    free = A.vectors.from_host(A.bc.free)
    assert apart(A, 4 * M(r) * free, first * free) < 1e-5
    change(k, 2)
    M.refresh(A)
    counts = [hp.cg(A, r * free, own, tol=1e-4, bar=False)[1].iterations for own in (M, Multigrid(A))]
    assert abs(counts[0] - counts[1]) <= 1, counts


def test_numbers_and_boundary_terms(backend):
    A, _ = problem(backend=backend, robin=(2.0, 0.0))
    M, r = Multigrid(A), vector(A)
    A.operator.parameters["lam"] = 100.0
    M.refresh()
    assert apart(A, M(r), Multigrid(A)(r)) < 1e-5
    side = hp.WeakForm(A.c0.space, lambda u, a: a * u, trial="value", test="value", fields={"a": 1.0}, on="xmax")
    B = hp.GlobalOperator(hp.Helmholtz(A.c0.space, 1.0) + 2.0 * side, A.c0)
    M = Multigrid(B)
    B.boundary_terms[0].form.parameters["a"] = 50.0
    M.refresh()
    assert apart(B, M(r), Multigrid(B)(r)) < 1e-5


def test_another_operator_and_what_is_refused():
    A, _ = problem()
    space, M = A.c0.space, Multigrid(A)
    other = hp.GlobalOperator(hp.Helmholtz(space, 1.0, varying(space, 2)), A.c0, A.bc)
    M.refresh(other)
    assert M.A is other and copy.copy(M).A is other
    everywhere = hp.BoundaryConditions(A.c0, dirichlet=0.0)
    for wrong in (
        hp.GlobalOperator(hp.Laplacian(space), A.c0, A.bc),
        hp.GlobalOperator(other.operator, A.c0, everywhere),
        hp.GlobalOperator(other.operator, hp.C0Space(space)),
        hp.GlobalOperator(other.operator, A.c0, A.bc, components=2),
    ):
        with pytest.raises(hp.ArgumentError, match="make another Multigrid"):
            M.refresh(wrong)
    assert M.A is other
    # A form that is no more elliptic: its elliptic part is.
    M.refresh(hp.GlobalOperator(hp.Helmholtz(space, 1.0, space.evaluate(lambda *x: x[0] - 0.4)), A.c0, A.bc))
    r = vector(A)
    assert r @ M(r) > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", ["kept", "refreshed"])
def test_tangents_of_the_p_laplacian(dtype, how):
    """p = 3: the multigrid of the first tangent stays positive definite, and takes the next one's coefficients."""
    space = hp.Space(ours("cube_mixed.msh"), 4 if dtype == "float32" else 2, dtype=dtype)
    c0 = hp.C0Space(space)
    gradient = hp.PhysDeriv(space)(space.evaluate(lambda x, y, z: np.sin(3 * x) * y + z))
    fields = {
        name: space.field("phys", [own[c : c + 1].copy() for own in gradient.arrays]) for c, name in enumerate("pqr")
    }

    def tangent(du, p, q, r):
        w = (p, q, r)
        size = (1e-4 + p * p + q * q + r * r) ** 0.5
        along = sum(a * b for a, b in zip(w, du, strict=True)) / size
        return [size * du[i] + along * w[i] for i in range(3)]

    form = hp.WeakForm(space, tangent, trial="grad", test="grad", fields=fields)
    J = hp.GlobalOperator(form, c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    M, b = Multigrid(J), vector(J) * J.bc.free
    first = hp.cg(J, b, M, tol=1e-3, bar=False)[1].iterations
    for own in fields["p"].arrays:
        own *= 30
    if how == "refreshed":
        M.refresh(J)
    later = hp.cg(J, b, M, tol=1e-3, bar=False)[1].iterations
    assert later <= (80 if how == "kept" else 2 * first + 4), (first, later)


@pytest.mark.parametrize(("shape", "degree"), [("prism", 3), ("pyramid", 3), ("tet", 3), ("tri", 2)])
def test_coefficients_that_become_rough(shape, degree, rng):
    """The largest eigenvalue changes much: the estimate is not that of before."""
    space = hp.Space(box(shape, (8, 8) if shape == "tri" else (3, 3, 3)), 2)
    c0 = hp.C0Space(space)
    k = space.field("phys", [np.ones((1, own.n_elements, own.n_points)) for own in space.blocks])
    A = hp.GlobalOperator(hp.Helmholtz(space, 0.0, k), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
    M, b = Multigrid(A, degree), rng.standard_normal(c0.size) * A.bc.free
    for _ in range(3):
        for own in k.arrays:
            own[...] = np.where(rng.random((1, own.shape[1], 1)) < 0.5, 1.0, 1e6)
        M.refresh()
        assert hp.cg(A, b, M, tol=1e-8, bar=False)[1].iterations <= 30


def test_a_largest_eigenvalue_that_has_moved_is_found():
    """Near the eigenvector of before few steps see no other."""
    rng = np.random.default_rng(3)
    values = rng.uniform(0.1, 0.5, 4000)
    values[3], values[7] = 0.5, 0.9
    noise, residual = rng.standard_normal(4000), np.zeros(4000)
    residual[3] = 60.0
    found = largest_eigenvalue(lambda x: values * x, np.copy, HOST_VECTORS, noise, Largest(1.0, residual))
    assert found.value > 0.9


def test_groups_are_kept_while_couplings_are(backend, rng):
    mesh = box("tri", (6, 6)).transformed(lambda x: x * [1.0, 1 / 16])
    space = hp.Space(mesh, 3, backend=backend)
    c0, k = hp.C0Space(space), varying(space, 0)
    A = hp.GlobalOperator(hp.Helmholtz(space, 0.0, k), c0, hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}))
    M, b = Multigrid(A), vector(A) * A.vectors.from_host(A.bc.free)
    assert M.levels[0].smoothers[0].has == 1
    for number, kept in ((1, True), (2, True), (3, False), (3, True)):
        if number < 3:
            change(k, number)
        elif not kept:
            for own in k.arrays:
                own[...] = np.where(rng.random((1, own.shape[1], 1)) < 0.5, 1.0, 1e4)
        M.refresh()
        assert [level.smoothers[0].kept for level in M.levels[:-1]] == [kept] * (len(M.levels) - 1)
        counts = [hp.cg(A, b, own, tol=1e-8, bar=False)[1].iterations for own in (M, Multigrid(A))]
        assert counts[0] <= counts[1] + 2, counts


def test_places_of_coupled_functions_are_kept():
    """The matrix by places that are found once is the one of coordinates, whatever the numbers."""
    space = hp.Space(box("tet", (2, 2, 2)).transformed(lambda x: x * (1.0, 1.0, 0.25)), 3)
    M = hp.Multigrid(hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), hp.C0Space(space)))
    groups, Q, places = M.levels[0].smoothers[0]._groups, M.levels[0].A.c0.low_energy_matrix, list[object]()
    given = cell_energies(M.levels[-1].A.operator, 0, np)
    for factor in (1.0, 3.0):
        energies = [replace(own, means=factor * own.means) for own in given]
        expected, found = (_energies_of_pairs(groups, 0, energies, Q, HOST_VECTORS, known) for known in (None, places))
        assert expected.nnz and (found.indices == expected.indices).all()
        assert norm_error(found.data, expected.data) < 1e-14
    assert len(places) == 4
