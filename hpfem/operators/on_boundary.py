"""Weak forms on a boundary: those of the volume, on rules with points on the facets and with their measure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import wraps
from typing import Any, Unpack

import numpy as np

from ..backends import vectors_on
from ..errors import ArgumentError, StateError
from ..forms import Pointwise
from ..memory import Device, PairArray, PerDevice
from ..space import Field, Space
from ..space.field import check_state
from ..space.sides import Side, check_outer, no_side, sides_of
from ..space.transforms import backward_transform, resampled
from ..tuning import Tuning
from .linearised import checked_changes, pulled_back, pushed_forward
from .operator import Coefficient, Operator, OperatorOptions
from .parameters import Parameters
from .sums import Summable

_MEASURE = "side_measure"


class _OnSides(Operator):
    """A form on the sides of a boundary."""

    guarded, _agrees = True, False


class BoundaryForm(Summable):
    """A weak form on a boundary, made by `WeakForm(space, pointwise, on=boundary)`.

    Parameters
    ----------
    space : Space
    pointwise : callable
        As for `WeakForm`; it may also take the outward normal `n`.
    on : str
        Name in ``mesh.boundaries``. A facet between two cells counts once, as one of the cell listed first; gradients
        and normals are refused there.
    fields : mapping, optional
        As for `WeakForm`; fields in state "coeff". They and functions are evaluated at the points of the facets, P + 7
        of Gauss's rule in each direction whatever the rule of the space is; multigrid interpolates between these.
    test : tuple of str
        The factors of the results: test "value", "grad" or both.
    components : int
        As for `WeakForm`.
    **options
        strategy, backend, precision of `Operator`.

    Attributes
    ----------
    sides : list of Side
    inner : Operator
        The form on the space of the sides.
    parameters : Parameters
        As of `Operator`.

    Raises
    ------
    ArgumentError
        For an unknown boundary, a normal or gradient between two cells, or coefficients that do not fit.
    """

    input_state, output_state = "coeff", "dual"
    on: str

    def __init__(
        self,
        space: Space,
        pointwise: Callable[..., Any],
        on: str,
        fields: Mapping[str, Coefficient] | None,
        test: tuple[str, ...],
        components: int,
        **options: Unpack[OperatorOptions],
    ) -> None:
        if not isinstance(space, Space):
            raise ArgumentError(f"a weak form is made on a Space, got {type(space).__name__}")
        if fields is not None and not isinstance(fields, Mapping):
            raise ArgumentError(f"fields of a weak form are a mapping from names, got {type(fields).__name__}")
        self.space = self.target = space
        self.sides, self.on = sides_of(space, on), on
        if not space.comm.any(len(self.sides) > 0):
            raise ArgumentError(f"boundary {on!r} has no facets")
        self.sides = self.sides or [no_side(space)]
        self._indices: PerDevice[list[Any]] = PerDevice()
        self.inner = self._made(pointwise, fields or {}, test, components, options)
        if self.inner.form.gradients:
            check_outer(space.mesh, on, "gradient")
        self.name, self.backend, self.guarded = self.inner.name, self.inner.backend, self.inner.guarded
        self.form = self.inner.form

    def _made(
        self, pointwise: Callable[..., Any], fields: Mapping[str, Any], test: tuple[str, ...], n: int, options: Any
    ) -> Operator:
        space = self.space.on_blocks([side.block for side in self.sides])
        taken = inspect.signature(pointwise).parameters
        for name in _OF_SIDES:
            if name in fields:
                raise ArgumentError(f"a field of a weak form on a boundary is called {name!r}: n is the outward normal")
        given = {name: self._restricted(name, value, space) for name, value in fields.items()}
        if "n" in taken:
            check_outer(space.mesh, self.on)
        given |= side_fields(space, self.sides, (*taken, _MEASURE))

        @wraps(pointwise)
        def weighted(**arguments: Any) -> Any:
            measure = arguments.pop(_MEASURE)
            found = pointwise(**arguments)
            if len(test) == 2 and isinstance(found, tuple):
                return tuple(_times(part, measure) for part in found)
            return _times(found, measure)

        own = inspect.Parameter(_MEASURE, inspect.Parameter.KEYWORD_ONLY)
        weighted.__signature__ = inspect.Signature([*taken.values(), own])  # type: ignore[attr-defined]
        with self.space.comm.together():
            how = {**options, "algorithm": "noncollocated"}
            made = _OnSides(space, Pointwise(weighted, test), coefficients=given, components=n, **how)
        made._agree()
        return made

    def at(self, space: Space | Field) -> BoundaryForm:
        """Make the same form on another space, or take a linearisation at another function; see `Operator.at`."""
        if isinstance(space, Field):
            self.inner.at(self.on_sides(space))
            return self
        other = copy(self)
        other.space = other.target = space
        other.sides = sides_of(space, self.on) or [no_side(space)]
        sides = space.on_blocks([side.block for side in other.sides])
        fields = {key: resampled(own, sides, self.device) for key, own in self.inner.fields.items()}
        fields |= side_fields(sides, other.sides, fields)
        other.inner = self.inner.alike(sides, self.form, self.name, {**self.parameters, **fields})
        return other

    def elliptic_part(self) -> BoundaryForm:
        """Make the form of the diffusion and reaction; see `Operator.elliptic_part`."""
        return self.with_inner(self.inner.elliptic_part())

    def with_inner(self, inner: Operator) -> BoundaryForm:
        """The form of another operator on the sides; see `BoundaryForm`."""
        other = copy(self)
        other.inner, other.form, other.name, other.guarded = inner, inner.form, inner.name, inner.guarded
        return other

    def linearised(self, u: Field, store: str = "cheap") -> BoundaryForm:
        """Make the derivative at a function; see `Operator.linearised`."""
        return self.with_inner(self.inner.linearised(self.on_sides(u), store))

    def transposed(self) -> BoundaryForm:
        """Make the transpose of a linearisation; see `Operator.transposed`."""
        return self.with_inner(self.inner.transposed())

    def pullback(self, u: Field, w: Field, name: str | None = None, *changes: Mapping[str, Any]) -> Any:
        """Apply the transposed derivative; see `Operator.pullback`. By a field it is a functional on its space."""
        found = pulled_back(self.inner, self.on_sides(u), self.on_sides(w), name, self._here(changes), tested=True)
        return self._functional(u, found) if isinstance(found, Field) else found

    def pushforward(self, u: Field, *changes: Mapping[str, Any]) -> Field:
        """Apply the derivative; see `Operator.pushforward`. Changes of fields are on the sides, or in state "coeff"."""
        return self._functional(u, pushed_forward(self.inner, self.on_sides(u), self._here(changes)))

    def _here(self, changes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Changes on the sides."""
        given, space = checked_changes(self, changes), self.space
        return [{k: self.on_sides(f) if getattr(f, "space", 0) is space else f for k, f in c.items()} for c in given]

    def _functional(self, u: Field, found: Field) -> Field:
        """A functional on the space from one on the sides."""
        out = self.zeros(u, found.components, None)
        self._add_sides(found, out, 1.0)
        return out

    def _restricted(self, name: str, value: Any, space: Space) -> Any:
        """A coefficient in the form that the space of the sides takes."""
        if not isinstance(value, Field):
            return value
        what = f"coefficient {name!r} of a weak form on boundary {self.on!r}"
        if value.space is not self.space:
            raise StateError(f"{what} is a field on another space")
        if value.state != "coeff":
            raise StateError(
                f"{what} is a {value.state!r} field; give it in state 'coeff', which has values on the boundary"
            )
        return backward_transform(self._on_sides(value, space, value.data[0].home))  # its values may change

    def _on_sides(self, field: Field, space: Space, device: Device) -> Field:
        """A field's coefficients, side by side."""
        xp, pairs = vectors_on(device).xp, []
        for side, rows in zip(self.sides, self._rows(device), strict=True):
            given = field.data[side.number].read(device)[:, rows]
            pairs.append(PairArray.of(xp.ascontiguousarray(given), device))
        return Field(space, field.state, pairs)

    def _rows(self, device: Device) -> list[Any]:
        """The elements of every side, as indices on a device."""
        return self._indices.get(device, lambda: [vectors_on(device).xp.asarray(side.rows) for side in self.sides])

    @property
    def parameters(self) -> Parameters:
        """Numbers that may change between applications; see `Operator`."""
        return self.inner.parameters  # type: ignore[return-value]

    @property
    def fields(self) -> dict[str, Field]:
        """Its other coefficients, on the sides; see `Operator`."""
        return {name: field for name, field in self.inner.fields.items() if name not in _OF_SIDES}

    def __repr__(self) -> str:
        return f"{self.name}({self.space!r}, on={self.on!r}, backend={self.backend.name!r})"

    def explain(self) -> str:
        """Describe what was chosen and why; see `Operator.explain`."""
        return self.inner.explain()

    def tune(self, seconds: float = 30.0) -> list[Tuning]:
        """Time the possible kernels; see `Operator.tune`."""
        return self.inner.tune(seconds)

    def apply_to_field(self, field: Field, out: Field | None = None) -> Field:
        """Apply to a field; see `FieldMap.__call__`."""
        out = self.zeros(field, field.components, out)
        self.add(field, out)
        return out

    def add(self, field: Field, out: Field, factor: float = 1.0) -> None:
        """Add the result for a field, times a factor, to `out`; see `apply_to_field`."""
        here = self.on_sides(field)
        try:
            self._add_sides(self.inner(here), out, factor)
        except BaseException:
            out.discard()
            raise

    def on_sides(self, field: Field) -> Field:
        """The coefficients of a function on the cells with the boundary; see `BoundaryForm`."""
        if not isinstance(field, Field):
            raise ArgumentError(f"{self.name} takes a Field here, got {type(field).__name__}")
        if field.space is not self.space:
            raise StateError(f"{self.name} got a field on another space")
        check_state(field, "coeff", self.name)
        return self._on_sides(field, self.inner.space, self.backend.device())

    def _add_sides(self, found: Field, out: Field, factor: float) -> None:
        """Add results on the sides to those of the cells."""
        device = self.backend.device()
        for side, rows, pair in zip(self.sides, self._rows(device), found.data, strict=True):
            out.data[side.number].readwrite(device)[:, rows] += factor * pair.read(device)


# What a function gets of a side, [components, E, Q]: surface over volume measure, and the outward normal.
_OF_SIDES: dict[str, Callable[[Side], Any]] = {
    _MEASURE: lambda side: (side.weights / side.block.geometry.weights())[None],
    "n": lambda side: side.normals,
}


def side_fields(space: Space, sides: Sequence[Side], names: Iterable[str]) -> dict[str, Field]:
    """Those of `_OF_SIDES` that are among names, as fields."""

    def field(of: Callable[[Side], Any]) -> Field:
        return Field(space, "phys", [PairArray.of(np.ascontiguousarray(of(side), space.dtype)) for side in sides])

    return {name: field(of) for name, of in _OF_SIDES.items() if name in names}


def _times(found: Any, measure: Any) -> Any:
    """The result of a pointwise function, times the measure."""
    if isinstance(found, (list, tuple)):
        return [_times(part, measure) for part in found]
    return None if found is None else found * measure
