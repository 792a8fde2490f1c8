"""Solutions as functions of their data: derivatives forward and transposed, what is kept, and what is refused."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from hpfem.solvers import preconditioners
from hpfem.solvers.newton import Iterations
from tests.assembly.meshes import ours
from tests.samples import curved
from tests.space.test_by_region import with_regions

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def same_numbers():
    """The same random numbers in every test, whichever run before."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


def checked(solution, data, close=1e-6, step=1e-4):
    """Compare first and second derivatives, forward and transposed, with differences; -> the solution."""
    host = solution.c0.vectors_on(solution._own.device).to_host
    u = solution(data)
    change, along = (
        {name: RNG.standard_normal(shape).astype(u.dtype) for name, shape in solution.shapes.items()} for _ in range(2)
    )
    w = RNG.standard_normal(solution.shape).astype(u.dtype)
    ends = [{name: data[name] + t * along[name] for name in data} for t in (step, -step)]
    for values, second in (
        (lambda at: solution(at).vector, None),
        (lambda at: host(solution.forward(at, change)), along),
    ):
        du = host(solution.forward(data, change if second else along, along=second))
        slopes = {name: np.asarray(host(own)) for name, own in solution.pullback(data, w, along=second).items()}
        terms = [du * w, *(slopes[name] * (change if second else along)[name] for name in data)]
        apart = abs(terms[0].sum() - sum(own.sum() for own in terms[1:]))
        assert apart < (1e-3 if u.dtype == np.float32 else 1e-9) * sum(np.abs(own).sum() for own in terms)
        apart = (values(ends[0]) - values(ends[1])) / (2 * step) - du
        assert np.abs(apart).max() < close * np.abs(du).max()
    return u


def linear(mesh, order=2, inputs=None, **options):
    """A linear problem with a field, two kinds of conditions and inputs of each kind, and data."""
    space = hp.Space(mesh, order, **options)
    k = space.evaluate(lambda *x: 1 + x[0])
    names = list(mesh.boundaries)
    problem = hp.Problem(
        space, 0.5, {names[0]: lambda *x: x[1]}, robin={names[1]: (1.0, 2.0)}, diffusivity=k, bar=False
    )
    solution = hp.SolutionMap(
        problem,
        inputs or {"diffusivity": "cells", "lam": "number", "f": "points", "dirichlet": "function", "robin": names[1]},
    )
    data = {name: RNG.uniform(1, 2, shape).astype(space.dtype) for name, shape in solution.shapes.items()}
    return solution, data, problem


@pytest.mark.parametrize("shape", ["quad", "tri", "hex", "prism", "pyramid", "tet"])
def test_derivatives_on_all_shapes_and_backends(shape, backend):
    solution, data, _ = linear(curved(shape, 2), backend=backend)
    assert checked(solution, data).info.method == "cg"


@pytest.mark.long
@pytest.mark.parametrize("order", range(1, 7))
@pytest.mark.parametrize("shape", ["quad", "tri", "hex", "prism", "pyramid", "tet"])
def test_derivatives_in_all_orders(shape, order, backend):
    # Residuals are 1e-12: differences divide what that leaves in a solution, more where P is larger, by the step.
    checked(*linear(curved(shape, 2), order, backend=backend)[:2], close=1e-5)


@pytest.mark.parametrize(
    ("diffusivity", "f"),
    [("points", "functional"), ("function", "cells"), (["in", "out"], ["out", "in"]), ("cells", "function")],
)
def test_what_arrays_have(diffusivity, f):
    mesh = with_regions(box("quad", (4, 2)), lambda x, y: x < 0.5)
    solution, data, problem = linear(mesh, 2, {"diffusivity": diffusivity, "f": f, "flux": "ymax"})
    if diffusivity == "function":
        data["diffusivity"] = problem.c0.project(lambda x, y: 1 + x * y)
    checked(solution, data)


