"""FwdTrans and InverseMass: values at the points, or functionals, as functions; element by element."""

from __future__ import annotations

from typing import Any, overload

from ..memory import Device
from ..space import Field
from ..space.transforms import ForwardTransform
from .arrays import apply_to_arrays
from .registry import OPERATORS


@OPERATORS.register("FwdTrans")
class FwdTrans(ForwardTransform):
    """Forward transform: values at the points to the coefficients of their L2 projection, element by element.

    Parameters
    ----------
    space : Space
    strategy, algorithm : str
        Of the mass and inner-product kernels inside.
    backend : str, optional
        Where the products with the mass matrix run, in float64, if it works on the host's memory.

    Raises
    ------
    ArgumentError
        For unknown names, or if a direction has fewer than P + 1 points.
    """

    def __repr__(self) -> str:
        return f"FwdTrans({self.space!r})"

    @property
    def device(self) -> Device:
        """Where arrays given as `out` are; the work is done on the host."""
        return self.backend.device()

    @overload
    def __call__(self, field: Field, out: Field | None = None) -> Field: ...

    @overload
    def __call__(self, field: Any, out: Any = None) -> Any: ...

    def __call__(self, field: Any, out: Any = None) -> Any:
        """Solve the mass system of every element; see `ForwardTransform.__call__`. Arrays are as for `Operator`."""
        return super().__call__(field, out) if isinstance(field, Field) else apply_to_arrays(self, field, out)


class InverseMass(FwdTrans):
    """Riesz representation: the function whose mass inner products are a functional, element by element.

    It makes a "dual" field, such as the result of Helmholtz, a function that can be plotted. It is the inverse of Mass;
    of other functionals the function is in general discontinuous between elements.

    Parameters
    ----------
    space : Space
    strategy, backend
        See `FwdTrans`.
    """

    name, input_state = "InverseMass", "dual"
