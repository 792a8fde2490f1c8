"""Weak forms of a user: any flux, coupled components, fields, points, nonlinear terms; with what is refused."""

import math

import numpy as np
import pytest

import hpfem as hp
from hpfem.forms.form import Term
from tests.operators.reference import random_field, references
from tests.operators.ways import ways
from tests.samples import curved, norm_error, skewed, straight

# What happens at a point does not depend on the shape: each kind of geometry on a few.
MESHES = {
    "affine tri": lambda: skewed(straight("tri")),
    "curved quad": lambda: curved("quad", order=2),
    "affine pyramid": lambda: skewed(straight("pyramid")),
    "curved hex": lambda: curved("hex", order=2),
}


@pytest.fixture(params=MESHES)
def space(request):
    """A space of order 3 on a mesh of each kind."""
    return hp.Space(MESHES[request.param](), 3)


@pytest.fixture
def check(space, backend, rng):
    """Compare a weak form by every way with a reference (ref, u, du) -> (value, flux)."""

    def agree(function, reference, *, test=("value", "grad"), components=1, fields=None, gradients=True):
        field = random_field(space, rng, components=components)
        ref = references(space)[0]
        expected = ref.test(*reference(ref, *ref.trial(field.arrays[0])))
        for way in ways(backend, gradients):
            form = hp.WeakForm(space, function, test=test, components=components, fields=fields, **way)
            assert norm_error(form(field).arrays[0], expected) < 2e-12, way

    return agree


def test_nonlinear_reaction_and_diffusion(check):
    def burning(u, du, k):
        return u**3 - np.exp(-u * u), (k + u * u) * du

    check(burning, lambda ref, u, du: (u**3 - np.exp(-(u**2)), (0.3 + u**2)[:, None] * du), fields={"k": 0.3})


def test_any_flux(check, space):
    d = space.dim

    def anisotropic(du, x):
        return [(2.0 + i) * du[i] + 0.5 * du[(i + 1) % d] * x[0] for i in range(d)]

    def reference(ref, u, du):
        flux = np.stack([(2.0 + i) * du[:, i] + 0.5 * du[:, (i + 1) % d] * ref.x[0] for i in range(d)], axis=1)
        return None, flux

    check(anisotropic, reference, test=("grad",))


def test_p_laplacian_takes_the_length_of_the_gradient(check):
    def p_laplacian(du):
        return np.sqrt(1.0 + du.dot(du)) * du

    def reference(ref, u, du):
        return None, np.sqrt(1 + np.sum(du**2, axis=1, keepdims=True)) * du

    check(p_laplacian, reference, test=("grad",))


def test_transport_in_conservative_form(check):
    # The flux does not depend on the gradient of the trial function.
    def transport(u, wind):
        return -(u * wind)

    def wind(*x):
        return [1.0 + x[1], -x[0], 0.3 * x[0]][: len(x)]

    check(
        transport,
        lambda ref, u, du: (None, -u[:, None] * np.array(wind(*ref.x))),
        test=("grad",),
        fields={"wind": wind},
    )


def test_gradient_tested_by_values(check):
    def steepness(du, x):
        return du[0] * x[1] + du.dot(du)

    check(steepness, lambda ref, u, du: (du[:, 0] * ref.x[1] + np.sum(du**2, axis=1), None), test=("value",))


def test_coupled_components(check):
    def chemistry(u, du, k):
        rate = k * u[0] * u[1]
        return [rate, -rate + u[1]], [du[0] + 0.2 * du[1], 3.0 * du[1] - du[0] / 2.0]

    def k(*x):
        return 1 + x[0] ** 2

    def reference(ref, u, du):
        rate = k(*ref.x) * u[0] * u[1]
        return np.stack([rate, -rate + u[1]]), np.stack([du[0] + 0.2 * du[1], 3 * du[1] - du[0] / 2])

    check(chemistry, reference, components=2, fields={"k": k})


def test_coupled_fluxes_of_values(check, space):
    # As in first-order systems: the flux of one component is the value of another, untouched.
    d = space.dim

    def system(u):
        return [[u[1], *[u[0]] * (d - 1)], [u[0], *[u[1]] * (d - 1)]]

    def reference(ref, u, du):
        return None, np.array([[u[1], *[u[0]] * (d - 1)], [u[0], *[u[1]] * (d - 1)]])

    check(system, reference, test=("grad",), components=2)

    def both(u):
        return [u[1], u[0]], system(u)

    check(both, lambda ref, u, du: (u[::-1], reference(ref, u, du)[1]), components=2)


