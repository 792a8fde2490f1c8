"""What a benchmark measures: its settings, checked in one place, and the cases that they make.

A case is on a mesh of one size, where the operator is applied as users apply it (`BenchSettings`), or kernels alone are
measured on a few elements repeated to every size (`SuiteSettings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from hpfem.shapes import SHAPES

from ..backends.base import BACKENDS, choose_backend
from ..errors import ArgumentError, NotSuitable
from ..forms.form import ALGORITHMS
from ..space.arguments import MAX_ORDER
from ..support.machine import available_memory
from .problems import BENCHMARKS, GEOMETRIES, ProblemSize, problem_bytes, problem_sizes

GIB = 1 << 30
DEFAULT_DOFS = (3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
SUITE_DOFS = (1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 2e7)
SOLID_SHAPES = tuple(name for name, shape in SHAPES.items() if shape.dim == 3)
BOX_SHAPES = tuple(name for name, shape in SHAPES.items() if shape.dim >= 2)
SOLID_FIRST = tuple(sorted(BOX_SHAPES, key=lambda name: -SHAPES[name].dim))
# Of the whole benchmark by dimension, where none are given.
SUITE_ORDERS = {2: tuple(range(1, 11)), 3: tuple(range(1, 8))}
# Precisions, and relative differences to NumPy that are rounding.
TOLERANCES = {"float64": 1e-12, "float32": 1e-4}


@dataclass(frozen=True)
class Case:
    """A problem that is measured by every strategy and algorithm asked for.

    Attributes
    ----------
    dtype, geometry, benchmark, shape : str
    order : int
    size : ProblemSize or None
        Of the mesh; None: a few elements, repeated to every size of the settings.
    """

    dtype: str
    geometry: str
    benchmark: str
    shape: str
    order: int
    size: ProblemSize | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Case:
        """Find the case, whatever its size, that a record of a result file belongs to.

        Parameters
        ----------
        record : mapping

        Returns
        -------
        Case
        """
        return cls(record["dtype"], record["geometry"], record["benchmark"], record["shape"], record["order"])

    def as_dict(self) -> dict[str, Any]:
        """Make the part of a record that says what was measured.

        Returns
        -------
        dict
            Without the size.
        """
        return {name: value for name, value in vars(self).items() if name != "size"}

    def __str__(self) -> str:
        size = "" if self.size is None else f", {self.size.n_dofs:.1e} DoFs"
        return f"{self.benchmark} {self.geometry} {self.shape} P={self.order} {self.dtype}{size}"


@dataclass(frozen=True)
class BenchSettings:
    """What to measure on meshes: every combination of the lists.

    Attributes
    ----------
    benchmark : str
        Name in `BENCHMARKS`: "bk1" (mass) or "bk3" (Helmholtz).
    shapes : tuple of str
    orders : tuple of int
    dofs : tuple of float
        Wanted degrees of freedom, elements × modes.
    geometries : tuple of str
        "deformed" and "affine".
    strategies : tuple of str
        Empty: all of the backend.
    algorithms : tuple of str
        "auto", "collocated", "noncollocated".
    backend : str
        "auto", "numpy", "cpu" or "cuda".
    dtype : str
        "float64" or "float32".
    basis : str
    quadrature : None, str or int
        See `Space`.
    repeats : int
        Timings of each, whose median counts.
    min_seconds : float
        Least time of each timing.

    Raises
    ------
    ArgumentError
        From the constructor, for unknown names, empty lists or numbers out of range.
    """

    benchmark: str = "bk3"
    shapes: tuple[str, ...] = SOLID_SHAPES
    orders: tuple[int, ...] = tuple(range(1, 8))
    dofs: tuple[float, ...] = DEFAULT_DOFS
    geometries: tuple[str, ...] = GEOMETRIES
    strategies: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("auto",)
    backend: str = "auto"
    dtype: str = "float64"
    basis: str = "modified"
    quadrature: str | int | None = None
    repeats: int = 9
    min_seconds: float = 0.005
    sustained: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        _check(self, (self.benchmark,))
        if not self.orders:
            raise ArgumentError(f"orders to measure must lie between 1 and {MAX_ORDER}, got []")

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The one precision."""
        return (self.dtype,)

    def cases(self) -> list[Case]:
        """List what is measured.

        Returns
        -------
        list of Case
            One for each size.
        """
        return [
            Case(self.dtype, geometry, self.benchmark, shape, order, size)
            for shape, order in product(self.shapes, self.orders)
            for size in problem_sizes(shape, order, list(self.dofs), self.basis)
            for geometry in self.geometries
        ]


