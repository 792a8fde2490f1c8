"""A backend: where kernels run. It owns its memory, clock and strategies, and is found by its name.

What a device does best in a way of its own it offers here: `Backend.product` (Q^T A Q in one piece), `Backend.cellwise`
(a matrix in place of A), `Backend.recorded` (a function of vectors as compiled calls); and its kernels
`BlockKernel.in_product` and `BlockKernel.diagonal`. A backend for HIP would consist of backend.py, runtime/, codegen/
(its words for those of cuda/codegen/language.h), a folder for each family of kernels, and vectors/.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes.arguments import name_of

from ..errors import DeviceError
from ..forms.form import BlockKernel
from ..forms.trace import Trace
from ..geometry import BlockGeometry
from ..memory import HOST, Device, Host
from ..support.cache import Cache
from ..support.immutable import Immutable
from ..support.log import report_once
from ..support.machine import processor_name
from ..support.registry import Registry
from .cellwise import CellMatrices, CellwiseProduct
from .restriction import BlockMatrix
from .roofline import Roofline
from .strategy import Strategy
from .timer import Timer
from .vectors import HOST_VECTORS, VectorSpace


@dataclass(frozen=True)
class SolveSizes:
    """Unknowns up to which a single solve takes less time with the diagonal than with multigrid and its set-up."""

    # In 3-D from order `low_order` on. At lower orders the set-up for the vertices dominates and iterations are few:
    # times the square of the ratio of orders.
    solid: float
    flat: float  # in 2-D
    low_order: int = 4
    asymmetric: float = 1 / 6  # factor for GMRES, in which every iteration uses all earlier ones

    def limit(self, dim: int, order: int, symmetric: bool) -> float:
        """The number of unknowns for a problem.

        Parameters
        ----------
        dim : int
            Of the cells.
        order : int
        symmetric : bool
            Whether the operator is.

        Returns
        -------
        float
        """
        size = self.flat if dim < 3 else self.solid * max(1.0, self.low_order / order) ** 2
        return size if symmetric else size * self.asymmetric


class Backend(Immutable, ABC):
    """Where kernels run; each has a folder of its own, which registers one object.

    Attributes
    ----------
    name : str
        "numpy", "cpu", "cuda" or another.
    strategies : tuple of Strategy
        Its ways to compute a form on a block.
    device_type : type
        Kind of its devices, known even if it cannot run.
    solve_sizes : SolveSizes
        Which preconditioner "auto" takes (`benchmarks/SOLUTION.md`); measured on one core by default.
    smoother_steps : {str: sequence of (int, int, int)}
        Steps of multigrid's smoother with which solves take least time, of one component, of coupled ones, and at least
        where cells are stretched: by shape, for order 1, 2, .., the last for all higher orders.
    costs_of : str or None
        The device whose nanoseconds `Strategy.cost` gives; None if it counts operations.
    apart : bool
        Whether other processes compile: what will probably be needed is begun then.
    """

    name: str
    strategies: tuple[Strategy, ...]
    device_type: type[Device] = Host
    solve_sizes: SolveSizes = SolveSizes(solid=20_000, flat=40_000)
    smoother_steps: Mapping[str, Sequence[tuple[int, int, int]]] = {
        **dict.fromkeys(("quad", "hex"), ((2, 2, 2),)),
        **dict.fromkeys(("prism", "pyramid"), ((2, 2, 2), (2, 2, 2), (2, 3, 2))),
        **dict.fromkeys(("tri", "tet"), ((2, 2, 2), (2, 3, 2))),
    }
    costs_of: str | None = None
    apart = False

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """Names of its strategies."""
        return tuple(strategy.name for strategy in self.strategies)

    def strategy(self, name: str) -> Strategy:
        """One of its strategies.

        Parameters
        ----------
        name : str
            One of `strategy_names`.

        Returns
        -------
        Strategy
        """
        return next(strategy for strategy in self.strategies if strategy.name == name)

    def __reduce__(self) -> tuple[Callable[[str], Backend], tuple[str]]:
        # By name: the backend may not run where the pickle is loaded.
        return choose_backend, (self.name,)

    @abstractmethod
    def missing(self) -> str | None:
        """Say what is missing here.

        Returns
        -------
        str or None
            One sentence, with how to install it; None if the backend works.
        """

    def device(self) -> Device:
        """Memory that its kernels read and write.

        Returns
        -------
        Device
            By default the host.
        """
        return HOST

    def vectors(self, device: Device) -> VectorSpace | None:
        """Offer vectors on one of its devices.

        Parameters
        ----------
        device : Device

        Returns
        -------
        VectorSpace or None
            None for devices of other backends.
        """
        return VectorSpace(device) if device.name == self.device().name else None

    def product(
        self, kernels: Sequence[BlockKernel], Q: BlockMatrix
    ) -> Callable[[Any, NDArray[np.integer[Any]]], Any] | None:
        """Offer Q^T A Q in one piece, if that is faster than its parts.

        Parameters
        ----------
        kernels : sequence of BlockKernel
            A: the backend's own, block by block.
        Q : BlockMatrix

        Returns
        -------
        callable or None
            (vector [components, size] on the device, constrained) -> the product, a new array; constrained are the
            unknowns, [n] of int, whose rows and columns are those of the identity.
        """
        return None

    def cellwise(self, given: CellMatrices) -> Any:
        """Make products with a matrix per group of cells, between global vectors.

        Parameters
        ----------
        given : CellMatrices

        Returns
        -------
        CellwiseProduct
            Or an object with its methods.
        """
        return CellwiseProduct(given)

    def begin_cellwise(self, Q: BlockMatrix, dtype: DTypeLike) -> None:
        """Begin to compile what rough products of `cellwise` need, whatever their matrices.

        Parameters
        ----------
        Q : BlockMatrix
            Groups of cells may be any parts of its blocks.
        dtype : dtype
            Of sums.
        """

    def volume_factors(self, geometry: BlockGeometry, elements: slice) -> Any:
        """Evaluate the size of det J at the points of some elements; see `BlockGeometry.volume_factors`."""
        return geometry.volume_factors(elements, vectors_on(self.device()).xp)

    def function(self, trace: Trace) -> Callable[[Any, dict[str, float]], Any] | None:
        """Offer a compiled function of the coordinates, if that is faster than the library of its arrays.

        Parameters
        ----------
        trace : Trace
            With a value for each component, of coordinates and parameters.

        Returns
        -------
        callable or None
            (array [D, ...] on the device, numbers of the parameters) -> array [components, ...].
        """
        return None

    def recorded(self, function: Callable[[Any], Any], given: Any) -> Callable[[], Any] | None:
        """Offer a function of vectors as compiled calls that are made at once.

        Parameters
        ----------
        function : callable
            vector -> vector of the same type; it may be called with an object that stands for an array.
        given : array, [n]
            Memory of the vector that it is applied to.

        Returns
        -------
        callable or None
            () -> function(given), in the same memory every time; `calls` are as many as it makes.
        """
        return None

    def product_needs(self, local: int, size: int, components: int, dtype: DTypeLike) -> dict[str, dict[str, float]]:
        """Estimate the memory of a global operator without its kernels.

        Parameters
        ----------
        local, size : int
            Element-local and global coefficients of a component.
        components : int
        dtype : dtype
            Of the vectors.

        Returns
        -------
        dict
            {device: {"index tables" or "scratch": bytes}}.
        """
        number = np.dtype(dtype).itemsize
        # Q and its transpose, and memory to make them; an argument, a result, and local numbers of both.
        tables, scratch = local * (16 + 2 * number), 5.0 * local * number * components
        return {self.device().name: {"index tables": float(tables), "scratch": scratch}}

    def held(self, geometry: BlockGeometry) -> dict[str, dict[str, int]]:
        """Count the memory that kernels on a block hold.

        Parameters
        ----------
        geometry : BlockGeometry
            Of the block.

        Returns
        -------
        dict
            {device: {what: bytes}}.
        """
        return {}

    def timer(self) -> Timer:
        """Clock for work on its device; see `Timer`."""
        return Timer()

    def processor(self) -> str:
        """Name the processor, with everything that its speed depends on; see `TuningRecord`."""
        return processor_name()

    def caches(self) -> dict[str, Cache]:
        """Folders of its caches.

        Returns
        -------
        dict
            {name: folder}; names are those of `hpfem cache`.
        """
        return {}

    def measure_limits(self, dtype: DTypeLike, quick: bool) -> Roofline:
        """Measure the limits that this backend reaches on its device, with the threads that it may use now.

        They are zeros if other backends measure the device; see `roofline`.
        """
        return Roofline(0.0, 0.0, {})

    def roofline(self, dtype: DTypeLike = np.float64, quick: bool = False) -> Roofline:
        """Measure the limits of its device: the best of all backends that compute there.

        Parameters
        ----------
        dtype : dtype
            float64 or float32.
        quick : bool
            Smaller arrays and fewer repeats, for tests and demonstrations.

        Returns
        -------
        Roofline
        """
        here = [b for _, b in BACKENDS.items() if b.missing() is None and b.device().name == self.device().name]
        return Roofline.best([backend.measure_limits(dtype, quick) for backend in here])


BACKENDS: Registry[Backend] = Registry("backend")
# The order in which "auto" looks for a backend that works.
PREFERENCE = ("cpu", "numpy")


def checked_name(name: str) -> str:
    """Check that there is such a backend, whether or not it can run here; see `choose_backend`."""
    return name_of(name, ("auto", *BACKENDS), "backend")


def choose_backend(name: str) -> Backend:
    """Backend of that name, or the first that works for "auto".

    Parameters
    ----------
    name : str

    Returns
    -------
    Backend

    Raises
    ------
    ArgumentError
        For an unknown name.
    DeviceError
        If the backend cannot run here; the message says what is missing.
    """
    if checked_name(name) == "auto":
        for candidate in (BACKENDS[n] for n in PREFERENCE if n in BACKENDS):
            reason = candidate.missing()
            if reason is None:
                return candidate
            report_once(f"backend/{candidate.name}", f"backend {candidate.name!r} is not used: {reason}")
    backend = BACKENDS[name]
    reason = backend.missing()
    if reason is not None:
        raise DeviceError(f"backend {name!r} cannot run here: {reason}")
    return backend


def _host_vectors() -> VectorSpace:
    """Those of the backend that computes on the host, if it works."""
    backend = BACKENDS.get(HOST.backend)
    found = None if backend is None or backend.missing() is not None else backend.vectors(HOST)
    return HOST_VECTORS if found is None else found


def vectors_on(device: Device) -> VectorSpace:
    """Vector space of a device.

    Parameters
    ----------
    device : Device

    Returns
    -------
    VectorSpace
        That of the backend that computes there; the plain one without such a backend.
    """
    if device.name == HOST.name:
        return _host_vectors()
    # Others are not asked whether they work, for which that of processors loads LLVM.
    offered = ((backend, backend.vectors(device)) for _, backend in BACKENDS.items())
    found = (vectors for backend, vectors in offered if vectors is not None and backend.missing() is None)
    return next(found, VectorSpace(device))


def vectors_of(array: Any) -> VectorSpace:
    """Vector space of an array.

    Parameters
    ----------
    array : array_like

    Returns
    -------
    VectorSpace
        That of the current device of the backend with such arrays; else the host's.
    """
    if type(array) is not np.ndarray:
        for name, backend in BACKENDS.items():
            there = name != HOST.backend and backend.missing() is None
            vectors = backend.vectors(backend.device()) if there else None
            if vectors is not None and vectors.has(array):
                return vectors
    return _host_vectors()
