"""Large blocks of copies of a few elements, each with its geometric factors in memory, as in a mesh.

The elements are few, really curved (or sheared) ones; making the factors of 20 million different degrees of freedom on
a host takes longer than measuring on a GPU. Kernels are built as on any block, and checked against NumPy on every copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import SHAPES
from hpfem.shapes.arrays import Array
from hpfem.shapes.cached import cached_property

from ..backends.base import BACKENDS, Backend, choose_backend, vectors_on
from ..backends.strategy import options_of_source
from ..backends.vectors import VectorSpace
from ..errors import ArgumentError, DeviceError, NotSuitable
from ..forms.cost import operator_bytes
from ..forms.form import BlockProblem, FieldValues
from ..forms.sources import possible_sources
from ..geometry import FactorSource
from ..memory import HOST, PairArray
from ..mesh import Mesh, box
from ..space import Space
from ..tuning.select import Choice, choose
from .problems import BENCHMARKS, Application, BuiltOperator
from .repeated import RepeatedGeometry

# Affine elements are sheared, deformed ones of geometry order 2 and bent this much in units of the box.
SHEAR = np.array([[1.1, 0.4, -0.2], [-0.3, 0.8, 0.5], [0.25, -0.35, 1.3]])
BEND = 0.1
# A box of fewer cells is taken twice in every direction.
FEW_CELLS = 5
# Bytes of freed device memory that are kept for the next arrays.
POOL_BYTES = 40 << 30


def few_elements(shape: str, geometry: str) -> Mesh:
    """Mesh of the elements that are copied."""
    dim = SHAPES[shape].dim
    mesh = box(shape, (1,) * dim)
    if mesh.n_cells < FEW_CELLS:
        mesh = box(shape, (2,) * dim)
    if geometry == "affine":
        return mesh.transformed(lambda x: x @ SHEAR[:dim, :dim].T)
    if geometry == "multilinear":  # bent once, vertices of a cell are those of a parallelepiped
        return mesh.transformed(_bent).transformed(_bent)
    return mesh.elevated(2).transformed(_bent)


def _bent(x: Array) -> Array:
    return x + BEND * np.sin(1.3 * np.roll(x, 1, axis=1) + 0.2)


class TiledKernel:
    """A kernel on copies of a few elements, built on a `RepeatedGeometry`; `xp` is the library of its arrays."""

    def __init__(self, kernel: Any, xp: Any) -> None:
        self.kernel = kernel
        self.geometry: RepeatedGeometry = kernel.problem.geometry
        factors: Any = getattr(kernel, "factors", None)
        if self.geometry.whole or getattr(factors, "ndim", 0) == 0:
            return
        copies = -(-self.geometry.size // self.geometry.lanes // len(factors))
        if copies > 1:
            kernel.factors = xp.tile(factors, (copies, *(1 for _ in factors.shape[1:])))

    def resize(self, n_elements: int) -> None:
        """Work on fewer elements from now on."""
        self.geometry.size = n_elements
        if hasattr(self.kernel, "n_elements"):
            self.kernel.n_elements = n_elements

    def nbytes(self, fields: int) -> int:
        """Count the compulsory bytes of applications to components of a field."""
        return fields * operator_bytes(self.kernel.problem, fields) * self.geometry.size

    @property
    def flops(self) -> int:
        """Nominal operations of one application."""
        return int(self.kernel.flops) * self.geometry.size


class TiledProblem:
    """A form on copies of a few elements, which `problem` has on the host, for fields of some components."""

    def __init__(self, problem: BlockProblem, backend: str = "auto", components: int = 1) -> None:
        self.problem, self.components = problem, components
        self._backend = backend
        self._source: FactorSource | None = None
        self._shared: tuple[Any, Any] | None = None
        rng = np.random.default_rng(0)
        shape_of = (components, problem.n_elements, problem.n_input)
        self._given = (rng.random(shape_of) - 0.5).astype(problem.dtype)

    @cached_property
    def backend(self) -> Backend:
        """The backend, found when needed, because processes that compile should not use a GPU."""
        return choose_backend(self._backend)

    @cached_property
    def _vectors(self) -> VectorSpace:
        return vectors_on(self.backend.device())

    @property
    def xp(self) -> Any:
        """NumPy or CuPy: the module that arrays on the backend's device are of."""
        return self._vectors.xp

    @cached_property
    def _wanted(self) -> NDArray[Any]:
        """NumPy's result for the few elements."""
        out = np.empty((*self._given.shape[:2], self.problem.n_output), self._given.dtype)
        choose(self.problem, "auto", "auto", BACKENDS["numpy"]).kernel.apply(self._given, out)
        return out

    def free_unused_memory(self) -> None:
        """Release unused memory of the device's pool, if it is large."""
        if hasattr(self.xp, "get_default_memory_pool"):
            pool = self.xp.get_default_memory_pool()
            if pool.total_bytes() - pool.used_bytes() > POOL_BYTES:
                pool.free_all_blocks()

    def choose(self, strategy: str, algorithm: str, n_elements: int) -> Choice:
        """Choose and build a kernel; see `hpfem.tuning.select.choose`."""
        usual = choose(self.tiled(n_elements), strategy, algorithm, self.backend)
        if self._source is None:
            return usual
        provider, problem = self.backend.strategy(usual.strategy), self.tiled(n_elements, usual.algorithm)
        config = usual.config._replace(options=options_of_source(provider, problem, self._source))
        return Choice(config, self.backend.name, provider.build(problem, config.options), "asked for", ())

    def sources(self, choice: Choice) -> list[TiledProblem]:
        """Make the problem with each other source of geometric factors that the strategy of a choice offers."""
        chosen, others = choice.kernel.problem, list[TiledProblem]()
        provider, problem = self.backend.strategy(choice.strategy), self.tiled(chosen.n_elements, chosen.algorithm)
        for source in possible_sources(problem):
            if source != chosen.source:
                with suppress(NotSuitable):
                    options_of_source(provider, problem, source)
                    others.append(copy(self))
                    others[-1]._source = source
        return others

    def sizes(self, dofs: Sequence[float]) -> list[int]:
        """Numbers of elements to measure."""
        return sorted({math.ceil(wanted / self.problem.n_modes) | 1 for wanted in dofs}, reverse=True)

    def auto(self, n_elements: int) -> tuple[str, ...]:
        """Strategy and algorithm that "auto" takes."""
        try:
            choice = self.choose("auto", "auto", n_elements)
        except (NotSuitable, ArgumentError, DeviceError):
            return ()
        return choice.strategy, choice.algorithm

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Build the operator; see `TiledProblem.choose`."""
        choice = self.choose(strategy, algorithm, n_elements)
        if self._shared is None or self._shared[0].shape[1] != n_elements:
            self.free_unused_memory()
            self._shared = self.arrays(n_elements)
        return _TiledOperator(self, choice, *self._shared)

    def tiled(self, n_elements: int, algorithm: str = "collocated") -> BlockProblem:
        """Problem on copies of the elements."""
        # On a device factors are large: they are copied there, and kernels for fewer elements share them.
        device, copies = self._vectors.device, np.arange(n_elements) % self.problem.n_elements
        geometry = RepeatedGeometry(self.problem.geometry, n_elements, whole=device.name == HOST.name)
        fields = {
            name: FieldValues(PairArray.of(f.pair.read(HOST)[:, copies], HOST, f.pair.constant), device, f.vector)
            for name, f in self.problem.fields.items()
        }
        return replace(self.problem, geometry=geometry, algorithm=algorithm, fields=fields)

    def arrays(self, n_elements: int) -> tuple[Any, Any]:
        """Coefficients, and memory for a result; -> [components, n_elements, n_input or n_output]."""
        u = self._copies(self._given, n_elements)
        return u, self.xp.empty((*u.shape[:2], self.problem.n_output), u.dtype)

    def _copies(self, values: NDArray[Any], n_elements: int) -> Any:
        """Values of the few elements for all, on the device; [components, few, N] -> [components, n_elements, N]."""
        few = self._vectors.from_host(values)
        return self.xp.ascontiguousarray(self.xp.tile(few, (1, -(-n_elements // few.shape[1]), 1))[:, :n_elements])

    def error(self, kernel: TiledKernel, u: Any, out: Any) -> float:
        """Apply a kernel, and compare its result on every copy with NumPy's."""
        out.fill(float("nan"))
        kernel.kernel.apply(u, out)
        return float(abs(out - self._copies(self._wanted, u.shape[1])).max() / np.abs(self._wanted).max())


