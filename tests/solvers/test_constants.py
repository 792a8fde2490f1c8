"""Constants that an operator does not see, or hardly: from the data, part by part of the mesh."""

import warnings

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import Mesh, box
from hpfem.mesh.symmetry import entity_nodes
from hpfem.solvers.constants import hidden_constants
from tests.assembly.meshes import ours


def apart(*meshes, regions=True):
    """Meshes side by side, 2 apart in x: boundaries are named "0 xmin", ..., regions "0", ..."""
    points, cells, sides, named, first, at = [], [], {}, {}, 0, 0
    for number, mesh in enumerate(meshes):
        points.append(mesh.points + np.eye(mesh.points.shape[1])[0] * 2 * number)
        cells += [(group.shape.name, group.order, group.nodes + at) for group in mesh.cells]
        for name, facets in mesh.boundaries.items():
            group, row = mesh.locations
            for facet in facets:
                cell, local = mesh.facets.cells[facet, 0], mesh.facets.local[facet, 0]
                own = mesh.cells[group[cell]]
                places = [entity_nodes(own.shape, own.order, 0, v)[0] for v in own.shape.facets[local].vertices]
                corners = own.nodes[row[cell]][places]
                sides.setdefault(f"{number} {name}", {}).setdefault(len(corners), []).append(corners + at)
        named[str(number)] = np.arange(first, first + mesh.n_cells)
        first, at = first + mesh.n_cells, at + len(mesh.points)
    boundaries = {name: [np.array(rows) for rows in found.values()] for name, found in sides.items()}
    return Mesh.from_cells(np.concatenate(points), cells, boundaries=boundaries, regions=named if regions else {})


def at(u, *points):
    return np.ravel(u.at(np.array(points, dtype=float)))


SMALL = [
    (1e-6, np.float64, 1.0, None), (1e-3, np.float32, 1.0, None), (1.0, np.float32, 1e-3, None),
    (1.0, np.float64, 1e-11, None), (1.0, np.float64, 1e-200, None), (1.0, np.float64, 1.0, 1e12),
    (1.0, np.float32, 1.0, 1e12), (1.0, np.float64, lambda x, y, z: 1e-14 * (x > 0.5), None),
]  # fmt: skip


# Lengths hardly matter to Jacobi.
@pytest.mark.parametrize(
    ("scale", "dtype", "lam", "k", "preconditioner"),
    [
        pytest.param(*case, name, marks=[pytest.mark.long] * (name == "jacobi" and case[0] != 1))
        for case in SMALL
        for name in ("multigrid", "jacobi")
    ],
)
def test_a_small_lam_is_not_zero(scale, dtype, lam, k, preconditioner):
    """The solution 1, and one that is not constant."""
    space = hp.Space(ours("cube_mixed.msh").transformed(lambda p: p * scale), 3, dtype=dtype)
    lam = space.evaluate(lam) if callable(lam) else lam
    options = {"diffusivity": k, "preconditioner": preconditioner}
    u = hp.solve_helmholtz(space, lam, lam, **options)
    assert np.abs(u.vector - u.c0.project(1.0)).max() < 100 * np.finfo(dtype).eps
    assert space.norm(u) == pytest.approx(scale**1.5, rel=1e-6)
    assert u.info.incompatibility == {}
    # Its integral against lam is that of the right-hand side, however small lam is.
    values = space.evaluate(lambda x, y, z: 1 + np.cos(np.pi * x / scale))
    load = hp.IProductWRTBase(space)(values)
    u = hp.solve_helmholtz(space, lam, load, **options)
    seen = hp.BwdTrans(space)(u)
    weighted = seen * (lam if isinstance(lam, hp.Field) else 1.0)
    factor = 1.0 if isinstance(lam, hp.Field) else lam
    assert factor * space.integrate(weighted) == pytest.approx(
        space.integrate(values), rel=1e3 * float(np.finfo(dtype).eps)
    )


def test_robin_conditions_fix_a_constant_however_weakly():
    space = hp.Space(box("hex", (2, 2, 2)), 3)
    for alpha in (1.0, 1e-12):
        u = hp.solve_helmholtz(space, 0.0, 0.0, robin={"xmin": (alpha, 3 * alpha)})
        assert np.abs(u.vector - u.c0.project(3.0)).max() < 1e-9
        u = hp.solve_helmholtz(space, 0.0, 0.0, robin={"xmin": (alpha, 0.0)}, neumann={"xmax": 1.0})
        # u = x + 1 / alpha
        assert at(u, (0, 0.5, 0.5), (1, 0.5, 0.5)) == pytest.approx([1 / alpha, 1 + 1 / alpha], rel=1e-9)
    with pytest.warns(hp.HpfemWarning, match="the sum is 1.0e.00 on the mesh"):
        hp.solve_helmholtz(space, 0.0, 1.0, robin={"xmin": (0.0, 0.0)})


