"""An operator on a space: one kernel per block, each chosen by itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np

from hpfem.shapes import Tabulation
from hpfem.shapes.arguments import integer, is_real, name_of, real, shown
from hpfem.shapes.arrays import Array

from ..backends.base import Backend, choose_backend
from ..backends.roofline import last_level_cache
from ..errors import ArgumentError, NotFinite, NotSuitable, StateError
from ..forms import Pointwise
from ..forms.cost import operator_bytes
from ..forms.form import BlockProblem, FieldValues, Form
from ..forms.linear import elliptic_part
from ..forms.lowered import lowered
from ..forms.trace import trace
from ..geometry import FactorSource
from ..geometry.element_map import CHUNK
from ..geometry.rounding import rounding_error
from ..memory import HOST, Device, OutOfMemory, PairArray
from ..space import Field, Space
from ..space.arguments import other_rule
from ..space.evaluation import evaluate_on_blocks
from ..space.field import check_state
from ..space.regions import ByRegion, CellValues, regional
from ..space.transforms import Evaluated, apply_kernels, backward_transform, no_room, resampled
from ..tuning import Tuning
from ..tuning.select import (
    AUTO,
    ByShape,
    Choice,
    agree,
    asked_by_shape,
    cell_times,
    choose_else_auto,
    expected_gain,
    is_auto,
)
from ..tuning.tuner import tune_blocks
from .arrays import check_current
from .linearised import Linearisation, linearised, made_operator, operator_instead, pulled_back, pushed_forward
from .parameters import Parameters, in_range
from .sums import Summable
from .tensors import flat, matrix_numbers, same_kind_everywhere, symmetric_part

# Components that a form may couple: tracing takes a symbol for each.
MAX_COUPLED = 1000
PRECISIONS = ("full", "mixed")
# Points of a block at which the error of rounded factors is measured.
_ERROR_POINTS = 10_000

Coefficient = float | Field | Callable[..., Any] | Sequence[Any] | CellValues


class OperatorOptions(TypedDict, total=False):
    """How an operator computes: options of every operator; see `Operator`."""

    strategy: ByShape
    algorithm: ByShape
    backend: str | None
    precision: str


class Operator(Summable):
    """A form applied to fields of a space.

    Calling it maps a field to a field. Threads may share it, each with an `out` of its own: the scratch of an
    application belongs to it alone. After an exception during an application, its `out` holds no values.

    Parameters
    ----------
    space : Space
    form : Form or Pointwise
        What is computed on an element; a pointwise function gives a weak form.
    name : str, optional
        Name in messages, caches and tables; by default that of the form or function.
    coefficients : mapping, optional
        Name -> number (a parameter), function of the coordinates, field, sequence of D numbers (a constant vector), or
        mapping from regions (`by_region`). Each application reads the present `parameters[name]` and "phys" fields;
        functions, mappings and "coeff" fields are evaluated once, here, to fields that are constant.
    components : int
        Components that the pointwise function couples.
    target : Space, optional
        Space of the results, on the same mesh: they are at its points, or for its basis functions. By default `space`.
    strategy : str or mapping
        "auto", "stdmat", "sumfac" or another strategy of the backend; or by shape,
        ``{"hex": "kronecker", "tet": "sumfac"}``. Other shapes, and blocks for which it is not suitable, take what
        "auto" takes; a warning and `explain` tell which. Collective if it is not "auto".
    algorithm : str or mapping
        "auto", "collocated" or "noncollocated"; likewise.
    backend : str, optional
        "auto", "numpy", "cpu" or "cuda"; the space's when left out.
    precision : str
        "mixed" allows geometric factors at points to be stored in float32, half the bytes, while arithmetic is in
        float64. The result is that of slightly different factors (`precision_error`). Coefficients that are multiplied
        into factors ("merged") are rounded with them. Nothing else is rounded, and nothing where elements are affine,
        where factors are recomputed or scaled, and in spaces of float32.
    parameters : mapping, optional
        Name -> number, in place of those in `coefficients`; each application reads it.

    Raises
    ------
    ArgumentError
        For unknown names, too few points, or coefficients that do not fit.
    NotSuitable
        If the strategy or algorithm asked for suits no block, on any process.
    DeviceError
        If the backend cannot run here.
    """

    # Whether all processes make it at once, and agree on the strategy and algorithm that are asked for.
    _agrees = True
    # Whether results are checked to be finite, as for functions that users write.
    guarded = False
    # Names of the coefficients that are vectors of D components, others are scalars; None if each may be either.
    vectors: tuple[str, ...] | None = None
    # Names of those that may also be tensors: D components, the diagonal, or D x D.
    tensors: tuple[str, ...] = ()
    # Of a derivative, what it is the derivative of.
    linearisation: Linearisation | None = None
    # The operator whose kernels it uses.
    _instead: Operator | None = None
    choices: tuple[Choice, ...]

    def __init__(
        self,
        space: Space,
        form: Form | Pointwise,
        *,
        name: str | None = None,
        coefficients: Mapping[str, Coefficient] | None = None,
        components: int = 1,
        target: Space | None = None,
        strategy: ByShape = "auto",
        algorithm: ByShape = "auto",
        backend: str | None = None,
        precision: str = "full",
        parameters: MutableMapping[str, float] | None = None,
    ) -> None:
        self.name = name = form.name if name is None else name
        if not isinstance(space, Space):
            raise ArgumentError(f"{name} is made on a Space, got {type(space).__name__}")
        self.space, self.target = space, space if target is None else self._checked_target(space, target)
        components = integer(components, 1, f"components of {name}", MAX_COUPLED)
        self.strategy, self.algorithm = strategy, algorithm
        self.precision = name_of(precision, PRECISIONS, "precision")
        self.backend = choose_backend(space.backend if backend is None else backend)
        self._device = self.backend.device()
        self.parameters: MutableMapping[str, float] = {}
        self.fields: dict[str, Field] = {}
        given = {} if coefficients is None else coefficients
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise ArgumentError(f"fields of {name} are a mapping from names, got {shown(coefficients)}")
        for key, value in given.items():
            self._take(key, value)
        self.parameters = Parameters(name, space.dtype, self.parameters) if parameters is None else parameters
        if isinstance(form, Pointwise):
            scalars = {key: 0 if field.components == 1 else field.components for key, field in self.fields.items()}
            traced = trace(form, space.dim, components, scalars, tuple(self.parameters))
            for node in traced.live:
                if node.op == "const" and math.isfinite(node.payload):
                    in_range(node.payload, f"a constant of pointwise function {form.name!r}", space.dtype)
            form = Form.weak(name, traced, components, bool(form.test))
        self.form, self.input_state, self.output_state = form, form.source, form.sink
        self._taken, self._given = form.coupled(space.dim), form.given(space.dim)
        if not self._agrees or is_auto(strategy, algorithm):
            self.rebuild()
            return
        with space.comm.together():
            self.rebuild()
        self._agree()

    def _checked_target(self, space: Space, target: Space) -> Space:
        """A space whose blocks have the cells of those of another."""
        if not isinstance(target, Space):
            raise ArgumentError(f"the target of {self.name} is a Space, got {type(target).__name__}")
        if target.mesh is not space.mesh or target.dtype != space.dtype:
            raise ArgumentError(f"the target of {self.name} must be a space on the same mesh and of the same dtype")
        return target

    def _take(self, key: str, value: Any) -> None:
        """Read a coefficient: a field, a function, a vector of D numbers, a tensor or a number."""
        what, dtype, dim = f"coefficient {key!r} of {self.name}", self.space.dtype, self.space.dim
        value, tensor = regional(value, self.space.mesh, (dim,), (dim, dim)), key in self.tensors
        if tensor and isinstance(value, ByRegion):
            value = same_kind_everywhere(value, dim)
        elif tensor and not isinstance(value, Field):
            value = flat(value) if callable(value) else matrix_numbers(value, dim) or value
        several = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
        if isinstance(value, Field):
            if value.space is not self.target:
                raise StateError(f"{what} is a field on another space")
            if value.state == "dual":
                raise StateError(f"{what} is a 'dual' field; give it in state 'phys' or 'coeff'")
            self.fields[key] = value if value.state == "phys" else backward_transform(value, self.backend)
        elif callable(value):
            self.fields[key] = self._evaluated(value)
            self.fields[key].function = value
        elif several and len(value) in (dim, dim * dim * tensor) and all(is_real(number) for number in value):
            numbers = [in_range(real(number, what), what, dtype) for number in value]
            self.fields[key] = self._evaluated(lambda *x: numbers)
        elif is_real(value) or isinstance(value, (bool, np.bool_)):
            self.parameters[key] = in_range(real(value * 1, what), what, dtype)
        else:
            raise ArgumentError(f"{what} is {shown(value)}; give {self._what_fits(key)}")
        if self.vectors is not None:
            found = self.fields[key].components if key in self.fields else 1
            wanted = (dim,) if key in self.vectors else (1, dim, dim * dim) if tensor else (1,)
            if found not in wanted:
                said = " or ".join(map(str, wanted))
                raise ArgumentError(f"{what} has {found} component(s), not {said}; give {self._what_fits(key)}")
            if tensor and found == dim * dim and not isinstance(value, Field):
                self._keep_symmetric(key)
        if key in self.fields and self.fields[key] is not value:  # nobody else has it
            for pair in self.fields[key].data:
                pair.constant = True

    def _keep_symmetric(self, key: str) -> None:
        """Keep the independent entries of a tensor, if it is symmetric."""
        pairs = self.fields[key].data
        home = pairs[0].home
        arrays = symmetric_part([pair.read(home) for pair in pairs], self.space.dim)
        if arrays is not None:
            function = self.fields[key].function
            self.fields[key] = Field(self.target, "phys", [PairArray.of(array, home) for array in arrays])
            self.fields[key].function = function

    def _evaluated(self, function: Callable[..., Any]) -> Field:
        """Values of a function at the points, made where the operator computes if they are many."""
        blocks = self.target.blocks
        # A device's library compiles its array operations first, which takes longer than NumPy for few numbers.
        few = sum(block.n_elements * block.n_points for block in blocks) * self.space.dim <= CHUNK
        device, backend = self._device, self.backend
        if few and device.name != HOST.name:
            device, backend = HOST, choose_backend("auto")
        arrays = evaluate_on_blocks(function, blocks, self.space.dtype, backend)
        return Field(self.target, "phys", [PairArray.of(array, device) for array in arrays])

    def _what_fits(self, key: str) -> str:
        number, several = "a real number", f"a sequence of {self.space.dim} numbers"
        fits = f"{number}, {several}" if self.vectors is None else several if key in self.vectors else number
        if key in self.tensors:
            fits = f"{number}, {self.space.dim} (a diagonal) or {self.space.dim} x {self.space.dim} of them"
        cells = self.space.mesh.n_cells
        return f"{fits}, a function of the coordinates, a field, a mapping from regions or an array for {cells} cells"

    def at(self, space: Space | Field) -> Operator:
        """Make the same operator on another space on the same cells, with another order, basis, rule or type; or take a
        linearisation at another function.

        Parameters
        ----------
        space : Space or Field
            Made from this operator's space by `Space.at`. Of a linearisation (`linearised`), a function of its space:
            the derivative is taken there from now on, with the form's present parameters, in the same memory and with
            the same kernels.

        Returns
        -------
        Operator
            With the present parameters, and its fields at the points of `space`; or this operator.

        Raises
        ------
        ArgumentError
            If a parameter is out of the range of the space's type, or a function is given to what is no linearisation.
        """
        if isinstance(space, Field):
            if self.linearisation is None:
                raise ArgumentError(f"{self.name} is no linearisation, which is at a function; see linearised")
            self.linearisation.renew(self, space)
            return self
        fields = {key: resampled(field, space, self.device) for key, field in self.fields.items()}
        given: dict[str, Coefficient] = {**self.parameters, **fields}
        return self.alike(space, self.form, self.name, given)

    def alike(self, space: Space, form: Form, name: str, given: Mapping[str, Coefficient], **options: Any) -> Operator:
        """An operator of another form on the same backend, in the same precision; for the arguments see `Operator`."""
        how = {"backend": self.backend.name, "precision": self.precision, **options}
        return Operator(space, form, name=name, coefficients=given, components=form.components, **how)

    def linearised(self, u: Field, store: str = "cheap") -> Operator:
        """Make the derivative of a weak form at a function: v -> d/dt r(u + t v) at t = 0.

        It is an operator like any other. Where the form's function takes a branch (`where`, `abs`, minimum, maximum),
        it is the derivative of that branch; comparisons have the derivative 0.

        Parameters
        ----------
        u : Field
            In state "coeff". A copy is kept; `at` takes the derivative elsewhere.
        store : str
            What is kept at the points: "cheap", the fewest numbers such that the kernel computes no power and no other
            elementary function but roots; "fewest", the fewest numbers; "matrix", the entries of the pointwise
            matrix, equal ones once. Fields of the user are read beside them. `explain` tells how much it is.

        Returns
        -------
        Operator

        Raises
        ------
        ArgumentError
            For an operator that is no weak form of a pointwise function, an unknown `store`, or a derivative of too
            many operations.
        StateError
            If `u` does not fit.
        """
        return linearised(self, u, store)

    def transposed(self) -> Operator:
        """Make the transpose of a linearisation, at the same function; see `linearised`."""
        if self.linearisation is None:
            raise ArgumentError(f"{self.name} is no linearisation, which has a transpose; see linearised")
        own = self.linearisation
        return linearised(own.form, own.u, own.store, not own.transposed)

    def pullback(self, u: Field, w: Field, name: str | None = None, *changes: Mapping[str, Any]) -> Any:
        """Apply the transposed derivative of a weak form r at a function: the derivative of (r(u), w).

        Parameters
        ----------
        u, w : Field
            In state "coeff".
        name : str, optional
            Of a coefficient by which to differentiate; by default, the derivative is by u.
        *changes : mapping
            Directions in which to differentiate the result, one after the other; see `pushforward`. So second
            derivatives are ``pullback(u, w, name, change)``.

        Returns
        -------
        Field or float
            By u a functional ("dual"); by a number a number, the same on all processes; by a field its density at the
            points ("phys"): the change of (r(u), w) is the integral of its product with the change of the field. So the
            derivative by the value in a region is `space.integrate(density, region)`, and by the coefficients of a
            function `IProductWRTBase(space)(density)`.

        Raises
        ------
        ArgumentError
            For an operator that is no weak form of a pointwise function, or an unknown name.
        StateError
            If `u` or `w` does not fit.
        """
        return pulled_back(self, u, w, name, changes)

    def pushforward(self, u: Field, *changes: Mapping[str, Any]) -> Field:
        """Differentiate r(u) along changes, of which each is of "u", a "coeff" field, and of coefficients by name,
        numbers or "phys" fields; of two it is the second derivative. -> a functional ("dual"); see `pullback`.
        """
        return pushed_forward(self, u, changes)

    def elliptic_part(self) -> Operator:
        """Make the operator of the weak form's diffusion and reaction; see `hpfem.forms.linear.elliptic_part`."""
        if self.form.trace is None or not self.form.test:
            raise NotSuitable("only weak forms have an elliptic part")
        trial, name = (("u", self.form.components),), f"elliptic part of {self.name}"
        made = made_operator(self, lowered(elliptic_part(self.form.trace), trial, name, derived=False))
        made.guarded = False
        return made

    @property
    def numbers(self) -> tuple[float, ...]:
        """The present parameters, and how often values that are stored at the points were made anew."""
        times = [float(field.times) for field in self.fields.values() if isinstance(field, Evaluated)]
        return *self.parameters.values(), *times

    def problem(self, number: int) -> BlockProblem:
        """Tell what kernels are specialised by on a block.

        Parameters
        ----------
        number : int
            Of the block.

        Returns
        -------
        BlockProblem
        """
        if self._instead is not None:
            return self._instead.problem(number)
        modes, points = self.space.blocks[number], self.target.blocks[number]
        if not self.form.from_modes:
            modes, points = points, modes
        tabulation = points.tabulation if modes is points else Tabulation(modes.basis, points.rule)
        fields = {
            key: FieldValues(field.data[number], self.device, field.components > 1)
            for key, field in self.fields.items()
        }
        return BlockProblem(
            self.form,
            tabulation,
            points.geometry,
            self.space.dtype,
            fields=fields,
            parameters=self.parameters,
            mixed=self.precision == "mixed",
        )

    def _asked(self) -> list[tuple[BlockProblem, str, str, Backend]]:
        """The arguments of `choose`, for every block, after what is not suitable was replaced."""
        return [(self.problem(number), *choice.asked, self.backend) for number, choice in enumerate(self.choices)]

    def __getstate__(self) -> dict[str, Any]:
        # Kernels hold compiled code and scratch; unpickling makes the same ones again.
        state = {key: value for key, value in self.__dict__.items() if key not in ("choices", "_device")}
        return {**state, "known": [choice.known for choice in self.choices]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = state.pop("known")
        self.__dict__.update(state)
        self._device = self.backend.device()
        self.rebuild(known)

    def rebuild(self, known: Sequence[Any] = ()) -> None:
        """Choose and build the kernels again, for example after equal blocks were tuned elsewhere.

        Kernels are compiled in the background; the first application waits for it. Those of which products with global
        vectors take variants are compiled for it.

        Parameters
        ----------
        known : sequence, optional
            For each block the `Choice.known` that is preferred, if it can be built.

        Raises
        ------
        DeviceError
            If there is no room on the device.
        """
        again, self._instead = hasattr(self, "choices"), operator_instead(self)
        if self._instead is not None:
            if again:
                self._instead.rebuild(known)
            self.choices = self._instead.choices
            return
        choices, ways = [], self._ways()
        try:
            for number, block in enumerate(self.space.blocks):
                asked = *ways[block.shape.name], self.backend
                choices.append(choose_else_auto(self.problem(number), *asked, known[number] if known else None))
        except OutOfMemory as error:
            raise no_room(self.space, number, self.form, self.form.components, self.device, error) from error
        self.choices = tuple(choices)

    def _ways(self) -> dict[str, tuple[str, str]]:
        return asked_by_shape(self.strategy, self.algorithm, self.backend)

    def _agree(self) -> None:
        """Warn of what is not as asked for, or refuse it; collective, see `agree`."""
        own, ways = [], self._ways()
        for block, choice in zip(self.space.blocks, self.choices, strict=True):
            shape, refusal = block.shape.name, choice.refusal
            text = f"{block.geometry.kind.name} {shape}, P={block.order}: {choice.config} ({refusal})" * bool(refusal)
            own += [(ways[shape], refusal, text)] * bool(block.n_elements)
        agree(self.name, self.space.comm, own)

    def tune(self, seconds: float = 30.0) -> list[Tuning]:
        """Time the possible kernels of each block, keep the fastest for all equal operators, and use it from now on.

        Fields are not changed: blocks are timed on other data, and large blocks only in part.

        Parameters
        ----------
        seconds : float
            Time for all blocks together; a measurement that is running then is finished.

        Returns
        -------
        list of Tuning
            One per block; one for several equal blocks.

        Raises
        ------
        ArgumentError
            If there are no seconds.
        DeviceError
            If another GPU is current than the operator was made on, or there is no room on it.
        """
        return tune_operators([self], seconds)

    def __repr__(self) -> str:
        return f"{self.name}({self.space!r}, backend={self.backend.name!r})"

    @property
    def device(self) -> Device:
        """The device on which it was made, and computes."""
        return self._device

    @property
    def flops(self) -> int:
        """Operations of one application to a one-component field, by the strategies chosen."""
        return sum(choice.kernel.flops * choice.kernel.problem.n_elements for choice in self.choices)

    @property
    def nbytes(self) -> int:
        """Compulsory bytes of one application to a one-component field (`hpfem.forms.cost.operator_bytes`)."""
        problems = [choice.kernel.problem for choice in self.choices]
        return sum(operator_bytes(problem) * problem.n_elements for problem in problems)

    def cell_weights(self) -> Array:
        """Time of each cell of this process relative to others, as weights for `hp.distribute`; collective.

        It is what tuning has measured if it knows all blocks on all processes, else what the strategies' models expect.

        Returns
        -------
        ndarray, [n_cells]
            By the cells' numbers in `space.mesh`.
        """
        mesh, blocks = self.space.mesh, self.space.blocks
        found = [cell_times(*asked) for asked in self._asked()]
        tuned = [time is not None for block, (time, _) in zip(blocks, found, strict=True) if block.n_elements]
        which = 0 if mesh.comm.all(all(tuned)) else 1
        weights = np.empty(mesh.n_cells)
        for block, times in zip(blocks, found, strict=True):
            weights[block.elements] = times[which]
        return weights

    @property
    def precision_error(self) -> float:
        """Relative error of the operator by `precision="mixed"`, measured; 0 if nothing is rounded.

        It is the largest relative change of w|J|, and of w|J| |grad u|^2 for any u, at thousands of points of elements
        spread over each block. For a symmetric form whose coefficients are scalars >= 0, such as Helmholtz,
        |(B u - A u, u)| on these elements is at most `precision_error` times (A u, u), where A is the operator and B
        that of rounded factors. Coefficients that are merged into the factors count as parts of these; if one is a
        tensor, this holds for its energy; of a singular one the relative error is large or infinite. Each of several
        processes looks at its own cells.
        """
        return max([self._rounding_error(choice.kernel.problem) for choice in self.choices], default=0.0)

    @staticmethod
    def _rounding_error(problem: BlockProblem) -> float:
        kind, dtype = problem.read_factors, problem.factors_dtype
        if kind is None or dtype == problem.dtype:
            return 0.0
        return rounding_error(problem.geometry, kind, dtype, _ERROR_POINTS)

    def explain(self) -> str:
        """Describe, per block, the choice and its reason, unsuitable strategies, and the geometric factors.

        Reasons are: measured here (`tune`), with the speed-up over the second; the shipped table of measured speeds or
        the least time by a model, with the expected speed-up over the next best; or asked for. Of triangles and tets
        it says if the rule is "simplex", and where the other of "simplex" and "collapsed" is expected to be faster: a
        space's default does not depend on the device. Of factors that no cache of the host holds it says what those of
        `precision="mixed"` save.

        Returns
        -------
        str
        """
        lines = [f"{self.name} on backend {self.backend.name}"]
        lines += [str(self.linearisation)] if self.linearisation is not None else []
        for number, (choice, block) in enumerate(zip(self.choices, self.space.blocks, strict=True)):
            rule = "" if block.rule.tensor else "simplex rule, "
            line = f"  {block!r}: {rule}{choice.config} ({choice.reason})"
            if gain := expected_gain(choice, self.problem(number), self.backend):
                line += f", {gain}"
            if self.form.factor_kind is not None:
                line += f"; {_factors_read(choice.kernel.problem)}"
                if error := self._rounding_error(choice.kernel.problem):
                    line += f" in {choice.kernel.problem.factors_dtype}, relative error {error:.1e}"
            lines.append(line)
            lines += [f"    not as asked for: {choice.refusal}"] if choice.refusal else []
            lines += [f"    not {reason}" for reason in choice.unsuitable if reason not in choice.refusal]
            lines += self._in_float32(choice.kernel.problem) + self._on_other_rule(choice.kernel.problem)
        return "\n".join(lines)

    def _in_float32(self, problem: BlockProblem) -> list[str]:
        """A line about factors in float32, if those that are read fit no cache."""
        rounded = replace(problem, mixed=True)
        full, least = operator_bytes(problem), operator_bytes(rounded)
        if (full - least) * problem.n_elements <= last_level_cache():
            return []
        return [
            f"    precision='mixed': factors in float32, up to {full / least:.2f} times as fast where memory binds"
            f"; relative error {self._rounding_error(rounded):.1e}"
        ]

    def _on_other_rule(self, problem: BlockProblem) -> list[str]:
        """A line about the other rule of a simplex, if it is expected to gain."""
        basis, rule = problem.tabulation.basis, problem.tabulation.rule
        found = other_rule(problem.shape, basis.order, rule)
        if found is None:
            return []
        name, other = found
        moved = replace(problem, tabulation=Tabulation(basis, other), geometry=problem.geometry.on_rule(other))
        own, least = (cell_times(p, *AUTO, self.backend)[1] for p in (problem, moved))
        if not own > 1.05 * least > 0:
            return []
        return [
            f"    quadrature={name!r}: {len(other)} points, not {len(rule)}, expected {own / least:.2f} times as fast"
        ]

    def _check(self, field: Field) -> int:
        """Check the argument; returns the components of the result."""
        if field.space is not self.space:
            raise StateError(f"{self.name} got a field on another space")
        check_state(field, self.input_state, self.name)
        n, components, taken = self.form.components, field.components, self._taken
        if components % n:
            raise StateError(f"{self.name} couples {n} components, got a field with {components}")
        if components % taken:
            raise StateError(f"{self.name} takes vectors of {taken} components, got a field with {components}")
        return components // taken * self._given

    def apply_to_field(self, field: Field, out: Field | None = None) -> Field:
        """Apply to a field; see `FieldMap.__call__`."""
        out, device = self.result(field, self._check(field), out), self.device
        self.check_device()
        apply_kernels([choice.kernel for choice in self.choices], field, out, device)
        if self.guarded and device.name == HOST.name:
            self._check_finite(field, out)
        return out

    def check_device(self) -> None:
        """Refuse another current device than the one on which the operator was made; see `check_current`."""
        check_current(self.name, self.device, self.backend.device())

    def _check_finite(self, field: Field, out: Field) -> None:
        """Say in which cell the user's pointwise function, or its argument, is not finite."""
        for block, source, target in zip(self.space.blocks, field.data, out.data, strict=True):
            result = target.read()
            with np.errstate(invalid="ignore", over="ignore"):
                if np.isfinite(np.sum(result)):
                    continue
            bad = ~np.isfinite(result).all(axis=(0, 2))
            if not bad.any():  # the sum alone overflowed
                continue
            element = int(np.argmax(bad))
            where = f"cell {block.elements[element]} ({block.shape.name})"
            if not np.isfinite(source.read()[:, element]).all():
                raise StateError(f"{self.name} got a field that is not finite in {where}")
            raise NotFinite(
                f"pointwise function {self.name!r} gives values that are not finite in {where} and"
                f" {np.count_nonzero(bad) - 1} more cell(s) of its block; guard it with np.where or np.maximum"
            )


def _factors_read(problem: BlockProblem) -> str:
    """What a kernel reads of the geometry, in words."""
    geometry, read = problem.geometry, [problem.read_factors or "", *["map"] * problem.source.scales]
    counts = [(geometry.n_factors(kind), "element" if geometry.affine or kind == "map" else "point") for kind in read]
    source = "" if problem.source is FactorSource.STORED else f", {problem.source}"
    return f"{problem.form.factor_kind}{source}: " + " and ".join(f"{n} numbers per {where}" for n, where in counts)


def tune_operators(
    operators: Sequence[Operator], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> list[Tuning]:
    """Tune the blocks of operators, keep the fastest kernels, and let the operators use them; see `Operator.tune`. Each
    block gets an equal share of the time that is left.
    """
    for operator in operators:
        check_current(operator.name, operator.device, operator.backend.device())
    found = tune_blocks([asked for operator in operators for asked in operator._asked()], seconds, clock)
    for operator in operators:
        operator.rebuild()
    return found
