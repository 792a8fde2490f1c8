"""A space: a basis of some order on every cell of a mesh, with quadrature, in blocks of equal elements ([Xing] 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hpfem.shapes import BASES, Shape, Tabulation, make_basis
from hpfem.shapes.arguments import integer, name_of, real
from hpfem.shapes.arrays import Array, Indices, Mask
from hpfem.shapes.cached import cached_property

from ..backends.base import BACKENDS, Backend, checked_name, choose_backend, vectors_on
from ..backends.exchange import wrap
from ..errors import ArgumentError, MeshError, StateError
from ..geometry.block_geometry import BlockGeometry
from ..geometry.element_map import CHUNK, FLAT_TOLERANCE, Cells, ElementMap
from ..geometry.kinds import GeometryKind, by_kind
from ..geometry.rounding import outside
from ..memory import HOST, PairArray
from ..mesh import Mesh
from ..support.communicator import Communicator
from ..support.immutable import Immutable
from .arguments import MAX_COMPONENTS, Quadrature, checked_dtype, checked_orders, checked_quadrature, chosen_rule
from .block import Block
from .evaluation import evaluate_on_blocks, positional
from .field import STATES, Field, check_state, held_by_fields
from .locate import TOLERANCE, Locator
from .regions import CellValues, regional
from .sides import boundary_values, check_outer, sides_of
from .transforms import ForwardTransform, backward_transform


class Space(Immutable):
    """A basis of order P on every cell of a mesh. Immutable; fields and operators refer to it.

    Parameters
    ----------
    mesh : Mesh
    order : int or {shape name: int}
        Polynomial order P >= 1, of all shapes or of each.
    basis : str
        "modified" (C0 hierarchical), "orthogonal" or "lagrange" (nodal).
    quadrature : None, "collapsed", "simplex", "gauss", "collocated", int or {shape name: those}
        "collapsed": Gauss-Lobatto with P+2 points in ordinary, Gauss-Radau-Jacobi with P+1 points in collapsed
        directions. "simplex", for triangles and tets: the symmetric rule of degree 2P with a third to a half of those
        points. It has no tensor structure: there is no sum factorisation or collocated algorithm, and "phys" values are
        differentiated through coefficients. None: "simplex" on tets up to order 5, where it is as accurate and not
        slower on any device, else "collapsed". "gauss": Gauss(-Jacobi) rules with as many points as "collapsed".
        "collocated": P+1 points in every direction, on quads and hexes the nodes of the "lagrange" basis. An integer k:
        k more points in each direction than "collapsed". By shape: None for a shape that is left out.
    dtype : dtype
        float64 or float32.
    backend : str
        Default backend of operators on this space: "auto", "numpy", "cpu" or "cuda". Maps of many cells are made on its
        device, if there is room.

    Raises
    ------
    ArgumentError
        For an unknown basis, quadrature, dtype or backend, an order outside 1..32, or a missing order of a shape.
    MeshError
        If a cell is tangled at a quadrature point, or its volume is out of the dtype's range.
    """

    def __init__(
        self,
        mesh: Mesh,
        order: int | Mapping[str, int],
        basis: str = "modified",
        quadrature: Quadrature = None,
        dtype: DTypeLike = np.float64,
        backend: str = "auto",
    ) -> None:
        if not isinstance(mesh, Mesh):
            raise ArgumentError(f"a space is made on a Mesh, got {type(mesh).__name__}; use read_mesh(path)")
        self.mesh = mesh
        self.basis = name_of(basis, BASES, "basis")
        self.quadrature = checked_quadrature(quadrature)
        self.dtype = checked_dtype(dtype)
        self.backend = checked_name(backend)
        self.orders = checked_orders(order, mesh)
        self.blocks = tuple(self._make_blocks())
        self._made = True

    def at(
        self,
        order: int | Mapping[str, int] | None = None,
        basis: str | None = None,
        quadrature: Quadrature = None,
        dtype: DTypeLike | None = None,
    ) -> Space:
        """Make a space on the same cells, which are not checked again.

        Parameters
        ----------
        order, basis, dtype : optional
            As for `Space`; by default those of this space.
        quadrature : Quadrature
            As for `Space`.

        Returns
        -------
        Space
            With the same elements in each block.

        Raises
        ------
        ArgumentError
            As `Space`.
        MeshError
            If the volume of a cell is out of the dtype's range.
        """
        other = Space.__new__(Space)
        other.mesh, other.quadrature, other.backend = self.mesh, checked_quadrature(quadrature), self.backend
        other.basis = self.basis if basis is None else name_of(basis, BASES, "basis")
        other.dtype = self.dtype if dtype is None else checked_dtype(dtype)
        other.orders = self.orders if order is None else checked_orders(order, self.mesh)
        blocks = []
        for own in self.blocks:
            tabulation, geometry = other._tabulation(own.shape), own.geometry
            if tabulation.rule.key != own.rule.key:
                geometry = geometry.on_rule(tabulation.rule)
            if other.dtype != self.dtype:
                other._check_range(geometry, own.elements)
            blocks.append(Block(tabulation, geometry, own.elements))
        other.blocks = tuple(blocks)
        other._made = True
        return other

    def on_blocks(self, blocks: Sequence[Block]) -> Space:
        """Make a space of other blocks of the mesh's cells, such as those with facets on a boundary; see `at`."""
        other = Space.__new__(Space)
        for name in ("mesh", "quadrature", "backend", "basis", "dtype", "orders"):
            setattr(other, name, getattr(self, name))
        other.blocks = tuple(blocks)
        other._made = True
        return other

    def _tabulation(self, shape: Shape) -> Tabulation:
        """Basis on the rule of a shape's blocks."""
        order = self.orders[shape.name]
        return Tabulation(make_basis(self.basis, shape, order), chosen_rule(shape, order, self.quadrature))

    def __setattr__(self, name: str, value: Any) -> None:
        if "_made" in self.__dict__:
            raise ArgumentError(f"a space cannot be changed ({name!r}); make another one")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"Space({self.n_cells} cells, order={self.orders}, basis={self.basis!r}, dofs={self.n_dofs})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: own for name, own in self.__dict__.items() if name not in ("locator", "_last_locator")}

    def _make_blocks(self) -> list[Block]:
        blocks = []
        # A process without cells has a block without elements.
        groups = [group for group in self.mesh.aligned if len(group)] or self.mesh.aligned[:1]
        for group in groups:
            tabulation = self._tabulation(group.shape)
            for kind, chosen, elements in self._maps(group):
                geometry = BlockGeometry(
                    group.shape, group.order, elements.given, tabulation.rule, kind, xp=elements.xp
                )
                self._check_tangling(geometry, group.indices[chosen])
                self._check_range(geometry, group.indices[chosen])
                blocks.append(Block(tabulation, geometry, group.indices[chosen]))
        return blocks

    def _maps(self, cells: Cells) -> list[tuple[GeometryKind, Indices, ElementMap]]:
        """Maps of cells by kind: of many cells where the space computes, if there is room."""
        # A device's library compiles its array operations first, which takes longer than NumPy for few numbers.
        xp = np if cells.nodes.size * self.dim <= CHUNK else self.array_module()
        if xp is not np:
            with suppress(MemoryError):
                return list(by_kind(cells, xp.asarray(self.mesh.points), xp))
        return list(by_kind(cells, self.mesh.points))

    def _check_tangling(self, geometry: BlockGeometry, cells: Indices) -> None:
        """Refuse cells that are tangled at a quadrature point: reading the mesh has checked other points."""
        if geometry.affine:  # one Jacobian, which reading has checked
            return
        unsure = np.flatnonzero(~geometry.surely_regular())
        if not len(unsure):
            return
        # A device's library compiles its array operations first, which takes longer than NumPy for few numbers.
        few = len(unsure) * len(geometry.rule) * geometry.dim * geometry.space_dim <= CHUNK
        scaled = geometry.scaled_jacobian(unsure, np if few else self.array_module())
        worst = int(np.argmin(scaled))
        if scaled[worst] <= FLAT_TOLERANCE:
            cell = self.mesh.describe_cell(int(cells[unsure[worst]]))
            raise MeshError(
                f"{cell} is tangled: its Jacobian determinant at the quadrature points {geometry.rule.counts}"
                f" is only {scaled[worst]:.3g} of the product of its columns'"
                f" lengths ({np.count_nonzero(scaled <= FLAT_TOLERANCE)} such cell(s)); repair the mesh"
            )

    def array_module(self) -> Any:
        """Module of arrays where the backend computes; NumPy where it cannot run, or is not chosen; see `backend`."""
        if self.backend == "auto" or BACKENDS[self.backend].missing() is not None:
            return np
        return vectors_on(BACKENDS[self.backend].device()).xp

    def _host_backend(self) -> Backend | None:
        """Its backend, if that works and computes on the host."""
        backend = None if self.backend != "auto" and BACKENDS[self.backend].missing() else choose_backend(self.backend)
        return backend if backend is not None and backend.device().name == HOST.name else None

    def _check_range(self, geometry: BlockGeometry, cells: Indices) -> None:
        """Refuse cells whose volumes leave the range of the type."""
        beyond = outside(geometry, self.dtype)
        if len(beyond):
            advice = "take another unit of length" + (", or float64" if self.dtype == np.float32 else "")
            raise MeshError(
                f"{self.mesh.describe_cell(int(cells[beyond[0]]))} is about {geometry.widths[beyond[0]]:.0e} wide,"
                f" and the volumes of {len(beyond)} such cell(s) leave the range of {self.dtype}; {advice}"
            )

    @property
    def dim(self) -> int:
        """Dimension of the coordinates."""
        return int(self.mesh.points.shape[1])

    @property
    def comm(self) -> Communicator:
        """The processes that share the mesh."""
        return self.mesh.comm

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return sum(block.n_elements for block in self.blocks)

    @property
    def n_dofs(self) -> int:
        """Number of element-local degrees of freedom."""
        return sum(block.n_elements * block.n_modes for block in self.blocks)

    @cached_property
    def locator(self) -> Locator:
        """Finds the cells and local coordinates of points."""
        return Locator(self)

    def locator_within(self, tolerance: float) -> Locator:
        """The locator of a tolerance; the last one of another tolerance than the default is kept; see `locator`."""
        tolerance = real(tolerance, "the tolerance", least=0)
        if tolerance == TOLERANCE:
            return self.locator
        found: Locator | None = self.__dict__.get("_last_locator")
        if found is None or found.tolerance != tolerance:
            found = self.__dict__["_last_locator"] = Locator(self, tolerance)
        return found

    def empty(self, state: str, components: int = 1) -> Field:
        """Make a field that has to be written before it is read.

        Parameters
        ----------
        state : str
            "coeff", "phys" or "dual".
        components : int

        Returns
        -------
        Field
        """
        components = integer(components, 1, "components", MAX_COMPONENTS)
        name_of(state, STATES, "field state")
        sizes = [block.n_points if state == "phys" else block.n_modes for block in self.blocks]
        shapes = [(components, block.n_elements, n) for block, n in zip(self.blocks, sizes, strict=True)]
        return Field(self, state, [PairArray(shape, self.dtype) for shape in shapes])

    def zeros(self, state: str, components: int = 1) -> Field:
        """Make a field of zeros, as for `empty`."""
        field = self.empty(state, components)
        for pair in field.data:
            pair.write()[...] = 0
        return field

    def field(self, state: str, arrays: Sequence[Any]) -> Field:
        """Make a field from arrays of NumPy or of a backend's device. Arrays in C order are not copied.

        Parameters
        ----------
        state : str
            "coeff", "phys" or "dual".
        arrays : list or tuple of arrays
            One per block, [components, elements, modes or points], of the space's dtype: of NumPy, or on the GPU of
            CuPy, PyTorch, JAX, ... (anything with `__dlpack__` or `__cuda_array_interface__`).

        Returns
        -------
        Field
            Its values are where the arrays are.

        Raises
        ------
        ArgumentError
            If the arrays do not fit, or are on a device that no backend uses.
        StateError
            If an array has another dtype than the space.
        """
        if not isinstance(arrays, (list, tuple)):
            raise ArgumentError(f"a field is made of a list with one array per block, got {type(arrays).__name__}")
        return Field(self, state, [wrap(array, copy=True) for array in arrays])

    def coordinates(self) -> Field:
        """Make a field of the coordinates of the quadrature points.

        Returns
        -------
        Field
            State "phys", a component for each coordinate.
        """
        data = [PairArray.of(block.geometry.coordinates().astype(self.dtype, copy=False)) for block in self.blocks]
        return Field(self, "phys", data)

    def evaluate(self, function: Callable[..., Any] | CellValues) -> Field:
        """Evaluate a function at the quadrature points.

        Parameters
        ----------
        function : callable, mapping or array
            Takes D coordinate arrays and returns an array of their shape, a number, or a list or tuple of those, one
            per component. A mapping has such a function, a number or a sequence of numbers for each region
            (`by_region`); an array [n_cells, ...] has numbers for each cell.

        Returns
        -------
        Field
            State "phys".

        Raises
        ------
        ArgumentError
            If the result has the wrong shape, or is not finite (the message names the cell and the point).
        """
        given = regional(function, self.mesh)
        return self.field("phys", evaluate_on_blocks(given, self.blocks, self.dtype, self._host_backend()))

    def project(self, function: Callable[..., Any] | CellValues | Field) -> Field:
        """Project a function onto the space, cell by cell in L2 (FwdTrans of its values at the points).

        Parameters
        ----------
        function : callable, mapping or Field
            As for `evaluate`, or a "phys" field.

        Returns
        -------
        Field
            State "coeff".
        """
        values = function if isinstance(function, Field) else self.evaluate(function)
        return ForwardTransform(self).apply_to_field(values)

    def interpolate(self, field: Field, tolerance: float = TOLERANCE) -> Field:
        """Represent a field of another mesh, order, basis or dtype in this space; collective if processes share a mesh.

        The field is evaluated at Gauss points inside the cells, and projected cell by cell in L2. A function of this
        space is reproduced exactly, also with jumps between cells that both meshes have.

        Parameters
        ----------
        field : Field
            In state "coeff", on a mesh that covers this one.
        tolerance : float
            How far outside of the other mesh points may be, relative to the size of its cells: larger than the default
            where both approximate the same curved boundary.

        Returns
        -------
        Field
            State "coeff", on this space.

        Raises
        ------
        StateError
            If the field is not in state "coeff".
        ArgumentError
            If it is no field, or points of this mesh are outside the other one.
        """
        if not isinstance(field, Field):
            raise ArgumentError(f"interpolate takes a Field, got {type(field).__name__}; functions go to project")
        check_state(field, "coeff", "interpolate")
        if field.space.dim != self.dim:
            raise ArgumentError(f"a field in {field.space.dim}-D cannot be interpolated on a mesh in {self.dim}-D")
        other = field.space
        locator = other.locator_within(tolerance)
        coefficients = [pair.read() for pair in field.data]
        inner = self.at(quadrature="gauss")
        values = [np.empty((field.components, block.n_elements, block.n_points)) for block in inner.blocks]
        parts = [(block, own, part) for block, own in zip(inner.blocks, values) for part in block.geometry.chunks()]
        # All processes ask as often, however many cells each has.
        comm = max(self.comm, other.comm, key=lambda comm: comm.size)
        nothing = np.empty((0, self.dim))
        for number in range(int(comm.max(len(parts)))):
            x = parts[number][0].geometry.coordinates(parts[number][2]) if number < len(parts) else None
            points = nothing if x is None else x.reshape(self.dim, -1).T
            found = locator.evaluate_anywhere(coefficients, points, other.comm)
            with comm.together():
                outside = np.flatnonzero(np.isnan(found[0]))
                if len(outside):
                    raise ArgumentError(
                        f"{len(outside)} points of {self.mesh.name}, the first at {points[outside[0]].tolist()}, are"
                        f" outside {other.mesh.name}; give a larger tolerance if they are only just outside"
                    )
            if x is not None:
                _, own, part = parts[number]
                own[:, part] = found.reshape(len(own), *x.shape[1:])
        values = [own.astype(self.dtype, copy=False) for own in values]
        return Field(self, "coeff", inner.project(inner.field("phys", values)).data)

    def integrate(self, field: Field, region: str | None = None) -> float | Array:
        """Integrate over the mesh or a region; collective where processes share the mesh.

        Parameters
        ----------
        field : Field
            In state "phys" or "coeff".
        region : str, optional
            Name in ``mesh.regions``.

        Returns
        -------
        float, or ndarray [components] with more than one component
        """
        inside = np.ones(self.mesh.n_cells, dtype=bool)
        if region is not None:
            inside[:] = False
            inside[self.mesh.regions[name_of(region, self.mesh.regions, "region")]] = True
        total = self._integrals([pair.read() for pair in self._values(field, "integrate").data], inside)
        return float(total[0]) if len(total) == 1 else total

    def _integrals(self, arrays: Sequence[NDArray[Any]], inside: Mask | None = None) -> Array:
        """Integrals of the components of values at the points, of all cells or those inside, [components]."""
        total = np.zeros(len(arrays[0]))
        for values, block in zip(arrays, self.blocks, strict=True):
            weights = block.geometry.weights()
            if inside is not None and not inside[block.elements].all():
                weights = weights * inside[block.elements][:, None]
            total += np.einsum("ceq,eq->c", np.asarray(values, dtype=np.float64), weights, optimize=True)
        return self.mesh.comm.sum(total)

    def integrate_boundary(
        self, function: Field | Callable[..., Any] | float | CellValues, boundary: str
    ) -> float | Array:
        """Integrate over a boundary; collective where processes share the mesh.

        Parameters
        ----------
        function : Field, callable, float or mapping
            A field in state "coeff"; a function of the coordinates, or of these and the components of the outward
            normal; a number; or values by region (`by_region`).
        boundary : str
            Name in ``mesh.boundaries``. A facet between two cells counts once, with values of the cell listed first.

        Returns
        -------
        float, or ndarray [components] with more than one component

        Raises
        ------
        ArgumentError
            For an unknown boundary, or a function that does not fit.
        StateError
            For a field on another space, or in another state.

        Examples
        --------
        >>> area = space.integrate_boundary(1.0, "wall")  # doctest: +SKIP
        >>> volume = space.integrate_boundary(lambda x, y, z, nx, ny, nz: x * nx, "skin")  # doctest: +SKIP
        """
        if isinstance(function, Field) and function.space is not self:
            raise StateError("integrate_boundary of a field on another space")
        given, total = regional(function, self.mesh), np.zeros(1)
        sides = sides_of(self, boundary)
        if not isinstance(given, Field) and positional(given) == 2 * self.dim:
            check_outer(self.mesh, boundary)
        with self.comm.together():
            for side in sides:
                values = boundary_values(given, side, boundary)
                total = total + np.einsum("ceq,eq->c", values, side.weights)
        components = int(self.mesh.comm.max(len(total)))  # of facets elsewhere
        total = self.mesh.comm.sum(np.broadcast_to(total, components))
        return float(total[0]) if len(total) == 1 else total

    def norm(self, field: Field) -> float:
        """L2 norm over the mesh, all components together; collective where processes share it; see `integrate`."""
        values = self._values(field, "norm")
        largest = self.mesh.comm.max(max(float(np.abs(pair.read()).max(initial=0.0)) for pair in values.data))
        if largest == 0 or not np.isfinite(largest):
            return largest
        # Squares of values of any size.
        squares = [(np.asarray(pair.read(), dtype=np.float64) / largest) ** 2 for pair in values.data]
        return largest * float(np.sqrt(np.sum(self._integrals(squares))))

    def _values(self, field: Field, what: str) -> Field:
        if not isinstance(field, Field):
            raise StateError(f"{what} takes a Field, got {type(field).__name__}; use space.evaluate first")
        if field.space is not self:
            raise StateError(f"{what} of a field on another space")
        if field.state == "dual":
            raise StateError(
                f"{what} of a 'dual' field: it is a functional, not a function; use dot, or solve with the mass matrix"
            )
        return field if field.state == "phys" else backward_transform(field)

    def memory_report(self) -> list[dict[str, Any]]:
        """List, per block, the size of its arrays and the memory in use now, in bytes.

        Returns
        -------
        list of dict
            "block"; "coeff" and "phys", one component of a field; "wJ", "metric" and "jacobian", geometric factors;
            "held", {"host", "cuda:0", ...: {"fields", "metric", "scratch", ...: bytes}}: all fields that are alive, the
            factors that operators share, and the matrices and scratch of their kernels on a device.
        """
        rows = []
        for number, block in enumerate(self.blocks):
            size, e = self.dtype.itemsize, block.n_elements
            kinds = ("wJ", "metric", "jacobian")
            factors = {k: e * block.geometry.n_factors(k) * block.geometry.n_points(k) * size for k in kinds}
            row = {"block": repr(block), "coeff": e * block.n_modes * size, "phys": e * block.n_points * size}
            held: dict[str, dict[str, int]] = {"host": dict(block.geometry.held())}
            for where, amount in held_by_fields(self, number).items():
                held.setdefault(where, {})["fields"] = amount
            for name in BACKENDS:
                for where, amounts in BACKENDS[name].held(block.geometry).items():
                    held.setdefault(where, {}).update(amounts)
            rows.append({**row, **factors, "held": held})
        return rows
