"""The CPU backend, and its strategies: compiled sum factorisation, and dense matrices through BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from numpy.typing import DTypeLike

from ...errors import ArgumentError, NotSuitable
from ...forms.cost import operator_bytes, operator_flops
from ...forms.form import BlockKernel, BlockProblem
from ...forms.merged import merged_if_possible
from ...forms.sources import of_source, possible_sources
from ...geometry import FactorSource
from ...memory import HOST, Device
from ...support.cache import Cache
from ...support.machine import processor_name
from ...support.threads import OPERATIONS_PER_NUMBER, thread_count
from ..base import BACKENDS, Backend
from ..cellwise import CellMatrices, CellwiseProduct
from ..restriction import BlockMatrix
from ..roofline import Roofline, array_bytes, last_level_cache
from ..strategy import Options, Search, Strategy, with_source
from ..vectors import VectorSpace
from .codegen.strategies import COMPILED
from .runtime.cache import kernel_cache, missing
from .runtime.function import function_of
from .runtime.geometry import volume_factors
from .runtime.kernel import FETCHES, CpuKernel, fetches_of
from .runtime.limits import measure_cores
from .runtime.product import CpuCellwise, CpuProduct, product_of
from .runtime.programs import program_index
from .runtime.recording import recorded
from .runtime.target import host
from .runtime.vectors import CpuVectors

# Time per operation relative to collocated sum factorisation (measured in turns on an AMD EPYC, P = 1..8).
_NONCOLLOCATED_COST = 0.84
# Compiled fibers run at the processor's peak; BLAS streams its arguments and results through memory.
_BLAS_COST = 4.0
_NUMPY_COST = 12.0
_VECTORS = CpuVectors(HOST)
# Points of a direction beyond which a kernel takes a minute or more to compile.
_LONGEST_FIBER = 32


class CpuFetching(Strategy):
    """A strategy of compiled kernels; how often they fetch what lies ahead is an option."""

    def search(self, problem: BlockProblem) -> Search:
        """Search the sources, then how often the fastest fetches; see `Strategy.search`."""
        timed = yield (first := next(super().search(problem)))
        best = min(timed, key=timed.__getitem__, default=first[0]) or ""
        yield [f"{best} fetches={n}".strip() for n in fetches_of(problem, self.name, host())[1]]

    def _asked(self, problem: BlockProblem, options: Options) -> tuple[BlockProblem, int | None]:
        """The problem and the fetches that options name; see `with_source`."""
        source, found, count = (options or "").partition("fetches=")
        if found and count not in map(str, FETCHES):
            raise ArgumentError(f"strategy {self.name!r} has no options {options!r}: fetches are of {FETCHES}")
        return with_source(self, problem, source.strip() or None), int(count) if found else None


class CpuSumFac(CpuFetching):
    """Sum factorisation, one element per SIMD lane, fused over all stages ([Xing] Alg. 3)."""

    name, special, tensor, sources = "sumfac", False, True, tuple(FactorSource)

    def default(self, problem: BlockProblem) -> Options:
        """Merge coefficients; recompute factors that fit no cache and take longer to read; see `Strategy.default`."""
        first, *others = possible_sources(problem)
        again = [source for source in others if source.merges == first.merges]
        # Of these the last: a scale is read faster than divided for, about 1.06 times as fast on a Zen 4.
        best = again[-1] if again and self._recomputes(problem) else first
        return None if best is FactorSource.STORED else best.value

    def _recomputes(self, problem: BlockProblem) -> bool:
        try:
            other = of_source(problem, FactorSource.RECOMPUTED)
        except NotSuitable:
            return False
        saved = operator_bytes(problem) - operator_bytes(other)
        added = operator_flops(other, "sumfac") - operator_flops(problem, "sumfac")
        faster = added < OPERATIONS_PER_NUMBER * saved / problem.dtype.itemsize
        return faster and saved * problem.n_elements > last_level_cache()

    def build(self, problem: BlockProblem, options: Options = None) -> CpuKernel:
        """Build the kernel, unless its unrolled fibers take minutes to compile; see `Strategy.build`."""
        problem, fetches = self._asked(problem, options)
        points = max(problem.tabulation.rule.counts)
        if points > _LONGEST_FIBER:
            raise NotSuitable(f"fibers of {points} points are too long to compile, the limit is {_LONGEST_FIBER}")
        return CpuKernel(problem, fetches=fetches)

    def cost(self, problem: BlockProblem) -> float:
        """Estimate the time by operations; parity saves more of them without collocation; see `Strategy.cost`."""
        share = 1.0 if problem.algorithm == "collocated" else _NONCOLLOCATED_COST
        return share * operator_flops(problem, "sumfac")


class CpuPlain(Strategy):
    """Sum factorisation by NumPy, for more than 32 points in a direction: those fibers are too long to compile."""

    name, special, tensor = "numpy", True, True

    def default(self, problem: BlockProblem) -> Options:
        """Refuse where compiled sum factorisation is possible; see `Strategy.default`."""
        if max(problem.tabulation.rule.counts) <= _LONGEST_FIBER:
            raise NotSuitable("the compiled sumfac is used instead")
        return None

    def build(self, problem: BlockProblem, options: Options = None) -> BlockKernel:
        """Build the kernel; see `Strategy.build`."""
        return BACKENDS["numpy"].strategy("sumfac").build(with_source(self, problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Estimate the time by operations, slower than compiled ones; see `Strategy.cost`."""
        return _NUMPY_COST * operator_flops(problem, "sumfac")


