"""Colours: of a field's values, or of the regions and boundaries of a mesh."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.arrays import Array, Indices

from ..mesh import Mesh
from ..vtu.grid import first_set
from .surface import Surface

# Colours of regions, of boundaries, and of parts without a name.
_FILLS = ("#a6cee3", "#fdd49e", "#b2df8a", "#cab2d6", "#fb9a99", "#ffff99", "#d9c7a8", "#c7e9e4")
_STROKES = ("#c8352b", "#2166ac", "#2e8b3d", "#e08214", "#8c5aa8", "#17888f", "#7f5539", "#d6569b")
_PLAIN = "#d5dbe3"


@dataclass(frozen=True, eq=False)
class Paint:
    """Colours of a surface: of values by a colour map, else of labels."""

    values: Array | None = None  # [n] at the points
    name: str = ""
    limits: tuple[float, float] = (0.0, 1.0)  # values at the ends of the colour map
    colours: str = "viridis"  # of matplotlib
    fills: tuple[tuple[str, str], ...] = ()  # name and colour of the labels of triangles; an empty name is not shown
    strokes: tuple[tuple[str, str], ...] = ()  # the same of lines
    labels: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # by triangle
    stroke_labels: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def paint_of_names(mesh: Mesh, surface: Surface, by: str | None) -> Paint:
    """Colour regions and boundaries by name."""
    solid = mesh.dim == 3
    regions, boundaries = by in ("regions", None), by in ("boundaries", None)
    named = first_set(mesh.boundaries.values(), len(mesh.facets))
    if solid:
        on_facets = boundaries and (len(mesh.boundaries) > 0 or by is not None)
        sets, palette = (mesh.boundaries, _STROKES) if on_facets else (mesh.regions if regions else {}, _FILLS)
        labels = named[surface.facets] if on_facets else first_set(sets.values(), mesh.n_cells)[surface.cells]
        return Paint(fills=_named(sets, palette, labels), labels=labels.astype(np.int64))
    sets = mesh.regions if regions else {}
    labels = first_set(sets.values(), mesh.n_cells)[surface.cells]
    strokes = _named(mesh.boundaries, _STROKES, named)[1:] if boundaries else ()
    return Paint(
        fills=_named(sets, _FILLS, labels),
        labels=labels.astype(np.int64),
        strokes=strokes,
        stroke_labels=named[surface.edges].astype(np.int64) - 1,
    )


def _named(names: object, palette: tuple[str, ...], labels: NDArray[np.int32]) -> tuple[tuple[str, str], ...]:
    """Names and colours of the labels; the one without a name is first."""
    found = list(names)  # type: ignore[call-overload]
    rest = "(no name)" if found and (labels == 0).any() else ""
    return ((rest, _PLAIN), *((name, palette[i % len(palette)]) for i, name in enumerate(found)))
