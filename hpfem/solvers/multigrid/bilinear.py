"""Vertices of thin pyramids: what is bilinear across a layer has little energy, but pyramids of order 1 lack it.

They have xy / t in place of xy, t being the distance from the apex, which is steep where the layer is thin. But xy is
of order 2: functions of vertices are continued by the quadratic modes of the edges at the apex, and by their mean to an
apex inside, which needs no function of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array

from hpfem.shapes.overlap import apex, flat, to_apex

from ...assembly import C0Space
from .energies import Energies


def continuation(
    c0: C0Space, coarse: C0Space, energies: Sequence[Sequence[Energies]], free: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], csr_array]:
    """Unknowns of `c0` on edges, [m], and P from functions of `coarse` to its own unknowns and to these, [n + m, n].
    Edges are free, [size], and these and apices are of this process alone: another one may have a pyramid around them.
    """
    fine, vertices = c0.numbering, coarse.numbering
    flats = [np.all([own[number].told(flat) for own in energies], axis=0) for number in range(len(c0.space.blocks))]
    if not any(own.any() for own in flats):
        return np.zeros(0, np.int64), csr_array(eye_array(vertices.size))
    total, count = csr_array((vertices.size + c0.size, vertices.size)), np.zeros(vertices.size + c0.size)
    corners = [np.zeros(0, np.int64)]
    for number, block in enumerate(c0.space.blocks):
        ids, of_edges = (part.ids for part in c0.seen(number)[:2])
        ids, top = vertices.offsets[0][ids], apex(block.shape)
        corners.append(ids[:, np.arange(ids.shape[1]) != top].ravel())
        cells = np.flatnonzero(flats[number])
        if not len(cells):
            continue
        edges, weights = to_apex(block.shape)
        ids, of_edges = ids[cells], of_edges[cells][:, edges]
        cell, edge = np.nonzero(fine.sizes[1][of_edges])
        of_apex = np.where(np.arange(ids.shape[1]) == top, 0.0, 1 / (ids.shape[1] - 1))
        for rows, at, values in (
            (ids[:, top], ids, np.broadcast_to(of_apex, ids.shape)),
            (vertices.size + fine.offsets[1][of_edges[cell, edge]], ids[cell], weights[edge]),
        ):
            places = np.repeat(rows, at.shape[1]), at.ravel()
            total = total + csr_array((values.ravel(), places), shape=total.shape)
            count += np.bincount(rows, minlength=len(count))
    own = count > 0
    own[np.concatenate(corners)] = False
    own[vertices.size :] &= free
    for numbering, first in ((vertices, 0), (fine, vertices.size)):
        if numbering.sharing is not None:
            own[first + numbering.sharing.shared] = False
    P = diags_array(np.where(own, 1 / np.maximum(count, 1), 0)) @ total
    P = P + csr_array(diags_array((~own[: vertices.size]).astype(float), shape=P.shape))
    more = np.flatnonzero(own[vertices.size :])
    return more, csr_array(P[np.append(np.arange(vertices.size), vertices.size + more)])
