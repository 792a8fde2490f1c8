"""A compiled kernel with its buffers: geometry in the order it is read, scratch per thread."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from hpfem.shapes.arrays import Floats
from hpfem.shapes.cached import cached_property

from ....forms.cost import operator_bytes, operator_flops
from ....forms.form import BlockKernel, BlockProblem
from ....support.pool import Pool
from ....support.threads import THREAD_FLOPS, run_all, shares
from ...cellwise import FactorisedMatrix
from ..codegen.diagonal import write_diagonal
from ..codegen.indexed import Indexed, Runs, codes_ahead
from ..codegen.ir import Program
from ..codegen.matrix import Zeros, order_of, steps_at, write_matrix, zeros_of
from ..codegen.pointwise import field_inputs, parameter_inputs
from ..codegen.prefetch import BY_WORK
from ..codegen.strategies import COMPILED
from ..codegen.sumfac import write_sumfac
from .begun import Begun
from .buffers import aligned
from .geometry import scales_and_maps, stored_factors
from .programs import begin
from .target import Code, Target, host

# Bytes of geometry, input and output above which the next group is prefetched: more than a core's own caches hold.
# Above eight times as many no cache holds them.
PREFETCH_BYTES = 4 << 20
# Bytes of a group that leave too little room in the first level for what is fetched early from a shared cache.
_LARGE_GROUP = 32 << 10
# How often lines may be fetched: the tuner knows what a processor does best.
FETCHES = 0, 1, 2, 4, 8
_WRITERS: dict[str, Callable[[BlockProblem, int, int, Indexed], Program]] = {
    "sumfac": write_sumfac,
    "diagonal": write_diagonal,
    **{name: row.write for name, row in COMPILED.items()},
}


@cache
def _specialised(
    pickled: bytes, strategy: str, target: Target, fetches: int, runs: tuple[Runs, ...] | None
) -> tuple[Program, Begun]:
    """The code for a problem without data, written once."""
    return begin(_write, target, pickled, strategy, target, fetches, runs)


def _write(pickled: bytes, strategy: str, target: Target, fetches: int, runs: tuple[Runs, ...] | None) -> Program:
    problem = pickle.loads(pickled)
    return _WRITERS[strategy](problem, target.lanes(problem.dtype), fetches, runs)


def fetches_of(problem: BlockProblem, strategy: str, target: Target) -> tuple[int, list[int]]:
    """How often what lies ahead is fetched, from a shared cache once; what else to try, out of a core's own caches."""
    each, factored = operator_bytes(problem), strategy == "sumfac"
    nbytes, group = each * problem.n_elements, each * target.lanes(problem.dtype)
    near = 2 * PREFETCH_BYTES if factored and group > _LARGE_GROUP else PREFETCH_BYTES
    # Prefetches are lost when many are under way: measured on AMD's processors, which alone have that instruction.
    far = BY_WORK if factored and "+clzero" in target.features else 2
    usual = far if nbytes > 8 * PREFETCH_BYTES else int(nbytes > near)
    return usual, [n for n in FETCHES if n != usual] if 4 * nbytes > PREFETCH_BYTES else []


# Bytes before the codes of coefficients.
_HEADER = 64