class TiledBlock(TiledProblem):
    """A benchmark's operator on copies of a few elements of a shape; options as of `Space`."""

    def __init__(
        self,
        benchmark: str,
        shape: str,
        order: int,
        geometry: str,
        backend: str = "auto",
        precision: str = "full",
        **options: Any,
    ) -> None:
        space = Space(few_elements(shape, geometry), order, backend="numpy", **options)
        super().__init__(BENCHMARKS[benchmark](space, precision=precision).choices[0].kernel.problem, backend)
        if self.problem.geometry.affine and geometry != "affine":
            raise NotSuitable(f"{geometry} {shape} elements are affine")


class _TiledOperator(BuiltOperator):
    """A kernel for as many elements as its arrays have."""

    def __init__(self, block: TiledProblem, choice: Choice, u: Any, out: Any) -> None:
        self.choice = choice
        self._block = block
        self._u, self._out = u, out

    @cached_property
    def _kernel(self) -> TiledKernel:
        return TiledKernel(self.choice.kernel, self._block.xp)

    def error(self) -> float:
        return self._block.error(self._kernel, self._u, self._out)

    def on(self, n_elements: int) -> Application:
        kernel, choice = self._kernel, self.choice
        if not kernel.geometry.whole:
            kernel.resize(n_elements)
        elif n_elements < self._u.shape[1]:
            chosen = self._block.choose(choice.strategy, choice.algorithm, n_elements)
            kernel = TiledKernel(chosen.kernel, self._block.xp)
        call = partial(kernel.kernel.apply, _first(self._u, n_elements), _first(self._out, n_elements))
        fields = self._block.components
        dofs = n_elements * self._block.problem.n_modes * fields
        return Application(call, kernel.nbytes(fields), fields * kernel.flops, dofs)


def _first(array: Any, n_elements: int) -> Any:
    """So many elements of each component, in the first part of an array's memory, without gaps."""
    components, _, numbers = array.shape
    return array.reshape(-1)[: components * n_elements * numbers].reshape(components, n_elements, numbers)
