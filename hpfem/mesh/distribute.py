"""A mesh cut into parts, one for each process: by METIS, along few facets and into equal amounts of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hpfem.errors import ArgumentError, DeviceError
from hpfem.shapes import Shape, make_basis
from hpfem.shapes.arguments import as_array, reals, shown
from hpfem.shapes.arrays import Array, Indices

from ..support.communicator import Communicator, communicator
from .gathered import moved, packed, unpacked
from .mesh import Mesh
from .part import combined

# The default work of a cell is the number of functions of this order; and units of the smallest work.
_ORDER, _UNITS = 4, 100

Weights = str | Mapping[str, float] | ArrayLike


def distribute(mesh: Mesh | None, comm: Any = None, weights: Weights = "auto", owners: ArrayLike | None = None) -> Mesh:
    """Give every process a part of a mesh; collective.

    Parameters
    ----------
    mesh : Mesh or None
        The whole mesh, on the first process; the argument of the others is ignored. Or a part on each process, which
        are partitioned again: only the neighbours of cells are sent to the first process.
    comm : Communicator or mpi4py.MPI.Comm, optional
        The processes; all that `mpirun` has started when left out.
    weights : "auto", {shape name: float} or array_like, [n_cells]
        Work of each cell of the given mesh. "auto" takes the number of functions of order 4; an operator on parts knows
        better (`cell_weights`).
    owners : array_like of int, [n_cells], optional
        The process of each cell of the given mesh, instead of METIS' partition; a process may have no cells.

    Returns
    -------
    Mesh
        With the cells of this process, their regions and boundaries; `Mesh.part` has its place in the whole mesh. With
        one process, the mesh itself.

    Raises
    ------
    ArgumentError
        If it is no whole mesh, or weights or owners do not fit it.
    DeviceError
        If pymetis is missing.
    """
    comm = communicator(comm)
    if comm.any(isinstance(mesh, Mesh) and mesh.part is not None):
        return _again(mesh, comm, weights, owners)
    pieces = None
    with comm.together():
        if comm.rank == 0:
            if not isinstance(mesh, Mesh):
                raise ArgumentError(f"distribute takes a whole Mesh on the first process, got {shown(mesh)}")
            work = _work(mesh, weights)
            if owners is not None:
                chosen = _given(owners, mesh, comm.size)
            else:
                chosen = _cut(comm.size, mesh.facets.cells[mesh.facets.interior], work)
            cells = [np.flatnonzero(chosen == rank) for rank in range(comm.size)] if comm.size > 1 else []
            pieces = [(packed(mesh, own), mesh.hanging) for own in cells]
    if comm.size == 1:
        assert mesh is not None
        return mesh
    piece, hanging = comm.scatter(pieces)
    return unpacked([piece]).mesh(comm, hanging)


def made_on_first(comm: Any, make: Callable[[], Mesh], given: object, what: str) -> Mesh:
    """Make a mesh on the first process and distribute it; collective."""
    comm, mesh = communicator(comm), None
    comm.same(given, what)
    with comm.together():
        if comm.rank == 0:
            mesh = make()
    return distribute(mesh, comm)


def _again(mesh: Mesh | None, comm: Communicator, weights: Weights, owners: ArrayLike | None) -> Mesh:
    """Parts cut anew."""
    with comm.together():
        if mesh is None or mesh.part is None or mesh.comm.size != comm.size:
            raise ArgumentError("distribute takes a whole Mesh on the first process, or a part of one on each of them")
        chosen = None if owners is None else _given(owners, mesh, comm.size)
    return moved(mesh, new_owners(mesh, weights) if chosen is None else chosen)


def new_owners(mesh: Mesh, weights: Weights = "auto") -> Indices:
    """Find the process that is to have each cell of parts that are cut anew; collective; -> [n_cells]."""
    part, facets, comm = mesh.part, mesh.facets, mesh.comm
    assert part is not None
    with comm.together():
        work = _work(mesh, weights)
    beside = np.full(len(facets), -1, dtype=np.int64)
    beyond = np.concatenate([np.empty(0, dtype=np.int64), *mesh.shared[-1].values()])
    beside[beyond] = part.cells[facets.cells[beyond, 0]]
    # Each pair of neighbours in different processes is reported by the process of higher number.
    others = combined(comm, beside, mesh.shared[-1], np.minimum)
    across = np.flatnonzero(others < beside)
    inside = part.cells[facets.cells[facets.interior[facets.cells[facets.interior, 1] >= 0]]]
    pairs = np.concatenate([inside, np.column_stack([beside[across], others[across]])])
    found = comm.gather((pairs, part.cells, work))
    owners = None
    with comm.together():
        if found is not None:
            cells = np.concatenate([own for _, own, _ in found])
            of_all = np.empty(len(cells))
            of_all[cells] = np.concatenate([own for _, _, own in found])
            chosen = _cut(comm.size, np.concatenate([own for own, _, _ in found]), of_all)
            owners = [chosen[own] for _, own, _ in found]
    return comm.scatter(owners)


def _given(owners: ArrayLike, mesh: Mesh, n: int) -> Indices:
    """Processes of cells as chosen by the user."""
    given = as_array(owners, "the owners of cells", "iu").astype(np.int64)
    if given.shape != (mesh.n_cells,) or np.any((given < 0) | (given >= n)):
        raise ArgumentError(f"owners are {mesh.n_cells} numbers of processes from 0 to {n - 1}, got {shown(owners)}")
    return given


def _cut(n: int, pairs: Indices, work: Array) -> Indices:
    """The process of each cell, found from the neighbours and the work of cells."""
    if n == 1:
        return np.zeros(len(work), dtype=np.int64)
    try:
        from pymetis import CSRAdjacency, part_graph
    except ImportError as error:
        raise DeviceError(
            "a mesh is distributed by pymetis; do pip install 'hpfem[mpi]', or give the owners"
        ) from error
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    starts = np.searchsorted(ends[:, 0], np.arange(len(work) + 1))
    units = np.maximum(1, np.rint(work * (_UNITS / work.min()))).astype(np.int64)
    _, found = part_graph(n, CSRAdjacency(starts, ends[:, 1]), vweights=units)
    return np.asarray(found, dtype=np.int64)


def work_of(shape: Shape) -> float:
    """Work of a cell of a shape, where nothing else is said."""
    return float(make_basis("modified", shape, _ORDER).n_modes)


def _work(mesh: Mesh, weights: Weights) -> Array:
    """Work of each cell, positive."""

    def of_shape(shape: Shape) -> float:
        return float(weights.get(shape.name, np.nan)) if isinstance(weights, Mapping) else work_of(shape)

    if isinstance(weights, Mapping) or (isinstance(weights, str) and weights == "auto"):
        work = np.empty(mesh.n_cells)
        for group in mesh.cells:
            work[group.indices] = of_shape(group.shape)
    else:
        work = reals(weights, "weights of cells")
    if work.shape != (mesh.n_cells,) or not np.all(np.isfinite(work) & (work > 0)):
        raise ArgumentError(
            f"weights are 'auto', a positive number for each shape, or {mesh.n_cells} positive numbers, got"
            f" {shown(weights)}"
        )
    return work
