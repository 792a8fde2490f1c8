"""The whole benchmark on one backend: kernels alone on tiled blocks, in parts that end in time.

Of every problem (benchmark, shape, order, geometry, precision) all strategies and algorithms are measured at the
largest size; in the first precision at every size too, and the fastest for seconds without a pause.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from hpfem.shapes import SHAPES

from ..backends.base import BACKENDS, choose_backend
from ..backends.roofline import Roofline
from ..backends.timer import Timing, measure
from ..errors import ArgumentError, DeviceError, NotSuitable
from ..forms.form import ALGORITHMS
from ..space.arguments import MAX_ORDER
from ..tuning import Choice
from .problems import BENCHMARKS, GEOMETRIES
from .throughput import BOX_SHAPES, Measurement
from .tiled import TOLERANCES, TiledBlock, TiledKernel

SUITE_DOFS = (1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 2e7)
# What a record of a smaller size need not repeat.
_ONCE = {
    *("operator", "basis", "n_modes", "n_points", "repeats", "flops", "nbytes", "roofline_dofs_per_second"),
    *("error", "chosen", "variant"),
}
# Orders by dimension, where none are given.
ORDERS = {2: tuple(range(1, 11)), 3: tuple(range(1, 8))}


@dataclass(frozen=True)
class SuiteSettings:
    """What to measure: every combination of the lists.

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
    """

    benchmarks: tuple[str, ...] = tuple(BENCHMARKS)
    shapes: tuple[str, ...] = BOX_SHAPES
    orders: tuple[int, ...] = ()
    geometries: tuple[str, ...] = GEOMETRIES
    dtypes: tuple[str, ...] = ("float64", "float32")
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
        valid = {
            "benchmark": (self.benchmarks, tuple(BENCHMARKS)),
            "shape": (self.shapes, BOX_SHAPES),
            "geometry": (self.geometries, GEOMETRIES),
            "dtype": (self.dtypes, tuple(TOLERANCES)),
            "algorithm": (self.algorithms, ("auto", *ALGORITHMS)),
        }
        if self.strategies:
            valid["strategy"] = (self.strategies, ("auto", *BACKENDS[self.backend].strategy_names))
        for kind, (names, known) in valid.items():
            wrong = [name for name in names if name not in known]
            if wrong or not names:
                what = f"unknown {kind} {wrong[0]!r}" if wrong else f"no {kind} to measure"
                raise ArgumentError(f"{what}; valid: {', '.join(known)}")
        if not all(1 <= order <= MAX_ORDER for order in self.orders):
            raise ArgumentError(f"orders to measure must lie between 1 and {MAX_ORDER}, got {list(self.orders)}")
        if not self.dofs or not all(1 <= n <= 1e11 for n in self.dofs):
            raise ArgumentError(f"degrees of freedom to measure must lie between 1 and 1e11, got {list(self.dofs)}")
        if self.repeats < 1 or not 0 <= self.sustained <= 60:
            raise ArgumentError(
                f"repeats must be >= 1 and sustained 0 to 60 seconds, got {self.repeats} and {self.sustained}"
            )


@dataclass(frozen=True)
class Task:
    """A problem that is measured as a whole.

    Attributes
    ----------
    dtype, geometry, benchmark, shape : str
    order : int
    """

    dtype: str
    geometry: str
    benchmark: str
    shape: str
    order: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Task:
        """Find the problem that a record of a result file belongs to.

        Parameters
        ----------
        record : mapping

        Returns
        -------
        Task
        """
        return cls(record["dtype"], record["geometry"], record["benchmark"], record["shape"], record["order"])

    def __str__(self) -> str:
        return f"{self.benchmark} {self.geometry} {self.shape} P={self.order} {self.dtype}"


def suite_tasks(settings: SuiteSettings) -> list[Task]:
    """List all problems, the most wanted first: deformed elements in the first precision.

    Parameters
    ----------
    settings : SuiteSettings

    Returns
    -------
    list of Task
    """
    return [
        Task(dtype, geometry, benchmark, shape, order)
        for dtype, geometry, benchmark, shape in product(
            settings.dtypes, settings.geometries, settings.benchmarks, settings.shapes
        )
        for order in settings.orders or ORDERS[SHAPES[shape].dim]
    ]


@dataclass
class SuiteRun:
    """A run of the benchmark, or of a part of it: iterate to measure; what there is so far can always be read.

    Parameters
    ----------
    settings : SuiteSettings
    rooflines : mapping
        Roofline by precision, measured in the same run.
    part : (int, int)
        k, n: the k-th of n parts, k from 1.
    done : set of Task
        What need not be measured again.
    budget : float
        Seconds after which no problem is begun.

    Attributes
    ----------
    measurements : list of Measurement
    skipped : list of dict
        What no kernel could serve, with the reason.
    wrong : list of dict
        Kernels whose results differ from NumPy's, which are not timed.

    Raises
    ------
    DeviceError
        If the backend cannot run here.
    """

    settings: SuiteSettings
    rooflines: Mapping[str, Roofline]
    part: tuple[int, int] = (1, 1)
    done: set[Task] = field(default_factory=set)
    budget: float = math.inf
    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        number, parts = self.part
        if not 1 <= number <= parts:
            raise ArgumentError(f"part {number} of {parts} is none")
        self.backend = choose_backend(self.settings.backend)
        self.tasks = [task for task in suite_tasks(self.settings)[number - 1 :: parts] if task not in self.done]
        self._end = time.monotonic() + self.budget

    @property
    def left(self) -> list[Task]:
        """Problems of the whole benchmark that are not measured."""
        return [task for task in suite_tasks(self.settings) if task not in self.done]

    def records(self) -> list[dict[str, Any]]:
        """Make records for a result file.

        Returns
        -------
        list of dict
            Of each measurement; at smaller sizes without what follows from the largest one.
        """
        largest: dict[Task, int] = {}
        for measured in self.measurements:
            task = Task.of(vars(measured))
            largest[task] = max(largest.get(task, 0), measured.n_dofs)
        made = []
        for measured in self.measurements:
            whole = measured.n_dofs == largest[Task.of(vars(measured))]
            record = {**measured.as_dict(), "run": 0}
            made.append({name: value for name, value in record.items() if whole or name not in _ONCE})
        return made

    def in_time(self) -> bool:
        """Say whether the budget allows for more.

        Returns
        -------
        bool
        """
        return time.monotonic() < self._end

    def _block(self, task: Task) -> TiledBlock:
        s = self.settings
        options = {"basis": s.basis, "quadrature": s.quadrature, "dtype": task.dtype}
        return TiledBlock(task.benchmark, task.shape, task.order, task.geometry, self.backend.name, **options)

    def _ways(self) -> list[tuple[str, str]]:
        strategies = self.settings.strategies or tuple(self.backend.strategy_names)
        return list(product(strategies, self.settings.algorithms))

    def prepare(self, step: Callable[..., None] = lambda n=1, description=None: None) -> None:
        """Compile what will be measured, as many kernels at a time as the machine has cores.

        Parameters
        ----------
        step : callable
            (n, description): called after each problem.
        """
        kernels = []
        for task in self.tasks:
            if not self.in_time():
                return
            block = self._block(task)
            for strategy, algorithm in self._ways():
                try:
                    kernels.append(block.choose(strategy, algorithm, 1).kernel)
                except (NotSuitable, ArgumentError, DeviceError):
                    continue  # Said when it is measured.
            step(0, f"compiling: {task}")
        while kernels and self.in_time():
            try:
                kernels.pop(0).finish()
            except DeviceError:
                continue  # Said when it is measured.

    def __iter__(self) -> Iterator[Task]:
        """Measure problem by problem; yields each when it is done."""
        for task in self.tasks:
            if not self.in_time():
                return
            self._measure(task)
            self.done.add(task)
            yield task

    def _measure(self, task: Task) -> None:
        s, block = self.settings, self._block(task)
        block.tidy()
        first = task.dtype == s.dtypes[0]
        wanted = sorted(s.dofs if first else [max(s.dofs)])
        # Odd numbers of elements: kernels that take several at a time have a tail.
        sizes = sorted({math.ceil(dofs / block.problem.n_modes) | 1 for dofs in wanted}, reverse=True)
        u, out = block.arrays(sizes[0])
        auto = self._auto(block, sizes[0])
        best: tuple[Measurement, TiledKernel] | None = None
        found: list[Measurement] = []
        refused: list[dict[str, Any]] = []
        wrong: list[dict[str, Any]] = []
        seen: set[tuple[str, str]] = set()
        for strategy, algorithm in self._ways():
            what = {**vars(task), "strategy": strategy, "algorithm": algorithm}
            try:
                choice = block.choose(strategy, algorithm, sizes[0])
                if (choice.strategy, choice.algorithm) in seen:
                    continue  # A form without gradients has one algorithm only.
                kernel = TiledKernel(choice.kernel, block.xp)
                error = block.error(kernel, u, out)
            except (NotSuitable, ArgumentError, DeviceError) as reason:
                refused.append({**what, "reason": str(reason)})
                continue
            seen.add((choice.strategy, choice.algorithm))
            if not error < TOLERANCES[task.dtype]:
                wrong.append({**what, "reason": f"the result differs from NumPy's by {error:.3g}"})
                continue
            chosen = (choice.strategy, choice.algorithm) == auto
            for n in sizes:
                if n != sizes[0]:
                    kernel = self._smaller(block, kernel, choice, n)
                part = u[:, :n], out[:, :n]
                timing = measure(self._call(kernel, *part), self._timer(), s.repeats, s.min_seconds)
                rated = self._rated(task, block, choice, kernel, timing)
                found.append(replace(rated, error=error, chosen=chosen))
                if n == sizes[0] and (best is None or found[-1].seconds < best[0].seconds):
                    best = found[-1], kernel
        if best is not None and s.sustained and first:
            best[1].resize(sizes[0])
            found[found.index(best[0])] = self._sustain(best[0], best[1], u, out)
        self.measurements += found
        self.skipped += refused
        self.wrong += wrong

    @staticmethod
    def _auto(block: TiledBlock, n: int) -> tuple[str, str] | None:
        """Strategy and algorithm that "auto" takes."""
        try:
            choice = block.choose("auto", "auto", n)
        except (NotSuitable, ArgumentError, DeviceError):
            return None
        return choice.strategy, choice.algorithm

    def _timer(self) -> Any:
        return self.backend.timer()

    @staticmethod
    def _call(kernel: TiledKernel, u: Any, out: Any) -> Callable[[], object]:
        return lambda: kernel.kernel.apply(u, out)

    def _smaller(self, block: TiledBlock, kernel: TiledKernel, choice: Choice, n: int) -> TiledKernel:
        """A kernel for fewer elements: the same one on a device, where factors are large; another one on the host."""
        if kernel.geometry.whole:
            return TiledKernel(block.choose(choice.strategy, choice.algorithm, n).kernel, block.xp)
        kernel.resize(n)
        return kernel

    def _rated(self, task: Task, block: TiledBlock, choice: Choice, kernel: TiledKernel, timing: Timing) -> Measurement:
        problem = block.problem
        return Measurement.of(
            timing,
            self.rooflines[task.dtype],
            kernel.nbytes,
            kernel.flops,
            kernel.geometry.size,
            problem.n_modes,
            benchmark=task.benchmark,
            operator=block.name,
            shape=task.shape,
            geometry=task.geometry,
            strategy=choice.strategy,
            variant=choice.options,
            algorithm=choice.algorithm,
            backend=choice.backend,
            basis=self.settings.basis,
            dtype=task.dtype,
            order=task.order,
            n_points=problem.n_points,
        )

    def _sustain(self, measured: Measurement, kernel: TiledKernel, u: Any, out: Any) -> Measurement:
        # A little more than asked for: without pauses kernels may run faster than one by one.
        calls = math.ceil(1.1 * self.settings.sustained / measured.seconds)
        seconds = self._timer().seconds(self._call(kernel, u, out), calls) / calls
        return replace(
            measured,
            sustained_seconds=seconds,
            sustained_dofs_per_second=measured.n_dofs / seconds,
            sustained_fraction=measured.fraction * measured.seconds / seconds,
        )


def suite_rooflines(settings: SuiteSettings, quick: bool = False) -> dict[str, Roofline]:
    """Measure the machine's limits in every precision.

    Parameters
    ----------
    settings : SuiteSettings
    quick : bool
        Smaller arrays.

    Returns
    -------
    dict
        Roofline by precision.
    """
    backend = choose_backend(settings.backend)
    return {dtype: backend.roofline(dtype, quick) for dtype in settings.dtypes}
