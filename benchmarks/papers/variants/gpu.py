"""CUDA as the variants need it, through CuPy: kernels compiled beside each other, and the bandwidth of near memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from hpfem.backends.base import BACKENDS, vectors_on
from hpfem.backends.timer import Timing, measure
from hpfem.backends.vectors import VectorSpace
from hpfem.benchmarks.problems import Application, BuiltOperator
from hpfem.benchmarks.tiled import TiledKernel
from hpfem.errors import DeviceError, NotSuitable
from hpfem.forms.cost import operator_flops
from hpfem.forms.form import BlockKernel, BlockProblem
from hpfem.shapes.cached import cached_property
from hpfem.tuning.select import Choice
from hpfem.tuning.store import Config

from ..blocks import Elements, Unbuilt, mean_of

HERE = Path(__file__).parent
WARP = 32
# Of near_memory.h: threads of a block, numbers that they read over and over, how often; and blocks.
THREADS, NUMBERS, TRIPS, BLOCKS = 512, 2048, 512, 4096


def memory() -> VectorSpace:
    """Arrays of the current GPU."""
    return vectors_on(BACKENDS["cuda"].device())


def filled(name: str, **values: Any) -> str:
    """Source of a kernel: the device's words, and a file with its compile-time constants."""
    texts = {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}
    words, kernel = ((HERE / file).read_text(encoding="utf-8") for file in ("words.h", name))
    return words + Template(kernel).substitute(texts)


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads that compile: CuPy leaves Python's lock to others while NVRTC works."""
    return ThreadPoolExecutor(os.cpu_count() or 1)


@cache
def start(source: str, name: str, shared_bytes: int = 0) -> Future[Any]:
    """Begin to compile a kernel."""
    import cupy

    return _threads().submit(_compiled, int(cupy.cuda.runtime.getDevice()), source, name, shared_bytes)


def _compiled(device: int, source: str, name: str, shared_bytes: int) -> tuple[Any, Any]:
    import cupy

    try:
        cupy.cuda.Device(device).use()  # of this thread
        module = cupy.RawModule(code=source, options=("--std=c++17",))
        function = module.get_function(name)
        if shared_bytes > 48 * 1024:
            function.max_dynamic_shared_size_bytes = shared_bytes
    except (RuntimeError, cupy.cuda.compiler.CompileException) as error:
        raise DeviceError(f"the kernel {name} of an experiment does not compile or fit here: {error}") from error
    return module, function


def fill(module: Any, name: str, values: Any) -> None:
    """Write an array of a module, as in constant memory."""
    import cupy

    cupy.ndarray(values.shape, values.dtype, module.get_global(name))[...] = values


