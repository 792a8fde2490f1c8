"""Throughput in degrees of freedom per second, shape by shape, and the share of the roofline it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np

from hpfem.shapes import SHAPES

from ..backends.base import choose_backend
from ..backends.roofline import Roofline
from ..backends.timer import Timer, Timing, measure
from ..errors import ArgumentError, NotSuitable
from ..forms.form import ALGORITHMS
from ..operators import Operator
from ..space import Space
from ..space.arguments import MAX_ORDER
from ..support.machine import available_memory
from .problems import BENCHMARKS, GEOMETRIES, ProblemSize, problem_bytes, problem_sizes, problem_space
from .results import rounded

# Shape, geometry, order, size.
Case = tuple[str, str, int, ProblemSize]

GIB = 1 << 30
DEFAULT_DOFS = (3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
SOLID_SHAPES = tuple(name for name, shape in SHAPES.items() if shape.dim == 3)
BOX_SHAPES = tuple(name for name, shape in SHAPES.items() if shape.dim >= 2)


@dataclass(frozen=True)
class BenchSettings:
    """What to measure: every combination of the lists.

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


@dataclass(frozen=True)
class Measurement:
    """One point of a throughput curve.

    Attributes
    ----------
    benchmark, operator, shape, geometry, strategy, algorithm, backend, basis, dtype : str
        What was measured. The algorithm is "collocated" too where there are no gradients.
    order, n_cells, n_modes, n_points, n_dofs : int
        Size; `n_dofs` is cells × modes.
    seconds, best, worst : float
        Of one application: median and extremes over `repeats` timings of `calls` calls.
    dofs_per_second : float
        n_dofs / seconds.
    flops, nbytes : float
        Nominal operations and compulsory bytes of one application (`hpfem.forms.cost`).
    roofline_dofs_per_second : float
        Bound by bandwidth and flop rate.
    bound : str
        "bandwidth" or "flops".
    fraction : float
        Share of the bound.
    error : float, optional
        Largest difference to NumPy's result, relative to the largest entry; of a `SuiteRun`, as the following.
    chosen : bool, optional
        Whether strategy "auto" takes this strategy and algorithm.
    variant : str, optional
        Of the strategy's kernels.
    sustained_seconds, sustained_dofs_per_second, sustained_fraction : float, optional
        Of the fastest strategy, applied for seconds without a pause.
    """

    benchmark: str
    operator: str
    shape: str
    geometry: str
    strategy: str
    algorithm: str
    backend: str
    basis: str
    dtype: str
    order: int
    n_cells: int
    n_modes: int
    n_points: int
    n_dofs: int
    seconds: float
    best: float
    worst: float
    repeats: int
    calls: int
    dofs_per_second: float
    flops: float
    nbytes: float
    roofline_dofs_per_second: float
    bound: str
    fraction: float
    error: float | None = None
    chosen: bool | None = None
    variant: str | None = None
    sustained_seconds: float | None = None
    sustained_dofs_per_second: float | None = None
    sustained_fraction: float | None = None

    @classmethod
    def of(
        cls, timing: Timing, roofline: Roofline, nbytes: float, flops: float, n_cells: int, n_modes: int, **what: Any
    ) -> Measurement:
        """Rate a timing.

        Parameters
        ----------
        timing : Timing
            Of one application.
        roofline : Roofline
        nbytes, flops : float
            Of one application.
        n_cells, n_modes : int
            Elements, and modes of each.
        **what
            All other attributes that say what was measured.

        Returns
        -------
        Measurement
        """
        n_dofs = n_cells * n_modes
        least, bound = roofline.bound(nbytes, flops)
        return cls(
            **what,
            n_cells=n_cells,
            n_modes=n_modes,
            n_dofs=n_dofs,
            seconds=timing.median,
            best=timing.best,
            worst=timing.worst,
            repeats=timing.repeats,
            calls=timing.calls,
            dofs_per_second=n_dofs / timing.median,
            flops=float(flops),
            nbytes=float(nbytes),
            roofline_dofs_per_second=n_dofs / least,
            bound=bound,
            fraction=least / timing.median,
        )

    def as_dict(self) -> dict[str, Any]:
        """Make a record for result files.

        Returns
        -------
        dict
            Without what was not measured.
        """
        return rounded({name: value for name, value in asdict(self).items() if value is not None})


