"""Global operators of sums with forms on boundaries: matrices as those of Robin conditions, or applied to cells."""

import gc
import pickle
import weakref
from copy import copy, deepcopy

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from hpfem.operators import operator as operators
from hpfem.solvers.preconditioners import make_preconditioner
from tests.samples import curved, norm_error, skewed, straight

SHAPES = {"plane": ("quad", "tri"), "solid": ("hex", "prism", "pyramid", "tet")}


def mixed(kind):
    """A curved mesh of all shapes of a dimension."""
    mesh = box(SHAPES[kind], (2, 2) if kind == "plane" else (4, 1, 1)).elevated(2)
    return mesh.transformed(lambda x: x + 0.03 * np.sin(3 * np.roll(x, 1, axis=1)))


def alpha(*x):
    """A Robin coefficient."""
    return 1.5 + x[0] * x[-1]


def mass_on(space, boundary, k=1.0, **options):
    """(k alpha u, v) on a boundary."""
    fields = {"a": alpha, "k": k}
    return hp.WeakForm(space, lambda u, a, k: k * a * u, test="value", fields=fields, on=boundary, **options)


def check_parts(A, forms, c0, x, tolerance=1e-12):
    """A x, the diagonal and the matrix are those of the parts, where A has no conditions."""
    n = A.components
    field = c0.scatter(x.reshape(n, -1))
    expected = sum(factor * c0.gather(form(field)) for factor, form in forms)
    assert norm_error(A @ x, expected.ravel()) < tolerance
    matrix = A.assemble()
    assert norm_error(matrix @ x, expected.ravel()) < tolerance
    assert norm_error(A.diagonal(), matrix.diagonal()) < tolerance


def test_what_is_dropped_gives_its_memory_back_at_once(backend):
    """Not when Python looks for circles: global operators with matrices, and values that linearisations read."""
    space = hp.Space(box("tet", 2), 2, backend=backend)
    c0 = hp.C0Space(space)
    A = hp.GlobalOperator(hp.Helmholtz(space, 1.0), c0, hp.BoundaryConditions(c0, robin={"xmax": (alpha, 0.0)}))
    J = hp.WeakForm(space, lambda u: u**3, test="value").linearised(c0.scatter(np.ones(c0.size)))
    J(c0.scatter(A @ np.ones(c0.size)))
    gone = [weakref.ref(own) for own in (A, *J.fields.values())]
    gc.collect()
    gc.disable()
    try:
        del A, J
        assert len(gone) == 2 and not any(own() for own in gone)
    finally:
        gc.enable()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("components", [1, 2])
