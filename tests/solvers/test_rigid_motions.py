"""Rigid motions as near-null space of the vertices: slender elastic bodies, on every backend."""

import pytest

import hpfem as hp
from hpfem.forms import Pointwise
from hpfem.forms.linear import ignores_rotations
from hpfem.forms.trace import trace
from hpfem.mesh import box
from hpfem.solvers.multigrid import Multigrid


def elastic(dim):
    """Hooke's law, lambda = 0.6, mu = 0.4."""

    def stress(du):
        div = sum(du[i][i] for i in range(dim))
        return [[0.4 * (du[i][j] + du[j][i]) + (0.6 * div if i == j else 0) for j in range(dim)] for i in range(dim)]

    return stress


def beam(shape, order=2, length=10, backend="auto", dirichlet=None, across=2):
    """A beam under its weight, clamped at one end unless values are given; the operator and its right-hand side."""
    d = 2 if shape in ("quad", "tri") else 3
    mesh = box(shape, (across * length, *[across] * (d - 1)), upper=(float(length), *[1.0] * (d - 1)))
    space = hp.Space(mesh, order, backend=backend)
    c0 = hp.C0Space(space)
    dirichlet = {"xmin": (0.0,) * d} if dirichlet is None else dirichlet
    bc = hp.BoundaryConditions(c0, dirichlet=dirichlet, components=d)
    A = hp.GlobalOperator(hp.WeakForm(space, elastic(d), trial="grad", test="grad", components=d), c0, bc)
    weight = space.evaluate(lambda *x: [*[0 * x[0]] * (d - 1), 0 * x[0] - 1e-3])
    return A, A.right_hand_side(c0.gather(hp.IProductWRTBase(space)(weight), A.device))


@pytest.mark.parametrize("shape", ["hex", "prism", "pyramid", "tet", "quad", "tri"])
def test_slender_beams(shape, backend):
    A, b = beam(shape, backend=backend)
    M = Multigrid(A)
    _, info = hp.cg(A, b, M, tol=1e-8, bar=False)
    assert M.rigid and info.iterations <= 20


def test_what_the_vertices_interpolate_is_found_or_told():
    counts = []
    for near_null in ("auto", "rigid", "constants"):
        A, b = beam("hex", length=20)
        counts.append(hp.cg(A, b, Multigrid(A, near_null=near_null), tol=1e-8, bar=False)[1].iterations)
    assert counts[0] == counts[1] <= 20 and counts[2] >= 60
    with pytest.raises(hp.ArgumentError, match="near-null space"):
        Multigrid(A, near_null="rotations")
    with pytest.raises(hp.ArgumentError, match="rigid motions have 3 components"):
        Multigrid(hp.GlobalOperator(hp.Laplacian(A.c0.space), A.c0), near_null="rigid")


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_rollers(scale):
    """Vertices with given values of some components only, in any units."""
    A, b = beam("hex", dirichlet={"xmin": (0.0, None, None), "ymin": (None, 0.0, None), "xmax": (0.0, 0.0, 0.0)})
    grown = box("hex", (20, 2, 2), upper=(10 * scale, scale, scale))
    space = hp.Space(grown, 2)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, {"xmin": (0.0, None, None), "ymin": (None, 0.0, None), "xmax": 0.0}, components=3)
    B = hp.GlobalOperator(hp.WeakForm(space, elastic(3), trial="grad", test="grad", components=3), c0, bc)
    M, N = Multigrid(A), Multigrid(B)
    x, info = hp.cg(A, b, M, tol=1e-8, bar=False)
    _, same = hp.cg(B, b, N, tol=1e-8, bar=False)
    assert M.rigid and info.iterations == same.iterations <= 16
    assert not x.reshape(3, -1)[0][bc.fixed(3)[0]].any()


def test_which_forms_ignore_rotations():
    def found(function, components, dim=3, test=("grad",), **scalars):
        return ignores_rotations(trace(Pointwise(function, test), dim, components, {}, tuple(scalars)))

    assert found(elastic(3), 3) and found(elastic(2), 2, 2)
    assert not found(lambda du: du, 3) and not found(lambda du: [[du[0][0] - du[1][0], du[1][1]], du[1]], 2, 2)
    assert not found(lambda u: u, 3, test=("value",))
