"""Between coefficients and values at the points: the backward transform, and the elementwise L2 projection.

The normal equations of the modified basis lose digits (condition 2e10 on hexes at P = 10), so the mass system of the
projection is solved in the orthogonal basis, whose mass matrix is near diagonal: conjugate gradients on all elements at
once, each with its own step lengths, preconditioned by the reference diagonal. The result is then expressed in the
block's basis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes import Basis, Shape, Tabulation, default_counts, make_basis, quadrature
from hpfem.shapes.arrays import Array
from hpfem.shapes.tabulation import interpolation

from ..backends.base import BACKENDS, Backend, choose_backend, vectors_on
from ..errors import ArgumentError, DeviceError, SolverError, StateError
from ..forms import Pointwise
from ..forms.form import BWD_TRANS, IPRODUCT_WRT_BASE, BlockKernel, BlockProblem, Form
from ..forms.trace import trace
from ..memory import HOST, Device, OutOfMemory, PairArray
from ..tuning.select import AUTO, ByShape, agree, asked_by_shape, choose, choose_else_auto, is_auto
from .block import Block
from .field import Field, FieldSpace, check_state, held_by_fields, lost_function

TOLERANCE = 4e-15
MAX_ITERATIONS = 200
WORTH_COMPILING = 200_000


def _mass(u: Any) -> Any:
    return u


@cache
def _orthogonal_norms(shape: Shape, order: int) -> Array:
    """Diagonal of the orthogonal basis' mass matrix on the reference shape."""
    rule = quadrature(shape, [order + 1] * shape.dim, ["gauss"] * shape.dim)
    values = make_basis("orthogonal", shape, order).evaluate(shape.collapse(rule.eta))
    return (values**2) @ rule.weights


@cache
def _conversion(basis: Basis) -> tuple[Any, Any]:
    """LU factors of the matrix whose columns are a basis' modes in the orthogonal basis."""
    from scipy.linalg import lu_factor

    rule = quadrature(basis.shape, [basis.order + 1] * basis.shape.dim, ["gauss"] * basis.shape.dim)
    xi = basis.shape.collapse(rule.eta)
    orthogonal = make_basis("orthogonal", basis.shape, basis.order).evaluate(xi)
    moments = (orthogonal * rule.weights) @ basis.evaluate(xi).T
    return lu_factor(moments / _orthogonal_norms(basis.shape, basis.order)[:, None])


def converted(basis: Basis, columns: NDArray[Any], transposed: bool = False) -> NDArray[Any]:
    """Solve with the matrix of a basis' modes in the orthogonal basis; columns [n_modes, n] -> [n_modes, n]."""
    factors, pivots = _conversion(basis)
    # LAPACK's wrapper changes the pivots in place while it works: other threads must not see that.
    from scipy.linalg import lu_solve

    return lu_solve((factors, pivots.copy()), columns, trans=int(transposed), check_finite=False)


def result_field(space: FieldSpace, name: str, state: str, components: int, out: Field | None) -> Field:
    """Make the field for a result, or check the one that the caller gives."""
    if out is None:
        return space.empty(state, components)
    if not isinstance(out, Field):
        raise StateError(f"out of {name} must be a Field, got {type(out).__name__}")
    if out.space is not space or out.state != state or out.components != components:
        raise StateError(f"out of {name} must be a {state!r} field with {components} component(s) on the same space")
    return out


def no_room(
    space: FieldSpace, number: int, form: Form, components: int, device: Device, error: OutOfMemory
) -> DeviceError:
    """Error that says how many elements, or which order or dtype, there is room for."""
    block = space.blocks[number]
    problem = BlockProblem(form, block.tabulation, block.geometry, space.dtype)
    numbers = components * problem.n_input + problem.components_out(components) * problem.n_output
    kind = form.factor_kind
    if kind is not None:
        numbers += block.geometry.n_factors(kind) * block.geometry.n_points(kind)
    per_element = numbers * space.dtype.itemsize
    held = held_by_fields(space, number).get(device.name, 0)
    for name in BACKENDS:
        held += sum(BACKENDS[name].held(block.geometry).get(device.name, {}).values())
    # The estimate is without scratch memory; the array that had no room includes it.
    share = min((error.free + held) / (per_element * block.n_elements), error.free / max(error.needed, 1))
    fitting = int(share * block.n_elements)
    ways = [f"about {fitting:,} of its {block.n_elements:,} elements"]
    points = {p: float(np.prod(default_counts(block.shape, p))) for p in range(1, block.order + 1)}
    orders = [p for p in points if points[p] <= share * points[block.order]]
    if orders:
        ways.append(f"all of them at order {orders[-1]}")
    if space.dtype == np.float64:
        single = min(2 * fitting, block.n_elements)
        ways.append("all of them" if single == block.n_elements else f"{single:,} of them")
        ways[-1] += " in float32"
    return DeviceError(
        f"{form.name} on block {number}, {block!r}: {error}. The operator with an argument and a result takes"
        f" {per_element * block.n_elements / 1e9:.3g} GB; there is room for {', or for '.join(ways)}"
    )


