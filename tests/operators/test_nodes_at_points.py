"""Nodal bases on their own points: coefficients are values, and results the same without products by the identity."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.forms.cost import operator_flops
from hpfem.mesh import box
from hpfem.shapes import Tabulation
from tests.samples import norm_error


def mesh_of(name, curved):
    mesh = box(name, (3, 2) if name == "quad" else (2, 3, 2))
    if curved:
        return mesh.elevated(2).transformed(lambda x: x + 0.05 * np.sin(3 * x[:, ::-1]))
    return mesh.transformed(lambda x: x @ (np.eye(x.shape[1]) + 0.2))


def coupled(u, du):
    return [u[0] * u[1], u[1]], [du[0] + 2 * du[1], du[1] * u[0]]


def operators(space, backend):
    velocity, c = [0.3, -0.2, 0.5][: space.dim], {"backend": backend, "algorithm": "collocated"}
    yield from (hp.Helmholtz(space, 1.3, **c), hp.Laplacian(space, **c), hp.IProductWRTDerivBase(space, **c))
    yield from (op(space, backend=backend) for op in (hp.Mass, hp.BwdTrans, hp.IProductWRTBase, hp.PhysDeriv))
    yield hp.AdvectionDiffusionReaction(space, velocity, 1.5, 0.4, **c)
    yield hp.WeakForm(space, coupled, components=2, **c)


@pytest.mark.parametrize(
    ("curved", "order", "dtype"),
    [
        *((True, order, "float64") for order in range(1, 9)),
        *((False, order, "float64") for order in (2, 5, 8)),
        *((curved, order, "float32") for curved, order in ((True, 3), (False, 6))),
    ],
)
@pytest.mark.parametrize("name", ["quad", "hex"])
def test_operators_against_numpy(name, curved, order, dtype, fast_backend, rng):
    space = hp.Space(mesh_of(name, curved), order, "lagrange", "collocated", dtype=dtype)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for own, reference in zip(operators(space, fast_backend), operators(space, "numpy"), strict=True):
        problem = own.choices[0].kernel.problem
        assert problem.nodal and not problem.from_modes and not problem.to_modes
        u = rng.standard_normal((problem.coupled, problem.n_elements, problem.n_input)).astype(dtype)
        field = space.field(own.input_state, [u])
        assert norm_error(own(field).arrays[0], reference(field).arrays[0]) < tolerance, own.name


@pytest.mark.parametrize("name", ["quad", "hex"])
@pytest.mark.parametrize("curved", [False, True])
def test_global_operators_and_diagonals_against_numpy(name, curved, fast_backend, rng):
    found = []
    for own in (fast_backend, "numpy"):
        space = hp.Space(mesh_of(name, curved), 4, "lagrange", "collocated", backend=own)
        A = hp.GlobalOperator(hp.Helmholtz(space, 1.3), hp.C0Space(space))
        found.append((A.apply(np.random.default_rng(1).standard_normal(A.shape[0])), A.diagonal()))
    for one, other in zip(*found, strict=True):
        assert norm_error(one, other) < 1e-12


def test_other_bases_and_rules_are_no_such():
    def nodal(name, basis, quadrature):
        space = hp.Space(box(name, (1,) * (2 if name in ("quad", "tri") else 3)), 3, basis, quadrature)
        return space.blocks[0].tabulation.nodal

    assert nodal("hex", "lagrange", "collocated") and nodal("quad", "lagrange", "collocated")
    assert not nodal("hex", "lagrange", None) and not nodal("hex", "modified", "collocated")
    assert not any(nodal(name, "lagrange", "collocated") for name in ("tri", "tet", "prism", "pyramid"))


def test_products_that_are_not_made_are_not_counted():
    space = hp.Space(box("hex", (1, 1, 1)), 3, "lagrange", "collocated")
    problem = hp.Mass(space).choices[0].kernel.problem
    assert isinstance(problem.tabulation, Tabulation) and operator_flops(problem, "sumfac") == problem.n_points
