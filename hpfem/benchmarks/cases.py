"""The measurements of a benchmark: its settings, checked in one place, and the cases that they make.

A case is on a mesh of one size, where the operator is applied as users apply it, to elements or on all of a continuous
space (`BenchSettings`), or kernels alone are measured on a few elements repeated to every size (`SuiteSettings`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, ClassVar

from hpfem.shapes import SHAPES

from ..backends.base import BACKENDS, choose_backend
from ..errors import ArgumentError, NotSuitable
from ..forms.form import ALGORITHMS
from ..operators.operator import PRECISIONS
from ..space.arguments import MAX_ORDER
from ..support.machine import available_memory
from .bake_off import BAKE_OFFS, BakeOff, GlobalBlock, global_bytes, global_sizes
from .global_phases import MATRIX_ENTRIES
from .problems import BENCHMARKS, BOTH, GEOMETRIES, MeshBlock, ProblemSize, problem_bytes, problem_sizes, problem_space
from .tiled import TiledBlock

GIB = 1 << 30
DEFAULT_DOFS = (3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
SUITE_DOFS = (1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 2e7)
SOLID_SHAPES = tuple(name for name, shape in SHAPES.items() if shape.dim == 3)
BOX_SHAPES = tuple(name for name, shape in SHAPES.items() if shape.dim >= 2)
SOLID_FIRST = tuple(sorted(BOX_SHAPES, key=lambda name: -SHAPES[name].dim))
# Default orders of the whole benchmark by dimension.
SUITE_ORDERS = {2: tuple(range(1, 11)), 3: tuple(range(1, 8))}
# Dtypes, with the relative differences to NumPy that are rounding.
TOLERANCES = {"float64": 1e-12, "float32": 1e-4}


@dataclass(frozen=True)
class Case:
    """A problem that is measured with all strategies and algorithms: on a mesh of some size, or on a few elements."""

    dtype: str
    geometry: str
    benchmark: str
    shape: str
    order: int
    size: ProblemSize | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Case:
        """Find the case, whatever its size, that a record of a result file belongs to."""
        return cls(record["dtype"], record["geometry"], record["benchmark"], record["shape"], record["order"])

    def as_dict(self) -> dict[str, Any]:
        """Make the entries of a record that describe the case, without the size; as `ComparisonRow.as_dict`."""
        return {name: value for name, value in vars(self).items() if name != "size"}

    def block(self, settings: Settings, backend: str) -> TiledBlock | MeshBlock | GlobalBlock:
        """Make what kernels are built on; see `TiledBlock`, `GlobalBlock` and `MeshBlock`."""
        options: dict[str, Any] = {"dtype": self.dtype, "basis": settings.basis, "quadrature": settings.quadrature}
        what, precision = (self.benchmark, self.shape, self.order, self.geometry, backend), settings.precision
        if self.size is None:
            return TiledBlock(*what, precision, **options)
        if self.benchmark in BAKE_OFFS:
            return GlobalBlock(self, settings, {**options, "backend": backend})
        space = problem_space(self.shape, self.order, self.size, self.geometry, backend=backend, **options)
        return MeshBlock(self.benchmark, space, self.size, precision)

    def __str__(self) -> str:
        size = "" if self.size is None else f", {self.size.n_dofs:.1e} DoFs"
        return f"{self.benchmark} {self.geometry} {self.shape} P={self.order} {self.dtype}{size}"


@dataclass(frozen=True)
class BenchSettings:
    """What to measure on meshes: every combination of the lists.

    Raises
    ------
    ArgumentError
        From the constructor, for unknown names, empty lists, numbers out of range, or another basis or quadrature than
        the benchmark is defined on.
    """

    # Name in `BENCHMARKS`, element by element: "bk1" (mass) or "bk3" (Helmholtz); or in `BAKE_OFFS`, on continuous
    # functions: "bp1" (mass), "bp3" (stiffness), "bp5" (stiffness, the points being the nodes) or "solve", a whole
    # solve.
    benchmark: str = "bk3"
    # Geometries are "deformed", "affine" and "multilinear", algorithms "auto", "collocated" and "noncollocated".
    shapes: tuple[str, ...] = SOLID_SHAPES
    orders: tuple[int, ...] = tuple(range(1, 8))
    # Wanted degrees of freedom: elements × modes, or unknowns of the continuous functions.
    dofs: tuple[float, ...] = DEFAULT_DOFS
    geometries: tuple[str, ...] = BOTH
    # Empty: all strategies of the backend for benchmarks element by element, "auto" on continuous functions.
    strategies: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("auto",)
    # See `Space` and `Operator`. Basis and quadrature None: those of the benchmark, else "modified" and "collapsed".
    backend: str = "auto"
    dtype: str = "float64"
    precision: str = "full"
    basis: str = None  # type: ignore[assignment] # it has one when it is made
    quadrature: str | int | None = None
    # Timings of each, whose median counts, and the least time of each.
    repeats: int = 9
    min_seconds: float = 0.005
    # Entries of element matrices up to which the matrix of a global operator is assembled, for SciPy; None: as many as
    # the benchmark says.
    matrix_entries: float | None = None
    sustained: ClassVar[float] = 0.0
    sources: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check(self, (self.benchmark,), (*BENCHMARKS, *BAKE_OFFS))
        if self.bake_off is not None:
            for name, wanted in (("basis", self.bake_off.basis), ("quadrature", self.bake_off.quadrature)):
                value = getattr(self, name)
                if None not in (value, wanted) and value != wanted:
                    raise ArgumentError(f"{self.benchmark} is defined on {name} {wanted!r}, got {value!r}")
                object.__setattr__(self, name, value if wanted is None else wanted)
            object.__setattr__(self, "strategies", self.strategies or ("auto",))
        if self.matrix_entries is None:
            most = MATRIX_ENTRIES if self.bake_off is None else self.bake_off.matrix_entries
            object.__setattr__(self, "matrix_entries", most)
        object.__setattr__(self, "basis", self.basis or "modified")
        object.__setattr__(self, "quadrature", "collapsed" if self.quadrature is None else self.quadrature)
        if not self.orders:
            raise ArgumentError(f"orders to measure must lie between 1 and {MAX_ORDER}, got []")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The one dtype."""
        return (self.dtype,)

    @property
    def bake_off(self) -> BakeOff | None:
        """The problem on continuous functions; None of a benchmark element by element."""
        return BAKE_OFFS[self.benchmark] if self.benchmark in BAKE_OFFS else None

    @property
    def left_out(self) -> dict[str, str]:
        """Shapes that the benchmark is not defined on, with the reason."""
        reasons = {} if self.bake_off is None else {shape: self.bake_off.refusal(shape) for shape in self.shapes}
        return {shape: f"{self.benchmark}: {reason}" for shape, reason in reasons.items() if reason is not None}

    @property
    def measured_shapes(self) -> tuple[str, ...]:
        """Shapes that the benchmark is defined on."""
        return tuple(shape for shape in self.shapes if shape not in self.left_out)

    def sizes(self, shape: str, order: int, dofs: Sequence[float]) -> Sequence[ProblemSize]:
        """Sizes of problems near the wanted ones, in order, each once; see `problem_sizes`."""
        if self.bake_off is not None:
            return global_sizes(shape, order, dofs)
        return problem_sizes(shape, order, list(dofs), self.basis)

    def cases(self) -> list[Case]:
        """List what is measured, a case for each size; as `SuiteSettings.cases`."""
        return [
            Case(self.dtype, geometry, self.benchmark, shape, order, size)
            for shape, order in product(self.measured_shapes, self.orders)
            for size in self.sizes(shape, order, self.dofs)
            for geometry in self.geometries
        ]