@dataclass
class ThroughputRun:
    """A throughput measurement under way: iterate to measure; what there is so far can always be read.

    Parameters
    ----------
    settings : BenchSettings
    roofline : Roofline
        Measured on the backend of the settings, in the same run.

    Attributes
    ----------
    measurements : list of Measurement
        Done so far.
    skipped : list of dict
        What no kernel could serve, with the reason.

    Raises
    ------
    ArgumentError
        For unknown names, or nothing to measure.
    DeviceError
        If the backend cannot run here.
    """

    settings: BenchSettings
    roofline: Roofline
    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_settings(self.settings)

    def cases(self) -> list[Case]:
        """List what is measured.

        Returns
        -------
        list of (str, str, int, ProblemSize)
            Shape, geometry, order and size.
        """
        s = self.settings
        return [
            (shape, geometry, order, size)
            for shape in s.shapes
            for order in s.orders
            for size in problem_sizes(shape, order, list(s.dofs), s.basis)
            for geometry in s.geometries
        ]

    def __iter__(self) -> Iterator[Case]:
        """Measure case by case; yields each case when it is done."""
        chosen = choose_backend(self.settings.backend)
        backend, timer = chosen.name, chosen.timer()
        strategies = self.settings.strategies or chosen.strategy_names
        for case in self.cases():
            shape, geometry, order, size = case
            s = self.settings
            space = problem_space(shape, order, size, geometry, backend=backend, **_space_options(s))
            done: set[tuple[str, str]] = set()
            for strategy in strategies:
                for algorithm in s.algorithms:
                    self._measure(space, case, strategy, algorithm, timer, done)
            yield case

    def _measure(
        self,
        space: Space,
        case: Case,
        strategy: str,
        algorithm: str,
        timer: Timer,
        done: set[tuple[str, str]],
    ) -> None:
        s = self.settings
        shape, geometry, order, size = case
        what = {"shape": shape, "geometry": geometry, "order": order, "strategy": strategy, "algorithm": algorithm}
        try:
            operator = BENCHMARKS[s.benchmark](space, strategy=strategy, algorithm=algorithm)
        except NotSuitable as reason:
            self.skipped.append({**what, "reason": str(reason)})
            return
        [choice] = operator.choices
        if (choice.strategy, choice.algorithm) in done:
            return  # A form without gradients has one algorithm only; "auto" may choose one that is asked for too.
        done.add((choice.strategy, choice.algorithm))
        [block] = space.blocks
        seconds = time_operator(operator, timer, s.repeats, s.min_seconds)
        measured = Measurement.of(
            seconds,
            self.roofline,
            operator.nbytes,
            operator.flops,
            size.n_cells,
            size.n_modes,
            benchmark=s.benchmark,
            operator=operator.name,
            shape=shape,
            geometry="affine" if block.affine else "deformed",
            strategy=choice.strategy,
            algorithm=choice.algorithm,
            backend=choice.backend,
            basis=s.basis,
            dtype=space.dtype.name,
            order=order,
            n_points=block.n_points,
        )
        self.measurements.append(measured)


def time_operator(operator: Operator, timer: Timer, repeats: int, min_seconds: float) -> Timing:
    """Time an operator on random values, with the result's memory reused.

    Parameters
    ----------
    operator : Operator
        With input of state "coeff" or "phys".
    timer : Timer
    repeats : int
    min_seconds : float

    Returns
    -------
    Timing
    """
    space, rng = operator.space, np.random.default_rng(0)
    argument = space.zeros(operator.input_state)
    for array in argument.arrays:
        array[...] = rng.standard_normal(array.shape)
    out = operator(argument)
    return measure(lambda: operator(argument, out=out), timer, repeats, min_seconds)


def _space_options(settings: BenchSettings) -> dict[str, Any]:
    return {"basis": settings.basis, "quadrature": settings.quadrature, "dtype": settings.dtype}


def check_settings(settings: BenchSettings) -> None:
    """Refuse settings that cannot be measured, before anything is.

    Parameters
    ----------
    settings : BenchSettings

    Raises
    ------
    ArgumentError
        For unknown names, empty lists, numbers out of range, or problems that do not fit in memory.
    DeviceError
        If the backend cannot run here.
    """
    BENCHMARKS[settings.benchmark]
    backend = choose_backend(settings.backend)
    valid = {
        "shape": (settings.shapes, BOX_SHAPES),
        "geometry": (settings.geometries, GEOMETRIES),
        "strategy": (settings.strategies, ("auto", *backend.strategy_names)),
        "algorithm": (settings.algorithms, ("auto", *ALGORITHMS)),
    }
    for kind, (names, known) in valid.items():
        for name in names:
            if name not in known:
                raise ArgumentError(f"unknown {kind} {name!r}; valid: {', '.join(known)}")
        if not names and kind != "strategy":
            raise ArgumentError(f"no {kind} to measure; valid: {', '.join(known)}")
    if not settings.orders or not all(1 <= order <= MAX_ORDER for order in settings.orders):
        raise ArgumentError(f"orders to measure must lie between 1 and {MAX_ORDER}, got {list(settings.orders)}")
    if not settings.dofs or not all(1 <= n <= 1e11 for n in settings.dofs):
        raise ArgumentError(
            f"degrees of freedom to measure must lie between 1 and 1e11, got {list(map(float, settings.dofs))}"
        )
    if settings.repeats < 1:
        raise ArgumentError(f"repeats must be >= 1, got {settings.repeats}")
    _check_memory(settings)


def _check_memory(settings: BenchSettings) -> None:
    """Refuse problems that do not fit in memory."""
    available = available_memory()
    most = max(settings.dofs)
    for shape, order, geometry in product(settings.shapes, settings.orders, settings.geometries):
        [size] = problem_sizes(shape, order, [most], settings.basis)
        try:
            options = _space_options(settings)
            needed = problem_bytes(settings.benchmark, shape, order, size, geometry, backend="numpy", **options)
        except NotSuitable:
            continue  # The run says so of each strategy.
        if needed > available:
            raise ArgumentError(
                f"{size.n_dofs:.3g} degrees of freedom on {geometry} {shape} elements of order {order} take about"
                f" {needed / GIB:.3g} GiB, but {available / GIB:.3g} GiB of memory are free;"
                f" measure at most about {most * available / needed:.1g}"
            )
