"""L2 projection onto the continuous functions of a space, and boundary values taken from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfem.shapes.arguments import instance
from hpfem.shapes.arrays import Array

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..assembly.boundary_terms import sides_with_traces
from ..assembly.interpolation import values_of
from ..backends.vectors import scaled
from ..errors import ArgumentError
from ..memory import HOST
from ..operators import Mass
from ..space import Space
from .cg import cg
from .norms import load
from .preconditioners import jacobi

# The largest misfit on the boundary that is accepted: relative to that of values by entity, and to the function.
_RATIO, _SHARE = 1.5, 0.7


def l2_project(c0: C0Space, function: Callable[..., Any], tol: float | None = None) -> Array:
    """The continuous function of a space that is nearest to a given one in L2.

    Parameters
    ----------
    c0 : C0Space
    function : callable
        Of the D coordinates, of one component.
    tol : float, optional
        Of the mass system, solved in float64 by CG with its diagonal as preconditioner; see `cg`.

    Returns
    -------
    ndarray, [size]

    Raises
    ------
    ArgumentError
        If the function does not fit, or has several components.
    """
    instance(c0, C0Space, "c0")
    # The default rule of order 1 does not integrate the mass exactly; the numbering is that of the space itself.
    space = c0.space
    finer = C0Space(Space(space.mesh, space.orders, space.basis, 2, backend=space.backend), join=False)
    M = GlobalOperator(Mass(finer.space), finer)
    rhs = load(finer, function)
    return M.vectors.to_host(cg(M, rhs, jacobi(M), tol=tol, name="L2 projection")[0])


def domain_boundary_values(
    c0: C0Space, function: Callable[..., Any], bc: BoundaryConditions, by_entity: Array
) -> Array:
    """Dirichlet values [size] by L2 projection of a function, if it is meant in the domain, else those `by_entity`."""
    # At low orders vertices carry most of the boundary values: with values from the domain the L2 error at P = 1 is
    # half as large, if the function continues them smoothly. If not, the misfit on the boundary tells.
    try:
        inside = l2_project(c0, function)
    except ArgumentError:
        return by_entity
    values = np.where(bc.constrained, inside, 0.0)
    comm = c0.space.mesh.comm
    unit = -c0.vectors_on(HOST).exponent(by_entity)  # squares of values of any size
    misfit, norm = [0.0, 0.0], 0.0
    with comm.together():
        for side, matrix, modes in sides_with_traces(c0, bc.dirichlet_facets):
            exact = scaled(values_of(function, side.coordinates, "dirichlet")[0], unit)
            norm += float(np.sum(side.weights * exact**2))
            for i, coefficients in enumerate((values, by_entity)):
                there = (matrix @ scaled(coefficients, unit)).reshape(len(exact), -1) @ modes
                misfit[i] += float(np.sum(side.weights * (there - exact) ** 2))
    *misfit, norm = comm.sum([*misfit, norm]).tolist()
    meant = misfit[0] <= min(_RATIO**2 * misfit[1], _SHARE**2 * norm)
    return values if meant else by_entity