def test_it_solves_the_problem():
    solution, data, problem = linear(ours("cube_mixed.msh"), 2, {"lam": "number", "dirichlet": "function"})
    one = problem.c0.project(lambda *x: x[1])
    assert np.abs(solution({"lam": 0.5, "dirichlet": one}).vector - problem.solve().vector).max() < 1e-9
    u = solution(data)
    problem.update(lam=float(data["lam"]))
    assert np.abs(u.vector - problem.solve(dirichlet=data["dirichlet"]).vector).max() < 1e-9


def test_a_derivative_that_is_known():
    """-k u'' = f, u = 0 at both ends: u = f/k times something."""
    space = hp.Space(box("quad", 3), 3)
    problem = hp.Problem(space, dirichlet={"xmin": 0.0, "xmax": 0.0}, diffusivity=2.0, bar=False)
    solution, data = hp.SolutionMap(problem, {"diffusivity": "number"}, f=3.0), {"diffusivity": 2.0}
    assert repr(solution).startswith("SolutionMap(diffusivity; Helmholtz(Space(9 cells")
    u = solution(data).vector
    assert np.abs(u - problem.c0.project(lambda x, y: 0.75 * x * (1 - x))).max() < 1e-11
    w = RNG.standard_normal(u.shape)
    assert np.abs(solution.forward(data, {"diffusivity": 1.0}) + u / 2).max() < 1e-11
    assert solution.pullback(data, w)["diffusivity"] == pytest.approx(-(w @ u) / 2, rel=1e-9)


def flow(space, fields):
    """A form that is neither linear nor symmetric, of two components."""

    def residual(u, du, k, a):
        return [a * u[0] ** 3 + du[0][0] * u[1], u[1] + u[0]], [k * du[0], k * (1 + u[0] ** 2) * du[1]]

    return hp.WeakForm(space, residual, fields=fields, components=2)


def test_what_is_not_linear():
    space = hp.Space(box("tri", 2), 2)
    fields = {"s": 0.5, "t": space.project(lambda x, y: 1.0 + 0 * x)}
    wall = hp.WeakForm(space, lambda u, s, t: [s * t * u[0] ** 3, s * u[1]], "value", "value", fields, 2, on="ymax")
    form = flow(space, {"k": space.evaluate(lambda x, y: 1 + x), "a": 0.3}) + 2.0 * wall
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, {"xmin": [1.0, None]}, robin={"xmax": (1.0, 2.0)}, components=2)
    inputs = {"k": "cells", "a": "number", "s": "number", "t": "function", "robin": "xmax", "dirichlet": "function"}
    solution = hp.SolutionMap(form, inputs, c0, bc, tol=1e-12)
    data = {name: RNG.uniform(0.5, 1, shape) for name, shape in solution.shapes.items()}
    u = checked(solution, data, 1e-5)
    assert u.components == 2 and u.info.method == "gmres" and len(u.info.steps) > 2


def test_an_energy_in_float32():
    space = hp.Space(box("hex", 1), 3, dtype="float32")
    c0 = hp.C0Space(space)
    energy = hp.Energy(space, lambda u, du, a: 0.5 * du.dot(du) + a * u**4, fields={"a": 1.0})
    assert repr(energy) == f"Energy(<lambda>, {space!r})"
    solution = hp.SolutionMap(energy, {"a": "number", "f": "cells"}, c0, hp.BoundaryConditions(c0, {"xmin": 1.0}))
    checked(solution, {"a": np.float32(1), "f": np.ones(1, np.float32)}, 0.1, 1e-1)


