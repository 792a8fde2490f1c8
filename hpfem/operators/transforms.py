"""Operators without a pointwise function: transforms, projection, inner products, derivatives."""

from __future__ import annotations

from typing import Unpack

from ..forms.form import BWD_TRANS, IPRODUCT_WRT_BASE, IPRODUCT_WRT_DERIV_BASE, PHYS_DERIV
from ..space import Space
from ..space.transforms import ForwardTransform
from .arrays import FieldMap
from .operator import Operator, OperatorOptions


class FwdTrans(ForwardTransform, FieldMap):
    """Forward transform: values at the points to the coefficients of their L2 projection, element by element.

    Parameters
    ----------
    space : Space
    strategy, algorithm : str or mapping
        Of the mass and inner-product kernels inside, for all shapes or by shape. A kernel for which it is not suitable
        takes what "auto" takes; a warning says so.
    backend : str, optional
        Where the products with the mass matrix run, in float64, if it works on the host's memory.

    Raises
    ------
    ArgumentError
        For unknown names, or if a direction has fewer than P + 1 points.
    NotSuitable
        If what is asked for suits no kernel.
    """

    def __repr__(self) -> str:
        return f"FwdTrans({self.space!r})"


class InverseMass(FwdTrans):
    """Riesz representation: the function whose inner products with the basis are a given functional, by element.

    It turns a "dual" field, such as the result of Helmholtz, into a function that can be plotted. It is the inverse of
    Mass; for other functionals the function is in general discontinuous between elements.

    Parameters
    ----------
    space : Space
    strategy, algorithm, backend
        See `FwdTrans`.
    """

    name, input_state = "InverseMass", "dual"


class BwdTrans(Operator):
    """Backward transform: coefficients to values at the quadrature points, u = B u^ ([Xing] eq. 2).

    Parameters
    ----------
    space : Space
    target : Space, optional
        Space of the results, on the same mesh: the values are at its points. For right-hand sides, errors and output
        that need more points than the space has.
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    def __init__(self, space: Space, target: Space | None = None, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, BWD_TRANS, target=target, **options)


class IProductWRTBase(Operator):
    """Inner product with every basis function: B^T W u.

    Parameters
    ----------
    space : Space
        At whose points the values are.
    target : Space, optional
        Space of the results, on the same mesh: its basis functions are used. By default `space`. For products that need
        more points than the space of the result has.
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    def __init__(self, space: Space, target: Space | None = None, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, IPRODUCT_WRT_BASE, target=target, **options)


class PhysDeriv(Operator):
    """Derivatives of values at the points: component c becomes components c D + i, the derivative by x_i.

    For the options see `Operator`.
    """

    def __init__(self, space: Space, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, PHYS_DERIV, **options)


class IProductWRTDerivBase(Operator):
    """Inner product of a vector with the gradient of every basis function: sum_i (f_i, d phi/dx_i).

    Parameters
    ----------
    space : Space
        At whose points the values are.
    target : Space, optional
        As of `IProductWRTBase`.
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    def __init__(self, space: Space, target: Space | None = None, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, IPRODUCT_WRT_DERIV_BASE, target=target, **options)
