"""Boundary conditions by boundary name: Dirichlet values, Neumann and Robin integrals over the facets.

    Dirichlet    u = g                     values by vertex, edge and face (`interpolation`)
    Neumann      k du/dn = g               adds (g, v) over the facets to the right-hand side
    Robin        k du/dn + alpha u = g     adds (g, v) to the right-hand side and (alpha u, v) to the operator

Integrals are over sides of cells: rules with points on facets, on which the cells' own modes are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from hpfem.shapes.arguments import instance, integer, is_real, name_of, real, shown
from hpfem.shapes.arrays import Array, Indices, Mask

from ..backends.restriction import ElementRestriction
from ..backends.vectors import VectorSpace
from ..errors import ArgumentError
from ..memory import HOST, Device, PerDevice
from ..mesh import Mesh
from ..mesh.sorting import unique
from ..space.arguments import MAX_COMPONENTS
from ..space.evaluation import positional
from ..space.sides import Side
from ..support.notebook import Printed
from .boundary_terms import entities_of, sides_with_traces, trace_mass
from .c0 import C0Space
from .conflicts import warn_of_conflicts
from .interpolation import Function, Piece, interpolate, values_of, with_moments

# Data: a function or a number, or one for each component; None where a component has no Dirichlet value.
Data = Function | Sequence[Function | None]
# A condition: data for the whole boundary, or for each boundary name.
Condition = Data | Mapping[str, Data]
RobinCondition = tuple[Function, Data] | Mapping[str, tuple[Function, Data]]

# Name of a condition -> its facets and its data. Facets, edges or vertices: dimension, and (cell, local number) [n, 2].
Named = dict[str, tuple[Indices, Any]]


class _Parts(tuple[Any, ...]):
    """Dirichlet data of each component: a number, a function or None."""


def _by_place(mesh: Mesh, pairs: Indices) -> Iterator[tuple[int, int, Indices]]:
    """Entities of cells by their place: the group of cells, the number in the cell, and the rows of the cells."""
    group, row = mesh.locations
    keys = group[pairs[:, 0]] * 64 + pairs[:, 1]
    for key in unique(keys):
        yield int(key // 64), int(key % 64), row[pairs[keys == key, 0]]


class BoundaryConditions(Printed):
    """Conditions on the boundary of a continuous space; natural ones (zero flux) where none are given.

    Parameters
    ----------
    c0 : C0Space
    dirichlet : callable, float or {boundary name: callable or float}, optional
        Values of u. A function without a name is for all of the boundary that `neumann` and `robin` do not name. Where
        named boundaries meet, the first one in `mesh.boundaries` counts, whatever the order here. Names of
        `mesh.edge_sets` and `mesh.point_sets`, which count after boundaries, prescribe edges and vertices. For several
        components, a sequence has a number, a function or None for each; a component with None is free, and `neumann`
        may name the boundary too.
    neumann : callable, float or {boundary name: callable or float}, optional
        Flux k du/dn. A function of 2 D arguments takes the coordinates and the outward unit normal; one that returns D
        components is a vector whose normal component is taken. On an interface, a boundary between cells, k du/dn is
        the sum from both sides, each with its outward normal: the heat produced there. It has no single normal. The
        name of a set of points alone is a source of that strength in each of its vertices.
    robin : (alpha, g) or {boundary name: (alpha, g)}, optional
        k du/dn + alpha u = g, with alpha and g functions as for `neumann`.
    components : int
        Components of u. With several components, functions return a value for each, and no vector whose normal
        component is taken; data are a number for all components or a number for each; alpha is the same for all.

    Attributes
    ----------
    constrained : ndarray of bool, [size], or [components, size] where components differ
        Which degrees of freedom have Dirichlet values.
    values : ndarray, [size] or [components, size] with more than one component
        These values, zero elsewhere.
    dirichlet_facets : ndarray of int
        Facet numbers with Dirichlet values, of some component.
    load : ndarray, [size] or [components, size] with more than one component
        The part of the right-hand side from Neumann and Robin data.
    matrix : csr_array or None, [size, size]
        The part of the operator from Robin conditions; if processes share the mesh, from the facets of this process.
        None if there is no such condition, which all processes know.
    positive : bool
        Whether no alpha of a Robin condition is negative anywhere.

    Raises
    ------
    ArgumentError
        For an unknown boundary name, two conditions on one facet, or functions that do not fit.

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
        comm = c0.space.mesh.comm
        self.components = integer(components, 1, "components", MAX_COMPONENTS)
        self._lower: dict[str, list[tuple[int, Indices]]] = {}
        flux = {} if neumann is None else self._named(neumann, "neumann", {})
        taken = {**flux}
        mixed = {} if robin is None else self._named(robin, "robin", taken)
        taken |= mixed
        fixed = {} if dirichlet is None else self._named(dirichlet, "dirichlet", taken)
        self._taken = taken
        fixed = {name: (facets, _by_component(g, self.components, name)) for name, (facets, g) in fixed.items()}
        with comm.together():
            self._refuse_overlaps(fixed, {**flux, **mixed})
        self.dirichlet_facets = self._facets_of(fixed)
        # Where fluxes are given: name, facets, alpha or None, g.
        self._flux: list[tuple[str, Indices, Any, Any]] = [(name, own, None, g) for name, (own, g) in flux.items()]
        self._fixed = fixed
        self.constrained, self.values = self._dirichlet(fixed)
        self.load = np.zeros(c0.size if self.components == 1 else (self.components, c0.size))
        self._restrictions: PerDevice[ElementRestriction] = PerDevice()
        self._before: PerDevice[ElementRestriction] = PerDevice()
        self._masks: PerDevice[Any] = PerDevice()
        # Processes without facets have one of zeros: what is exchanged depends on whether there is one.
        self.matrix: csr_array | None = csr_array((c0.size, c0.size)) if mixed else None
        self.positive = True
        for name, (facets, pair) in mixed.items():
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise ArgumentError("a robin condition is a pair (alpha, g)")
            self._flux.append((name, facets, *pair))
        sources = self._sources()
        with comm.together():
            for what, facets, alpha, g in self._flux:
                held = np.stack([np.isin(facets, self._held(c)) for c in range(self.components)])
                for pattern in np.unique(held, axis=1).T:
                    self._integrate(what, facets[(held.T == pattern).all(axis=1)], alpha, g, pattern)
            for name, pairs, g in sources:
                self._add_source(name, pairs, g)
        if comm.size > 1:  # alone, the host's vectors would load LLVM for nothing
            self.load = c0.vectors_on(HOST).summed(self.load)
        self.positive = comm.all(self.positive)

    def __repr__(self) -> str:
        size, given = self.constrained.size, int(self.constrained.sum())
        return f"BoundaryConditions({given} of {size} unknowns given, {len(self.dirichlet_facets)} Dirichlet facets)"

    def restriction(self, device: Device) -> ElementRestriction:
        """The space's Q on a device, without the columns with Dirichlet values, unless components differ;
        see `C0Space.restriction`.
        """
        if self.differ or not self.constrained.any():
            return self.c0.restriction(device)

        def new() -> ElementRestriction:
            return self.c0.restriction(device, self.free)

        def make() -> ElementRestriction:
            known = device.name in self._before
            return self._before.get(device, new).at(self.c0.block_matrix, self.c0.space.dtype) if known else new()

        return self._restrictions.get(device, make)

    def at(self, c0: C0Space, kept: Indices | slice, matrix: csr_array | None) -> BoundaryConditions:
        """The same, zero data and this matrix, on modes `kept` here; see `Numbering.truncation`."""
        other = copy(self)
        other.c0, other.constrained, other.matrix = c0, self.constrained[..., kept], matrix
        other.values = other.load = np.broadcast_to(0.0, c0.size)  # which takes no memory
        # Of the same numbers in another type there are tables already.
        other._before = self._restrictions if c0.numbering is self.c0.numbering else PerDevice()
        other._restrictions, other._masks = PerDevice(), PerDevice()
        other._lower, other._taken, other._fixed, other._flux = {}, {}, {}, []
        return other

    @property
    def natural(self) -> BoundaryConditions:
        """The same conditions without the Dirichlet ones: the part that they add to the operator of all unknowns."""
        other = copy(self)
        other.constrained = np.zeros(self.c0.size, dtype=bool)
        return other

    @property
    def below_facets(self) -> bool:
        """Whether edges or vertices have Dirichlet values by a name of their own."""
        return any(self._lower.get(name) for name in self._fixed)

    @property
    def differ(self) -> bool:
        """Whether components have Dirichlet values in different places."""
        return self.constrained.ndim == 2

    def constrained_on(self, vectors: VectorSpace) -> Any:
        """Mask of the `constrained`, on the device of vectors, made once, [size] or [components, size]; see `fixed`."""
        return self._masks.get(vectors.device, lambda: vectors.from_host(self.constrained))

    def fixed(self, components: int) -> Mask:
        """Which degrees of freedom of several components have Dirichlet values.

        Parameters
        ----------
        components : int

        Returns
        -------
        ndarray of bool, [components, size]

        Raises
        ------
        ArgumentError
            If the conditions differ by component, and are for another number of components.
        """
        if self.differ and components != self.components:
            raise ArgumentError(f"the boundary conditions are for {self.components} components, not for {components}")
        return np.broadcast_to(self.constrained, (components, self.c0.size))

    def of_component(self, number: int) -> BoundaryConditions:
        """The conditions of one component by its number; see `fixed`."""
        if self.components == 1:
            return self
        other = copy(self)
        other.components, other._restrictions, other._masks = 1, PerDevice(), PerDevice()
        other._before = PerDevice()
        other.constrained = self.fixed(self.components)[number]
        other.values, other.load = self.values[number], self.load[number]
        other._fixed = {name: given for name, given in self._fixed.items() if not _is_free(given[1], number)}
        other.dirichlet_facets = self._held(number)
        return other

    def _held(self, number: int) -> Indices:
        """Facets with Dirichlet values of a component."""
        return self._facets_of({name: own for name, own in self._fixed.items() if not _is_free(own[1], number)})

    @staticmethod
    def _facets_of(fixed: Named) -> Indices:
        return unique(np.concatenate([np.empty(0, dtype=np.int64), *(facets for facets, _ in fixed.values())]))

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
            If the boundaries are not those of the conditions, or the functions do not fit.
        """
        named = self._named(dirichlet, "dirichlet", self._taken)
        given = {name: (facets, _by_component(g, self.components, name)) for name, (facets, g) in named.items()}
        constrained, values = self._dirichlet(given)
        if not self.c0.space.comm.all(np.array_equal(constrained, self.constrained)):
            raise ArgumentError("dirichlet names other boundaries than the problem; make another problem")
        return values

    def shares(self, name: str) -> Array:
        """The function that is 1 on a boundary with Dirichlet values, m/n where n pieces meet and it has m, else 0.

        A piece has all facets with Dirichlet values and the same names. Beside the boundary integrals times polynomials
        up to order P - 2, or P - 3 on triangles, are those of 1 or 0 on each facet; where no unknowns are inside
        facets, the integral over facets side by side is. So the integral of the product with a smooth function is that
        of this function over the boundary, up to a small error.

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
            If there is no such boundary, not all of it has Dirichlet values, or a Robin condition is there, too.
        """
        mesh, numbering = self.c0.space.mesh, self.c0.numbering
        own = mesh.boundaries[name_of(name, mesh.boundaries, "boundary")]
        comm, given = mesh.comm, np.isin(own, self.dirichlet_facets).all()
        if not comm.all(bool(given)) or not comm.any(len(own) > 0):
            raise ArgumentError(f"boundary {name!r} has Dirichlet values on a part of it only, or none")
        here = self._closure(own)
        mixed = [np.intersect1d(f, self.dirichlet_facets) for _, f, alpha, _ in self._flux if alpha is not None]
        robin = [np.logical_and(*masks).any() for f in mixed for masks in zip(self._closure(f), here, strict=True)]
        if comm.any(any(robin)):
            raise ArgumentError(f"at boundary {name!r} other components have a Robin condition with Dirichlet values")
        # Pieces of equal names, in one order on all processes: boundaries may overlap.
        inside = [np.isin(self.dirichlet_facets, facets) for facets in mesh.boundaries.values()]
        patterns, which = np.unique(np.transpose(inside), axis=0, return_inverse=True)
        which, numbers = which.reshape(-1), {tuple(names): number for number, names in enumerate(patterns.tolist())}
        every = sorted(set(chain.from_iterable(comm.allgather(list(numbers)))))
        pieces = [self._closure(self.dirichlet_facets[which == numbers.get(names, -1)]) for names in every]
        place = list(mesh.boundaries).index(name)
        count, mine = np.zeros((2, self.c0.size))
        own_pieces = [piece for piece, names in zip(pieces, every, strict=True) if names[place]]
        for total, some in ((count, pieces), (mine, own_pieces)):
            masks = [np.sum(of_dim, axis=0) for of_dim in zip(*some, strict=True)]
            total[: sum(numbering.counts[: mesh.dim])] = numbering.of_unknowns(masks)
        one = interpolate(numbering, [Piece(1.0, here)])[0]
        found = np.where(self.constrained, one * mine / np.maximum(count, 1.0), 0.0)
        others = np.logical_or.reduce([own[-1] for own in pieces]) & ~here[-1]
        found = with_moments(numbering, found, [(1.0, here[-1]), (0.0, others)])
        if comm.all(bool(numbering.sizes[mesh.dim - 1].all())):
            return found
        free = (count == 1) | (mine == count)
        return found + self._mean_correction(found, own, free & self.constrained)

    def _mean_correction(self, found: Array, own: Indices, free: Mask) -> Array:
        """What `shares` lacks of its means on facets without modes inside, in their free modes; -> [size]."""
        size, sharing = self.c0.size, self.c0.numbering.sharing
        integrals, lacking, seen = np.zeros(size), [np.zeros(0)], [csr_array((0, size))]
        for mean, facets in ((1.0, own), (0.0, np.setdiff1d(self.dirichlet_facets, own))):
            for side, matrix, modes in sides_with_traces(self.c0, facets):
                of_modes = side.weights @ modes.T
                there = (matrix @ found).reshape(of_modes.shape)
                integrals += matrix.T @ of_modes.ravel()
                lacking.append(mean * side.weights.sum(axis=1) - (of_modes * there).sum(axis=1))
                entries = np.ones(matrix.nnz), matrix.indices, matrix.indptr[:: len(modes)]
                seen.append(csr_array(entries, (len(of_modes), size)))
        summed: Any = partial(sharing.combined, operation=np.add) if sharing else np.asarray
        integrals, parts = summed(integrals) * free, csr_array(vstack(seen)).sign()
        sizes = parts @ integrals**2
        amounts = np.divide(np.concatenate(lacking), sizes, out=np.zeros_like(sizes), where=sizes > 0)
        return np.asarray(integrals * summed(parts.T @ amounts))

    def prescribed_flux(self, name: str, vector: Array) -> Array:
        """Integrals of the prescribed flux on a boundary: g, or g - alpha u; zero without a condition.

        Parameters
        ----------
        name : str
            Of the boundary.
        vector : ndarray, [size] or [components, size]
            u.

        Returns
        -------
        ndarray, [components]

        Raises
        ------
        ArgumentError
            If there is no such boundary.
        """
        mesh, n = self.c0.space.mesh, self.components
        own = mesh.boundaries[name_of(name, mesh.boundaries, "boundary")]
        total = np.zeros(n)
        for _, facets, alpha, g in self._flux:
            for side, matrix, modes in sides_with_traces(self.c0, np.intersect1d(facets, own)):
                flux = _side_values(_per_component(g, n, "a flux"), side, "a flux", n)
                if alpha is not None:
                    local = (matrix @ vector.reshape(n, -1).T).reshape(len(side.rows), -1, n)
                    u = np.einsum("emc,mq->ceq", local, modes)
                    flux = flux - _side_values(alpha, side, "alpha", 1) * u
                total += np.einsum("ceq,eq->c", flux, side.weights)
        return mesh.comm.sum(total)

    @property
    def free(self) -> Mask:
        """Which degrees of freedom are to be solved for, as `constrained`."""
        return ~self.constrained

    def _named(self, condition: Any, what: str, taken: Named) -> Named:
        mesh = self.c0.space.mesh
        if isinstance(condition, Mapping):
            names = dict.fromkeys((*mesh.boundaries, *mesh.edge_sets, *mesh.point_sets))
            for name in condition:
                name_of(name, names, "boundary", f" in {what}")
            found = {}
            for n in (n for n in names if n in condition):
                key, none = f"{what} {n!r}", np.empty(0, dtype=np.int64)
                self._lower[key] = [(dim, pairs) for (dim, of), pairs in mesh.lower_sets.items() if of == n]
                found[key] = mesh.boundaries.get(n, none), condition[n]
            return found
        given = [condition] if isinstance(condition, str) else condition
        if isinstance(given, (list, tuple, set)) and any(isinstance(name, str) for name in given):
            data = "(alpha, g)" if what == "robin" else "value"
            raise ArgumentError(f"{what}={shown(condition)} has names without data; give {{name: {data}}}")
        rest = mesh.facets.boundary
        for facets, _ in taken.values():
            rest = np.setdiff1d(rest, facets)
        return {what: (rest, condition)}

    def _refuse_overlaps(self, fixed: Named, flux: Named) -> None:
        seen = np.zeros(len(self.c0.space.mesh.facets), dtype=bool)
        for facets, function in fixed.values():
            seen[facets] = not any(_is_free(function, c) for c in range(self.components))
        for name, (facets, _) in flux.items():
            if seen[facets].any():
                raise ArgumentError(f"{name}: some of its facets have another condition already")
            seen[facets] = True

    def _dirichlet(self, fixed: Named) -> tuple[Mask, Array]:
        if not any(isinstance(function, _Parts) for _, function in fixed.values()):
            constrained, values = self._interpolated(fixed, self.components)
            return constrained, values[0] if self.components == 1 else values
        found = []
        for c in range(self.components):
            own = {}
            for name, (facets, function) in fixed.items():
                data = function[c] if isinstance(function, _Parts) else _part(function, c, self.components)
                if data is not None:
                    own[name] = facets, data
            constrained, values = self._interpolated(own, 1)
            found.append((constrained, values[0]))
        masks = np.stack([constrained for constrained, _ in found])
        alike = self.c0.space.comm.all(bool((masks == masks[:1]).all()))
        return masks[0] if alike else masks, np.stack([values for _, values in found])

    def _interpolated(self, fixed: Named, components: int) -> tuple[Mask, Array]:
        """Where functions are prescribed, [size], and their coefficients, [components, size]."""
        numbering = self.c0.numbering
        constrained = np.zeros(self.c0.size, dtype=bool)
        pieces = []
        for name, (facets, function) in fixed.items():
            masks = self._closure(facets, self._lower.get(name, ()))
            pieces.append(Piece(_per_component(function, components, name), masks))
            found = numbering.of_unknowns(masks)
            constrained[: len(found)] |= found
        with numbering.mesh.comm.together():
            values = interpolate(numbering, pieces, components)
            if len(values) != components:
                wanted = "one component" if components == 1 else f"{components} components, not {len(values)}"
                raise ArgumentError(f"dirichlet functions have {wanted}")
        if numbering.mesh.comm.size > 1:  # as for the load
            values = self.c0.vectors_on(HOST).agreed(values)
        warn_of_conflicts(numbering.mesh, list(fixed), pieces)
        return constrained, values

    def _closure(self, facets: Indices, lower: Sequence[tuple[int, Indices]] = ()) -> list[Mask]:
        """Vertices, edges and faces of facets and of entities of lower dimensions, as masks per dimension."""
        numbering, mesh = self.c0.numbering, self.c0.space.mesh
        masks = [np.zeros(len(numbering.offsets[dim]), dtype=bool) for dim in range(mesh.dim)]
        sides = np.column_stack([mesh.facets.cells[facets, 0], mesh.facets.local[facets, 0]])
        for of, pairs in ((mesh.dim - 1, sides), *lower):
            for own, number, rows in _by_place(mesh, pairs):
                cells = mesh.cells[own]
                for dim, place in entities_of(cells.shape, of, number):
                    masks[dim][cells.ids(dim)[rows, place]] = True
        return [numbering.common(dim, own, np.logical_or) for dim, own in enumerate(masks)]

    def _integrate(self, what: str, facets: Indices, alpha: Any, g: Any, held: Mask) -> None:
        for side, matrix, modes in sides_with_traces(self.c0, facets):
            flux = _side_values(_per_component(g, self.components, what), side, what, self.components)
            for row, own, fixed in zip(self.load.reshape(self.components, -1), flux, held, strict=True):
                row += 0.0 if fixed else matrix.T @ ((own * side.weights) @ modes.T).ravel()
            if alpha is None:
                continue
            (scale,) = _side_values(alpha, side, what, 1)
            self.positive &= bool((scale >= 0).all())
            self.matrix = self.matrix + trace_mass(matrix, modes, scale * side.weights)

    def _sources(self) -> list[tuple[str, Indices, Any]]:
        """Fluxes with the name of a set of points alone: name, the points as (cell, local number), strength."""
        mesh, found = self.c0.space.mesh, []
        for name, facets, alpha, g in self._flux:
            lower = dict(self._lower.get(name, ()))
            on = self._closure(facets)
            apart = mesh.comm.any(any(not on[d][mesh.entity_ids(d, pairs)].all() for d, pairs in lower.items()))
            if alpha is None and lower.keys() == {0} and not mesh.comm.any(len(facets) > 0):
                found.append((name, lower[0], g))
            elif apart:
                raise ArgumentError(
                    f"{name}: it has edges or points away from facets; there are sources in points only"
                )
        return found

    def _add_source(self, what: str, pairs: Indices, g: Any) -> None:
        mesh, n = self.c0.space.mesh, self.components
        for own, number, rows in _by_place(mesh, pairs):
            cells = mesh.cells[own]
            x = mesh.points[cells.corners[rows, number]].T
            strength = values_of(_per_component(g, n, what), x, what)
            if len(strength) != n:
                raise ArgumentError(f"{what}: the function has {len(strength)} components, not {n}")
            self.load.reshape(n, -1)[:, self.c0.numbering.offsets[0][cells.vertices[rows, number]]] += strength


def component_numbers(data: Any, components: int, what: str) -> list[float]:
    """A number for each component."""
    numbers = [data] * components if is_real(data) else data
    several = isinstance(numbers, (list, tuple)) or (isinstance(numbers, np.ndarray) and numbers.ndim == 1)
    if not several or len(numbers) != components:
        raise ArgumentError(
            f"{what} for {components} components is a number, {components} numbers or a function, got {shown(data)}"
        )
    return [real(number, what) for number in numbers]


def _per_component(data: Any, components: int, what: str) -> Any:
    """Data of one component unchanged; data of several components as a function with several values."""
    if components == 1 or callable(data):
        return data
    numbers = component_numbers(data, components, what)
    return lambda *x: numbers


def _by_component(data: Any, components: int, what: str) -> Any:
    """Dirichlet data by component, as `_Parts`, if some are None or functions; other data unchanged."""
    if components == 1 or not isinstance(data, (list, tuple)) or not any(g is None or callable(g) for g in data):
        return data
    if len(data) != components or not all(g is None or callable(g) or is_real(g) for g in data):
        raise ArgumentError(
            f"{what} for {components} components is a number, a function, or as many of these or None,"
            f" got {shown(data)}"
        )
    return _Parts(data)


def _is_free(data: Any, number: int) -> bool:
    """Whether Dirichlet data leave a component free."""
    return isinstance(data, _Parts) and data[number] is None


def _part(data: Any, number: int, components: int) -> Function:
    """One component of the data of all."""
    if not callable(data):
        return component_numbers(data, components, "dirichlet")[number]

    def part(*x: Any) -> Any:
        found = data(*x)
        single = np.shape(found) == np.shape(x[0]) and isinstance(found, np.ndarray)
        if single or not isinstance(found, (list, tuple, np.ndarray)) or len(found) != components:
            raise ArgumentError(f"dirichlet functions have {components} components")
        return found[number]

    return part


def _side_values(function: Any, side: Side, what: str, components: int) -> Array:
    """Values of a user's function at the points of a side, [components, E, Q]."""
    x = side.coordinates
    normal = positional(function) == 2 * len(x)
    data = values_of(function, np.concatenate([x, side.normals]) if normal else x, what)
    normal |= components == 1 < len(data) == len(x)
    if normal and not side.outer:
        raise ArgumentError(f"{what}: the normal is not unique between two cells; give a number or a function of x")
    if len(data) == components:
        return data
    if components > 1:
        raise ArgumentError(f"{what}: the function has {len(data)} components, not {components}")
    if len(data) == len(x):
        return np.asarray(np.sum(data * side.normals, axis=0))[None]
    raise ArgumentError(f"{what}: the function has {len(data)} components; one, or {len(x)} for a vector")