def apply_kernels(kernels: Sequence[BlockKernel], field: Field, out: Field, device: Device) -> None:
    """Apply a kernel to each block of a field."""
    number = 0
    try:
        for number, kernel in enumerate(kernels):
            kernel.apply(field.data[number].read(device), out.data[number].write(device))
    except BaseException as error:
        out.discard()
        if isinstance(error, OutOfMemory):
            form = kernels[number].problem.form
            raise no_room(field.space, number, form, field.components, device, error) from error
        raise


class Evaluated(Field):
    """Values at points, made of functions, `times` anew: `again` makes them at the points of another space."""

    times = 0

    def __init__(self, field: Field, again: Callable[[Any], Field]) -> None:
        super().__init__(field.space, field.state, field.data)
        self.again = again


def resampled(field: Field, space: FieldSpace, device: Device) -> Field:
    """Copy values, at the points of another space on the same cells, of the polynomials through a field's values; if it
    is known what these were made of, make them of that.
    """
    if isinstance(field, Evaluated):
        return field.again(space)
    xp, pairs = vectors_on(device).xp, []
    for pair, old, new in zip(field.data, field.space.blocks, space.blocks, strict=True):
        values = pair.read(device)
        if old.rule.key != new.rule.key:
            matrix = interpolation(old.tabulation, new.rule)
            least, most = values.min(axis=2, keepdims=True), values.max(axis=2, keepdims=True)
            values = xp.clip(values @ xp.asarray(matrix.T.astype(values.dtype)), least, most)
        pairs.append(PairArray.of(xp.array(values, space.dtype, order="C"), device))
    made = Field(space, "phys", pairs)
    made.function = None if field.function is None else lost_function
    return made


def backward_transform(field: Field, backend: Backend | None = None) -> Field:
    """Values at the quadrature points."""
    check_state(field, "coeff", "BwdTrans")
    space, backend = field.space, backend or choose_backend(field.space.backend)
    problems = [BlockProblem(BWD_TRANS, block.tabulation, block.geometry, space.dtype) for block in space.blocks]
    kernels = [choose(problem, "auto", "auto", backend).kernel for problem in problems]
    out = field.like("phys")
    apply_kernels(kernels, field, out, backend.device())
    return out