def test_an_incompatible_problem_is_reported():
    space = hp.Space(ours("cube_distorted.msh"), 4)
    cosine = lambda x, y, z: np.pi**2 * np.cos(np.pi * x)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        u = hp.solve_helmholtz(space, 0.0, cosine)
    assert abs(u.info.incompatibility["the mesh"]) < 1e-12
    with pytest.warns(hp.HpfemWarning, match="must sum to 0.*on the mesh; their mean is taken out") as caught:
        v = hp.solve_helmholtz(space, 0.0, lambda *x: cosine(*x) + 1e-6)
    assert caught[0].filename == __file__  # the line that the user wrote
    assert np.abs(u.vector - v.vector).max() < 1e-9
    tolerant = hp.Problem(space, 0.0, data_tol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = tolerant.solve(lambda *x: cosine(*x) + 1e-6)
    assert again.info.incompatibility == pytest.approx(v.info.incompatibility, rel=1e-6)
    with pytest.warns(hp.HpfemWarning, match="must sum to 0"):
        tolerant.solve(lambda *x: cosine(*x) + 1e-3)
    # The sum over that of the absolute values: 1 for a constant.
    assert 1e-8 < v.info.incompatibility["the mesh"] < 1e-6
    with pytest.warns(hp.HpfemWarning, match="the sum is 1.0e"):
        w = hp.solve_helmholtz(space, 0.0, 2.0)
    assert w.info.incompatibility == {"the mesh": pytest.approx(1.0)} and np.abs(w.vector).max() < 1e-12
    single = hp.Space(space.mesh, 2, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hp.solve_helmholtz(single, 0.0, single.evaluate(cosine), tol=1e-4)  # rounding of the data


@pytest.mark.parametrize("preconditioner", ["multigrid", "jacobi", "none"])
def test_disconnected_parts_are_taken_by_themselves(preconditioner):
    mesh = apart(box("hex", (2, 2, 2)), box("tet", (2, 2, 2)), box(("prism", "pyramid", "tet"), (3, 1, 1)))
    space = hp.Space(mesh, 3)
    c0 = hp.C0Space(space)
    assert c0.parts.count == 3
    assert c0.parts.of_unknowns.max() == 2 and len(np.unique(c0.parts.of_cells[:8])) == 1
    options = {"preconditioner": preconditioner, "c0": c0}

    def part(x):
        return np.floor(x / 2 + 0.25)

    # u = 1 by Dirichlet values, 2 by lam of 1e-12, and mean zero.
    lam = space.evaluate(lambda x, y, z: np.where(part(x) == 1, 1e-12, 0.0))
    f = space.evaluate(lambda x, y, z: np.where(part(x) == 1, 2e-12, 0.0))
    with pytest.warns(
        hp.HpfemWarning, match=r"the sum is 1.0e.00 on part 3 of 3 \(2, .* cells around \(4.5, 0.5, 0.5\)\)"
    ):
        u = hp.solve_helmholtz(space, lam, f, dirichlet={"0 xmin": 1.0}, neumann={"2 xmin": 1.0}, **options)
    points = [(0.3, 0.4, 0.6), (2.3, 0.4, 0.6)]
    assert at(u, *points) == pytest.approx([1, 2], abs=1e-10)
    third = space.evaluate(lambda x, y, z: 1.0 * (part(x) == 2))
    assert abs(space.integrate(hp.BwdTrans(space)(u) * third)) < 1e-10
    (name,) = u.info.incompatibility
    assert name.startswith("part 3 of 3 (2, ")
    # Compatible as a whole is not compatible: +1 on one part and -1 on another.
    f = space.evaluate(lambda x, y, z: part(x) - 1)
    with pytest.warns(hp.HpfemWarning, match="part 1 of 3 .* part 3 of 3"):
        u = hp.solve_helmholtz(space, 0.0, f, **options)
    ratios = list(u.info.incompatibility.values())
    assert ratios == [pytest.approx(1), 0, pytest.approx(1)] and np.abs(u.vector).max() < 1e-9


def test_parts_that_touch_are_one(shared_meshes):
    box_ = box("quad", (2, 1))
    assert hp.C0Space(hp.Space(box_, 2)).parts.count == 1
    mesh = hp.read_mesh(shared_meshes / "mfem/periodic-torus-sector.msh", periodic=True)
    assert hp.C0Space(hp.Space(mesh, 2)).parts.count == 1


def test_a_corner_in_common_connects():
    """Two quads that share one vertex share an unknown."""
    points = [[0, 0], [1, 0], [1, 1], [0, 1], [2, 1], [2, 2], [1, 2]]
    mesh = Mesh.from_cells(points, [("quad", 1, [[0, 1, 3, 2], [2, 4, 6, 5]])])
    c0 = hp.C0Space(hp.Space(mesh, 2))
    assert c0.parts.count == 1
    far = Mesh.from_cells(
        [*points, [3, 3], [4, 3], [3, 4]], [*[("quad", 1, [[0, 1, 3, 2], [2, 4, 6, 5]])], ("tri", 1, [[7, 8, 9]])]
    )
    c0 = hp.C0Space(hp.Space(far, 2))
    assert c0.parts.count == 2 and list(c0.parts.of_cells) == [0, 0, 1]
    assert c0.parts.name(1, far) == "part 2 of 2 (1 cells around (3.5, 3.5))"


def test_a_constant_with_negative_energy_is_refused():
    space = hp.Space(box("hex", (1, 1, 1)), 2)
    for lam in (-1e-12, lambda x, y, z: x - 0.5 - 1e-9):
        with pytest.raises(hp.SolverError, match="not positive definite"):
            hp.solve_helmholtz(space, lam, 1.0)


def test_constants_with_enough_energy_are_not_split():
    """No projections, and none of their time, where they are not needed."""
    c0 = hp.C0Space(hp.Space(box("hex", (3, 3, 3)), 3))
    for lam, conditions, hidden in (
        (1.0, {}, False),
        (1e-3, {}, False),
        (0.0, {"dirichlet": 0.0}, False),
        (0.0, {}, True),
    ):
        bc = hp.BoundaryConditions(c0, **conditions)
        found = hidden_constants(hp.GlobalOperator(hp.Helmholtz(c0.space, lam), c0, bc), bc)
        assert (found is not None) == hidden


@pytest.mark.cuda
@pytest.mark.parametrize("parts", [1, 2])
def test_constants_on_a_gpu(parts):
    mesh, found = apart(*[box("hex", (2, 2, 2))] * parts), []
    for backend in ("cuda", "cpu"):
        space = hp.Space(mesh, 3, backend=backend)
        found += [hp.solve_helmholtz(space, lam, lambda x, y, z: np.cos(np.pi * x)).vector for lam in (0.0, 1e-3)]
    for gpu, cpu in zip(found[:2], found[2:], strict=True):
        assert np.abs(gpu - cpu).max() < 1e-9


@pytest.mark.parametrize("preconditioner", ["none", "jacobi", "multigrid", "auto"])
@pytest.mark.parametrize("kind", [{}, {"definite": True}, {"definite": False}, {"symmetric": False}])
def test_a_singular_system_says_so_in_every_method(preconditioner, kind):
    """One part of two has no Dirichlet values: the data must sum to zero there; where they do, there is a solution."""
    mesh = apart(box("quad", (2, 2)), box("tri", (2, 2)))
    c0 = hp.C0Space(hp.Space(mesh, 2, backend="numpy"))
    bc = hp.BoundaryConditions(c0, {"0 xmin": 1.0})
    A, test = hp.GlobalOperator(hp.Laplacian(c0.space), c0, bc), hp.IProductWRTBase(c0.space)
    options = {"tol": 1e-8, "bar": False, **kind}
    b = A.right_hand_side(c0.gather(test(c0.space.evaluate(lambda x, y: 1.0 + x))))
    with pytest.raises(
        hp.SolverError, match=r"singular: .* zero on part 2 of 2 \(1, .*\) \(1.0e\+00\), where the data"
    ):
        hp.solve(A, b, preconditioner, **options)
    b = A.right_hand_side(c0.gather(test(c0.space.evaluate(lambda x, y: np.where(x < 1.5, 1.0, np.cos(np.pi * x))))))
    x, info = hp.solve(A, b, preconditioner, **options)
    assert info.residual <= 1e-8 and np.linalg.norm(A @ x - b) <= 1.1e-8 * np.linalg.norm(b)


def test_other_singular_operators_say_so(backend):
    """Components, each by itself; operators that are not symmetric; CG called by the user; not where others fix it."""
    space = hp.Space(box("quad", (3, 3)), 2, backend=backend)
    c0 = hp.C0Space(space)
    A = hp.GlobalOperator(hp.Laplacian(space), c0, hp.BoundaryConditions(c0, {"xmin": [0.0, None]}, components=2), 2)
    b = np.concatenate([np.ones(c0.size), c0.gather(hp.IProductWRTBase(space)(space.evaluate(lambda x, y: x)))])
    b = A.right_hand_side(b)
    with pytest.raises(hp.SolverError, match=r"singular: .* zero on the mesh, component 1 \(1.0e\+00\)"):
        hp.solve(A, b, bar=False)
    flow = hp.AdvectionDiffusionReaction(space, velocity=[1.0, 0.5], diffusivity=1.0, reaction=0.0)
    b = c0.gather(hp.IProductWRTBase(space)(space.evaluate(lambda x, y: 1.0 + x)))
    with pytest.raises(hp.SolverError, match="singular: it maps constants to zero on the mesh; give"):
        hp.solve(hp.GlobalOperator(flow, c0), b, bar=False)
    with pytest.raises(hp.SolverError, match="singular: it maps constants to zero on the mesh"):
        hp.cg(hp.GlobalOperator(hp.Laplacian(space), c0), b, bar=False)
    for A in (hp.GlobalOperator(hp.Mass(space), c0), hp.GlobalOperator(hp.Helmholtz(space, 1e-6), c0)):
        assert hp.solve(A, b, bar=False)[1].residual < 1e-8
    # Too few iterations are no sign of it where the data fit.
    b = c0.gather(hp.IProductWRTBase(space)(space.evaluate(lambda x, y: np.cos(np.pi * x) * np.cos(2 * np.pi * y))))
    with pytest.raises(hp.SolverError, match="did not converge"):
        hp.solve(hp.GlobalOperator(hp.Laplacian(space), c0), b, "none", max_iterations=2, bar=False)
