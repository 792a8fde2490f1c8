"""Linearisations, their transposes, gradients by coefficients and energies: against differences, and as operators."""

import pickle

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, StateError
from hpfem.mesh import box
from hpfem.operators import operator as operators
from tests.operators.reference import random_field
from tests.samples import NAMES, curved, straight

STORES = ("cheap", "fewest", "matrix")


def bratu(u, du, lam, k):
    return -lam * np.exp(u), k * du


def p_laplacian(du, p):
    return (0.1 + du.dot(du)) ** ((p - 2) / 2) * du


def flow(u, du):
    """Advection of a velocity by itself, with a viscosity that depends on it."""
    d = len(u)
    eta = (1 + sum(du[i].dot(du[i]) for i in range(d))) ** -0.25
    return [u.dot(du[i]) for i in range(d)], [eta * du[i] for i in range(d)]


def determinant(du):
    d = len(du)
    F = [[du[i][j] + (1.0 if i == j else 0.0) for j in range(d)] for i in range(d)]
    if d == 2:
        return F, F[0][0] * F[1][1] - F[0][1] * F[1][0]
    minors = [F[1][(j + 1) % 3] * F[2][(j + 2) % 3] - F[1][(j + 2) % 3] * F[2][(j + 1) % 3] for j in range(3)]
    return F, sum(F[0][j] * minors[j] for j in range(3))


def neo_hooke(du):
    F, J = determinant(du)
    log = np.log(J)
    return 0.5 * (sum(f * f for row in F for f in row) - len(F)) - log + log**2


def forms_on(space):
    """A form with coefficients, one of powers, and one of several components; each with the size of a state."""
    d = space.dim
    return [
        (hp.WeakForm(space, bratu, fields={"lam": 1.5, "k": lambda *x: 1 + x[0] ** 2}), 1.0),
        (hp.WeakForm(space, p_laplacian, test="grad", fields={"p": 3.5}), 1.0),
        (hp.WeakForm(space, flow, components=d), 1.0),
        (hp.Energy(space, neo_hooke, components=d).residual, 0.01),
    ]


def dot(a, b):
    """The product of a functional and a function."""
    return sum(float(np.sum(x * y)) for x, y in zip(a.arrays, b.arrays, strict=True))


def apart(a, b):
    """The largest difference, relative to the largest number."""
    largest = max(np.abs(x).max() for x in b.arrays)
    return max(np.abs(x - y).max() for x, y in zip(a.arrays, b.arrays, strict=True)) / largest


def slope(form, u, v, h):
    """The derivative of a form, by differences of fourth order."""
    near, far = form(u + h * v) - form(u - h * v), form(u + 2 * h * v) - form(u - 2 * h * v)
    return (8 * near - far) / (12 * h)


def states(space, components, size, rng, count=3):
    return [random_field(space, rng, components=components) * (size if i == 0 else 1.0) for i in range(count)]


def check_exact(form, u, v, w, size, stores):
    """The derivative by differences, with other numbers stored, its adjoint, and the pullback."""
    expected, first = slope(form, u, v, 1e-3 * size), form.linearised(u)
    assert apart(first(v), expected) < 1e-9
    for store in stores:
        J = form.linearised(u, store)
        found, back = J(v), J.transposed()(w)
        terms = sum(np.abs(x * y).sum() for x, y in zip(w.arrays, found.arrays, strict=True))
        assert abs(dot(w, found) - dot(back, v)) <= 1e-14 * terms
        assert apart(found, first(v)) < 1e-13
    assert apart(form.pullback(u, w), back) < 1e-13


@pytest.mark.parametrize("name", NAMES)
def test_exact_on_curved_cells(name, backend, rng):
    space = hp.Space(curved(name), 2, backend=backend)
    for number, (form, size) in enumerate(forms_on(space)[1:]):
        states_ = states(space, form.form.components, size, rng)
        check_exact(form, *states_, size, STORES if number == 0 else ("cheap",))


def close_diagonals(J, other, c0):
    found, expected = (hp.GlobalOperator(own, c0).diagonal() for own in (J, other))
    return np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["tri", "prism"])
