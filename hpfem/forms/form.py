"""What an operator computes on an element, apart from how, as data: what is taken, evaluated, applied and tested.

operator                 source  trial           pointwise      test            sink
BwdTrans                 coeff   value           -              -               phys
IProductWRTBase          phys    value           w|J|           value           dual
PhysDeriv                phys    grad            J^-1           -               phys, D per component
IProductWRTDerivBase     phys    value           w|J| J^-1      grad            dual, of D per component
weak forms               coeff   what it takes   function       what it gives   dual

Coefficients are evaluated through the basis, values at the points are there already: their gradient is collocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfem.shapes import Shape, Tabulation
from hpfem.shapes.cached import cached_property

from ..errors import ArgumentError
from ..geometry.block_geometry import BlockGeometry
from ..memory import Device, PairArray
from . import Trace

ALGORITHMS = ("collocated", "noncollocated")


@dataclass(frozen=True, eq=False)
class Form:
    """An operator on reference level: a row of the table above.

    Attributes
    ----------
    name : str
        The operator's name, for messages, caches and tables.
    source : str
        "coeff", coefficients in the basis, or "phys", values at the points.
    trial : tuple of str
        What is evaluated at the points: "value", "grad", both or, where the function does not depend on it, nothing.
    test : tuple of str
        What the result at the points multiplies: "value", "grad" or both; nothing where it is the result.
    trace : Trace or None
        The pointwise function; the Python function that it was is not needed any more. Where there is none, what is
        evaluated is tested, as `components_out` counts it.
    components : int
        Components that the pointwise function couples; a form with 1 is applied to every component of a field.
    """

    name: str
    source: str
    trial: tuple[str, ...]
    test: tuple[str, ...]
    trace: Trace | None = None
    components: int = 1

    @classmethod
    def weak(cls, name: str, trace: Trace, components: int = 1) -> Form:
        """A weak form: what its function takes is evaluated, what it gives is tested.

        Parameters
        ----------
        name : str
        trace : Trace
        components : int

        Returns
        -------
        Form
        """
        used = (("value", trace.uses_value), ("grad", trace.uses_gradient))
        return cls(name, "coeff", tuple(part for part, is_used in used if is_used), trace.test, trace, components)

    @property
    def sink(self) -> str:
        """State of the result: "dual" where it is tested, else "phys"."""
        return "dual" if self.test else "phys"

    @property
    def from_modes(self) -> bool:
        """Whether coefficients go in."""
        return self.source == "coeff"

    @property
    def to_modes(self) -> bool:
        """Whether the result is tested with the basis."""
        return bool(self.test)

    @property
    def trial_value(self) -> bool:
        """Whether the value is evaluated."""
        return "value" in self.trial

    @property
    def trial_gradient(self) -> bool:
        """Whether the gradient is evaluated."""
        return "grad" in self.trial

    @property
    def test_value(self) -> bool:
        """Whether something multiplies the test functions."""
        return "value" in self.test

    @property
    def test_gradient(self) -> bool:
        """Whether something multiplies the gradients of the test functions."""
        return "grad" in self.test

    @property
    def gradients(self) -> bool:
        """Whether gradients occur."""
        return self.trial_gradient or self.test_gradient

    @property
    def always_collocated(self) -> bool:
        """Whether values at the points are differentiated."""
        return self.trial_gradient and not self.from_modes

    @property
    def has_algorithms(self) -> bool:
        """Whether gradients of the basis occur, so that there are two algorithms."""
        return self.test_gradient or (self.trial_gradient and self.from_modes)

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
        """Count the components of the result of one application.

        Parameters
        ----------
        space_dim : int
            D.

        Returns
        -------
        int
        """
        return space_dim if self.trace is None and self.trial_gradient else self.components

    @property
    def factor_kind(self) -> str | None:
        """Kind of geometric factors that the form needs (`hpfem.geometry`); None where it needs none."""
        if not self.gradients:
            return "wJ" if self.test else None
        return "metric" if self.trace is not None and not self.trace.general else "jacobian"


BWD_TRANS = Form("BwdTrans", "coeff", ("value",), ())
IPRODUCT_WRT_BASE = Form("IProductWRTBase", "phys", ("value",), ("value",))
PHYS_DERIV = Form("PhysDeriv", "phys", ("grad",), ())
IPRODUCT_WRT_DERIV_BASE = Form("IProductWRTDerivBase", "phys", ("value",), ("grad",))


@dataclass(frozen=True, eq=False)
class FieldValues:
    """A named field at the points of a block.

    Attributes
    ----------
    pair : PairArray, [components, E, Q]
    device : Device
        Of the kernel that uses it.
    vector : bool
        Whether the pointwise function sees a vector, even of one component, or a scalar.
    """

    pair: PairArray
    device: Device
    vector: bool

    @property
    def values(self) -> Any:
        """The current values on the device."""
        return self.pair.read(self.device)


@dataclass(frozen=True, eq=False)
class BlockProblem:
    """Everything a strategy is specialised by: a form on a block.

    Attributes
    ----------
    form : Form
    tabulation : Tabulation
        Basis on the block's rule.
    geometry : BlockGeometry
        Mapping of the block's elements.
    dtype : dtype
        Of fields, geometric factors and arithmetic.
    algorithm : str
        "collocated" or "noncollocated" ([Xing] Alg. 5 and 6); means nothing where the form has no gradients.
    fields : mapping
        Name -> `FieldValues` of the form's fields.
    parameters : mapping
        Name -> number. Kernels take them at run time.
    """

    form: Form
    tabulation: Tabulation
    geometry: BlockGeometry
    dtype: np.dtype[Any]
    algorithm: str = "collocated"
    fields: Mapping[str, FieldValues] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ArgumentError(f"unknown algorithm {self.algorithm!r}; valid: {', '.join(ALGORITHMS)}, auto")

    @property
    def shape(self) -> Shape:
        """The elements' shape."""
        return self.tabulation.basis.shape

    @property
    def n_elements(self) -> int:
        """Number of elements of the block."""
        return self.geometry.n_elements

    @property
    def n_modes(self) -> int:
        """Modes of an element."""
        return self.tabulation.basis.n_modes

    @property
    def n_points(self) -> int:
        """Quadrature points of an element."""
        return len(self.tabulation.rule)

    @property
    def n_input(self) -> int:
        """Values of one component of an element that go in."""
        return self.n_modes if self.form.from_modes else self.n_points

    @property
    def n_output(self) -> int:
        """Values of one component of an element that come out."""
        return self.n_modes if self.form.to_modes else self.n_points

    @property
    def collocated(self) -> bool:
        """Whether derivatives are those of the values at the points."""
        return self.algorithm == "collocated" or self.form.always_collocated

    @cached_property
    def nodal(self) -> bool:
        """Whether coefficients are values at the points, and derivatives those of values: the basis is not needed.

        A kernel may use it; CUDA's compiler removes products by the identity itself.
        """
        return self.tabulation.nodal and (self.collocated or not self.form.gradients)

    @property
    def from_modes(self) -> bool:
        """Whether coefficients go in that are not values at the points already."""
        return self.form.from_modes and not self.nodal

    @property
    def to_modes(self) -> bool:
        """Whether the result is tested with functions that are not those of the points."""
        return self.form.to_modes and not self.nodal

    @cached_property
    def coupled(self) -> int:
        """Components of the input that one application of the form takes together."""
        return self.form.coupled(self.geometry.space_dim)

    @cached_property
    def given(self) -> int:
        """Components of the result of one application of the form."""
        return self.form.given(self.geometry.space_dim)

    def components_out(self, components: int) -> int:
        """Count the components of the result of a field.

        Parameters
        ----------
        components : int
            Those of the field, a multiple of `coupled`.

        Returns
        -------
        int
        """
        return components // self.coupled * self.given


class BlockKernel:
    """A form on a block, ready to apply; made by a strategy.

    Attributes
    ----------
    problem : BlockProblem
    strategy : str
        Name of the strategy that made it.
    flops : int
        Floating-point operations per element and component.
    """

    problem: BlockProblem
    strategy: str
    flops: int

    def finish(self) -> None:
        """Wait for what making the kernel has begun in the background; `apply` would do so at its first call.

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
            Where fields of the kernel are; None if it has no way of its own.
        """
        return None

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
