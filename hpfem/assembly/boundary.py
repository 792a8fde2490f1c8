"""Boundary conditions by boundary name: Dirichlet values, Neumann and Robin integrals over the facets.

    Dirichlet    u = g                     values by vertex, edge and face (`interpolation`)
    Neumann      k du/dn = g               adds (g, v) over the facets to the right-hand side
    Robin        k du/dn + alpha u = g     adds (g, v) to the right-hand side and (alpha u, v) to the operator

Facets are elements of one dimension less: the same shapes, bases, rules and geometry, embedded in space.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from hpfem.shapes import Basis, default_counts, make_basis, quadrature
from hpfem.shapes.arguments import instance, integer, is_real, name_of, real, shown
from hpfem.shapes.cached import cached_property

from ..backends.vectors import ElementRestriction, PerDevice
from ..errors import ArgumentError
from ..geometry import GENERAL, BlockGeometry, ElementMap
from ..memory import Device
from ..mesh import Mesh
from ..mesh.symmetry import entity_nodes, outward_signs
from ..space.arguments import MAX_COMPONENTS
from .c0 import C0Space
from .conflicts import warn_of_conflicts
from .entries import block_diagonal
from .interpolation import Function, Mask, Patch, Piece, interpolate, values_of
from .traces import Array, Indices

# Data: a function or a number, or a number for each component.
Data = Function | Sequence[float]
# A condition: data for the whole boundary, or for each boundary name.
Condition = Data | Mapping[str, Data]
RobinCondition = tuple[Function, Data] | Mapping[str, tuple[Function, Data]]

# What is given -> the facets it is for and the data.
Named = dict[str, tuple[Indices, Any]]


# Further points: data and curved facets are not polynomial.
_MORE = 6


@dataclass(frozen=True, eq=False)
class FacetBlock:
    """Facets of one shape, order and geometry order, with the same place in their cells.

    Attributes
    ----------
    basis : Basis
        Of the facets: the trace of the cells'.
    geometry : BlockGeometry
        Embedded in space.
    matrix : csr_array, [facet * n_modes, global]
        Local from global coefficients.
    sign : int
        +1 where the facets' vertex order gives the outward normal, else -1.
    """

    basis: Basis
    geometry: BlockGeometry
    matrix: csr_array
    sign: int

    @cached_property
    def values(self) -> Array:
        """Modes at the points, [n_modes, Q]."""
        return self.basis.evaluate_eta(self.geometry.rule.eta)

    @cached_property
    def weights(self) -> Array:
        """Weights times surface element, [n, Q]."""
        return self.geometry.weights()

    @cached_property
    def normals(self) -> Array:
        """Outward unit normals, [D, n, Q]."""
        if self.geometry.space_dim != self.geometry.dim + 1:
            raise ArgumentError("the outward normal of the sides of a surface in space is not provided; give g itself")
        return self.sign * self.geometry.normals()


def _by_place(mesh: Mesh, facets: Indices) -> Iterator[tuple[int, int, Indices]]:
    """Facets in the same place of the cells of a group: the group, number of the facet in the cells, and these."""
    group, row = mesh.locations
    cells = mesh.facets.cells[facets, 0]
    keys = group[cells] * 64 + mesh.facets.local[facets, 0]
    for key in np.unique(keys):
        yield int(key // 64), int(key % 64), row[cells[keys == key]]


def facet_blocks(c0: C0Space, facets: Indices) -> list[FacetBlock]:
    """Blocks of the facets with these numbers.

    Parameters
    ----------
    c0 : C0Space
    facets : ndarray of int, [n]
        Facet numbers of the mesh.

    Returns
    -------
    list of FacetBlock
    """
    numbering, mesh = c0.numbering, c0.space.mesh
    blocks = []
    for group, number, rows in _by_place(mesh, facets):
        own = mesh.cells[group]
        entity = own.shape.facets[number]
        order = c0.space.orders[own.shape.name]
        basis = make_basis(c0.space.basis, entity.shape, order)
        rule = quadrature(entity.shape, default_counts(entity.shape, order, _MORE))
        nodes = own.nodes[rows][:, entity_nodes(own.shape, own.order, mesh.dim - 1, number)]
        elements = ElementMap.of(Patch(entity.shape, own.order, nodes), mesh.points)
        geometry = BlockGeometry(entity.shape, own.order, elements.coefficients, rule, GENERAL)
        vertices = own.vertices[rows][:, entity.vertices]
        seen = [numbering.of_vertices(entity.shape, vertices, dim) for dim in range(mesh.dim)]
        matrix = numbering.local_to_global(basis, seen).matrix
        blocks.append(FacetBlock(basis, geometry, matrix, int(outward_signs(own.shape)[number])))
    return blocks


class BoundaryConditions:
    """What is prescribed on the boundary of a continuous space; natural (zero flux) where nothing is.

    Parameters
    ----------
    c0 : C0Space
    dirichlet : callable, float or {boundary name: callable or float}, optional
        Values of u. A function alone is for all of the boundary that `neumann` and `robin` do not name. Where named
        boundaries meet, the one counts that comes first in `mesh.boundaries`, whatever the order here.
    neumann : callable, float or {boundary name: callable or float}, optional
        Flux k du/dn. A function of 2 D arguments takes the coordinates and the outward unit normal; one that returns D
        components is a vector whose normal component is taken.
    robin : (alpha, g) or {boundary name: (alpha, g)}, optional
        k du/dn + alpha u = g, with alpha and g functions as for `neumann`.
    components : int
        Of u. With several of them functions return as many, in place of a vector whose normal component is taken;
        data may be a sequence of as many numbers, and one number is for all; alpha is one for all.

    Attributes
    ----------
    constrained : ndarray of bool, [size]
        Which degrees of freedom of each component have Dirichlet values.
    values : ndarray, [size] or [components, size] with more than one component
        These values, zero elsewhere.
    dirichlet_facets : ndarray of int
        Facet numbers with Dirichlet values.
    load : ndarray, [size] or [components, size] with more than one component
        What Neumann and Robin data add to the right-hand side.
    matrix : csr_array or None, [size, size]
        What Robin conditions add to the operator.

    Raises
    ------
    ArgumentError
        For an unknown boundary name, two conditions on one facet, flux data inside the mesh, or functions that do not
        fit.

    Warns
    -----
    HpfemWarning
        If two boundaries give different values where they meet: it names them, the point and the values.
    """

    def __init__(
        self,
        c0: C0Space,
        dirichlet: Condition | None = None,
        neumann: Condition | None = None,
        robin: RobinCondition | None = None,
        components: int = 1,
    ) -> None:
        self.c0 = instance(c0, C0Space, "c0")
        self.components = integer(components, 1, "components", MAX_COMPONENTS)
        flux = {} if neumann is None else self._named(neumann, "neumann", {})
        taken = {**flux}
        mixed = {} if robin is None else self._named(robin, "robin", taken)
        taken |= mixed
        fixed = {} if dirichlet is None else self._named(dirichlet, "dirichlet", taken)
        self._taken = taken
        self._refuse_overlaps(fixed, {**flux, **mixed})
        empty = np.empty(0, dtype=np.int64)
        self.dirichlet_facets = np.unique(np.concatenate([empty, *(facets for facets, _ in fixed.values())]))
        self.constrained, self.values = self._dirichlet(fixed)
        self.load = np.zeros(c0.size if self.components == 1 else (self.components, c0.size))
        self._restrictions: PerDevice[ElementRestriction] = PerDevice()
        self.matrix: csr_array | None = None
        for _, (facets, g) in flux.items():
            self._integrate(facets, None, g, "neumann")
        for _, (facets, pair) in mixed.items():
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise ArgumentError("a robin condition is a pair (alpha, g)")
            self._integrate(facets, pair[0], pair[1], "robin")

    def restriction(self, device: Device) -> ElementRestriction:
        """The space's Q on a device, without the columns with Dirichlet values; made and moved there once.

        Parameters
        ----------
        device : Device

        Returns
        -------
        ElementRestriction
        """
        if not self.constrained.any():
            return self.c0.restriction(device)
        return self._restrictions.get(device, lambda: self.c0.restriction(device, self.free))

    def at(self, c0: C0Space, kept: Indices | slice) -> BoundaryConditions:
        """The same conditions, with zero data, on a space that is part of this one.

        Parameters
        ----------
        c0 : C0Space
            Of modes that `kept` are (`Numbering.truncation`).
        kept : ndarray of int, [c0.size], or slice
            Their numbers here.

        Returns
        -------
        BoundaryConditions
        """
        other = BoundaryConditions(c0)
        other.constrained, other.dirichlet_facets = self.constrained[kept], self.dirichlet_facets
        other.matrix = None if self.matrix is None else csr_array(self.matrix[kept][:, kept])
        return other

    @property
    def natural(self) -> BoundaryConditions:
        """The same conditions where no values are prescribed: what they add to the operator of all unknowns."""
        other = copy(self)
        other.constrained = np.zeros_like(self.constrained)
        return other

    def values_of(self, dirichlet: Condition) -> Array:
        """Other values on the same boundaries.

        Parameters
        ----------
        dirichlet : callable, float or {boundary name: callable or float}

        Returns
        -------
        ndarray, [size] or [components, size]
            Zero where nothing is prescribed.

        Raises
        ------
        ArgumentError
            If it is for other boundaries, or the functions do not fit.
        """
        constrained, values = self._dirichlet(self._named(dirichlet, "dirichlet", self._taken))
        if not np.array_equal(constrained, self.constrained):
            raise ArgumentError("dirichlet is for other boundaries than the problem's; make another one")
        return values

    def shares(self, name: str) -> Array:
        """The function that is 1 on a boundary with Dirichlet values, where others have some too its part of 1.

        Parameters
        ----------
        name : str
            Of the boundary.

        Returns
        -------
        ndarray, [size]
            Its coefficients; zero for unknowns without Dirichlet values.

        Raises
        ------
        ArgumentError
            If there is no such boundary, or it has no Dirichlet values.
        """
        mesh = self.c0.space.mesh
        own = mesh.boundaries[name_of(name, mesh.boundaries, "boundary")]
        if not np.isin(own, self.dirichlet_facets).all() or not len(own):
            raise ArgumentError(f"boundary {name!r} has no Dirichlet values: the flux through it is what is prescribed")
        numbering = self.c0.numbering

        def closed(facets: Indices) -> Mask:
            found, masks = np.zeros(self.c0.size, dtype=bool), numbering.of_unknowns(self._closure(facets))
            found[: len(masks)] = masks
            return found

        named = [np.intersect1d(facets, self.dirichlet_facets) for facets in mesh.boundaries.values()]
        rest = np.setdiff1d(self.dirichlet_facets, np.concatenate(named))
        count = np.sum([closed(facets) for facets in (*named, rest) if len(facets)], axis=0)
        one = interpolate(numbering, [Piece(1.0, self._closure(own))])[0]
        return np.asarray(np.where(self.constrained, one / np.maximum(count, 1.0), 0.0))

    @property
    def free(self) -> Mask:
        """Which degrees of freedom are to be solved for, [size] of bool."""
        return ~self.constrained

    def _named(self, condition: Any, what: str, taken: Named) -> Named:
        mesh = self.c0.space.mesh
        if isinstance(condition, Mapping):
            for name in condition:
                name_of(name, mesh.boundaries, "boundary", f" in {what}")
            return {f"{what} {n!r}": (facets, condition[n]) for n, facets in mesh.boundaries.items() if n in condition}
        rest = mesh.facets.boundary
        for facets, _ in taken.values():
            rest = np.setdiff1d(rest, facets)
        return {what: (rest, condition)}

    def _refuse_overlaps(self, fixed: Named, flux: Named) -> None:
        neighbours = self.c0.space.mesh.facets.cells
        seen = np.zeros(len(neighbours), dtype=bool)
        for facets, _ in fixed.values():
            seen[facets] = True
        for name, (facets, _) in flux.items():
            if np.any(neighbours[facets, 1] >= 0):
                raise ArgumentError(f"{name}: some of its facets lie between two cells; give fluxes on the boundary")
            if seen[facets].any():
                raise ArgumentError(f"{name}: some of its facets have another condition already")
            seen[facets] = True

    def _dirichlet(self, fixed: Named) -> tuple[Mask, Array]:
        numbering = self.c0.numbering
        constrained = np.zeros(self.c0.size, dtype=bool)
        pieces = []
        for name, (facets, function) in fixed.items():
            masks = self._closure(facets)
            pieces.append(Piece(_per_component(function, self.components, name), masks))
            found = numbering.of_unknowns(masks)
            constrained[: len(found)] |= found
        values = interpolate(numbering, pieces)
        if not pieces:
            values = np.zeros((self.components, self.c0.size))
        if len(values) != self.components:
            wanted = "one component" if self.components == 1 else f"{self.components} components, not {len(values)}"
            raise ArgumentError(f"dirichlet functions have {wanted}")
        warn_of_conflicts(numbering.mesh, list(fixed), pieces)
        return constrained, values[0] if self.components == 1 else values

    def _closure(self, facets: Indices) -> list[Mask]:
        """Vertices, edges and faces of facets, as masks per dimension."""
        numbering, mesh = self.c0.numbering, self.c0.space.mesh
        masks = [np.zeros(len(numbering.offsets[dim]), dtype=bool) for dim in range(mesh.dim)]
        for own, number, rows in _by_place(mesh, facets):
            cells = mesh.cells[own]
            shape = cells.shape
            corners = set(shape.facets[number].vertices)
            for dim in range(mesh.dim):
                ids = cells.ids(dim)[rows]
                for place, entity in enumerate(shape.entities[dim]):
                    if corners.issuperset(entity.vertices):
                        masks[dim][ids[:, place]] = True
        return masks

    def _integrate(self, facets: Indices, alpha: Any, g: Any, what: str) -> None:
        for block in facet_blocks(self.c0, facets):
            flux = _side_values(_per_component(g, self.components, what), block, what, self.components)
            for row, own in zip(self.load.reshape(self.components, -1), flux, strict=True):
                row += block.matrix.T @ ((own * block.weights) @ block.values.T).ravel()
            if alpha is None:
                continue
            (scale,) = _side_values(alpha, block, what, 1)
            mass = np.einsum("mq,eq,nq->emn", block.values, scale * block.weights, block.values, optimize=True)
            added = csr_array(block.matrix.T @ block_diagonal(mass) @ block.matrix)
            self.matrix = added if self.matrix is None else self.matrix + added


def component_numbers(data: Any, components: int, what: str) -> list[float]:
    """A number for each component.

    Parameters
    ----------
    data : float or sequence of float
        One for all, or one for each.
    components : int
    what : str
        For messages.

    Returns
    -------
    list of float

    Raises
    ------
    ArgumentError
        If they are no such numbers.
    """
    numbers = [data] * components if is_real(data) else data
    several = isinstance(numbers, (list, tuple)) or (isinstance(numbers, np.ndarray) and numbers.ndim == 1)
    if not several or len(numbers) != components:
        raise ArgumentError(
            f"{what} for {components} components is a number, {components} numbers or a function, got {shown(data)}"
        )
    return [real(number, what) for number in numbers]


def _per_component(data: Any, components: int, what: str) -> Any:
    """Data of one component as they are, of several as a function of as many."""
    if components == 1 or callable(data):
        return data
    numbers = component_numbers(data, components, what)
    return lambda *x: numbers


def _side_values(function: Any, block: FacetBlock, what: str, components: int) -> Array:
    """Values of a user's function at the points of facets, [components, n, Q]."""
    x = block.geometry.coordinates()
    seen = np.concatenate([x, block.normals]) if _arguments(function) == 2 * len(x) else x
    data = values_of(function, seen, what)
    if len(data) == components:
        return data
    if components > 1:
        raise ArgumentError(f"{what}: the function has {len(data)} components, not {components}")
    if len(data) == len(x):
        return np.asarray(np.sum(data * block.normals, axis=0))[None]
    raise ArgumentError(f"{what}: the function has {len(data)} components; one, or {len(x)} for a vector")


def _arguments(function: Any) -> int:
    """Number of positional arguments that a function needs; 0 where it does not say."""
    if not callable(function):
        return 0
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)
