"""`hp.solve`: the method that an operator allows, vectors of all kinds, flat iterations, and no wrong number."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.mesh import box
from hpfem.solvers import Solution, make_preconditioner
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.preconditioners import Jacobi, taken
from tests.assembly.meshes import ours
from tests.cases import each_shape
from tests.samples import long
from tests.standin import StandIn, StandInBackend, StandInStrategy

FLAT = ("quad", "tri")
SHAPES = [shape for shape in hp.shapes.SHAPES.values() if shape.dim > 1]


def made(form, mesh, order, dtype="float64", components=None, basis="modified", backend="auto", **conditions):
    """The global operator of a form made on a space."""
    c0 = hp.C0Space(hp.Space(mesh, order, basis, dtype=dtype, backend=backend))
    return hp.GlobalOperator(form(c0.space), c0, hp.BoundaryConditions(c0, **conditions), components)


def helmholtz(lam=1.0, k=None):
    return lambda space: hp.Helmholtz(space, lam, k)


def advection(speed=10.0, reaction=1.0):
    return lambda s: hp.AdvectionDiffusionReaction(s, speed * np.array([1.0, 0.5, -0.3])[: s.dim], 1.0, reaction)


def right_hand_side(A, rng):
    return (rng.standard_normal(A.shape[0]) * np.tile(A.bc.free, A.components)).astype(A.dtype)


def checked(A, b, *arguments, tol=1e-9, **options):
    """Solve, and compare with a direct solver on the assembled matrix."""
    x, info = hp.solve(A, b, *arguments, tol=tol, **options)
    matrix = A.assemble().astype(np.float64)
    exact = scipy.sparse.linalg.spsolve(matrix.tocsc(), b.astype(np.float64))
    condition = scipy.sparse.linalg.norm(matrix) * np.linalg.norm(exact) / np.linalg.norm(b)
    true = np.linalg.norm(b - matrix @ x) / np.linalg.norm(b)
    assert info.residual == pytest.approx(true, rel=0.02, abs=10 * np.finfo(A.dtype).eps * condition)
    assert true <= 1.1 * max(tol, info.residual)
    return x, info, exact


# Each form and conditions with the method that it takes.
FORMS = {
    "mass": (hp.Mass, {}, "cg"),
    "helmholtz": (helmholtz(), {"dirichlet": 0.0}, "cg"),
    "robin": (helmholtz(0.0), {"robin": (2.0, 0.0)}, "cg"),
    "negative robin": (helmholtz(1.0), {"robin": {"xmin": (-20.0, 0.0)}}, "minres"),
    "indefinite": (helmholtz(-130.0), {"dirichlet": 0.0}, "minres"),
    "negative but definite": (helmholtz(-1.0), {"dirichlet": 0.0}, "minres"),
    "of both signs": (helmholtz(lambda *x: 100 * x[0] - 60), {"dirichlet": {"xmin": 0.0}}, "minres"),
    "advection": (advection(), {"dirichlet": 0.0}, "gmres"),
    "outflow": (advection(), {"dirichlet": {"xmin": 0.0}}, "gmres"),
    "no speed": (advection(0.0), {"dirichlet": 0.0}, "cg"),
    "advection and a wave": (advection(5.0, -60.0), {"dirichlet": 0.0}, "gmres"),
}


@pytest.mark.parametrize("preconditioner", ["auto", "jacobi", "multigrid", None])
@pytest.mark.parametrize("form", FORMS)
def test_the_method_is_that_of_the_form(form, preconditioner, rng):
    make, conditions, method = FORMS[form]
    if (form, preconditioner) == ("negative but definite", "multigrid"):
        method = "cg"  # until it shows that it is not
    A = made(make, box("quad", (3, 3)), 4, **conditions)
    x, info, exact = checked(A, right_hand_side(A, rng), preconditioner, tol=1e-10)
    assert info.method == method and np.abs(x - exact).max() < 1e-7 * np.abs(exact).max()
    wanted = {"auto": "jacobi", None: "none"}.get(preconditioner, preconditioner)
    assert info.preconditioner == wanted and info.method in str(info)
    assert set(info.phases) == {"symmetry", "preconditioner"} and 0 < info.set_up_time < info.time


@each_shape(SHAPES)
@pytest.mark.parametrize("order", [1, 3, *long(2, 5, 8)])
@pytest.mark.parametrize(("kind", "most"), [("minres", 80), ("gmres", 34)])
def test_every_shape_and_order(kind, most, shape, order, rng):
    """By multigrid in few iterations; by the diagonal in more, and to the same solution."""
    form = helmholtz(-40.0) if kind == "minres" else advection()
    mesh = box(shape.name, (2 if order < 4 or shape.dim == 2 else 1,) * shape.dim)
    A = made(form, mesh, order, backend="numpy", dirichlet={"xmin": 0.0})
    b, found = right_hand_side(A, rng), []
    for preconditioner in ("multigrid", "jacobi"):
        x, info = hp.solve(A, b, preconditioner, tol=1e-9)
        assert info.residual <= 1e-9 and np.linalg.norm(b - A @ x) < 1.01e-9 * np.linalg.norm(b)
        assert info.method == kind and (info.iterations <= most or preconditioner == "jacobi")
        found.append(x)
    assert np.abs(found[0] - found[1]).max() < 1e-5 * np.abs(found[0]).max()


@pytest.mark.parametrize(
    ("name", "basis"),
    [("cube_mixed.msh", "modified"), ("curved_mixed.msh", "lagrange"), ("curved_mixed_2d.msh", "modified")],
)
def test_our_meshes_in_both_bases(name, basis, rng):
    for form, least in ((advection(), 24), (helmholtz(-30.0), 40)):
        A = made(form, ours(name), 3, basis=basis, dirichlet=0.0)
        b = right_hand_side(A, rng)
        x, info = hp.solve(A, b, "multigrid", tol=1e-8)
        assert info.iterations <= least and np.linalg.norm(b - A @ x) < 1.01e-8 * np.linalg.norm(b)


@pytest.mark.parametrize("far", [False, *long(True)])
@pytest.mark.parametrize("shape", ["hex", "tet", "prism", "pyramid", "quad", "tri"])
def test_advection_takes_as_many_iterations_at_every_size_and_order(shape, far, rng):
    counts = []
    d = 2 if shape in FLAT else 3
    cases = [(2, 2), (4, 2), (2, 4)] if d == 3 else [(4, 2), (8, 2), (4, 4)]
    for n, order in cases + far * ([(6, 2), (2, 5)] if d == 3 else [(16, 2), (4, 7)]):
        A = made(advection(), box(shape, (n,) * d), order, dirichlet=0.0)
        counts.append(hp.solve(A, right_hand_side(A, rng), "multigrid", tol=1e-8)[1].iterations)
    assert max(counts) <= 24 and max(counts) - min(counts) <= 8, counts


@pytest.mark.parametrize("peclet", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("shape", ["hex", "prism", "pyramid", "tet", "quad", "tri"])
def test_strong_advection_is_refused(shape, peclet, rng):
    n, d = 3, 2 if shape in FLAT else 3
    velocity, diffusivity = np.array([0.6, 0.64, -0.48])[:d], 1 / (2 * n * peclet)
    A = made(
        lambda space: hp.AdvectionDiffusionReaction(space, velocity, diffusivity),
        box(shape, (n,) * d),
        3,
        dirichlet={"xmin": 0.0},
    )
    b = right_hand_side(A, rng)
    if peclet > 1:
        with pytest.raises(hp.SolverError, match="residual"):
            hp.solve(A, b, "multigrid", tol=1e-8, max_iterations=60)
    else:
        x, info = hp.solve(A, b, "multigrid", tol=1e-8)
        assert info.iterations <= 30 and np.linalg.norm(b - A @ x) <= 1.01e-8 * np.linalg.norm(b)


def test_the_smooth_solution_of_advection_and_diffusion():
    """Manufactured, on a mesh of all shapes, with the boundary's values taken to the right."""

    def exact(x, y, z):
        return np.sin(np.pi * x) * np.cos(np.pi * y) * np.exp(z)

    def source(x, y, z):
        dx, dy = np.pi * np.cos(np.pi * x) * np.cos(np.pi * y), -np.pi * np.sin(np.pi * x) * np.sin(np.pi * y)
        return (2 * np.pi**2 - 1 + 1) * exact(x, y, z) + (4 * dx - 2 * dy) * np.exp(z) + 3 * exact(x, y, z)

    errors = []
    for order in (2, 4):
        space = hp.Space(ours("cube_mixed.msh"), order)
        c0 = hp.C0Space(space)
        bc = hp.BoundaryConditions(c0, dirichlet=exact)
        form = hp.AdvectionDiffusionReaction(space, [4.0, -2.0, 3.0], 1.0, 1.0)
        load = c0.gather(hp.IProductWRTBase(space)(space.evaluate(source)))
        b = np.where(bc.constrained, bc.values, load - hp.GlobalOperator(form, c0).apply(bc.values))
        x, info = hp.solve(hp.GlobalOperator(form, c0, bc), b, "multigrid", tol=1e-11)
        assert info.method == "gmres" and np.allclose(x[bc.constrained], bc.values[bc.constrained], atol=1e-10)
        errors.append(hp.l2_error(c0.scatter(x), exact))
    assert errors[1] < errors[0] / 50