def test_elasticity(check, space, backend):
    d = space.dim

    def stress(du, mu, la):
        trace = sum(du[i][i] for i in range(d))
        return [[mu * (du[i][j] + du[j][i]) + (la * trace if i == j else 0.0) for j in range(d)] for i in range(d)]

    def reference(ref, u, du):
        flux = 0.7 * (du + du.swapaxes(0, 1))
        for i in range(d):
            flux[i, i] += 1.3 * sum(du[j, j] for j in range(d))
        return None, flux

    check(stress, reference, test=("grad",), components=d, fields={"mu": 0.7, "la": 1.3})
    # Rigid rotations cost nothing.
    operator = hp.WeakForm(space, stress, test=("grad",), components=d, fields={"mu": 0.7, "la": 1.3}, backend=backend)
    rotated = space.project(lambda *x: [-x[1], x[0], 0.0][:d])
    assert abs(rotated.dot(operator(rotated))) < 1e-10


def test_fields_in_both_states_and_vectors(check, space):
    d = space.dim
    k = space.project(lambda *x: 2 + x[0])
    v = space.evaluate(lambda *x: [x[i] + 0.2 for i in range(d)])

    def form(u, k, v, a):
        return u * k + a.dot(v) * u

    check(
        form,
        lambda ref, u, du: (u * (2 + ref.x[0]) + u * sum((i + 1.0) * (ref.x[i] + 0.2) for i in range(d)), None),
        test=("value",),
        fields={"k": k, "v": v, "a": [i + 1.0 for i in range(d)]},
        gradients=False,
    )


def test_every_operation(check):
    def everything(u, x):
        a = np.where(u > 0.1, np.sqrt(np.abs(u) + 1), np.minimum(u, x[0])) + np.tanh(u) / (2 + np.sin(x[1]))
        b = np.maximum(np.cos(u), u * 0.5) - np.log(1.5 + np.abs(x[0])) ** 2 + 2.0 ** (-u) + np.exp(u) ** 1.5
        return a * b - abs(-u) + np.where(u <= x[1], 1.0, u) + np.where(x[0] >= u, u, 2.0) + np.where(u < 0, 1, 0)

    def reference(ref, u, du):
        return everything(u, [x[None] for x in ref.x]), None

    check(everything, reference, test=("value",), gradients=False)