def test_the_geometry_is_in_stored_numbers(name, backend, rng):
    space = hp.Space(curved(name), 2, backend=backend)
    form, mass, c0 = hp.WeakForm(space, p_laplacian, test="grad", fields={"p": 3.5}), hp.Mass(space), hp.C0Space(space)
    u, v, w = states(space, 1, 1.0, rng)
    J, plain, both = form.linearised(u), form.linearised(u, "fewest"), (form + mass).linearised(u)
    d = space.dim
    assert f"{d * (d + 1) // 2} numbers are stored at each point, the geometry in them" in J.explain()
    assert all(choice.kernel.problem.geometry.affine for choice in J.choices)
    copied = pickle.loads(pickle.dumps(J))
    assert apart(copied(copied.space.field("coeff", list(v.arrays))), plain(v)) < 1e-13
    for at in (w, u):
        form.parameters["p"] -= 0.5  # counts from `at` on
        assert close_diagonals(J, plain, c0)
        J.at(at), plain.at(at), both.at(at)
        assert apart(J(v), plain(v)) < 1e-13 and apart(both(v), plain(v) + mass(v)) < 1e-13
    assert close_diagonals(J, plain, c0) and close_diagonals(both, plain + mass, c0)
    if J.parameters:
        with pytest.raises(ArgumentError, match="'p' .* is in its stored numbers: set it in the form"):
            J.parameters["p"] = 2.0
    # What may change between two linearisations is no part of them.
    k = space.evaluate(lambda *x: 1 + x[0] ** 2)
    J = hp.WeakForm(space, lambda u, du, k: (k * u, p_laplacian(du, 3.5)), fields={"k": k}).linearised(u)
    before = J(v)
    for own in k.arrays:
        own *= 2.0
    assert "the geometry in them" not in J.explain() and apart(J(v), before) > 1e-3


@pytest.mark.parametrize(
    ("function", "read"),
    [(lambda du, b: (b[0] + du.dot(du)) ** 0.5 * du, 6), (lambda du, b: (1 + du.dot(b) ** 2) * du, 10)],
)
def test_what_is_the_same_in_rotated_coordinates_reads_fewer_numbers(function, read, rng):
    space = hp.Space(curved("tet"), 2, backend="numpy")
    form = hp.WeakForm(space, function, test="grad", fields={"b": (1.0, 2.0, 0.5)})
    u, v, w = states(space, 1, 1.0, rng)
    J, plain = form.linearised(u), form.linearised(u, "fewest")
    assert J.linearisation.stored.instead[2]._points.fields[".geometry"].components == read
    for at in (w, u):
        assert apart(J.at(at)(v), plain.at(at)(v)) < 1e-13


@pytest.mark.long
@pytest.mark.parametrize("order", range(1, 7))
@pytest.mark.parametrize("name", NAMES)
def test_exact_in_all_orders(name, order, backend, rng):
    space = hp.Space(curved(name), order, backend=backend)
    for form, size in forms_on(space):
        given = states(space, form.form.components, size / order**2, rng)
        check_exact(form, *given, size / order**2, STORES)


@pytest.mark.parametrize("name", ["quad", "tet"])
def test_in_float32(name, backend, rng):
    wide = hp.Space(curved(name), 2, backend=backend)
    narrow = wide.at(None, None, wide.quadrature, "float32")
    for (form, size), (own, _) in zip(forms_on(wide), forms_on(narrow), strict=True):
        u, v, _ = states(wide, form.form.components, size, rng)
        given = [narrow.field("coeff", [a.astype("f4") for a in f.arrays]) for f in (u, v)]
        found = own.linearised(given[0])(given[1])
        assert found.dtype == "float32" and apart(found, form.linearised(u)(v)) < 1e-4


