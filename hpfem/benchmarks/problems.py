"""Benchmark problems on meshes: boxes of one shape, straight or curved, of about a wanted number of degrees of freedom.

A large problem is a row of equal patches, which fit together as the deformation is periodic.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from hpfem.shapes import SHAPES, make_basis
from hpfem.shapes.arrays import Array

from ..backends.timer import Timing
from ..errors import ArgumentError
from ..geometry.element_map import CACHED, chunks
from ..mesh import Mesh, box
from ..mesh.sorting import MANY
from ..operators import Helmholtz, Mass, Operator
from ..space.field import Field
from ..space.space import Space
from ..support.registry import Registry
from ..support.threads import in_parts
from ..tuning.select import Choice
from .repeated import RepeatedSpace

GEOMETRIES = ("deformed", "affine", "multilinear")
BOTH = GEOMETRIES[:2]
# Small boxes across a patch, and the most along it: multiples of 64 cells, however many lanes a kernel has.
PATCH = {2: (16, 64), 3: (8, 8, 8)}
# Curved problems are of geometry order 2 and wavy with this amplitude in units of the box.
WAVE = 0.02

# CEED's bake-off kernels by name: (space, **options) -> operator.
BENCHMARKS: Registry[Callable[..., Operator]] = Registry("benchmark")
BENCHMARKS.add("bk1", Mass)
BENCHMARKS.add("bk3", partial(Helmholtz, lam=1.0))


@cache
def _cells_per_box(shape: str) -> int:
    return box(shape, (1,) * SHAPES[shape].dim).n_cells


def _box_counts(shape: str, n_cells: float) -> tuple[tuple[int, ...], int]:
    """Small boxes and copies of them for a wanted number of cells."""
    dim = SHAPES[shape].dim
    wanted = max(n_cells / _cells_per_box(shape), 1.0)
    most, *across = PATCH[dim]
    if wanted <= most * math.prod(across):
        side = max(round(wanted ** (1 / dim)), 1)
        return (max(round(wanted / side ** (dim - 1)), 1), *(side,) * (dim - 1)), 1
    copies = math.ceil(wanted / (most * math.prod(across)))
    return (max(round(wanted / copies / math.prod(across)), 1), *across), copies


@dataclass(frozen=True)
class ProblemSize:
    """Small boxes per direction of a patch, patches, cells, degrees of freedom: element-local ones, or unknowns."""

    counts: tuple[int, ...]
    copies: int
    n_cells: int
    n_dofs: int


def problem_sizes(shape: str, order: int, dofs: list[float], basis: str = "modified") -> list[ProblemSize]:
    """Sizes near the wanted numbers of degrees of freedom, in order, each once; at least one box of cells."""
    n_modes = make_basis(basis, SHAPES[shape], order).n_modes
    sizes = {}
    for wanted in dofs:
        counts, copies = _box_counts(shape, wanted / n_modes)
        n_cells = _cells_per_box(shape) * math.prod(counts) * copies
        sizes[n_cells] = ProblemSize(counts, copies, n_cells, n_cells * n_modes)
    return [sizes[n] for n in sorted(sizes)]


def deformed(points: Array) -> Array:
    """Deform the unit box smoothly, so that every cell is curved; points [n, D] -> [n, D]."""
    found = np.empty_like(points)

    def write(part: slice) -> None:
        angle = 2 * np.pi * points[part]
        found[part] = points[part] + WAVE * np.sin(np.roll(angle, 1, axis=1) + 0.4) * np.cos(angle - 0.3)

    in_parts(write, chunks(len(points), points.shape[1], most=CACHED), len(points) >= MANY)
    return found


def new_mesh(shape: str | tuple[str, ...], counts: tuple[int, ...], geometry: str, **options: Any) -> Mesh:
    """Mesh of a patch of a benchmark problem; options as of `box`."""
    if geometry not in GEOMETRIES:
        raise ArgumentError(f"unknown geometry {geometry!r}; valid: {', '.join(GEOMETRIES)}, both, all")
    mesh = box(shape, counts, **options)
    if geometry == "affine":
        return mesh
    return (mesh if geometry == "multilinear" else mesh.elevated(2)).transformed(deformed, check=False)


# The same, with the last two kept.
problem_mesh = lru_cache(maxsize=2)(new_mesh)


def problem_space(shape: str, order: int, size: ProblemSize, geometry: str, **options: Any) -> Space:
    """Make the space of a benchmark problem, of one block; options as of `Space`."""
    mesh = problem_mesh(shape, size.counts, geometry)
    return Space(mesh, order, **options) if size.copies == 1 else RepeatedSpace(mesh, size.copies, order, **options)


def problem_bytes(benchmark: str, shape: str, order: int, size: ProblemSize, geometry: str, **options: Any) -> int:
    """Estimate the bytes of fields, geometric factors and maps of a benchmark problem, without a strategy's tables."""
    space = Space(problem_mesh(shape, (1,) * SHAPES[shape].dim, geometry), order, **options)
    operator = BENCHMARKS[benchmark](space)
    [block] = space.blocks
    one_field = block.n_modes * space.dtype.itemsize
    each = operator.nbytes / space.n_cells + one_field + block.geometry.given[:1].nbytes + block.elements.itemsize
    return int(size.n_cells * each)