@dataclass(frozen=True)
class SuiteSettings:
    """What to measure of kernels alone, on a few elements repeated; what is not said here is as in `BenchSettings`.

    No orders: 1 to 7 in three dimensions, 1 to 10 in two. The first dtype is measured at every size and the fastest
    kernel of it is `sustained` for seconds without a pause, the others are measured at the largest size. With `sources`
    every source of geometric factors that a strategy offers is measured at the largest size in the first dtype.
    """

    benchmarks: tuple[str, ...] = tuple(BENCHMARKS)
    shapes: tuple[str, ...] = BOX_SHAPES
    orders: tuple[int, ...] = ()
    geometries: tuple[str, ...] = BOTH
    dtypes: tuple[str, ...] = tuple(TOLERANCES)
    precision: str = "full"
    strategies: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    dofs: tuple[float, ...] = SUITE_DOFS
    backend: str = "cuda"
    basis: str = "modified"
    quadrature: str | int | None = None
    repeats: int = 9
    min_seconds: float = 0.0005
    sustained: float = 2.0
    sources: bool = False
    matrix_entries: ClassVar[float] = 0.0
    left_out: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __post_init__(self) -> None:
        # Settings read from a file have lists.
        for name in ("benchmarks", "shapes", "orders", "geometries", "dtypes", "strategies", "algorithms", "dofs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _check(self, self.benchmarks, tuple(BENCHMARKS))
        if not 0 <= self.sustained <= 60:
            raise ArgumentError(f"the fastest can be sustained 0 to 60 seconds, got {self.sustained}")
        object.__setattr__(self, "quadrature", "collapsed" if self.quadrature is None else self.quadrature)

    def cases(self) -> list[Case]:
        """List the cases, the most important first: deformed elements in the first dtype."""
        return [
            Case(dtype, geometry, benchmark, shape, order)
            for dtype, geometry, benchmark, shape in product(self.dtypes, self.geometries, self.benchmarks, self.shapes)
            for order in self.orders or SUITE_ORDERS[SHAPES[shape].dim]
        ]


Settings = BenchSettings | SuiteSettings


def _check(settings: Settings, benchmarks: tuple[str, ...], known_benchmarks: tuple[str, ...]) -> None:
    """Refuse unknown names, empty lists and numbers out of range."""
    valid = {
        "benchmark": (benchmarks, known_benchmarks),
        "shape": (settings.shapes, BOX_SHAPES),
        "geometry": (settings.geometries, GEOMETRIES),
        "dtype": (settings.dtypes, tuple(TOLERANCES)),
        "precision": ((settings.precision,), PRECISIONS),
        "algorithm": (settings.algorithms, ("auto", *ALGORITHMS)),
    }
    if settings.strategies:
        backend = choose_backend("auto") if settings.backend == "auto" else BACKENDS[settings.backend]
        valid["strategy"] = (settings.strategies, ("auto", *backend.strategy_names))
    for what, (names, known) in valid.items():
        wrong = [name for name in names if name not in known]
        if wrong or not names:
            trouble = f"unknown {what} {wrong[0]!r}" if wrong else f"no {what} to measure"
            raise ArgumentError(f"{trouble}; valid: {', '.join(known)}")
    if not all(1 <= order <= MAX_ORDER for order in settings.orders):
        raise ArgumentError(f"orders to measure must lie between 1 and {MAX_ORDER}, got {list(settings.orders)}")
    if not settings.dofs or not all(1 <= n <= 1e11 for n in settings.dofs):
        raise ArgumentError(
            f"degrees of freedom to measure must lie between 1 and 1e11, got {list(map(float, settings.dofs))}"
        )
    if settings.repeats < 1:
        raise ArgumentError(f"repeats must be >= 1, got {settings.repeats}")


def check_settings(settings: BenchSettings) -> None:
    """Refuse, before the measurements, problems that do not fit in memory and backends that cannot run here."""
    choose_backend(settings.backend)
    available = available_memory()
    options = {"basis": settings.basis, "quadrature": settings.quadrature, "dtype": settings.dtype}
    estimate: Callable[..., int] = problem_bytes if settings.bake_off is None else global_bytes
    for shape, order, geometry in product(settings.measured_shapes, settings.orders, settings.geometries):
        [size] = settings.sizes(shape, order, [max(settings.dofs)])
        try:
            needed = estimate(settings.benchmark, shape, order, size, geometry, backend="numpy", **options)
        except NotSuitable:
            continue  # The run reports this for each strategy.
        if needed > available:
            raise ArgumentError(
                f"{size.n_dofs:.3g} degrees of freedom on {geometry} {shape} elements of order {order} take about"
                f" {needed / GIB:.3g} GiB, but {available / GIB:.3g} GiB of memory are free;"
                f" measure at most about {max(settings.dofs) * available / needed:.1g}"
            )
