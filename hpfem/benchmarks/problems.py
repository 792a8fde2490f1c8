"""Benchmark problems: boxes of one shape, straight or curved, of about a wanted number of degrees of freedom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import SHAPES, make_basis

from ..errors import ArgumentError
from ..mesh import Mesh, box
from ..operators import Helmholtz, Mass, Operator
from ..registry import Registry

GEOMETRIES = ("deformed", "affine")
# Curved problems are of geometry order 2 and wavy with this amplitude in units of the box.
WAVE = 0.03

# CEED's bake-off kernels by name: (space, **options) -> operator.
BENCHMARKS: Registry[Callable[..., Operator]] = Registry("benchmark")
BENCHMARKS.add("bk1", Mass)
BENCHMARKS.add("bk3", Helmholtz)


@cache
def _cells_per_box(shape: str) -> int:
    return box(shape, (1,) * SHAPES[shape].dim).n_cells


def box_counts(shape: str, n_cells: float) -> tuple[int, ...]:
    """Small boxes per direction for about `n_cells` cells of a shape, at least one."""
    dim = SHAPES[shape].dim
    wanted = max(n_cells / _cells_per_box(shape), 1.0)
    side = max(round(wanted ** (1 / dim)), 1)
    return (max(round(wanted / side ** (dim - 1)), 1), *(side,) * (dim - 1))


@dataclass(frozen=True)
class ProblemSize:
    """Size of a problem.

    Attributes
    ----------
    counts : tuple of int
        Small boxes per direction.
    n_cells, n_modes : int
        Cells, and modes of each.
    """

    counts: tuple[int, ...]
    n_cells: int
    n_modes: int

    @property
    def n_dofs(self) -> int:
        """Element-local degrees of freedom."""
        return self.n_cells * self.n_modes


def problem_sizes(shape: str, order: int, dofs: list[float], basis: str = "modified") -> list[ProblemSize]:
    """Sizes near the wanted numbers of degrees of freedom, each once.

    Parameters
    ----------
    shape : str
        One that boxes can be cut into.
    order : int
    dofs : list of float
        Wanted degrees of freedom, elements × modes.
    basis : str

    Returns
    -------
    list of ProblemSize
        In order of size. Wanted numbers below one box of cells all give that box.
    """
    n_modes = make_basis(basis, SHAPES[shape], order).n_modes
    sizes = {}
    for wanted in dofs:
        counts = box_counts(shape, wanted / n_modes)
        n_cells = _cells_per_box(shape) * int(np.prod(counts))
        sizes[n_cells] = ProblemSize(counts, n_cells, n_modes)
    return [sizes[n] for n in sorted(sizes)]


def wave(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """A smooth deformation of the unit box that curves every cell, [n, D] to [n, D]."""
    shift = np.sin(2.3 * np.roll(points, 1, axis=1) + 0.4) * np.cos(1.7 * points - 0.3)
    return points + WAVE * shift


@lru_cache(maxsize=2)
def problem_mesh(shape: str, counts: tuple[int, ...], geometry: str) -> Mesh:
    """Mesh of a benchmark problem.

    Parameters
    ----------
    shape : str
    counts : tuple of int
        Small boxes per direction.
    geometry : str
        "affine": straight, constant Jacobians; "deformed": curved cells of order 2.

    Returns
    -------
    Mesh

    Raises
    ------
    ArgumentError
        For an unknown geometry or shape.
    """
    if geometry not in GEOMETRIES:
        raise ArgumentError(f"unknown geometry {geometry!r}; valid: {', '.join(GEOMETRIES)}, both")
    mesh = box(shape, counts)
    return mesh if geometry == "affine" else mesh.elevated(2).transformed(wave, check=False)
