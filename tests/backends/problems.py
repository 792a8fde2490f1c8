"""Forms of every kind on small blocks of every shape: what kernels are tested on."""

from dataclasses import replace

import numpy as np

from hpfem.forms import Pointwise
from hpfem.forms.form import BWD_TRANS, IPRODUCT_WRT_BASE, IPRODUCT_WRT_DERIV_BASE, PHYS_DERIV, BlockProblem, Form
from hpfem.forms.trace import trace
from hpfem.geometry import AFFINE, GENERAL, BlockGeometry
from hpfem.memory import PairArray
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
from hpfem.shapes import SHAPES, Tabulation, default_counts, make_basis, quadrature
from hpfem.space import Space


def reaction(u, du, x, c):
    return u**3 + np.sin(u) * x[0] + np.where(u > 0.1, np.exp(-u), c * np.abs(u)), du * (1 + u * u)


def transport(u, du, c, v):
    return v @ du + np.tanh(u) * c + (u < du[0]) * np.minimum(u, c), (du[0] * c + du[1], *list(du)[1:])


def coupled(u, du):
    return [u[0] * u[1], np.sqrt(1 + u[1] ** 2)], [du[0] + 2 * du[1], du[1] * u[0]]


def rotated(u, du):
    return [du[0][1] * u[1], du[1][0]]


def library(u, x, c):
    waves = np.sin(u) * np.cos(u) + np.tanh(u)
    powers = np.abs(u) ** c + np.log(2 + u * u) + np.exp(-u * u) / np.sqrt(1 + u * u)
    return waves + powers + np.where(u <= 0, np.maximum(u, -1), np.minimum(u, c)) + (u >= c) * x[0]


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
    "library": lambda space, **k: WeakForm(space, library, test=("value",), fields={"c": 0.7}, **k),
    "sum": lambda space, **k: (0.5 * Laplacian(space, **k) + FORMS["coupled"](space, **k) + Mass(space, **k)).volume,
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
    return Space(mesh, order, backend="numpy", dtype=dtype, **{"quadrature": "collapsed"} | options)


def curve_problems(order, affine, ends, dtype=float):
    """Problems of every row on segments in the plane, whose `ends` are coefficients [E, 2, 2]."""
    segment = SHAPES["segment"]
    basis = make_basis("modified", segment, order)
    tabulation = Tabulation(basis, quadrature(segment, default_counts(segment, order)))
    geometry = BlockGeometry(segment, 1, ends, tabulation.rule, AFFINE if affine else GENERAL)
    forms = [BWD_TRANS, IPRODUCT_WRT_BASE, PHYS_DERIV, IPRODUCT_WRT_DERIV_BASE]
    pointwise = Pointwise(lambda u, du: (u * u, du * u), ("value", "grad"))
    forms.append(Form.weak("nonlinear", trace(pointwise, 2)))
    for form in forms:
        for algorithm in ("collocated", "noncollocated"):
            yield BlockProblem(form, tabulation, geometry, np.dtype(dtype), algorithm)


def of_size(problem, n):
    """The problem on n elements: its own, again and again."""
    g, which = problem.geometry, np.arange(n) % problem.n_elements
    fields = {name: replace(f, pair=PairArray.of(f.values[:, which])) for name, f in problem.fields.items()}
    geometry = BlockGeometry(g.shape, g.order, g.coefficients[which], g.rule, g.kind)
    return replace(problem, geometry=geometry, fields=fields)
