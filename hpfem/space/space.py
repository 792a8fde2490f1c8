"""A space: a basis of some order on every cell of a mesh, with quadrature, in blocks of equal elements ([X] 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hpfem.shapes import BASES, SHAPES, Basis, Shape, Tabulation, TensorRule, default_counts, make_basis, quadrature
from hpfem.shapes.arguments import as_array, integer, name_of, shown, takes
from hpfem.shapes.cached import cached_property

from ..backends.base import BACKENDS, checked_name
from ..backends.exchange import wrap
from ..errors import ArgumentError, HpfemError, MeshError, StateError
from ..geometry.block_geometry import BlockGeometry, by_kind
from ..geometry.element_map import FLAT_TOLERANCE, ElementMap
from ..memory import PairArray
from ..mesh import Mesh
from ..support.immutable import Immutable
from ..support.registry import Registry
from .field import STATES, Field, held_by_fields
from .locate import Locator

# Beyond these, bases and rules still work but take minutes to make and gigabytes to hold.
MAX_ORDER = 32
MAX_POINTS = 100
MAX_COMPONENTS = 100_000


class FieldMap(Protocol):
    """What an operator on a space is seen from here: it maps a field to a field."""

    def __call__(self, field: Field, out: Field | None = None) -> Field:
        """Apply."""
        ...


# Operators by name, registered by the floor above, so that `project` and `norm` are written once, there.
OPERATORS: Registry[Callable[..., FieldMap]] = Registry("operator")


@dataclass(frozen=True, eq=False)
class Block(Immutable):
    """Elements of equal shape, order, quadrature and geometry kind.

    Attributes
    ----------
    tabulation : Tabulation
        Basis on the rule.
    geometry : BlockGeometry
    elements : ndarray of int, [E]
        Cell numbers in the mesh.
    """

    tabulation: Tabulation
    geometry: BlockGeometry
    elements: NDArray[np.int64]

    def __repr__(self) -> str:
        kind = self.geometry.kind.name
        return f"Block({self.n_elements} {kind} {self.shape.name}, P={self.order}, Q={self.rule.counts})"

    @property
    def shape(self) -> Shape:
        """The elements' shape."""
        return self.basis.shape

    @property
    def basis(self) -> Basis:
        """The elements' basis."""
        return self.tabulation.basis

    @property
    def rule(self) -> TensorRule:
        """The elements' quadrature."""
        return self.tabulation.rule

    @property
    def order(self) -> int:
        """Polynomial order P."""
        return self.basis.order

    @property
    def affine(self) -> bool:
        """Whether the Jacobian is constant in every element."""
        return self.geometry.affine

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return len(self.elements)

    @property
    def n_modes(self) -> int:
        """Modes of an element."""
        return self.basis.n_modes

    @property
    def n_points(self) -> int:
        """Quadrature points of an element."""
        return len(self.rule)


