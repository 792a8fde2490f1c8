"""The standard operators: transforms, projection, inner products, derivatives, mass, Laplacian, Helmholtz."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from hpfem.shapes.arguments import name_of, shown

from ..errors import ArgumentError
from ..forms import Pointwise
from ..forms.form import ALGORITHMS, BWD_TRANS, IPRODUCT_WRT_BASE, IPRODUCT_WRT_DERIV_BASE, PHYS_DERIV
from ..space import Space
from ..space.transforms import ForwardTransform
from . import pointwise as forms
from .arrays import FieldMap
from .on_boundary import BoundaryForm
from .operator import Coefficient, Operator, OperatorOptions
from .registry import OPERATORS


@OPERATORS.register("FwdTrans")
class FwdTrans(ForwardTransform, FieldMap):
    """Forward transform: values at the points to the coefficients of their L2 projection, element by element.

    Parameters
    ----------
    space : Space
    strategy, algorithm : str
        Of the mass and inner-product kernels inside.
    backend : str, optional
        Where the products with the mass matrix run, in float64, if it works on the host's memory.

    Raises
    ------
    ArgumentError
        For unknown names, or if a direction has fewer than P + 1 points.
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
    strategy, backend
        See `FwdTrans`.
    """

    name, input_state = "InverseMass", "dual"


@OPERATORS.register("BwdTrans")
class BwdTrans(Operator):
    """Backward transform: coefficients to values at the quadrature points, u = B u^ ([Xing] eq. 5).

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


@OPERATORS.register("IProductWRTBase")
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


@OPERATORS.register("PhysDeriv")
class PhysDeriv(Operator):
    """Derivatives of values at the points: component c becomes components c D + i, the derivative by x_i.

    Parameters
    ----------
    space : Space
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    def __init__(self, space: Space, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, PHYS_DERIV, **options)


@OPERATORS.register("IProductWRTDerivBase")
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


@OPERATORS.register("Mass")
class Mass(Operator):
    """Mass matrix: (u, v) (BK1).

    Parameters
    ----------
    space : Space
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    def __init__(self, space: Space, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, Pointwise(forms.mass, ("value",)), name="Mass", **options)


