"""Integrals of functions and fields by a rule finer than the space's: errors of solutions, moments of right-hand sides.

No array of the size of all points is made: elements are taken a bounded number at a time, on the device where the
operators compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import frexp, hypot
from typing import Any

import numpy as np

from hpfem.shapes import Tabulation
from hpfem.shapes.arguments import flag, instance, integer, is_real, shown

from ..assembly import C0Space
from ..assembly.boundary import component_numbers
from ..backends import choose_backend, vectors_on
from ..backends.base import Backend
from ..backends.vectors import scaled
from ..errors import ArgumentError, HpfemError, StateError
from ..forms.form import BWD_TRANS, IPRODUCT_WRT_BASE, BlockProblem, Form
from ..operators import BwdTrans, PhysDeriv
from ..space import Field, Space
from ..space.arguments import MAX_POINTS, chosen_rule, simplex_rules
from ..space.block import Block
from ..space.evaluation import compiled_function, value_chunks, values_by_chunk
from ..space.field import check_state
from ..space.reference import reference_geometry
from ..space.regions import ByRegion, CellValues, regional
from ..support.communicator import Communicator
from ..tuning.select import choose

# Right-hand sides: a number, a field, a function, or a number for each component; or one of these by region.
Source = Callable[..., Any] | float | Sequence[float] | CellValues | Field

# Additional points for functions. Bytes of the measure at the points of a block that a device keeps.
_MORE, _KEPT = 2, 32 << 20


def finer_blocks(space: Space, more: int) -> list[Block]:
    """The blocks of a space with finer rules than the space has, or than the default one.

    Tets and tris get the simplex rule of an order that is higher by `more`, where there is one: it has 0.3 to 0.6 of
    the points. The others get more points in each direction.
    """
    blocks, asked = list[Block](), space.quadrature if isinstance(space.quadrature, int) else 0
    for block in space.blocks:
        shape, order, further = block.shape, block.order, max(asked, 0) + more
        rule = simplex_rules({shape.name: order + further}).get(shape.name) or chosen_rule(shape, order, further)
        blocks.append(Block(Tabulation(block.basis, rule), block.geometry.on_rule(rule), block.elements))
    return blocks


class _Reference:
    """A form without gradients on some elements that are all the reference element; values at points include |J|."""

    def __init__(self, form: Form, block: Block, backend: Backend) -> None:
        self.block, self.backend, self.xp = block, backend, vectors_on(backend.device()).xp
        self.size = max(1, next(value_chunks(block, self.xp)).stop)
        geometry = reference_geometry(block, self.size)
        problem = BlockProblem(form, block.tabulation, geometry, np.dtype(np.float64))
        self._problem, self._kernel = problem, choose(problem, "auto", "auto", backend).kernel
        self._device, self._kept, self._room = backend.device(), dict[int, Any](), 0 if self.xp is np else _KEPT

    def measure(self, some: slice) -> Any:
        """|J| at the points of some elements, [n, Q] or [n, 1]; a device keeps it while that is little."""
        found = self._kept.get(some.start)
        if found is None:
            found = self.backend.volume_factors(self.block.geometry, some)
            if found.nbytes <= self._room:
                self._device.wait(None)  # other streams may read it
                self._kept[some.start], self._room = found, self._room - found.nbytes
        return found

    def runner(self) -> Callable[..., Any]:
        """A function that applies it to [n, input], n at most `size`; its result is valid until the next call."""
        source = self.xp.zeros((1, self.size, self._problem.n_input))
        result = self.xp.empty((1, self.size, self._problem.n_output))

        def apply(values: Any, factor: Any = 1.0) -> Any:
            self.xp.multiply(values, factor, out=source[0, : len(values)])
            self._kernel.apply(source, result)
            return result[0, : len(values)]

        return apply


class _Squares:
    """A sum of squares of numbers of any size, stored as 4^k times a float."""

    def __init__(self) -> None:
        self._sum, self._k = 0.0, -2000

    def add(self, values: Any, measure: Any) -> None:
        """Add measure * values^2."""
        if not values.size:
            return
        k = frexp(float(abs(values).max()))[1]
        if k > self._k:
            self._sum, self._k = self._sum * 4.0 ** max(self._k - k, -500), k
        self._sum += float((scaled(values, -self._k) ** 2 * measure).sum())

    def root(self, comm: Communicator) -> float:
        """The root of the sum over processes."""
        return hypot(*comm.allgather(float(scaled(self._sum**0.5, self._k))))


def load(c0: C0Space, f: Source, components: int = 1) -> Any:
    """The functional (f, v) on continuous functions, f as for `Problem.solve`: float64, where the space computes.

    Functions and values by region are integrated by a finer rule, numbers by that of the space; -> [size], or
    [components, size] with more than one component.
    """
    return Loads(c0, components)(f)


class Loads:
    """Functionals (f, v) for one f after the other, see `load`; everything that does not depend on f is made once."""

    def __init__(self, c0: C0Space, components: int) -> None:
        self.c0, self.components, self.backend = c0, components, choose_backend(c0.space.backend)
        self._tests: dict[bool, list[_Reference]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Loads, (self.c0, self.components)

    def __call__(self, f: Source) -> Any:
        """Make the functional of a right-hand side; as `load`."""
        space, device = self.c0.space, self.backend.device()
        f = regional(f, space.mesh, (self.components,))
        if isinstance(f, ByRegion):
            f = f.spread(self.components)
        if isinstance(f, Field):
            if f.space is not space:
                raise StateError("f is a field on another space")
            if f.state == "coeff":
                raise StateError("f is a 'coeff' field; give it in state 'phys' or 'dual'")
            self._check_components(f.components)
        elif not callable(f):
            if self.components == 1 and not is_real(f):
                raise ArgumentError(f"f is {shown(f)}; give a finite number, a function or a field")
            f = component_numbers(f, self.components, "f")
        xp = vectors_on(device).xp
        if isinstance(f, Field) and f.state == "dual":
            moments = xp.concatenate([pair.read(device).reshape(self.components, -1) for pair in f.data], axis=1)
        else:
            function = f if callable(f) and not isinstance(f, Field) else None
            tests = self._of_blocks(function is not None)
            blocks = [test.block for test in tests]
            with space.mesh.comm.together():
                compiled = None if function is None else compiled_function(function, blocks, self.backend)
                # Of all blocks in one array: memory that is used for the first time costs much.
                starts = np.cumsum([0, *(block.n_elements * block.n_modes for block in blocks)]).tolist()
                moments = xp.empty((self.components, starts[-1]))
                for number, (test, a, b) in enumerate(zip(tests, starts, starts[1:], strict=False)):
                    self._write_moments(moments[:, a:b], f, test, number, compiled)
        of_each = [self.c0.gathered(row, device) for row in moments]
        return of_each[0] if self.components == 1 else xp.stack(of_each)

    def begin(self) -> None:
        """Begin to compile what functions need, if that is done apart; what is wrong is said where it is needed."""
        if self.backend.apart:
            with suppress(HpfemError, MemoryError):
                self._of_blocks(True)

    def _of_blocks(self, finer: bool) -> list[_Reference]:
        """Inner products of values with the modes, block by block; by a finer rule, or by that of the space."""
        if finer not in self._tests:
            blocks = finer_blocks(self.c0.space, _MORE) if finer else self.c0.space.blocks
            self._tests[finer] = [_Reference(IPRODUCT_WRT_BASE, block, self.backend) for block in blocks]
        return self._tests[finer]

    def _check_components(self, found: int) -> None:
        wanted = self.components
        if found != wanted:
            raise ArgumentError(f"f has {found} components, {'one is' if wanted == 1 else f'{wanted} are'} wanted")

    def _write_moments(self, out: Any, f: Any, test: _Reference, number: int, compiled: Any) -> None:
        """Write inner products of a right-hand side with the modes of a block; out [components, E * n_modes]."""
        block, apply = test.block, test.runner()
        moments = out.reshape(self.components, block.n_elements, block.n_modes)
        for chunk, values in _values(f, block, number, test.xp, self.backend.device(), compiled):
            self._check_components(len(values))
            measure = test.measure(chunk)
            for component, value in zip(moments, values, strict=True):
                component[chunk] = apply(measure, value)  # a number, perhaps


def _values(f: Any, block: Block, number: int, xp: Any, device: Any, compiled: Any) -> Iterator[tuple[slice, Any]]:
    """Values of a right-hand side at the points of a block by component, a bounded number of elements at a time."""
    if callable(f) and not isinstance(f, Field):
        yield from values_by_chunk(f, block, np.dtype(np.float64), xp, compiled)
        return
    given = f.data[number].read(device) if isinstance(f, Field) else None
    for chunk in value_chunks(block, xp):
        yield chunk, f if given is None else given[:, chunk].astype(np.float64)


def l2_error(field: Field, exact: Callable[..., Any] | CellValues, relative: bool = True, more: int = 3) -> float:
    """L2 norm of the difference of a field and a function, by a rule finer than that of the field's space.

    Parameters
    ----------
    field : Field
        State "coeff".
    exact : callable or mapping
        Of the D coordinates; or values by region (`by_region`) or by cell.
    relative : bool
        Whether to divide by the function's norm.
    more : int
        By how many the rule is finer than the default one: points in each direction, or orders of the simplex rule.

    Returns
    -------
    float

    Raises
    ------
    StateError
        If the field is not in state "coeff".
    ArgumentError
        If it is no field, or the function does not fit.
    """
    check_state(instance(field, Field, "the field"), "coeff", "l2_error")
    backend = choose_backend(field.space.backend)
    device = backend.device()
    xp, blocks = vectors_on(device).xp, finer_blocks(field.space, integer(more, 0, "more", MAX_POINTS))
    wanted = regional(exact, field.space.mesh)
    misfit, norm = _Squares(), _Squares()
    compiled = compiled_function(wanted, blocks, backend) if callable(wanted) else None
    comm = field.space.mesh.comm
    with comm.together():
        for block, pair in zip(blocks, field.data, strict=True):
            evaluate, coefficients = _Reference(BWD_TRANS, block, backend).runner(), pair.read(device)
            weights = xp.asarray(block.rule.weights)
            for chunk, values in values_by_chunk(wanted, block, np.dtype(np.float64), xp, compiled):
                if len(values) != field.components:
                    raise ArgumentError(f"the function has {len(values)} components, the field {field.components}")
                measure = weights * backend.volume_factors(block.geometry, chunk)
                for component, exactly in zip(coefficients, values, strict=True):
                    misfit.add(evaluate(component[chunk]) - exactly, measure)
                    norm.add(exactly, measure)
    return _ratio(misfit.root(comm), norm.root(comm), relative)


def _ratio(misfit: float, norm: float, relative: bool) -> float:
    if not flag(relative, "relative"):
        return misfit
    if norm == 0:
        raise ArgumentError("there is no error relative to a function that is zero everywhere; give relative=False")
    return misfit / norm


def h1_error(
    field: Field, exact: Callable[..., Any], gradient: Callable[..., Any], relative: bool = True, more: int = 3
) -> float:
    """H1 norm of the difference of a field and a function: of values and of first derivatives; see `l2_error`.

    Parameters
    ----------
    exact : callable
        Of the D coordinates.
    gradient : callable
        Its derivatives: a component for each of the D coordinates, of several components of the function one after
        the other.
    more : int
        Points more than the default rule in each direction.
    """
    check_state(instance(field, Field, "the field"), "coeff", "h1_error")
    space = field.space.at(quadrature=integer(more, 0, "more", MAX_POINTS), dtype=np.float64)
    arrays = [pair.read().astype(np.float64) for pair in field.data]
    values = BwdTrans(space)(space.field("coeff", arrays))
    misfit = norm = 0.0
    for found, function in ((values, exact), (PhysDeriv(space)(values), gradient)):
        with space.comm.together():
            exactly = space.evaluate(function)
        if exactly.components != found.components:
            raise ArgumentError(
                f"the function has {field.components} component(s) and {found.components} values or derivatives are"
                f" compared, but {exactly.components} are given"
            )
        misfit, norm = float(np.hypot(misfit, space.norm(found - exactly))), float(np.hypot(norm, space.norm(exactly)))
    return _ratio(misfit, norm, relative)