class Space(Immutable):
    """A basis of order P on every cell of a mesh. Immutable; fields and operators refer to it.

    Parameters
    ----------
    mesh : Mesh
    order : int or {shape name: int}
        Polynomial order P >= 1, of all shapes or of each.
    basis : str
        "modified" (C0 hierarchical), "orthogonal" or "lagrange" (nodal).
    quadrature : None, "gauss", "collocated" or int
        None: Gauss-Lobatto with P+2 points in ordinary, Gauss-Radau-Jacobi with P+1 points in collapsed directions.
        "gauss": Gauss(-Jacobi) rules with as many points. "collocated": P+1 points in every direction, on
        quads and hexes the nodes of the "lagrange" basis. An integer k: k more points than the default.
    dtype : dtype
        float64 or float32.
    backend : str
        Default backend of operators on this space: "auto", "numpy", "cpu" or "cuda".

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
        quadrature: str | int | None = None,
        dtype: DTypeLike = np.float64,
        backend: str = "auto",
    ) -> None:
        if not isinstance(mesh, Mesh):
            raise ArgumentError(f"a space is made on a Mesh, got {type(mesh).__name__}; use read_mesh(path)")
        self.mesh = mesh
        self.basis = name_of(basis, BASES, "basis")
        self.quadrature = quadrature
        self.dtype = _dtype(dtype)
        self.backend = checked_name(backend)
        self.orders = _orders(order, mesh)
        self.blocks = tuple(self._make_blocks())
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_made" in self.__dict__:
            raise ArgumentError(f"a space cannot be changed ({name!r}); make another one")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"Space({self.n_cells} cells, order={self.orders}, basis={self.basis!r}, dofs={self.n_dofs})"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("locator", None)
        return state

    def _make_blocks(self) -> list[Block]:
        blocks = []
        for group in self.mesh.cells:
            order = self.orders[group.shape.name]
            rule = _rule(group.shape, order, self.quadrature)
            tabulation = Tabulation(make_basis(self.basis, group.shape, order), rule)
            elements = ElementMap.of(group, self.mesh.points)
            for kind, chosen in by_kind(elements):
                geometry = BlockGeometry(group.shape, group.order, elements.coefficients[chosen], rule, kind)
                self._check_tangling(geometry, group.indices[chosen])
                self._check_range(geometry, group.indices[chosen])
                blocks.append(Block(tabulation, geometry, group.indices[chosen]))
        return blocks

    def _check_tangling(self, geometry: BlockGeometry, cells: NDArray[np.int64]) -> None:
        """Refuse cells that are tangled at a quadrature point: reading has checked other points."""
        if geometry.affine:  # one Jacobian, which reading has checked
            return
        scaled = geometry.scaled_jacobian()
        worst = int(np.argmin(scaled))
        if scaled[worst] <= FLAT_TOLERANCE:
            raise MeshError(
                f"{self.mesh.describe_cell(int(cells[worst]))} is tangled: its Jacobian determinant at the quadrature"
                f" points {geometry.rule.counts} comes down to {scaled[worst]:.3g} of the product of its columns'"
                f" lengths ({np.count_nonzero(scaled <= FLAT_TOLERANCE)} such cell(s)); repair the mesh"
            )

    def _check_range(self, geometry: BlockGeometry, cells: NDArray[np.int64]) -> None:
        """Refuse cells whose volumes leave the range of the type, with room for its rounding."""
        limits, digits = np.finfo(self.dtype), np.log10(np.finfo(self.dtype).eps)
        widths = np.abs(geometry.coefficients[..., 1:]).max(axis=(1, 2))
        volumes = geometry.dim * np.log10(widths)
        outside = np.flatnonzero(
            ~((volumes > np.log10(limits.tiny) - digits) & (volumes < np.log10(limits.max) + digits))
        )
        if len(outside):
            advice = "take another unit of length" + (", or float64" if self.dtype == np.float32 else "")
            raise MeshError(
                f"{self.mesh.describe_cell(int(cells[outside[0]]))} is about {widths[outside[0]]:.0e} wide, and the"
                f" volumes of {len(outside)} such cell(s) leave the range of {self.dtype}; {advice}"
            )

    @property
    def dim(self) -> int:
        """Dimension of the coordinates."""
        return int(self.mesh.points.shape[1])

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

    def empty(self, state: str, components: int = 1) -> Field:
        """Make a field that has to be written before it is read."""
        components = integer(components, 1, "components", MAX_COMPONENTS)
        name_of(state, STATES, "field state")
        sizes = [block.n_points if state == "phys" else block.n_modes for block in self.blocks]
        shapes = [(components, block.n_elements, n) for block, n in zip(self.blocks, sizes, strict=True)]
        return Field(self, state, [PairArray(shape, self.dtype) for shape in shapes])

    def zeros(self, state: str, components: int = 1) -> Field:
        """Make a field of zeros.

        Parameters
        ----------
        state : str
            "coeff", "phys" or "dual".
        components : int

        Returns
        -------
        Field
        """
        field = self.empty(state, components)
        for pair in field.data:
            pair.write()[...] = 0
        return field

    def field(self, state: str, arrays: Sequence[Any]) -> Field:
        """Make a field of arrays, without copying those that are in C order: NumPy's, or those of a backend's device.

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
            If the arrays do not fit, or are on a device that no backend uses now.
        StateError
            If an array has another dtype than the space.
        """
        if not isinstance(arrays, (list, tuple)):
            raise ArgumentError(f"a field is made of a list with one array per block, got {type(arrays).__name__}")
        return Field(self, state, [wrap(array, copy=True) for array in arrays])

    def coordinates(self) -> Field:
        """Make a "phys" field whose components are the coordinates of the quadrature points."""
        data = [PairArray.of(block.geometry.coordinates().astype(self.dtype, copy=False)) for block in self.blocks]
        return Field(self, "phys", data)

    def evaluate(self, function: Callable[..., Any]) -> Field:
        """Evaluate a function at the quadrature points.

        Parameters
        ----------
        function : callable
            Takes D coordinate arrays and returns an array of their shape, a number, or a list or tuple of those, one
            per component.

        Returns
        -------
        Field
            State "phys".

        Raises
        ------
        ArgumentError
            If the result has the wrong shape, or is not finite (the message names the cell and the point).
        """
        found = [self._evaluated(function, block) for block in self.blocks]
        arrays = [values for values, _ in found]
        largest = max(size for _, size in found)
        if 0 < largest < np.finfo(self.dtype).tiny:
            raise ArgumentError(
                f"the function's values, up to {largest:.1e}, are out of the range of {self.dtype}; take other units,"
                " or a space of float64"
            )
        if len({len(a) for a in arrays}) > 1:
            raise ArgumentError("the function returns different numbers of components in different blocks")
        return self.field("phys", arrays)

    def _evaluated(self, function: Callable[..., Any], block: Block) -> tuple[NDArray[np.floating[Any]], float]:
        """Values at the points of a block, [components, E, Q], a bounded number of elements at a time; the largest."""
        out: NDArray[np.floating[Any]] | None = None
        largest = 0.0
        for chunk in block.geometry.chunks():
            x = block.geometry.coordinates(chunk)
            values = evaluated(function, list(x), x.shape[1:])
            sizes = np.abs(values)
            bad = ~(sizes <= np.finfo(self.dtype).max).all(axis=0)
            if bad.any():
                e, q = np.argwhere(bad)[0]
                where = ", ".join(f"{c:.6g}" for c in x[:, e, q])
                raise ArgumentError(
                    f"the function is not finite at ({where}) in cell {block.elements[chunk][e]} ({block.shape.name})"
                    f"{' in float32' if self.dtype == np.float32 else ''}, nor at"
                    f" {np.count_nonzero(bad) - 1} more point(s) beside it"
                )
            if out is None:
                out = np.empty((len(values), block.n_elements, block.n_points), self.dtype)
            if len(values) != len(out):
                raise ArgumentError("the function returns different numbers of components at different points")
            out[:, chunk] = values
            largest = max(largest, float(sizes.max()))
        assert out is not None  # a block has elements
        return out, largest

    def project(self, function: Callable[..., Any] | Field) -> Field:
        """Project a function onto the space, cell by cell in L2 (FwdTrans of its values at the points).

        Parameters
        ----------
        function : callable or Field
            As for `evaluate`, or a "phys" field.

        Returns
        -------
        Field
            State "coeff".
        """
        values = function if isinstance(function, Field) else self.evaluate(function)
        return OPERATORS["FwdTrans"](self)(values)

    def integrate(self, field: Field) -> float | NDArray[np.float64]:
        """Integrate over the mesh.

        Parameters
        ----------
        field : Field
            In state "phys" or "coeff".

        Returns
        -------
        float, or ndarray [components] with more than one component
        """
        total = self._integrals([pair.read() for pair in self._values(field, "integrate").data])
        return float(total[0]) if len(total) == 1 else total

    def _integrals(self, arrays: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Integrals of the components of values at the points, [components]."""
        total = np.zeros(len(arrays[0]))
        for values, block in zip(arrays, self.blocks, strict=True):
            weights = block.geometry.weights()
            total += np.einsum("ceq,eq->c", np.asarray(values, dtype=np.float64), weights, optimize=True)
        return total

    def norm(self, field: Field) -> float:
        """L2 norm over the mesh, all components together.

        Parameters
        ----------
        field : Field
            In state "phys" or "coeff".

        Returns
        -------
        float
        """
        values = self._values(field, "norm")
        largest = max(float(np.abs(pair.read()).max()) for pair in values.data)
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
                f"{what} of a 'dual' field: it is a functional, not a function; use dot, or solve with the mass"
            )
        return field if field.state == "phys" else OPERATORS["BwdTrans"](self)(field)

    def memory_report(self) -> list[dict[str, Any]]:
        """List, per block, what arrays take and what is held now, in bytes.

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


def evaluated(
    function: Callable[..., Any], coordinates: list[ArrayLike], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Call a user's function of coordinates and bring its result to [components, *shape].

    Raises
    ------
    ArgumentError
        If it is not callable, or its result has another shape.
    """
    if not callable(function):
        raise ArgumentError(f"expected a function of the {len(coordinates)} coordinates, got {type(function).__name__}")
    if not takes(function, *coordinates):
        names = ", ".join(("x", "y", "z")[: len(coordinates)])
        raise ArgumentError(
            f"the mesh is in {len(coordinates)}-D: the function must take {len(coordinates)} arguments ({names})"
        )
    try:
        with np.errstate(all="ignore"):
            result = function(*coordinates)
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        if isinstance(error, HpfemError):
            raise
        raise ArgumentError(
            f"the function of the coordinates failed: {error}; it is called on arrays of many points: use NumPy's"
            " functions (np.sin, np.where for if), or wrap a function of single numbers in np.vectorize"
        ) from error
    if isinstance(result, (tuple, list)):
        parts = list(result)
    else:
        whole = as_array(result, "what the function returns")
        parts = list(whole) if whole.ndim == len(shape) + 1 else [whole]
    if not parts:
        raise ArgumentError("the function returned no components")
    values = np.empty((len(parts), *shape))
    for one, part in zip(values, parts, strict=True):
        given = as_array(part, "what the function returns")
        # No broadcasting: a row of the coordinates is a mistake.
        if given.shape not in ((), shape):
            raise ArgumentError(
                f"the function must return real numbers of the shape {shape} of its arguments, or a list of those; got"
                f" {shown(part)} of shape {given.shape}"
            )
        one[...] = given
    return values