def address(array):
    """Where an array is, on the host or on a GPU."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def test_another_function_in_the_same_memory(backend, rng, monkeypatch):
    space = hp.Space(box(("hex", "prism"), (2, 1, 1)), 2, backend=backend)
    form = hp.WeakForm(space, bratu, fields={"lam": 1.5, "k": lambda *x: 1 + x[0] ** 2})
    u, v, other = states(space, 1, 1.0, rng)
    J = form.linearised(u)
    before = J(v)
    stored = [address(pair.read(J.device)) for pair in J.linearisation.stored.data]
    seen, choose = [], operators.choose_else_auto
    monkeypatch.setattr(operators, "choose_else_auto", lambda *given: seen.append(given) or choose(*given))
    form.parameters["lam"] = 0.5
    assert apart(J(v), before) == 0  # the form's numbers count from `at` on
    seen.clear()
    assert J.at(other) is J and not seen
    found = J(v)
    assert stored == [address(pair.read(J.device)) for pair in J.linearisation.stored.data]
    assert apart(found, form.linearised(other)(v)) < 1e-14
    copied, field = pickle.loads(pickle.dumps((J, v)))
    assert apart(copied(field), found) < 1e-14
    other *= 0.0  # it owns what it was made of
    assert apart(J(v), found) == 0


def radiation(space):
    """A sum with loads, a linear form and a form on a boundary."""
    inside = hp.WeakForm(space, bratu, fields={"lam": 0.5, "k": lambda *x: 1 + x[0] ** 2})
    loss = hp.WeakForm(space, lambda u, s: s * u**4, test="value", fields={"s": 3.0}, on="xmin")
    load = hp.WeakForm(space, lambda x: x[0], test="value")
    heating = hp.WeakForm(space, lambda n: n[0], test="value", on="xmax")
    return inside + 2 * loss + hp.Mass(space) - load + heating


@pytest.mark.parametrize("name", NAMES)
def test_sums_with_boundaries(name, backend, rng):
    space = hp.Space(straight(name), 2, backend=backend)
    form = radiation(space)
    u, v, w = states(space, 1, 1.0, rng)
    check_exact(form, u, v, w, 1.0, ("cheap",))
    J = form.linearised(u)
    assert len(J.summands) == 3  # loads have no derivative
    form.factors[1], form.summands[1].parameters["s"] = 0.5, 2.0
    assert apart(J.at(w)(v), form.linearised(w)(v)) < 1e-14
    loss = form.summands[1]
    h = 1e-3
    loss.parameters["s"] = 2.0 + h
    up = dot(w, loss(u))
    loss.parameters["s"] = 2.0 - h
    down = dot(w, loss(u))
    assert form.pullback(u, w, "s") == form.factors[1] * loss.pullback(u, w, "s")
    with pytest.raises(ArgumentError, match="0 forms of .* have a coefficient 'q'"):
        form.pullback(u, w, "q")
    assert loss.pullback(u, w, "s") == pytest.approx((up - down) / (2 * h), rel=1e-9)


@pytest.mark.parametrize("name", ["quad", "tet", "pyramid"])
def test_energies(name, backend, rng):
    space = hp.Space(curved(name) if name != "tet" else straight(name), 2, backend=backend)
    d = space.dim
    inside = hp.Energy(space, lambda u, du, a: a * neo_hooke(du) + u[0] ** 2, {"a": 2.0}, d)
    E = inside - 0.5 * hp.Energy(space, lambda u: u[0], components=d)
    if name == "tet":
        E = E + hp.Energy(space, lambda u: u[d - 1] ** 4 + u[0] * u[1], components=d, on="xmax")
    u, v, w = states(space, d, 0.02, rng)
    h = 2e-4
    by_steps = (8 * (E(u + h * v) - E(u - h * v)) - E(u + 2 * h * v) + E(u - 2 * h * v)) / (12 * h)
    assert dot(E.residual(u), v) == pytest.approx(by_steps, rel=1e-8, abs=1e-11)
    J = E.linearised(u)
    assert apart(J(v), slope(E.residual, u, v, 2e-5)) < 1e-8
    terms = sum(np.abs(x * y).sum() for x, y in zip(w.arrays, J(v).arrays, strict=True))
    assert abs(dot(w, J(v)) - dot(v, J(w))) < 1e-14 * terms
    c0 = hp.C0Space(space)
    assert hp.GlobalOperator(J, c0).symmetric
    assert space.integrate(inside.density(u)) == pytest.approx(inside(u), rel=1e-14)
    before = inside(u)
    inside.parameters["a"] = 4.0
    assert inside(u) != before and dot(inside.residual(u), v) == pytest.approx(
        (inside(u + h * v) - inside(u - h * v)) / (2 * h), rel=1e-2
    )


@pytest.mark.parametrize("name", NAMES)
def test_gradients_by_coefficients(name, backend, rng):
    space = hp.Space(curved(name), 2, backend=backend)
    k = space.evaluate(lambda *x: 1 + x[0] ** 2)
    form = hp.WeakForm(space, bratu, fields={"lam": 1.5, "k": k})
    u, w, change = states(space, 1, 1.0, rng)
    change = hp.BwdTrans(space)(change)
    by_field, by_number = form.pullback(u, w, "k"), form.pullback(u, w, "lam")
    moved = hp.WeakForm(space, bratu, fields={"lam": 1.5, "k": k + change})
    assert space.integrate(by_field * change) == pytest.approx(dot(w, moved(u) - form(u)), rel=1e-11)
    along, h = {"u": w, "k": change, "lam": 1.0}, 1e-4
    ends = [hp.WeakForm(space, bratu, fields={"lam": 1.5 + t, "k": k + t * change}) for t in (h, -h)]
    for second, first in (
        (form.pushforward(u, along), lambda own, at: own(at)),
        (form.pushforward(u, along, along), lambda own, at: own.pushforward(at, along)),
        (form.pullback(u, w, None, along), lambda own, at: own.pullback(at, w)),
        (form.pullback(u, w, "k", along), lambda own, at: own.pullback(at, w, "k")),
        (form.pullback(u, w, "lam", along), lambda own, at: own.pullback(at, w, "lam")),
    ):
        up, down = first(ends[0], u + h * w), first(ends[1], u - h * w)
        if isinstance(up, float):
            assert second == pytest.approx((up - down) / (2 * h), rel=1e-6)
        else:
            assert apart((1 / (2 * h)) * (up - down), second) < 1e-6
    before = dot(w, form(u))
    form.parameters["lam"] = 2.5
    assert by_number == pytest.approx(dot(w, form(u)) - before, rel=1e-11)


def test_multigrid_takes_the_tangent(backend, rng):
    """p = 1.5: products of resampled factors are not positive, values at the coarse points are."""
    space = hp.Space(box(("hex", "tet"), 2), 3, backend=backend)
    form = hp.WeakForm(space, p_laplacian, test="grad", fields={"p": 1.5})
    c0 = hp.C0Space(space)
    u = c0.scatter(c0.project(lambda x, y, z: 4 * np.sin(3 * x) * y + z**3))
    A = hp.GlobalOperator(form.linearised(u), c0, hp.BoundaryConditions(c0, {"xmin": 0.0}))
    assert A.symmetric and A.is_positive()
    for order in (2, 1):
        lower = hp.C0Space(space.at(order, dtype="float32"))
        assert hp.GlobalOperator(A.operator.at(lower.space), lower).is_positive()
    _, info = hp.solve(A, rng.standard_normal(A.shape[0]), preconditioner="multigrid", definite=True, bar=False)
    assert info.iterations <= 16


def test_a_global_operator_follows(backend, rng):
    """Of a linearisation that moves on: matrices of boundaries, and whether it is symmetric."""
    space = hp.Space(box("quad", 3), 2, backend=backend)
    c0 = hp.C0Space(space)
    moving = hp.WeakForm(space, lambda u, du: u * du[0], test="value")
    loss = hp.WeakForm(space, lambda u: u**4, test="value", on="xmin")
    form = moving + hp.Laplacian(space) + loss
    u = c0.scatter(c0.project(lambda x, y: 1 + x * y))
    J = form.linearised(0.0 * u)
    A = hp.GlobalOperator(J, c0)
    x = rng.standard_normal(A.shape[0])
    assert A.symmetric and A.matrix is not None
    resting = A @ x
    J.at(u)
    assert not A.symmetric
    expected = hp.GlobalOperator(form.linearised(u), c0) @ x
    assert np.abs(A @ x - expected).max() < 1e-13 * np.abs(expected).max() < np.abs(expected - resting).max()


def test_what_has_no_derivative_is_named():
    space = hp.Space(box("quad", 2), 2)
    u = space.zeros("coeff")
    with pytest.raises(ArgumentError, match="BwdTrans is no weak form"):
        hp.BwdTrans(space).linearised(u)
    mass = hp.Mass(space)
    with pytest.raises(ArgumentError, match="Mass is no linearisation"):
        mass.at(u)
    with pytest.raises(ArgumentError, match="Mass is no linearisation"):
        mass.transposed()
    with pytest.raises(ArgumentError, match="no linearisation"):
        (mass + mass).at(u)
    with pytest.raises(ArgumentError, match="unknown store 'cheep'"):
        mass.linearised(u, "cheep")
    with pytest.raises(ArgumentError, match="has no coefficient 'k'"):
        mass.pullback(u, u, "k")
    with pytest.raises(StateError, match="has 2 component"):
        mass.linearised(space.zeros("coeff", 2))
    with pytest.raises(StateError, match="another space"):
        mass.linearised(hp.Space(box("quad", 2), 2).zeros("coeff"))
    with pytest.raises(StateError, match="'coeff' field"):
        mass.linearised(space.zeros("phys"))
    with pytest.raises(ArgumentError, match="must return one number, it returns 2"):
        hp.Energy(space, lambda u: [u, u])
    with pytest.raises(StateError, match=r"has 2 component\(s\), the form couples 1"):
        hp.Energy(space, lambda u: u)(space.zeros("coeff", 2))
    with pytest.raises(ArgumentError, match="on a boundary"):
        hp.Energy(space, lambda u: u, on="left" if "left" in space.mesh.boundaries else "xmin").density(u)

    def long(u):
        for _ in range(400):
            u = np.sin(u) * np.exp(u)
        return u

    form = hp.WeakForm(space, long, test="value")
    with pytest.raises(ArgumentError, match="values at points of long: 3596 operations .* the limit is"):
        form.linearised(u)


def test_what_is_stored_is_told():
    space = hp.Space(box("hex", 2), 2)
    form = hp.WeakForm(space, p_laplacian, test="grad", fields={"p": 3.5})
    u = space.project(lambda x, y, z: x * y + z)
    counts = {store: form.linearised(u, store).linearisation.reads for store in STORES}
    assert counts == {"cheap": 4, "fewest": 3, "matrix": 6}
    flops = {store: form.linearised(u, store).form.trace.flops for store in STORES}
    assert flops["matrix"] < flops["cheap"] < flops["fewest"]
    J = form.linearised(u)
    assert "store='cheap': 4 numbers are stored at each point" in J.explain()
    assert not {node.op for node in J.form.trace.live} & {"pow", "exp", "log"}
    assert "4 numbers" in (J + hp.Mass(space)).explain()
