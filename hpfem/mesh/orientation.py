"""Cells made positively oriented: those with det J < 0 everywhere are renumbered, tangled ones refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..geometry.element_map import ElementMap, check_gradient
from . import checks
from .cells import Array, CellArray, Labels
from .symmetry import mirror


def positively_oriented(
    points: Array, arrays: Sequence[CellArray], labels: Labels
) -> tuple[list[CellArray], list[NDArray[np.bool_]]]:
    """Renumber the nodes of mirrored cells so that det J > 0; points [n, D] -> mirrored [E]."""
    mirrored, unsure, found = [], [], []
    for array in arrays:
        gradient = check_gradient(array.shape, array.order)
        signs = np.concatenate([own.sure_signs(gradient) for own in ElementMap.parts(array, points)])
        rest = np.flatnonzero(signs == 0)
        unsure.append(CellArray(array.shape, array.order, array.nodes[rest], array.indices[rest]))
        found.append(ElementMap.of(unsure[-1], points).quality())
        mirrored.append(signs < 0)
        mirrored[-1][rest] = found[-1].mirrored
    checks.tangling(unsure, found, labels)
    result = list(arrays)
    for position, (array, own) in enumerate(zip(arrays, mirrored, strict=True)):
        if own.any():
            nodes = array.nodes.copy()
            nodes[own] = nodes[own][:, mirror(array.shape, array.order)]
            result[position] = CellArray(array.shape, array.order, nodes, array.indices)
    return result, mirrored
