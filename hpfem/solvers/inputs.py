"""What a solution depends on, as arrays: coefficients, loads and boundary values, each with its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from hpfem.shapes.arguments import shown

from ..errors import ArgumentError
from ..memory import PairArray
from ..operators import BwdTrans, IProductWRTBase, OperatorSum, WeakForm, node_gradient
from ..operators.node_gradient import change_by_nodes
from ..space.field import Field
from ..space.regions import ByRegion
from ..space.transforms import backward_transform
from .newton import Equation
from .norms import Loads


class Input(NamedTuple):
    """An array that a solution depends on; x and w are global vectors on the device of the equation.

    `take(array)` makes it count, and returns what it adds to the right-hand side. `pushed(x, change)` is the change of
    the residual minus the right-hand side, or of x itself where the input is `held`, or what the form takes as that of
    a `coefficient`; `pulled(x, w)` is its transpose, for a coefficient also along changes. Others are linear, but for
    what has the `order` 1.
    """

    shape: tuple[int, ...]
    take: Callable[[Any], Any]
    pushed: Callable[[Any, Any], Any]
    pulled: Callable[..., Any]
    held: bool = False
    coefficient: bool = False
    order: int = 2


class _Spread:
    """The linear map from an array to values at the points, or at those of a form on a boundary, and its transpose."""

    def __init__(self, equation: Equation, kind: Any, components: int, on: Any = None) -> None:
        self.c0, self.device, self.vectors = equation.c0, equation.device, equation.vectors
        self.space, self.kind, self.n, self._weights = self.c0.space, kind, components, list[Any]()
        blocks, mesh = self.space.blocks, self.space.mesh
        if kind == "points":
            ends = np.cumsum([0, *(block.n_elements * block.n_points for block in blocks)])
            self.size, self._parts = int(ends[-1]), [slice(*pair) for pair in pairwise(ends)]
        elif kind == "function":
            here: tuple[Any, Any] = BwdTrans(self.space), IProductWRTBase(self.space)
            if on is not None:
                here = lambda f: backward_transform(on.on_sides(f), on.backend), lambda found: found
            self.size, (self._values, self._test) = self.c0.size, here
        else:
            if kind != "cells" and (not isinstance(kind, (list, tuple)) or not kind):
                raise ArgumentError(f"an input is 'points', 'cells', 'function' or names of regions, got {shown(kind)}")
            self.size = mesh.n_cells if kind == "cells" else len(kind)
            of = np.arange(self.size) if kind == "cells" else ByRegion(mesh, dict.fromkeys(kind, 0.0)).of_cells
            places = [of[block.elements] for block in blocks]
            self._places, every = list(map(self.vectors.from_host, places)), np.concatenate(places)
            entries = np.ones(len(every)), (every, np.arange(len(every)))
            self._sums = self.vectors.sparse(csr_array(entries, shape=(self.size, len(every))))
        self.shape = (self.size,) if components == 1 else (components, self.size)

    def values(self, array: Any) -> Field:
        """The values at the points."""
        rows, xp, pairs = array.reshape(self.n, self.size), self.vectors.xp, []
        if self.kind == "function":
            return self._values(self.c0.scatter(rows, device=self.device))
        for k, block in enumerate(self.space.blocks):
            shape = (self.n, block.n_elements, block.n_points)
            points = self.kind == "points"
            own = rows[:, self._parts[k]].reshape(shape) if points else rows[:, self._places[k], None]
            pairs.append(PairArray.of(xp.array(xp.broadcast_to(own, shape), self.space.dtype, order="C"), self.device))
        return Field(self.space, "phys", pairs)

    def transposed(self, density: Field) -> Any:
        """The derivative by the array of the integral of the values times a density."""
        xp, n = self.vectors.xp, self.n
        if self.kind == "function":
            return self.c0.gather(self._test(density), self.device).reshape(self.shape)
        if not self._weights:
            self._weights = [self.vectors.from_host(block.geometry.weights()) for block in self.space.blocks]
        parts = [pair.read(self.device) * own for pair, own in zip(density.data, self._weights, strict=True)]
        if self.kind == "points":
            return xp.concatenate([own.reshape(n, -1) for own in parts], axis=1).reshape(self.shape)
        numbers = xp.concatenate([own.sum(axis=2) for own in parts], axis=1)
        total = xp.stack([self._sums @ row for row in numbers])
        if self.kind != "cells":
            total = self.vectors.from_host(self.space.comm.sum(self.vectors.to_host(total)))
        return total.reshape(self.shape)


def made_input(equation: Equation, name: str, kind: Any) -> Input:
    """An input by its name; see `SolutionMap`."""
    own, form, c0 = equation, equation.form, equation.c0
    forms = form.summands if isinstance(form, OperatorSum) else (form,)
    known = sorted({key for one in forms for key in (*one.parameters, *one.fields)})
    shape = (c0.size,) if own.n == 1 else (own.n, c0.size)
    if name in known:
        return _coefficient(own, forms[form.with_coefficient(name)] if len(forms) > 1 else form, name, kind)
    if name == "dirichlet" and kind == "function":

        def at_boundary(array: Any) -> Any:
            return own.vectors.xp.where(own.fixed, array.reshape(-1), 0)

        def take(array: Any) -> Any:
            own.values = at_boundary(array)
            return 0

        return Input(shape, take, lambda _, new: at_boundary(new), lambda _, w: at_boundary(w).reshape(shape), True)
    if name == "nodes" and kind == "mesh":
        return _nodes(own)
    on_boundary = isinstance(kind, str) and kind in c0.space.mesh.boundaries
    if name == "robin" and on_boundary:
        how: Any = {"components": own.n, "on": kind, "backend": form.backend.name}
        zero = {name: c0.space.zeros("coeff")}
        added = WeakForm(c0.space, lambda u, robin: robin * u, "value", "value", zero, **how)
        own.form = form + added
        return _coefficient(own, added, name, "function")
    load = back = None
    if name == "f" and kind == "functional":
        load = back = lambda array: array
    elif name == "f" and kind != "number":
        spread, loads, values = _Spread(own, kind, own.n), Loads(c0, own.n), BwdTrans(c0.space)
        shape = spread.shape
        load, back = lambda array: loads(spread.values(array)), lambda w: spread.transposed(values(own.field(w)))
    elif name == "flux" and on_boundary:
        on = WeakForm(c0.space, lambda u: u, "value", "value", on=kind)
        load = back = lambda array: c0.gather(on(own.field(array)), own.device)
    if load is None or back is None:
        raise ArgumentError(
            f"no input {shown(name)} that is {shown(kind)}; the residual's coefficients are"
            f" {', '.join(known) or 'none'}; besides there are 'f' (no number), 'dirichlet' ('function'), 'flux' and"
            " 'robin' (the name of a boundary) and 'nodes' ('mesh')"
        )
    return Input(
        shape, lambda a: load(a).reshape(-1), lambda _, a: -load(a).reshape(-1), lambda _, w: -back(w).reshape(shape)
    )


def _nodes(own: Equation) -> Input:
    """The coordinates of the mesh's nodes, which stay what they are."""
    mesh, vectors = own.c0.space.mesh, own.vectors

    def take(array: Any) -> Any:
        with vectors.comm.together():
            if not np.array_equal(vectors.to_host(array), mesh.points.astype(own.dtype)):
                raise ArgumentError("the nodes are not those of the mesh; make another SolutionMap on the moved mesh")
        return 0

    def form() -> Any:
        if own.robin is not None or vectors.max_norm(own.data):
            raise ArgumentError("by nodes, write loads and boundary data in the weak form: their integrals move, too")
        return own.form

    def pushed(x: Any, change: Any) -> Any:
        return own.c0.gather(change_by_nodes(form(), own.field(x), change), own.device).reshape(-1)

    def pulled(x: Any, w: Any) -> Any:
        return vectors.from_host(node_gradient(form(), own.field(x), own.field(w)))

    return Input(mesh.points.shape, take, pushed, pulled, order=1)