@dataclass(frozen=True)
class SuiteSettings:
    """What to measure of kernels alone, on a few elements repeated: every combination of the lists.

    Attributes
    ----------
    benchmarks, shapes, geometries : tuple of str
    orders : tuple of int
        Empty: 1 to 7 in three dimensions, 1 to 10 in two.
    dtypes : tuple of str
        "float64", "float32": the first is measured at every size and sustained, the others at the largest size.
    strategies : tuple of str
        Empty: all of the backend.
    algorithms : tuple of str
    dofs : tuple of float
        Wanted degrees of freedom, elements × modes; no problem has fewer.
    backend, basis : str
    quadrature : None, str or int
        See `Space`.
    repeats : int
        Timings of each, whose median counts.
    min_seconds : float
        Least time of each timing: a kernel that takes longer is launched once in each.
    sustained : float
        Seconds that the fastest is applied at the largest size without a pause; 0: not at all.

    Raises
    ------
    ArgumentError
        From the constructor, for unknown names, empty lists or numbers out of range.
    """

    benchmarks: tuple[str, ...] = tuple(BENCHMARKS)
    shapes: tuple[str, ...] = BOX_SHAPES
    orders: tuple[int, ...] = ()
    geometries: tuple[str, ...] = GEOMETRIES
    dtypes: tuple[str, ...] = tuple(TOLERANCES)
    strategies: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    dofs: tuple[float, ...] = SUITE_DOFS
    backend: str = "cuda"
    basis: str = "modified"
    quadrature: str | int | None = None
    repeats: int = 9
    min_seconds: float = 0.0005
    sustained: float = 2.0

    def __post_init__(self) -> None:
        # Settings read from a file have lists.
        for name in ("benchmarks", "shapes", "orders", "geometries", "dtypes", "strategies", "algorithms", "dofs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _check(self, self.benchmarks)
        if not 0 <= self.sustained <= 60:
            raise ArgumentError(f"the fastest can be sustained 0 to 60 seconds, got {self.sustained}")

    def cases(self) -> list[Case]:
        """List what is measured, the most wanted first: deformed elements in the first precision.

        Returns
        -------
        list of Case
        """
        return [
            Case(dtype, geometry, benchmark, shape, order)
            for dtype, geometry, benchmark, shape in product(self.dtypes, self.geometries, self.benchmarks, self.shapes)
            for order in self.orders or SUITE_ORDERS[SHAPES[shape].dim]
        ]


Settings = BenchSettings | SuiteSettings


def _check(settings: Settings, benchmarks: tuple[str, ...]) -> None:
    """Refuse unknown names, empty lists and numbers out of range."""
    valid = {
        "benchmark": (benchmarks, tuple(BENCHMARKS)),
        "shape": (settings.shapes, BOX_SHAPES),
        "geometry": (settings.geometries, GEOMETRIES),
        "dtype": (settings.dtypes, tuple(TOLERANCES)),
        "algorithm": (settings.algorithms, ("auto", *ALGORITHMS)),
    }
    if settings.strategies:
        backend = choose_backend("auto") if settings.backend == "auto" else BACKENDS[settings.backend]
        valid["strategy"] = (settings.strategies, ("auto", *backend.strategy_names))
    for kind, (names, known) in valid.items():
        wrong = [name for name in names if name not in known]
        if wrong or not names:
            what = f"unknown {kind} {wrong[0]!r}" if wrong else f"no {kind} to measure"
            raise ArgumentError(f"{what}; valid: {', '.join(known)}")
    if not all(1 <= order <= MAX_ORDER for order in settings.orders):
        raise ArgumentError(f"orders to measure must lie between 1 and {MAX_ORDER}, got {list(settings.orders)}")
    if not settings.dofs or not all(1 <= n <= 1e11 for n in settings.dofs):
        raise ArgumentError(
            f"degrees of freedom to measure must lie between 1 and 1e11, got {list(map(float, settings.dofs))}"
        )
    if settings.repeats < 1:
        raise ArgumentError(f"repeats must be >= 1, got {settings.repeats}")


def check_settings(settings: BenchSettings) -> None:
    """Refuse settings that cannot be measured here, before anything is.

    Parameters
    ----------
    settings : BenchSettings

    Raises
    ------
    ArgumentError
        For unknown names, or problems that do not fit in memory.
    DeviceError
        If the backend cannot run here.
    """
    choose_backend(settings.backend)
    available = available_memory()
    options = {"basis": settings.basis, "quadrature": settings.quadrature, "dtype": settings.dtype}
    for shape, order, geometry in product(settings.shapes, settings.orders, settings.geometries):
        [size] = problem_sizes(shape, order, [max(settings.dofs)], settings.basis)
        try:
            needed = problem_bytes(settings.benchmark, shape, order, size, geometry, backend="numpy", **options)
        except NotSuitable:
            continue  # The run says so of each strategy.
        if needed > available:
            raise ArgumentError(
                f"{size.n_dofs:.3g} degrees of freedom on {geometry} {shape} elements of order {order} take about"
                f" {needed / GIB:.3g} GiB, but {available / GIB:.3g} GiB of memory are free;"
                f" measure at most about {max(settings.dofs) * available / needed:.1g}"
            )
