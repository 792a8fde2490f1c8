"""What the strategies with kernels of ours share: plans of kernels, options, compilation in the background, rates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, Protocol

from ....errors import NotSuitable
from ....forms.form import BlockKernel, BlockProblem
from ... import options as text
from ...strategy import Options, Search, Strategy
from ..codegen.prelude import program
from ..codegen.tables import Levels
from .device import Limits, architecture, limits
from .measured import BYTES, FLOPS, expected_time, known_row, shipped_rate
from .nvrtc import start

# Rounds of options to time; they are sent the seconds of all that were timed so far.
Rounds = Generator[Sequence[Any], Mapping[Any, float], None]


class Plan(Protocol):
    """A kernel of a problem: its tables, what a block of threads has, its source without `language.h`."""

    problem: BlockProblem
    levels: Levels
    threads: int
    elements: int  # that a block has in work at a time
    group: int  # elements whose factors are stored side by side

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""

    def source(self) -> str:
        """Write the kernel."""


class CudaStrategy(Strategy):
    """A strategy whose kernels have plans."""

    kernel: ClassVar[type[Any]]
    # Assumed bytes and operations per nanosecond of kernels without a measurement.
    bandwidth, speed = BYTES, FLOPS

    @abstractmethod
    def plan(self, problem: BlockProblem, options: Options) -> Plan:
        """Plan a kernel, with the default options if there are none, or say why not."""

    def flops(self, problem: BlockProblem) -> float | None:
        """Operations of an element, for the model; None for those of sum factorisation."""
        return None

    def measured(self, problem: BlockProblem) -> str | None:
        """Speed in the shipped table; see `Strategy.measured`."""
        return shipped_rate(problem, self.name)

    def prepare(self, problem: BlockProblem, options: Options = None) -> Future[Any]:
        """Begin to compile into the cache; see `Strategy.prepare`."""
        return start(program(self.plan(problem, options).source()), architecture())

    def build(self, problem: BlockProblem, options: Options = None) -> BlockKernel:
        """Build the kernel; see `Strategy.build`."""
        found: BlockKernel = type(self).kernel(self.plan(problem, options), self.name)
        return found

    def cost(self, problem: BlockProblem) -> float:
        """Expected time per element in nanoseconds: measured, or by a model; see `Strategy.cost`."""
        return expected_time(problem, self.name, self.flops(problem), self.bandwidth, self.speed)


class ChoosingStrategy(CudaStrategy):
    """A strategy with options: by default the measured ones if they fit, else the most promising."""

    options: ClassVar[type]
    # What says why a problem is none for the kernel.
    checks: ClassVar[tuple[Callable[[BlockProblem], None], ...]] = ()
    # Its plans, of a problem and options; they tell their misfit on a device.
    sizes: ClassVar[type[Any]]

    def checked(self, problem: BlockProblem) -> BlockProblem:
        """The problem as the kernel takes it, or say why it cannot."""
        for check in self.checks:
            check(problem)
        return problem

    def planned(self, problem: BlockProblem, options: Any, limits: Limits) -> Any:
        """Plan a kernel of a checked problem, or say why it does not fit a device."""
        plan = self.sizes(problem, options)
        if (why := plan.misfit(limits)) is not None:
            raise NotSuitable(f"{self.name}: {why}")
        return plan

    @abstractmethod
    def fitting(self, problem: BlockProblem, limits: Limits) -> list[Any]:
        """Options that fit a device, the most promising first; at least one, or say why not."""

    @abstractmethod
    def rounds(self, problem: BlockProblem, limits: Limits, default: Any) -> Rounds:
        """Search the options of a checked problem."""

    def known(self, problem: BlockProblem) -> Any:
        """The measured options; None if there are none."""
        row = known_row(problem, self.name)
        return None if row is None else text.from_text(self.options, row[1])

    def chosen(self, problem: BlockProblem, limits: Limits) -> Any:
        """The default options on a device."""
        known = self.known(problem)
        try:
            if known is not None and self.planned(problem, known, limits):  # it may be of a larger device
                return known
        except NotSuitable:
            pass
        return self.fitting(problem, limits)[0]

    def default(self, problem: BlockProblem) -> Options:
        """The measured options, if there are some and they fit, else the model's best; see `Strategy.default`."""
        return text.to_text(self.chosen(self.checked(problem), limits()))

    def search(self, problem: BlockProblem) -> Search:
        """Search in rounds, the default first; see `Strategy.search`."""
        problem = self.checked(problem)
        rounds = self.rounds(problem, limits(), self.chosen(problem, limits()))
        yield from text.search_in_text(rounds, self.options)

    def plan(self, problem: BlockProblem, options: Options) -> Plan:
        """Plan with the default or given options."""
        problem = self.checked(problem)
        own = self.chosen(problem, limits()) if options is None else text.from_text(self.options, options)
        return self.planned(problem, own, limits())