@pytest.mark.parametrize("form", ["helmholtz", "indefinite", "advection"])
def test_single_precision(form, rng):
    make, conditions, method = FORMS[form]
    A = made(make, box("tri", (4, 4)), 4, dtype="float32", **conditions)
    b = right_hand_side(A, rng)
    for preconditioner in ("jacobi", "multigrid"):
        x, info, exact = checked(A, b, preconditioner, tol=1e-5)
        assert x.dtype == np.float32 and info.method == method
        assert np.abs(x - exact).max() < 5e-3 * np.abs(exact).max()
    # In double precision it is taken and given back, of any size.
    big, _ = hp.solve(A, b.astype(np.float64) * 2.0**300, "jacobi", tol=1e-5)
    small, _ = hp.solve(A, b, "jacobi", tol=1e-5)
    assert big.dtype == np.float64 and np.array_equal(big, small.astype(np.float64) * 2.0**300)
    # And what is coarser becomes as fine as the operator.
    double = made(make, box("tri", (4, 4)), 4, **conditions)
    x, info = hp.solve(double, b)
    assert x.dtype == np.float64 and info.residual < 1e-11


class TestComponents:
    """Several, coupled or not."""

    @pytest.mark.parametrize("form", ["helmholtz", "indefinite", "advection"])
    def test_by_themselves(self, form, rng):
        make, conditions, method = FORMS[form]
        one, three = (made(make, box("quad", (3, 3)), 4, components=n, **conditions) for n in (1, 3))
        b = rng.standard_normal((3, one.c0.size)) * one.bc.free
        for preconditioner in ("jacobi", "multigrid"):
            x, info = hp.solve(three, b, preconditioner, tol=1e-11)
            assert x.shape == b.shape and info.method == method
            for own, row in zip(x, b, strict=True):
                alone, _ = hp.solve(one, row, preconditioner, tol=1e-11)
                assert np.abs(own - alone).max() < 1e-8 * np.abs(alone).max()
        flat, _ = hp.solve(three, b.ravel(), "jacobi", tol=1e-11)
        assert flat.shape == (3 * one.c0.size,)

    @pytest.mark.parametrize(("skew", "method"), [(0.0, "cg"), (3.0, "gmres")])
    def test_coupled(self, skew, method, rng):
        def form(u, du):
            return [2 * u[0] + (1 + skew) * u[1], (1 - skew) * u[0] + 3 * u[1]], [du[0], 2 * du[1]]

        A = made(lambda s: hp.WeakForm(s, form, components=2), box("tri", (3, 3)), 4, dirichlet={"xmin": 0.0})
        for preconditioner in ("jacobi", "multigrid"):
            x, info, exact = checked(A, right_hand_side(A, rng), preconditioner, tol=1e-10)
            assert info.method == method and np.abs(x - exact).max() < 1e-7 * np.abs(exact).max()

    def test_a_saddle_point(self, rng):
        """Velocity and pressure, stabilised: symmetric, indefinite, and coupled."""

        def stokes(u, du):
            value = [0.0, 0.0, -(du[0][0] + du[1][1]) - u[2] / 50]
            return value, [
                [du[0][0] - u[2], du[0][1]],
                [du[1][0], du[1][1] - u[2]],
                [-0.01 * du[2][0], -0.01 * du[2][1]],
            ]

        A = made(lambda s: hp.WeakForm(s, stokes, components=3), box("quad", (3, 3)), 3, dirichlet={"xmin": 0.0})
        for preconditioner in ("auto", "jacobi", "multigrid"):
            _, info, _ = checked(A, right_hand_side(A, rng), preconditioner, tol=1e-9)
            assert info.method == "minres"


