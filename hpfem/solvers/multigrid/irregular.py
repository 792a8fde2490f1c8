"""An irregular vector that does not depend on how a mesh is cut: estimates of eigenvalues start from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...assembly import GlobalOperator
from ...assembly.numbering import Numbering
from ...memory import as_numpy, moved, xp_for

Numbers = NDArray[np.uint32]


def noise(numbers: Any) -> Any:
    """Make irregular numbers from integers, the same on every device; numbers [n] -> [n]."""
    spread(numbers)
    return (numbers >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)


def noise_of(count: int, xp: Any) -> Any:
    """Make so many irregular numbers, on the host if they are few; -> [count]."""
    return xp.asarray(noise(xp_for(count, xp).arange(count, dtype=np.uint32)))


def spread(numbers: Any) -> Any:
    """Spread numbers over all 32 bits, in place."""
    for factor, shift in ((2654435761, 15), (2246822519, 13)):
        numbers *= np.uint32(factor)
        numbers ^= numbers >> np.uint32(shift)
    return numbers


def entity_numbers(numbering: Numbering, xp: Any) -> list[Numbers]:
    """Number vertices, edges, faces and cells by what they are in the whole mesh; -> [n_entities]."""
    part, dim = numbering.mesh.part, numbering.mesh.dim
    counts = [len(sizes) for sizes in numbering.sizes]
    xp = xp_for(sum(counts), xp)
    vertices, cells = (np.arange(counts[0]), np.arange(counts[-1])) if part is None else (part.vertices, part.cells)
    found = [spread(np.asarray(vertices, dtype=np.uint32) + np.uint32(1))]
    mixed = xp.asarray(found[0])
    for between in range(1, dim):
        own = xp.zeros(counts[between], dtype=np.uint32)
        for group, array in enumerate(numbering.cells):
            corners = mixed[moved(array.vertices, xp)].T
            ids = numbering.of_group(group, between).ids_on(xp)
            for number, entity in enumerate(array.shape.entities[between]):
                own[ids[:, number]] = sum(corners[vertex] for vertex in entity.vertices)
        found.append(as_numpy(own))
    return [*found, spread(~np.asarray(cells, dtype=np.uint32))]  # others than those of vertices


def irregular(A: GlobalOperator, numbers: list[Numbers]) -> Any:
    """Make an irregular vector, the same for every partition of a mesh; -> [components * size]."""
    numbering, n, xp = A.c0.numbering, np.uint32(A.components), xp_for(A.shape[0], A.vectors.xp)
    each = n * np.uint32(max(A.c0.space.orders.values()) ** A.c0.space.mesh.dim)
    starts = zip(numbers, numbering.offsets, strict=True)
    values = numbering.of_unknowns([own * each - first.astype(np.uint32) * n for own, first in starts], xp)
    values += xp.arange(A.c0.size, dtype=np.uint32) * n
    out = xp.empty((A.components, A.c0.size), A.dtype)
    for component, row in enumerate(out):
        row[...] = noise(values + np.uint32(component))
    return A.vectors.xp.asarray(out.ravel())