def test_set_up_is_kept(monkeypatch):
    problem = linear(box("hex", 2), 3)[2]
    solution = hp.SolutionMap(problem, {"diffusivity": "cells"}, preconditioner="multigrid")
    data, solves = {"diffusivity": RNG.uniform(1, 2, 8)}, []
    u = solution(data)

    def counted(*given, **options):
        solves.append(options["name"])
        return hp.solve(*given, **options)

    tangents = solution._tangents
    tangents.solver = partial(counted, **tangents.solver.keywords)
    monkeypatch.setattr(preconditioners, "Multigrid", None)  # no other is made
    monkeypatch.setattr(Iterations, "solution", None)  # nothing is solved again
    w = RNG.standard_normal(solution.shape)
    first = solution.pullback(data, w)["diffusivity"]
    again = solution.pullback({"diffusivity": 1.0 * data["diffusivity"]}, w, u.vector)["diffusivity"]
    assert solves == ["SolutionMap: derivative"] and np.array_equal(first, again)
    solution.pullback(data, w, along=data)
    solution.forward(data, data)
    assert len(solves) == 3  # one more pair
    twice = [solution.forward(data, data, along=data) for _ in range(2)]
    twice[0][...] = 0  # what is kept is nobody else's
    assert len(solves) == 4 and twice[1].any() and solution.forward(data, data, along=data).any()
    assert tangents.multigrid == "kept"


def test_a_known_solution_is_not_solved_for_again():
    solution, data, _ = linear(box("quad", 2))
    other = {name: 1.1 * own for name, own in data.items()}
    w = RNG.standard_normal(solution.shape)
    u = solution(data).vector
    wanted = solution.pullback(data, w)
    solution(other)
    found = solution.pullback(data, w, u)
    assert all(np.allclose(found[name], wanted[name], rtol=1e-9) for name in wanted)


@pytest.mark.parametrize("shape", ["tri", *(pytest.param(s, marks=pytest.mark.long) for s in ("hex", "pyramid"))])
def test_by_nodes(shape):
    start, rng = curved(shape, 2), np.random.default_rng(1)
    way = rng.standard_normal(start.points.shape)

    def mapped(t, f=None):
        space = hp.Space(start.transformed(lambda x: x + t * way), 2)
        form = hp.WeakForm(space, lambda u, du, x: (u**3 - x[0], du)) + hp.WeakForm(
            space, lambda u, x: u - x[1], "value", "value", on="xmax"
        )
        c0 = hp.C0Space(space)
        bc = hp.BoundaryConditions(c0, {"xmin": 1.0})
        return hp.SolutionMap(form, {"nodes": "mesh"}, c0, bc, f, tol=1e-12), {"nodes": space.mesh.points}

    solution, data = mapped(0.0)
    w = rng.standard_normal(solution.shape)
    ends = [own(nodes).vector @ w for own, nodes in map(mapped, (1e-4, -1e-4))]
    slopes = solution.pullback(data, w)["nodes"]
    assert np.sum(slopes * way) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5)
    assert solution.forward(data, {"nodes": way}) @ w == pytest.approx(np.sum(slopes * way), rel=1e-9)
    with pytest.raises(hp.ArgumentError, match="no second derivatives of a solution with 'nodes'"):
        solution.forward(data, {"nodes": way}, along={"nodes": way})
    with pytest.raises(hp.ArgumentError, match="make another SolutionMap on the moved mesh"):
        solution({"nodes": data["nodes"] + way})
    loaded, data = mapped(0.0, 1.0)
    with pytest.raises(hp.ArgumentError, match="write loads and boundary data in the weak form"):
        loaded.pullback(data, w)


def test_maps_share_a_field_and_threads_a_map():
    solution, _, problem = linear(box("quad", 2), 2, {"diffusivity": "cells"})
    other = hp.SolutionMap(problem, {"diffusivity": "cells"})
    rows = [{"diffusivity": RNG.uniform(1, 2, 4)} for _ in range(6)]
    w = RNG.standard_normal(solution.shape)
    wanted = [solution.pullback(row, w)["diffusivity"] for row in rows]
    solution(rows[0])
    other(rows[1])
    assert np.allclose(solution.pullback(rows[0], w)["diffusivity"], wanted[0], rtol=1e-9)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda row: solution.pullback(row, w)["diffusivity"], rows))
    assert np.allclose(found, wanted, rtol=1e-9)


