"""Operators of functions that users write: weak forms in the volume and on boundaries, and values at the points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from hpfem.shapes.arguments import name_of, shown

from ..errors import ArgumentError
from ..forms import Pointwise
from ..forms.form import ALGORITHMS
from ..space import Space
from ..tuning.select import ByShape
from .on_boundary import BoundaryForm
from .operator import Coefficient, Operator, OperatorOptions


class _WeakForm(Operator):
    guarded = True


def WeakForm(
    space: Space,
    pointwise: Callable[..., Any],
    trial: Sequence[str] = ("value", "grad"),
    test: str | Sequence[str] = ("value", "grad"),
    fields: Mapping[str, Coefficient] | None = None,
    components: int = 1,
    on: str | None = None,
    strategy: ByShape = "auto",
    algorithm: ByShape = "auto",
    backend: str | None = None,
    precision: str = "full",
) -> Operator | BoundaryForm:
    """A weak form of the user's own.

    Parameters
    ----------
    space : Space
    pointwise : callable
        Takes, by name, some of `u`, `du`, `x` and of the names in `fields`; returns what multiplies the test value, the
        test gradient, or the pair of both (`hpfem.forms`), by + - * / ** and NumPy's elementary functions, `np.where`,
        `np.minimum`, `np.floor`, `np.sign` and the like. It is called once, when the operator is made:
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
    strategy, algorithm, backend, precision : str
        See `Operator`.

    Returns
    -------
    Operator or BoundaryForm

    Raises
    ------
    ArgumentError
        For a function, boundary, coefficient or option that does not fit.

    Examples
    --------
    A nonlinear reaction-diffusion residual, (u^3 - u, v) + (k grad u, grad v):

    >>> def allen_cahn(u, du, k):
    ...     return u**3 - u, k * du
    >>> residual = WeakForm(space, allen_cahn, fields={"k": 0.01})  # doctest: +SKIP

    The heat that a wall radiates, (s u^4, v) over it:

    >>> loss = WeakForm(space, lambda u, s: s * u**4, test="value", fields={"s": 5e-8}, on="wall")  # doctest: +SKIP
    """
    form, given = Pointwise(pointwise, _parts(test, "test")), _parts(trial, "trial")
    for part, argument in (("value", "u"), ("grad", "du")):
        if argument in form.arguments and part not in given:
            raise ArgumentError(f"weak form {form.name!r} takes {argument!r}, but trial={given} leaves {part!r} out")
    how: OperatorOptions = {"strategy": strategy, "algorithm": algorithm, "backend": backend, "precision": precision}
    if on is None:
        return _WeakForm(space, form, coefficients=fields, components=components, **how)
    for own in algorithm.values() if isinstance(algorithm, Mapping) else (algorithm,):
        if name_of(own, ("auto", *ALGORITHMS), "algorithm") == "collocated":
            raise ArgumentError("a weak form on a boundary has one point across it; use algorithm='noncollocated'")
    return BoundaryForm(space, pointwise, on, fields, form.test, components, **how)


class AtPoints(Operator):
    """A function of the user's own at the quadrature points: coefficients to values, without arrays in between.

    Parameters
    ----------
    space : Space
    pointwise : callable
        As for `WeakForm`; it returns a value, or a list of any number of values, the components of the result.
    fields : mapping, optional
        As for `WeakForm`; fields are on the space of the results.
    components : int
        Components that the function couples; with more than one, `u[c]` and `du[c]` are indexed.
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


def _parts(given: str | Sequence[str], what: str) -> tuple[str, ...]:
    """The requested parts of a trial or test function: its value, its gradient or both."""
    parts = (given,) if isinstance(given, str) else given
    known = isinstance(parts, (list, tuple)) and all(isinstance(p, str) and p in ("value", "grad") for p in parts)
    if not known or not parts:
        raise ArgumentError(f"{what} must be 'value', 'grad' or ('value', 'grad'), got {shown(given)}")
    return tuple(parts)
