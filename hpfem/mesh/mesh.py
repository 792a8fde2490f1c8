"""The mesh: points, cells per shape and geometry order, topology, named regions and boundaries. Immutable.

Layout: ``group.nodes[cell, node]`` is a row of ``mesh.points``, nodes in the canonical equispaced order of
`hpfem.shapes.equispaced_nodes`; ``group.vertices[cell, vertex]`` is a topological vertex id, vertices in the order of
``shape.vertices``. Vertices are apart from points: two points that a periodic mesh identifies are one vertex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from types import MappingProxyType
from typing import Any
from warnings import catch_warnings, warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpfem.errors import ArgumentError, HpfemError, HpfemWarning, MeshError
from hpfem.shapes import Shape
from hpfem.shapes.arguments import MAX_ORDER, as_array, flag, instance, integer, name_of, reals, shown, takes
from hpfem.shapes.arrays import Array, Indices, Mask, frozen
from hpfem.shapes.cached import cached_property

from ..geometry.element_map import ElementMap, elevated_nodes
from ..support.communicator import ALONE, Communicator
from ..support.files import atomic_path, file_path, path_text
from ..support.immutable import Immutable
from ..support.log import warn as say
from ..support.notebook import Printed
from ..support.registry import VIEWS
from . import checks
from .aligned import AlignedTopology
from .cells import CellArray, Labels, cell_arrays, is_flat, merged, ordered, used_points
from .coincident import JOINED, coincident_vertices, facing_sides, first_points
from .hanging import Hanging, hanging_vertices
from .io.msh_writer import write_msh
from .lattice import lattice_numbering
from .named_sets import Sets, boundaries_of, cell_data_of, looked_up, lower_sets_of, regions_of, rows_of_integers, sets
from .node_order import ORDERINGS
from .part import Part, Shared
from .refine import refined
from .sorting import unique
from .summary import SETS, MeshSummary, cell_statistics, lines_of_sets, together, unnamed_facets
from .symmetry import mirrored_vertices
from .topology import Entities, Facets, Topology, identified, numbered

# Attributes of a mesh that are mappings to arrays.
_MAPPINGS = ("regions", "boundary_sides", "lower_sets", "cell_data")
# Beyond any memory, for a mesh of one cell.
_MOST_REFINEMENTS = 20


@dataclass(frozen=True, eq=False, repr=False)
class CellGroup(CellArray, Printed):
    """The cells of one shape and geometry order of a mesh: a `CellArray` with its vertices, edges and faces."""

    _topology: Topology = field(repr=False)
    _position: int = field(repr=False)

    def __repr__(self) -> str:
        return f"CellGroup({len(self)} {self.shape.name} of order {self.order})"

    @property
    def vertices(self) -> Indices:
        """Topological vertex ids, in our vertex order, [E, n_vertices]."""
        return self._topology.vertices[self._position]

    @property
    def edges(self) -> Indices:
        """Edge ids, [E, n_edges]."""
        return self._topology.edges.ids[self._position]

    @property
    def edge_orientation(self) -> NDArray[np.int8]:
        """1 where the local edge runs from the larger to the smaller vertex id, else 0, [E, n_edges]."""
        return self._topology.edges.orientation[self._position]

    @property
    def faces(self) -> Indices:
        """Face ids, [E, n_faces]."""
        return self._topology.faces.ids[self._position]

    @property
    def face_orientation(self) -> NDArray[np.int8]:
        """Codes with ``global[i] = local[symmetries(face.shape)[code][i]]``, [E, n_faces]; see `symmetry`."""
        return self._topology.faces.orientation[self._position]

    def ids(self, dim: int) -> Indices:
        """Ids of the vertices, edges, faces or cells of one dimension, [E, n of the cell]; see `vertices`."""
        if dim == self.shape.dim:
            return self.indices[:, None]
        return self.vertices if dim == 0 else self.edges if dim == 1 else self.faces

    @property
    def facets(self) -> Indices:
        """Facet ids: the edges in 2-D, the faces in 3-D, [E, n_facets]."""
        return self._topology.sides.ids[self._position]


@dataclass(frozen=True, eq=False)
class Mesh(Immutable, Printed):
    """A conforming mesh of cells of one dimension and any shapes, made by `read_mesh`, `box` or `Mesh.from_cells`.

    Attributes
    ----------
    points : ndarray, [n, D]
        Coordinates of the geometric nodes, D >= dim.
    cells : tuple of CellGroup
        One per shape and geometry order.
    regions : mapping of str to ndarray of int
        Named sets of cells, by cell number.
    boundary_sides : mapping of str to ndarray of int, [n, 2]
        Named sets of facets as (cell number, local facet number).
    n_vertices : int
        Number of topological vertices.
    name : str
        The file, or another name in messages.
    numbers : ndarray of int, [n_cells], or None
        The number that the file gives each cell.
    n_mirrored : int
        Cells that had det J < 0 everywhere and were renumbered.
    n_stray : int
        Elements and points with a name that are no facet, edge or vertex of any cell.
    periodic : bool
        Whether vertices were identified.
    part : Part or None
        Its place in the whole mesh, if processes share the cells (`distribute`).
    apart : bool
        Whether cells that lie on each other without common vertices are meant to: ``join=False`` when it was made.
    lower_sets : mapping of (int, str) to ndarray of int, [n, 2]
        Named sets of vertices and of edges in 3-D, by their dimension and name, as (cell number, local number).
    cell_data : mapping of str to ndarray, [n_cells, ...]
        Values of the file by name, one for each cell; taken wherever a coefficient is.
    """

    points: Array
    cells: tuple[CellGroup, ...]
    regions: Mapping[str, Indices]
    boundary_sides: Mapping[str, Indices]
    n_vertices: int
    name: str = "mesh"
    numbers: Indices | None = None
    n_mirrored: int = 0
    n_stray: int = 0
    periodic: bool = False
    part: Part | None = None
    apart: bool = False
    lower_sets: Sets = field(default_factory=lambda: MappingProxyType({}))
    cell_data: Mapping[str, NDArray[Any]] = field(default_factory=lambda: MappingProxyType({}))

    @staticmethod
    def from_cells(
        points: ArrayLike,
        cells: Sequence[tuple[str, int, ArrayLike]],
        *,
        regions: Mapping[str, ArrayLike] | None = None,
        boundaries: Mapping[str, Sequence[ArrayLike]] | None = None,
        periodic: Sequence[ArrayLike] = (),
        name: str = "mesh",
        numbers: ArrayLike | None = None,
        check: bool = True,
        ordering: str = "tensor",
        join: bool | None = None,
        edge_sets: Mapping[str, Sequence[ArrayLike]] | None = None,
        point_sets: Mapping[str, ArrayLike] | None = None,
        node_sets: Mapping[str, ArrayLike] | None = None,
        cell_data: Mapping[str, ArrayLike] | None = None,
    ) -> Mesh:
        """Build a mesh from arrays.

        Parameters
        ----------
        points : array_like, [n, D]
            Coordinates, D = 2 or 3. Points of no cell are left out; a 2-D mesh with one z everywhere becomes D = 2.
        cells : sequence of (shape name, geometry order, nodes)
            Nodes [E, n_nodes] in the order that `ordering` says. Cells are numbered as they come.
        regions : mapping of str to array_like of int, optional
            Named sets of cell numbers.
        boundaries : mapping of str to sequence of array_like of int, [n, n_corners] each, optional
            Named sets of facets, each given by the points at its corners in any order.
        periodic : sequence of array_like of int, [n, 2] each
            Points to identify, one array per pair of sides; none by default.
        name : str
            Name of the mesh in messages, usually the file.
        numbers : array_like of int, [n_cells], optional
            Numbers of the cells in messages; by default their positions, from 1.
        check : bool
            Whether to check the mesh as after reading a file, and renumber mirrored cells.
        ordering : str
            Of the nodes of a cell: "tensor", the canonical equispaced order of `hpfem.shapes.equispaced_nodes`, last
            direction fastest; "vtk", "gmsh" and "cgns" (to order 2), which begin with the corners and go around quads
            (`vtk_nodes`, `gmsh_nodes`).
        join : bool, optional
            Whether coincident points become one point. False says that cells are meant to be apart there, and spaces do
            not warn of it.
        edge_sets : mapping of str to sequence of array_like of int, [n, 2] each, optional
            Named sets of edges of a 3-D mesh, given as boundaries are.
        point_sets : mapping of str to array_like of int, optional
            Named sets of points, which are vertices of cells.
        node_sets : mapping of str to array_like of int, optional
            Named sets of points that stand for what lies between them. A set is a set of points, and a boundary of the
            facets that have all corners in it; away from those, a set of such edges.
        cell_data : mapping of str to array_like, [n_cells, ...], optional
            Values of the cells by name.

        Returns
        -------
        Mesh

        Raises
        ------
        MeshError
            If the mesh is unusable; the message names the element, and another ordering if the mesh is usable in it.
        ArgumentError
            If the arrays do not fit each other.
        """
        coordinates = np.array(reals(points, "points"))
        if coordinates.ndim != 2 or coordinates.shape[1] not in (2, 3):
            raise ArgumentError(f"points must be an array [n, 2] or [n, 3], not {coordinates.shape}")
        check = flag(check, "check")
        arrays = cell_arrays(cells)
        n_cells = sum(map(len, arrays))
        known = None if numbers is None else frozen(as_array(numbers, "numbers of cells", "iu").astype(np.int64))
        if known is not None and known.shape != (n_cells,):
            raise ArgumentError(f"{n_cells} cells take as many numbers, not an array {known.shape}")
        labels = Labels(instance(name, str, "the name of a mesh"), known)
        given = name_of(ordering, ORDERINGS, "ordering")
        join = None if join is None else flag(join, "join")
        lower = {(1, of): blocks for of, blocks in sets({} if edge_sets is None else edge_sets, "edge_sets")}
        lower |= {(0, of): [rows[:, None]] for of, rows in _points({} if point_sets is None else point_sets)}
        nodes = dict(_points({} if node_sets is None else node_sets))

        def made(ordering: str) -> Mesh:
            return mesh_of(
                coordinates,
                [ordered(array, ordering) for array in arrays],
                labels,
                regions={} if regions is None else regions,
                boundaries={} if boundaries is None else boundaries,
                periodic=periodic,
                check=check,
                join=join,
                lower=lower,
                nodes=nodes,
                cell_data=cell_data,
            )

        try:
            return made(given)
        except MeshError as error:
            better = fitting_order(made, given)
            if better is None:
                raise
            raise MeshError(f"{error}; it is fine with ordering={better!r}") from None

    @property
    def dim(self) -> int:
        """Dimension of the cells."""
        return self.cells[0].shape.dim

    @cached_property
    def n_cells(self) -> int:
        """Number of cells."""
        return sum(len(group) for group in self.cells)

    @property
    def comm(self) -> Communicator:
        """The processes that share the cells."""
        return ALONE if self.part is None else self.part.comm

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes that occur, each once."""
        return tuple(dict.fromkeys(group.shape for group in self.cells))

    @property
    def topology(self) -> Topology:
        """Edges, faces and facets; each made when first asked for."""
        return self.cells[0]._topology

    @property
    def edges(self) -> Entities:
        """Edges of the mesh."""
        return self.topology.edges

    @property
    def faces(self) -> Entities:
        """Faces of the mesh."""
        return self.topology.faces

    @property
    def facets(self) -> Facets:
        """Facets: the cells on their two sides."""
        return self.topology.facets

    @cached_property
    def boundaries(self) -> Mapping[str, Indices]:
        """Named sets of facets, by facet number, ascending."""
        dim = self.dim - 1
        return MappingProxyType({name: unique(self.entity_ids(dim, own)) for name, own in self.boundary_sides.items()})

    @property
    def entity_sets(self) -> Sets:
        """All named sets of facets, edges and vertices, by dimension and name, as (cell number, local number)."""
        return {**{(self.dim - 1, name): own for name, own in self.boundary_sides.items()}, **self.lower_sets}

    @cached_property
    def edge_sets(self) -> Mapping[str, Indices]:
        """Named sets of edges of a 3-D mesh, by edge number, ascending; in 2-D edges are `boundaries`."""
        return self._lower(1)

    @cached_property
    def point_sets(self) -> Mapping[str, Indices]:
        """Named sets of vertices, by vertex number, ascending."""
        return self._lower(0)

    def _lower(self, dim: int) -> Mapping[str, Indices]:
        found = {name: unique(self.entity_ids(dim, own)) for (of, name), own in self.lower_sets.items() if of == dim}
        return MappingProxyType(found)

    @property
    def locations(self) -> tuple[Indices, Indices]:
        """Where each cell is: the position of its group in ``cells`` and its row there, [n_cells] each."""
        return self.topology.locations

    @cached_property
    def shared(self) -> tuple[Shared, ...]:
        """Per dimension, ids of the entities that each neighbouring process has too, listed in its order."""
        return () if self.part is None else self.part.shared(self.topology)

    @cached_property
    def aligned(self) -> tuple[CellGroup, ...]:
        """The cells as spaces use them: sorted, and with their vertices in the order of `hpfem.mesh.aligned`."""
        return groups_of(self.aligned_topology)

    @cached_property
    def aligned_topology(self) -> AlignedTopology:
        """Edges and faces of the `aligned` cells."""
        return AlignedTopology(self.topology, self.points, None if self.part is None else self.part.ranks)

    @cached_property
    def hanging(self) -> Hanging:
        """Vertices inside sides of cells that do not have them as corners: the cells there are not joined."""
        if self.part is not None:
            return self.part.hanging
        return hanging_vertices(self.points, self.topology, self._labels)

    @cached_property
    def facing(self) -> tuple[int, str]:
        """Pairs of sides that lie on each other without common vertices, and where one is; see `facing_sides`."""
        return facing_sides(self.points, self.topology, self.comm)

    def warn_of_facing(self) -> None:
        """Warn of sides that lie on each other without common vertices, once and if not meant; collective."""
        if self.apart or "facing" in self.__dict__:
            return
        count, place = self.facing
        if count and self.comm.rank == 0:
            say(
                f"{self.name}: sides of cells lie on each other without common vertices: {count}, one at ({place});"
                " functions may jump there. read_mesh and Mesh.from_cells join them with join=True; with join=False,"
                " these and C0Space take them as meant"
            )

    @property
    def _labels(self) -> Labels:
        return Labels(self.name, self.numbers)

    def with_sides(self, sides: Mapping[str, Indices]) -> Mesh:
        """The same mesh with other named boundaries, as (cell, local facet) numbers [n, 2]; see `boundary_sides`."""
        named = {name: frozen(rows_of_integers(pairs, "sides", [2])) for name, pairs in sets(sides, "boundaries")}
        facets = np.array([len(group.shape.facets) for group in self.cells])
        for cells, local in (pairs.T for pairs in named.values()):
            inside = np.all((cells >= 0) & (cells < self.n_cells))
            if not inside or np.any((local < 0) | (local >= facets[self.locations[0][cells]])):
                raise ArgumentError(
                    f"sides are (cell, local facet) pairs; a cell or a facet of these is not in {self!r}"
                )
        return replace(self, boundary_sides=MappingProxyType(named))

    def entity_ids(self, dim: int, pairs: Indices) -> Indices:
        """Numbers of vertices, edges or faces, given as in `entity_sets`; pairs [n, 2] -> [n]; see `facets`."""
        group, row = self.locations
        found = np.empty(len(pairs), dtype=np.int64)
        for position, own in enumerate(self.cells):
            here = group[pairs[:, 0]] == position
            found[here] = own.ids(dim)[row[pairs[here, 0]], pairs[here, 1]]
        return found

    def coordinates(self, group: CellGroup) -> Array:
        """Coordinates of the nodes of one of `cells`, [E, n_nodes, D]; see `points`."""
        return self.points[instance(group, CellGroup, "the group").nodes]

    def affine(self, group: CellGroup) -> Mask:
        """Which cells of one of `cells` are affine, [E]; see `coordinates`."""
        instance(group, CellGroup, "the group")
        return ElementMap.of(group, self.points).affine_elements

    def describe_cell(self, cell: int) -> str:
        """Name of a cell in messages: its number in the file and its shape, "element 17 (hex)"; see `numbers`."""
        return self._labels.cell(self.cells, integer(cell, 0, "the number of a cell", self.n_cells - 1))

    def summary(self) -> MeshSummary:
        """Counts, orders, affine share, volume, worst scaled Jacobian, names; collective where processes share it.

        Returns
        -------
        MeshSummary
        """
        statistics = cell_statistics(self.points, self.topology)
        n_unnamed, unnamed = unnamed_facets(self.points, self.topology, self.boundaries.values())
        sets: dict[str, Any] = {name: {key: len(own) for key, own in getattr(self, name).items()} for name in SETS}
        ids = np.arange(self.n_vertices) if self.part is None else self.part.vertices
        own = ("name", "dim", "n_cells", "n_vertices", "n_mirrored", "n_stray", "periodic")
        found = MeshSummary(
            **{name: getattr(self, name) for name in own},
            n_coordinates=self.points.shape[1],
            plane=self._plane(),
            n_points=len(self.points),
            **statistics,
            worst_label=self.describe_cell(statistics["worst_cell"]) if self.n_cells else "",
            n_coincident=coincident_vertices(self.points, self.topology, ids, self.comm),
            n_hanging=len(self.hanging),
            hanging=str(self.hanging) if len(self.hanging) else "",
            **sets,
            cell_data=tuple(self.cell_data),
            n_unnamed=n_unnamed,
            unnamed=unnamed,
        )
        if self.part is None:
            return found
        n_vertices, n_points = self.part.counts(self.points, self.topology)
        return together(self.comm.allgather(replace(found, n_vertices=n_vertices, n_points=n_points)))

    def _plane(self) -> str:
        """Where a mesh of 2-D cells in space is in a coordinate plane: "y = 0"; collective."""
        ends = np.array([self.points.min(axis=0, initial=np.inf), -self.points.max(axis=0, initial=-np.inf)])
        low, high = np.min(self.comm.allgather(ends), axis=0) * [[1], [-1]]
        names = [name for d, name in enumerate("xyz"[: len(low)]) if is_flat(np.append(high - low, (high - low)[d]))]
        return f"{names[0]} = {low['xyz'.index(names[0])]:.6g}" if names and len(low) > self.dim else ""

    def transformed(self, function: Callable[[Array], ArrayLike], *, check: bool = True) -> Mesh:
        """The mesh with its points moved; topology, regions and boundaries stay.

        Parameters
        ----------
        function : callable
            Takes all points [n, D] at once and returns [n, D'] with dim <= D' <= 3.
        check : bool
            Whether to check that no cell becomes tangled.

        Returns
        -------
        Mesh

        Raises
        ------
        MeshError
            If a cell becomes tangled, or a coordinate is not finite.
        """
        if not takes(function, self.points):
            raise ArgumentError(f"a mesh is moved by a function of its points, got {shown(function)}")
        points = np.array(reals(function(self.points), "what the function returns"))
        if points.ndim != 2 or len(points) != len(self.points) or not self.dim <= points.shape[1] <= 3:
            raise ArgumentError(f"the function made points of shape {points.shape} out of {self.points.shape}")
        if not flag(check, "check"):
            return replace(self, points=frozen(points))
        checks.nodes(self.cells, points, self._labels)
        arrays, mirrored = checks.positively_oriented(points, self.topology.cells, self._labels)
        if not _count(mirrored):
            return replace(self, points=frozen(points))
        in_space, _ = numbered(arrays, len(points))
        checks.neighbours(in_space, self._labels, oriented=self.dim == points.shape[1])
        return self._mirrored(points, arrays, mirrored)

    def _mirrored(self, points: Array, arrays: list[CellArray], mirrored: list[Mask]) -> Mesh:
        """With some cells mirrored: facets keep their numbers, but not their place in those cells."""
        vertices = [
            np.where(own[:, None], old.vertices[:, mirrored_vertices(old.shape)], old.vertices)
            for old, own in zip(self.cells, mirrored, strict=True)
        ]
        cells = groups_of(Topology(arrays, vertices, self.n_vertices, self.topology.beyond))
        group, row = self.locations
        sides: dict[tuple[int, str], Indices] = {}
        for (dim, name), pairs in self.entity_sets.items():
            turned = pairs.copy()
            for position, (old, new) in enumerate(zip(self.cells, cells, strict=True)):
                here = group[pairs[:, 0]] == position
                own, local = row[pairs[here, 0]], pairs[here, 1:]
                wanted = np.take_along_axis(old.ids(dim)[own], local, axis=1)
                turned[here, 1] = np.argmax(new.ids(dim)[own] == wanted, axis=1)
            sides[dim, name] = turned
        return replace(
            self,
            points=frozen(points),
            cells=cells,
            n_mirrored=self.n_mirrored + _count(mirrored),
            **named_entities(self.dim, sides),
        )

    def elevated(self, order: int) -> Mesh:
        """The same mesh with the nodes of a higher geometry order, so that it can be curved by `transformed`.

        Neighbours share the nodes of common edges and faces, except across periodic sides.

        Parameters
        ----------
        order : int
            Wanted geometry order, at least that of every cell.

        Returns
        -------
        Mesh
        """
        highest = max(group.order for group in self.cells)
        order = integer(order, highest, "the geometry order", MAX_ORDER)
        # Points are shared at one place in space only; periodic sides are at different places.
        in_space = numbered(self.cells, len(self.points))[0] if self.periodic else self.topology
        numbering, count = lattice_numbering(in_space, order)
        points = np.empty((count, self.points.shape[1]))
        arrays = []
        for group, nodes in zip(self.cells, numbering, strict=True):
            points[nodes] = elevated_nodes(group, self.points, order)
            arrays.append(CellArray(group.shape, order, nodes, group.indices))
        same = merged(arrays)
        vertices = [np.concatenate([g.vertices for g in self.cells if g.shape is array.shape]) for array in same]
        topology = Topology(same, vertices, self.n_vertices, self.topology.beyond)
        return replace(self, points=frozen(points), cells=groups_of(topology))

    def refined(self, times: int = 1) -> Mesh:
        """The same mesh with every cell cut into smaller ones of half its size.

        Quads and tris are cut in four, hexes, prisms and tets in eight, pyramids in six pyramids and four tets. The
        nodes of the pieces are computed with the map of their cell, so that the curved geometry does not change.
        Neighbours still share whole sides, regions and boundaries keep their names, and periodic sides stay identified.
        Pieces of a cell have consecutive numbers, in the order of the cells, and the cell's number in the file.

        Parameters
        ----------
        times : int
            Number of refinements; 0 gives the mesh itself.

        Returns
        -------
        Mesh

        Raises
        ------
        MeshError
            If a piece is tangled, because its cell is tangled between the points that were checked.
        ArgumentError
            If processes share the mesh.
        """
        mesh, times = self, integer(times, 0, "how often a mesh is refined", _MOST_REFINEMENTS)
        if times:
            self._check_whole("refined")
        for _ in range(times):
            mesh = mesh._halved()
        return mesh

    def _check_whole(self, what: str) -> None:
        if self.part is not None:
            raise ArgumentError(
                f"{self.name}: a mesh is {what} before it is distributed: read it with comm=hpfem.ALONE"
            )

    def _halved(self) -> Mesh:
        in_space = numbered(self.cells, len(self.points))[0] if self.periodic else self.topology
        result = refined(self.points, self.topology, in_space)
        numbers = None if self.numbers is None else frozen(np.repeat(self.numbers, result.counts))
        labels = Labels(self.name, numbers)
        _, mirrored = checks.positively_oriented(result.points, result.topology.cells, labels)
        for array, own in zip(result.topology.cells, mirrored, strict=True):
            if own.any():
                raise labels.error(f"{labels.first(array, own)} is tangled: its Jacobian determinant changes its sign")
        sides = {key: result.sides(self.cells, pairs, key[0]) for key, pairs in self.entity_sets.items()}
        data = {name: frozen(np.repeat(own, result.counts, axis=0)) for name, own in self.cell_data.items()}
        return replace(
            self,
            points=frozen(result.points),
            cells=groups_of(result.topology),
            regions=MappingProxyType({name: frozen(result.pieces(cells)) for name, cells in self.regions.items()}),
            cell_data=MappingProxyType(data),
            n_vertices=result.topology.n_vertices,
            numbers=numbers,
            n_mirrored=0,
            n_stray=0,
            **named_entities(self.dim, sides),
        )

    def plot(self, path: str | PathLike[str] | None = None, *, by: str | None = None, edges: bool = True) -> Any:
        """Draw the mesh: plane meshes by matplotlib, surfaces in space and the boundary of solids by pyvista.

        Parameters
        ----------
        path : path, optional
            File to write: .png, in the plane also .pdf or .svg.
        by : "regions" or "boundaries", optional
            The sets with colours and names. By default both; for solids boundaries if any has a name, else regions.
        edges : bool
            Whether to draw the cells' edges.

        Returns
        -------
        Picture
            A notebook shows it, ``save(path)`` writes it.

        Raises
        ------
        ArgumentError
            If `by` is something else, the file cannot be written, or pyvista (extra `view`) or OpenGL is missing.
        """
        return VIEWS["Mesh.plot"](self, path, by=by, edges=edges)

    def to_pyvista(self) -> Any:
        """Make a grid of pyvista from the cells, with their curvature, and with "cell" and "region" numbers.

        Returns
        -------
        pyvista.UnstructuredGrid

        Raises
        ------
        ArgumentError
            If pyvista (extra `view`) is not installed.
        """
        return VIEWS["Mesh.to_pyvista"](self)

    def write(self, path: str | PathLike[str]) -> None:
        """Write the mesh to a file in gmsh's format, from which `read_mesh` makes the same mesh.

        Every digit of the points, nodes and orientation of the cells, their order within a shape, regions, boundaries
        and sets of edges and points are kept; sets without members are left out. Boundaries keep their order,
        unless some overlap. Elements have the numbers of the cells, from 1.

        Parameters
        ----------
        path : path
            File to write, ending in .msh. Written whole or not at all.

        Raises
        ------
        ArgumentError
            If the file cannot be written, its name does not end in .msh, the format does not support a name or an
            order, or processes share the mesh.

        Warns
        -----
        HpfemWarning
            If the mesh is periodic: the file has both sides, but not their identification. If it has cell data.
        """
        if file_path(path).suffix != ".msh":
            raise ArgumentError(
                f"a mesh is written to a file that ends in .msh, not to {path_text(path)}; fields go to write_vtu"
            )
        self._check_whole("written")
        if self.periodic:
            warn(f"{self.name}: the file does not say which sides of this periodic mesh are one", HpfemWarning, 2)
        if self.cell_data:
            warn(f"{self.name}: the file does not have the cell data {', '.join(self.cell_data)}", HpfemWarning, 2)
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            write_msh(file, self.points, self.topology, self.regions, self.entity_sets)

    def __getstate__(self) -> dict[str, object]:
        state = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return state | {key: dict(state[key]) for key in _MAPPINGS}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        frozen(self.points)
        for key in _MAPPINGS:
            self.__dict__[key] = MappingProxyType({name: frozen(a) for name, a in self.__dict__[key].items()})

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(group)} {group.shape.name} of order {group.order}" for group in self.cells)
        return f"<Mesh {self.name}: {counts}>"

    def __str__(self) -> str:
        counts = {title: {key: len(own) for key, own in getattr(self, name).items()} for name, title in SETS.items()}
        return "\n".join([repr(self), *lines_of_sets(counts)])