def _coefficient(own: Equation, owner: Any, name: str, kind: Any) -> Input:
    """A coefficient of the residual, of the weak form that has it."""
    number = name in owner.parameters
    if (kind == "number") != number:
        raise ArgumentError(
            f"input {name!r} is {shown(kind)}, in {owner.name} it is a {'number' if number else 'field'}"
        )

    def pulled(x: Any, w: Any, *changes: Any) -> Any:
        return own.form.pullback(own.field(x), own.field(w), name, *changes)

    def set_number(array: Any) -> Any:
        owner.parameters[name] = float(array)
        return 0

    if number:
        return Input((), set_number, lambda _, change: float(change), pulled, coefficient=True)
    field = owner.fields[name]
    if any(pair.constant for pair in field.data):
        raise ArgumentError(
            f"{name!r} of {owner.name} was evaluated when it was made, and cannot change; give it as a field in state"
            " 'phys', such as space.evaluate(function), or as a number"
        )
    every = [f for one in getattr(own.form, "summands", (own.form,)) for f in one.fields.values()]
    if sum(f is field for f in every) > 1:
        raise ArgumentError(f"the field {name!r} of {owner.name} is another coefficient, too; give that a copy")
    if owner.on is not None and kind != "function":
        raise ArgumentError(f"input {name!r} is {shown(kind)}, of {owner.name} on a boundary it is a 'function'")
    spread = _Spread(own, kind, field.components, None if owner.on is None else owner)

    def set_field(array: Any) -> Any:
        for pair, new in zip(field.data, spread.values(array).data, strict=True):
            pair.write(own.device)[...] = new.read(own.device)
        return 0

    return Input(
        spread.shape,
        set_field,
        lambda _, change: spread.values(change),
        lambda *given: spread.transposed(pulled(*given)),
        coefficient=True,
    )
