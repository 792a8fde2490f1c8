"""Linearisations of weak forms: operators whose coefficients are stored at the points, from the function where they are
taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from hpfem.shapes.arguments import name_of, shown

from ..backends.base import vectors_on
from ..errors import ArgumentError, StateError
from ..forms.cut import STORED, STORES, cut
from ..forms.derivative import Weak
from ..forms.form import BlockKernel, Form
from ..forms.graph import Expression
from ..forms.lowered import lowered
from ..memory import Device, PairArray
from ..space import Field
from ..space.field import check_state
from ..space.transforms import Evaluated, resampled

# Operators are of a type that is made of these.
Operator = Any
# Name of a change among the coefficients, which no argument of a function has.
_CHANGE = ".change"


def side_by_side(fields: Sequence[Field], operator: Any) -> Field:
    """One field of the components of several."""
    device, first = operator.device, fields[0]
    xp = vectors_on(device).xp
    parts = zip(*[field.data for field in fields], strict=True)
    arrays = [xp.concatenate([pair.read(device) for pair in own]) for own in parts]
    return Field(first.space, first.state, [PairArray.of(array, device) for array in arrays])


def checked_function(form: Any, u: Any, components: int, what: str) -> Field:
    """A function of the space of a form: a "coeff" field with its components."""
    if not isinstance(u, Field):
        raise ArgumentError(f"{what} of {form.name} is a Field, got {shown(u)}")
    if u.space is not form.space:
        raise StateError(f"{what} of {form.name} is a field on another space")
    check_state(u, "coeff", f"{what} of {form.name}")
    if u.components != components:
        raise StateError(f"{what} of {form.name} has {u.components} component(s), the form couples {components}")
    return u


def weak_of(form: Any) -> Weak:
    """The weak form of an operator."""
    if form.form.trace is None or not form.form.test:
        raise ArgumentError(f"{form.name} is no weak form of a pointwise function, and has no derivative here")
    return Weak.of(form.form.trace)


def made_operator(form: Operator, made: Form, fields: Mapping[str, Any] | None = None, **options: Any) -> Operator:
    """An operator of another form, with those coefficients of an operator and those given that it reads."""
    assert made.trace is not None
    known = {**form.parameters, **form.fields, **(fields or {})}
    used = {key[1]: known[key[1]] for key in made.trace.inputs if key[0] in ("field", "param")}
    operator = form.alike(form.space, made, made.name, used, **options)
    operator.guarded = True
    return operator


# The operators that make the same values at the points of other spaces.
_ELSEWHERE: WeakKeyDictionary[Any, WeakKeyDictionary[Any, Operator]] = WeakKeyDictionary()


class StoredValues(Evaluated):
    """Values at the points of expressions of a function u, which is a copy. At points of another space they are made of
    u: products of values between the points may lose their sign.
    """

    def __init__(self, form: Operator, weak: Weak, stored: Sequence[Expression], u: Field) -> None:
        trial = (("u", form.form.components),)
        self._form, self.u = form, u
        self._made = lowered(weak, trial, f"values at points of {form.name}", stored)
        self._points = made_operator(form, self._made)
        self._points.guarded = False  # the derivative's results are
        super().__init__(self._points(u), self._again)

    def renew(self) -> None:
        """Make them of the present u and parameters, in the same memory."""
        for name in self._points.parameters:
            self._points.parameters[name] = self._form.parameters[name]
        self._points(self.u, out=Field(self.space, "phys", self.data))
        self.times += 1

    def _again(self, space: Any) -> Field:
        """The values at the points of another space."""
        form, xp = self._form, vectors_on(self._points.device).xp
        known = _ELSEWHERE.setdefault(self, WeakKeyDictionary())
        operator = None if form.fields else known.get(space)
        if operator is None:
            there = form.space.on_blocks(space.blocks)  # of this type of numbers
            fields = {key: resampled(field, there, form.device) for key, field in form.fields.items()}
            operator = known[space] = made_operator(form, self._made, fields, target=there)
        operator.parameters.update({name: form.parameters[name] for name in operator.parameters})
        made = operator(self.u)
        device = self._points.device
        arrays = [xp.array(pair.read(device), space.dtype) for pair in made.data]  # multigrid writes into them
        return Evaluated(Field(space, "phys", [PairArray.of(array, device) for array in arrays]), self._again)


class FunctionValues(StoredValues):
    """Values and derivatives of a function u that kernels make of its coefficients: none are kept; who reads them here
    gets them anew.
    """

    def __init__(self, form: Operator, weak: Weak, stored: Sequence[Expression], u: Field) -> None:
        self.inputs = [node.payload for node in stored]
        super().__init__(form, weak, stored, u)

    @property
    def data(self) -> Any:
        """Of each block the values at the points."""
        return self._points(self.u).data

    @data.setter
    def data(self, made: Any) -> None:
        """Keep none."""

    @property
    def components(self) -> int:
        """Count the values."""
        return len(self.inputs)

    def renew(self) -> None:
        """Tell that u has changed."""
        self.times += 1


def with_functions(form: Form, fields: Mapping[str, Field]) -> tuple[Form, list[Field]]:
    """A form in whose kernels the `FunctionValues` are made of functions, which are more components of the trial; and
    these functions.
    """
    given = {key: field for key, field in fields.items() if isinstance(field, FunctionValues)}
    functions = list({id(field.u): field.u for field in given.values()}.values())
    if not functions:
        return form, []
    assert form.trace is not None
    names = {id(u): f"u{k}" for k, u in enumerate(functions)}
    inside = {key: [("fn", names[id(f.u)], *own[2:]) for own in f.inputs] for key, f in given.items()}
    trial = [("v", form.components), *((names[id(u)], u.components) for u in functions)]
    return lowered(Weak.of(form.trace, "v", inside=inside), trial, form.name), functions


class WithFunctions(BlockKernel):
    """A kernel that takes the coefficients of functions, [components, E, n_modes] each, beside those of the trial."""

    def __init__(self, kernel: BlockKernel, components: int, functions: Sequence[PairArray], device: Device) -> None:
        self._kernel, self._n, self._functions, self._device = kernel, components, functions, device
        self.problem, self.strategy, self.flops = kernel.problem, kernel.strategy, kernel.flops
        self._pool = vectors_on(device).pool()

    def finish(self) -> None:
        """See `BlockKernel.finish`."""
        self._kernel.finish()

    def apply(self, source: Any, out: Any) -> None:
        """Apply to components in groups that the form couples."""
        xp, n = vectors_on(self._device).xp, self._n
        given, shape = [pair.read(self._device) for pair in self._functions], source.shape[1:]
        together = self._pool.take(lambda: xp.empty((self.problem.coupled, *shape), source.dtype))
        start = n
        for values in given:
            together[start : start + len(values)] = values
            start += len(values)
        for group in range(len(source) // n):
            own = slice(group * n, (group + 1) * n)
            together[:n] = source[own]
            self._kernel.apply(together, out[own])
        self._pool.give(together)


@dataclass(eq=False)
class Linearisation:
    """Where an operator comes from that is the derivative of a form at a function u, which it owns."""

    form: Operator
    u: Field
    store: str
    transposed: bool
    stored: StoredValues | None
    reads: int  # numbers at a point

    def renew(self, operator: Operator, u: Field) -> None:
        """Take the derivative at another function, with the present parameters of the form."""
        checked_function(self.form, u, self.u.components, "the function at which to linearise")
        device = operator.device
        for own, other in zip(self.u.data, u.data, strict=True):
            own.write(device)[...] = other.read(device)
        for name in operator.parameters:
            operator.parameters[name] = self.form.parameters[name]
        if self.stored is not None:
            self.stored.renew()

    def __str__(self) -> str:
        size, kept = 0, f"{self.reads} numbers are stored at each point"
        if self.stored is not None:
            size = self.stored.nbytes if self.reads else self.u.nbytes
            kept = kept if self.reads else "kernels evaluate the function, of which the coefficients are kept"
        return f"  store={self.store!r}: {kept}, {size / 1e6:.3g} MB"


def linearised(form: Operator, u: Field, store: str = "cheap", transposed: bool = False) -> Operator:
    """The derivative of a form at a function u, or its transpose; see `Operator.linearised`."""
    name_of(store, STORES, "store")
    weak, n = weak_of(form), form.form.components
    u = checked_function(form, u, n, "the function at which to linearise").copy()
    linear = weak.pullback("u", "v", n) if transposed else weak.forward("u", "v")
    linear = linear.of_fewer_powers()
    kernel, stored = cut(linear, "v", store)
    kind = FunctionValues if store == "fused" else StoredValues
    values = kind(form, linear, stored, u) if stored else None
    name = f"{'transposed ' * transposed}linearisation of {form.name}"
    operator = made_operator(form, lowered(kernel, (("v", n),), name), {STORED: values})
    reads = 0 if store == "fused" else len(stored)
    operator.linearisation = Linearisation(form, u, store, transposed, values, reads)
    return operator


def pulled_back(form: Operator, u: Field, w: Field, name: str | None = None, tested: bool = False) -> Any:
    """The transposed derivative of a form by its function or a coefficient, applied to w; see `Operator.pullback`. By a
    field it may be tested with the basis.
    """
    weak, n = weak_of(form), form.form.components
    both = [checked_function(form, f, n, f"{what!r}") for f, what in ((u, "u"), (w, "w"))]
    trial = (("u", n), ("w", n))
    if name is None:
        made = lowered(weak.pullback("u", "w", n), trial, f"transposed derivative of {form.name}")
        return made_operator(form, made)(side_by_side(both, form))
    number = _kind(form, name) == "param"
    found = weak.adjoints((_kind(form, name), name), "w")
    keys = [("param", name)] if number else [("field", name, c) for c in range(form.fields[name].components)]
    results = [found.get(key, weak.graph.constant(0.0)) for key in keys]
    what = f"derivative of {form.name} by {name}"
    if tested and not number:
        weak = Weak(weak.graph, weak.dim, dict(trial), {(c, 0): e for c, e in enumerate(results)}, len(results))
        return made_operator(form, lowered(weak, trial, what))(side_by_side(both, form))
    made = lowered(weak, trial, what, results)
    values = made_operator(form, made)(side_by_side(both, form))
    return form.space.integrate(values) if number else values


def pushed_forward(form: Operator, u: Field, name: str, change: Any) -> Field:
    """The derivative of a form at u by a coefficient, in the direction of a number or field: a functional."""
    what, n = f"derivative of {form.name} by {name}", form.form.components
    checked_function(form, u, n, "'u'")
    made = lowered(weak_of(form).forward(name, _CHANGE, _kind(form, name)), (("u", n),), what)
    return made_operator(form, made, {_CHANGE: change})(u)


def _kind(form: Operator, name: str) -> str:
    """Whether a coefficient is a number or a field."""
    if name not in form.parameters and name not in form.fields:
        known = ", ".join([*form.parameters, *form.fields]) or "none"
        raise ArgumentError(f"{form.name} has no coefficient {shown(name)}; it has: {known}")
    return "param" if name in form.parameters else "field"