def fitting_order(made: Callable[[str], Mesh], given: str = "") -> str | None:
    """Find another order of the nodes in which a mesh is usable."""
    for other in ORDERINGS:
        with suppress(HpfemError), catch_warnings(action="ignore", category=HpfemWarning):
            if other != given and made(other):
                return other
    return None


def _points(given: Mapping[str, ArrayLike]) -> Iterator[tuple[str, Indices]]:
    """Named sets of points."""
    for name, rows in sets(given, "sets of points"):
        yield name, as_array(rows, f"points of {shown(name)}", "iu").astype(np.int64).ravel()


def mesh_of(
    points: Array,
    arrays: Sequence[CellArray],
    labels: Labels,
    *,
    regions: Mapping[str, ArrayLike],
    boundaries: Mapping[str, Sequence[ArrayLike]],
    periodic: Sequence[ArrayLike],
    check: bool = True,
    flat: bool | None = None,
    join: bool | None = None,
    keys: Indices | None = None,
    lower: Mapping[tuple[int, str], Sequence[ArrayLike]] | None = None,
    nodes: Mapping[str, Indices] | None = None,
    cell_data: Mapping[str, ArrayLike] | None = None,
) -> Mesh:
    """Build a mesh from arrays that become its own; see `Mesh.from_cells`; points [n, D], lower [n, dimension + 1]."""
    checks.dimensions(arrays, points.shape[1], labels)
    if check:
        checks.nodes(arrays, points, labels)
    given = points
    points, arrays, new_number = used_points(points, arrays, flat, labels.name)
    # Orientation, numbers of vertices, checks.
    mirrored: list[Mask] = []
    if check:
        arrays, mirrored = checks.positively_oriented(points, arrays, labels)
    topology, vertex_of = numbered(arrays, len(points))
    n_joined = 0
    if join:
        named = [blocks for _, blocks in sets(boundaries, "boundaries") if isinstance(blocks, (list, tuple))]
        named += [blocks for blocks in (lower or {}).values() if isinstance(blocks, (list, tuple))]
        corners = [rows_of_integers(rows, "corners of boundaries", (1, 2, 3, 4)) for blocks in named for rows in blocks]
        number, new_number = _joined(points, topology, given, new_number, corners, keys)
        n_joined = int(np.count_nonzero(number != np.arange(len(points))))
        if n_joined:
            arrays = [replace(array, nodes=number[array.nodes]) for array in arrays]
            points, arrays, number = used_points(points, arrays, flat=False)
            topology, vertex_of = numbered(arrays, len(points))
            new_number = looked_up(number, new_number)
            say(f"{labels.name}: {n_joined} {JOINED}")
    try:
        if n_joined:
            checks.nodes(arrays, points, labels)
        if check:
            checks.conformity(topology, points, labels)
    except MeshError as error:
        hint = f"; {n_joined} coincident points were joined, join=False leaves them apart" if n_joined else ""
        raise MeshError(f"{error}{hint}") from None
    # Names.
    vertex_of = looked_up(vertex_of, new_number)
    sides, n_stray = boundaries_of(topology, boundaries, vertex_of)
    sets_below, n_more = lower_sets_of(topology, lower or {}, nodes or {}, sides, regions, vertex_of)
    if not isinstance(periodic, (list, tuple)):
        raise ArgumentError(f"periodic is a list with an array of points per pair of sides, got {shown(periodic)}")
    if len(periodic):
        pairs = [looked_up(vertex_of, rows_of_integers(rows, "periodic points", [2])) for rows in periodic]
        pairs = [rows[(rows >= 0).all(axis=1)] for rows in pairs]
        before, topology = topology, identified(topology, np.concatenate(pairs))
        checks.periodicity(topology, before, pairs, labels)
        checks.neighbours(topology, labels, oriented=False)
    return Mesh(
        frozen(points),
        groups_of(topology),
        regions_of(regions, sum(map(len, arrays))),
        MappingProxyType(sides),
        topology.n_vertices,
        labels.name,
        labels.numbers,
        _count(mirrored),
        n_stray + n_more,
        bool(len(periodic)),
        apart=join is False,
        lower_sets=sets_below,
        cell_data=cell_data_of(cell_data or {}, sum(map(len, arrays))),
    )