class LaunchedKernel(BlockKernel):
    """A kernel of an experiment on the GPU, whose arrays may be laid out in a way of its own.

    Parameters
    ----------
    problem : BlockProblem
    strategy : str
        What it is called.
    source, name : str
        See `start`.
    elements, threads, shared_bytes : int
        Of a block of threads.
    stride : int
        Elements that are interleaved: 1, or as many as a warp has threads.

    Attributes
    ----------
    constants : mapping
        Arrays of the module in constant memory, and what is in them.
    """

    constants: Mapping[str, Any] = {}

    def __init__(
        self,
        problem: BlockProblem,
        strategy: str,
        source: str,
        name: str,
        elements: int,
        threads: int,
        shared_bytes: int,
        stride: int = 1,
    ) -> None:
        self.stride = stride
        self.problem, self.strategy, self.flops = problem, strategy, operator_flops(problem, "sumfac")
        self.elements, self.threads, self.shared_bytes = elements, threads, shared_bytes
        self.memory = memory()
        self._compiling = start(source, name, shared_bytes)

    def finish(self) -> None:
        """Wait for the compiler; see `BlockKernel.finish`."""
        self._compiling.result()

    @property
    def resources(self) -> str:
        """What a thread takes, as the compiler found."""
        _, function = self._compiling.result()
        return f"{function.num_regs} registers, {function.local_size_bytes} bytes of local memory"

    def given(self, source: Any) -> Any:
        """Coefficients [components, E, n] as the kernel takes them: groups of interleaved elements."""
        if self.stride == 1:
            return source
        xp, n = self.memory.xp, source.shape[1]
        padded = xp.zeros((-(-n // self.stride) * self.stride, source.shape[2]), source.dtype)
        padded[:n] = source[0]
        return xp.ascontiguousarray(padded.reshape(-1, self.stride, source.shape[2]).transpose(0, 2, 1))

    def natural(self, result: Any, n_elements: int) -> Any:
        """Lay results out as those of others: elements one behind the other; -> [components, E, n]."""
        if self.stride == 1:
            return result
        return result.transpose(0, 2, 1).reshape(1, -1, result.shape[1])[:, :n_elements]

    def arguments(self, given: Any, out: Any, n_elements: int) -> tuple[Any, ...]:
        """List the arguments of the kernel."""
        raise AssertionError("a kernel overrides arguments")

    def call(self, given: Any, out: Any, n_elements: int) -> Callable[[], object]:
        """Make the launch on arrays in the kernel's own layout."""
        module, function = self._compiling.result()
        for name, values in self.constants.items():
            fill(module, name, values)
        blocks, arguments = -(-n_elements // self.elements), self.arguments(given, out, n_elements)
        return partial(function, (blocks,), (self.threads,), arguments, shared_mem=self.shared_bytes)

    def apply(self, source: Any, out: Any) -> None:
        """Apply to one block of a field; see `BlockKernel.apply`."""
        given, n = self.given(source), source.shape[1]
        result = self.memory.xp.empty_like(given)
        self.call(given, result, n)()
        out[...] = self.natural(result, n)


class LaunchedElements(Elements):
    """Elements of experiments' kernels (problem, name); of some `launches` in a row the mean counts."""

    def __init__(
        self,
        make: Callable[[BlockProblem, str], LaunchedKernel],
        algorithm: str,
        *what: Any,
        launches: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*what, **options)
        self._make, self._algorithm, self.launches = make, algorithm, launches

    def auto(self, n_elements: int) -> tuple[str, ...]:
        """Nothing chooses them; see `TiledProblem.auto`."""
        return ()

    def choose(self, strategy: str, algorithm: str, n_elements: int) -> Choice:
        """Build the kernel of a name; see `TiledProblem.choose`."""
        kernel = self._make(self.tiled(n_elements, self._algorithm), strategy)
        return Choice(Config(strategy, None), self.backend.name, kernel, "asked for", ())

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Build what is timed; see `TiledProblem.build`. The record's `variant` says what a thread takes."""
        choice = self.choose(strategy, algorithm, n_elements)
        assert isinstance(choice.kernel, LaunchedKernel)
        known = replace(choice, config=choice.config._replace(options=choice.kernel.resources))
        return _Launches(self, known, choice.kernel, n_elements)


class _Launches(BuiltOperator):
    """Launches of a kernel on arrays in its own layout."""

    def __init__(self, block: LaunchedElements, choice: Choice, kernel: LaunchedKernel, n_elements: int) -> None:
        self.choice, self._block, self._kernel, self._n = choice, block, kernel, n_elements

    @cached_property
    def _arrays(self) -> tuple[Any, Any]:
        return self._block.arrays(self._n)

    @cached_property
    def _tiled(self) -> TiledKernel:
        return TiledKernel(self._kernel, self._block.xp)

    def error(self) -> float:
        return self._block.error(self._tiled, *self._arrays)

    def on(self, n_elements: int) -> Application:
        if n_elements != self._n:
            raise NotSuitable("one number of elements at a time")
        tiled, kernel = self._tiled, self._kernel
        given = kernel.given(self._arrays[0])
        call = kernel.call(given, self._block.xp.empty_like(given), n_elements)
        d, launches = self._block.components, self._block.launches
        timing = mean_of(call, launches, self._block.backend.timer()) if launches else None
        work = tiled.nbytes(d), d * tiled.flops, d * n_elements * kernel.problem.n_modes
        return Application(call, *work, timing=timing)


@cache
def near_bandwidth() -> dict[str, float]:
    """Measure how fast all multiprocessors read near memory."""
    given, out = memory().from_host(np.zeros(2 * NUMBERS)), memory().from_host(np.zeros(1))
    rates = {}
    for name, shared in (("shared", True), ("L1", False)):
        nbytes = 8 * 2 * NUMBERS * shared
        source = filled("near_memory.h", THREADS=THREADS, NUMBERS=NUMBERS, SHARED=shared)
        _, function = start(source, "near_memory", nbytes).result()
        call = partial(function, (BLOCKS,), (THREADS,), (given, out, np.int32(TRIPS)), shared_mem=nbytes)
        rates[name] = 8.0 * NUMBERS * TRIPS * BLOCKS / measure(call, BACKENDS["cuda"].timer()).best
    return rates


class NearMemory(Unbuilt):
    """Time for the bytes of an element, name -> {"shared" or "L1": bytes}, in near memory: a roofline."""

    def __init__(self, moved: Callable[[str], Mapping[str, float]], *what: Any, **options: Any) -> None:
        super().__init__(*what, **options)
        self._moved = moved

    def choose(self, strategy: str, algorithm: str, n_elements: int) -> Choice:
        """Name what is timed, and the bandwidths; see `Unbuilt.choose`."""
        known = ", ".join(f"{rate / 1e12:.3g} TB/s of {where}" for where, rate in near_bandwidth().items())
        named = super().choose(strategy, algorithm, n_elements)
        return replace(named, config=named.config._replace(options=f"measured in the run: {known}"))

    def seconds(self, strategy: str, n_elements: int) -> Timing:
        """Bytes over the bandwidth that is measured; see `Unbuilt.seconds`."""
        rates = near_bandwidth()
        least = n_elements * sum(nbytes / rates[where] for where, nbytes in self._moved(strategy).items())
        return Timing.of([least], 1)