def random_field(space: Space, state: str) -> Field:
    """Make a field of normally distributed numbers, the same ones every time."""
    field, rng = space.zeros(state), np.random.default_rng(0)
    for array in field.arrays:
        array[...] = rng.standard_normal(array.shape)
    return field


@dataclass(frozen=True)
class Application:
    """One application of an operator, or other timed work, on memory that nothing else uses."""

    call: Callable[[], object]
    # Compulsory bytes and nominal operations of a call, or of one step of it; None without a model.
    nbytes: float | None
    flops: float | None
    n_dofs: int
    # Its name, if a benchmark measures several phases.
    phase: str | None = None
    # What precedes the equal steps of the call; the time of one step counts.
    start: Callable[[], object] | None = None
    steps: int = 1
    # The timing, if it was measured already.
    timing: Timing | None = None
    # Of a solve: iterations, and the norm of the true residual over that of the right-hand side.
    iterations: int | None = None
    residual: float | None = None


class BuiltOperator(ABC):
    """A benchmark's operator by one strategy and algorithm."""

    choice: Choice
    # Phases that could not be measured, with the "reason" of each; filled by `phases`.
    refused: Sequence[Mapping[str, str]] = ()
    # What `error` compares with, for messages.
    reference = "NumPy's"

    def error(self) -> float | None:
        """Apply it once; -> largest difference to the reference over the largest entry, None without a reference."""
        return None

    @abstractmethod
    def on(self, n_elements: int) -> Application:
        """Make it ready to be timed."""

    def phases(self, n_elements: int) -> Iterator[Application]:
        """Make all that is timed ready, one after the other; the first is the application."""
        yield self.on(n_elements)


class OneMesh:
    """The measurements on one mesh."""

    size: ProblemSize

    def sizes(self, dofs: Sequence[float]) -> list[int]:
        """Numbers of elements to measure."""
        return [self.size.n_cells]

    def auto(self, n_elements: int) -> None:
        """Strategy and algorithm that "auto" takes are not asked for; see `TiledProblem.auto`."""


class MeshBlock(OneMesh):
    """A benchmark's operator on a mesh, applied as users apply it, Python included."""

    def __init__(self, benchmark: str, space: Space, size: ProblemSize, precision: str = "full") -> None:
        self.size = size
        self._make = partial(BENCHMARKS[benchmark], space, precision=precision)

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Build the operator."""
        return _MeshOperator(self._make(strategy=strategy, algorithm=algorithm))


class _MeshOperator(BuiltOperator):
    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        [self.choice] = operator.choices

    def on(self, n_elements: int) -> Application:
        operator = self.operator
        argument = random_field(operator.space, operator.input_state)
        call = partial(operator, argument, out=operator(argument))
        return Application(call, operator.nbytes, operator.flops, operator.space.n_dofs)
