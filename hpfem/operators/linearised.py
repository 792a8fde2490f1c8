"""Linearisations of weak forms: operators whose coefficients are stored at the points, from the function where they are
taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from hpfem.shapes.arguments import is_real, name_of, shown
from hpfem.shapes.cached import cached_property

from ..backends.base import vectors_on
from ..errors import ArgumentError, StateError
from ..forms.cut import STORED, STORES, cut, isotropic
from ..forms.derivative import Weak
from ..forms.form import Form
from ..forms.graph import Expression
from ..forms.lowered import lowered
from ..memory import PairArray
from ..space import Field
from ..space.field import check_state
from ..space.reference import jacobians
from ..space.transforms import Evaluated, resampled
from .parameters import StoredParameters

# Operators are of a type that is made of these.
Operator = Any
# Of the function "u", which is a field in state "coeff", and of coefficients, by name.
Changes = Mapping[str, Any]


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


def made_operator(
    form: Operator, made: Form, fields: Mapping[str, Any] | None = None, space: Any = None, **options: Any
) -> Operator:
    """An operator of another form, with those coefficients of an operator and those given that it reads."""
    assert made.trace is not None
    known = {**form.parameters, **form.fields, **(fields or {})}
    used = {key[1]: known[key[1]] for key in made.trace.inputs if key[0] in ("field", "param")}
    operator = form.alike(form.space if space is None else space, made, made.name, used, **options)
    operator.guarded = True
    return operator


# Names of the Jacobians and of the function among the fields of forms on reference elements.
_GEOMETRY, _U = ".geometry", ".u"
# The part of the numbers that these may read: to make theirs takes longer, once a linearisation.
_FEWER = 0.75
# The operators that make the same values at the points of other spaces.
_ELSEWHERE: WeakKeyDictionary[Any, WeakKeyDictionary[Any, Operator]] = WeakKeyDictionary()


class StoredValues(Evaluated):
    """Values at points of expressions of a function u, which is a copy, made when they are first read. They are kept
    until u changes, or where kernels read them in the same memory. At points of another space they are made of u:
    products of values between the points may lose their sign. Kernels of another operator may read other values,
    `instead` of a form.
    """

    instead: tuple[Form, Operator, StoredValues] | None = None
    _kept: Field | None = None
    _held = False

    def __init__(self, form: Operator, weak: Weak, stored: Sequence[Expression], u: Field, **options: Any) -> None:
        self._form, self.u, self._options, self._numbers = form, u, options, dict(form.parameters)
        self._made = lowered(weak, (("u", form.form.components),), f"values at points of {form.name}", stored)
        self.space, self.state = options.get("space", form.space), "phys"
        self._register()

    @cached_property
    def _points(self) -> Operator:
        operator = made_operator(self._form, self._made, **self._options)
        operator.guarded = False  # the derivative's results are
        return operator

    @property
    def _present(self) -> Operator:
        """What makes them, with the form's parameters when they were made."""
        dict.update(self._points.parameters, {name: self._numbers[name] for name in self._points.parameters})
        return self._points

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Of each block the values at the points."""
        if self._kept is None:
            self._kept = self._present(self.u)
        return self._kept.data

    @property
    def components(self) -> int:
        """Count the values."""
        return self._made.given(self.space.dim)

    def hold(self) -> None:
        """Keep them for kernels that read them."""
        self._held = True

    def renew(self) -> None:
        """Make them of the present u and parameters if they are held, in the same memory; and those that are read
        instead.
        """
        if self.instead is not None:
            self.instead[2].renew()
        self._numbers = dict(self._form.parameters)
        self._kept = self._present(self.u, out=self._kept) if self._held else None
        self.times += 1

    def again(self, space: Any) -> Field:
        """The values at the points of another space."""
        form, xp = self._form, vectors_on(self._form.device).xp
        known = _ELSEWHERE.setdefault(self, WeakKeyDictionary())
        operator = None if form.fields else known.get(space)
        if operator is None:
            there = form.space.on_blocks(space.blocks)  # of this type of numbers
            fields = {key: resampled(field, there, form.device) for key, field in form.fields.items()}
            operator = known[space] = made_operator(form, self._made, fields, target=there)
        operator.parameters.update({name: self._numbers[name] for name in operator.parameters})
        made = operator(self.u)
        device = form.device
        arrays = [xp.asarray(pair.readwrite(device), space.dtype) for pair in made.data]
        return Evaluated(Field(space, "phys", [PairArray.of(array, device) for array in arrays]), self.again)


def operator_instead(operator: Operator) -> Operator | None:
    """The operator whose kernels serve for another one; without one, what it reads is kept."""
    for field in operator.fields.values():
        if isinstance(field, StoredValues):
            if field.instead is not None and field.instead[0] is operator.form:
                return field.instead[1]
            field.hold()
    return None


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
        dict.update(operator.parameters, {name: self.form.parameters[name] for name in operator.parameters})
        if self.stored is not None:
            self.stored.renew()

    def __str__(self) -> str:
        stored, kept = self.stored, f"{self.reads} numbers are stored at each point"
        if stored is not None and stored.instead is not None:
            kept, stored = f"{kept}, the geometry in them", stored.instead[2]
        size = 0 if stored is None else stored.nbytes
        return f"  store={self.store!r}: {kept}, {size / 1e6:.3g} MB"


def linearised(form: Operator, u: Field, store: str = "cheap", transposed: bool = False) -> Operator:
    """The derivative of a form at a function u, or its transpose; see `Operator.linearised`."""
    name_of(store, STORES, "store")
    if form.linearisation is not None:
        raise ArgumentError(f"{form.name} is linear, and has no linearisation of its own; `at` takes it elsewhere")
    weak, n = weak_of(form), form.form.components
    u = checked_function(form, u, n, "the function at which to linearise").copy()
    linear = weak.pullback("u", "v", n) if transposed else weak.forward({("fn", "u"): "v"})
    linear = linear.of_fewer_powers()
    kernel, stored = cut(linear, "v", store)
    made = lowered(kernel, (("v", n),), f"{'transposed ' * transposed}linearisation of {form.name}")
    instead = _on_reference(form, linear, made, len(stored), u) if store in ("cheap", "matrix") else None
    values, reads = StoredValues(form, linear, stored, u) if stored else None, len(stored)
    if values is not None and instead is not None:
        values.instead, reads = (made, *instead), instead[1].components
    operator = made_operator(form, made, {STORED: values})
    if instead is not None:
        operator.parameters = StoredParameters(made.name, form.space.dtype, dict(operator.parameters))
    operator.linearisation = Linearisation(form, u, store, transposed, values, reads)
    return operator


def _on_reference(
    form: Operator, linear: Weak, made: Form, stored: int, u: Field
) -> tuple[Operator, StoredValues] | None:
    """The operator of a linear form on reference elements, with the geometry in its coefficients, and these, if it
    reads fewer numbers than the form `made` and nothing that may change between two linearisations.
    """
    space, trace = form.space, made.trace
    assert trace is not None and made.factor_kind is not None
    given = {key[1] for key in trace.inputs if key[0] == "field"} - {STORED}
    changing = any(not pair.constant for name in given for pair in form.fields[name].data)
    flat = all(block.geometry.space_dim == block.shape.dim for block in space.blocks)
    if changing or not form._agrees or not flat or form.precision != "full" or ("x" in {k[0] for k in linear.inputs}):
        return None
    rotated = isotropic(linear)
    weak = linear.on_reference(_GEOMETRY, rotated)
    kernel, entries = cut(weak, "v", "matrix")
    read = stored + sum(form.fields[name].components for name in given)
    now = later = 0.0
    for block in space.blocks:
        points = block.n_elements * block.n_points
        now += points * (read + (0 if block.affine else block.geometry.n_factors(made.factor_kind)))
        later += points * len(entries)
    others = any(key[0] in ("param", "field") and key[1] != STORED for key in kernel.inputs)
    if later >= _FEWER * now or not entries or others:
        return None
    geometry = jacobians(space, form.device, rotated)
    there = {name: Field(geometry.space, own.state, own.data) for name, own in {**form.fields, _U: u}.items()}
    values = StoredValues(
        form, weak, entries, there.pop(_U), fields={_GEOMETRY: geometry, **there}, space=geometry.space
    )
    on_reference = lowered(kernel, (("v", made.components),), made.name)
    return made_operator(form, on_reference, {STORED: values}, space=geometry.space), values


def pulled_back(
    form: Operator, u: Field, w: Field, name: str | None = None, changes: Sequence[Changes] = (), tested: bool = False
) -> Any:
    """The transposed derivative of a form by its function or a coefficient, applied to w, and its derivatives along
    changes; see `Operator.pullback`. By a field it may be tested with the basis.
    """
    weak, trial, applied = _along(form, changes, {"u": u, "w": w})
    n, kind = form.form.components, "fn" if name is None else _kind(form, name)
    if kind == "fn":
        return applied(lowered(weak.pullback("u", "w", n), trial, f"transposed derivative of {form.name}"))
    found = weak.adjoints((kind, name), "w")
    keys = [("param", name)] if kind == "param" else [("field", name, c) for c in range(form.fields[name].components)]
    results, what = [found.get(key, weak.graph.constant(0.0)) for key in keys], f"derivative of {form.name} by {name}"
    if tested and kind == "field":
        weak = Weak(weak.graph, weak.dim, {(c, 0): e for c, e in enumerate(results)}, len(results))
        return applied(lowered(weak, trial, what))
    values = applied(lowered(weak, trial, what, results))
    return form.space.integrate(values) if kind == "param" else values


def pushed_forward(form: Operator, u: Field, changes: Sequence[Changes]) -> Field:
    """The derivative of a form at u along changes: a functional; see `Operator.pushforward`."""
    weak, trial, applied = _along(form, changes, {"u": u})
    return applied(lowered(weak, trial, f"derivative of {form.name}"))


def checked_changes(form: Any, changes: Iterable[Changes]) -> Iterable[Changes]:
    """Changes that are mappings."""
    for change in changes:
        if not isinstance(change, Mapping):
            raise ArgumentError(f"a change for {form.name} is a mapping from names to changes, got {shown(change)}")
        yield change


def _along(form: Operator, changes: Sequence[Changes], functions: dict[str, Field]) -> tuple[Weak, Any, Any]:
    """The derivative of a form along changes, one after the other; the functions that it reads, with those given and
    their components; and what applies a form of these.
    """
    weak, given, n = weak_of(form), dict[str, Any](), form.form.components
    for number, change in enumerate(checked_changes(form, changes)):
        # No argument of a function has such a name.
        new = {name: f"change {number} of u" if name == "u" else f".{number}.{name}" for name in change}
        for name, own in change.items():
            (functions if name == "u" else given)[new[name]] = own
            numbers = 0 if _kind(form, name) == "param" else n if name == "u" else form.fields[name].components
            if numbers != (0 if is_real(own) else getattr(own, "components", None)):
                what = f"a field of {numbers} component(s)" if numbers else "a number"
                raise ArgumentError(f"the change of {name!r} of {form.name} is {what}, got {shown(own)}")
        weak = weak.forward({(_kind(form, name), name): key for name, key in new.items()})
    every = [checked_function(form, own, n, repr(name)) for name, own in functions.items()]

    def applied(made: Form) -> Field:
        return made_operator(form, made, given)(side_by_side(every, form))

    return weak, [(name, n) for name in functions], applied


def _kind(form: Operator, name: str) -> str:
    """Whether a name is that of the function, a number or a field."""
    if name == "u":
        return "fn"
    if name not in form.parameters and name not in form.fields:
        known = ", ".join([*form.parameters, *form.fields]) or "none"
        raise ArgumentError(f"{form.name} has no coefficient {shown(name)}; it has: {known}")
    return "param" if name in form.parameters else "field"
