"""What an operator computes on an element, as data: input, evaluation, pointwise function, test.

operator                 source  trial           pointwise      test            sink
BwdTrans                 coeff   value           -              -               phys
IProductWRTBase          phys    value           w|J|           value           dual
PhysDeriv                phys    grad            J^-1           -               phys, D per component
IProductWRTDerivBase     phys    value           w|J| J^-1      grad            dual, of D per component
weak forms               coeff   its arguments   function       its results     dual
AtPoints                 coeff   its arguments   function       -               phys

Coefficients are evaluated with the basis. Values at the points are given: their gradient is collocated.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from hpfem.shapes import Tabulation
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError
from ..geometry import BlockGeometry, FactorSource
from ..geometry.rounding import outside
from ..memory import Device, PairArray
from .trace import Trace

ALGORITHMS = ("collocated", "noncollocated")


class Term(NamedTuple):
    """What a form takes of a trial or test function."""

    what: str  # "value" or "grad"
    field: str = "u"  # a form on several fields names each


VALUE, GRAD = Term("value"), Term("grad")


class Form:
    """An operator on the reference element: a row of the table above.

    Parameters
    ----------
    name : str
        The operator's name, for messages, caches and tables.
    source : str
        "coeff", coefficients in the basis, or "phys", values at the points.
    trial : tuple of Term
        What is evaluated at the points; nothing if the function does not depend on it.
    test : tuple of Term
        The test factors of the values at the points; nothing if these values are the result.
    trace : Trace or None
        The pointwise function; the Python function is no longer needed. Without one, the evaluated values are tested,
        see `components_out`.
    components : int
        Components that the pointwise function couples; a form with 1 is applied to every component of a field.
    """

    def __init__(
        self,
        name: str,
        source: str,
        trial: tuple[Term, ...],
        test: tuple[Term, ...],
        trace: Trace | None = None,
        components: int = 1,
    ) -> None:
        self.name, self.source, self.trial, self.test = name, source, trial, test
        self.trace, self.components = trace, components
        self.sink = "dual" if test else "phys"  # state of the result
        # Whether coefficients go in, and whether the result is tested with the basis.
        self.from_modes, self.to_modes = source == "coeff", bool(test)
        self.trial_value, self.trial_gradient = VALUE in trial, GRAD in trial
        self.test_value, self.test_gradient = VALUE in test, GRAD in test
        self.gradients = self.trial_gradient or self.test_gradient
        # Whether values at the points are differentiated; else gradients are of the basis, by two algorithms.
        self.always_collocated = self.trial_gradient and not self.from_modes
        self.has_algorithms = self.test_gradient or (self.trial_gradient and self.from_modes)
        # Kind of geometric factors that the form needs (`hpfem.geometry`); None if it needs none.
        self.factor_kind: str | None = "jacobian"
        if not self.gradients:
            self.factor_kind = "wJ" if test else None
        elif test and trace is not None and not trace.general:
            self.factor_kind = "metric"

    @classmethod
    def weak(cls, name: str, trace: Trace, components: int = 1, tested: bool = True) -> Form:
        """A weak form: the arguments of its function are evaluated, its results are tested, or are the values at the
        points; see `Form`.
        """
        used = ((VALUE, trace.uses_value), (GRAD, trace.uses_gradient))
        trial = tuple(term for term, is_used in used if is_used)
        return cls(name, "coeff", trial, tuple(map(Term, trace.test)) if tested else (), trace, components)

    def coupled(self, space_dim: int) -> int:
        """Count the components of the input that one application takes together.

        Parameters
        ----------
        space_dim : int
            D.

        Returns
        -------
        int
        """
        return space_dim if self.trace is None and self.test_gradient else self.components

    def given(self, space_dim: int) -> int:
        """Count the components of the result of one application; see `coupled`."""
        if self.trace is not None:
            return self.trace.given
        return space_dim if self.trial_gradient else self.components


BWD_TRANS = Form("BwdTrans", "coeff", (VALUE,), ())
IPRODUCT_WRT_BASE = Form("IProductWRTBase", "phys", (VALUE,), (VALUE,))
PHYS_DERIV = Form("PhysDeriv", "phys", (GRAD,), ())
IPRODUCT_WRT_DERIV_BASE = Form("IProductWRTDerivBase", "phys", (VALUE,), (GRAD,))


@dataclass(frozen=True, eq=False)
class FieldValues:
    """A named field at the points of a block."""

    pair: PairArray  # [components, E, Q]
    device: Device  # of the kernel that uses it
    vector: bool  # whether the pointwise function gets a vector, even of one component, or a scalar

    @property
    def values(self) -> Any:
        """The current values on the device."""
        return self.pair.read(self.device)


@dataclass(eq=False)
class BlockProblem:
    """Everything a strategy is specialised by: a form on a block."""

    form: Form
    tabulation: Tabulation  # basis on the block's rule
    geometry: BlockGeometry  # mapping of the block's elements
    dtype: np.dtype[Any]  # of fields and arithmetic
    # "collocated" or "noncollocated" ([Xing] Alg. 5 and 6); without meaning if the form has no gradients.
    algorithm: str = "collocated"
    fields: Mapping[str, FieldValues] = field(default_factory=dict)  # of the form, by name
    parameters: Mapping[str, float] = field(default_factory=dict)  # by name; kernels take them at run time
    source: FactorSource = FactorSource.STORED  # of geometric factors; for another one `hpfem.forms.sources.of_source`
    mixed: bool = False  # whether factors may be stored in float32 under arithmetic in float64; see `stored_dtype`

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ArgumentError(f"unknown algorithm {self.algorithm!r}; valid: {', '.join(ALGORITHMS)}, auto")
        form, space_dim = self.form, self.geometry.space_dim
        self.shape, self.n_modes = self.tabulation.basis.shape, self.tabulation.basis.n_modes
        self.n_points = len(self.tabulation.rule)
        # Values of one component of an element; whether derivatives are those of the values at the points; components
        # of the input that one application takes together, and of its result.
        self.n_input = self.n_modes if form.from_modes else self.n_points
        self.n_output = self.n_modes if form.to_modes else self.n_points
        self.collocated = self.algorithm == "collocated" or form.always_collocated
        self.coupled, self.given = form.coupled(space_dim), form.given(space_dim)

    @property
    def n_elements(self) -> int:
        """Number of elements of the block."""
        return self.geometry.n_elements

    @property
    def code_key(self) -> bytes:
        """All that the problem's code depends on: the problem without elements, fields and parameters, pickled."""
        rounded = self.factors_dtype != self.dtype  # depends on the elements' volumes, which are left out
        geometry = self.geometry.without_elements()
        return pickle.dumps(replace(self, geometry=geometry, fields={}, parameters={}, mixed=rounded))

    @property
    def read_factors(self) -> str | None:
        """Kind of the geometric factors that the kernel reads; None if it reads none. Beside a scale it reads a map."""
        if self.source.scales:
            return "scale"
        return "map" if self.source.recomputes else self.form.factor_kind

    def stored_dtype(self, kind: str) -> np.dtype[Any]:
        """Tell the type in which numbers of the geometry are stored.

        Parameters
        ----------
        kind : str
            One of `hpfem.geometry.factors.KINDS`.

        Returns
        -------
        dtype
            float32 for factors at the points of elements that are not affine, if that is allowed (`mixed`) and the
            factors are in its range; else the problem's. Coordinates are not rounded, nor what recomputed factors read.
        """
        at_points = kind not in ("points", "scale", "map") and not self.geometry.affine
        rounded = self.mixed and at_points and not len(outside(self.geometry, np.float32))
        return np.dtype(np.float32) if rounded else self.dtype

    @property
    def factors_dtype(self) -> np.dtype[Any]:
        """Type of the geometric factors that the kernel reads; that of the problem if it reads none."""
        return self.dtype if self.read_factors is None else self.stored_dtype(self.read_factors)

    @cached_property
    def nodal(self) -> bool:
        """Whether coefficients are values at the points, and derivatives those of values: the basis is not needed.

        A kernel may use this; CUDA's compiler removes products by the identity by itself.
        """
        return self.tabulation.nodal and (self.collocated or not self.form.gradients)

    @property
    def from_modes(self) -> bool:
        """Whether the input is coefficients that are not values at the points."""
        return self.form.from_modes and not self.nodal

    @property
    def to_modes(self) -> bool:
        """Whether the result is tested with functions other than those of the points."""
        return self.form.to_modes and not self.nodal

    def components_out(self, components: int) -> int:
        """Count the components of the result of a field.

        Parameters
        ----------
        components : int
            Components of the field, a multiple of `coupled`.

        Returns
        -------
        int
        """
        return components // self.coupled * self.given