class TestKinds:
    """What goes in comes out."""

    @pytest.mark.parametrize("form", ["helmholtz", "indefinite", "advection"])
    def test_fields(self, form):
        make, conditions, method = FORMS[form]
        A = made(make, box("tri", (3, 3)), 4, **conditions)
        space, c0 = A.c0.space, A.c0
        field = hp.IProductWRTBase(space)(space.evaluate(lambda x, y: 1 + x))
        u, info = hp.solve(A, field, tol=1e-10)
        x, _ = hp.solve(A, c0.gather(field), tol=1e-10)
        assert isinstance(u, Solution) and u.state == "coeff" and u.info is info and u.c0 is c0
        assert np.array_equal(u.vector, x) and info.method == method
        assert hp.solve(A, field, start=u, tol=1e-9)[1].iterations == 0
        assert hp.solve(A, field, start=c0.scatter(x), tol=1e-8)[1].iterations == 0
        several = made(make, box("tri", (3, 3)), 4, components=2, **conditions)
        both = several.c0.space.field("dual", [np.concatenate([a, 2 * a]) for a in field.arrays])
        v, _ = hp.solve(several, both, tol=1e-10)
        assert v.components == 2 and np.allclose(v.vector, [x, 2 * x], atol=1e-7 * np.abs(x).max())

    def test_lists_integers_and_strided_arrays(self):
        A = made(helmholtz(), box("quad", (2, 2)), 1)
        b = np.arange(9)
        x, _ = hp.solve(A, b)
        for other in (b.tolist(), b.astype(float), np.repeat(b, 2)[::2].astype(float), b.astype(np.float16)):
            y, _ = hp.solve(A, other)
            assert type(y) is np.ndarray and y.dtype == np.float64 and np.array_equal(x, y)

    def test_arrays_of_another_library(self):
        """As far as they speak DLPack; those of a device come back there (`tests/operators`)."""

        class Other:
            def __init__(self, inside):
                self.inside, self.shape = inside, inside.shape

            def __dlpack__(self, **options):
                return self.inside.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.inside.__dlpack_device__()

            def __array_namespace__(self):
                class Library:
                    @staticmethod
                    def from_dlpack(array):
                        return Other(np.from_dlpack(array))

                return Library

        A = made(advection(), box("quad", (2, 2)), 3, dirichlet=0.0)
        b = np.ones(A.shape[0])
        x, _ = hp.solve(A, Other(b))
        assert isinstance(x, Other) and np.array_equal(x.inside, hp.solve(A, b)[0])

    @pytest.mark.parametrize("form", ["helmholtz", "indefinite", "advection"])
    @pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid"])
    def test_operators_on_a_device(self, form, preconditioner):
        """Vectors of the host are solved for there: one goes in, one comes back, whatever the iterations."""
        device = StandIn()
        BACKENDS.add("stand-in", StandInBackend("stand-in", device, [StandInStrategy()]))
        try:
            make, conditions, method = FORMS[form]
            c0 = hp.C0Space(hp.Space(box("quad", (3, 3)), 4, backend="stand-in"))
            A = hp.GlobalOperator(make(c0.space), c0, hp.BoundaryConditions(c0, **conditions))
            b = np.random.default_rng(0).standard_normal(c0.size) * A.bc.free
            M = make_preconditioner(preconditioner, A, definite=method == "cg")[0]
            hp.solve(A, b, M, tol=0.5)
            moved = []
            for tol in (1e-1, 1e-9):
                before = device.received, device.sent
                x, info = hp.solve(A, b, M, tol=tol)
                moved.append((device.received - before[0], device.sent - before[1]))
            # The tests' own product with the solution goes there and back, too.
            assert moved == [(2, 2), (2, 2)] and info.method == method
            assert type(x) is np.ndarray and np.linalg.norm(b - A @ x) < 1.01e-9 * np.linalg.norm(b)
        finally:
            BACKENDS.pop("stand-in")

    @pytest.mark.cuda
    @pytest.mark.parametrize("form", ["helmholtz", "indefinite", "advection"])
    @pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid", None])
    def test_vectors_on_a_gpu(self, form, preconditioner, rng):
        import cupy

        make, conditions, method = FORMS[form]
        mesh = ours("square_mixed.msh")
        spaces = [hp.Space(mesh, 4, backend=name) for name in ("cuda", "cpu")]
        operators = []
        for space in spaces:
            c0 = hp.C0Space(space)
            operators.append(hp.GlobalOperator(make(space), c0, hp.BoundaryConditions(c0, **conditions)))
        b = right_hand_side(operators[1], rng)
        exact, _ = hp.solve(operators[1], b, preconditioner, tol=1e-11)
        for given in (b, cupy.asarray(b)):
            x, info = hp.solve(operators[0], given, preconditioner, tol=1e-11)
            assert type(x) is type(given) and info.method == method
            assert np.abs(cupy.asnumpy(x) - exact).max() < 1e-7 * np.abs(exact).max()
        there = operators[0].on_device()
        x, _ = hp.solve(there, cupy.asarray(b), None, tol=1e-11, max_iterations=100_000)
        assert np.abs(cupy.asnumpy(x) - exact).max() < 1e-7 * np.abs(exact).max()


