"""Integer data of elements as regions and boundaries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpfem.errors import ArgumentError
from hpfem.shapes.arguments import shown

from ...support.communicator import ALONE, Communicator
from ..symmetry import Indices
from .mesh_file import Elements, MeshFile, grouped


def regions_by_number(content: MeshFile, name: str | None, comm: Communicator = ALONE) -> MeshFile:
    """Group elements by their integer data; without a name, tell what could and nothing uses; collective."""
    dim = int(comm.max(max((own.shape.dim for own in content.elements), default=0)))
    groups = [{key: rows for key in own.data if (rows := _groups(own, key)) is not None} for own in content.elements]
    able = [(own, found) for own, found in zip(content.elements, groups, strict=True) if own.shape.dim >= dim - 1]
    mixed = set().union(*comm.allgather({key for own, found in able for key in own.data.keys() - found}))
    known = sorted(set().union(*comm.allgather({key for _, found in able for key in found})) - mixed)
    if name is not None:
        if name not in known:
            there = f"there are {', '.join(map(shown, known))}" if known else "there are none"
            raise ArgumentError(f"regions={shown(name)}: the elements have no such integer data; {there}")
        elements = [
            replace(own, sets={str(number): rows for number, rows in found[name].items()}) if name in found else own
            for own, found in zip(content.elements, groups, strict=True)
        ]
        return replace(content, elements=elements)
    unused = [shown(key) for key in known if any(_unused(able, key, level, comm) for level in (dim, dim - 1))]
    if not unused:
        return content
    told = f"integer data of elements that nothing uses: {', '.join(unused)}; regions={unused[0]} makes them regions"
    return replace(content, warnings=[*content.warnings, told])


def _groups(own: Elements, name: str) -> dict[int, Indices] | None:
    """Rows of elements by their integer; None for other data."""
    values = own.data[name]
    if values.dtype.kind not in "iuf" or values.size != len(own) or not (np.abs(values) < 2.0**53).all():
        return None
    return grouped(values.ravel()) if np.array_equal(values, np.rint(values)) else None


def _unused(
    able: list[tuple[Elements, dict[str, dict[int, Indices]]]], name: str, dim: int, comm: Communicator
) -> bool:
    """Whether data group the elements of a dimension as no sets do: neither all in one group, nor each in its own."""
    parts = [(own, found.get(name, {})) for own, found in able if own.shape.dim == dim]
    numbers: set[int] = set().union(*comm.allgather({number for _, rows in parts for number in rows}))
    if not 1 < len(numbers) < comm.sum(sum(len(own) for own, _ in parts)):
        return False
    return not comm.all(
        all(
            any(np.array_equal(rows, other) for other in own.sets.values())
            for own, found in parts
            for rows in found.values()
        )
    )
