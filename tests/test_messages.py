"""What users often get wrong: one error of ours, which says what to do."""

import inspect
import pickle

import numpy as np
import pytest

import hpfem as hp

SPACE = hp.Space(hp.box("quad", (2, 2)), 2)
U = SPACE.project(lambda x, y: x)
C0 = hp.C0Space(SPACE)
PROBLEM = hp.Problem(SPACE, 1.0)


class Cubic(hp.Space):
    """A class of the user's own."""

    def __init__(self, mesh, **options):
        super().__init__(mesh, 3, **options)


KEYWORDS = {
    "dirichlet": lambda: hp.Problem(SPACE, 1.0, dirichelt=0.0),
    "max_iterations": lambda: hp.Problem(SPACE, 1.0, maxiter=3),
    "start": lambda: PROBLEM.solve(1.0, strat=U),
    "preconditioner": lambda: hp.solve_helmholtz(SPACE, 1.0, 1.0, preconditoner="none"),
    "symmetric": lambda: hp.solve(np.eye(2), np.ones(2), symetric=True),
    "tol": lambda: hp.cg(lambda v: v, np.ones(3), tolerance=1),
    "periodic": lambda: hp.read_mesh("none.msh", periodc=True),
    "order": lambda: hp.Space(SPACE.mesh, oder=2),
    "space": lambda: hp.C0Space(sapce=SPACE),
    "neumann": lambda: hp.BoundaryConditions(C0, neuman=1.0),
    "strategy": lambda: hp.Mass(SPACE, stratgy="sumfac"),
    "lam": lambda: hp.Helmholtz(SPACE, lam=1.0, reaction=1.0),
    "reaction": lambda: hp.AdvectionDiffusionReaction(SPACE, [1, 0], lam=1.0),
    "test": lambda: hp.WeakForm(SPACE, lambda u: u, tests="value"),
    "fields": lambda: hp.WeakForm(SPACE, lambda u: u, feilds={}, on="xmin"),
    "subdivide": lambda: hp.write_vtu("u.vtu", U, subdivde=1),
    "cmap": lambda: U.plot(cmapp="plasma"),
    "components": lambda: hp.GlobalOperator(hp.Mass(SPACE), C0, component=1),
    "boundaries": lambda: hp.Mesh.from_cells(SPACE.mesh.points, [], boundarys={}),
    "basis": lambda: Cubic(SPACE.mesh, baiss="modified"),
    "precision": lambda: hp.tune(SPACE, "Mass", precison="mixed"),
}


@pytest.mark.parametrize("meant", KEYWORDS)
def test_keywords_with_a_typing_error(meant):
    with pytest.raises(hp.ArgumentError, match=f"takes no '.*'; did you mean '{meant}'?") as caught:
        KEYWORDS[meant]()
    assert isinstance(caught.value, TypeError)


def test_keywords_that_are_near_nothing():
    with pytest.raises(hp.ArgumentError, match=r"Space.project takes no 'zzz'; it takes function"):
        SPACE.project(zzz=1)
    with pytest.raises(hp.ArgumentError, match="Mass takes no 'lam'; it takes space, strategy, algorithm, backend, "):
        hp.Mass(SPACE, lam=1.0)

    def broken(x, y):
        return np.zeros_like(x, nonsense=1)

    with pytest.raises(hp.ArgumentError, match=r"failed: .*nonsense"):
        SPACE.project(broken)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'order'"):
        hp.Space(SPACE.mesh)


def test_public_functions_keep_their_signature():
    assert pickle.loads(pickle.dumps(hp.solve_helmholtz)) is hp.solve_helmholtz
    assert list(inspect.signature(hp.Problem).parameters)[:2] == ["space", "lam"]
    assert "right-hand side" in hp.solve.__doc__


def test_a_weak_form_on_a_boundary_is_no_global_operator():
    form = hp.WeakForm(SPACE, lambda u: u, test="value", on="xmin")
    with pytest.raises(hp.ArgumentError, match="on a boundary alone; add a form in the volume, as in"):
        hp.GlobalOperator(form, C0)


def test_fields_that_are_no_functions_have_no_values_at_points():
    with pytest.raises(hp.StateError, match="evaluation at points takes a 'coeff'.* got 'dual'.*solve with the mass"):
        hp.Mass(SPACE)(U)(0.5, 0.5)
    values = hp.BwdTrans(SPACE)(U)
    with pytest.raises(hp.StateError, match="got 'phys'; use FwdTrans or space.project first"):
        values.at([[0.5, 0.5]])
    assert SPACE.project(values)(0.25, 0.5) == pytest.approx(0.25)


def test_one_point_in_a_list():
    for point in ([0.25, 0.5], np.array([0.25, 0.5])):
        with pytest.raises(hp.ArgumentError, match=r"for one point give its 2 coordinates, or \[\[x, ...\]\]"):
            U(point)
    assert U(0.25, 0.5) == pytest.approx(0.25) and U([[0.25, 0.5]]) == pytest.approx([0.25])


@pytest.mark.parametrize("given", ["xmin", ["xmin"], ("xmin", "xmax")])
@pytest.mark.parametrize("kind", ["dirichlet", "neumann", "robin"])
def test_names_of_boundaries_without_data(given, kind):
    data = r"\(alpha, g\)" if kind == "robin" else "value"
    with pytest.raises(hp.ArgumentError, match=f"{kind}=.*xmin.* has names without data; give {{name: {data}}}"):
        hp.Problem(SPACE, 1.0, **{kind: given})


def test_a_forgotten_dirichlet_condition():
    for solve in (lambda: hp.Problem(SPACE, 0.0).solve(1.0), lambda: hp.solve_helmholtz(SPACE, 0.0, 1.0)):
        with pytest.warns(hp.HpfemWarning, match="lam = 0 .*give a Dirichlet condition: dirichlet={boundary name"):
            solve()