class TestMatricesAndFunctions:
    """What is no GlobalOperator: symmetry is looked for, definiteness is said."""

    CASES = (
        ("helmholtz", {}, "minres"), ("helmholtz", {"definite": True}, "cg"),
        ("helmholtz", {"symmetric": False}, "gmres"), ("helmholtz", {"symmetric": True, "definite": True}, "cg"),
        ("indefinite", {}, "minres"), ("indefinite", {"symmetric": True}, "minres"), ("advection", {}, "gmres"),
        ("advection", {"symmetric": False}, "gmres"),
    )  # fmt: skip

    @pytest.mark.parametrize(("form", "known", "method"), CASES)
    def test_of_every_kind(self, form, known, method, rng):
        make, conditions, _ = FORMS[form]
        A = made(make, box("tri", (3, 3)), 3, **conditions)
        b, matrix = right_hand_side(A, rng), A.assemble()
        exact = scipy.sparse.linalg.spsolve(matrix.tocsc(), b)
        kinds = (matrix, scipy.sparse.csr_matrix(matrix), matrix.toarray(), aslinearoperator(matrix), A, A.apply)
        for number, given in enumerate(kinds):
            x, info = hp.solve(given, b, tol=1e-10, **known)
            assert np.abs(x - exact).max() < 1e-7 * np.abs(exact).max()
            if given is not A:
                assert info.method == method and info.preconditioner == ("jacobi" if number < 3 else "none")

    def test_preconditioners(self, rng):
        A = made(advection(), box("tri", (3, 3)), 3, dirichlet=0.0)
        matrix, b = A.assemble(), right_hand_side(A, rng)
        M = make_preconditioner("multigrid", A, definite=False)[0]
        counts = [hp.solve(given, b, M)[1] for given in (A, matrix, A.apply)]
        assert {info.iterations for info in counts} == {counts[0].iterations} and counts[
            0
        ].preconditioner == "multigrid"
        assert hp.solve(matrix, b, lambda r: 2 * r)[1].preconditioner == "user"
        with pytest.raises(hp.NotSuitable, match="'multigrid' is made of a GlobalOperator, got"):
            hp.solve(matrix, b, "multigrid")
        with pytest.raises(hp.NotSuitable, match="'jacobi' is made of a GlobalOperator or, for 'jacobi', a matrix"):
            hp.solve(A.apply, b, "jacobi")
        # Zeros and negative numbers on a diagonal do no harm.
        flipped = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -4.0]])
        x, info = hp.solve(flipped, [1.0, 2.0, 8.0], "jacobi")
        assert np.allclose(x, [2, 1, -2]) and info.method == "minres"


