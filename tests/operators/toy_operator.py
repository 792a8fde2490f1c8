"""An operator as a newcomer writes it: this file, and a row in the table (here by the tests)."""

from typing import Any

from hpfem.forms import Pointwise
from hpfem.operators import Operator


def slope(u: Any, du: Any, k: Any) -> Any:
    """(k u + du/dx, v)."""
    return k * u + du[0]


class Slope(Operator):
    """A number times the value, and the first derivative."""

    def __init__(self, space, k=2.0, **options):
        super().__init__(space, Pointwise(slope, ("value",)), name="Slope", coefficients={"k": k}, **options)
