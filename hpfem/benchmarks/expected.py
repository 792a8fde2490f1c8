"""Throughput that is expected of the Helmholtz operator on a mesh, by shape and kind of geometry; nothing is built.

Choices and times of an element are those of `hpfem.tuning.select`. It also says what straightening would give: cells
whose nodes are nearly those of a straight cell then count as such, which [Eichstaedt] would have meshes optimised for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpfem.shapes import SHAPES, Tabulation, make_basis

from ..backends.base import BACKENDS, choose_backend
from ..backends.strategy import with_source
from ..forms import Pointwise
from ..forms.cost import operator_bytes
from ..forms.form import BlockProblem, Form
from ..forms.trace import trace
from ..geometry import BlockGeometry
from ..geometry.element_map import ElementMap
from ..geometry.kinds import GEOMETRY_KINDS, QUADRATIC, first_kinds
from ..mesh import Mesh
from ..operators.standard import helmholtz
from ..space.arguments import checked_orders, chosen_rule, other_rule
from ..tuning.select import suited

# Nodes may move by this part of the size of their cell, where cells are straightened.
DEPARTURE = 0.01
# Another rule that is expected to be less times as fast is not named.
GAIN = 1.05
# Number of the first kind that is curved.
_CURVED = GEOMETRY_KINDS.index(QUADRATIC)


def expected_throughput(mesh: Mesh, order: int | Mapping[str, int], backend: str) -> dict[str, Any]:
    """Expect the throughput on large blocks of each kind of cells that a mesh has, and of the mesh; collective."""
    orders, names = checked_orders(order, mesh), list(SHAPES)
    # One that is missing here is fine if the times that it ships are those of a certain device.
    own = BACKENDS[backend] if backend in BACKENDS and BACKENDS[backend].costs_of else choose_backend(backend)
    limits = None
    with mesh.comm.together():
        if mesh.comm.rank == 0 and own.costs_of is None:
            limits = own.roofline(quick=True)
    limits = mesh.comm.bcast(limits)
    traced = trace(Pointwise(helmholtz, ("value", "grad")), mesh.points.shape[1], parameters=("lam",))
    form, counts = Form.weak("Helmholtz", traced), np.zeros((len(SHAPES), len(GEOMETRY_KINDS), 2))
    lam: dict[str, Any] = {"lam": 1.0}
    expected: dict[tuple[int, int], tuple[dict[str, Any], int, float]] = {}
    for group in mesh.cells:
        shape, row, P = group.shape, names.index(group.shape.name), orders[group.shape.name]
        elements = ElementMap.of(group, mesh.points)
        now, moved = first_kinds(elements), first_kinds(elements, DEPARTURE)
        for after, kinds in enumerate((now, np.where(moved < _CURVED, moved, now))):
            counts[row, :, after] += np.bincount(kinds, minlength=len(GEOMETRY_KINDS))
        basis, rule = make_basis("modified", shape, P), chosen_rule(shape, P, None)
        other = other_rule(shape, P, rule)
        for number, kind in enumerate(GEOMETRY_KINDS):
            found = []
            for points in [rule] if other is None else [rule, other[1]]:
                geometry = BlockGeometry(shape, group.order, elements.given, points, kind)
                problem = BlockProblem(form, Tabulation(basis, points), geometry, np.dtype(np.float64), parameters=lam)
                config, strategy, candidate = next(suited(problem, "auto", "auto", own))
                cost = strategy.cost(candidate)
                if limits is not None:
                    read = with_source(strategy, candidate, None) if strategy.sources else candidate
                    cost = 1e9 * max(cost / limits.flops, operator_bytes(read) / limits.bandwidth)
                found.append((str(config), 1e-9 * cost))
            (choice, seconds), (_, least) = found[0], found[-1]
            rules: dict[str, Any] = {"rule": "collapsed" if rule.tensor else "simplex"} if other else {}
            if other is not None and seconds > GAIN * least > 0:
                rules |= {"faster rule": other[0], "gain": seconds / least}
            expected[row, number] = rules | {"choice": choice}, problem.n_modes, seconds
    rows, dofs, time, whole = [], np.zeros(2), np.zeros(2), mesh.comm.sum(counts)
    for (row, number), (about, modes, seconds) in expected.items():
        cells = whole[row, number]
        dofs, time = dofs + cells * modes, time + cells * seconds
        if cells.any():
            shares = dict(zip(("cells", "straightened"), map(int, cells), strict=True))
            where = {"shape": names[row], "geometry": GEOMETRY_KINDS[number].name}
            rows.append({**where, **about, **shares, "dofs_per_second": modes / seconds})
    source = own.costs_of or f"{own.processor()}, at most, out of cache: the limits of memory and arithmetic"
    return {"source": source, "rows": rows, "dofs_per_second": (dofs / time).tolist()}