class CpuCompiled(CpuFetching):
    """Matrices, compiled, one element per SIMD lane: a row of `COMPILED`, whose name the kernel has."""

    special = True

    def __init__(self, name: str) -> None:
        self.name, self._row = name, COMPILED[name]
        self.tensor = self._row.tensor

    def default(self, problem: BlockProblem) -> Options:
        """Refuse what the row does not serve; see `Strategy.default`."""
        self._row.check(problem)
        return None

    def build(self, problem: BlockProblem, options: Options = None) -> CpuKernel:
        """Build the kernel, if the row's writer serves the problem; see `Strategy.build`."""
        problem, fetches = self._asked(problem, options)
        problem = merged_if_possible(problem) if self._row.merges else problem
        return CpuKernel(problem, self.name, fetches=fetches)

    def cost(self, problem: BlockProblem) -> float:
        """Estimate the time as the row does; see `Strategy.cost`."""
        try:
            return self._row.cost(problem)
        except NotSuitable:
            return inf


class CpuStdMat(Strategy):
    """Dense reference matrices through BLAS."""

    name, special = "stdmat", False

    def build(self, problem: BlockProblem, options: Options = None) -> BlockKernel:
        """Build the kernel, which serves every form; see `Strategy.build`."""
        return BACKENDS["numpy"].strategy("stdmat").build(with_source(self, problem, options))

    def cost(self, problem: BlockProblem) -> float:
        """Estimate the time by operations, at the speed of BLAS on transposed data; see `Strategy.cost`."""
        return _BLAS_COST * operator_flops(problem, "stdmat")


class CpuBackend(Backend):
    """Kernels compiled for the processor through LLVM."""

    name = "cpu"
    strategies = (CpuSumFac(), *map(CpuCompiled, COMPILED), CpuStdMat(), CpuPlain())

    # A function is compiled if all its operations are vectorised, and recorded if they all are compiled.
    missing, function, recorded = staticmethod(missing), staticmethod(function_of), staticmethod(recorded)
    volume_factors = staticmethod(volume_factors)

    def vectors(self, device: Device) -> VectorSpace | None:
        """Vectors of the host, in compiled passes; see `Backend.vectors`."""
        return _VECTORS if device.name == HOST.name else None

    def product(self, kernels: Sequence[BlockKernel], Q: BlockMatrix) -> CpuProduct | None:
        """The product without local arrays, if all kernels are compiled; see `Backend.product`."""
        own = [kernel for kernel in kernels if isinstance(kernel, CpuKernel)]
        return product_of(own, Q) if len(own) == len(kernels) and 4 * Q.starts[-1] < 2**31 else None

    def cellwise(self, given: CellMatrices) -> CpuCellwise | CellwiseProduct:
        """The product without local arrays, if signs and places are those of Q; see `Backend.cellwise`."""
        own = given.back.blocks is given.Q.blocks and 4 * given.Q.starts[-1] < 2**31
        return CpuCellwise(given) if own else super().cellwise(given)

    def product_needs(self, local: int, size: int, components: int, dtype: DTypeLike) -> dict[str, dict[str, float]]:
        """Tables of the product and of the restriction, as measured; see `Backend.product_needs`."""
        return {self.device().name: {"index tables": 24.0 * local}}

    def processor(self) -> str:
        """Name of the processor, and the number of threads; see `Backend.processor`."""
        return f"{processor_name()}, {thread_count()} thread(s)"

    def caches(self) -> dict[str, Cache]:
        """Compiled kernels; see `Backend.caches`."""
        return {"kernels": kernel_cache(), "programs": program_index()}

    def measure_limits(self, dtype: DTypeLike, quick: bool) -> Roofline:
        """Measure multiply-adds in registers and reading memory; see `Backend.measure_limits`."""
        return measure_cores(dtype, array_bytes(quick), quick)


BACKENDS.add("cpu", CpuBackend())
