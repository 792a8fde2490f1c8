"""What an operator computes on an element, apart from how: three stages and a pointwise function (DESIGN section 2).

operator                 input  trial           pointwise   test            output
BwdTrans                 coeff  value           -           -               phys
IProductWRTBase          phys   -               w|J|        value           dual
PhysDeriv                phys   (collocated)    J^-1        -               phys, D per component
IProductWRTDerivBase     phys   -               w|J| J^-1   grad            dual, of D per component
Mass, Helmholtz, ...     coeff  value and grad  function    value and grad  dual
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpfem.shapes import Shape, Tabulation

from ..errors import ArgumentError
from ..geometry.block_geometry import BlockGeometry
from ..memory import Device, PairArray
from . import Trace

STAGES = ("bwd_trans", "iproduct_wrt_base", "phys_deriv", "iproduct_wrt_deriv_base", "weak")
ALGORITHMS = ("collocated", "noncollocated")


@dataclass(frozen=True, eq=False)
class Form:
    """An operator on reference level.

    Attributes
    ----------
    name : str
        The operator's name, for messages, caches and tables.
    stage : str
        One of `STAGES`; "weak" is trial -> pointwise -> test.
    trace : Trace or None
        The pointwise function of a "weak" form; the Python function that it was is not needed any more.
    components : int
        Components that the pointwise function couples; a form with 1 is applied to every component of a field.
    """

    name: str
    stage: str
    trace: Trace | None = None
    components: int = 1

    @property
    def test(self) -> tuple[str, ...]:
        """What is tested: value, grad or both, of a "weak" form."""
        return self.trace.test if self.trace is not None else ()

    @property
    def uses_value(self) -> bool:
        """Whether a "weak" form evaluates the trial value."""
        return self.trace is not None and self.trace.uses_value

    @property
    def uses_gradient(self) -> bool:
        """Whether gradients of trial or test functions occur, so that there are two algorithms."""
        return self.trace is not None and (self.trace.uses_gradient or "grad" in self.test)

    @property
    def factor_kind(self) -> str | None:
        """Kind of geometric factors that the form needs (`hpfem.geometry.block_geometry`); None for BwdTrans."""
        if self.stage == "bwd_trans":
            return None
        if self.stage == "iproduct_wrt_base":
            return "wJ"
        if self.stage != "weak" or self.trace is None:
            return "jacobian"
        if not self.uses_gradient:
            return "wJ"
        return "jacobian" if self.trace.general else "metric"


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
        "collocated" or "noncollocated" ([X] Alg. 5 and 6); means nothing where the form has no gradients.
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
        return self.n_modes if self.form.stage in ("bwd_trans", "weak") else self.n_points

    @property
    def n_output(self) -> int:
        """Values of one component of an element that come out."""
        return self.n_points if self.form.stage in ("bwd_trans", "phys_deriv") else self.n_modes

    @property
    def coupled(self) -> int:
        """Components of the input that one application of the form takes together."""
        if self.form.stage == "iproduct_wrt_deriv_base":
            return self.geometry.space_dim
        return self.form.components

    def components_out(self, components: int) -> int:
        """Components of the result of a field with `components`."""
        if self.form.stage == "phys_deriv":
            return components * self.geometry.space_dim
        if self.form.stage == "iproduct_wrt_deriv_base":
            return components // self.geometry.space_dim
        return components


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

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field.

        Parameters
        ----------
        source : ndarray, [components, E, n_input]
        out : ndarray, [components_out, E, n_output]
            Overwritten.
        """
        raise AssertionError("a strategy's kernel overrides apply")
