"""Preconditioners by name."""

import warnings

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box, read_mesh
from hpfem.solvers import make_preconditioner, preconditioners
from hpfem.solvers.multigrid import Multigrid
from tests.samples import long


def operator(mesh, order, lam=1.0, **options):
    c0 = hp.C0Space(hp.Space(mesh, order))
    bc = hp.BoundaryConditions(c0, dirichlet=0.0)
    return hp.GlobalOperator(hp.Helmholtz(c0.space, lam, **options), c0, bc)


@pytest.mark.parametrize("orders", [(2, 4), *long(((2, 4, 6),))])
def test_iterations_hardly_grow_with_the_order(orders, shared_meshes, rng):
    counts = []
    for order in orders:
        A = operator(read_mesh(shared_meshes / "nektar/cube_all.msh"), order)
        b = rng.standard_normal(A.c0.size) * A.bc.free
        counts.append(hp.cg(A, b, make_preconditioner("multigrid", A)[0], tol=1e-8)[1].iterations)
    assert max(counts) <= 16, counts


def test_auto_weighs_set_up_against_iterations(caplog):
    small, large = operator(box("hex", (2, 2, 2)), 3), operator(box("hex", (7, 7, 7)), 4)
    assert make_preconditioner("auto", small)[1] == "jacobi"
    precondition, used = make_preconditioner("auto", large)
    assert used == "multigrid" and isinstance(precondition, Multigrid)
    assert make_preconditioner("none", small) == (None, "none")


def test_auto_takes_jacobi_where_multigrid_cannot_serve(caplog):
    A = operator(box("hex", (7, 7, 7)), 4, diffusivity=[1.0, 1.0, -0.01])
    precondition, used = make_preconditioner("auto", A)
    assert used == "jacobi" and "jacobi instead of multigrid: the form is not elliptic" in caplog.text
    assert np.allclose(precondition(np.ones(A.c0.size)), 1 / A.diagonal())
    with pytest.raises(hp.NotSuitable, match="elliptic"):
        make_preconditioner("multigrid", A)


@pytest.mark.parametrize("definite", [True, False])
def test_multigrid_falls_back_where_it_is_not_definite(backend, definite, monkeypatch):
    """Once, for all solves of a Problem, and in hp.solve; it serves a problem whose condition is beyond float32."""
    space = hp.Space(hp.box("quad", (4, 2)), 1, backend=backend)
    problem = hp.Problem(space, 1e-3, diffusivity=[1e3, 1.0], preconditioner="multigrid", bar=False)
    f, used = lambda x, y: 1.0 + x, "multigrid"
    if not definite:
        used = "jacobi"
        monkeypatch.setattr(Multigrid, "in_modes", lambda M, number, r: -1.0 * r)

    def solved(solve):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", hp.HpfemWarning)
            found = solve()
        return found, sum("the Jacobi preconditioner is used instead" in str(own.message) for own in said)

    u, times = solved(lambda: problem.solve(f))
    assert times == (not definite) and u.info.preconditioner == used
    assert solved(lambda: problem.solve(f))[1] == 0
    A = problem.operator.assemble().toarray()
    b = problem.operator.vectors.to_host(problem._loads(f))
    assert np.abs(u.vector - np.linalg.solve(A, b)).max() < 1e-7 * np.abs(u.vector).max()
    for method, how in (("cg", {}), ("minres", {"definite": False})):
        (x, info), times = solved(lambda how=how: hp.solve(problem.operator, b, "multigrid", bar=False, **how))
        assert (info.method, info.preconditioner, times) == (method, used, not definite)
        assert np.abs(x - np.linalg.solve(A, b)).max() < 1e-7 * np.abs(x).max()
    if not definite:
        with pytest.raises(hp.SolverError, match="the preconditioner is not positive definite"):
            hp.cg(problem.operator, problem._loads(f), make_preconditioner("multigrid", problem.operator)[0])


@pytest.mark.parametrize(("shapes", "order", "components", "thin", "steps"), [
    ("hex", 2, 1, 1, (2, 1)), ("prism", 2, 1, 1, (2, 1)), (("hex", "prism", "pyramid", "tet"), 3, 1, 1, (2, 2)),
    ("hex", 2, 3, 1, (2, 2)), ("tet", 2, 3, 1, (3, 3)), ("hex", 4, 1, 1 / 16, (2, 2)), ("quad", 4, 1, 1 / 16, (2, 1)),
])  # fmt: skip
def test_steps_of_the_smoother_are_those_of_the_table(shapes, order, components, thin, steps, monkeypatch):
    """By device, shapes, order, coupled components and stretched cells; the record of a solve says how many."""
    d = 2 if shapes == "quad" else 3
    space = hp.Space(box(shapes, (4, 1, 1)[:d], upper=(*(4, 1, 1)[: d - 1], thin)), order)
    c0, form = hp.C0Space(space), hp.Helmholtz(space, 1.0)
    if components > 1:
        form = hp.WeakForm(space, lambda u, du: (u, [du[c] for c in range(components)]), components=components)
    A = hp.GlobalOperator(form, c0)
    _, info = hp.solve(A, np.ones(A.shape[0]), "multigrid", tol=1e-6, bar=False)
    assert info.smoother_steps == Multigrid(A).degree == steps[0] and f"of {steps[0]} step(s)" in str(info)
    monkeypatch.setattr(type(A.operator.backend), "smoother_steps", hp.BACKENDS["cuda"].smoother_steps)
    assert Multigrid(A).degree == steps[1]
    if components == 1:
        u = hp.solve_helmholtz(space, 1.0, 1.0, preconditioner="multigrid", components=2, bar=False)
        assert u.info.smoother_steps == steps[1]


@pytest.mark.parametrize("suits", ["never", "not definite"])
@pytest.mark.parametrize("method", ["ssp3", "sdirk2", "newton"])
def test_the_diagonal_serves_all_systems_from_when_multigrid_does_not_suit(method, suits, monkeypatch):
    """Of masses and linearisations alike; what was asked for by its name has to be possible."""
    made = []

    def multigrid(*given):
        made.append(given)
        if suits == "never":
            raise hp.NotSuitable("it never suits")
        return Multigrid(*given)

    monkeypatch.setattr(preconditioners, "Multigrid", multigrid)
    monkeypatch.setattr(Multigrid, "in_modes", lambda M, number, r: -1.0 * r)
    monkeypatch.setattr(preconditioners, "_DIAGONAL", 1)
    c0 = hp.C0Space(hp.Space(box("tet", 1), 3))
    form, start = hp.WeakForm(c0.space, lambda u, du: (u**3 + u, du)), c0.project(lambda x, y, z: np.cos(x))

    def solved(name):
        if method == "newton":
            u, info = hp.newton(form, c0, start=start, f=1.0, preconditioner=name, bar=False)
            assert info.preconditioner == "jacobi" and {step.multigrid for step in info.steps} == {""}
            return u.vector
        return hp.march(form, start, (0, 4e-3), c0, method=method, dt=1e-3, preconditioner=name, bar=False).u.vector

    wanted = solved("jacobi")
    if suits == "never":
        with pytest.raises(hp.NotSuitable, match="never suits"):
            solved("multigrid")
        made.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", hp.HpfemWarning)
        found = solved("auto" if method != "newton" else "jacobi" if suits == "never" else "multigrid")
    assert len(said) == (suits != "never") and len(made) == (method != "newton" or suits != "never")
    assert np.allclose(found, wanted, rtol=1e-5)
