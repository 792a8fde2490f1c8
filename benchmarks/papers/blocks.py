"""Problems for the papers, for the engine of the benchmarks: kernels on an exact number of elements, and waves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from hpfem.assembly import BoundaryConditions, C0Space, GlobalOperator
from hpfem.backends.base import BACKENDS, Backend
from hpfem.backends.passes import LEAPFROG
from hpfem.backends.strategy import Strategy, options_of_source
from hpfem.backends.timer import Timing
from hpfem.benchmarks.bake_off import unknowns
from hpfem.benchmarks.global_phases import MeasuredOperator
from hpfem.benchmarks.problems import Application, BuiltOperator, OneMesh, ProblemSize, random_field
from hpfem.benchmarks.tiled import TiledProblem, few_elements
from hpfem.benchmarks.turns import time_in_turns
from hpfem.errors import NotSuitable
from hpfem.forms.cost import operator_bytes, operator_flops
from hpfem.forms.form import BlockKernel, BlockProblem
from hpfem.geometry import FactorSource
from hpfem.memory import HOST
from hpfem.mesh import Mesh, box
from hpfem.operators import Helmholtz, Mass, Operator
from hpfem.shapes import SHAPES
from hpfem.solvers import cg
from hpfem.space import Space
from hpfem.tuning.select import Choice, choose
from hpfem.tuning.store import Config

# Residual over right-hand side at which a solve ends.
TOLERANCE = 1e-8
# Operators of experiments only.
Build = Callable[[BlockProblem], BlockKernel]


def tapered(shape: str) -> Mesh:
    """Mesh of straight-sided elements that are not affine where the shape allows that."""
    return box(shape, (2,) * SHAPES[shape].dim).transformed(lambda x: x * (1 + 0.2 * np.roll(x, 1, axis=1)))


def elements_mesh(shape: str, geometry: str) -> Mesh:
    """Mesh of the elements that are copied."""
    return tapered(shape) if geometry == "trilinear" else few_elements(shape, geometry)


class Elements(TiledProblem):
    """An operator on so many copies of a few elements.

    Parameters
    ----------
    operator : callable
        space -> operator.
    shape : str
    order : int
    geometry : str
        See `elements_mesh`.
    backend : str
    counts : sequence of int
        Elements to measure.
    components : int
        Of the field.
    **options
        `basis` and `quadrature` of the `Space`; by default the collapsed rule.
    """

    def __init__(
        self,
        operator: Callable[[Space], Operator],
        shape: str,
        order: int,
        geometry: str,
        backend: str,
        counts: Sequence[int],
        components: int = 1,
        **options: Any,
    ) -> None:
        rule = {"quadrature": "collapsed"} | options
        space = Space(elements_mesh(shape, geometry), order, backend="numpy", **rule)
        super().__init__(operator(space).choices[0].kernel.problem, backend, components)
        self.counts = counts

    def sizes(self, dofs: Sequence[float]) -> list[int]:
        """The numbers of elements up to so many degrees of freedom, or the smallest; see `TiledProblem.sizes`."""
        most = max(dofs) / self.problem.n_modes
        return sorted({n for n in self.counts if n <= most} or {min(self.counts)}, reverse=True)


def by_source(
    problem: BlockProblem, backend: Backend, source: FactorSource, algorithm: str = "auto"
) -> tuple[Strategy, str | None, BlockKernel]:
    """Build a kernel with a source of geometric factors."""
    usual = choose(problem, "auto", algorithm, backend)
    if usual.kernel.problem.source is source:
        return backend.strategy(usual.config.strategy), usual.config.options, usual.kernel
    for provider in backend.strategies:
        with suppress(NotSuitable):
            options = options_of_source(provider, problem, source)
            return provider, options, provider.build(problem, options)
    raise NotSuitable(f"no strategy offers factors that are {source} here before it has timed others")


class Sourced(Elements):
    """Elements whose strategies are sources of geometric factors; see `Elements` and `by_source`."""

    def auto(self, n_elements: int) -> tuple[str, ...]:
        """What "auto" takes is not among them; see `TiledProblem.auto`."""
        return ()

    def choose(self, strategy: str, algorithm: str, n_elements: int) -> Choice:
        """Build the kernel with a source; see `TiledProblem.choose`."""
        # Coefficients in the factors are of all the few elements, also where one is enough to compile.
        problem = self.tiled(max(n_elements, self.problem.n_elements))
        provider, options, kernel = by_source(problem, self.backend, FactorSource(strategy), algorithm)
        if kernel.problem.source != strategy:
            raise NotSuitable(f"{provider.name} takes {kernel.problem.source} factors here, not {strategy}")
        config = Config(strategy, kernel.problem.algorithm, f"{provider.name} {options or ''}".strip())
        return Choice(config, self.backend.name, kernel, "asked for", ())


class Sized(Elements):
    """The same on so many copies as make about these `dofs`: odd numbers, so that what takes several has a tail."""

    def __init__(
        self,
        operator: Callable[[Space], Operator],
        shape: str,
        order: int,
        geometry: str,
        backend: str,
        dofs: Sequence[float],
        **options: Any,
    ) -> None:
        super().__init__(operator, shape, order, geometry, backend, (), **options)
        self.counts = TiledProblem.sizes(self, dofs)


class VariantElements(Elements):
    """Elements whose kernel, called `name`, is one that only an experiment builds of a problem; see `Elements`."""

    def __init__(self, name: str, build: Build, *what: Any, **options: Any) -> None:
        super().__init__(*what, **options)
        self.name, self._build = name, build

    def choose(self, strategy: str, algorithm: str, n_elements: int) -> Choice:
        """Build the kernel, whatever strategy is asked for; see `TiledProblem.choose`."""
        kernel = self._build(self.tiled(n_elements, "collocated" if algorithm == "auto" else algorithm))
        return Choice(Config(self.name, None), self.backend.name, kernel, "asked for", ())


class InTurns(Sized):
    """Elements whose kernels are timed in turns, to compare on a loaded machine; `builds` make an experiment's own."""

    def __init__(
        self,
        strategies: Sequence[str],
        algorithms: Sequence[str],
        builds: Mapping[str, Build],
        *what: Any,
        **options: Any,
    ) -> None:
        super().__init__(*what, **options)
        self._ways, self._builds = [*product(strategies, algorithms)], builds
        self._timings: dict[int, dict[tuple[str, str], Timing]] = {}

    def choose(self, strategy: str, algorithm: str, n_elements: int) -> Choice:
        """Build one of the kernels; see `TiledProblem.choose`."""
        if strategy not in self._builds:
            return super().choose(strategy, algorithm, n_elements)
        kernel = self._builds[strategy](self.tiled(n_elements))
        return Choice(Config(strategy, kernel.problem.algorithm), self.backend.name, kernel, "asked for", ())

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Build the operator, which is timed with the others; see `TiledProblem.build`."""
        return _InTurns(super().build(strategy, algorithm, n_elements), self._timed)

    def _timed(self, n_elements: int) -> Mapping[tuple[str, str], Timing]:
        if n_elements not in self._timings:
            calls: dict[tuple[str, str], Callable[[], object]] = {}
            for way in self._ways:
                with suppress(NotSuitable):
                    built = super().build(*way, n_elements)
                    calls[built.choice.strategy, built.choice.algorithm] = built.on(n_elements).call
            self._timings[n_elements] = time_in_turns(calls, self.backend.timer())
        return self._timings[n_elements]


class _InTurns(BuiltOperator):
    def __init__(self, built: BuiltOperator, timed: Callable[[int], Mapping[tuple[str, str], Timing]]) -> None:
        self.choice, self._built, self._timed = built.choice, built, timed

    def error(self) -> float | None:
        return self._built.error()

    def on(self, n_elements: int) -> Application:
        timing = self._timed(n_elements)[self.choice.strategy, self.choice.algorithm]
        return replace(self._built.on(n_elements), timing=timing)


class Unbuilt(Elements):
    """A roofline: the time of something else in place of a kernel's; see `Elements`."""

    def auto(self, n_elements: int) -> tuple[str, ...]:
        """There is nothing to choose; see `TiledProblem.auto`."""
        return ()

    def choose(self, strategy: str, algorithm: str, n_elements: int) -> Choice:
        """Name what is timed; see `TiledProblem.choose`."""
        kernel = BlockKernel()
        kernel.problem = self.tiled(n_elements)
        return Choice(Config(strategy, None), self.backend.name, kernel, "asked for", ())

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Make ready what is timed; see `TiledProblem.build`."""
        return _Timed(self.choose(strategy, algorithm, n_elements), partial(self.seconds, strategy))

    def seconds(self, strategy: str, n_elements: int) -> Timing:
        """Time it."""
        raise AssertionError("a roofline overrides seconds")


class _Timed(BuiltOperator):
    def __init__(self, choice: Choice, seconds: Callable[[int], Timing]) -> None:
        self.choice, self._seconds = choice, seconds

    def on(self, n_elements: int) -> Application:
        problem, n, timing = self.choice.kernel.problem, n_elements, self._seconds(n_elements)
        work = float(operator_bytes(problem) * n), float(operator_flops(problem, "sumfac") * n)
        return Application(lambda: None, *work, n * problem.n_modes, timing=timing)


def mean_of(call: Callable[[], object], calls: int, timer: Any) -> Timing:
    """Time calls in a row, after one more."""
    timer.seconds(call, 1)
    mean = timer.seconds(call, calls) / calls
    return Timing.of([mean], calls)


class Copies(Unbuilt):
    """Copying half of the least bytes of a kernel there and half back: the mean of ten ([Swirydowicz] section 5)."""

    def nbytes(self, strategy: str) -> int:
        """Count the bytes of an element."""
        return operator_bytes(self.problem)

    def seconds(self, strategy: str, n_elements: int) -> Timing:
        """Time ten copies in a row; see `Unbuilt.seconds`."""
        source = self.xp.ones(self.nbytes(strategy) * n_elements // 2, np.uint8)
        target, timer = self.xp.empty_like(source), self.backend.timer()
        return mean_of(partial(self.xp.copyto, target, source), 10, timer)


class GlobalElements(OneMesh):
    """An operator (space, **options) on the unknowns of a box of so many hexes or quads, u = 0 on its boundary."""

    def __init__(
        self,
        operator: Callable[..., Operator],
        shape: str,
        order: int,
        geometry: str,
        backend: str,
        counts: tuple[int, ...],
        components: int = 1,
        **options: Any,
    ) -> None:
        self.size = box_size(shape, order, counts)
        self._make, self._components = operator, components
        self._options = {"order": order, "backend": backend, "quadrature": "collapsed", **options}
        self._mesh, self._recomputed = partial(_whole_box, shape, counts, geometry), geometry == "trilinear"

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Build the operator; see `hpfem.benchmarks.bake_off.GlobalBlock.build`."""
        c0 = C0Space(Space(self._mesh(), **self._options))
        bc = BoundaryConditions(c0, dirichlet=0.0)
        made = self._make(c0.space, strategy=strategy, algorithm=algorithm)
        if self._recomputed:
            problem = made.problem(0)
            provider, options, kernel = by_source(problem, made.backend, FactorSource.RECOMPUTED, algorithm)
            made.rebuild([(Config(provider.name, kernel.problem.algorithm, options), "asked for", ())])
            if not made.choices[0].kernel.problem.source.recomputes:
                raise NotSuitable(f"{provider.name} does not recompute the factors of this box")
        return _Checked(GlobalOperator(made, c0, bc, components=self._components), "none", 0.0)