def test_cells_are_summed_up_without_bincount(monkeypatch):
    """CuPy takes seconds to compile its own."""
    solution, *_ = linear(box("quad", 2), 2, {"diffusivity": "cells"})
    data, w = {"diffusivity": RNG.uniform(1, 2, 4)}, RNG.standard_normal(solution.shape)
    wanted = solution.pullback(data, w)["diffusivity"]
    monkeypatch.setattr(np, "bincount", None)
    assert np.allclose(solution.pullback(data, w)["diffusivity"], wanted, rtol=1e-9)


def test_what_is_refused():
    solution, data, problem = linear(box("quad", 2))
    space, c0 = problem.space, problem.c0
    with pytest.raises(hp.ArgumentError, match=r"^'f' is an array of float64 \(\d+,\), got one of float64 \(3,\)"):
        solution({**data, "f": np.ones(3)})
    with pytest.raises(hp.ArgumentError, match="'lam' is an array of float64 .*, got one of float32"):
        solution({**data, "lam": np.ones((), np.float32)})
    with pytest.raises(hp.ArgumentError, match="the change of 'f' is an array"):
        solution.forward(data, {**data, "f": "none"})
    for wrong in ({}, 1.0, {**data, "g": 1.0}):
        with pytest.raises(hp.ArgumentError, match="the inputs are diffusivity, lam, .*, robin, each with an"):
            solution(wrong)
    for inputs, message in {
        "f": "inputs are a mapping",
        ("diffusivity", "number"): "input 'diffusivity' is 'number', in Helmholtz it is a field",
        ("diffusivity", "corners"): "an input is 'points', 'cells', 'function' or names of regions, got 'corners'",
        ("lam", "cells"): "input 'lam' is 'cells', in Helmholtz it is a number",
        ("g", "cells"): "no input 'g' that is 'cells'; the residual's coefficients are diffusivity, lam",
        ("flux", "nowhere"): "no input 'flux' that is 'nowhere'",
    }.items():
        with pytest.raises(hp.ArgumentError, match=message):
            hp.SolutionMap(problem, inputs if isinstance(inputs, str) else dict([inputs]))
    fixed = hp.Problem(space, dirichlet=0.0, diffusivity=lambda x, y: 1 + x, bar=False)
    with pytest.raises(hp.ArgumentError, match="'diffusivity' of Helmholtz was evaluated when it was made"):
        hp.SolutionMap(fixed, {"diffusivity": "cells"})
    for other in (hp.Problem(space, bar=False), hp.Problem(space, 1.0, components=2, bar=False)):
        with pytest.raises(hp.ArgumentError, match="one component without an undetermined constant"):
            hp.SolutionMap(other, {"lam": "number"})
    two = hp.WeakForm(space, lambda u, a: a * u, test="value", fields={"a": 1.0})
    with pytest.raises(hp.ArgumentError, match="2 forms of .* have a coefficient 'a'"):
        hp.SolutionMap(two + 2.0 * two, {"a": "number"}, c0)
    k = space.evaluate(lambda x, y: 1.0)
    same = hp.WeakForm(space, lambda u, du, k, q: (q * u, k * du), fields={"k": k, "q": k})
    with pytest.raises(hp.ArgumentError, match="the field 'k' of .* is another coefficient, too; give that a copy"):
        hp.SolutionMap(same, {"k": "cells"}, c0)
    wall = hp.WeakForm(space, lambda u, s: s * u, test="value", fields={"s": space.zeros("coeff")}, on="ymax")
    with pytest.raises(hp.ArgumentError, match="input 's' is 'cells', of .* on a boundary it is a 'function'"):
        hp.SolutionMap(hp.Laplacian(space) + wall, {"s": "cells"}, c0)
    with pytest.raises(hp.ArgumentError, match="the change of 's' of .* is a field of 1 component.*, got 1.0"):
        wall.pushforward(space.zeros("coeff"), {"s": 1.0})
    with pytest.raises(hp.SolverError, match="not positive"):
        solution({**data, "diffusivity": -data["diffusivity"]})
    with pytest.raises(hp.SolverError, match="the right-hand side is not finite"):
        solution({**data, "f": np.nan * data["f"]})