def test_a_robin_condition_is_such_a_sum(kind, basis, dtype, components, backend, rng):
    space = hp.Space(mixed(kind), 2 if kind == "solid" else 3, basis, dtype=dtype, backend=backend)
    c0 = hp.C0Space(space)
    fixed = {"dirichlet": {"xmin": 0.5 if components == 1 else [0.5] * components}, "components": components}
    bc, robin = hp.BoundaryConditions(c0, **fixed), hp.BoundaryConditions(c0, robin={"xmax": (alpha, 0.0)}, **fixed)
    form = 2.0 * hp.Mass(space) + hp.Laplacian(space) + mass_on(space, "xmax")
    A, B = (hp.GlobalOperator(*parts, components) for parts in ((form, c0, bc), (hp.Helmholtz(space, 2.0), c0, robin)))
    x, close = rng.standard_normal(A.shape[0]).astype(dtype), 1e-12 if dtype == np.float64 else 1e-5
    assert norm_error(A @ x, B @ x) < close and norm_error(A.diagonal(), B.diagonal()) < close
    assert norm_error(A.diagonal(elliptic=True), B.diagonal(elliptic=True)) < close
    assert norm_error(A.assemble().toarray(), B.assemble().toarray()) < close
    assert A.symmetric and A.is_positive() and A.coupled == 1
    f = c0.gather(hp.IProductWRTBase(space)(space.evaluate(lambda *x: [np.sin(3 * x[0]) + 1] * components)))
    for name in ("jacobi", "multigrid"):
        (u, found), (v, wanted) = (hp.solve(own, own.right_hand_side(f), preconditioner=name) for own in (A, B))
        assert norm_error(u, v) < (1e-7 if dtype == np.float64 else 1e-3)
        apart = max(2, wanted.iterations // 20)  # sums are made in another order
        assert abs(found.iterations - wanted.iterations) <= (name == "jacobi") * apart


def test_changes_count_from_the_next_product_on(backend, rng, monkeypatch):
    space = hp.Space(mixed("solid"), 2, backend=backend)
    c0 = hp.C0Space(space)
    x = rng.standard_normal(c0.size)
    term = mass_on(space, "ymin", 2.0)
    form = hp.Mass(space) + 0.5 * hp.Laplacian(space) - term
    A = hp.GlobalOperator(form, c0)
    before = A @ x
    product, seen, choose = A.product_on(A.device), [], operators.choose_else_auto
    monkeypatch.setattr(operators, "choose_else_auto", lambda *given: seen.append(given) or choose(*given))
    assert not A.is_positive() and norm_error(-A.diagonal(elliptic=True), -A.diagonal()) > 0.01
    form.factors[1], form.factors[2], term.parameters["k"] = 3.0, 4.0, 0.25
    assert norm_error(A @ x, before) > 0.1 and A.product_on(A.device) is product and A.is_positive() and not seen
    check_parts(A, [(1.0, form.summands[0]), (3.0, form.summands[1]), (4.0, term)], c0, x)
    assert A.matrix is A.matrix and not seen


def test_coupled_components(backend, rng):
    """A spring on a boundary, in the direction of its normal alone, with a form of one component in the volume."""
    space = hp.Space(skewed(straight("hex")), 2, "lagrange", backend=backend)
    c0 = hp.C0Space(space)

    def normal(u, n):
        along = u[0] * n[0] + u[1] * n[1] + u[2] * n[2]
        return [100.0 * along * n[i] for i in range(3)]

    spring = hp.WeakForm(space, normal, test="value", components=3, on="xmax")
    forms = [(1.0, hp.Mass(space)), (0.1, hp.Laplacian(space)), (2.0, spring), (1.5, mass_on(space, "ymin"))]
    A = hp.GlobalOperator(sum(factor * form for factor, form in forms), c0)
    assert A.coupled == A.components == 3 and A.matrix.shape == (3 * c0.size,) * 2 and not A.matrix_free and A.symmetric
    x = rng.standard_normal(A.shape[0])
    check_parts(A, forms, c0, x)
    for name in ("jacobi", "multigrid"):
        assert norm_error(hp.solve(A, A @ x, preconditioner=name, tol=1e-11)[0], x) < 1e-7, name
    assert norm_error(pickle.loads(pickle.dumps(A)) @ x, A @ x) == 0
    bc = hp.BoundaryConditions(c0, dirichlet={"zmin": [0.0, None, 1.0]}, components=3)
    fixed = hp.GlobalOperator(sum(factor * form for factor, form in forms), c0, bc)
    assert norm_error(fixed @ x, fixed.assemble() @ x) < 1e-12
    u = hp.solve(fixed, fixed.right_hand_side(x), preconditioner="multigrid", tol=1e-11)[0]
    assert norm_error(fixed @ u, fixed.right_hand_side(x)) < 1e-8


def test_forms_that_are_not_linear_are_applied(backend, rng):
    space = hp.Space(mixed("plane"), 3, backend=backend)
    c0 = hp.C0Space(space)
    loss = hp.WeakForm(space, lambda u, s: s * u**4, test="value", fields={"s": 5.0}, on="xmax")
    A = hp.GlobalOperator(hp.Laplacian(space) + 0.5 * loss, c0)
    x = rng.standard_normal(c0.size)
    loss.parameters["s"] = 3.0
    u = c0.scatter(x)
    assert norm_error(A @ x, c0.gather(hp.Laplacian(space)(u)) + 0.5 * c0.gather(loss(u))) < 1e-12
    assert A.matrix is None and len(A.matrix_free) == 1 and not A.is_positive() and not A.elliptic_part().boundary_terms


def nitsche(space, g=0.0, penalty=40.0):
    """Values g on two boundaries, weakly."""

    def terms(u, du, n, g):
        return penalty * space.orders[min(space.orders)] ** 2 * (u - g) - du.dot(n), [-(u - g) * own for own in n]

    return sum(hp.WeakForm(space, terms, fields={"g": g}, on=name) for name in ("xmin", "ymax"))


@pytest.mark.parametrize("kind", SHAPES)
def test_nitsches_method(kind, backend, rng):
    """The error falls by a factor with every order; the operator is that of the assembled matrix."""
    errors = []
    orders = (2, 4) if kind == "plane" else (2,)
    for order in orders:
        space = hp.Space(mixed(kind), order, "modified" if order == 2 else "lagrange", backend=backend)
        c0 = hp.C0Space(space)

        def exact(*x):
            return np.sin(2 * x[0]) * np.exp(x[1])

        others = sorted(space.mesh.boundaries.keys() - {"xmin", "ymax"})
        bc = hp.BoundaryConditions(c0, dirichlet=dict.fromkeys(others, exact))
        A = hp.GlobalOperator(hp.Laplacian(space) + nitsche(space), c0, bc)
        f = c0.gather(hp.IProductWRTBase(space)(space.evaluate(lambda *x: 3 * exact(*x))))
        b = A.right_hand_side(f - c0.gather(nitsche(space, exact)(space.zeros("coeff"))))
        assert A.symmetric and not A.is_positive() and A.matrix is None
        if order == 2:
            x = rng.standard_normal(c0.size)
            matrix = A.assemble()
            assert norm_error(A @ x, matrix @ x) < 1e-12 and norm_error(A.diagonal(), matrix.diagonal()) < 1e-12
        u, info = hp.solve(A, b, preconditioner="multigrid", definite=True, tol=1e-9)
        assert info.preconditioner == "multigrid" and info.iterations < 120
        errors.append(hp.l2_error(c0.scatter(u), exact))
        if order == 2 and kind == "plane":
            again, info = hp.solve(A, b, preconditioner="multigrid")  # MINRES, of the elliptic part
            assert norm_error(again, u) < 1e-4
    assert errors[-1] < (0.06 * errors[0] if kind == "plane" else 1e-2), errors


def test_flow_through_a_boundary(backend):
    """Advection, whose preconditioner has the elliptic part of the form on the boundary, too."""
    space = hp.Space(mixed("plane"), 3, backend=backend)
    c0 = hp.C0Space(space)
    flow = hp.AdvectionDiffusionReaction(space, [1.0, 0.5], 0.1)
    A = hp.GlobalOperator(flow + 2.0 * mass_on(space, "xmin") - mass_on(space, "ymin"), c0)
    elliptic = A.elliptic_part()
    assert elliptic.symmetric and elliptic.is_positive() and not A.symmetric and len(elliptic.boundary_terms) == 2
    x = c0.project(lambda x, y: x + y**2)
    for name in ("jacobi", "multigrid"):
        u, info = hp.solve(A, A @ x, preconditioner=name, tol=1e-10)
        assert norm_error(u, x) < 1e-6 and info.preconditioner == name
    M, used = make_preconditioner("multigrid", A, definite=False)
    assert used == "multigrid" and len(M.A.boundary_terms) == 2
    for again in (pickle.loads(pickle.dumps(elliptic)), copy(elliptic), deepcopy(elliptic)):
        assert norm_error(again @ x, elliptic @ x) == 0 and repr(again) == repr(elliptic)
    r = M.vectors.from_host(x)
    assert norm_error(pickle.loads(pickle.dumps(M))(r), M(r)) < 1e-5 and "on 'ymin'" in repr(elliptic)


def test_symmetry_is_that_of_the_present_numbers(rng):
    space = hp.Space(box("quad", (2, 2)), 3)
    c0 = hp.C0Space(space)
    flow = hp.WeakForm(space, lambda u, du, k: (u + k * du[0], du), fields={"k": 0.0})
    slope = hp.WeakForm(space, lambda du: du[1], test="value", on="xmax")
    for form, change in ((flow, flow.parameters), (flow + 0 * slope, {}), (flow + 0 * slope, flow.parameters)):
        A, b = hp.GlobalOperator(form, c0), rng.standard_normal(c0.size)
        flow.parameters["k"] = 0.0
        assert A.symmetric
        if change:
            change["k"] = 1.0
        else:
            form.factors[1] = 1.0
        assert not A.symmetric and norm_error(A @ hp.solve(A, b)[0], b) < 1e-9


def test_terms_on_other_spaces_are_made_without_communication(monkeypatch):
    """`GlobalOperator.at` gathers the errors of processes, each of which may have ended early."""
    space = hp.Space(mixed("plane"), 2)
    c0, form = hp.C0Space(space), hp.WeakForm(space, lambda u, du, n: u - du.dot(n), test="value", on="xmax")
    [term] = hp.GlobalOperator(hp.Mass(space) + form, c0).boundary_terms
    for name in ("all", "any", "allgather", "sum"):
        monkeypatch.delattr(f"hpfem.support.communicator.Communicator.{name}")
    lower = space.at(order=1)
    assert term.at(c0.at(lower)).linear and term.elliptic_part().linear


def test_with_robin_conditions_of_any_sign(rng):
    space = hp.Space(curved("tri", 2), 3)
    c0 = hp.C0Space(space)
    term = mass_on(space, "ymax")
    for k in (1.0, -1.0):
        bc = hp.BoundaryConditions(c0, robin={"xmax": (k, 0.0)})
        A = hp.GlobalOperator(hp.Mass(space) + term, c0, bc)
        plain = hp.GlobalOperator(hp.Mass(space), c0)
        x, both = rng.standard_normal(c0.size), plain.assemble() + bc.matrix
        u = c0.scatter(x)
        assert norm_error(A @ x, both @ x + c0.gather(term(u))) < 1e-12 and A.is_positive() == (k > 0)
        rest = (
            plain.diagonal()
            + max(k, 0) * bc.matrix.diagonal()
            + hp.GlobalOperator(term + 0 * hp.Mass(space), c0).diagonal()
        )
        assert norm_error(A.diagonal(elliptic=True), rest) < 1e-12


def test_what_is_refused():
    space = hp.Space(box("quad", (2, 2)), 2)
    c0, term = hp.C0Space(space), mass_on(space, "xmin")
    for form in (term, 2.0 * term):
        with pytest.raises(hp.ArgumentError, match=r"is on a boundary alone; add a form in the volume, as in hp\.Lap"):
            hp.GlobalOperator(form, c0)
    two = hp.WeakForm(space, lambda u: [u[0], 2 * u[1]], test="value", components=2, on="xmax")
    with pytest.raises(hp.ArgumentError, match="couples 2 components, 3 is no multiple"):
        hp.GlobalOperator(hp.Mass(space) + two, c0, None, 3)