class _Checked(MeasuredOperator):
    reference = "NumPy's"

    def error(self) -> float:
        return difference(self.A.operator)

    def iteration(self) -> Application | str:
        """An iteration, with what a solve to `TOLERANCE` takes; see `MeasuredOperator.iteration`."""
        made = super().iteration()
        if isinstance(made, str):
            return made
        assert self.A.bc is not None  # `GlobalElements.build` gives it
        rhs = self.A.vectors.from_host(self._given * np.tile(self.A.bc.free, self.A.components))
        _, info = cg(self.A, rhs, tol=TOLERANCE, bar=False)
        return replace(made, iterations=info.iterations, residual=float(info.residual))


def box_size(shape: str, order: int, counts: tuple[int, ...]) -> ProblemSize:
    """Size of a box of cells that are small boxes."""
    return ProblemSize(counts, 1, int(np.prod(counts)), unknowns(shape, order, counts))


def _whole_box(shape: str, counts: tuple[int, ...], geometry: str) -> Mesh:
    mesh = box(shape, counts)
    if geometry == "trilinear":
        return mesh.transformed(lambda x: x * (1 + 0.2 * np.roll(x, 1, axis=1)))
    return mesh if geometry == "affine" else mesh.elevated(2).transformed(lambda x: x + 0.02 * np.sin(np.roll(x, 1, 1)))


