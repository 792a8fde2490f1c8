"""Compiled kernels against the NumPy reference: every form, shape, geometry kind, algorithm, dtype and processor."""

import numpy as np
import pytest

from hpfem.kernels.cpu.kernel import CpuKernel
from hpfem.kernels.cpu.target import host, narrower
from hpfem.mesh import box
from hpfem.operators import (
    AdvectionDiffusionReaction,
    BwdTrans,
    Helmholtz,
    IProductWRTBase,
    IProductWRTDerivBase,
    Laplacian,
    Mass,
    PhysDeriv,
    WeakForm,
)
from hpfem.shapes import SHAPES as BY_NAME
from hpfem.space import Space
from tests.cases import SHAPES, each_shape

solid_shapes = each_shape([shape for shape in SHAPES if shape.dim > 1])

QUAD, HEX = BY_NAME["quad"], BY_NAME["hex"]
TOLERANCE = {"float64": 1e-12, "float32": 1e-4}


def reaction(u, du, x, c):
    return u**3 + np.sin(u) * x[0] + np.where(u > 0.1, np.exp(-u), c * np.abs(u)), du * (1 + u * u)


def transport(u, du, c, v):
    return v @ du + np.tanh(u) * c + (u < du[0]) * np.minimum(u, c), (du[0] * c + du[1], *list(du)[1:])


def coupled(u, du):
    return [u[0] * u[1], np.sqrt(1 + u[1] ** 2)], [du[0] + 2 * du[1], du[1] * u[0]]


def rotated(u, du):
    return [du[0][1] * u[1], du[1][0]]


def source_of(u, x):
    return [u * x[0]] * len(x)


FORMS = {
    "BwdTrans": BwdTrans,
    "IProductWRTBase": IProductWRTBase,
    "PhysDeriv": PhysDeriv,
    "IProductWRTDerivBase": IProductWRTDerivBase,
    "Mass": Mass,
    "Laplacian": Laplacian,
    "Helmholtz": lambda space, **k: Helmholtz(space, 0.7, **k),
    "variable Helmholtz": lambda space, **k: Helmholtz(space, lambda *x: 1 + x[0] ** 2, lambda *x: 2 + x[1], **k),
    "advection": lambda space, **k: AdvectionDiffusionReaction(space, [1.0, 2.0, 3.0][: space.dim], 0.3, 0.4, **k),
    "reaction": lambda space, **k: WeakForm(space, reaction, fields={"c": 0.3}, **k),
    "transport": lambda space, **k: WeakForm(space, transport, fields={"c": 0.3, "v": lambda *x: [x[0], *x[1:]]}, **k),
    "coupled": lambda space, **k: WeakForm(space, coupled, components=2, **k),
    "rotated": lambda space, **k: WeakForm(space, rotated, test=("value",), components=2, **k),
    "source": lambda space, **k: WeakForm(space, source_of, test=("grad",), **k),
}

FORMS_WITH_GRADIENT = ("IProductWRTDerivBase", "Helmholtz", "transport", "coupled", "source")


def make_space(shape, order, deformed, dtype="float64", cells=2, **options):
    mesh = box([shape.name], (cells,) * shape.dim)
    if deformed:
        mesh = mesh.elevated(2).transformed(lambda x: x + 0.05 * np.sin(2 * x[:, ::-1]))
    else:
        skew = np.eye(shape.dim) + 0.1 * np.arange(shape.dim**2).reshape(shape.dim, -1) / shape.dim**2
        mesh = mesh.transformed(lambda x: x @ skew)
    return Space(mesh, order, backend="numpy", dtype=dtype, **options)


def differences(space, form, algorithm, rng, target=None):
    """Largest relative difference between compiled and NumPy results, per block."""
    operator = FORMS[form](space, strategy="sumfac", algorithm=algorithm)
    for choice in operator.choices:
        problem = choice.kernel.problem
        components = problem.form.components if problem.form.components > 1 else 2 * problem.coupled
        source = rng.standard_normal((components, problem.n_elements, problem.n_input)).astype(problem.dtype)
        out = np.full((problem.components_out(components), problem.n_elements, problem.n_output), 7, problem.dtype)
        expected = np.empty_like(out)
        choice.kernel.apply(source, expected)
        CpuKernel(problem, target=target).apply(source, out)
        yield np.abs(out - expected).max() / np.abs(expected).max()


@solid_shapes
@pytest.mark.parametrize("deformed", [False, True], ids=["affine", "deformed"])
def test_every_form(shape, deformed, rng):
    space = make_space(shape, 3, deformed)
    for form in FORMS:
        for difference in differences(space, form, "collocated", rng):
            assert difference < 1e-12, form
    for form in FORMS_WITH_GRADIENT:
        for difference in differences(space, form, "noncollocated", rng):
            assert difference < 1e-12, form


@solid_shapes
def test_single_precision(shape, rng):
    space = make_space(shape, 4, True, "float32")
    for form in ("Helmholtz", "transport", "IProductWRTBase", "PhysDeriv"):
        assert max(differences(space, form, "collocated", rng)) < TOLERANCE["float32"]


@solid_shapes
@pytest.mark.parametrize("order", [1, 2, 6])
@pytest.mark.parametrize("basis", ["modified", "orthogonal", "lagrange"])
def test_orders_and_bases(shape, order, basis, rng):
    space = make_space(shape, order, True, cells=1, basis=basis)
    for form in ("Helmholtz", "BwdTrans"):
        assert max(differences(space, form, "collocated", rng)) < 1e-12
    assert max(differences(space, "advection", "noncollocated", rng)) < 1e-12


@pytest.mark.parametrize("quadrature", ["gauss", "collocated", 2])
def test_other_points(quadrature, rng):
    for shape in (QUAD, HEX):
        space = make_space(shape, 3, True, quadrature=quadrature)
        assert max(differences(space, "Helmholtz", "collocated", rng)) < 1e-12


@solid_shapes
@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_other_processors(shape, vector_bytes, rng):
    """A generic target, and AVX2 forced on wider machines."""
    if vector_bytes > host().vector_bytes:
        return
    target = narrower(vector_bytes)
    for dtype, form in (("float64", "Helmholtz"), ("float64", "reaction"), ("float32", "Helmholtz")):
        space = make_space(shape, 2, True, dtype)
        assert max(differences(space, form, "collocated", rng, target)) < TOLERANCE[dtype]