class ProductKernel(NamedTuple):
    """A kernel for Q^T A Q, whose results stand entity by entity in each element.

    A restriction for such kernels has `modes`, the order of a block's modes, and `by_entity`, what gathers the results.
    """

    apply: Callable[[Any, Any], None]  # (source, out) -> None, as `BlockKernel.apply`
    scattered: bool  # whether the source is a global vector, [components, size]


class BlockKernel:
    """A form on a block, ready to apply; made by a strategy."""

    problem: BlockProblem
    strategy: str  # name of the one that made it
    flops: int  # floating-point operations per element and component

    def begin(self) -> None:
        """Begin background work of making the kernel, where that waits until `apply` or `in_product` is called."""
        return None

    def finish(self) -> None:
        """Wait for background work of making the kernel, for which `apply` would wait at its first call.

        Raises
        ------
        DeviceError
            If that failed.
        """
        return None

    def diagonal(self) -> Any:
        """Make the diagonals of the element matrices of a linear weak form.

        Returns
        -------
        array, [components, E, n_modes], or None
            On the device of the kernel's fields; None if the kernel cannot make them.
        """
        return None

    def in_product(self, restriction: Any, number: int) -> Callable[[], ProductKernel | None]:
        """Begin to make the kernel for products with Q.

        Parameters
        ----------
        restriction : ElementRestriction
            Q, on the kernel's device.
        number : int
            Of the block.

        Returns
        -------
        callable
            () -> the kernel; None if there is no other than `apply`.
        """
        return lambda: None

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field.

        Parameters
        ----------
        source : ndarray, [components, E, n_input]
        out : ndarray, [components_out, E, n_output]
            Overwritten.

        Raises
        ------
        AssertionError
            If a strategy's kernel does not override this.
        """
        raise AssertionError("a strategy's kernel overrides apply")