def _dtype(given: DTypeLike) -> np.dtype[Any]:
    try:
        dtype = np.dtype(given)
    except Exception:  # noqa: BLE001 - NumPy asks the object itself for what it is
        dtype = None
    if dtype not in (np.float64, np.float32):
        raise ArgumentError(f"dtype of a space is float64 or float32, got {shown(given)}")
    return dtype


def _orders(order: int | Mapping[str, int], mesh: Mesh) -> dict[str, int]:
    names = list(dict.fromkeys(group.shape.name for group in mesh.cells))
    if not isinstance(order, Mapping):
        order = dict.fromkeys(names, order)
    for name in order:
        name_of(name, SHAPES, "shape", " in order")
    missing = [name for name in names if name not in order]
    if missing:
        raise ArgumentError(f"order says nothing of {', '.join(missing)}, which the mesh has")
    for name in names:
        integer(order[name], 1, f"the order for {name}", MAX_ORDER)
    return {name: int(order[name]) for name in names}


def _rule(shape: Shape, order: int, choice: str | int | None) -> TensorRule:
    if choice is None:
        return quadrature(shape, default_counts(shape, order))
    if isinstance(choice, str) and choice == "gauss":
        return quadrature(shape, default_counts(shape, order), ["gauss"] * shape.dim)
    if isinstance(choice, str) and choice == "collocated":
        return quadrature(shape, [order + 1] * shape.dim)
    if isinstance(choice, (int, np.integer)) and not isinstance(choice, bool):
        counts = default_counts(shape, order, int(choice)) if abs(choice) <= MAX_POINTS else (0,)
        if not 2 <= min(counts) <= max(counts) <= MAX_POINTS:
            raise ArgumentError(
                f"quadrature={shown(choice)} of order {order} on a {shape.name} is not from 2 to {MAX_POINTS} points in"
                f" each direction; the default, quadrature=0, has {default_counts(shape, order)}"
            )
        return quadrature(shape, counts)
    raise ArgumentError(
        f"unknown quadrature {shown(choice)}; valid: None, 'gauss', 'collocated' or a number of further points"
    )
