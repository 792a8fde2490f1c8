"""Comparison of algorithms for one operator on a mesh: agreement, time, operations and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from warnings import catch_warnings

import numpy as np
from numpy.typing import DTypeLike

from ..backends.base import choose_backend
from ..backends.timer import measure
from ..errors import HpfemWarning, NotSuitable
from ..forms.cost import operator_bytes
from ..mesh import Mesh
from ..operators import Helmholtz
from ..space.arguments import Quadrature, simplex_rules
from ..space.field import Field
from ..space.space import Space
from .problems import random_field
from .results import rounded

# Dense matrices use derivatives directly, as in the paper; the others are compared with them.
REFERENCE = ("stdmat", "noncollocated")


@dataclass(frozen=True)
class ComparisonRow:
    """One algorithm on one block; the other attributes are those of `Measurement`.

    Attributes
    ----------
    difference : float
        Largest difference to the first variant over the largest value, on random coefficients.
    precision_error : float
        Relative error of the operator by rounded factors; see `Operator.precision_error`.
    quadrature : str
        "simplex" for rows with this rule instead of the space's rule.
    """

    shape: str
    geometry: str
    strategy: str
    algorithm: str
    backend: str
    order: int
    n_cells: int
    n_dofs: int
    seconds: float
    dofs_per_second: float
    flops: float
    nbytes: float
    difference: float
    precision_error: float = 0.0
    quadrature: str = ""

    @property
    def variant(self) -> str:
        """Name for tables."""
        return ", ".join(filter(None, (self.strategy, self.algorithm, self.quadrature)))

    def as_dict(self) -> dict[str, Any]:
        """Make a record for result files.

        Returns
        -------
        dict
        """
        return rounded(asdict(self))


def compare_algorithms(
    mesh: Mesh,
    order: int,
    *,
    lam: float = 1.0,
    basis: str = "modified",
    quadrature: Quadrature = None,
    dtype: DTypeLike = np.float64,
    backend: str = "auto",
    precision: str = "full",
    repeats: int = 9,
    min_seconds: float = 0.002,
) -> Iterator[ComparisonRow]:
    """Apply the Helmholtz operator to random coefficients by every algorithm, block by block.

    Parameters
    ----------
    mesh : Mesh
    order : int
        Polynomial order of all shapes.
    lam : float
        Reaction coefficient.
    basis, quadrature, dtype, backend
        See `Space`.
    precision : str
        See `Operator`; of all variants.
    repeats : int
    min_seconds : float
        See `measure`.

    Yields
    ------
    ComparisonRow
        Per variant and block.
    """
    chosen = choose_backend(backend)
    backend, timer = chosen.name, chosen.timer()
    space = Space(mesh, order, basis=basis, quadrature=quadrature, dtype=dtype, backend=backend)
    u = random_field(space, "coeff")
    reference = None
    others = [(name, algorithm) for name in chosen.strategy_names for algorithm in ("noncollocated", "collocated")]
    ways = [(space, "", *way) for way in (REFERENCE, *(other for other in others if other[0] != REFERENCE[0]))]
    rules = simplex_rules(space.orders) if quadrature is None else {}
    if rules:
        ways.append((space.at(quadrature=dict.fromkeys(rules, "simplex")), "simplex", "auto", "auto"))
    for on, rule, strategy, algorithm in ways:
        try:
            with catch_warnings(action="ignore", category=HpfemWarning):  # of blocks that take what auto takes
                operator = Helmholtz(on, lam=lam, strategy=strategy, algorithm=algorithm, precision=precision)
        except NotSuitable:
            continue
        u = Field(on, "coeff", u.data)
        result, out = operator(u), operator(u)
        reference = reference or result
        device, rounding = operator.backend.device(), operator.precision_error
        for i, (choice, block) in enumerate(zip(operator.choices, on.blocks, strict=True)):
            if choice.refusal or (rule and block.rule.tensor):
                continue
            call = partial(choice.kernel.apply, u.data[i].read(device), out.data[i].write(device))
            seconds = measure(call, timer, repeats, min_seconds).median
            n_dofs = block.n_elements * block.n_modes
            expected, computed = reference.data[i].read(), result.data[i].read()
            yield ComparisonRow(
                shape=block.shape.name,
                geometry=block.geometry.kind.name,
                **{name: getattr(choice, name) for name in ("strategy", "algorithm", "backend")},
                order=order,
                n_cells=block.n_elements,
                n_dofs=n_dofs,
                seconds=seconds,
                dofs_per_second=n_dofs / seconds,
                flops=float(choice.kernel.flops * block.n_elements),
                nbytes=float(operator_bytes(choice.kernel.problem) * block.n_elements),
                quadrature=rule,
                precision_error=rounding,
                difference=float(np.abs(computed - expected).max() / np.abs(expected).max()),
            )
