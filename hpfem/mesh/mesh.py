"""The mesh: points, cells per shape and geometry order, topology, named regions and boundaries. Immutable.

Layout: ``group.nodes[cell, node]`` is a row of ``mesh.points``, nodes in the canonical equispaced order of
`hpfem.shapes.equispaced_nodes`; ``group.vertices[cell, vertex]`` is a topological vertex id, vertices in the order of
``shape.vertices``. Vertices are apart from points: two points that a periodic mesh identifies are one vertex.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hpfem.errors import ArgumentError
from hpfem.shapes import Shape
from hpfem.shapes.arguments import MAX_ORDER, as_array, flag, instance, integer, reals, shown, takes
from hpfem.shapes.cached import cached_property

from ..geometry.element_map import ElementMap, elevated_nodes
from ..support.immutable import Immutable
from . import checks
from .hanging import Hanging, hanging_vertices
from .lattice import lattice_numbering
from .named_sets import boundaries_of, frozen, moved, regions_of, rows_of_integers, sets
from .parts import Labels, Part, as_parts, compressed, merged, turned
from .summary import MeshSummary, summarise
from .symmetry import Indices, mirrored_vertices
from .topology import Entities, Facets, Topology

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CellGroup:
    """The cells of one shape and geometry order.

    Attributes
    ----------
    shape : Shape
        The reference shape.
    order : int
        Geometry order k.
    nodes : ndarray of int, [E, n_nodes]
        Rows of ``mesh.points``, in the canonical equispaced order.
    vertices : ndarray of int, [E, n_vertices]
        Topological vertex ids, in our vertex order.
    indices : ndarray of int, [E]
        Global cell numbers: positions among the cells of the file.
    """

    shape: Shape
    order: int
    nodes: Indices
    vertices: Indices
    indices: Indices
    _topology: Topology = field(repr=False)
    _position: int = field(repr=False)

    def __len__(self) -> int:
        return len(self.nodes)

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

    @property
    def facets(self) -> Indices:
        """Facet ids: the edges in 2-D, the faces in 3-D, [E, n_facets]."""
        return self._topology.sides.ids[self._position]

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        for array in (self.nodes, self.vertices, self.indices):
            frozen(array)


@dataclass(frozen=True, eq=False)
class Mesh(Immutable):
    """A conforming mesh of any of the shapes, of one dimension. Made by `read_mesh`, `box` or `Mesh.from_cells`.

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
        The file, or what messages call the mesh.
    numbers : ndarray of int, [n_cells], or None
        The number that the file gives each cell.
    n_mirrored : int
        Cells that had det J < 0 everywhere and were renumbered.
    n_stray : int
        Boundary elements of the file that are no facet of any cell.
    periodic : bool
        Whether vertices were identified.
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
    ) -> Mesh:
        """Build a mesh from arrays.

        Parameters
        ----------
        points : array_like, [n, D]
            Coordinates, D = 2 or 3. Points of no cell are left out; a 2-D mesh with one z everywhere becomes D = 2.
        cells : sequence of (shape name, geometry order, nodes)
            Nodes [E, n_nodes] in canonical equispaced order. Cells are numbered as they come.
        regions : mapping of str to array_like of int, optional
            Named sets of cell numbers.
        boundaries : mapping of str to sequence of array_like of int, [n, n_corners] each, optional
            Named sets of facets, each given by the points at its corners in any order.
        periodic : sequence of array_like of int, [n, 2] each
            Points to identify, one array per pair of sides; none by default.
        name : str
            What messages call the mesh, the file usually.
        numbers : array_like of int, [n_cells], optional
            What messages call the cells; by default their position, from 1.
        check : bool
            Whether to run the checks of a mesh file and turn mirrored cells.

        Returns
        -------
        Mesh

        Raises
        ------
        MeshError
            If the mesh is unusable; the message names the element.
        ArgumentError
            If the arrays do not fit each other.
        """
        coordinates = np.array(reals(points, "points"))
        if coordinates.ndim != 2 or coordinates.shape[1] not in (2, 3):
            raise ArgumentError(f"points must be an array [n, 2] or [n, 3], not {coordinates.shape}")
        given, check = as_parts(cells), flag(check, "check")
        n_cells = sum(len(part.nodes) for part in given)
        known = None if numbers is None else frozen(as_array(numbers, "numbers of cells", "iu").astype(np.int64))
        if known is not None and known.shape != (n_cells,):
            raise ArgumentError(f"{n_cells} cells take as many numbers, not an array {known.shape}")
        labels = Labels(instance(name, str, "the name of a mesh"), known)
        checks.dimensions(given, coordinates.shape[1], labels)
        parts = merged(given)
        if check:
            checks.nodes(parts, coordinates, labels)
        coordinates, parts, new_number = compressed(coordinates, parts)
        parts, n_mirrored = _upright(coordinates, parts, labels) if check else (parts, 0)
        topology, vertex_of = _numbered(parts, len(coordinates))
        if check:
            checks.neighbours(topology, labels, oriented=parts[0].shape.dim == coordinates.shape[1])
            checks.hanging(topology, labels)
            checks.gaps(topology, parts, coordinates, labels)
        point_vertex = moved(vertex_of, new_number)
        sides, n_stray = boundaries_of(topology, {} if boundaries is None else boundaries, point_vertex)
        if not isinstance(periodic, (list, tuple)):
            raise ArgumentError(f"periodic is a list with an array of points per pair of sides, got {shown(periodic)}")
        if len(periodic):
            pairs = [moved(point_vertex, rows_of_integers(rows, "periodic points", [2])) for rows in periodic]
            topology = _identified(topology, pairs, labels)
        return Mesh(
            frozen(coordinates),
            _groups(parts, topology),
            regions_of({} if regions is None else regions, n_cells),
            MappingProxyType(sides),
            topology.n_vertices,
            name,
            labels.numbers,
            n_mirrored,
            n_stray,
            bool(len(periodic)),
        )

    @property
    def dim(self) -> int:
        """Dimension of the cells."""
        return self.cells[0].shape.dim

    @cached_property
    def n_cells(self) -> int:
        """Number of cells."""
        return sum(len(group) for group in self.cells)

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
        return MappingProxyType(
            {name: self.facet_numbers(sides[:, 0], sides[:, 1]) for name, sides in self.boundary_sides.items()}
        )

    @cached_property
    def locations(self) -> tuple[Indices, Indices]:
        """Where each cell is: the position of its group in ``cells`` and its row there, [n_cells] each."""
        group, row = np.empty(self.n_cells, dtype=np.int64), np.empty(self.n_cells, dtype=np.int64)
        for position, cells in enumerate(self.cells):
            group[cells.indices] = position
            row[cells.indices] = np.arange(len(cells))
        return group, row

    @cached_property
    def hanging(self) -> Hanging:
        """Vertices inside sides of cells that do not have them as corners: the cells there are not joined."""
        return hanging_vertices(self)

    def with_sides(self, sides: Mapping[str, Indices]) -> Mesh:
        """The same mesh with these named boundaries instead.

        Parameters
        ----------
        sides : mapping of str to ndarray of int, [n, 2]
            Facets as (cell number, local facet number).

        Returns
        -------
        Mesh
        """
        named = {name: frozen(rows_of_integers(pairs, "sides", [2])) for name, pairs in sets(sides, "boundaries")}
        for pairs in named.values():
            self._check_sides(pairs[:, 0], pairs[:, 1])
        return replace(self, boundary_sides=MappingProxyType(named))

    def facet_numbers(self, cells: Indices, local: Indices) -> Indices:
        """Facet numbers of (cell, local facet) pairs, each once, ascending."""
        cells, local = (
            as_array(given, "numbers of cells and facets", "iu").astype(np.int64) for given in (cells, local)
        )
        self._check_sides(cells, local)
        group, row = self.locations
        result = [
            ids[row[cells[here]], local[here]]
            for position, ids in enumerate(self.topology.sides.ids)
            for here in [group[cells] == position]
        ]
        return np.unique(np.concatenate(result))

    def _check_sides(self, cells: Indices, local: Indices) -> None:
        """There are such cells, with such facets."""
        inside = cells.ndim == 1 and cells.shape == local.shape and np.all((cells >= 0) & (cells < self.n_cells))
        facets = np.array([len(group.shape.facets) for group in self.cells])
        if not inside or np.any((local < 0) | (local >= facets[self.locations[0][cells]])):
            raise ArgumentError(f"sides are (cell, local facet) pairs; a cell or a facet of these is not in {self!r}")

    def coordinates(self, group: CellGroup) -> Array:
        """Coordinates of the nodes of a group's cells, [E, n_nodes, D]."""
        return self.points[instance(group, CellGroup, "the group").nodes]

    def affine(self, group: CellGroup) -> NDArray[np.bool_]:
        """Which cells of a group are affine, [E] of bool."""
        instance(group, CellGroup, "the group")
        return ElementMap.of(group, self.points).affine_elements

    def describe_cell(self, cell: int) -> str:
        """What messages call a cell: its number in the file and its shape."""
        group, _ = self.locations
        integer(cell, 0, "the number of a cell", self.n_cells - 1)
        return Labels(self.name, self.numbers).cell(self.cells[group[cell]].shape, cell)

    def summary(self) -> MeshSummary:
        """Counts, orders, affine share, volume, worst scaled Jacobian, names."""
        return summarise(self)

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
        parts = [Part(group.shape, group.order, group.nodes, group.indices) for group in self.cells]
        if not flag(check, "check"):
            return replace(self, points=frozen(points))
        labels = Labels(self.name, self.numbers)
        checks.nodes(parts, points, labels)
        upright, n_mirrored = _upright(points, parts, labels)
        if not n_mirrored:
            return replace(self, points=frozen(points))
        in_space = _numbered(upright, len(points))[0]
        checks.neighbours(in_space, labels, oriented=self.dim == points.shape[1])
        return self._renumbered(points, upright, n_mirrored)

    def _renumbered(self, points: Array, parts: list[Part], n_mirrored: int) -> Mesh:
        """With some cells turned inside out: facets keep their numbers, but not their place in those cells."""
        vertices = []
        for old, new in zip(self.cells, parts, strict=True):
            kept = np.all(old.nodes == new.nodes, axis=1, keepdims=True)
            vertices.append(np.where(kept, old.vertices, old.vertices[:, mirrored_vertices(old.shape)]))
        topology = Topology([p.shape for p in parts], vertices, [p.indices for p in parts], self.n_vertices)
        first = np.column_stack([topology.facets.cells[:, 0], topology.facets.local[:, 0]])
        sides = {name: frozen(first[facets]) for name, facets in self.boundaries.items()}
        return replace(
            self,
            points=frozen(points),
            cells=_groups(parts, topology),
            boundary_sides=MappingProxyType(sides),
            n_mirrored=self.n_mirrored + n_mirrored,
        )

    def elevated(self, order: int) -> Mesh:
        """The same mesh with the nodes of a higher geometry order, so that it can be curved by `transformed`.

        Neighbours share the nodes of what they share, but for points that a periodic mesh identifies.

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
        # Points are shared by what is one in space, which periodic sides are not.
        topology = self.topology if not self.periodic else self._topology_in_space()
        numbering, count = lattice_numbering(topology, order)
        points = np.empty((count, self.points.shape[1]))
        parts = []
        for group, nodes in zip(self.cells, numbering, strict=True):
            points[nodes] = elevated_nodes(group, self.points, order)
            parts.append(Part(group.shape, order, nodes, group.indices))
        same = merged(parts)
        vertices = [np.concatenate([g.vertices for g in self.cells if g.shape is part.shape]) for part in same]
        raised = Topology([p.shape for p in same], vertices, [p.indices for p in same], self.n_vertices)
        return replace(self, points=frozen(points), cells=_groups(same, raised))

    def _topology_in_space(self) -> Topology:
        """The topology without periodic identification."""
        parts = [Part(group.shape, group.order, group.nodes, group.indices) for group in self.cells]
        return _numbered(parts, len(self.points))[0]

    def __getstate__(self) -> dict[str, object]:
        state = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return state | {key: dict(state[key]) for key in ("regions", "boundary_sides")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        frozen(self.points)
        for key in ("regions", "boundary_sides"):
            self.__dict__[key] = MappingProxyType({name: frozen(a) for name, a in self.__dict__[key].items()})

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(group)} {group.shape.name} of order {group.order}" for group in self.cells)
        return f"<Mesh {self.name}: {counts}>"


def _upright(points: Array, parts: Sequence[Part], labels: Labels) -> tuple[list[Part], int]:
    """Cells with det J > 0 and how many were turned for it; tangled ones are refused."""
    found = [ElementMap.of(part, points).quality() for part in parts]
    checks.tangling(parts, found, labels)
    result = [turned(part, own.mirrored) for part, own in zip(parts, found, strict=True)]
    return result, sum(int(own.mirrored.sum()) for own in found)


def _numbered(parts: Sequence[Part], n_points: int) -> tuple[Topology, Indices]:
    """Topology with one vertex for each point at a corner, and the vertex of each point (-1 for the others)."""
    is_corner = np.zeros(n_points, dtype=bool)
    for part in parts:
        is_corner[part.corners.ravel()] = True
    vertex_of = np.where(is_corner, np.cumsum(is_corner) - 1, -1)
    vertices = [vertex_of[part.corners] for part in parts]
    shapes, indices = [part.shape for part in parts], [part.indices for part in parts]
    return Topology(shapes, vertices, indices, int(is_corner.sum())), vertex_of


def _groups(parts: Sequence[Part], topology: Topology) -> tuple[CellGroup, ...]:
    groups = []
    for position, (part, vertices) in enumerate(zip(parts, topology.vertices, strict=True)):
        arrays = (frozen(part.nodes), frozen(vertices), frozen(part.indices))
        groups.append(CellGroup(part.shape, part.order, *arrays, topology, position))
    return tuple(groups)


def _identified(topology: Topology, pairs: Sequence[Indices], labels: Labels) -> Topology:
    """The topology after the pairs of vertices became one each."""
    known = [rows[(rows >= 0).all(axis=1)] for rows in pairs]
    links = np.concatenate(known)
    n = topology.n_vertices
    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(n, n))
    count, vertex_of = connected_components(graph, directed=False)
    vertices = [vertex_of[rows].astype(np.int64) for rows in topology.vertices]
    result = Topology(topology.shapes, vertices, topology.indices, int(count))
    checks.periodicity(result, [(rows[:, 0], rows[:, 1]) for rows in known], topology, labels)
    checks.neighbours(result, labels, oriented=False)
    return result
