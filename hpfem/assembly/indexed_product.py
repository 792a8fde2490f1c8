"""Q^T A Q on a GPU by index tables: kernels to scatter, those of A, one to gather; nothing is allocated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..backends.cuda.runtime.scratch import StreamPool
from ..backends.cuda.vectors.indexed import IndexedMatrix
from ..errors import ArgumentError
from ..memory import Device, PairArray
from ..operators import Operator
from ..space.field import Field
from .devices import array_module


class _Scratch(NamedTuple):
    """Local coefficients, local results, and the array that the blocks of these are parts of."""

    local: Field
    result: Field
    results: Any


class IndexedProduct:
    """The product of a global operator with vectors on a GPU.

    Parameters
    ----------
    operator : Operator
        A, on the local coefficients.
    indexed : IndexedMatrix
        Q. Global unknowns without entries are those of the identity.
    components : int
    device : Device
        Where the vectors are.
    extra : sparse matrix of CuPy, optional
        Added to every component's; zero for the unknowns of the identity.

    Attributes
    ----------
    dtype : dtype
        Of the vectors.
    blocks : int
        Sums that `into` leaves.
    alone : bool
        Whether `into` makes all of the product.
    """

    def __init__(
        self, operator: Operator, indexed: IndexedMatrix, components: int, device: Device, extra: Any = None
    ) -> None:
        self._operator, self._indexed, self._device, self._extra = operator, indexed, device, extra
        self.components, self.size, self.dtype = components, indexed.size, operator.space.dtype
        self.blocks, self.alone = indexed.blocks, extra is None
        self._scratch: StreamPool[_Scratch] = StreamPool()
        self._scratch.give(self._scratch.take(self._new_scratch))

    def _new_scratch(self) -> _Scratch:
        return _Scratch(self._field("coeff")[0], *self._field("dual"))

    def _field(self, state: str) -> tuple[Field, Any]:
        """A field whose blocks are parts of one array, and the array."""
        space, c = self._operator.space, self.components
        flat = self._device.empty((c * space.n_dofs,), space.dtype)
        pairs, start = [], 0
        for block in space.blocks:
            stop = start + c * block.n_elements * block.n_modes
            pairs.append(PairArray.of(flat[start:stop].reshape(c, block.n_elements, block.n_modes), self._device))
            start = stop
        return Field(space, state, pairs), flat

    def into(self, vector: Any, out: Any, partials: Any = None, stop: int | None = None) -> None:
        """Write the product, without `extra`.

        Parameters
        ----------
        vector, out : cupy.ndarray, [components * size]
            In C order, of the space's type.
        partials : cupy.ndarray of float64, [blocks], optional
            For sums of vector * out.
        stop : int, optional
            Address of an int on the device; `out` is left alone if it is not zero.
        """
        scratch = self._scratch.take(self._new_scratch)
        try:
            for part in self._parts(scratch, vector, out, partials, stop).values():
                part()
        finally:
            self._scratch.give(scratch)

    def parts(
        self, vector: Any, out: Any, partials: Any = None, stop: int | None = None
    ) -> dict[str, Callable[[], object]]:
        """What `into` does, step by step, by name; in scratch of its own.

        Parameters
        ----------
        vector, out, partials, stop
            As for `into`.

        Returns
        -------
        dict
            "scatter", "operator" and "gather".
        """
        return self._parts(self._new_scratch(), vector, out, partials, stop)

    def _parts(
        self, scratch: _Scratch, vector: Any, out: Any, partials: Any, stop: int | None
    ) -> dict[str, Callable[[], object]]:
        rows = vector.reshape(self.components, self.size)

        def scatter() -> None:
            self._indexed.scatter(rows, [pair.write(self._device) for pair in scratch.local.data], stop)

        def gather() -> None:
            for pair in scratch.result.data:
                pair.read(self._device)  # brings it here, where the operator computes elsewhere
            self._indexed.gather(scratch.results, out.reshape(rows.shape), rows, partials, stop)

        return {
            "scatter": scatter,
            "operator": partial(self._operator, scratch.local, out=scratch.result),
            "gather": gather,
        }

    def __call__(self, vector: Any) -> Any:
        """The product, in a new array of the vector's shape.

        Raises
        ------
        ArgumentError
            If the vector has another size.
        """
        if vector.size != self.components * self.size:
            raise ArgumentError(f"a vector of {self.components * self.size} numbers is wanted, got {vector.shape}")
        given = array_module(vector).ascontiguousarray(vector, self.dtype)
        out = self._device.empty(vector.shape, self.dtype)
        self.into(given, out)
        if self._extra is not None:
            rows, result = given.reshape(self.components, self.size), out.reshape(self.components, self.size)
            for c in range(self.components):
                result[c] += self._extra @ rows[c]
        return out