class TestNoWrongNumber:
    """What is not known is looked for; what is said wrongly comes out."""

    def test_an_operator_wrongly_called_symmetric(self, rng):
        A = made(advection(), box("tri", (3, 3)), 3, dirichlet=0.0)
        b = right_hand_side(A, rng)
        for given in (A, A.assemble(), A.apply):
            for known in ({"symmetric": True}, {"definite": True}):
                with pytest.raises(hp.SolverError, match=r"not symmetric|not of rounding|singular|positive definite"):
                    hp.solve(given, b, None, **known)

    def test_an_operator_wrongly_called_definite(self, rng):
        A = made(helmholtz(-130.0), box("quad", (3, 3)), 4, dirichlet=0.0)
        b = right_hand_side(A, rng)
        for preconditioner in ("auto", None, "multigrid"):
            with pytest.raises(hp.SolverError, match="not positive definite"):
                hp.solve(A, b, preconditioner, definite=True)

    @pytest.mark.parametrize("entry", [1e-3, 1e-9])
    def test_a_single_entry_that_is_not_symmetric(self, entry):
        n = 3000
        A = scipy.sparse.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tolil()
        A[17, 18] += entry
        assert hp.solve(A.tocsr(), np.ones(n))[1].method == "gmres"

    def test_a_form_that_is_not_linear(self):
        A = made(lambda s: hp.WeakForm(s, lambda u, du: (u + u**3, du)), box("tri", (3, 3)), 3)
        with pytest.raises(hp.SolverError, match=r"not linear|stands still|singular|not of rounding|not finite"):
            hp.solve(A, 10 * np.ones(A.shape[0]), None)
        with pytest.raises(hp.NotSuitable, match="not linear"):
            hp.solve(A, np.ones(A.shape[0]), "multigrid")

    @pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid", None])
    def test_undetermined_constants(self, preconditioner, rng):
        """A right-hand side without a mean has solutions; one with a mean has none, and that is said."""
        A = made(lambda s: hp.Laplacian(s), box("tri", (3, 3)), 3)
        ones = A.c0.project(1.0)
        b = A @ rng.standard_normal(A.shape[0])
        x, info = hp.solve(A, b, preconditioner, tol=1e-9)
        assert info.method == "cg" and np.linalg.norm(A @ x - b) < 1.01e-9 * np.linalg.norm(b)
        with pytest.raises(hp.SolverError):
            hp.solve(A, b + ones, preconditioner)
        with pytest.raises(hp.SolverError, match="singular|not converge"):
            hp.solve(A, b + ones, preconditioner, definite=False)

    def test_limits_of_rounding_are_reported(self, rng):
        for form in (helmholtz(-130.0), advection()):
            A = made(form, box("quad", (3, 3)), 4, dtype="float32", dirichlet=0.0)
            with pytest.warns(hp.HpfemWarning, match="rounding to float32 allows no less"):
                hp.solve(A, right_hand_side(A, rng), tol=1e-9)

    def test_misuse(self):
        A = made(helmholtz(), box("quad", (2, 2)), 1)
        b, space = np.ones(9), A.c0.space
        other = hp.Space(space.mesh, 1)
        bad = [
            ({"b": b[:-1]}, hp.ArgumentError, r"the right-hand side of solve must be an array \[9\]"),
            ({"b": np.ones((2, 9))}, hp.ArgumentError, r"must be an array \[9\]"),
            ({"b": b * 1j}, hp.ArgumentError, "real"),
            ({"b": "b"}, hp.ArgumentError, "the right-hand side of solve"),
            ({"b": space.zeros("coeff")}, hp.StateError, "takes a 'dual' field, got 'coeff'"),
            ({"b": other.zeros("dual")}, hp.StateError, "on the operator's space"),
            ({"b": space.zeros("dual", 2)}, hp.StateError, r"a field of 1 component\(s\)"),
            ({"b": b * np.nan}, hp.SolverError, "the right-hand side is not finite"),
            ({"start": space.zeros("coeff")}, hp.ArgumentError, "give it as the right-hand side"),
            ({"start": b[:3]}, hp.ArgumentError, r"the first guess of solve must be an array \[9\]"),
            ({"A": "A"}, hp.ArgumentError, "must be a GlobalOperator, a LinearOperator, a matrix or a function"),
            ({"A": np.ones((9, 8))}, hp.ArgumentError, r"must be \[9, 9\]"),
            ({"A": lambda: b}, hp.ArgumentError, "must be a function of vectors"),
            ({"A": hp.Mass(space)}, hp.ArgumentError, "a 'coeff' field holds"),
            ({"A": np.array([["a"] * 9] * 9, dtype=object)}, hp.ArgumentError, "the operator of solve"),
            ({"A": _Stubborn()}, hp.ArgumentError, "solve: .* and vectors of numpy do not multiply: not today"),
            ({"A": aslinearoperator(1j * np.eye(9))}, hp.ArgumentError, "the operator returned complex128"),
            ({"A": np.eye(9), "b": space.zeros("dual")}, hp.ArgumentError, "a field, which a GlobalOperator takes"),
            ({"preconditioner": "ilu"}, hp.ArgumentError, "ilu"),
            ({"preconditioner": 3}, hp.ArgumentError, "preconditioner"),
            ({"symmetric": 1}, hp.ArgumentError, "symmetric must be True or False"),
            ({"definite": "yes"}, hp.ArgumentError, "definite must be True or False"),
            (
                {"symmetric": False, "definite": True},
                hp.ArgumentError,
                "definite=True means symmetric positive definite",
            ),
            ({"symmetric": False, "restart": 0}, hp.ArgumentError, "restart"),
            ({"tol": 2.0}, hp.ArgumentError, "tolerance"),
        ]
        for change, error, message in bad:
            with pytest.raises(error, match=message):
                hp.solve(**{"A": A, "b": b, **change})


