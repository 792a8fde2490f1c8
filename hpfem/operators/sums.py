"""Sums of weak forms, each times a number: one kernel for each block in the volume; forms on boundaries one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from hpfem.shapes.arguments import is_real, shown
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError, StateError
from ..forms.form import Form
from ..forms.lowered import lowered
from ..forms.sums import added
from ..space import Field
from ..tuning import Tuning
from .arrays import FieldMap
from .linearised import checked_changes
from .parameters import Factors, Joined

Term = TypeVar("Term")
Sum = TypeVar("Sum")


class Linear(ABC, Generic[Term, Sum]):
    """What `+`, `-` and numbers make sums of."""

    __array_ufunc__ = None  # NumPy's numbers on the left leave the product to us
    name: str

    @abstractmethod
    def _total(self, *parts: tuple[Any, Any]) -> Sum:
        """The sum of pairs of a number and a thing."""

    def __add__(self, other: Term) -> Sum:
        return self._total((1.0, self), (1.0, other))

    def __radd__(self, other: Term | int) -> Sum:
        return self._total((1.0, self)) if is_real(other) and other == 0 else self._total((1.0, other), (1.0, self))

    def __sub__(self, other: Term) -> Sum:
        return self._total((1.0, self), (-1.0, other))

    def __rsub__(self, other: Term | int) -> Sum:
        return self._total((-1.0, self)) if is_real(other) and other == 0 else self._total((1.0, other), (-1.0, self))

    def __mul__(self, factor: float | np.number[Any]) -> Sum:
        return self._total((factor, self))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | np.number[Any]) -> Sum:
        if not is_real(divisor) or divisor == 0:
            raise ArgumentError(f"{self.name} can be divided by numbers other than 0, got {shown(divisor)}")
        return self._total((1 / divisor, self))

    def __neg__(self) -> Sum:
        return self._total((-1.0, self))


class Summable(FieldMap, Linear["Summable", "OperatorSum"]):
    """What can be part of an `OperatorSum`, if it is a weak form."""

    form: Form
    guarded: bool
    on: str | None = None  # the boundary, of a form on one

    def zeros(self, field: Field, components: int, out: Field | None) -> Field:
        """The field for a result, of zeros; see `FieldMap.result`."""
        out = self.result(field, components, out)
        for pair in out.data:
            pair.write(self.device)[...] = 0
        return out

    def _total(self, *parts: tuple[Any, Any]) -> OperatorSum:
        return OperatorSum([own for _, own in parts], [factor for factor, _ in parts])


class OperatorSum(Summable):
    """A sum of weak forms on one space, each times a number: `hp.Mass(s) + dt * hp.Laplacian(s) + boundary_form`.

    It is applied as an operator is. Forms in the volume are computed together, by one kernel for each block, which is
    made when it is first needed. `GlobalOperator` takes a sum; so a form on a boundary becomes a part of a system.

    Parameters
    ----------
    summands : sequence
        Operators from coefficients to functionals, such as Mass, Helmholtz or WeakForm, forms on boundaries, and sums
        of these, whose parts are taken with the factors that they have then. A form of one component is applied to each
        component where others couple several.
    factors : sequence of float

    Attributes
    ----------
    summands : tuple
    factors : Factors
        `sum.factors[0] = 2.0` counts from the next application on, as a summand's `parameters[name] = number` does: no
        kernel is made anew.

    Raises
    ------
    ArgumentError
        For other objects, forms on another space or backend, or numbers that do not fit.

    Examples
    --------
    >>> A = hp.Mass(space) + 0.1 * hp.Laplacian(space) + hp.WeakForm(space, function, on="wall")  # doctest: +SKIP
    >>> A.factors[1] = 0.05  # doctest: +SKIP
    """

    input_state, output_state = "coeff", "dual"
    summands: tuple[Any, ...]
    factors: Factors
    _derived_from: tuple[OperatorSum, Sequence[int]] | None = None

    def __init__(self, summands: Sequence[Any], factors: Sequence[float]) -> None:
        listed = all(isinstance(given, (list, tuple)) for given in (summands, factors))
        if not listed or len(factors) != len(summands) or not summands:
            got = f"{len(factors)} for {len(summands)}" if listed else f"{shown(factors)} for {shown(summands)}"
            raise ArgumentError(f"a sum has a list of forms and a factor for each, got {got}")
        parts: list[tuple[Any, Any]] = []
        for factor, own in zip(factors, summands, strict=True):
            if not is_real(factor):
                raise ArgumentError(f"a weak form is multiplied by a number, got {shown(factor)}")
            inside = zip(own.factors, own.summands) if isinstance(own, OperatorSum) else [(1.0, own)]
            parts += [(factor * number, summand) for number, summand in inside]
        self.summands = tuple(summand for _, summand in parts)
        first = self.summands[0]
        for own in self.summands:
            if not isinstance(own, Summable) or (own.input_state, own.output_state) != ("coeff", "dual"):
                what = getattr(own, "name", None) or shown(own)
                raise ArgumentError(
                    f"a sum is made of weak forms such as Mass or Laplacian, each times a number; got {what}"
                )
            if own.space is not first.space or own.target is not own.space:
                raise ArgumentError(f"a sum has weak forms on one space; {first.name} and {own.name} are on two")
            if own.device.name != first.device.name or own.backend.name != first.backend.name:
                where = f"{own.backend.name!r}, {first.name} with {first.backend.name!r}"
                raise ArgumentError(f"a sum has weak forms on one backend; {own.name} computes with {where}")
        self.components = max(own.form.components for own in self.summands)
        for own in self.summands:
            if own.form.components not in (1, self.components):
                raise ArgumentError(
                    f"{own.name} couples {own.form.components} components, another form of the sum {self.components}"
                )
        self.name = _joined([own.name for own in self.summands], " + ")
        self.space = self.target = first.space
        self.backend, self.guarded = first.backend, any(own.guarded for own in self.summands)
        self.factors = Factors(self.name, self.space.dtype, [factor for factor, _ in parts])
        if any(getattr(own, key, "auto") != "auto" for own in self.summands for key in ("strategy", "algorithm")):
            _ = self.volume  # processes agree on what is asked for: now, where all of them are

    @property
    def boundary_forms(self) -> list[tuple[int, Any]]:
        """The forms on boundaries, each with its number in the sum."""
        return [(number, own) for number, own in enumerate(self.summands) if own.on is not None]

    @cached_property
    def volume(self) -> Any:
        """The operator of all forms in the volume; None if there is none. Coefficients have their names in the forms,
        or "1.k" of form 1 where several have a k; the factors are parameters "0", "1", ....
        """
        parts = [(number, own) for number, own in enumerate(self.summands) if own.on is None]
        if not parts:
            return None
        count = Counter(key for _, own in parts for key in (*own.parameters, *own.fields))
        fields: dict[int, tuple[str, Field]] = {}
        places: dict[str, tuple[Any, Any]] = {}
        names = list[dict[str, str]]()
        for number, own in parts:
            named = {key: key if count[key] == 1 else f"{number}.{key}" for key in (*own.parameters, *own.fields)}
            places |= {str(number): (self.factors, number)}
            places |= {named[key]: (own.parameters, key) for key in own.parameters}
            names.append(named | {k: fields.setdefault(id(f), (named[k], f))[0] for k, f in own.fields.items()})
        n, first = max(own.form.components for _, own in parts), parts[0][1]
        name = _joined([own.name for _, own in parts], " + ")
        weak = added([(str(number), own.form.trace) for number, own in parts], names, n)
        form = lowered(weak, (("u", n),), name, derived=False)
        how = {key: getattr(parts[0][1], key) for key in ("strategy", "algorithm", "precision")}
        how = {key: given for key, given in how.items() if all(getattr(own, key) == given for _, own in parts)}
        made = first.alike(
            self.space, form, name, dict(fields.values()), parameters=Joined(places), **{"precision": "full", **how}
        )
        made.guarded = any(own.guarded for _, own in parts)
        return made

    @property
    def operators(self) -> list[Any]:
        """The operators that have kernels: in the volume, and on the sides of each boundary."""
        return [own for own in (self.volume, *(form.inner for _, form in self.boundary_forms)) if own is not None]

    def __repr__(self) -> str:
        parts = _joined([f"{factor:g} {own.name}" for factor, own in zip(self.factors, self.summands)], ", ")
        return f"OperatorSum({parts}, {self.space!r}, backend={self.backend.name!r})"

    def apply_to_field(self, field: Field, out: Field | None = None) -> Field:
        """Apply to a field; see `FieldMap.__call__`."""
        if self.volume is not None:
            out = self.volume.apply_to_field(field, out)
        elif not isinstance(field, Field) or field.space is not self.space:
            raise StateError(f"{self.name} got a field on another space")
        else:
            out = self.zeros(field, field.components, out)
        for number, own in self.boundary_forms:
            own.add(field, out, self.factors[number])
        return out

    def linearised(self, u: Field, store: str = "cheap") -> OperatorSum:
        """Make the derivative at a function; forms that do not depend on it are left out; see `Operator.linearised`."""
        parts = [number for number, own in enumerate(self.summands) if own.form.trial] or [0]
        return self._derived(parts, [self.summands[number].linearised(u, store) for number in parts])

    def _derived(self, numbers: Sequence[int], parts: Sequence[Any]) -> OperatorSum:
        """The sum of derivatives of some summands."""
        made = OperatorSum(parts, [self.factors[number] for number in numbers])
        made._derived_from = self, numbers
        return made

    def transposed(self) -> OperatorSum:
        """Make the transpose of a linearisation; see `Operator.transposed`."""
        of, numbers = self._linearised()
        return of._derived(numbers, [own.transposed() for own in self.summands])

    def at(self, u: Field) -> OperatorSum:
        """Take a linearisation at another function, with the present factors and parameters; see `Operator.at`."""
        of, numbers = self._linearised()
        for place, number in enumerate(numbers):
            self.factors[place] = of.factors[number]
            self.summands[place].at(u)
        return self

    def _linearised(self) -> tuple[OperatorSum, Sequence[int]]:
        """The sum that this is the derivative of, and its summands with one."""
        if self._derived_from is None:
            raise ArgumentError(f"{self.name} is no linearisation; see linearised")
        return self._derived_from

    def pullback(self, u: Field, w: Field, name: str | None = None, *changes: Mapping[str, Any]) -> Any:
        """Apply the transposed derivative by u, or by a coefficient of one summand; see `Operator.pullback`."""
        parts = [number for number, own in enumerate(self.summands) if own.form.trial] or [0]
        parts = parts if name is None else [self.with_coefficient(name)]
        return self._added(parts, changes, lambda own, mine: own.pullback(u, w, name, *mine))

    def pushforward(self, u: Field, *changes: Mapping[str, Any]) -> Field:
        """Apply the derivative along changes of u and of coefficients of summands; see `Operator.pushforward`."""
        parts = [number for number in range(len(self.summands)) if all(self._of(number, changes))] or [0]
        return self._added(parts, changes, lambda own, mine: own.pushforward(u, *mine))

    def _added(self, numbers: Sequence[int], changes: Any, result: Callable[[Any, Any], Any]) -> Any:
        """The sum of results of some summands and changes that are theirs, times the factors."""
        found = [self.factors[number] * result(self.summands[number], self._of(number, changes)) for number in numbers]
        return sum(found[1:], found[0])

    def _of(self, number: int, changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What changes are of a summand."""
        given = checked_changes(self, changes)
        return [{k: v for k, v in c.items() if k == "u" or self.with_coefficient(k) == number} for c in given]

    def with_coefficient(self, name: str) -> int:
        """The number of the one summand that has a coefficient; see `pullback`."""
        forms = enumerate(self.summands)
        found = [number for number, own in forms if name in own.parameters or name in own.fields]
        if len(found) != 1:
            said = f"{len(found)} forms of {self.name} have a coefficient {shown(name)}"
            raise ArgumentError(f"{said}; ask the form that is meant")
        return found[0]

    def explain(self) -> str:
        """Describe what was chosen and why, in the volume and on boundaries; see `Operator.explain`."""
        of = [own.linearisation for own in self.summands if own.on is None]
        stored = [f"{own.form.name}:{own}" for own in of if own is not None]
        return "\n".join([*stored, *(own.explain() for own in self.operators)])

    def tune(self, seconds: float = 30.0) -> list[Tuning]:
        """Time the possible kernels of all operators of the sum, each for an equal time; see `Operator.tune`."""
        return [found for own in self.operators for found in own.tune(seconds / len(self.operators))]


def _joined(parts: list[str], sign: str) -> str:
    """The first of them; names of kernels and messages stay short."""
    return sign.join(parts if len(parts) <= 6 else [*parts[:5], f"{len(parts) - 5} others"])
