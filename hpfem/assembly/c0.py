"""C0 spaces: element-local coefficients from global ones, local = Q global (DESIGN section 10).

Q follows from the entities of the modes and the ids and orientations of the mesh's edges and faces alone: any mesh of
any shapes is conforming as it is, a periodic one too. Its entries are +-1 but for small dense blocks on turned tris.

    scatter: global -> local, Q          gather: local -> global, Q^T (of functionals)
    average: local -> global, the mean of what the cells around an entity say (of functions); average(scatter(g)) = g

A vector of one component is [size], one of several [components, size].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hpfem.shapes.arguments import shown
from hpfem.shapes.cached import cached_property

from ..backends.cuda.vectors.indexed import IndexedMatrix, IndexTables
from ..errors import ArgumentError, MeshError, StateError
from ..memory import HOST, Device
from ..space.field import Field
from ..space.space import Space
from ..support.immutable import Immutable
from .connected import Parts, connected_parts
from .devices import array_module, as_vector, has_indexed, sparse_on, vector_on
from .interpolation import Piece, project
from .numbering import Entries, Numbering, Seen

Array = NDArray[np.floating[Any]]
_ON_DEVICES = ("_on", "_indices_on", "_indexed_on")


class C0Space(Immutable):
    """The continuous functions of a space. Immutable.

    Parameters
    ----------
    space : Space
        With the basis "modified", of any orders, or "lagrange", of one order.

    Attributes
    ----------
    space : Space
    numbering : Numbering
        Which global number belongs to which entity.

    Raises
    ------
    ArgumentError
        For the basis "orthogonal", or a nodal basis with different orders.
    MeshError
        If the mesh has hanging vertices.
    """

    def __init__(self, space: Space) -> None:
        if not isinstance(space, Space):
            raise ArgumentError(f"a C0Space is made on a Space, got {type(space).__name__}")
        if space.basis == "orthogonal":
            raise ArgumentError(
                "the 'orthogonal' basis is not continuous across cells; use basis='modified' or 'lagrange'"
            )
        if len(space.mesh.hanging):
            raise MeshError(
                f"{space.mesh.name}: {space.mesh.hanging}: functions would break there; make the"
                " cells meet at whole sides"
            )
        self.space = space
        self.numbering = Numbering(space.mesh, space.basis, space.orders)
        ends = np.cumsum([block.n_elements * block.n_modes for block in space.blocks])
        self._rows = [slice(int(end - n), int(end)) for end, n in zip(ends, np.diff(ends, prepend=0), strict=True)]
        self._on: dict[str, tuple[Any, Any]] = {}
        self._indices_on: dict[str, tuple[Any, Any]] = {}
        self._indexed_on: dict[str, IndexedMatrix] = {}

    def __repr__(self) -> str:
        return f"C0Space({self.size} of {self.space.n_dofs} dofs, {self.space!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _ON_DEVICES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._on, self._indices_on, self._indexed_on = {}, {}, {}

    @property
    def size(self) -> int:
        """Number of global degrees of freedom of one component."""
        return self.numbering.size

    @property
    def counts(self) -> Mapping[str, int]:
        """Global degrees of freedom on the vertices, on the edges, on the faces and inside the cells."""
        names = [*("vertices", "edges", "faces")[: self.space.mesh.dim], "cells"]
        return MappingProxyType(dict(zip(names, self.numbering.counts, strict=True)))

    @cached_property
    def _matrices(self) -> tuple[csr_array, csr_array]:
        """Q [local, global] and the average [global, local]."""
        parts = [
            self.numbering.local_to_global(block.basis, self.seen(number))
            for number, block in enumerate(self.space.blocks)
        ]
        own_part = self._assembled([part.own for part in parts])
        turned = self._assembled([part.turned for part in parts])
        back = self._assembled([part.back for part in parts])
        back.data /= self.multiplicity[back.indices]
        back = csr_array(back.T)
        # Edges first, then what is left inside turned faces.
        average = csr_array(back - back @ (turned @ back)) if turned.nnz else back
        dtype = self.space.dtype
        return csr_array(own_part + turned).astype(dtype, copy=False), average.astype(dtype, copy=False)

    def seen(self, number: int) -> list[Seen]:
        """Entities of the elements of a block, per dimension."""
        group, row = self.space.mesh.locations
        elements = self.space.blocks[number].elements
        own, cells = int(group[elements[0]]), row[elements]
        found = [self.numbering.of_group(own, dim) for dim in range(self.space.mesh.dim + 1)]
        return [Seen(s.ids[cells], s.codes[cells]) for s in found]

    def slots(self, number: int) -> NDArray[np.int64]:
        """Global numbers in the places of the modes of a block (`Numbering.slots`), [E, n_modes]."""
        return self.numbering.slots(self.space.blocks[number].basis, self.seen(number))

    def rows(self, number: int) -> slice:
        """Rows of a block in `matrix`."""
        return self._rows[number]

    def _assembled(self, parts: Sequence[Entries]) -> csr_array:
        """Entries of all blocks as one matrix [local, global]."""
        entries = Entries.joined([part.shifted(place.start) for part, place in zip(parts, self._rows, strict=True)])
        shape = (self.space.n_dofs, self.size)
        return csr_array((entries.values, (entries.rows, entries.columns)), shape=shape)

    @cached_property
    def multiplicity(self) -> NDArray[np.int64]:
        """Number of cells that share each global degree of freedom, [size]."""
        numbering = self.numbering
        total = np.zeros(self.size, dtype=np.int64)
        for dim, offsets in enumerate(numbering.offsets):
            cells = np.zeros(len(offsets), dtype=np.int64)
            for number in range(len(self.space.mesh.cells)):
                np.add.at(cells, numbering.of_group(number, dim).ids.ravel(), 1)
            ends = np.append(offsets[1:], offsets[0] + numbering.counts[dim]) if len(offsets) else offsets
            total[offsets[0] : offsets[0] + numbering.counts[dim]] = np.repeat(cells, ends - offsets)
        return total

    @cached_property
    def parts(self) -> Parts:
        """Parts of the mesh that share no unknown."""
        return connected_parts(self.numbering, self.space, self.matrix)

    @property
    def matrix(self) -> csr_array:
        """Q, [local, global]: the rows are the blocks' arrays [element, mode] of one component, one after the other."""
        return self._matrices[0]

    @property
    def signed(self) -> bool:
        """Whether Q has one entry +-1 per row, so that scatter is a signed gather of numbers."""
        return self._signs is not None

    @cached_property
    def _signs(self) -> tuple[NDArray[np.int64], Array | None] | None:
        """Column and sign of each row of a signed Q; the signs None where all are one."""
        matrix = self.matrix
        if np.any(np.diff(matrix.indptr) != 1) or np.any(np.abs(matrix.data) != 1):
            return None
        signs = None if np.all(matrix.data == 1) else matrix.data
        return matrix.indices, signs

    def _signs_on(self, device: Device) -> tuple[Any, Any] | None:
        """`_signs` on a device; moved there once."""
        if self._signs is None or device.name == HOST.name:
            return self._signs
        if device.name not in self._indices_on:
            columns, signs = self._signs
            moved = vector_on(columns, device), None if signs is None else vector_on(signs, device)
            self._indices_on[device.name] = moved
        return self._indices_on[device.name]

    def on(self, device: Device) -> tuple[Any, Any]:
        """Q and its transpose, as CSR matrices on a device; moved there once."""
        if device.name not in self._on:
            transpose = csr_array(self.matrix.T)
            self._on[device.name] = (sparse_on(self.matrix, device), sparse_on(transpose, device))
        return self._on[device.name]

    def indexed_on(self, device: Device) -> IndexedMatrix:
        """Q as index tables on a GPU; made and moved there once."""
        if device.name not in self._indexed_on:
            self._indexed_on[device.name] = self.make_indexed(device)
        return self._indexed_on[device.name]

    def make_indexed(self, device: Device, keep: NDArray[np.bool_] | None = None) -> IndexedMatrix:
        """Q as index tables on a GPU, in one transfer.

        Parameters
        ----------
        device : Device
        keep : ndarray of bool, [size], optional
            The columns of Q that are not taken to be zero.

        Returns
        -------
        IndexedMatrix
        """
        starts = [0, *(place.stop for place in self._rows)]
        tables = IndexTables.of(self.matrix, starts, keep)
        return IndexedMatrix(tables, vector_on(tables.packed(), device), self.space.dtype)

    def scatter(self, vector: Any, out: Field | None = None, device: Device = HOST) -> Field:
        """Element-local coefficients of a global vector.

        Parameters
        ----------
        vector : ndarray, [size] or [components, size]
            On `device`.
        out : Field, optional
            Overwritten and returned.
        device : Device
            Where the vector is and the field is written.

        Returns
        -------
        Field
            State "coeff", continuous.

        Raises
        ------
        ArgumentError
            If the vector has another size.
        """
        rows = self._components(vector)
        if out is None:
            out = self.space.empty("coeff", len(rows))
        elif (
            not isinstance(out, Field)
            or out.space is not self.space
            or out.state != "coeff"
            or out.components != len(rows)
        ):
            raise StateError(f"out of scatter must be a 'coeff' field with {len(rows)} component(s) on the same space")
        try:
            self._scatter_into(out, rows, device)
        except BaseException:
            out.discard()
            raise
        return out

    def _scatter_into(self, out: Field, rows: Any, device: Device) -> None:
        targets = [pair.write(device) for pair in out.data]
        if has_indexed(device):
            self.indexed_on(device).scatter(array_module(rows).ascontiguousarray(rows, self.space.dtype), targets)
            return
        signed = self._signs_on(device)
        for c, row in enumerate(rows):
            if signed is not None:
                columns, signs = signed
                for place, target in zip(self._rows, targets, strict=True):
                    flat = target[c].reshape(-1)
                    np.take(row, columns[place], out=flat, mode="clip")
                    if signs is not None:
                        flat *= signs[place]
            else:
                local = self.on(device)[0] @ row
                for place, target in zip(self._rows, targets, strict=True):
                    target[c] = local[place].reshape(target[c].shape)

    def gather(self, field: Field, device: Device = HOST) -> Any:
        """Global functional of an element-local one: the sum of what the cells say, Q^T.

        Parameters
        ----------
        field : Field
            State "dual", or "coeff" taken as plain numbers.
        device : Device
            Where the result is wanted.

        Returns
        -------
        ndarray, [size] or [components, size] with more than one component

        Raises
        ------
        StateError
            If the field is on another space, or in state "phys".
        """
        arrays = self._read(field, device)
        if has_indexed(device):
            module = array_module(arrays[0])
            local = arrays[0] if len(arrays) == 1 else module.concatenate([array.ravel() for array in arrays])
            out = device.empty((field.components, self.size), self.space.dtype)
            self.indexed_on(device).gather(local, out)
            return out[0] if len(out) == 1 else out
        return self._reduced(arrays, self.on(device)[1])

    def average(self, field: Field) -> Array:
        """Global coefficients of an element-local function: the mean of the cells around each entity.

        Parameters
        ----------
        field : Field
            State "coeff"; where it is continuous the result is its own global vector.

        Returns
        -------
        ndarray, [size] or [components, size] with more than one component
        """
        return self._reduced(self._read(field, HOST), self._matrices[1])

    @property
    def averaging_matrix(self) -> csr_array:
        """What `average` multiplies by, [global, local]: a left inverse of `matrix`."""
        return self._matrices[1]

    def _read(self, field: Field, device: Device) -> list[Any]:
        if not isinstance(field, Field) or field.space is not self.space:
            raise StateError("the field is not on the space of this C0Space")
        if field.state == "phys":
            raise StateError("a 'phys' field has no modes to gather; use IProductWRTBase or FwdTrans first")
        return [pair.read(device) for pair in field.data]

    def _reduced(self, arrays: list[Any], matrix: Any) -> Any:
        module = array_module(arrays[0])
        if len(arrays) == 1:  # nothing to put in a row
            parts = [matrix @ row.reshape(-1) for row in arrays[0]]
            return parts[0] if len(parts) == 1 else module.stack(parts)
        parts = [
            matrix @ (module.concatenate([array[c].reshape(-1) for array in arrays])) for c in range(len(arrays[0]))
        ]
        return parts[0] if len(parts) == 1 else module.stack(parts)

    def _components(self, vector: Any) -> Any:
        vector = as_vector(vector, "a global vector")
        shape = vector.shape
        if len(shape) not in (1, 2) or shape[-1] != self.size or 0 in shape:
            raise ArgumentError(f"a global vector is [{self.size}] or [components, {self.size}], got {shown(vector)}")
        return vector if len(shape) == 2 else vector[None]

    def project(self, function: Callable[..., Any] | float) -> Array:
        """Continuous approximation of a function: at the vertices, then in L2 on edges, faces and cells (`projection`).

        Parameters
        ----------
        function : callable or float
            Of the D coordinates, of one or more components.

        Returns
        -------
        ndarray, [size] or [components, size] with more than one component
            Its error falls like the best approximation's, and a continuous function of the space comes out as it is.
        """
        values = project(self, [Piece(function)])
        return values[0] if len(values) == 1 else values
