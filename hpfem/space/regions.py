"""Coefficients by region or by cell: values belong to cells, so that no jump lies inside a cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arguments import as_array, is_real, name_of, real, reals, shown
from hpfem.shapes.arrays import Indices, Mask

from ..errors import ArgumentError
from ..mesh import Mesh
from ..support.immutable import Immutable
from .field import FieldSpace

# Of a region: a number, a function of the coordinates, a sequence of numbers or a matrix of numbers.
RegionValue = float | Callable[..., Any] | Sequence[Any]
# Of all cells: by region, or an array [n_cells, ...].
CellValues = Mapping[str, RegionValue] | NDArray[Any]


class ByRegion(Immutable):
    """A coefficient region by region, made by `by_region`, or from a mapping that is given as a coefficient."""

    mesh: Mesh
    names: tuple[str, ...]  # of the parts, in messages
    values: tuple[Any, ...]  # of the parts: functions of the coordinates, numbers by component or [.., n_cells]
    of_cells: Indices  # [n_cells], the part that each cell is in

    def __init__(self, mesh: Mesh, values: Mapping[str, RegionValue], elsewhere: RegionValue | None = None) -> None:
        if not isinstance(values, Mapping):
            raise ArgumentError(f"values by region are a mapping from names of regions, got {shown(values)}")
        for name in values:
            name_of(name, mesh.regions, "region")
        of_cells = np.full(mesh.n_cells, -1)
        for number, name in enumerate(values):
            cells = mesh.regions[name]
            taken = cells[of_cells[cells] >= 0]
            if len(taken):
                other = list(values)[of_cells[taken[0]]]
                raise ArgumentError(
                    f"{len(taken)} cell(s), {mesh.describe_cell(int(taken[0]))} the first, are in regions {other!r} and"
                    f" {name!r}, which both have a value; give values for regions that do not overlap"
                )
            of_cells[cells] = number
        given = [(f"region {name!r}", value) for name, value in values.items()]
        rest = of_cells < 0
        if elsewhere is not None:
            of_cells[rest] = len(given)
            given.append(("the rest of the mesh", elsewhere))
        elif rest.any():
            raise ArgumentError(_nothing_said(mesh, list(values), rest))
        self.mesh, self.of_cells = mesh, of_cells
        self.names = tuple(name for name, _ in given)
        self.values = tuple(_checked(value, name) for name, value in given)

    def __repr__(self) -> str:
        return f"ByRegion({', '.join(self.names)})"

    def __call__(self, *coordinates: Any) -> NoReturn:
        """Refuse points: a point between two cells has no unique value."""
        raise ArgumentError(
            "values by region can be a coefficient, a right-hand side or an argument of space.evaluate; here a function"
            " of the coordinates is needed"
        )

    def parts(self, cells: Indices) -> Iterator[tuple[int, Any]]:
        """Go through the parts that cells are in, with the places of their cells, a slice for all; see `of_cells`."""
        own = self.of_cells[cells]
        found = np.unique(own)
        for number in found:
            yield int(number), slice(None) if len(found) == 1 else np.flatnonzero(own == number)

    def spread(self, components: int) -> ByRegion:
        """Repeat single numbers for several components; see `with_values`."""
        alone = [not callable(value) and len(value) == 1 for value in self.values]
        return self.with_values([np.repeat(v, components, 0) if one else v for v, one in zip(self.values, alone)])

    def with_values(self, values: Sequence[Any]) -> ByRegion:
        """The same parts with other values; see `values`."""
        other = ByRegion.__new__(ByRegion)
        other.mesh, other.names, other.values, other.of_cells = self.mesh, self.names, tuple(values), self.of_cells
        return other


def _nothing_said(mesh: Mesh, names: list[str], rest: Mask) -> str:
    """A message for cells that no value is given for."""
    absent = [name for name, cells in mesh.regions.items() if name not in names and rest[cells].any()]
    alone = rest.copy()
    for name in absent:
        alone[mesh.regions[name]] = False
    said = [f"region(s) {', '.join(map(repr, absent))}"] if absent else []
    if alone.any():
        said.append(f"{np.count_nonzero(alone)} cell(s) in no region, {mesh.describe_cell(int(alone.argmax()))} first")
    return f"values by region have no value for {' and for '.join(said)}; add it, or use elsewhere= of by_region"


def _checked(value: Any, name: str) -> Any:
    """A function, or a tuple of numbers."""
    if callable(value) and not isinstance(value, ByRegion):
        return value
    if is_real(value):
        return (real(value, f"the value of {name}"),)
    numbers = isinstance(value, (list, tuple, np.ndarray)) and as_array(value, f"the value of {name}")
    if numbers is False or numbers.ndim not in (1, 2) or not numbers.size or numbers.dtype.kind == "b":
        raise ArgumentError(
            f"the value of {name} is {shown(value)}; give a number, a sequence of numbers or a function of the"
            " coordinates"
        )
    return tuple(real(number, f"the value of {name}") for number in numbers.ravel())


def by_region(space: FieldSpace, values: Mapping[str, RegionValue], elsewhere: RegionValue | None = None) -> ByRegion:
    """Give a coefficient region by region.

    Whatever takes a coefficient or a right-hand side also takes the mapping itself; this has `elsewhere` besides.
    Values belong to cells: at the points of a cell they are those of its region, also on the faces between regions.

    Parameters
    ----------
    space : Space
    values : mapping
        Region name, as in ``mesh.regions`` -> number, function of the coordinates, sequence of numbers (components) or
        D x D numbers (a tensor).
    elsewhere : number, callable or sequence, optional
        For the cells that are in none of these regions.

    Returns
    -------
    ByRegion

    Raises
    ------
    ArgumentError
        For an unknown region, a cell without a value or with two, or invalid values.

    Examples
    --------
    >>> k = hp.by_region(space, {"inclusion": 10.0}, elsewhere=lambda x, y, z: 1 + x)  # doctest: +SKIP
    >>> u = hp.solve_helmholtz(space, lam=0.0, f=1.0, dirichlet=0.0, diffusivity=k)  # doctest: +SKIP
    """
    mesh = getattr(space, "mesh", None)
    if isinstance(space, type) or not isinstance(mesh, Mesh):
        raise ArgumentError(f"by_region takes a Space, got {shown(space)}")
    return ByRegion(mesh, values, elsewhere)


def _by_cell(mesh: Mesh, values: NDArray[Any]) -> ByRegion:
    """Values [n_cells, ...] of cells, whose entries are the components."""
    made = ByRegion.__new__(ByRegion)
    made.mesh, made.names, made.of_cells = mesh, ("the cell data",), np.zeros(mesh.n_cells, dtype=np.int64)
    made.values = (reals(values, "cell data").reshape(len(values), int(np.prod(values.shape[1:]))).T,)
    return made


def regional(value: Any, mesh: Mesh, *numbers: tuple[int, ...]) -> Any:
    """A mapping from regions, or an array with a value for each cell, as a coefficient; anything else as it is."""
    if isinstance(value, np.ndarray) and value.ndim:
        fits, known = value.shape[:1] == (mesh.n_cells,), any(value is own for own in mesh.cell_data.values())
        # What an array means on one process must not depend on how many cells that has.
        counts = (mesh.n_cells,) if mesh.part is None else mesh.part.counts_of_cells
        for size, *rest in () if known else numbers:
            if size in counts and value.shape[1:] == tuple(rest) and (fits or len(value) == size):
                raise ArgumentError(
                    f"an array of shape {value.shape} may be the same in all cells, or a value for each, as a process"
                    f" has {size} cells: give a list for the first, space.evaluate(array) for the second"
                )
        if not fits and not numbers:
            raise ArgumentError(f"an array of shape {value.shape} has no value for each of {mesh.n_cells} cells")
        return _by_cell(mesh, value) if fits else value
    if isinstance(value, ByRegion) and value.mesh is not mesh:
        raise ArgumentError("values by region were made for another mesh; make them for this one")
    return ByRegion(mesh, value) if isinstance(value, Mapping) else value
