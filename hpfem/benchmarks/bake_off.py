"""CEED's bake-off problems [CEED]: operators on all of a mesh, with the conditions and preconditioners of CEED.

They are made on boxes of one shape, straight or curved, of about a wanted number of unknowns. The timed phases and
their bytes are in `hpfem.benchmarks.global_phases`; a whole solve is in `hpfem.benchmarks.whole_solve`. Mass and
stiffness take the rule of the space: P + 2 Gauss-Lobatto points in ordinary and P + 1 Gauss-Radau-Jacobi points in
collapsed directions, not the nodes of a basis; "gauss" takes as many Gauss points, as CEED does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from hpfem.shapes import SHAPES, Tabulation, make_basis
from hpfem.shapes.arrays import Array
from hpfem.shapes.cached import cached_property

from ..assembly import BoundaryConditions, C0Space, GlobalOperator
from ..assembly.numbering import Numbering
from ..errors import NotSuitable
from ..mesh import box
from ..operators import Helmholtz, Laplacian, Mass, Operator
from ..space import Space
from ..space.arguments import chosen_rule
from ..support.communicator import ALONE
from ..support.registry import Registry
from .global_phases import MATRIX_ENTRIES, STEPS, MeasuredOperator
from .problems import BuiltOperator, OneMesh, ProblemSize, new_mesh, problem_mesh
from .whole_solve import PEER_ENTRIES, TOLERANCE, MeasuredSolve

# Largest bytes of mesh and numbering for a cell; and the set-up's bytes over those of the operator. Measured
# on boxes of hexes, tets and tris, P = 1 .. 4.
CELL_BYTES, SET_UP = 2000, 2.2


def _applied(block: GlobalBlock, strategy: str, algorithm: str) -> BuiltOperator:
    """An operator for applications and iterations."""
    bc, problem = block.conditions, block.problem
    operator = problem.operator(bc.c0.space, strategy=strategy, algorithm=algorithm, precision=block.settings.precision)
    A = GlobalOperator(operator, bc.c0, bc if problem.dirichlet else None)
    return MeasuredOperator(A, problem.preconditioner, block.settings.matrix_entries)


def _solved(block: GlobalBlock, strategy: str, algorithm: str) -> BuiltOperator:
    """A whole solve, with the choices of "auto"."""
    if (strategy, algorithm) != ("auto", "auto"):
        raise NotSuitable("a whole solve uses the strategy and algorithm of auto; remove other names")
    return MeasuredSolve(block)


@dataclass(frozen=True)
class BakeOff:
    """A problem on all of a mesh, and how it is measured."""

    operator: Callable[..., Operator]
    # Whether u = 0 on all of the boundary; else there is no condition.
    dirichlet: bool = False
    # "none" or "jacobi"; "multigrid" of whole solves.
    preconditioner: str = "none"
    # Of its definition; None if any are possible.
    basis: str | None = None
    quadrature: str | None = None
    # Whether the points must be the nodes of the basis.
    nodal: bool = False
    # Makes the timed phases by a strategy and an algorithm.
    built: Callable[[GlobalBlock, str, str], BuiltOperator] = _applied
    # Default for the largest number of entries of element matrices that are assembled.
    matrix_entries: float = MATRIX_ENTRIES
    # End of the iterations, in words for result files.
    until: Mapping[str, Any] = field(default_factory=lambda: {"iterations": STEPS})

    def refusal(self, shape: str) -> str | None:
        """Say why a shape cannot be measured, None if it can; see `BenchSettings.left_out`."""
        own = SHAPES[shape]
        if not self.nodal or Tabulation(make_basis("lagrange", own, 3), chosen_rule(own, 3, "collocated")).nodal:
            return None
        return (
            f"{shape} elements are left out: the points are to be the nodes of the basis, Gauss-Lobatto in every"
            " direction, which only quads and hexes have; bp3 takes all shapes"
        )

    def as_dict(self) -> dict[str, Any]:
        """Describe the problem for result files; as `Measurement.as_dict`."""
        made = getattr(self.operator, "func", self.operator)
        return {
            "operator": getattr(made, "__name__", repr(made)),
            "boundary": "u = 0" if self.dirichlet else "natural",
            "preconditioner": self.preconditioner,
            **self.until,
        }


# By name. Conditions and preconditioners are those of CEED and of libCEED's examples.
BAKE_OFFS: Registry[BakeOff] = Registry("benchmark")
BAKE_OFFS.add("bp1", BakeOff(Mass, preconditioner="jacobi"))
BAKE_OFFS.add("bp3", BakeOff(Laplacian, dirichlet=True))
BAKE_OFFS.add("bp5", BakeOff(Laplacian, dirichlet=True, basis="lagrange", quadrature="collocated", nodal=True))
_WHOLE: dict[str, Any] = {"built": _solved, "matrix_entries": PEER_ENTRIES, "until": {"tolerance": TOLERANCE}}
BAKE_OFFS.add("solve", BakeOff(partial(Helmholtz, lam=1.0), dirichlet=True, preconditioner="multigrid", **_WHOLE))


@cache
def box_polynomial(shape: str, order: int) -> Array:
    """Coefficients of the polynomial for the unknowns of a box; it is linear in the small boxes of each direction."""
    dim = SHAPES[shape].dim
    values = np.empty((2,) * dim)
    for index in np.ndindex(values.shape):
        values[index] = Numbering(box(shape, tuple(1 + i for i in index), comm=ALONE), "modified", {shape: order}).size
    for axis in range(dim):
        # From the values at 1 and 2 to those of 1 and n.
        values = np.moveaxis(np.tensordot([[2, -1], [-1, 1]], values, (1, axis)), 0, axis)
    return values


def unknowns(shape: str, order: int, counts: Sequence[int]) -> int:
    """Count the unknowns of the continuous space on a box."""
    total = box_polynomial(shape, order)
    for count in counts:
        total = total[0] + count * total[1]
    return int(total)


def global_sizes(shape: str, order: int, dofs: Sequence[float]) -> list[ProblemSize]:
    """Sizes near the wanted numbers of unknowns, each once."""
    dim = SHAPES[shape].dim
    cells = box(shape, (1,) * dim).n_cells
    sizes = {}
    for wanted in dofs:
        # The highest coefficient is the number of unknowns per small box in a large box.
        side = max(round((wanted / box_polynomial(shape, order)[(1,) * dim]) ** (1 / dim)), 1)
        one, two = (unknowns(shape, order, (first, *(side,) * (dim - 1))) for first in (1, 2))
        counts = (max(1 + round((wanted - one) / (two - one)), 1), *(side,) * (dim - 1))
        n_cells = cells * math.prod(counts)
        sizes[n_cells] = ProblemSize(counts, 1, n_cells, unknowns(shape, order, counts))
    return [sizes[n] for n in sorted(sizes)]


def global_bytes(benchmark: str, shape: str, order: int, size: ProblemSize, geometry: str, **options: Any) -> int:
    """Estimate the memory that a problem on all of a mesh takes while it is set up, without a matrix."""
    space = Space(problem_mesh(shape, (1,) * SHAPES[shape].dim, geometry), order, **options)
    operator = BAKE_OFFS[benchmark].operator(space)
    vectors = 12 * size.n_dofs * space.dtype.itemsize
    return int(size.n_cells * (CELL_BYTES + SET_UP * operator.nbytes / space.n_cells) + vectors)


class GlobalBlock(OneMesh):
    """A bake-off problem on all of a mesh, of a `Case` and its settings; `options` are those of `Space`."""

    def __init__(self, case: Any, settings: Any, options: Mapping[str, Any]) -> None:
        self.problem, self.size, self.settings = BAKE_OFFS[case.benchmark], case.size, settings
        what = case.shape, self.size.counts, case.geometry
        # The second makes a mesh without cached results.
        self._mesh, self.fresh_mesh = (partial(make, *what) for make in (problem_mesh, new_mesh))
        self.options = {"order": case.order, **options}

    @cached_property
    def conditions(self) -> BoundaryConditions:
        """The boundary conditions, on a continuous space that all strategies share."""
        c0 = C0Space(Space(self._mesh(), **self.options))
        return BoundaryConditions(c0, dirichlet=0.0 if self.problem.dirichlet else None)

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Build the measured operator."""
        return self.problem.built(self, strategy, algorithm)
