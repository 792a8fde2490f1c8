"""C0 spaces: element-local coefficients from global ones, local = Q global.

Q follows from the entities of the modes and the ids and orientations of the mesh's edges and faces alone: any mesh of
any shapes is conforming as it is, a periodic one too. Its entries are +-1, except for dense blocks on rotated tris.

    scatter: global -> local, Q          gather: local -> global, Q^T (of functionals)
    average: local -> global, mean over the cells around an entity (of functions); average(scatter(g)) = g

A vector of one component is [size], one of several [components, size]. If processes share the mesh (`distribute`), a
vector has the unknowns of the process' own cells; an unknown of several processes has the same value on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from hpfem.shapes.arguments import as_array, flag, shown
from hpfem.shapes.arrays import Floats, frozen
from hpfem.shapes.cached import cached_property

from ..backends import vectors_on
from ..backends.exchange import placed
from ..backends.restriction import BlockMatrix, Codes, ElementRestriction
from ..backends.shared_vectors import shared_vectors
from ..backends.sharing import Sharing
from ..backends.vectors import VectorSpace
from ..errors import ArgumentError, MeshError, StateError
from ..memory import HOST, Device, PerDevice
from ..mesh.part import combined
from ..mesh.sorting import marked, places, with_marked
from ..space.field import Field
from ..space.space import Space
from ..space.transforms import result_field
from ..support.immutable import Immutable
from .connected import Parts, connected_parts
from .interpolation import Piece, interpolate
from .numbering import LocalToGlobal, Numbering, Seen


class C0Space(Immutable):
    """The continuous functions of a space. Immutable.

    Parameters
    ----------
    space : Space
        With the basis "modified", of any orders, or "lagrange", of one order.
    join : bool
        Whether cells that lie on each other should have their vertices in common: if some have not, a warning counts
        them, once for a mesh. False says that they are meant to be apart.

    Attributes
    ----------
    space : Space
    numbering : Numbering
        The global numbers of each entity.

    Raises
    ------
    ArgumentError
        For the basis "orthogonal", a nodal basis with different orders, or if processes that share the mesh disagree.
    MeshError
        If the mesh has hanging vertices.
    """

    def __init__(self, space: Space, *, join: bool = True) -> None:
        if not isinstance(space, Space):
            raise ArgumentError(f"a C0Space is made on a Space, got {type(space).__name__}")
        if space.basis == "orthogonal":
            raise ArgumentError(
                "the 'orthogonal' basis is not continuous across cells; use basis='modified' or 'lagrange'"
            )
        space.comm.same((space.mesh.name, space.orders, space.basis, str(space.dtype)), "mesh, order, basis or dtype")
        space.mesh.aligned_topology.find_on(space.array_module())
        if len(space.mesh.hanging):
            raise MeshError(
                f"{space.mesh.name}: {space.mesh.hanging}: functions are not continuous there; make the"
                " cells meet at whole sides"
            )
        if flag(join, "join"):
            space.mesh.warn_of_facing()
        self._number(space, Numbering(space.mesh, space.basis, space.orders))

    def _number(self, space: Space, numbering: Numbering) -> None:
        self.space, self.numbering = space, numbering
        self._restrictions: PerDevice[ElementRestriction] = PerDevice()
        self._vectors: PerDevice[VectorSpace] = PerDevice()
        # Made here, where all processes take part: a later call may come from one process alone.
        self._whole_size = numbering.size if numbering.sharing is None else numbering.sharing.count
        if space.comm.size > 1:
            _ = self._cells_between, self._reaches

    def at(self, space: Space) -> C0Space:
        """Make the continuous functions of another space on the same cells.

        Parameters
        ----------
        space : Space
            Made of this one's by `Space.at`.

        Returns
        -------
        C0Space
            With the same numbers where basis and orders are the same.
        """
        if (space.basis, space.orders) != (self.space.basis, self.space.orders):
            return C0Space(space, join=False)
        other = C0Space.__new__(C0Space)
        other.__dict__ |= {"_parts": self._parts, "_codes": self._codes}
        other._number(space, self.numbering)
        return other

    def __repr__(self) -> str:
        return f"C0Space({self.size} of {self.space.n_dofs} dofs, {self.space!r})"

    @property
    def size(self) -> int:
        """Number of global degrees of freedom of one component: entries of a vector."""
        return self.numbering.size

    @property
    def whole_size(self) -> int:
        """Number of global degrees of freedom on all processes that share the mesh, each counted once."""
        return self._whole_size

    @property
    def owned(self) -> NDArray[np.bool_]:
        """Which degrees of freedom this process owns, [size]: each has one owner."""
        sharing = self.numbering.sharing
        return np.ones(self.size, dtype=bool) if sharing is None else sharing.owned

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Numbers of the unknowns among those of all processes, those that the first one owns first, as in what
        `allgather` makes; collective at its first use.
        """
        owned, comm = self.owned, self.space.comm
        first = sum(comm.allgather(int(owned.sum()))[: comm.rank])
        numbers = np.where(owned, first + np.cumsum(owned) - 1.0, 0.0)
        return self.vectors_on(HOST).agreed(numbers).astype(np.int64)

    def allgather(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Vector of the unknowns of all processes, for methods that run in one process only; collective.

        Parameters
        ----------
        vector : ndarray, [..., size]
            On the host.

        Returns
        -------
        ndarray, [..., whole_size]
            The same on every process; the vector itself if there is one process.

        Raises
        ------
        ArgumentError
            If it has another size.
        """
        own = self._sized(vector, self.size)
        if self.space.comm.size == 1:
            return own
        return np.concatenate(self.space.comm.allgather(own[..., self.owned]), axis=-1)

    def local(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Part of a vector that belongs to this process, [..., size]; collective when first called; see `allgather`."""
        whole = self._sized(vector, self.whole_size)
        return whole if self.space.comm.size == 1 else np.ascontiguousarray(whole[..., self.places])

    @staticmethod
    def _sized(vector: Any, size: int) -> NDArray[Any]:
        found = as_array(vector, "a vector")
        if found.ndim < 1 or found.shape[-1] != size:
            raise ArgumentError(f"a vector is [..., {size}] here, got {shown(found)} of shape {found.shape}")
        return found

    def vectors_on(self, device: Device = HOST) -> VectorSpace:
        """Global vectors on a device: sums, norms and products count shared unknowns once; see `VectorSpace`."""
        return self._vectors.get(device, lambda: shared_vectors(vectors_on(device), self.numbering.sharing))

    @property
    def counts(self) -> Mapping[str, int]:
        """Global degrees of freedom on the vertices, on the edges, on the faces and inside the cells."""
        names = [*("vertices", "edges", "faces")[: self.space.mesh.dim], "cells"]
        return MappingProxyType(dict(zip(names, self.numbering.counts, strict=True)))

    @cached_property
    def _parts(self) -> list[LocalToGlobal]:
        """The matrices between the blocks' coefficients and global ones."""
        blocks = enumerate(self.space.blocks)
        return [self.numbering.local_to_global(block.basis, self.seen(number)) for number, block in blocks]

    @cached_property
    def _codes(self) -> list[Codes]:
        """Codes of the blocks, which all matrices have."""
        firsts = np.cumsum([0, *(part.own.shape[0] for part in self._parts)])
        return [part.codes.shifted(int(n)) for part, n in zip(self._parts, firsts, strict=False)]

    def _joined(self, rows: Iterable[csr_array]) -> BlockMatrix:
        """The matrix of all blocks, of which some rows are to be given."""
        if self.signed:
            return BlockMatrix(self._codes, csr_array((len(self._codes), self.size), dtype=self.space.dtype))
        return BlockMatrix(self._codes, vstack(list(rows), format="csr", dtype=self.space.dtype))

    @cached_property
    def one(self) -> NDArray[np.float64]:
        """Coefficients of the constant 1, [size]: of all nodes, or of the modes of vertices."""
        nodal, counts = self.numbering.name == "lagrange", map(len, self.numbering.sizes)
        return np.asarray(self.numbering.of_unknowns([np.full(n, float(not i or nodal)) for i, n in enumerate(counts)]))

    @cached_property
    def low_energy_matrix(self) -> BlockMatrix:
        """Local coefficients in functions of low energy from global ones; its codes are those of `block_matrix`."""
        if self.signed:
            return self.block_matrix
        return self._joined(part.low_energy() for part in self._parts)

    @cached_property
    def inverse_matrix(self) -> BlockMatrix:
        """Matrix from the coefficients of cells to global ones, transposed; [local, global]."""
        if self.signed:
            return self.block_matrix
        return self._joined(part.back for part in self._parts)

    @cached_property
    def face_correction(self) -> csr_array | None:
        """Correction of means over cells where modes of edges do not vanish inside rotated faces; [size, size] or None.

        If processes share the mesh, the part of the cells of this process.
        """
        if (rows := self.face_correction_rows) is None:
            return None
        (inside, M), ends = rows, np.zeros(self.size + 1, np.int64)
        ends[inside + 1] = np.diff(M.indptr)
        return csr_array((M.data, M.indices, np.cumsum(ends)), shape=(self.size,) * 2)

    @cached_property
    def face_correction_rows(self) -> tuple[NDArray[np.int64], csr_array] | None:
        """The rows of `face_correction` with entries, and these, [n, size]."""
        if not self._reaches:
            return None
        inside, M = self._turned
        scale = np.repeat(self.multiplicity[inside], np.diff(M.indptr))
        return inside, csr_array((M.data / scale, M.indices, M.indptr), M.shape)

    @cached_property
    def _turned(self) -> tuple[NDArray[np.int64], csr_array]:
        """Unknowns in rotated faces, and sums of parts of edge modes there, of this process' cells; [n], [n, size]."""
        if self.signed:
            return np.zeros(0, np.int64), csr_array((0, self.size))
        back, rotated = (
            vstack(own, format="csr") for own in zip(*((p.back, p.rotated) for p in self._parts), strict=True)
        )
        # Of the unknowns on rotated faces alone, as a product takes time for every row and column.
        used = [np.flatnonzero(marked(self.size, [own.indices])) for own in (back, rotated)]
        place, few = np.empty(self.size, back.indices.dtype), list[csr_array]()
        for own, some in zip((back, rotated), used, strict=True):
            place[some] = np.arange(len(some))
            few.append(csr_array((own.data, place[own.indices], own.indptr), shape=(own.shape[0], len(some))))
        found = csr_array(few[0].T @ few[1])
        rows = np.flatnonzero(np.diff(found.indptr))
        columns, ends = used[1][found.indices].astype(found.indices.dtype), found.indptr[np.append(rows, len(used[0]))]
        return used[0][rows], csr_array((found.data, columns, ends), shape=(len(rows), self.size))

    @cached_property
    def _reaches(self) -> bool:
        """Whether modes of edges do not vanish inside rotated faces, on any process."""
        return self.space.comm.any(len(self._turned[0]) > 0)

    def seen(self, number: int) -> list[Seen]:
        """Entities of the elements of a block, for each dimension; see `Seen`."""
        mesh, elements = self.space.mesh, self.space.blocks[number].elements
        own, cells = mesh.locations[0][elements[:1]].sum(), mesh.aligned_topology.locations[1][elements]
        found = [self.numbering.of_group(int(own), dim) for dim in range(self.space.mesh.dim + 1)]
        if np.array_equal(cells, np.arange(len(found[0].ids))):
            return found
        return [Seen(s.ids.take(cells, axis=0), s.codes.take(cells, axis=0)) for s in found]

    @cached_property
    def multiplicity(self) -> NDArray[np.int64]:
        """Number of cells that share each global degree of freedom, those of other processes included, [size]."""
        return np.asarray(self.numbering.of_unknowns(self._cells_everywhere))

    @cached_property
    def multiplicity_here(self) -> NDArray[np.int64]:
        """Number of cells of this process that share each global degree of freedom, [size]."""
        return np.asarray(self.numbering.of_unknowns(self.numbering.topology.cells_around))

    def multiplicity_on(self, xp: Any) -> Any:
        """Number of cells that share each global degree of freedom, as an array of a module; see `multiplicity`."""
        return self.multiplicity if xp is np else self.numbering.of_unknowns(self._cells_everywhere, xp)

    @cached_property
    def _cells_everywhere(self) -> list[NDArray[np.int64]]:
        """Number of cells of all processes that have each entity, per dimension."""
        found = self.numbering.topology.cells_around
        if self.numbering.sharing is None:
            return found
        found = [own.copy() for own in found]
        for own, (shared, counts) in zip(found, self._cells_between, strict=False):
            own[shared] = counts
        return found

    @cached_property
    def _cells_between(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Shared entities and how many cells of all processes have them, per dimension; collective."""
        mesh, numbering, found = self.space.mesh, self.numbering, []
        there = marked(mesh.n_vertices, (ids for own in mesh.shared[:1] for ids in own.values()))
        groups = range(len(mesh.cells))
        near = [with_marked(numbering.of_group(group, 0).ids, there) for group in groups]
        for dim, neighbours in enumerate(mesh.shared):
            sharing = Sharing(mesh.comm, len(numbering.sizes[dim]), neighbours)
            ids = np.concatenate([numbering.of_group(group, dim).ids[near[group]].ravel() for group in groups])
            at = places(sharing.shared, ids)
            counts = np.bincount(at[at >= 0], minlength=len(sharing.shared))
            total = combined(mesh.comm, counts, sharing.places, np.add)
            found.append((sharing.shared, total))
        return found

    @cached_property
    def coordinates(self) -> NDArray[np.float64]:
        """Where each global degree of freedom is, [size, D]; read-only.

        In the basis "lagrange" this is its node; in the basis "modified" the middle of its vertex, edge, face or cell.
        On periodic sides it is on one of the two sides.
        """
        places = [np.empty((len(sizes), self.space.dim)) for sizes in self.numbering.sizes]
        nodes = np.empty((self.size, self.space.dim))
        for number, (block, part) in enumerate(zip(self.space.blocks, self._parts, strict=True)):
            geometry, basis = block.geometry, block.basis
            if basis.nodes is not None:
                nodes[part.codes.on(np) >> 1] = geometry.positions(geometry.basis.evaluate(basis.nodes)).transpose(
                    1, 2, 0
                )
                continue
            for own, seen, entities in zip(places, self.seen(number), block.shape.entities, strict=True):
                middles = [block.shape.vertices[list(entity.vertices)].mean(axis=0) for entity in entities]
                x = geometry.positions(geometry.basis.evaluate(np.array(middles)))
                own[seen.ids] = x.transpose(1, 2, 0)
        if self.numbering.name != "lagrange":
            nodes = np.stack(
                [self.numbering.of_unknowns(list(columns)) for columns in zip(*(p.T for p in places), strict=True)],
                axis=1,
            )
        return frozen(nodes)

    @cached_property
    def parts(self) -> Parts:
        """Parts of the mesh that share no unknown; the first use is collective if processes share the mesh."""
        return connected_parts(self.numbering, self.space)

    @property
    def matrix(self) -> csr_array:
        """Q, [local, global]: the rows are the blocks' arrays [element, mode] of one component, one after the other."""
        return self.block_matrix.matrix

    @cached_property
    def block_matrix(self) -> BlockMatrix:
        """Q in the form for restrictions."""
        return self._joined(csr_array(part.own + part.rotated) for part in self._parts)

    @property
    def signed(self) -> bool:
        """Whether Q has one entry +-1 per row, so that scatter is a signed gather of numbers."""
        return all(own.signed for own in self._codes)

    def restriction(self, device: Device, keep: NDArray[np.bool_] | None = None) -> ElementRestriction:
        """Q on a device, made and moved there once, or with those columns alone that are kept;
        see `ElementRestriction`.
        """

        def make() -> ElementRestriction:
            return self.vectors_on(device).restriction(self.block_matrix, self.space.dtype, keep)

        return self._restrictions.get(device, make) if keep is None else make()

    def scatter(self, vector: Any, out: Field | None = None, device: Device | None = None) -> Field:
        """Element-local coefficients of a global vector.

        Parameters
        ----------
        vector : array, [size] or [components, size]
            On `device`; of any library if that is left out.
        out : Field, optional
            Overwritten and returned.
        device : Device, optional
            Device of the field; that of the vector when left out.

        Returns
        -------
        Field
            State "coeff", continuous.

        Raises
        ------
        ArgumentError
            If the vector has another size.
        """
        vector, device = (vector, device) if device is not None else placed(vector)
        vectors = vectors_on(device)
        rows = vectors.checked(vector, "a global vector")
        shape = rows.shape
        if len(shape) not in (1, 2) or shape[-1] != self.size or 0 in shape[:-1]:
            raise ArgumentError(f"a global vector is [{self.size}] or [components, {self.size}], got {shown(rows)}")
        rows = vectors.xp.ascontiguousarray(rows if len(shape) == 2 else rows[None], self.space.dtype)
        out = result_field(self.space, "scatter", "coeff", len(rows), out)
        try:
            self.restriction(device).scatter(rows, [pair.write(device) for pair in out.data])
        except BaseException:
            out.discard()
            raise
        return out

    def gather(self, field: Field, device: Device = HOST) -> Any:
        """Global functional of an element-local one: the sum over the cells, Q^T.

        Parameters
        ----------
        field : Field
            State "dual", or "coeff" taken as plain numbers.
        device : Device
            Device of the result.

        Returns
        -------
        ndarray, [size] or [components, size] with more than one component

        Raises
        ------
        StateError
            If the field is on another space, or in state "phys".
        """
        found = self.restriction(device).gather(self._local(field, device))
        out = self.vectors_on(device).summed(found.reshape(field.components, self.size))
        return out[0] if len(out) == 1 else out

    def gathered(self, local: Any, device: Device) -> Any:
        """Gather local numbers, block after block, in float64, whatever the type of the space; see `gather`."""
        vectors = self.vectors_on(device)
        if self.space.dtype != np.float64:
            total = self.block_matrix.transpose @ vectors.to_host(local).astype(np.float64)
            return vectors.from_host(self.vectors_on(HOST).summed(total))
        return vectors.summed(self.restriction(device).gather(local)[0])

    def average(self, field: Field) -> Floats:
        """Global coefficients of an element-local function: the mean of the cells around each entity.

        Parameters
        ----------
        field : Field
            State "coeff"; for a continuous field the result is its global vector.

        Returns
        -------
        ndarray, [size] or [components, size] with more than one component
        """
        self._check_modal(field)
        arrays = [pair.read(HOST) for pair in field.data]
        sums = [self.inverse_matrix.gathered([own[c] for own in arrays]) for c in range(field.components)]
        means = self.vectors_on(HOST).summed(np.array(sums)) / self.multiplicity
        if self.face_correction is not None:
            means -= self.vectors_on(HOST).summed(np.ascontiguousarray((self.face_correction @ means.T).T))
        means = means.astype(self.space.dtype)
        return means[0] if len(means) == 1 else means

    def _check_modal(self, field: Field) -> None:
        """Refuse fields of other spaces, and values at points."""
        if not isinstance(field, Field) or field.space is not self.space:
            raise StateError("the field is not on the space of this C0Space")
        if field.state == "phys":
            raise StateError("a 'phys' field has no modes to gather; use IProductWRTBase or FwdTrans first")

    def _local(self, field: Field, device: Device) -> Any:
        """Numbers of a field on a device, block after block."""
        self._check_modal(field)
        arrays = [pair.read(device) for pair in field.data]
        xp = vectors_on(device).xp
        return arrays[0] if len(arrays) == 1 else xp.concatenate([array.reshape(-1) for array in arrays])

    def project(self, function: Callable[..., Any] | float) -> Floats:
        """Continuous approximation of a function: at the vertices, then in L2 on edges, faces and cells.

        Parameters
        ----------
        function : callable or float
            A function of the D coordinates, with one or more components.

        Returns
        -------
        ndarray, [size] or [components, size] with more than one component
            Its error falls like that of the best approximation. A continuous function of the space is reproduced.
        """
        comm = self.space.comm
        with comm.together():
            found = interpolate(self.numbering, [Piece(function)])
        components = int(comm.max(len(found)))  # a process without cells does not know
        values = self.vectors_on(HOST).agreed(found if self.size else np.zeros((components, 0)))
        return values[0] if len(values) == 1 else values
