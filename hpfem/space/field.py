"""Fields: values of one or more components on a space, in one of three states.

    coeff   coefficients of the basis                    u[component, element, mode]
    phys    values at the quadrature points              u[component, element, point]
    dual    a functional: what IProductWRTBase, Mass,    v[component, element, mode]
            Helmholtz, ... return; not a function

One C-ordered array per block. Modes are in the order of the basis' tree, points in tensor order with the first
direction slowest, point = (i1 Q2 + i2) Q3 + i3, so that `array.reshape(components, E, Q1, Q2, Q3)` has one axis
for each direction.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hpfem.shapes.arguments import integer, is_real, name_of, reals, shown
from hpfem.shapes.arrays import Array, Floats

from ..backends.base import vectors_on
from ..errors import ArgumentError, StateError
from ..memory import HOST, Device, PairArray
from ..mesh import Mesh
from ..support.communicator import ALONE, Communicator
from ..support.log import warn
from ..support.notebook import Printed
from ..support.registry import VIEWS
from .block import Block
from .locate import TOLERANCE

STATES = ("coeff", "phys", "dual")
# Fields that are alive, by their space and id; a WeakSet cannot be gone through while another thread adds to it.
_ALIVE: WeakKeyDictionary[FieldSpace, WeakValueDictionary[int, Field]] = WeakKeyDictionary()


_ADVICE = {
    "coeff": "use FwdTrans or space.project first",
    "phys": "use BwdTrans or space.evaluate first",
    "dual": "apply Mass or another form first",
}


# An absolute error of a product in float32, over the relative one that it may have in a sum.
_UNDERFLOW = 2 * float(np.finfo(np.float32).tiny) / float(np.finfo(np.float32).eps)
# Where sums overflow in float32 they are computed once more.
_SILENT: Any = {"over": "ignore", "invalid": "ignore"}
# Entries that are converted at a time.
_CHUNK = 1 << 15


def _dot64(a: Any, b: Any) -> Any:
    """The scalar product of two vectors on one device, in float64."""
    parts = (slice(start, start + _CHUNK) for start in range(0, len(a), _CHUNK))
    return sum(a[part].astype(np.float64).dot(b[part].astype(np.float64)) for part in parts)


def check_state(field: Field, wanted: str, what: str) -> None:
    """Check that a field is in the state that something takes."""
    if field.state != wanted:
        advice = _ADVICE[wanted]
        if field.state == "dual":
            advice = "it is a functional, not a function: solve with the mass, or use dot"
        raise StateError(f"{what} takes a {wanted!r} field, got {field.state!r}; {advice}")


def shared_by(fields: Any) -> Communicator:
    """The processes that share the mesh of fields."""
    given = fields.values() if isinstance(fields, Mapping) else [fields]
    return next((field.space.comm for field in given if isinstance(field, Field)), ALONE)


def held_by_fields(space: FieldSpace, number: int) -> dict[str, int]:
    """Bytes that all fields of a space hold for a block, by device."""
    alive = [ref() for ref in _ALIVE[space].valuerefs()] if space in _ALIVE else []
    pairs = {id(field.data[number]): field.data[number] for field in alive if field is not None}
    found: Counter[str] = Counter()
    for pair in pairs.values():
        found.update(pair.held)
    return found


class FieldSpace(Protocol):
    """The part of `Space` that fields and sides use."""

    mesh: Mesh
    dtype: np.dtype[Any]
    backend: str

    @property
    def blocks(self) -> Sequence[Block]:
        """Blocks of equal elements."""

    @property
    def comm(self) -> Communicator:
        """The processes that share the mesh."""

    def empty(self, state: str, components: int = 1) -> Field:
        """Make a field; see `Space.empty`."""


def lost_function(*x: Any) -> None:
    """What takes the place of a function of which only the values are kept."""
    raise ArgumentError("the form was pickled, or taken at other points, and has its values alone")


class Field(Printed):
    """Values on a space. Made by `Space.zeros`, `Space.evaluate`, `Space.project`, `Space.field` and by operators.

    If the space has one block, other libraries can use the field's memory without a copy: `numpy.asarray(field)`,
    `torch.from_dlpack(field)`, `cupy.asarray(field)` and so on give an array [components, elements, modes or points] on
    the device where the values are (see `PairArray`). If the space has several blocks, use `field.data[i]`.

    Parameters
    ----------
    space : Space
    state : str
        "coeff", "phys" or "dual".
    data : sequence of PairArray
        One per block, [components, elements, modes or points].

    Raises
    ------
    ArgumentError
        For an unknown state, or arrays that do not fit the space.
    """

    __array_ufunc__ = None
    # Of values at the points, the function of the coordinates that an operator evaluated there.
    function: Callable[..., Any] | None = None

    def __init__(self, space: FieldSpace, state: str, data: Sequence[PairArray]) -> None:
        name_of(state, STATES, "field state")
        if not hasattr(space, "blocks"):
            raise ArgumentError(f"a field is made on a Space, got {type(space).__name__}")
        if not isinstance(data, (list, tuple)) or not all(isinstance(pair, PairArray) for pair in data):
            raise ArgumentError(f"the data of a field are a list of PairArrays, got {shown(data)}; see Space.field")
        if len(data) != len(space.blocks):
            raise ArgumentError(f"a field on this space has {len(space.blocks)} block arrays, got {len(data)}")
        components = {pair.shape[:1] for pair in data}
        for number, (pair, block) in enumerate(zip(data, space.blocks, strict=True)):
            tail = (block.n_elements, block.n_points if state == "phys" else block.n_modes)
            if len(pair.shape) != 3 or pair.shape[1:] != tail or pair.shape[0] < 1 or len(components) > 1:
                raise ArgumentError(
                    f"block {number} ({block.shape.name}) of a {state!r} field holds [components, {tail[0]},"
                    f" {tail[1]}], as many components as the other blocks; got {list(pair.shape)}"
                )
            if pair.dtype != space.dtype:
                raise StateError(f"block {number} has dtype {pair.dtype}, the space {space.dtype}; convert it first")
        self.space: Any = space  # a Space, which the type of what it makes cannot name
        self.state = state
        self.data = tuple(data)
        self._register()

    def _register(self) -> None:
        alive = _ALIVE.get(self.space)
        if alive is None:
            alive = _ALIVE.setdefault(self.space, WeakValueDictionary())
        alive[id(self)] = self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "function": None if self.function is None else lost_function}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()

    def discard(self) -> None:
        """Mark the values as lost, as after an interruption: they have to be written before they are read."""
        for pair in self.data:
            pair.discard()

    def _only(self) -> PairArray:
        if len(self.data) != 1:
            raise StateError(
                f"this field has {len(self.data)} arrays, one per block: use field.data[i], or field.arrays"
            )
        return self.data[0]

    def __dlpack__(self, **options: Any) -> Any:
        """DLPack capsule of the only block's array, where the values are (`PairArray.__dlpack__`)."""
        return self._only().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and number of where the only block's values are."""
        return self._only().__dlpack_device__()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An array interface of the only block's array; absent where there are several, or not on a device."""
            if not name.endswith("_interface__"):
                raise AttributeError(f"'Field' object has no attribute {name!r}")
            if len(self.data) != 1:
                raise AttributeError("a field with several arrays, one per block, has no array interface of its own")
            return getattr(self.data[0], name)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """The only block's array on the host (`PairArray.__array__`)."""
        return self._only().__array__(dtype, copy)

    @property
    def components(self) -> int:
        """Number of components."""
        return self.data[0].shape[0] if self.data else 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.space.dtype

    @property
    def size(self) -> int:
        """Number of values, all components and blocks together."""
        return sum(int(np.prod(pair.shape)) for pair in self.data)

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return sum(pair.nbytes for pair in self.data)

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """Host arrays of the blocks, [component, element, mode or point], to read and to change in place.

        A field that an operator made of its coefficient can only be read.
        """
        return tuple(pair.read() if pair.constant else pair.readwrite() for pair in self.data)

    @property
    def home(self) -> Device:
        """Where the values can be used without a transfer; the host if they are on the host and on a device."""
        for pair in self.data:
            if pair.home.name != HOST.name:
                return pair.home
        return HOST

    def __repr__(self) -> str:
        return f"Field({self.state!r}, components={self.components}, size={self.size}, dtype={self.dtype})"

    def __str__(self) -> str:
        basis = self.space.basis
        means = {
            "coeff": f"coefficients of the {basis!r} basis"
            + ("" if basis == "lagrange" else ", not values; u(points) has those"),
            "phys": "values at the quadrature points",
            "dual": "inner products with the basis",
        }
        return f"{self!r}: {means[self.state]}\n  on {self.space!r}"

    def like(self, state: str | None = None, components: int | None = None) -> Field:
        """Make a field without values on the same space, by default like this one, as for `Space.empty`."""
        state = self.state if state is None else state
        return self.space.empty(state, self.components if components is None else components)

    def copy(self) -> Field:
        """Make a copy, on the device where the values are.

        Returns
        -------
        Field
        """
        return self._map(lambda a: a * 1)

    def component(self, number: int) -> Field:
        """Make a field of one component of this one (a copy).

        Parameters
        ----------
        number : int
            Negative numbers count from the end.

        Returns
        -------
        Field

        Raises
        ------
        ArgumentError
            If there is no such component.
        """
        n = self.components
        number = integer(number, -n, f"the number of a component of a field with {n}", n - 1) % n
        return self._map(lambda a: a[number : number + 1] * 1)

    def __getitem__(self, number: int | slice) -> Field:
        """Make a field of one component, or of a slice of them (a copy); see `component`."""
        if not isinstance(number, slice):
            return self.component(number)
        try:
            there = bool(range(self.components)[number])
        except (TypeError, ValueError):
            there = False
        if not there:
            raise ArgumentError(f"a field with {self.components} component(s) has none in {shown(number)}")
        return self._map(lambda a: a[number] * 1)

    def __iter__(self) -> Iterator[Field]:
        """The components, one after the other."""
        return map(self.component, range(self.components))

    def _map(self, function: Callable[..., Any], *others: Field) -> Field:
        device = self.home
        blocks = zip(self.data, *(other.data for other in others), strict=True)
        values = [function(*(pair.read(device) for pair in pairs)) for pairs in blocks]
        return Field(self.space, self.state, [PairArray.of(array, device) for array in values])

    def _check_matching(self, other: Field, what: str, states: Iterable[str]) -> None:
        if not isinstance(other, Field):
            raise StateError(f"{what} of a field and a {type(other).__name__}; both must be fields")
        if other.space is not self.space:
            raise StateError(f"{what} of fields on different spaces; evaluate one of them on the other's space first")
        if other.state not in states:
            raise StateError(f"{what} of a {self.state!r} and a {other.state!r} field; convert one of them first")
        if other.components != self.components:
            raise StateError(f"{what} of fields with {self.components} and {other.components} components")

    def _combine(self, other: Any, function: Callable[[Any, Any], Any], what: str) -> Any:
        if isinstance(other, Field):
            self._check_matching(other, what, (self.state,))
            return self._map(function, other)
        if is_real(other) or isinstance(other, (bool, np.bool_)):
            scalar = self._number(other)
            return self._map(lambda a: function(a, scalar))
        return NotImplemented

    def _number(self, value: Any) -> Any:
        """A number in the field's type; infinite ones and NaN stay what they are."""
        try:
            found = self.dtype.type(value)
        except OverflowError:  # an integer beyond all floats
            found = math.inf
        if math.isinf(found) and (isinstance(value, int) or math.isfinite(value)):
            raise ArgumentError(f"{shown(value)} is beyond the numbers of {self.dtype}, in which the field is")
        return found

    def __add__(self, other: Any) -> Any:
        return self._sum(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._sum(other, operator.add)

    def _sum(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Add or subtract; only values at points can be shifted by a number, coefficients cannot."""
        if not isinstance(other, Field) and self.state != "phys":
            if np.ndim(other) == 0 and other == 0:
                return self.copy()
            raise StateError(f"a number is added to 'phys' fields only, not to {self.state!r}; use space.project")
        return self._combine(other, function, "sum")

    def __mul__(self, other: Any) -> Any:
        self._check_pointwise(other, "are multiplied")
        return self._combine(other, operator.mul, "product")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        self._check_pointwise(other, "are divided")
        return self._combine(other, operator.truediv, "quotient")

    def __rtruediv__(self, other: Any) -> Any:
        self._check_values("divide")
        return self._combine(other, lambda a, b: b / a, "quotient")

    def __pow__(self, exponent: Any) -> Any:
        self._check_values("are raised to powers")
        return NotImplemented if isinstance(exponent, Field) else self._combine(exponent, operator.pow, "power")

    def _check_values(self, what: str) -> None:
        if self.state != "phys":
            raise StateError(f"fields {what} point by point in state 'phys', not {self.state!r}; use BwdTrans first")

    def _check_pointwise(self, other: Any, what: str) -> None:
        if isinstance(other, Field):
            self._check_values(what)

    def __neg__(self) -> Field:
        return self._map(lambda a: -a)

    def axpy(self, scale: float | Sequence[float] | NDArray[Any], other: Field | Sequence[Field]) -> Field:
        """Add `scale` times another field to this one, in place.

        Parameters
        ----------
        scale : float, or sequence of float
        other : Field, or sequence of Field
            In the same state, on the same space. Several fields, with a number for each, are added in one pass over
            memory.

        Returns
        -------
        Field
            This field.

        Raises
        ------
        ArgumentError
            If `scale` is no number, or not as many numbers as there are fields.
        StateError
            If the fields do not fit.
        """
        scales: list[Any] = [scale]
        others: list[Any] = [other]
        if isinstance(other, (list, tuple)):
            others = [*other]
            if isinstance(scale, (list, tuple)) or (isinstance(scale, np.ndarray) and scale.ndim):
                scales = [*scale]
        wrong = [given for given in scales if not is_real(given)]
        if wrong:
            raise ArgumentError(f"a field is scaled by a number, got {type(wrong[0]).__name__}")
        if len(scales) != len(others):
            raise ArgumentError(f"axpy takes a number for each field, got {len(scales)} for {len(others)}")
        scalars = [self._number(given) for given in scales]
        for field in others:
            self._check_matching(field, "sum", (self.state,))
        device = self.home
        blocks = zip(self.data, *(field.data for field in others), strict=True)
        pairs = [(mine.readwrite(device), [own.read(device) for own in theirs]) for mine, *theirs in blocks]
        try:
            for array, values in pairs:
                flat = array.reshape(-1)
                vectors_on(device).combine((1.0, *scalars), (flat, *(own.reshape(-1) for own in values)), flat)
        except BaseException:
            self.discard()
            raise
        return self

    def dot(self, other: Field) -> float:
        """Plain sum of products over all entries; for a coeff and a dual field, the functional's value.

        Collective if processes share the mesh.

        Parameters
        ----------
        other : Field
            On the same space, with as many components; coeff and dual may be mixed, phys only with phys.

        Returns
        -------
        float

        Raises
        ------
        StateError
            If the fields do not fit.
        """
        self._check_matching(other, "dot product", ("phys",) if self.state == "phys" else ("coeff", "dual"))
        device = self.home
        pairs = zip(self.data, other.data, strict=True)
        arrays = [(mine.read(device).ravel(), theirs.read(device).ravel()) for mine, theirs in pairs]
        single, comm = self.dtype == np.float32, self.space.comm
        with np.errstate(**_SILENT if single else {}):
            total = float(comm.sum(float(sum(vectors_on(device).inner(a, b) for a, b in arrays))))
        if not single or _UNDERFLOW * comm.sum(sum(len(a) for a, _ in arrays)) <= abs(total) < math.inf:
            return total
        # Products may be out of the range of float32; in float64 they are not.
        return float(comm.sum(float(sum(_dot64(a, b) for a, b in arrays))))

    def norm(self) -> float:
        """L2 norm over the mesh; see `Space.norm`. A dual field has none."""
        return self.space.norm(self)

    def __call__(self, *points: ArrayLike, tolerance: float = TOLERANCE) -> Array:
        """Values at points, as `at`, ``u(points)`` or ``u(x, y, z)``: a field is a function of the coordinates."""
        if len(points) == 1:
            return self.at(points[0], tolerance)
        columns = [reals(given, "coordinates") for given in points]
        if len(columns) != self.space.dim:
            raise ArgumentError(f"a field in {self.space.dim}-D takes points or {self.space.dim} coordinates")
        try:
            columns = list(np.broadcast_arrays(*columns))
        except ValueError:
            shapes = [list(column.shape) for column in columns]
            raise ArgumentError(f"coordinates are arrays of one shape, got {shapes}") from None
        values = self.at(np.stack([column.ravel() for column in columns], axis=1), tolerance)
        return values.reshape((*values.shape[:-1], *columns[0].shape))

    def at(self, points: ArrayLike, tolerance: float = TOLERANCE) -> Array:
        """Values at any points of the mesh; collective where processes share it.

        Parameters
        ----------
        points : array_like, [n, D]
            Coordinates; each process may ask for points of its own, anywhere.
        tolerance : float
            How far off a cell a point may be, relative to the cell's size; its value is that at the closest point of
            the closest cell. The default is for rounding: take a larger one for points on the true boundary of a curved
            domain, or near a surface in space.

        Returns
        -------
        ndarray, [n] or [components, n] with more than one component
            NaN at points outside the mesh. On a face that cells share it is the value in one of them.

        Raises
        ------
        StateError
            If the field is not in state "coeff".
        ArgumentError
            If the points are not [n, D] finite numbers.

        Warns
        -----
        HpfemWarning
            Once for all points that are outside.
        """
        check_state(self, "coeff", "evaluation at points")
        locator, comm = self.space.locator_within(tolerance), self.space.comm
        found = locator.evaluate_anywhere([pair.read() for pair in self.data], points, comm)
        outside, asked = (int(n) for n in comm.sum(np.array([np.isnan(found[0]).sum(), found.shape[1]])))
        if outside and comm.rank == 0:
            warn(
                f"{outside} of {asked} points are outside the mesh, where values are NaN; a tolerance larger than"
                f" {tolerance:g} takes the closest cell up to that part of its size away"
            )
        return found[0] if self.components == 1 else found

    def plot(
        self,
        path: str | PathLike[str] | None = None,
        *,
        component: int | None = None,
        name: str = "u",
        edges: bool = True,
        cmap: str = "viridis",
        limits: tuple[float, float] | None = None,
    ) -> Any:
        """Draw the field: in the plane by matplotlib, on surfaces in space and the boundary of solids by pyvista.

        Curved cells are drawn curved, and jumps between cells are drawn as jumps. A field in state "phys" is projected
        first. To see the inside of a solid, cut the grid of `to_pyvista`.

        Parameters
        ----------
        path : path, optional
            File to write: .png, in the plane also .pdf or .svg.
        component : int, optional
            Which one; by default the magnitude of all, if there are several.
        name : str
            Text of the colour bar.
        edges : bool
            Whether to draw the cells' edges.
        cmap : str
            Name of a colour map of matplotlib.
        limits : (float, float), optional
            Values at the ends of the colours; by default the least and the largest that are drawn.

        Returns
        -------
        Picture
            A notebook shows it, ``save(path)`` writes it.

        Raises
        ------
        StateError
            For a "dual" field, which is no function.
        ArgumentError
            For an unknown name or component, a value that is not finite, a file that cannot be written, or if pyvista
            (extra `view`) or OpenGL is missing.
        """
        options = {"component": component, "name": name, "edges": edges, "cmap": cmap, "limits": limits}
        return VIEWS["Field.plot"](self, path, **options)

    def to_pyvista(self, name: str = "u", subdivide: int | None = None) -> Any:
        """Make a grid of pyvista with the values of the field in the cells of this process, as `write_vtu` writes them.

        Parameters
        ----------
        name : str
            Name of the values in the grid.
        subdivide : int, optional
            Make linear cells, this many along each edge, instead of VTK's cells of high order, which pyvista's filters
            that cut and slice treat as linear.

        Returns
        -------
        pyvista.UnstructuredGrid

        Raises
        ------
        StateError
            For a "dual" field, which is no function.
        ArgumentError
            If pyvista (extra `view`) is not installed, a value is not finite, or `subdivide` is no number from 1 on.

        Examples
        --------
        >>> u.to_pyvista(subdivide=6).clip("x").plot()  # doctest: +SKIP
        """
        return VIEWS["Field.to_pyvista"](self, name, subdivide)