class BlockProjection:
    """L2 projection on the elements of a block; a backend on the host serves where compiling pays."""

    def __init__(self, block: Block, asked: tuple[str, str], backend: Backend) -> None:
        if not block.rule.resolves(block.order):
            raise ArgumentError(
                f"FwdTrans of order {block.order} on {block.shape.name} needs at least {block.order + 1} points in each"
                f" direction, the rule has {block.rule.counts}: the mass matrix is singular; use more points"
            )
        tabulation = Tabulation(make_basis("orthogonal", block.shape, block.order), block.rule)
        # Compiling takes longer than a small block's projection.
        if block.n_elements * block.n_modes <= WORTH_COMPILING and asked == AUTO:
            backend = choose_backend("numpy")
        mass = Form.weak("Mass", trace(Pointwise(_mass, ("value",)), block.geometry.space_dim))
        problems = [
            BlockProblem(form, tabulation, block.geometry, np.dtype(np.float64)) for form in (mass, IPRODUCT_WRT_BASE)
        ]
        choices = [choose_else_auto(problem, *asked, backend) for problem in problems]
        self._mass, self._iproduct = [choice.kernel for choice in choices]
        self.asked, self.refusals = asked, [choice.refusal for choice in choices]
        self._diagonal = block.geometry.volumes()[:, None] / block.shape.volume
        self._diagonal = self._diagonal * _orthogonal_norms(block.shape, block.order)
        self.block = block

    def moments(self, values: Array, functional: bool) -> Array:
        """Inner products with the orthogonal basis; values [components, E, Q or n_modes] -> [.., n_modes]."""
        if functional:
            columns = converted(self.block.basis, values.reshape(-1, self.block.n_modes).T, transposed=True)
            return np.ascontiguousarray(columns.T).reshape(values.shape)
        moments = np.empty((*values.shape[:2], self.block.n_modes))
        self._iproduct.apply(values, moments)
        return moments

    def coefficients(self, moments: Array, name: str) -> Array:
        """Coefficients of the functions with these inner products; moments [components, E, n_modes] -> same."""
        largest = np.abs(moments).max(initial=0.0)
        if not np.isfinite(largest):
            cell = self.block.elements[np.argmin(np.isfinite(moments).all(axis=(0, 2)))]
            raise StateError(f"{name} got a field that is not finite in cell {cell} ({self.block.shape.name})")
        unit = 2.0 ** np.clip(np.frexp(largest)[1], -1000, 1000)  # squares of values of any size
        columns = self._solve(moments / unit).reshape(-1, self.block.n_modes).T
        return unit * converted(self.block.basis, columns).T.reshape(moments.shape)

    def _solve(self, rhs: Array) -> Array:
        """Conjugate gradients on all elements at once."""
        block, diagonal = self.block, self._diagonal
        x = rhs / diagonal
        product = np.empty_like(rhs)
        self._mass.apply(x, product)
        residual = rhs - product
        z = residual / diagonal
        direction = z.copy()
        rho = np.einsum("cem,cem->ce", residual, z)
        target = TOLERANCE**2 * np.einsum("cem,cem->ce", rhs, rhs / diagonal)
        for _ in range(MAX_ITERATIONS):
            active = rho > target
            if not active.any():
                return x
            self._mass.apply(direction, product)
            curvature = np.einsum("cem,cem->ce", direction, product)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = np.where(active, rho / curvature, 0.0)[..., None]
            if not np.isfinite(step).all():
                break
            x += step * direction
            residual -= step * product
            np.divide(residual, diagonal, out=z)
            fresh = np.einsum("cem,cem->ce", residual, z)
            ratio = np.where(active, fresh / np.where(rho > 0, rho, 1.0), 0.0)[..., None]
            direction = z + ratio * direction
            rho = fresh
        if np.all(rho <= 1e6 * target):
            return x
        worst = int(block.elements[np.argmax(np.max(rho - 1e6 * target, axis=0))])
        raise SolverError(
            f"FwdTrans: the mass system of cell {worst} ({block.shape.name}, P={block.order}, points"
            f" {block.rule.counts}) did not converge; use more quadrature points"
        )


class ForwardTransform:
    """Elementwise L2 projection of values at the points to coefficients, in float64 on a backend of the host."""

    name = "FwdTrans"
    input_state, output_state = "phys", "coeff"

    def __init__(
        self, space: FieldSpace, strategy: ByShape = "auto", algorithm: ByShape = "auto", backend: str | None = None
    ) -> None:
        if not hasattr(space, "blocks"):
            raise ArgumentError(f"FwdTrans is made on a Space, got {type(space).__name__}")
        self.space: Any = space
        self.target: Any = space
        self.strategy, self.algorithm = strategy, algorithm
        self.backend = choose_backend(space.backend if backend is None else backend)
        if is_auto(strategy, algorithm):
            self._make_projections()
            return
        with space.comm.together():
            self._make_projections()
        made = [own for own in self._projections if own.block.n_elements]
        agree(self.name, space.comm, ((own.asked, text, text) for own in made for text in own.refusals))

    def _make_projections(self) -> None:
        backend = self.backend if self.backend.device().name == HOST.name else choose_backend("auto")
        ways = asked_by_shape(self.strategy, self.algorithm, backend)
        self._projections = [BlockProjection(block, ways[block.shape.name], backend) for block in self.space.blocks]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_projections"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_projections()

    def apply_to_field(self, field: Field, out: Field | None = None) -> Field:
        """Solve the mass system of every element."""
        if field.space is not self.space:
            raise StateError(f"{self.name} takes a field on its own space")
        check_state(field, self.input_state, self.name)
        out = result_field(self.space, self.name, self.output_state, field.components, out)
        try:
            for projection, source, target in zip(self._projections, field.data, out.data, strict=True):
                values = np.ascontiguousarray(source.read(HOST), dtype=np.float64)
                moments = projection.moments(values, self.input_state == "dual")
                target.write(HOST)[...] = projection.coefficients(moments, self.name)
        except BaseException:
            out.discard()
            raise
        return out