# A step of the scheme by the backend's kernel, and by operations of the library of its arrays, one after the other.
FUSED, SEPARATE = "fused", "vector operations"


class Wave(OneMesh):
    """Time steps of the acoustic wave equation on a box of so many cells; the strategies are `FUSED` and `SEPARATE`."""

    def __init__(self, shape: str, order: int, backend: str, counts: tuple[int, ...]) -> None:
        self.size = box_size(shape, order, counts)
        self._mesh = partial(box, shape, counts)
        self._options: dict[str, Any] = {
            "order": order,
            "basis": "lagrange",
            "quadrature": "collocated",
            "backend": backend,
        }

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Make the wave, whose stiffness has the kernel that "auto" chooses; see `GlobalElements.build`."""
        return _WaveSteps(C0Space(Space(self._mesh(), **self._options)), strategy)


class _WaveSteps(BuiltOperator):
    """Steps of "leapfrog", with their update in one pass or by vector operations; start at random."""

    def __init__(self, c0: C0Space, name: str) -> None:
        self.K, self._fused = GlobalOperator(Helmholtz(c0.space, 0.0, 1.0), c0), name == FUSED
        self.vectors, self._stiffness = self.K.vectors, MeasuredOperator(self.K)
        weights = -1e-12 / GlobalOperator(Mass(c0.space), c0).diagonal()
        self._weights = self.vectors.from_host(weights, c0.space.dtype)
        kernel = self._stiffness.choice
        self.choice = replace(kernel, config=Config(name, kernel.algorithm, kernel.strategy))
        self._now, self._before = self._weights * 0, self._weights * 0

    def _advance(self, force: Any, weights: Any, now: Any, before: Any) -> None:
        if self._fused:
            self.vectors.run(LEAPFROG, (force, weights, now, before), (2.0, 1.0))
        else:
            force[...] = 2 * now - before + weights * force

    def _step(self) -> None:
        force = self.K.apply(self._now, self.K.device)
        self._advance(force, self._weights, self._now, self._before)
        self._before, self._now = self._now, force

    def error(self) -> float:
        """That of the stiffness, or of a step on random vectors beside NumPy's."""
        force, weights, now, before = given = np.random.default_rng(0).standard_normal((4, self.K.c0.size))
        wanted = 2 * now - before + weights * force
        arrays = [self.vectors.from_host(row) * 1 for row in given]  # on a host the first are the given ones
        self._advance(*arrays)
        of_step = np.abs(self.vectors.to_host(arrays[0]) - wanted).max() / np.abs(wanted).max()
        return max(difference(self.K.operator), float(of_step))

    def on(self, n_elements: int) -> Application:
        """Steps: beside the stiffness a vector is written, and four are read; see `BuiltOperator.on`."""
        size, stiffness = self.K.c0.size, self._stiffness
        start = np.random.default_rng(0).standard_normal(size)
        self._now = self.vectors.from_host(start, self.K.dtype) * 1
        self._before = self._now * 1
        return Application(self._step, stiffness.nbytes + 40.0 * size, stiffness.flops + 4.0 * size, size)


def difference(operator: Operator) -> float:
    """Apply an operator to a random field, element by element, beside NumPy's sum factorisation."""
    given = random_field(operator.space, operator.input_state)
    problem = operator.choices[0].kernel.problem
    fields = {name: replace(field, device=HOST) for name, field in problem.fields.items()}
    reference = BACKENDS["numpy"].strategy("sumfac").build(replace(problem, fields=fields))
    wanted = np.empty_like(given.arrays[0])
    reference.apply(given.arrays[0], wanted)
    return float(np.abs(operator(given).arrays[0] - wanted).max() / np.abs(wanted).max())
