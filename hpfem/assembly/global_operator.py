"""Global operators: Q^T A Q without a matrix, as SciPy's LinearOperator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, block_diag, csr_array, diags_array
from scipy.sparse.linalg import LinearOperator

from hpfem.shapes.arguments import flag, instance, integer, shown
from hpfem.shapes.cached import cached_property

from ..backends.vectors import VectorSpace
from ..errors import ArgumentError, StateError
from ..forms.form import BlockKernel
from ..forms.linear import is_symmetric
from ..memory import HOST, Device, PerDevice
from ..operators import Operator
from ..space.arguments import MAX_COMPONENTS
from .boundary import BoundaryConditions
from .c0 import C0Space
from .entries import block_diagonal, diagonal, element_matrices, is_positive
from .product import Product
from .symmetry import seems_symmetric

Array = NDArray[np.float64]

_MOST_ENTRIES = 400_000_000


class GlobalOperator(LinearOperator):  # type: ignore[misc]
    """An operator between the continuous functions of a space and their dual: Q^T A Q.

    A vector has the components one after the other: [components * size].

    Parameters
    ----------
    operator : Operator
        A weak form on the space: Mass, Laplacian, Helmholtz, AdvectionDiffusionReaction, WeakForm.
    c0 : C0Space
    bc : BoundaryConditions, optional
        The degrees of freedom with Dirichlet values are taken out: their rows and columns are those of the identity, so
        that a symmetric positive definite operator stays one. Robin conditions add their boundary mass.
    components : int, optional
        Components of the vectors; by default those that the operator couples.

    Raises
    ------
    ArgumentError
        If the operator, the C0 space and the conditions are not on the same space, or the operator is no weak form.
    """

    def __init__(
        self, operator: Operator, c0: C0Space, bc: BoundaryConditions | None = None, components: int | None = None
    ) -> None:
        if hasattr(operator, "on"):
            raise ArgumentError(
                f"{operator.name} is a weak form on a boundary, which a GlobalOperator does not take; give its"
                " coefficient as robin of the BoundaryConditions, or apply it by itself and add the results"
            )
        if not isinstance(operator, Operator) or (operator.form.source, operator.form.sink) != ("coeff", "dual"):
            raise ArgumentError("a GlobalOperator is made of a weak form such as Mass, Laplacian or Helmholtz")
        if not isinstance(c0, C0Space) or operator.space is not c0.space:
            raise ArgumentError("the operator and the C0Space are not on the same space")
        if bc is not None and instance(bc, BoundaryConditions, "bc").c0 is not c0:
            raise ArgumentError("the boundary conditions are for another C0Space")
        coupled = operator.form.components
        components = coupled if components is None else integer(components, 1, "components", MAX_COMPONENTS)
        if components % coupled:
            raise ArgumentError(f"{operator.name} couples {coupled} components, {components} is no multiple of it")
        if bc is not None:
            bc.fixed(components)
        self.operator, self.c0, self.bc = operator, c0, bc
        self.components = components
        n = self.components * c0.size
        super().__init__(operator.space.dtype, (n, n))
        self._products: PerDevice[Product] = PerDevice()

    def __reduce__(self) -> tuple[Any, ...]:
        return GlobalOperator, (self.operator, self.c0, self.bc, self.components)

    def __repr__(self) -> str:
        return f"GlobalOperator({self.operator!r}, {self.shape[0]} dofs)"

    @property
    def device(self) -> Device:
        """Where the operator's kernels compute."""
        return self.operator.device

    @property
    def vectors(self) -> VectorSpace:
        """Vectors where the operator's kernels compute."""
        return self.c0.vectors_on(self.device)

    def apply(self, vector: Any, device: Device = HOST) -> Any:
        """Apply to a vector on a device; nothing is transferred if it is the operator's own.

        Parameters
        ----------
        vector : array, [components * size]
            On `device`.
        device : Device

        Returns
        -------
        array, [components * size]
            On `device`.

        Raises
        ------
        ArgumentError
            If the vector has another size, or is not of real numbers.
        """
        product = self.product_on(device)
        vector = product.vectors.checked(vector, "a vector")
        if vector.size != self.shape[0]:
            raise ArgumentError(f"a vector of {self!r} has {self.shape[0]} entries, got {shown(vector)}")
        return product(vector)

    def product_on(self, device: Device) -> Product:
        """The product with vectors on a device; it is made once.

        Parameters
        ----------
        device : Device

        Returns
        -------
        Product
        """
        return self._products.get(device, lambda: self._new_product(self.c0.vectors_on(device)))

    def _new_product(self, vectors: VectorSpace) -> Product:
        bc, extra, fixed, free = self.bc, None, None, np.ones(self.c0.size, dtype=bool)
        if bc is not None and bc.differ:
            fixed = vectors.from_host(bc.constrained)
        elif bc is not None:
            free = bc.free
        if bc is not None and bc.matrix is not None:
            keep = diags_array(free.astype(self.dtype))
            extra = vectors.sparse(csr_array(keep @ bc.matrix.astype(self.dtype) @ keep))
        restriction = (self.c0 if bc is None else bc).restriction(vectors.device)
        constrained = np.flatnonzero(~free)
        backend, Q = self.operator.backend, self.c0.block_matrix

        def whole(kernels: Sequence[BlockKernel]) -> Callable[[Any], Any] | None:
            found = backend.product(kernels, Q) if Q.size else None
            return None if found is None else lambda vector: found(vector, constrained)

        here = vectors.device.name == self.device.name
        return Product(
            self.operator, restriction, self.components, vectors, extra, whole if here else None, fixed, constrained
        )

    def on_device(self) -> Any:
        """The same operator on arrays of its device, for solvers of their library, such as `cupyx.scipy.sparse.linalg`.

        Returns
        -------
        LinearOperator
            Of `cupyx.scipy.sparse.linalg` on a GPU.

        Raises
        ------
        ArgumentError
            If the operator computes on the host.
        """
        if self.device.name == HOST.name:
            raise ArgumentError(f"{self.operator.name} computes on the host; make its space with the backend of a GPU")
        return self.vectors.linear_operator(self.shape, lambda x: self.apply(x.ravel(), self.device), self.dtype)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        x = np.asarray(x)
        if np.iscomplexobj(x):
            raise StateError("a GlobalOperator applies to real vectors; apply it to the two parts of a complex one")
        return self.apply(np.ascontiguousarray(x, self.dtype).ravel())

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        if not self.symmetric:
            raise StateError(f"{self.operator.name} is not symmetric and has no transpose here; use assemble().T")
        return self._matvec(x)

    @cached_property
    def symmetric(self) -> bool:
        """Whether it is symmetric: by its form, else on random vectors (`seems_symmetric`); collective."""
        by_form = self.c0.space.comm.all(is_symmetric(self.operator.form.trace))  # tensors may differ by process
        return by_form or seems_symmetric(self.vectors, self.product_on(self.device), self.shape[0], self.dtype)

    def is_positive(self) -> bool:
        """Tell whether (u, A u) >= 0 for all u, by the present coefficients at all points; collective.

        Returns
        -------
        bool
            False also if it is unknown: a coefficient of the form or of a Robin condition is negative somewhere, the
            form is not linear, or it has terms of first order whose effect is unknown.
        """
        here = (self.bc is None or self.bc.positive) and is_positive(self.operator, self.vectors.xp)
        return self.vectors.comm.all(here)

    def elliptic_part(self) -> GlobalOperator:
        """Make the operator of the form's diffusion and reaction (`hpfem.forms.linear.elliptic_part`).

        It is symmetric positive semidefinite if the diffusion is. Multigrid for this part is a preconditioner of
        operators that are not symmetric positive definite.

        Returns
        -------
        GlobalOperator
            With the same Dirichlet conditions, and with the Robin conditions if these are positive.

        Raises
        ------
        NotSuitable
            If the form is not linear, or has neither diffusion nor reaction.
        """
        bc = self.bc
        if bc is not None and not bc.positive:
            bc = copy(bc)
            bc.matrix, bc.positive = None, True
        return GlobalOperator(self.operator.elliptic_part(), self.c0, bc, self.components)

    def diagonal(self, elliptic: bool = False) -> Array:
        """Diagonal, made without assembling (`entries`).

        Parameters
        ----------
        elliptic : bool
            Whether to take only diffusion, the absolute value of the reaction, and Robin conditions that are positive.

        Returns
        -------
        ndarray, [components * size]
        """
        return np.asarray(self.vectors.to_host(self.diagonal_on_device(flag(elliptic, "elliptic"))))

    def diagonal_on_device(self, elliptic: bool = False) -> Any:
        """Diagonal on the device of the operator; see `diagonal`.

        Parameters
        ----------
        elliptic : bool

        Returns
        -------
        array of float64, [components * size]
        """
        vectors, xp = self.vectors, self.vectors.xp
        restriction = self.c0.restriction(self.device)
        rows = diagonal(self.operator, self.c0.block_matrix, restriction, vectors, elliptic)
        rows = xp.tile(rows, (self.components // len(rows), 1))
        if self.bc is not None and self.bc.matrix is not None and (self.bc.positive or not elliptic):
            rows += vectors.from_host(self.bc.matrix.diagonal())
        if self.c0.space.comm.size > 1:
            rows = xp.array(vectors.from_host(self.c0.vectors_on(HOST).summed(vectors.to_host(rows))))
        if self.bc is not None:
            rows[vectors.from_host(self.bc.fixed(self.components))] = 1.0
        return rows.ravel()

    def assemble(self) -> csr_array:
        """The matrix, for small problems and tests; of processes that share the mesh, the part from their own cells.

        Returns
        -------
        csr_array, [components * size, components * size]

        Raises
        ------
        ArgumentError
            If it would take more than 400 million entries before they are summed.
        """
        coupled, blocks = self.operator.form.components, self.c0.space.blocks
        entries = sum(block.n_elements * (coupled * block.n_modes) ** 2 for block in blocks)
        if entries > _MOST_ENTRIES:
            raise ArgumentError(f"assembling would take {entries} entries; apply the operator without its matrix")
        vectors = self.vectors if self.c0.block_matrix.signed else self.c0.vectors_on(HOST)
        found = [element_matrices(self.operator, number, vectors) for number in range(len(blocks))]

        def part(i: int, j: int) -> csr_array:
            """The block of the matrix that takes component j to component i."""
            own = [
                m[:, i * b.n_modes : (i + 1) * b.n_modes, j * b.n_modes : (j + 1) * b.n_modes]
                for m, b in zip(found, blocks, strict=True)
            ]
            matrix = _gathered(own, self.c0, vectors)
            return matrix if i != j or self.bc is None or self.bc.matrix is None else matrix + self.bc.matrix

        matrix = csr_array(block_array([[part(i, j) for j in range(coupled)] for i in range(coupled)]))
        copies = self.components // coupled
        if copies > 1:
            matrix = csr_array(block_diag([matrix] * copies))
        if self.bc is not None and self.bc.constrained.any():
            free = ~self.bc.fixed(self.components).ravel()
            keep = diags_array(free.astype(float))
            matrix = csr_array(keep @ matrix @ keep + diags_array((~free).astype(float)))
        return matrix

    def right_hand_side(self, functional: Any) -> Any:
        """The right-hand side of a system with the operator's conditions; its solution has the Dirichlet values.

        Parameters
        ----------
        functional : array, [components * size] or [components, size]
            (f, v) for the functions v, as `C0Space.gather` makes it; on the host or where the operator computes.

        Returns
        -------
        array, [components * size]
            Where the operator computes, in float64: with boundary data added and Dirichlet values taken to the right.

        Raises
        ------
        ArgumentError
            If the vector has another size, or is not of real numbers.

        Examples
        --------
        >>> A = hp.GlobalOperator(elasticity, c0, bc)  # doctest: +SKIP
        >>> u, info = hp.cg(A, A.right_hand_side(np.zeros(A.shape[0])))  # doctest: +SKIP
        """
        vectors, bc = self.vectors, self.bc
        rows = vectors.xp.asarray(vectors.checked(functional, "the functional of a right-hand side"), np.float64)
        if rows.size != self.shape[0]:
            raise ArgumentError(f"a functional of {self!r} has {self.shape[0]} entries, got {shown(functional)}")
        if bc is None:
            return rows.reshape(-1)
        size = self.components, self.c0.size
        load, values, fixed = (
            vectors.xp.asarray(np.broadcast_to(a, size)) for a in (bc.load, bc.values, bc.fixed(size[0]))
        )
        rest = GlobalOperator(self.operator, self.c0, bc.natural, self.components).apply(values, self.device)
        return vectors.xp.where(fixed, values, rows.reshape(size) + load - rest.reshape(size)).reshape(-1)


def _gathered(matrices: list[Any], c0: C0Space, vectors: VectorSpace) -> csr_array:
    """Q^T A Q of the blocks' element matrices [E, n, n], which the vectors' device has."""
    Q, xp = c0.block_matrix, vectors.xp
    if not Q.signed:
        matrix = csr_array(c0.matrix.T @ block_diag([block_diagonal(m) for m in matrices], format="csr") @ c0.matrix)
        matrix.sum_duplicates()
        return matrix
    values, rows, columns = [], [], []
    number = np.int32 if c0.size < 2**31 else np.int64  # fewer bytes: matrices of many cells are large
    for block, given in zip(Q.blocks, matrices, strict=True):
        codes = block.on(xp)
        negative, place = codes & 1, (codes >> 1).astype(number)
        if negative.any():
            sign = 1.0 - 2 * negative
            given = given * sign[:, :, None] * sign[:, None, :]
        values.append(given.reshape(-1))
        rows.append(xp.repeat(place, codes.shape[1]))
        columns.append(xp.tile(place, codes.shape[1]).reshape(-1))
    entries = [parts.pop() if len(parts) == 1 else xp.concatenate(parts) for parts in (values, rows, columns)]
    del values, rows, columns
    return vectors.summed_matrix(entries[0], entries[1], entries[2], (c0.size, c0.size))
