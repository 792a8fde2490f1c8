"""Mean diffusion and reaction of every cell, and classes of cells with similar means.

In local coordinates xi the energy of a cell, with mean coefficients, is sum_ij S_ij (du/dxi_i, du/dxi_j) + m (u, u):
S is the mean of k |J| J^-1 J^-T, m that of lam |J|. Functions of low energy are made for classes of S and m, which are
those of the whole mesh on every process, so that functions of neighbouring cells agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import SHAPES, Shape, equispaced_nodes, quadrature
from hpfem.shapes.arrays import Array
from hpfem.shapes.low_energy import regular_jacobian
from hpfem.shapes.overlap import thin

from ...assembly.entries import pointwise_chunks, pointwise_matrix
from ...errors import NotSuitable
from ...forms.linear import component_matrix
from ...geometry.jacobians import determinant, determinant_and_inverse, symmetric_pairs
from ...memory import as_numpy, every, moved, xp_for
from ...operators import Operator
from ...space.block import Block
from ...support.communicator import Communicator

# Ratio of lengths within a class, and where solid cells would have many classes and none is thin; how many these are;
# the largest ratio that is distinguished, and the maximum of classes of a shape.
SPREAD, WIDE, MANY, CAP, MOST_CLASSES = 2.0, 2.75, 12, 64.0, 32
# Of the values of each process, for the median of all.
_QUANTILES = 101
# Reaction over diffusion beyond which diffusion is neglected in the energy.
_REACTION = 1e6
# Of a determinant, relative to the largest one of matrices of that trace.
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class Energies:
    """Mean energies of the cells of a block, and their classes."""

    shape: Shape
    means: Any  # S and m where the operator computes, [E, dim^2 + 1]
    class_of: NDArray[np.int64]  # of each cell, [E]
    classes: list[tuple[Array, float]]  # S [dim, dim] and m of each, up to a factor; the first is of regular cells

    def told(self, of_class: Callable[[Shape, Array], Any]) -> NDArray[np.bool_]:
        """What is told of each cell by the S of its class; -> [E, ...]."""
        found = np.array([of_class(self.shape, S) for S, _ in self.classes])
        if (found == found[0]).all():
            return np.broadcast_to(found[0], (*self.class_of.shape, *found.shape[1:]))
        return np.asarray(found[self.class_of])


def cell_energies(operator: Operator, component: int, xp: Any) -> list[Energies]:
    """Mean energies of the cells of a process, and their classes; collective."""
    space, comm = operator.space, operator.space.comm
    with comm.together():
        means = [_means(operator, number, component, xp) for number in range(len(space.blocks))]
    of_shape: dict[str, list[int]] = {name: [] for name in space.orders}
    for number, block in enumerate(space.blocks):
        of_shape[block.shape.name].append(number)
    found, made = dict[int, list[Energies]](), list[tuple[Shape, Array]]()
    for name, own in of_shape.items():
        there = xp_for(sum(means[number].size for number in own), xp)
        parts = [as_numpy(means[number]) if there is np else means[number] for number in own]
        by_spread, classes = _classified(SHAPES[name], parts, comm, there)
        for number, *each in zip(own, *by_spread, strict=True):
            found[number] = [replace(new, means=means[number]) for new in each]
        made += [(SHAPES[name], S) for S in classes]
    wide = space.mesh.dim == 3 and len(made) >= MANY and not any(thin(*own) for own in made)
    return [found[number][wide] for number in range(len(space.blocks))]


def refreshed(
    energies: Sequence[Sequence[Energies]], operator: Operator, matrices: Sequence[Any], xp: Any
) -> list[list[Energies]]:
    """The same classes, of each component, with the present means of an operator with these `element_matrices` of order
    1; collective.
    """
    trace = operator.form.trace
    assert trace is not None
    # Without other terms these are the energies of coordinates.
    of_gradients = all(i and j for c in range(len(energies)) for i, j in component_matrix(trace, c)[1])
    found = [list(own) for own in energies]
    with operator.space.comm.together():
        for number, block in enumerate(operator.space.blocks):
            for c, own in enumerate(found):
                given = matrices[number][c, :, c]
                means = _of_coordinates(block, given, xp) if of_gradients else _means(operator, number, c, xp)
                _elliptic(block.shape, means, xp)
                own[number] = replace(own[number], means=means)
    return found


def _of_coordinates(block: Block, matrices: Any, xp: Any) -> Any:
    """S and m = 0 of the cells of a block, [E, dim^2 + 1]; matrices [n_modes, E, n_modes]."""
    nodes, d = np.asarray(equispaced_nodes(block.shape, 1)), block.shape.dim
    xi = xp.asarray(np.linalg.solve(block.basis.evaluate(nodes).T, nodes).astype(np.float64))
    means = xp.zeros((block.n_elements, d * d + 1))
    means[:, :-1] = xp.tensordot(matrices @ (xi / block.rule.weights.sum()), xi, (0, 0)).reshape(-1, d * d)
    return means


def _means(operator: Operator, number: int, component: int, xp: Any) -> Any:
    """S and m of the cells of a block, [E, dim^2 + 1]."""
    block = operator.space.blocks[number]
    shape, geometry, d = block.shape, block.geometry, block.shape.dim
    if geometry.affine:
        geometry = geometry.on_rule(quadrature(shape, [1] * d, ["gauss"] * d))
    rule = geometry.rule
    X, weights = shape.collapse_matrix(rule.eta), rule.weights.sum()
    means = xp.zeros((block.n_elements, d * d + 1))
    tables: dict[tuple[int, int], Any] = {}
    for some in pointwise_chunks(block.geometry, block.n_elements, xp):
        for (a, b), values in pointwise_matrix(operator, number, component, some, xp, geometry).items():
            if (a == 0) != (b == 0):
                continue  # terms of first order have no energy
            if (a, b) not in tables:
                table = np.zeros((len(rule), d * d + 1))
                if a == 0:
                    table[:, -1] = 1
                else:
                    outer = X[:, :, a - 1, None] * X[:, None, :, b - 1]
                    table[:, :-1] = (outer if a == b else outer + outer.swapaxes(1, 2)).reshape(-1, d * d)
                tables[a, b] = moved(table / weights, xp)
            means[some] += xp.broadcast_to(values, (len(means[some]), len(rule))) @ tables[a, b]
    return means


def _classified(
    shape: Shape, parts: Sequence[Any], comm: Communicator, xp: Any
) -> tuple[list[list[Energies]], list[Array]]:
    """Classes of cells: the cell farthest from all classes starts a new class, until no cell is far. Parts with those
    of `SPREAD`, and of `WIDE`; and the S of the former.
    """
    d, counts = shape.dim, [len(part) for part in parts]
    n = sum(counts)
    with comm.together():
        given = _coordinates(shape, xp.concatenate([xp.zeros((0, d * d + 1)), *parts]), xp)
    # tr(A C^-1) + tr(C A^-1) - 2 d, the distance of A and C, 0 if they are equal, as one matrix product.
    pairs = symmetric_pairs(d)
    twice = np.array([1.0 if i == j else 2.0 for i, j in pairs])
    far = [4 * (r + 1 / r - 2) if d > 1 else 2 * (r**2 + r**-2 - 2) for r in (SPREAD, WIDE)]
    r, regular = _median(given[-2], comm, xp), twice == 1
    centres = [np.concatenate([regular, regular, [r, 1 / r]])]
    nearest, own, found = xp.full(n, xp.inf), xp.zeros(n, dtype=np.int64), list[tuple[Any, int]]()
    while True:
        C, inverse_of_C, rest = np.split(centres[-1], [len(pairs), 2 * len(pairs)])
        distance = xp.asarray(np.concatenate([inverse_of_C * twice, C * twice, rest[::-1]])) @ given
        distance -= 2 * (d + 1)
        own[distance < nearest] = len(centres) - 1
        xp.minimum(distance, nearest, out=nearest)
        farthest = int(nearest.argmax()) if n else 0
        here = (float(nearest[farthest]), as_numpy(given[:, farthest])) if n else (-1.0, None)
        most, centre = max(comm.allgather(here), key=lambda cell: cell[0])
        ended = centre is None or len(centres) == MOST_CLASSES
        while far and (ended or most <= far[-1]):
            far.pop()
            found.append((np.split(as_numpy(own).copy(), np.cumsum(counts)[:-1])[: len(parts)], len(centres)))
        if centre is None or not far:
            break
        centres.append(centre)
    back = np.linalg.inv(regular_jacobian(shape))
    full = np.array([[pairs.index((min(i, j), max(i, j))) for j in range(d)] for i in range(d)])
    classes = [(back @ c[full] @ back.T, float(c[-2] - 1)) for c in centres]
    of_part = [[Energies(shape, *both, classes[:n]) for both in zip(parts, some, strict=True)] for some, n in found]
    return of_part[::-1], [S for S, _ in classes]


def _elliptic(shape: Shape, means: Any, xp: Any) -> tuple[Any, Any, Any]:
    """S in regular cells [dim, dim, E], its determinant, and m of elliptic cells, [E]."""
    d, R, m = shape.dim, regular_jacobian(shape), means[:, -1]
    S = (xp.asarray(np.kron(R, R)) @ means[:, :-1].T).reshape(d, d, len(means))
    trace, size = xp.trace(S), determinant(S, xp)
    elliptic = (size >= -_ROUNDING * trace**d) & (trace >= 0) & (m >= 0) & xp.isfinite(size)
    if not every(elliptic):
        raise NotSuitable("the form is not elliptic in every cell: multigrid is for diffusion with k > 0 and lam >= 0")
    return S, xp.maximum(size, 0), m


def _coordinates(shape: Shape, means: Any, xp: Any) -> Any:
    """Entries of S over its size and of its inverse, then the reaction and its inverse, [., E]."""
    (S, size, m), d = _elliptic(shape, means, xp), shape.dim
    scale = xp.maximum(size ** (1 / d), m / _REACTION)
    scale = xp.where(scale > 0, scale, 1)
    # Ratios beyond the cap, for which there are no tables of functions, are reduced to the cap.
    level = xp.trace(S) / (d * scale * CAP**2) + 1e-12
    S = S / scale + level * xp.eye(d)[:, :, None]
    product, inverse = determinant_and_inverse(S, xp)
    size, reaction = product ** (1 / d), 1 + m / scale
    pairs = symmetric_pairs(d)
    return xp.stack(
        [*(S[pair] / size for pair in pairs), *(inverse[pair] * size for pair in pairs), reaction, 1 / reaction]
    )


def _median(values: Any, comm: Communicator, xp: Any) -> float:
    """Median over all processes, the lower one, by quantiles of each; 1 where there are none; collective."""
    n = len(values)
    if comm.size == 1:
        return float(xp.partition(values, (n - 1) // 2)[(n - 1) // 2]) if n else 1.0
    own = as_numpy(xp.sort(values))[np.linspace(0, n - 1, _QUANTILES).astype(int)] if n else np.empty(0)
    found = comm.allgather((own, np.full(len(own), float(n))))
    quantiles, weights = (np.concatenate([part[i] for part in found]) for i in (0, 1))
    if not len(quantiles):
        return 1.0
    order = np.argsort(quantiles)
    below = np.cumsum(weights[order])
    return float(quantiles[order][np.searchsorted(below, below[-1] / 2)])