def indexed_codes(runs: Sequence[Runs], *tables: NDArray[np.int32]) -> NDArray[np.int32]:
    """Codes of coefficients and of results, if these are others, as kernels take them; [groups, entities, lanes]."""
    header, ahead = np.zeros(_HEADER // 4, np.int32), np.zeros(codes_ahead(runs) * tables[0].shape[2], np.int32)
    header.view(np.int64)[-1] = tables[0].nbytes * (len(tables) - 1)
    return np.concatenate([header, *(own.ravel() for own in tables), ahead])


def tables_of(codes: NDArray[np.int32], runs: Sequence[Runs], lanes: int, groups: int) -> list[NDArray[np.int32]]:
    """The tables [groups, entities, lanes] that `indexed_codes` has put together."""
    first, shape = _HEADER // 4, (groups, sum(len(own.modes) for own in runs), lanes)
    size, further = int(np.prod(shape)), int(codes[: _HEADER // 4].view(np.int64)[-1] > 0)
    return [codes[first + n * size : first + (n + 1) * size].reshape(shape) for n in range(1 + further)]


class GroupKernel:
    """Compiled code on groups of elements, with scratch for every thread; `codes` as of `codegen.indexed`."""

    def __init__(
        self,
        program: Program,
        code: Begun | None,
        n_elements: int,
        dtype: DTypeLike,
        target: Target,
        codes: NDArray[np.int32] | None = None,
    ) -> None:
        self.target, self.dtype, self._n_elements = target, np.dtype(dtype), n_elements
        # Getting the address of an array takes as long as the call of a small kernel.
        self._codes, self._codes_at = codes, 0 if codes is None else codes.ctypes.data + _HEADER
        self.lanes = target.lanes(dtype)  # elements of a group
        self.groups = -(-n_elements // self.lanes)
        self._begun = code
        self.group_flops = program.flops * self.lanes  # counted as it was written
        self._scratch_size = program.scratch_size * self.lanes
        self._scratch: Pool[tuple[Floats, int]] = Pool()
        self.give_scratch = self._scratch.give

    @cached_property
    def code(self) -> Code:
        """The compiled code; a `MatrixKernel` has some where it is `indexed`."""
        assert self._begun is not None
        return self._begun.code

    def take_scratch(self) -> tuple[Floats, int]:
        """Scratch for a thread until it is given back (`give_scratch`)."""
        return self._scratch.take(self._new_scratch)

    def _new_scratch(self) -> tuple[Floats, int]:
        array = aligned((self._scratch_size,), self.dtype)
        array[...] = 0
        return array, array.ctypes.data

    changes = False

    def inputs(self) -> tuple[tuple[int, int, int, int], Any]:
        """Addresses of geometry, points, fields and parameters, and what is there; they stay unless it `changes`."""
        return (0, 0, 0, 0), None

    def applied(self, components: int) -> int:
        """Count how often it is applied to a field of so many components."""
        return components

    def call(self, shape: tuple[int, int], given: int) -> tuple[tuple[int, ...], Any]:
        """A call for `codegen.sequence`, of all groups, between global vectors."""
        (components, stride), (addresses, used), scratch = shape, self.inputs(), self._new_scratch()
        counts = 0, self.groups, self._n_elements, self.applied(components)
        words = self.code.address, *counts, given, 0, *addresses, scratch[1], self._codes_at, stride
        return words, (self, used, scratch)

    def _launch(self, bounds: Sequence[int], components: int, addresses: Sequence[int], used: Any) -> None:
        """Run groups, each share on a thread; input, output and `inputs` are in arrays that `used` holds."""
        codes, common = self._codes_at, (self._n_elements, components, *addresses)
        if len(bounds) == 2:
            own = self.take_scratch()
            self.code.run(*bounds, *common, own[1], codes, 0)
            self.give_scratch(own)
            return
        scratch = [self.take_scratch() for _ in bounds[1:]]
        parts, held = zip(bounds, bounds[1:], scratch), (self, used, scratch)
        run = self.code.run_holding
        run_all([partial(run, held, g0, g1, *common, at, codes, 0) for g0, g1, (_, at) in parts])
        for own in scratch:
            self.give_scratch(own)


@lru_cache(maxsize=64)
def _of_matrix(zeros: Zeros, across: bool, target: Target, dtype: str, runs: tuple[Runs, ...]) -> tuple[Program, Begun]:
    """The code for matrices with the same zeros, written once."""
    return begin(_write_matrix, target, zeros, across, target.lanes(dtype), dtype, runs)


def _write_matrix(zeros: Zeros, across: bool, lanes: int, dtype: str, runs: tuple[Runs, ...]) -> Program:
    return write_matrix(len(zeros[0][2]), steps_at(zeros, across)[0], runs, lanes, dtype)


def _packed(factors: Sequence[csr_array], zeros: Zeros, across: bool, dtype: np.dtype[Any]) -> tuple[int, NDArray[Any]]:
    """Operations of a product, and its entries as the code reads them."""
    flops, order = order_of(zeros, across)
    return flops, np.concatenate([*(factor.data for factor in factors), [0.0]])[order].astype(dtype)


class MatrixKernel(GroupKernel):
    """One matrix for all elements, between global vectors (`codegen.matrix`), between the numbers `indexed`."""

    def __init__(self, matrix: FactorisedMatrix, n_elements: int, dtype: DTypeLike, transposed: bool = False) -> None:
        target, self._transposed = host(), transposed
        self._zeros = matrix.kept(zeros_of, lambda: zeros_of(matrix.factors))
        made = partial(_packed, matrix.factors, self._zeros, transposed, np.dtype(dtype))
        flops, self._entries = matrix.kept((MatrixKernel, transposed, np.dtype(dtype)), made)
        super().__init__(Program("", flops, 0, 0), None, n_elements, dtype, target)
        self._entries_at = self._entries.ctypes.data

    def inputs(self) -> tuple[tuple[int, int, int, int], Any]:
        """See `GroupKernel.inputs`."""
        return (self._entries_at, 0, 0, 0), self._entries

    def indexed(self, codes: NDArray[np.int32], runs: tuple[Runs, ...]) -> MatrixKernel:
        """The same on some unknowns; see `CpuKernel.indexed`."""
        other = copy(self)
        program, code = _of_matrix(self._zeros, self._transposed, self.target, self.dtype.name, runs)
        GroupKernel.__init__(other, program, code, self._n_elements, self.dtype, self.target, codes)
        return other


class CpuKernel(GroupKernel, BlockKernel):
    """A form on a block, compiled; `like` has the geometry of the same problem; with `codes` of `runs`, see `call`."""

    def __init__(
        self,
        problem: BlockProblem,
        strategy: str = "sumfac",
        target: Target | None = None,
        like: CpuKernel | None = None,
        codes: NDArray[np.int32] | None = None,
        runs: tuple[Runs, ...] | None = None,
        fetches: int | None = None,
    ) -> None:
        self.problem, self.strategy, self._asked = problem, strategy, fetches
        target = target or host()
        fetches = fetches_of(problem, strategy, target)[0] if fetches is None else fetches
        program, code = _specialised(problem.code_key, strategy, target, fetches, runs)
        super().__init__(program, code, problem.n_elements, problem.dtype, target, codes)
        self.flops = operator_flops(problem, strategy) if strategy == "sumfac" else program.flops
        # Rows of memory are read in long pieces then.
        self._one_by_one = program.one_by_one and fetches != 0
        trace, kind = problem.form.trace, problem.read_factors
        self._fields = field_inputs(trace)
        self._parameter_names = parameter_inputs(trace)
        self._parameters = np.zeros(len(self._parameter_names), problem.dtype)
        self.changes = bool(self._fields or self._parameter_names)
        uses_point = trace is not None and trace.uses_point
        self._geometry, self._points = self._parameters, self._parameters
        if like is not None:
            self._geometry, self._points = like._geometry, like._points
        elif kind:
            self._geometry = self._stored(kind, program.direction)
        if like is None and uses_point:
            self._points = self._stored("points", program.direction)
        self._addresses = tuple(array.ctypes.data for array in (self._geometry, self._points, self._parameters))

    def _stored(self, kind: str, direction: int) -> Floats:
        dtype = self.problem.stored_dtype(kind)
        if self.problem.source.scales and kind == "scale":
            return scales_and_maps(self.problem.geometry, dtype, self.lanes, direction, self.target)
        return stored_factors(self.problem.geometry, kind, dtype, self.lanes, direction, self.target)

    def diagonal(self) -> Floats | None:
        """Diagonals of the element matrices, compiled where modes and points are those of a tree; see `BlockKernel`."""
        p = self.problem
        if p.tabulation.basis.transform is not None or not p.tabulation.rule.tensor:
            return None
        out = np.empty((p.form.components, p.n_elements, p.n_modes), p.dtype)
        self._of_diagonals.apply(np.empty((p.coupled, 0), p.dtype), out)
        return out

    @cached_property
    def _of_diagonals(self) -> CpuKernel:
        return CpuKernel(self.problem, "diagonal", self.target, self)

    def indexed(self, codes: NDArray[np.int32], runs: tuple[Runs, ...]) -> CpuKernel:
        """The same on global vectors, with the same geometry; codes as `indexed_codes` makes them."""
        return CpuKernel(self.problem, self.strategy, self.target, self, codes, runs, self._asked)

    def apply(self, source: Floats, out: Floats) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        if not self.groups:
            return
        problem = self.problem
        source = np.ascontiguousarray(source, problem.dtype)
        target = out if out.flags.c_contiguous else np.empty(out.shape, problem.dtype)
        components, (addresses, used) = len(source) // problem.coupled, self.inputs()
        bounds = shares(self.groups, self.groups * self.group_flops * components, THREAD_FLOPS)
        alone = components if self._one_by_one else 1
        at, there = source.ctypes.data, target.ctypes.data
        for c in range(alone):
            places = at + c * source.strides[0], there + c * target.strides[0]
            self._launch(bounds, components // alone, (*places, *addresses), (source, target, used))
        if target is not out:
            out[...] = target

    def applied(self, components: int) -> int:
        """See `GroupKernel.applied`."""
        return components // self.problem.coupled

    def inputs(self) -> tuple[tuple[int, int, int, int], Any]:
        """See `GroupKernel.inputs`."""
        problem = self.problem
        for i, name in enumerate(self._parameter_names):
            self._parameters[i] = problem.parameters[name]
        geometry, points, parameters = self._addresses
        if not self._fields:
            return (geometry, points, 0, parameters), None
        fields = [np.ascontiguousarray(problem.fields[name].values[c], problem.dtype) for name, c in self._fields]
        pointers = np.array([field.ctypes.data for field in fields], dtype=np.uint64)
        return (geometry, points, pointers.ctypes.data, parameters), (fields, pointers)
