"""Pictures of fields and meshes: flat ones by matplotlib, others by pyvista."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from hpfem.shapes.arguments import flag, instance, integer, name_of, reals, shown

from ..errors import ArgumentError
from ..mesh import Mesh
from ..space import Field
from ..support.registry import VIEWS
from ..vtu.grid import as_functions
from .flat import draw_flat
from .paint import Paint, paint_of_names
from .picture import Picture, check_picture
from .solid import draw_solid
from .surface import Piece, Surface, field_pieces, mesh_pieces, surface_of


@VIEWS.register("Field.plot")
def field_picture(field: Field, path: str | PathLike[str] | None = None, **options: Any) -> Picture:
    """Draw a field; see `Field.plot`."""
    look = Look(**options)
    mesh: Mesh = field.space.mesh
    _check_path(path, mesh)
    look.check(field.components)
    [function] = as_functions(field).values()
    order = max(max(block.order, block.geometry.order) for block in field.space.blocks)
    return look.picture(mesh, field_pieces(function), order, path)


@dataclass(frozen=True)
class Look:
    """How a field is drawn: the options of `Field.plot`."""

    component: int | None = None
    name: str = "u"
    edges: bool = True
    cmap: str = "viridis"
    limits: tuple[float, float] | None = None

    def check(self, components: int) -> None:
        """Check the options for a field of some components; see `Field.plot`."""
        from matplotlib import colormaps

        if self.component is not None:
            integer(
                self.component, -components, f"the number of a component of a field with {components}", components - 1
            )
        instance(self.name, str, "the name of a field")
        flag(self.edges, "edges")
        if not isinstance(self.cmap, str) or self.cmap not in colormaps:
            raise ArgumentError(f"unknown map of colours {shown(self.cmap)}; give a name of matplotlib, as 'viridis'")
        ends: Any = [] if self.limits is None else reals(self.limits, "limits").ravel()
        if self.limits is not None and not (len(ends) == 2 and ends[0] < ends[1]):
            raise ArgumentError(f"limits are the values at both ends of the colours, got {shown(self.limits)}")

    def picture(self, mesh: Mesh, pieces: Sequence[Piece], order: int, path: str | PathLike[str] | None) -> Picture:
        """Draw a field on pieces, the polynomials being of an order; see `Field.plot`."""
        surface = surface_of(mesh, pieces, max(4, 3 * order))
        assert surface.values is not None
        values, name = surface.values, self.name
        if values.shape[1] == 1:
            values = values[:, 0]
        elif self.component is None:
            values, name = np.linalg.norm(values, axis=1), f"|{name}|"
        else:
            values, name = values[:, self.component], f"{name}[{self.component}]"
        low, high = (values.min(), values.max()) if self.limits is None else self.limits
        paint = Paint(values, name, (float(low), float(high)), self.cmap)
        return _drawn(mesh, surface, paint, self.edges, path)


@VIEWS.register("Mesh.plot")
def mesh_picture(
    mesh: Mesh, path: str | PathLike[str] | None = None, *, by: str | None = None, edges: bool = True
) -> Picture:
    """Draw a mesh; see `Mesh.plot`."""
    _check_path(path, mesh)
    if by is not None:
        name_of(by, ("regions", "boundaries"), "what a mesh is coloured by")
    order = max(group.order for group in mesh.cells)
    surface = surface_of(mesh, mesh_pieces(mesh), 1 if order == 1 else 4 * order)
    return _drawn(mesh, surface, paint_of_names(mesh, surface, by), edges, path)


def _check_path(path: Any, mesh: Mesh) -> None:
    if mesh.part is not None:
        raise ArgumentError(
            f"{mesh.name}: each process has a part of the picture: write fields by hp.write_vtu for other programs,"
            " or draw in one process"
        )
    if path is not None:
        check_picture(path, flat=mesh.points.shape[1] == 2)


def _drawn(mesh: Mesh, surface: Surface, paint: Paint, edges: bool, path: str | PathLike[str] | None) -> Picture:
    draw = draw_flat if mesh.points.shape[1] == 2 else draw_solid
    picture = Picture(draw(surface, paint, flag(edges, "edges")))
    if path is not None:
        picture.save(path)
    return picture