class _Stubborn:
    """A matrix of another library."""

    shape = (9, 9)

    def __matmul__(self, vector):
        raise TypeError("not today")


class TestAuto:
    """Set-up against iterations."""

    @pytest.mark.parametrize(("mesh", "order", "symmetric", "asymmetric"), [
        (("hex", (30, 30, 30)), 1, "jacobi", "jacobi"),
        (("hex", (16, 16, 16)), 2, "jacobi", "multigrid"),
        (("hex", (7, 7, 7)), 4, "multigrid", "multigrid"),
        (("hex", (4, 4, 4)), 4, "jacobi", "multigrid"),
        (("tet", (2, 2, 2)), 4, "jacobi", "jacobi"),
        (("quad", (40, 40)), 4, "jacobi", "multigrid"),
        (("quad", (55, 55)), 4, "multigrid", "multigrid"),
    ])  # fmt: skip
    def test_what_it_takes(self, mesh, order, symmetric, asymmetric):
        c0 = hp.C0Space(hp.Space(box(*mesh), order, backend="numpy"))
        assert taken("auto", c0) == symmetric and taken("auto", c0, symmetric=False) == asymmetric
        assert taken("auto", c0, components=100) == "multigrid"
        assert taken("jacobi", c0) == "jacobi"

    def test_multigrid_of_what_is_not_definite(self, rng):
        A = made(advection(), box("hex", (4, 4, 4)), 4, dirichlet=0.0)
        _, info = hp.solve(A, right_hand_side(A, rng))
        assert (info.method, info.preconditioner) == ("gmres", "multigrid") and info.residual <= 1e-12

    def test_the_diagonal_where_multigrid_cannot_serve(self, rng, caplog):
        """Nothing but a flow: no diffusion to take, and then an elliptic part that is zero somewhere."""
        mesh = box("quad", (24, 24))
        A = made(lambda s: hp.WeakForm(s, lambda u, du: (du[0] + du[1], 0 * du)), mesh, 4, dirichlet={"xmin": 0.0})
        M, used = make_preconditioner("auto", A, definite=False)
        assert used == "jacobi" and isinstance(M, Jacobi)
        assert "jacobi instead of multigrid: the form has neither diffusion nor reaction" in caplog.text
        with pytest.raises(hp.NotSuitable, match="neither"):
            make_preconditioner("multigrid", A, definite=False)

    def test_what_multigrid_is_made_of(self):
        A = made(helmholtz(-50.0), box("quad", (2, 2)), 4, dirichlet=0.0)
        M, used = make_preconditioner("multigrid", A, definite=False)
        assert used == "multigrid" and isinstance(M, Multigrid) and M.A.operator.form.name.startswith("elliptic part")
        r = np.random.default_rng(0).standard_normal(A.shape[0])
        same = Multigrid(made(helmholtz(50.0), box("quad", (2, 2)), 4, dirichlet=0.0))
        assert np.allclose(M(r), same(r), atol=1e-5 * np.abs(r).max())


def test_a_scipy_operator_without_a_matrix(rng):
    d = rng.uniform(1, 2, 200)
    x, info = hp.solve(LinearOperator((200, 200), matvec=lambda v: d * v, dtype=float), np.ones(200))
    assert info.method == "minres" and np.allclose(x, 1 / d)


def test_wide_problems_do_not_keep_what_they_do_not_need(rng):
    """Memory for vectors is taken as they come, not for the whole restart."""
    A = made(advection(), box("quad", (4, 4)), 3, dirichlet=0.0)
    b = right_hand_side(A, rng)
    first, second = (hp.solve(A, b, "multigrid", restart=n, max_iterations=10**12)[1] for n in (10**12, 50))
    assert first.iterations == second.iterations