class TestRefused:
    """Bad functions and coefficients: one clear error when the operator is made."""

    @pytest.fixture
    def space(self):
        """Any space in the plane."""
        return hp.Space(straight("quad"), 3)

    def refused(self, space, function, match, error=hp.ArgumentError, **options):
        """Check that a weak form is refused with a message."""
        with pytest.raises(error, match=match):
            hp.WeakForm(space, function, **{"test": ("value",), "trial": ("value", "grad"), **options})

    def test_decisions(self, space):
        self.refused(space, lambda u: u if u > 0 else -u, "np.where")
        self.refused(space, lambda u: max(u, 0.0), "np.maximum")
        self.refused(space, lambda u: u if u == 0 else 1 / u, "==")

    def test_other_functions(self, space):
        self.refused(space, lambda u: np.cbrt(u), "np.cbrt is not available.*np.tanh")
        self.refused(space, lambda u: math.sin(u), "NumPy's functions instead of math's")
        self.refused(space, lambda u: np.clip(u, 0, 1), "not available")
        self.refused(space, lambda u: np.sum(u), "not available|cannot be traced")
        self.refused(space, lambda u: u * np.ones(3), "array")
        self.refused(space, lambda u: u.real, "cannot be traced.*real")
        self.refused(space, lambda du: np.linalg.norm(du), "np.norm does not take vectors")
        self.refused(space, lambda u: np.sum(u), "np.sum does not take vectors", components=2)
        self.refused(space, lambda x: np.sum(np.asarray(x)), "NumPy does not take vectors")

    def test_wrong_returns(self, space):
        self.refused(space, lambda u, du: u, "must return a pair", test=("value", "grad"))
        self.refused(space, lambda du: du, "vector where a scalar is needed", components=2)
        self.refused(space, lambda u: u[0], "must return 2 components", components=2)
        self.refused(space, lambda u: None, "returned nothing")
        self.refused(space, lambda u, du: (u, None), "returned None; say with test=", test=("value", "grad"))
        self.refused(space, lambda u: u, "flux of 2 components", test=("grad",))
        self.refused(space, lambda du: [du[0]], "flux of 2 components", test=("grad",))
        self.refused(space, lambda du: du.dot([1.0, 2.0, 3.0]), "dot product of vectors with 2 and 3", test=("value",))
        self.refused(space, lambda du: du * du, "dot", test=("grad",))
        self.refused(space, lambda du: du + 1.0, "component", test=("grad",))
        self.refused(space, lambda u: [u[0]], "must return 2 components", components=2)

    def test_names(self, space):
        self.refused(space, lambda u, kappa: kappa * u, "'kappa'.*known: u, du, x")
        self.refused(space, lambda u: u, "does not take 'k'", fields={"k": 1.0})
        self.refused(space, lambda u, x: u, "called 'x'", fields={"x": 1.0})
        self.refused(space, lambda du: du, "'du'.*leaves 'grad' out", trial=("value",), test=("grad",))
        self.refused(space, lambda u: u, "test must be", test=("gradient",))
        self.refused(space, lambda u: u, r"mapping from names, got \[1.0\]", fields=[1.0])
        self.refused(space, 3.0, "is a function, got float")
        assert hp.WeakForm(space, lambda u: u, test="value").form.test == (Term("value"),)

    def test_coefficients(self, space):
        other = hp.Space(space.mesh, 2)
        dual = hp.Mass(space)(space.project(lambda x, y: x))
        for value, match in [
            ("1", "give a real number"),
            (1j, "give a real number"),
            ([1.0, 2.0, 3.0], "sequence of 2 numbers"),
            ([[1.0, 2.0]], "sequence of 2 numbers"),
            ([1.0, [2.0]], "sequence of 2 numbers"),
            (np.nan, "must be a finite number"),
            (None, "give a real number"),
        ]:
            self.refused(space, lambda u, k: u, match, fields={"k": value})
        self.refused(space, lambda u, k: u * k, "another space", hp.StateError, fields={"k": other.zeros("phys")})
        self.refused(space, lambda u, k: u * k, "'dual'", hp.StateError, fields={"k": dual})
        self.refused(space, lambda u, k: u * k, r"not finite at .* in cell \d+", fields={"k": lambda x, y: 0 / (x - x)})

    def test_coefficients_of_the_wrong_kind(self, space):
        """What cannot serve is not offered."""
        with pytest.raises(hp.ArgumentError, match=r"'velocity' .* has 1 component\(s\), not 2; give a sequence of 2"):
            hp.AdvectionDiffusionReaction(space, 1.0)
        for value in ([1.0, 2.0], lambda x, y: [x, y], space.evaluate(lambda x, y: [x, y])):
            with pytest.raises(hp.ArgumentError, match=r"has 2 component\(s\), not 1; give a real number, a function"):
                hp.Helmholtz(space, lam=value)
        with pytest.raises(hp.ArgumentError) as refusal:
            hp.Helmholtz(space, np.arange(10_000.0))
        assert "sequence" not in str(refusal.value) and len(str(refusal.value)) < 200


@pytest.mark.parametrize("backend", ["numpy", "cpu"])  # a GPU's results stay where they are and are not looked at
def test_results_that_are_not_finite_name_the_cell(backend):
    space = hp.Space(straight("quad"), 2, backend=backend)
    u = space.project(lambda x, y: x - 100)
    bad = hp.WeakForm(space, lambda u: np.log(u), test=("value",))
    message = r"values that are not finite in cell \d+ \(quad\)"
    with np.errstate(invalid="ignore"), pytest.raises(hp.ArgumentError, match=message):
        bad(u)
    good = hp.WeakForm(space, lambda u: u * u, test=("value",))
    u.arrays[0][0, 2, 1] = np.nan
    with pytest.raises(hp.StateError, match=rf"a field that is not finite in cell {space.blocks[0].elements[2]}"):
        good(u)


def test_only_functions_are_pointwise_functions():
    with pytest.raises(hp.ArgumentError, match="a pointwise function is a function, got int"):
        hp.WeakForm(hp.Space(straight("tri"), 1), 3)


def test_arrays_of_expressions_are_lists():
    space = hp.Space(straight("quad"), 2)
    u = space.project(lambda x, y: [x * y, x + y])
    turn = np.array([[2.0, 1.0], [0.0, 3.0]])
    given = hp.WeakForm(
        space, lambda u, du: (np.array([u[1], u[0]]), np.array([[*du[0]], [*du[1]]]) @ turn), components=2
    )

    def listed(u, du):
        return [u[1], u[0]], [[2 * du[i][0], du[i][0] + 3 * du[i][1]] for i in range(2)]

    assert norm_error(given(u).arrays[0], hp.WeakForm(space, listed, components=2)(u).arrays[0]) < 1e-14
    flux = hp.WeakForm(space, lambda du: turn @ np.array([*du]), test="grad")
    assert norm_error(flux(u[0]).arrays[0], hp.Helmholtz(space, 0.0, turn.tolist())(u[0]).arrays[0]) < 1e-14
    assert hp.AtPoints(space, lambda du: np.array([*du]))(u[0]).components == 2
