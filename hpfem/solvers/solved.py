"""Solutions and their derivatives as functions of arrays, which other libraries call and differentiate.

The k-th derivative of a solution is linear in w, with which its coefficients are multiplied, and in k changes of the
data. These are slots: if all but one are filled, the result is by that one. So to transpose is to fill another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..backends.exchange import wrap
from ..errors import ArgumentError
from .solution_map import SolutionMap

# In the order of `SolutionMap.shapes`; of changes, None are zero.
Arrays = list[Any]


class Solved(NamedTuple):
    """A solution or a derivative: `known` are the data and, of a derivative, the solution there; `slots` are w and the
    changes, that of the result empty.
    """

    solution: SolutionMap
    known: Arrays
    slots: list[Arrays]

    @classmethod
    def of(cls, solution: SolutionMap, arrays: Sequence[Any], order: int = 0, out: int = 0) -> Solved:
        """That of an order, with the result by the slot `out`, of its arrays one after the other."""
        rest, n = iter(arrays), len(solution.shapes)
        sizes = [n + (order > 0), *(0 if k == out else n if k else 1 for k in range(order + 1))]
        known, *slots = [[next(rest) for _ in range(size)] for size in sizes]
        return cls(solution, known, slots)

    @property
    def place(self) -> tuple[int, int]:
        """The order, and the slot of the result."""
        return len(self.slots) - 1, self.slots.index([])

    @property
    def arrays(self) -> Arrays:
        """All arrays; see `of`."""
        return sum(self.slots, self.known)

    def __call__(self) -> Arrays:
        """The results, on the device of the operators."""
        own, (w, *changes) = self.solution, self.slots
        data, *along = [dict(zip(own.shapes, given)) for given in (self.known, *changes) if given]
        if not changes:
            return [own(data).pair.read(own.device).reshape(own.shape)]
        if w:
            return list(own.pullback(data, w[0], self.known[-1], *along).values())
        return [own.forward(data, along[0], self.known[-1], *along[1:])]

    def slopes(self, wanted: Sequence[bool], w: Arrays, results: Any, made: Callable[[Solved], Any]) -> Arrays:
        """Derivatives of w times the results by the arrays that are wanted, as they are `made`; None by the others."""
        asked, n, (_, out) = Solved.of(self.solution, wanted, *self.place), len(self.solution.shapes), self.place
        found = [
            made(self._with({out: w, number: []}, results)) if any(own) else [None] * len(own)
            for number, own in enumerate([*asked.slots, asked.known[:n]])
        ]
        flat = chain(found.pop(), [None] * (len(self.known) - n), *found)
        return [slope if one else None for slope, one in zip(flat, wanted, strict=True)]

    def changed(self, changes: Sequence[Any], results: Any, zeros: Any, made: Callable[[Solved], Any]) -> Arrays:
        """Changes of the results along changes of the arrays."""
        moved, terms = Solved.of(self.solution, changes, *self.place), list[Any]()
        for number, (new, old) in enumerate([*zip(moved.slots, self.slots), (moved.known, self.known)]):
            pairs = [*zip(new, old)][: len(self.solution.shapes)]
            if any(a is not None for a, _ in pairs):
                slot = [zeros(b) if a is None else a for a, b in pairs]
                terms.append(made(self._with({number: slot}, results)))
        return [sum(parts[1:], parts[0]) for parts in zip(*terms, strict=True)]

    def _with(self, filled: dict[int, Arrays], results: Any) -> Solved:
        """The same with other slots, of which one may be new; then with the solution, if that is the result."""
        slots = [*self.slots, *[[] for k in filled if k == len(self.slots)]]
        slots = [filled.get(k, slot) for k, slot in enumerate(slots)]
        if len(slots) > 3:
            raise ArgumentError("solutions have first and second derivatives, no third ones")
        return Solved(self.solution, [*self.known, *results][: len(self.solution.shapes) + 1], slots)


def copied(array: Any, out: Any) -> None:
    """Copy an array to one of any library and device."""
    source, target = wrap(array), wrap(out)
    target.write(target.home)[...] = source.read(target.home)


def as_map(problem: Any, inputs: Any, options: Mapping[str, Any]) -> SolutionMap:
    """A `SolutionMap`, or what it is made of, as one."""
    if not isinstance(problem, SolutionMap):
        return SolutionMap(problem, inputs, **options)
    if inputs is not None or options:
        raise ArgumentError("a SolutionMap has inputs and options; leave them out")
    return problem