@OPERATORS.register("Laplacian")
class Laplacian(Operator):
    """Stiffness matrix: (grad u, grad v).

    Parameters
    ----------
    space : Space
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    def __init__(self, space: Space, **options: Unpack[OperatorOptions]) -> None:
        super().__init__(space, Pointwise(forms.laplacian, ("grad",)), name="Laplacian", **options)


@OPERATORS.register("Helmholtz")
class Helmholtz(Operator):
    """Helmholtz matrix: (lam u, v) + (diffusivity grad u, grad v) (BK3 with constants; [Xing] eq. 3).

    Parameters
    ----------
    space : Space
    lam : float, callable, mapping, array or Field
        Reaction coefficient; a mapping has a value for each region (`by_region`), an array one for each cell.
    diffusivity : float, sequence, callable, mapping, array or Field, optional
        1 when left out. D numbers or components are the diagonal of a tensor, D x D a tensor, row by row.
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    vectors, tensors = (), ("diffusivity",)

    def __init__(
        self,
        space: Space,
        lam: Coefficient = 1.0,
        diffusivity: Coefficient | None = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        coefficients = {"lam": lam}
        pointwise = Pointwise(forms.helmholtz, ("value", "grad"))
        if diffusivity is not None:
            coefficients["diffusivity"] = diffusivity
            pointwise = Pointwise(forms.variable_helmholtz, ("value", "grad"))
        super().__init__(space, pointwise, name="Helmholtz", coefficients=coefficients, **options)


@OPERATORS.register("AdvectionDiffusionReaction")
class AdvectionDiffusionReaction(Operator):
    """(velocity . grad u + reaction u, v) + (diffusivity grad u, grad v).

    Parameters
    ----------
    space : Space
    velocity : sequence of D numbers, callable, mapping, array or Field
        Advection velocity; a mapping has a value for each region (`by_region`).
    diffusivity : float, sequence, callable, mapping, array or Field
        D numbers or components are the diagonal of a tensor, D x D a tensor, row by row.
    reaction : float, callable, mapping, array or Field
    **options
        strategy, algorithm, backend, precision of `Operator`.
    """

    vectors, tensors = ("velocity",), ("diffusivity",)

    def __init__(
        self,
        space: Space,
        velocity: Coefficient,
        diffusivity: Coefficient = 1.0,
        reaction: Coefficient = 0.0,
        **options: Unpack[OperatorOptions],
    ) -> None:
        coefficients = {"velocity": velocity, "diffusivity": diffusivity, "reaction": reaction}
        pointwise = Pointwise(forms.advection_diffusion_reaction, ("value", "grad"))
        name = "AdvectionDiffusionReaction"
        super().__init__(space, pointwise, name=name, coefficients=coefficients, **options)


class WeakForm(Operator):
    """A weak form of the user's own.

    Parameters
    ----------
    space : Space
    pointwise : callable
        Takes, by name, some of `u`, `du`, `x` and of the names in `fields`; returns what multiplies the test value, the
        test gradient, or the pair of both (`hpfem.forms`). It is called once, when the operator is made:
        quantities that change later are given in `fields`: as a number, set by `operator.parameters[name] = number`, or
        as a "phys" field, which every application reads anew. Functions and "coeff" fields are evaluated once.
    trial : tuple of str
        What the function may take of the trial function: "value", "grad" or both.
    test : str or tuple of str
        The factors of its results: test "value", "grad" or both.
    fields : mapping, optional
        Name -> number, function of the coordinates, field, sequence of D numbers, or mapping from regions
        (`by_region`).
    components : int
        Components that the function couples; with more than one, `u[c]` and `du[c]` are indexed and as many results
        returned.
    on : str, optional
        Name of a boundary: the form is integrated over it, and its function may take the outward normal `n`. The result
        is a `BoundaryForm`, which is applied to fields and arrays like any operator, by the same kernels.
    **options
        strategy, algorithm, backend, precision of `Operator`.

    Examples
    --------
    A nonlinear reaction-diffusion residual, (u^3 - u, v) + (k grad u, grad v):

    >>> def allen_cahn(u, du, k):
    ...     return u**3 - u, k * du
    >>> residual = WeakForm(space, allen_cahn, fields={"k": 0.01})  # doctest: +SKIP

    The heat that a wall radiates, (s u^4, v) over it:

    >>> loss = WeakForm(space, lambda u, s: s * u**4, test="value", fields={"s": 5e-8}, on="wall")  # doctest: +SKIP
    """

    guarded = True

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Make a weak form or, with `on`, a `BoundaryForm` from the same arguments."""
        if options.get("on") is None:
            return super().__new__(cls)
        return _on_boundary(*arguments, **options)

    def __init__(
        self,
        space: Space,
        pointwise: Callable[..., Any],
        trial: Sequence[str] = ("value", "grad"),
        test: str | Sequence[str] = ("value", "grad"),
        fields: Mapping[str, Coefficient] | None = None,
        components: int = 1,
        on: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        form = Pointwise(pointwise, _parts(test, "test"))
        given = _parts(trial, "trial")
        for part, argument in (("value", "u"), ("grad", "du")):
            if argument in form.arguments and part not in given:
                raise ArgumentError(
                    f"weak form {form.name!r} takes {argument!r}, but trial={given} leaves {part!r} out"
                )
        super().__init__(space, form, coefficients=fields, components=components, **options)


class AtPoints(Operator):
    """A function of the user's own at the quadrature points: coefficients to values, without arrays in between.

    Parameters
    ----------
    space : Space
    pointwise : callable
        As for `WeakForm`; it returns the value, or a value for each component.
    fields : mapping, optional
        As for `WeakForm`; fields are on the space of the results.
    components : int
        Components that the function couples; with more than one, `u[c]` and `du[c]` are indexed and as many values
        returned.
    target : Space, optional
        Space of the results, on the same mesh: they are at its points. By default `space`.
    **options
        strategy, algorithm, backend of `Operator`.

    Examples
    --------
    The advection of a velocity, u . grad u, at points of a finer rule:

    >>> def advection(u, du):
    ...     return [u[0] * du[i][0] + u[1] * du[i][1] for i in range(2)]
    >>> at_points = AtPoints(space, advection, components=2, target=space.at(quadrature=3))  # doctest: +SKIP
    """

    guarded = True

    def __init__(
        self,
        space: Space,
        pointwise: Callable[..., Any],
        fields: Mapping[str, Coefficient] | None = None,
        components: int = 1,
        target: Space | None = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        form = Pointwise(pointwise, ())
        super().__init__(space, form, coefficients=fields, components=components, target=target, **options)


def _on_boundary(
    space: Space,
    pointwise: Callable[..., Any],
    trial: Sequence[str] = ("value", "grad"),
    test: str | Sequence[str] = ("value", "grad"),
    fields: Mapping[str, Coefficient] | None = None,
    components: int = 1,
    *,
    on: str,
    **options: Unpack[OperatorOptions],
) -> BoundaryForm:
    """A weak form on a boundary."""
    algorithm = options.get("algorithm", "auto")
    if algorithm == "collocated":
        raise ArgumentError("a weak form on a boundary has one point across it; use algorithm='noncollocated'")
    name_of(algorithm, ("auto", *ALGORITHMS), "algorithm")
    options["algorithm"] = "noncollocated"
    own = Pointwise(pointwise, _parts(test, "test"))
    assert own.arguments is not None

    def make(sides: Space, weighted: Callable[..., Any], given: dict[str, Any]) -> WeakForm:
        return WeakForm(sides, weighted, trial, test, given, components, **options)

    return BoundaryForm(space, pointwise, on, fields, own.test, make)


def _parts(given: str | Sequence[str], what: str) -> tuple[str, ...]:
    """The requested parts of a trial or test function: its value, its gradient or both."""
    parts = (given,) if isinstance(given, str) else given
    known = isinstance(parts, (list, tuple)) and all(isinstance(p, str) and p in ("value", "grad") for p in parts)
    if not known or not parts:
        raise ArgumentError(f"{what} must be 'value', 'grad' or ('value', 'grad'), got {shown(given)}")
    return tuple(parts)
