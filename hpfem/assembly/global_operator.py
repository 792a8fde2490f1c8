"""Global operators: Q^T A Q without a matrix, as SciPy's LinearOperator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, block_diag, csr_array, diags_array
from scipy.sparse.linalg import LinearOperator

from hpfem.shapes.arguments import flag, instance, integer, shown
from hpfem.shapes.arrays import Array

from ..backends.exchange import is_array, placed
from ..backends.restriction import BlockMatrix
from ..backends.vectors import VectorSpace, sparse_on_host
from ..errors import ArgumentError, NotSuitable, StateError
from ..forms.form import BlockKernel
from ..forms.linear import is_symmetric
from ..memory import HOST, Device, PerDevice, every
from ..operators import BoundaryForm, Operator, OperatorSum
from ..operators.arrays import same_kind
from ..operators.sums import Summable
from ..space import Field
from ..space.arguments import MAX_COMPONENTS
from .boundary import BoundaryConditions
from .boundary_terms import BoundaryTerm
from .c0 import C0Space
from .entries import between, block_diagonal, diagonal, element_matrices, is_positive
from .product import Product
from .symmetry import seems_symmetric

_MOST_ENTRIES = 400_000_000


class GlobalOperator(LinearOperator):  # type: ignore[misc]
    """An operator between the continuous functions of a space and their dual: Q^T A Q.

    A vector has the components one after the other: [components * size].

    Parameters
    ----------
    operator : Operator or OperatorSum
        A weak form on the space, such as Mass, Laplacian, Helmholtz or WeakForm, or a sum of such forms and of forms on
        boundaries. Processes that share the mesh set factors and parameters alike.
    c0 : C0Space
    bc : BoundaryConditions, optional
        The degrees of freedom with Dirichlet values are taken out: their rows and columns are those of the identity, so
        that a symmetric positive definite operator stays one. Robin conditions add their boundary mass.
    components : int, optional
        Components of the vectors; by default those that the operator couples.

    Attributes
    ----------
    operator : Operator
        The part in the volume: of a sum, all forms there together. Its `parameters` are those of the forms, by "1.k"
        of form 1 where several have a k, and the factors "0", "1", ....
    boundary_terms : tuple of BoundaryTerm
        The forms on boundaries.
    coupled : int
        Components that the forms couple.

    Raises
    ------
    ArgumentError
        If the operator, the C0 space and the conditions are not on the same space, or the operator is no weak form.
    """

    def __init__(
        self, operator: Summable, c0: C0Space, bc: BoundaryConditions | None = None, components: int | None = None
    ) -> None:
        given = operator.volume if isinstance(operator, OperatorSum) else operator
        if isinstance(operator, BoundaryForm) or (isinstance(operator, OperatorSum) and given is None):
            raise ArgumentError(
                f"{operator.name} is on a boundary alone; add a form in the volume, as in hp.Laplacian(space) + form"
            )
        if not isinstance(given, Operator) or (given.form.source, given.form.sink) != ("coeff", "dual"):
            raise ArgumentError("a GlobalOperator is made of a weak form such as Mass, Laplacian or Helmholtz")
        if not isinstance(c0, C0Space) or operator.space is not c0.space:
            raise ArgumentError("the operator and the C0Space are not on the same space")
        if bc is not None and instance(bc, BoundaryConditions, "bc").c0 is not c0:
            raise ArgumentError("the boundary conditions are for another C0Space")
        terms: list[BoundaryTerm] = []
        if isinstance(operator, OperatorSum):
            terms = [BoundaryTerm(form, c0, operator.factors, number) for number, form in operator.boundary_forms]
        coupled = max([own.form.components for own in (given, *(term.form for term in terms))])
        self._make(given, c0, bc, terms, coupled, coupled if components is None else components)

    def _make(
        self,
        operator: Operator,
        c0: C0Space,
        bc: BoundaryConditions | None,
        terms: Sequence[BoundaryTerm],
        coupled: int,
        components: int,
    ) -> None:
        components, self.coupled = integer(components, 1, "components", MAX_COMPONENTS), coupled
        if components % self.coupled:
            raise ArgumentError(f"{operator.name} couples {self.coupled} components, {components} is no multiple of it")
        if bc is not None:
            bc.fixed(components)
        self.operator, self.c0, self.bc, self.components = operator, c0, bc, components
        self.boundary_terms = tuple(terms)
        super().__init__(operator.space.dtype, (components * c0.size,) * 2)
        self._products: PerDevice[Product] = PerDevice()
        self._matrix: tuple[Any, csr_array | None] = (), None
        self._symmetric: tuple[Any, bool] = (), False

    @classmethod
    def _made(cls, *parts: Any) -> GlobalOperator:
        made = cls.__new__(cls)
        made._make(*parts)
        return made

    def of_parts(
        self,
        operator: Operator,
        c0: C0Space,
        bc: BoundaryConditions | None,
        terms: Sequence[BoundaryTerm],
        components: int | None = None,
    ) -> GlobalOperator:
        """An operator of other parts; see `at`."""
        return self._made(operator, c0, bc, terms, self.coupled, self.components if components is None else components)

    def at(self, c0: C0Space, kept: Any, matrix: csr_array | None) -> GlobalOperator:
        """The operator between functions on a space by `Space.at` that are a part of those here, with the present
        numbers; see `BoundaryConditions.at` for the arguments.
        """
        with self.vectors.comm.together():
            operator = self.operator.at(c0.space)
            terms = [term.at(c0) for term in self.matrix_free]
        bc = self.bc
        if bc is not None or matrix is not None:
            bc = (BoundaryConditions(self.c0) if bc is None else bc).at(c0, kept, matrix)
        return self.of_parts(operator, c0, bc, terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made, (self.operator, self.c0, self.bc, self.boundary_terms, self.coupled, self.components)

    def __repr__(self) -> str:
        return f"GlobalOperator({' + '.join(map(repr, (self.operator, *self.boundary_terms)))}, {self.shape[0]} dofs)"

    @property
    def matrix(self) -> csr_array | None:
        """The part that is a matrix, of the facets of this process: from Robin conditions, and forms on boundaries that
        are linear in the value; for coupled components [coupled size, coupled size]. None if there is none anywhere.
        """
        assembled = [term for term in self.boundary_terms if term.assembled]
        numbers = [term.numbers for term in assembled]
        if self._matrix[0] != numbers:
            own = [] if self.bc is None or self.bc.matrix is None else [self.bc.matrix]
            own = [self._of_all(part) for part in (*own, *(term.factor * term.values for term in assembled))]
            self._matrix = numbers, csr_array(sum(own[1:], own[0])) if own else None
        return self._matrix[1]

    def values_on_boundaries(self, component: int) -> csr_array | None:
        """What Robin conditions and linear forms on boundaries do with values of a coupled component, [size, size];
        None if there are none; see `matrix`.
        """
        parts = [] if self.matrix is None else [self.matrix]
        parts += [self._of_all(term.factor * term.values) for term in self.matrix_free if term.linear]
        own = slice(component * self.c0.size, (component + 1) * self.c0.size)
        return csr_array(sum(part[own, own] for part in parts)) if parts else None

    def _of_all(self, matrix: csr_array) -> csr_array:
        """A matrix of some components for all that are coupled."""
        copies = self.coupled * self.c0.size // max(1, matrix.shape[0])
        return matrix if copies < 2 else csr_array(block_diag([matrix] * copies))

    @property
    def matrix_free(self) -> list[BoundaryTerm]:
        """The forms on boundaries that are no part of `matrix`."""
        return [term for term in self.boundary_terms if not term.assembled]

    @property
    def device(self) -> Device:
        """Where the operator's kernels compute."""
        return self.operator.device

    @property
    def vectors(self) -> VectorSpace:
        """Vectors where the operator's kernels compute."""
        return self.c0.vectors_on(self.device)

    def apply(self, vector: Any, device: Device | None = None) -> Any:
        """Apply to a vector on a device; nothing is transferred if it is the operator's own.

        Parameters
        ----------
        vector : array, [components * size]
            On `device`; of any library if that is left out.
        device : Device, optional
            That of the vector when left out.

        Returns
        -------
        array, [components * size]
            On that device.

        Raises
        ------
        ArgumentError
            If the vector has another size, or is not of real numbers.
        """
        vector, device = (vector, device) if device is not None else placed(vector)
        product = self.product_on(device)
        vector = product.vectors.checked(vector, "a vector")
        if vector.size != self.shape[0]:
            raise ArgumentError(f"a vector of {self!r} has {self.shape[0]} entries, got {shown(vector)}")
        return product(vector)

    def product_on(self, device: Device) -> Product:
        """The product with vectors on a device, which is made once; see `Product`."""
        return self._products.get(device, lambda: self._new_product(self.c0.vectors_on(device)))

    def _new_product(self, vectors: VectorSpace) -> Product:
        bc, masked, constrained = self.bc, None, np.empty(0, dtype=np.int64)
        if bc is not None and bc.differ:
            masked = bc.constrained_on(vectors)
        elif bc is not None:
            constrained = np.flatnonzero(bc.constrained)
        restriction = (self.c0 if bc is None else bc).restriction(vectors.device)
        backend, Q = self.operator.backend, self.c0.block_matrix

        def whole(kernels: Sequence[BlockKernel]) -> Callable[[Any], Any] | None:
            found = backend.product(kernels, Q) if Q.size else None
            return None if found is None else lambda vector: found(vector, constrained)

        made: list[Any] = [None, None]
        parts = self.of_parts(self.operator, self.c0, bc, self.boundary_terms)  # this one holds its products

        def matrix() -> Any:
            own = parts.matrix
            assert own is not None
            if made[0] is not own:
                free = np.ones(parts.c0.size, parts.dtype)
                free[constrained] = 0
                keep = diags_array(np.tile(free, parts.coupled))
                made[:] = own, vectors.sparse(csr_array(keep @ own.astype(parts.dtype) @ keep))
            return made[1]

        def add_terms(local: Field, result: Field) -> None:
            for term in matrix_free:
                term.form.add(local, result, term.factor)

        here, matrix_free = vectors.device.name == self.device.name, self.matrix_free
        return Product(
            self.operator,
            restriction,
            self.components,
            vectors,
            None if self.matrix is None else matrix,
            add_terms if matrix_free else None,
            whole if here else None,
            masked,
            constrained,
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

    def __matmul__(self, x: Any) -> Any:
        """A x, where x is, in its library."""
        foreign = not isinstance(x, np.ndarray) and is_array(x)
        return same_kind(x, self.apply(x)) if foreign else super().__matmul__(x)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        x = np.asarray(x)
        if np.iscomplexobj(x):
            raise StateError("a GlobalOperator applies to real vectors; apply it to the two parts of a complex one")
        return self.apply(np.ascontiguousarray(x, self.dtype).ravel())

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        if not self.symmetric:
            raise StateError(f"{self.operator.name} is not symmetric and has no transpose here; use assemble().T")
        return self._matvec(x)

    @property
    def symmetric(self) -> bool:
        """Whether it is symmetric: by its form, else on random vectors by the present numbers (`seems_symmetric`);
        collective.
        """
        numbers = [self.operator.numbers, *(term.numbers for term in self.boundary_terms)]
        if self._symmetric[0] != numbers:
            forms = [self.operator.form, *(term.form.form for term in self.boundary_terms)]
            found = self.c0.space.comm.all(all(is_symmetric(form.trace) for form in forms))  # tensors may differ there
            found = found or seems_symmetric(self.vectors, self.product_on(self.device), self.shape[0], self.dtype)
            self._symmetric = numbers, found
        return self._symmetric[1]

    def is_positive(self) -> bool:
        """Tell whether (u, A u) >= 0 for all u, by the present coefficients at all points; collective.

        Returns
        -------
        bool
            False also if it is unknown: a coefficient of the form or of a Robin condition is negative somewhere, the
            form is not linear, or it has terms of first order whose effect is unknown.
        """
        here = (self.bc is None or self.bc.positive) and is_positive(self.operator, self.vectors.xp)
        return self.vectors.comm.all(here and all(term.is_positive(self.vectors.xp) for term in self.boundary_terms))

    def elliptic_part(self) -> GlobalOperator:
        """Make the operator of the form's diffusion and reaction (`hpfem.forms.linear.elliptic_part`).

        It is symmetric positive semidefinite if the diffusion is. Multigrid for this part is a preconditioner of
        operators that are not symmetric positive definite.

        Returns
        -------
        GlobalOperator
            With the same Dirichlet conditions, with the Robin conditions if these are positive, and with the elliptic
            parts of forms on boundaries, where there are any.

        Raises
        ------
        NotSuitable
            If the form is not linear, or has neither diffusion nor reaction.
        """
        bc = self.bc
        if bc is not None and not bc.positive:
            bc = copy(bc)
            bc.matrix, bc.positive = None, True
        terms = []
        for term in self.boundary_terms:
            with suppress(NotSuitable):
                terms.append(term.elliptic_part())
        return self.of_parts(self.operator.elliptic_part(), self.c0, bc, terms)

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
        """Diagonal on the device of the operator, in float64; see `diagonal`."""
        vectors, xp, n = self.vectors, self.vectors.xp, self.components
        rows = xp.zeros((n, self.c0.size))
        for operator, Q, factor in self._parts():
            own = Q is self.c0.block_matrix
            restriction = self.c0.restriction(self.device) if own else vectors.restriction(Q, self.dtype)
            found = diagonal(operator, Q, restriction, vectors, elliptic)
            rows += (abs(factor) if elliptic else factor) * xp.tile(found, (n // len(found), 1))
        matrix = self.matrix
        if matrix is not None:
            if elliptic and self.bc is not None and self.bc.matrix is not None and not self.bc.positive:
                matrix = matrix - self._of_all(self.bc.matrix)
            found = vectors.from_host(matrix.diagonal()).reshape(self.coupled, -1)
            rows += xp.tile(abs(found) if elliptic else found, (n // self.coupled, 1))
        if self.c0.space.comm.size > 1:
            rows = xp.array(vectors.from_host(self.c0.vectors_on(HOST).summed(vectors.to_host(rows))))
        if self.bc is not None:
            rows = xp.where(self.bc.constrained_on(vectors), 1.0, rows)
        return rows.ravel()

    def _parts(self) -> Iterator[tuple[Operator, BlockMatrix, float]]:
        """The operators on cells that are no part of `matrix`, with Q of the cells, and the factor."""
        yield self.operator, self.c0.block_matrix, 1.0
        for term in self.matrix_free:
            yield term.form.inner, term.Q, term.factor

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
        n, blocks = self.operator.form.components, self.c0.space.blocks
        entries = sum(block.n_elements * (n * block.n_modes) ** 2 for block in blocks)
        if entries > _MOST_ENTRIES:
            raise ArgumentError(f"assembling would take {entries} entries; apply the operator without its matrix")
        vectors = self.vectors if self.c0.block_matrix.signed else self.c0.vectors_on(HOST)
        found = [factor * self._of_all(_assembled(own, Q, vectors)) for own, Q, factor in self._parts()]
        matrix = csr_array(sum([*found[1:], *([] if self.matrix is None else [self.matrix])], found[0]))
        if self.components > self.coupled:
            matrix = csr_array(block_diag([matrix] * (self.components // self.coupled)))
        if self.bc is not None and self.bc.constrained.any():
            free = ~self.bc.fixed(self.components).ravel()
            matrix = csr_array(between(matrix, free) + diags_array((~free).astype(float)))
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
        rest = self.of_parts(self.operator, self.c0, bc.natural, self.boundary_terms).apply(values, self.device)
        return vectors.xp.where(fixed, values, rows.reshape(size) + load - rest.reshape(size)).reshape(-1)


def _assembled(operator: Operator, Q: BlockMatrix, vectors: VectorSpace) -> csr_array:
    """Q^T A Q of an operator on cells; -> [components * size, components * size]."""
    n, blocks = operator.form.components, operator.space.blocks
    found = [element_matrices(operator, number, vectors) for number in range(len(blocks))]

    def part(i: int, j: int) -> csr_array:
        """The block of the matrix that takes component j to component i."""
        return _gathered([own[j, :, i] for own in found], Q, vectors)

    return csr_array(block_array([[part(i, j) for j in range(n)] for i in range(n)]))


def _gathered(matrices: list[Any], Q: BlockMatrix, vectors: VectorSpace) -> csr_array:
    """Q^T A Q of the blocks' element matrices, [n, E, m] by columns n, which the vectors' device has."""
    xp = vectors.xp
    if not Q.signed:
        own = [block_diagonal(m.transpose(1, 2, 0)) for m in matrices]
        matrix = csr_array(Q.transpose @ block_diag(own, format="csr") @ Q.matrix)
        matrix.sum_duplicates()
        return matrix
    values, rows, columns = [], [], []
    number = np.int32 if Q.size < 2**31 else np.int64  # fewer bytes: matrices of many cells are large
    for block, given in zip(Q.blocks, matrices, strict=True):
        codes = block.on(xp)
        negative, place = codes & 1, (codes >> 1).astype(number)
        if not every(negative == 0):
            sign = 1.0 - 2 * negative
            given = given * sign * sign.T[:, :, None]
        values.append(given.reshape(-1))
        rows.append(xp.tile(place.reshape(-1), codes.shape[1]))
        columns.append(xp.repeat(place.T.reshape(-1), codes.shape[1]))
    entries = [parts.pop() if len(parts) == 1 else xp.concatenate(parts) for parts in (values, rows, columns)]
    del values, rows, columns
    return sparse_on_host(vectors.summed_there(entries[0], entries[1], entries[2], (Q.size, Q.size)))
