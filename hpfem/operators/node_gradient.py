"""Derivatives of integrals by the nodes of a mesh.

If the nodes move with velocities, the cells move with the velocity V that has the same map as the coordinates, and so
do functions and points of the rule. Then, for an integrand L that reads u, its gradient and the place,

    d/dt int L dx = int (dL/dx . V + E : grad V) dx    with    E_ij = L delta_ij - sum_f dL/d(d_j f) d_i f

(Eshelby's tensor) is the derivative of the sum over points to the last digit, in every order and on every rule. On a
boundary the normal n and the measure move, too: dn_j = (n . grad V n) n_j - (grad V)_ij n_i, d log ds = div V -
n . grad V n. On a surface in space, grad V is tangential and the gradient of f turns with it: n (n . grad V grad f).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hpfem.shapes.arguments import reals, shown
from hpfem.shapes.arrays import Array

from ..backends.base import vectors_on
from ..errors import ArgumentError
from ..forms.derivative import Weak, reverse
from ..forms.evaluate import evaluate
from ..forms.graph import Expression
from ..forms.lowered import lowered
from ..forms.trace import Trace, trace_function
from ..geometry import ElementMap
from ..geometry.jacobians import normal, symmetric_pairs
from ..memory import PairArray, as_numpy
from ..mesh import Mesh
from ..space import Block, ByRegion, Field
from .energy import Energy
from .linearised import checked_function, made_operator, side_by_side, weak_of
from .on_boundary import side_fields
from .sums import OperatorSum, Summable

# Names of fields beside the user's: the normal of a surface, gradients of coefficients, and the velocity.
_NORMAL, _SLOPE, _VELOCITY = ".normal", ".gradient_of_", ".velocity"


def node_gradient(form: Any, u: Field, w: Field | None = None, along: ArrayLike | None = None) -> Array:
    """Differentiate (r(u), w) of a weak form r, or the value of an energy, by the coordinates of the mesh's nodes.

    Coefficients of the basis keep their values, so functions move with the cells. So do fields and numbers by region
    that are coefficients of the form; one that is a function of the coordinates is evaluated where the points go.

    Parameters
    ----------
    form : Operator, BoundaryForm, OperatorSum or Energy
        A weak form or an energy, in the volume or on a boundary, or a sum of these.
    u : Field
        In state "coeff".
    w : Field, optional
        In state "coeff", for a weak form.
    along : array_like, [..., n, D], optional
        Changes of ``mesh.points`` by the parameters of a shape; by default the derivative is by each coordinate.

    Returns
    -------
    ndarray, [n, D] or [...]
        By ``mesh.points``, also those inside of curved cells: where processes share a node, each has the whole
        derivative. Or by the parameters, the same on all processes.

    Raises
    ------
    ArgumentError
        For other objects or shapes, a linearisation, a form on the edge of a surface in space, or a function as a
        coefficient that cannot be differentiated.
    StateError
        If `u` or `w` does not fit.

    Examples
    --------
    >>> slope = hp.node_gradient(hp.Energy(space, lambda du: du.dot(du)), u)  # doctest: +SKIP
    >>> better = mesh.transformed(lambda x: x - step * slope)  # doctest: +SKIP
    """
    if not isinstance(form, (Energy, Summable)):
        raise ArgumentError(f"node_gradient takes a weak form or an Energy, got {shown(form)}")
    if not isinstance(u, Field) or isinstance(form, Energy) != (w is None):
        raise ArgumentError("node_gradient takes a weak form with fields u and w, or an Energy with a field u")
    mesh: Mesh = form.space.mesh
    total: Array = np.zeros(mesh.points.shape)
    with mesh.comm.together():
        for factor, own in _parts(form):
            _add(total, factor, own, u, w)
        changes = total if along is None else reals(along, "along")
        if changes.shape[-2:] != total.shape:
            raise ArgumentError(f"along is an array [..., {len(total)}, {total.shape[1]}], got one of {changes.shape}")
    if along is not None:
        return mesh.comm.sum(np.tensordot(changes, total, 2))
    return total if mesh.part is None else mesh.part.summed(total, mesh.points, mesh.topology)


def _parts(form: Any) -> Iterator[tuple[float, Any]]:
    """What a sum is made of, with factors; of energies the operators of their densities."""
    if isinstance(form, OperatorSum):
        yield from zip(form.factors, form.summands, strict=True)
    elif not isinstance(form, Energy) or not form.parts:
        yield 1.0, getattr(form, "integrand", form)
    else:
        yield from ((factor * number, part) for factor, own in form.parts for number, part in _parts(own))


def change_by_nodes(form: Any, u: Field, change: Any) -> Field:
    """The change of a weak form at u, a functional, if the nodes move by a change of ``mesh.points``, [n, D]."""
    found = []
    for factor, own in _parts(form):
        inner, weak, fields, results = _load(own, False)
        graph, n = weak.graph, own.form.components
        fields[_VELOCITY] = _velocity(inner, change)
        terms = [e * graph.node("input", (), ("field", _VELOCITY, i)) for i, e in enumerate(results)]
        density = Weak(graph, weak.dim, {(0, 0): sum(terms[1:], terms[0])}, 1)
        made = lowered(density.pullback("w", None, n), (("u", n),), f"derivative of {own.name} by nodes")
        operator = made_operator(inner, made, fields)
        found.append(factor * (operator(u) if own.on is None else own.with_inner(operator)(u)))
    return sum(found[1:], found[0])


def _velocity(form: Any, change: Any) -> Field:
    """A velocity of the nodes and its derivatives, D + D D at the points."""
    device, pairs = form.device, []
    xp, mesh, d = vectors_on(device).xp, form.space.mesh, change.shape[1]
    for block in form.space.blocks:
        geometry, out = block.geometry, xp.zeros((d + d * d, block.n_elements, block.n_points), form.space.dtype)
        if block.n_elements:
            groups, rows = (own[block.elements] for own in mesh.aligned_topology.locations)
            moved = ElementMap.of(mesh.aligned[groups[0]], xp.asarray(change, np.float64), rows, xp)
            for chunk in geometry.chunks():
                inverse, _ = geometry.inverse_and_weights(chunk, xp)
                out[:d, chunk] = moved.positions(geometry.values, chunk, xp)
                J = moved.jacobian(geometry.gradient_eta, chunk, xp)
                out[d:, chunk] = xp.einsum("iaeq,ajeq->ijeq", J, inverse).reshape(d * d, *inverse.shape[2:])
        pairs.append(PairArray.of(out, device))
    return Field(form.space, "phys", pairs)


def _add(total: Array, factor: float, form: Any, u: Field, w: Field | None) -> None:
    """Add the derivative of a form or an energy, times a factor; total [n, D]."""
    inner, weak, fields, results = _load(form, w is None)
    n, mesh = form.form.components, form.space.mesh
    given = {"u": u} if w is None else {"u": u, "w": w}
    made = lowered(weak, [(name, n) for name in given], f"derivative of {form.name} by nodes", results)
    operator = made_operator(inner, made, fields)
    device, several = operator.device, w is not None and u.components > n
    for c in range(0, u.components if several else 1, n):  # to each component on its own, if the form has one
        own = [checked_function(form, f[c : c + n] if several else f, n, repr(name)) for name, f in given.items()]
        values = operator(side_by_side(own if form.on is None else [form.on_sides(f) for f in own], operator))
        for block, pair in zip(inner.space.blocks, values.data, strict=True):
            if block.n_elements:
                _add_block(total, factor, mesh, block, pair.read(device), vectors_on(device).xp)


def _load(given: Any, is_density: bool) -> tuple[Any, Weak, dict[str, Field], list[Expression]]:
    """The operator of a form or an energy, its weak form, fields that the derivative reads beside those of the user,
    and the factors of V and of its derivatives by x_j, D + D D.
    """
    form, fields = getattr(given, "inner", given), dict[str, Field]()
    if form.linearisation is not None:
        raise ArgumentError(f"{given.name} is a linearisation, whose numbers at the points have no derivative by nodes")
    if given.space.dim > given.space.mesh.dim:
        if given.on is not None:
            raise ArgumentError(
                f"{given.name} is on the edge {given.on!r} of a surface in space: no derivative by nodes"
            )
        normals = [normal(block.geometry.jacobian(block.geometry.gradient_eta)) for block in form.space.blocks]
        units = [(n / np.linalg.norm(n, axis=0)).astype(form.space.dtype) for n in normals]
        fields[_NORMAL] = form.space.field("phys", units)
    elif given.on is not None:
        fields = side_fields(form.space, given.sides, ("n",))
    weak = Weak.of(form.form.trace) if is_density else weak_of(form)
    graph, D = weak.graph, range(weak.dim)
    zero, sided, turns = graph.constant(0.0), "n" in fields, _NORMAL in fields
    n = [graph.node("input", (), ("field", "n" if sided else _NORMAL, i)) for i in D]
    L = sum([e if is_density else e * weak.function("w", c, i) for (c, i), e in weak.rows.items()], zero)
    bars = reverse(graph, [(L, 1.0)], ())
    force = [bars.get(("x", i), zero) for i in D]
    E = [[L if i == j else zero for j in D] for i in D]
    across = -L if sided else zero  # the factor of n . grad V n
    for (kind, *key), bar in bars.items():
        if kind == "fn" and key[2] > 0:
            slope, k = [weak.function(key[0], key[1], i + 1) for i in D], key[2] - 1
            for i in D:
                E[i][k] -= bar * slope[i]
                E[i] = [E[i][j] + bar * n[k] * n[i] * slope[j] if turns else E[i][j] for j in D]
        elif kind == "field" and sided and key[0] == "n":
            across += bar * n[key[1]]
            for i in D:
                E[i][key[1]] -= bar * n[i]
        elif kind == "field" and form.fields[key[0]].function is not None:
            name = _SLOPE + key[0]
            fields[name] = fields.get(name) or _slopes(form, key[0])
            force = [force[i] + bar * graph.node("input", (), ("field", name, key[1] * len(D) + i)) for i in D]
    return form, weak, fields, [*force, *(E[i][j] + across * n[i] * n[j] for i in D for j in D)]


def _slopes(form: Any, name: str) -> Field:
    """The derivatives by the coordinates of a coefficient that is a function of them, D for each component."""
    d, n, function = form.space.dim, form.fields[name].components, form.fields[name].function
    try:
        if not isinstance(function, ByRegion):
            return form._evaluated(_slope(function, d, n))
        parts = [_slope(own, d, n) if callable(own) else (0.0,) * (n * d) for own in function.values]
        return form._evaluated(function.with_values(parts))
    except ArgumentError as error:
        raise ArgumentError(
            f"coefficient {name!r} of {form.name} is a function without a derivative by the coordinates ({error}); give"
            " it as a field, which moves with the cells"
        ) from error


def _slope(function: Callable[..., Any], dim: int, components: int) -> Callable[..., Any]:
    """The derivatives of a function of the coordinates, D for each component."""
    found, numbers = trace_function(function, dim)
    graph, results = found.graph, found.value or ()
    graph.exact = False
    if components < len(results):  # a symmetric tensor
        results = tuple(results[i * dim + j] for i, j in symmetric_pairs(dim))
    bars = [reverse(graph, [(e, 1.0)], ("x",)) for e in results]
    slopes = tuple(own.get(("x", i), graph.constant(0.0)) for own in bars for i in range(dim))
    made = Trace(graph, dim, len(slopes), slopes)

    def slope(*x: Any) -> list[Any]:
        given = {("x", i): own for i, own in enumerate(x)} | {("param", name): n for name, n in numbers.items()}
        values = evaluate(made, given.__getitem__)
        return [values[e.index] for e in slopes]

    return slope


def _add_block(total: Array, factor: float, mesh: Mesh, block: Block, values: Any, xp: Any) -> None:
    """Add the integrals of a block's values times the nodes' functions; values [D + D D, E, Q], total [n, D]."""
    geometry, d = block.geometry, len(total[0])
    basis, gradient = xp.asarray(geometry.values.T), xp.asarray(geometry.gradient_eta.transpose(0, 2, 1))
    groups, rows = (own[block.elements] for own in mesh.aligned_topology.locations)
    nodes = mesh.aligned[groups[0]].nodes[rows]
    for chunk in geometry.chunks():
        inverse, weights = geometry.inverse_and_weights(chunk, xp)
        own = values[:, chunk] * weights
        modes, stress = own[:d] @ basis, own[d:].reshape(d, d, *weights.shape)
        for a, row in enumerate(inverse):
            modes += (stress * row).sum(axis=1) @ gradient[a]
        loads = factor * as_numpy(geometry.loads_of_nodes(modes, xp))
        for i in range(d):
            total[:, i] += np.bincount(nodes[chunk].ravel(), loads[i].ravel(), len(total))
