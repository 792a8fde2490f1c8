"""Q^T A Q on vectors: scatter, apply A to local coefficients, gather; the scratch memory is kept.

Unknowns that processes share are gathered first, and exchanged while the rest is gathered, on a GPU on a stream of its
own; not where the product is in one piece or Robin's terms are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..backends.vectors import VectorSpace
from ..errors import ArgumentError, NotSuitable
from ..forms.form import BlockKernel, ProductKernel
from ..memory import PairArray, every
from ..operators import Operator
from ..space.field import Field


class _Scratch(NamedTuple):
    """Local coefficients, local results, and the array that the blocks of these are parts of."""

    local: Field
    result: Field
    results: Any


class _Some:
    """Sums of local results for some unknowns alone; made anew for other kernels."""

    def __init__(self, columns: Any) -> None:
        self._columns = columns
        self._made: tuple[Any, Callable[..., Any]] = None, lambda local: local

    def gathering(self, back: Any) -> Callable[..., Any]:
        """What sums local results up, by the restriction `back`."""
        made = self._made
        if made[0] is not back:
            made = self._made = back, back.gather_some(self._columns)
        return made[1]


class Product:
    """The product of a global operator with vectors on a device: Q^T A Q, and the identity for unknowns without entries
    of Q, the `constrained` ones, and for those that are `masked` [components, size]. `matrix` gives a matrix
    of one component or more together, zero for these, that is added; `add_terms` adds to the local results for local
    coefficients; `whole` makes Q^T A Q in one piece of kernels of A, or None (`Backend.product`).
    """

    def __init__(
        self,
        operator: Operator,
        restriction: Any,
        components: int,
        vectors: VectorSpace,
        matrix: Callable[[], Any] | None = None,
        add_terms: Callable[[Field, Field], None] | None = None,
        whole: Callable[[Sequence[BlockKernel]], Callable[[Any], Any] | None] | None = None,
        masked: Any = None,
        constrained: Any = None,
    ) -> None:
        self._operator, self._restriction, self._masked = operator, restriction, masked
        self._matrix, self._add_terms = matrix, add_terms
        self.vectors, self.dtype = vectors, operator.space.dtype
        self.alone = matrix is None and masked is None and add_terms is None
        # What is exchanged: all processes that share an unknown of the identity know it.
        held = np.zeros(restriction.size, dtype=bool)
        held[[] if constrained is None else constrained] = True
        self._between = vectors.without(held)
        self.shape = components, restriction.size
        self._pool, self._join = vectors.pool(), whole if add_terms is None else None
        self._joined: tuple[Any, Callable[[Any], Any] | None] = None, None
        self._own_kernels: tuple[Any, tuple[list[ProductKernel | None], Any]] = None, ([], restriction)
        self._begun: tuple[Any, list[Callable[[], ProductKernel | None]]] = None, []
        self._shared = _Some(self._between.sent)
        if self.whole is None:
            self._begin()
            self._pool.give(self._pool.take(self._new_scratch))

    @property
    def whole(self) -> Callable[[Any], Any] | None:
        """Q^T A Q in one piece with the operator's present kernels, which tuning may change; None if not available."""
        choices = self._operator.choices
        if self._join is not None and self._joined[0] is not choices:
            self._joined = choices, self._join([choice.kernel for choice in choices])
        return self._joined[1]

    @property
    def blocks(self) -> int:
        """Sums that `into` leaves."""
        return int(self._restriction.blocks)

    @property
    def facts(self) -> list[Any]:
        """What launches of `into` rest on: they can be repeated while these are the same objects, or equal tuples."""
        choices = self._operator.choices
        problems = [choice.kernel.problem for choice in choices]
        numbers = self._operator.numbers, *(tuple(own.parameters.values()) for own in problems)
        return [ref(self), choices, numbers, *(field.values for own in problems for field in own.fields.values())]

    def _new_scratch(self) -> _Scratch:
        return _Scratch(self._field("coeff")[0], *self._field("dual"))

    def _field(self, state: str) -> tuple[Field, Any]:
        """A field whose blocks are parts of one array, and the array."""
        space, c, device = self._operator.space, self.shape[0], self.vectors.device
        flat = device.empty((c * space.n_dofs,), space.dtype)
        pairs, start = [], 0
        for block in space.blocks:
            stop = start + c * block.n_elements * block.n_modes
            pairs.append(PairArray.of(flat[start:stop].reshape(c, block.n_elements, block.n_modes), device))
            start = stop
        return Field(space, state, pairs), flat

    def into(self, vector: Any, *sums: Any) -> Any:
        """Compute the product, without `matrix` and `masked`; vector [components * size] -> [components, size]."""
        return self._own(vector.reshape(self.shape), True, *sums)

    def _own(self, vector: Any, exchange: bool, *sums: Any) -> Any:
        """The product of this process; with an exchange also the parts of others."""
        whole = None if sums else self.whole
        if whole is not None:
            found = whole(vector.reshape(self.shape))
            if not self._operator.guarded or every(self.vectors.xp.isfinite(found)):
                return self._between.summed(found) if exchange else found
        if self._add_terms is not None and not self.vectors.has(vector):
            raise NotSuitable("forms on boundaries are not recorded")
        with self._applied(vector, *sums) as (gather, of_some):
            return self._summed(gather, of_some, bool(sums)) if exchange else gather()

    def _summed(self, gather: Callable[..., Any], of_some: Callable[..., Any], apart: bool) -> Any:
        """Sums over processes: unknowns that they share first, which are exchanged while the others are gathered."""
        if self.vectors.comm.size == 1:
            return gather()
        end = self._between.summing(lambda: of_some(self._shared))
        return end(gather(), apart=apart)

    @contextmanager
    def _applied(self, vector: Any, *sums: Any) -> Iterator[tuple[Callable[..., Any], Callable[..., Any]]]:
        """Scratch with local results, and the last two of `_parts`."""
        scratch = self._pool.take(self._new_scratch)
        try:
            scatter, apply, gather, of_some = self._parts(scratch, vector, *sums)
            scatter()
            apply()
            yield gather, of_some
        finally:
            self._pool.give(scratch)

    def restricted(self, columns: Any) -> Callable[[Any, Any], Any] | None:
        """Make r [c, n], x [c * size] -> r - A x [c, n] for unknowns columns [n] alone; as for `residual`."""
        if not self.alone or self.whole is not None:
            return None
        some = _Some(self.vectors.xp.asarray(columns))
        some.gathering(self._kernels[1])  # now: nothing can be made while launches are captured

        def residual(r: Any, x: Any) -> Any:
            with self._applied(x) as (_, of_some):
                return of_some(some, onto=r, factor=-1.0)

        return residual

    def residual(self, r: Any, x: Any, scale: float = 1.0) -> Any:
        """The part of this process of r - scale A x, in a new array; r is such a part, too; r, x [components * size] ->
        [components * size].
        """
        vectors = self.vectors
        if vectors.iteration is None or not self.alone or self.whole is not None:
            product = self._of(x, False)
            vectors.combine((-scale, 1.0), (product, r), product)
            return product
        with self._applied(x) as (gather, _):
            return gather(onto=r.reshape(self.shape), factor=-scale).reshape(r.shape)

    def parts(self, vector: Any, *sums: Any) -> dict[str, Callable[[], Any]]:
        """The steps of `into`, by name; in scratch of their own; vector [components * size]."""
        steps = self._parts(self._new_scratch(), vector, *sums)[:3]
        return dict(zip(("scatter", "operator", "gather"), steps, strict=True))

    @property
    def _kernels(self) -> tuple[list[ProductKernel | None], Any]:
        """The operator's present kernels for products, None if not available; and what gathers their results."""
        choices = self._operator.choices
        if self._own_kernels[0] is not choices:
            found = [finish() for finish in self._begin()] or [None] * len(choices)
            back = self._restriction
            if any(found):
                back = back.by_entity([int(kernel is not None) for kernel in found])
            self._own_kernels = choices, (found, back)
        return self._own_kernels[1]

    def _begin(self) -> list[Callable[[], ProductKernel | None]]:
        """Start to make all kernels for products; they are waited for when the first one is needed."""
        choices, here = self._operator.choices, self._operator.device.name == self.vectors.device.name
        if self._begun[0] is not choices:
            some = enumerate(choices if here and self._add_terms is None else ())
            self._begun = choices, [choice.kernel.in_product(self._restriction, number) for number, choice in some]
        return self._begun[1]

    def _parts(
        self, scratch: _Scratch, vector: Any, out: Any = None, partials: Any = None, stop: int | None = None
    ) -> tuple[Callable[[], Any], Callable[[], Any], Callable[..., Any], Callable[..., Any]]:
        rows, device = vector.reshape(self.shape), self.vectors.device
        sums = () if out is None else (out.reshape(self.shape), partials, stop)
        stops = () if stop is None else (stop,)

        (own, back), local, results = self._kernels, scratch.local.data, scratch.result.data

        def scatter() -> None:
            targets = [
                None if kernel and kernel.scattered else pair.write(device)
                for kernel, pair in zip(own, local, strict=True)
            ]
            self._restriction.scatter(rows, targets, *stops)

        def apply() -> None:
            self._operator.check_device()
            calls, others = list[Callable[[], Any]](), list[Callable[[], Any]]()
            for choice, kernel, source, result in zip(self._operator.choices, own, local, results, strict=True):
                apply = choice.kernel.apply if kernel is None else kernel.apply
                given = rows if kernel and kernel.scattered else source.read(device)
                (others if kernel is None else calls).append(partial(apply, given, result.write(device)))
            # The others may take scratch, which is of the current stream.
            self.vectors.beside([lambda: [call() for call in others], *calls] if others else calls)

        def plain() -> None:
            self._operator(scratch.local, out=scratch.result)
            if self._add_terms is not None:
                self._add_terms(scratch.local, scratch.result)

        def results_here() -> Any:
            for pair in scratch.result.data:
                pair.read(device)  # brings it here, where the operator computes elsewhere
            return scratch.results

        return (
            scatter,
            apply if any(own) else plain,
            lambda **onto: back.gather(results_here(), rows, *sums, **onto),
            lambda some, **onto: some.gathering(back)(results_here(), **onto),
        )

    def __call__(self, vector: Any) -> Any:
        """The product, in a new array of the vector's shape."""
        return self._of(vector, True)

    def _of(self, vector: Any, exchange: bool) -> Any:
        """The product; without an exchange its part of this process."""
        if vector.size != self.shape[0] * self.shape[1]:
            raise ArgumentError(f"a vector of {self.shape[0] * self.shape[1]} numbers is needed, got {vector.shape}")
        xp = self.vectors.xp
        if vector.dtype != self.dtype or not vector.flags.c_contiguous:
            vector = xp.ascontiguousarray(vector, self.dtype)
        rows = vector.reshape(self.shape)
        given = rows if self._masked is None else xp.where(self._masked, xp.zeros_like(rows), rows)
        if self._matrix is None:
            out = self._own(given, exchange)
        else:
            out, matrix = self._own(given, False), self._matrix()
            together = out.size // max(matrix.shape[1], 1), matrix.shape[1]
            out = out.reshape(together)  # a copy, if there are gaps between the components
            for result, row in zip(out, given.reshape(together), strict=True):
                result += matrix @ row
            out = out.reshape(self.shape)
            out = self._between.summed(out) if exchange else out
        if self._masked is not None:
            out = xp.where(self._masked, rows, out)
        return out.reshape(vector.shape)