def _joined(
    points: Array,
    topology: Topology,
    given: Array,
    new_number: Indices,
    corners: Sequence[Indices],
    keys: Indices | None,
) -> tuple[Indices, Indices]:
    """The first point at the place of each point of cells, and of each given one, which elements of sides may have."""
    loose = np.flatnonzero(new_number < 0)
    every = np.concatenate([points, given[loose, : points.shape[1]]])
    row = new_number.copy()
    row[loose] = len(points) + np.arange(len(loose))
    others = [own[(own >= 0).all(axis=1)] for own in (looked_up(row, rows) for rows in corners)]
    if keys is not None:
        keys = looked_up(keys, np.argsort(row))
    first, _ = first_points(every, topology, others, np.arange(len(every)), keys)
    first[first >= len(points)] = -1
    return first[: len(points)], first[row]


def _count(mirrored: Sequence[Mask]) -> int:
    return sum(int(own.sum()) for own in mirrored)


def groups_of(topology: Topology) -> tuple[CellGroup, ...]:
    """Make groups of cells with their topology."""
    return tuple(
        CellGroup(array.shape, array.order, frozen(array.nodes), frozen(array.indices), topology, position)
        for position, array in enumerate(topology.cells)
    )


def named_entities(dim: int, given: Sets) -> dict[str, Any]:
    """The arguments of `Mesh` that `Mesh.entity_sets` is made of; given [n, 2]."""
    sides = {name: frozen(own) for (of, name), own in given.items() if of == dim - 1}
    lower = {key: frozen(own) for key, own in given.items() if key[0] < dim - 1}
    return {"boundary_sides": MappingProxyType(sides), "lower_sets": MappingProxyType(lower)}
