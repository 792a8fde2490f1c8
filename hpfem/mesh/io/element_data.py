"""Integer data of elements as regions and boundaries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpfem.errors import ArgumentError
from hpfem.shapes.arguments import shown

from ..symmetry import Indices
from .mesh_file import Elements, MeshFile, grouped


def regions_by_number(content: MeshFile, name: str | None) -> MeshFile:
    """Group elements by their integer data; without a name, tell what could group cells and nothing uses.

    Parameters
    ----------
    content : MeshFile
    name : str or None
        Name of the data.

    Returns
    -------
    MeshFile
        Sets of the elements that have such data are its values; or a warning more.

    Raises
    ------
    ArgumentError
        If there are no such data.
    """
    groups = [{key: rows for key in own.data if (rows := _groups(own, key)) is not None} for own in content.elements]
    dim = max((own.shape.dim for own in content.elements), default=0)
    cells = [(own, found) for own, found in zip(content.elements, groups, strict=True) if own.shape.dim == dim]
    known = sorted(
        {key for _, found in cells for key in found} - {key for own, found in cells for key in own.data.keys() - found}
    )
    if name is not None:
        if name not in known:
            there = f"there are {', '.join(map(shown, known))}" if known else "there are none"
            raise ArgumentError(f"regions={shown(name)}: the elements have no such integer data; {there}")
        elements = [
            replace(own, sets={str(number): rows for number, rows in found[name].items()}) if name in found else own
            for own, found in zip(content.elements, groups, strict=True)
        ]
        return replace(content, elements=elements)
    unused = []
    for key in known:
        parts = [(own, found[key]) for own, found in cells if key in found]
        numbers = {number for _, rows in parts for number in rows}
        splits = 1 < len(numbers) < sum(len(own) for own, _ in cells)  # neither one group, nor one of each cell
        if splits and not all(_used(own, each) for own, rows in parts for each in rows.values()):
            unused.append(shown(key))
    if not unused:
        return content
    told = f"integer data of the cells that nothing uses: {', '.join(unused)}; regions={unused[0]} makes them regions"
    return replace(content, warnings=[*content.warnings, told])


def _groups(own: Elements, name: str) -> dict[int, Indices] | None:
    """Rows of elements by their integer; None for other data."""
    values = own.data[name]
    if values.dtype.kind not in "iuf" or values.size != len(own) or not (np.abs(values) < 2.0**53).all():
        return None
    return grouped(values.ravel()) if np.array_equal(values, np.rint(values)) else None


def _used(own: Elements, rows: Indices) -> bool:
    """Whether a set has just these elements."""
    return any(np.array_equal(rows, members) for members in own.sets.values())
