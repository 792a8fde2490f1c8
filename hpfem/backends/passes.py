"""Passes over vectors, as data: what is read and written, and which sums are made of it. Backends make kernels of them.

A new pass is one row here, or where it is used, and no code in any backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache

from hpfem.shapes.cached import cached_property

# An addend: whether it is subtracted, and the places of its factors among arrays and numbers.
Addend = tuple[bool, tuple[int, ...]]


class Pass:
    """Updates of vectors entry by entry, then sums over their entries; in one go where a backend can."""

    # Names of vectors and numbers, in the order in which they are given. Updates, such as "r = r - alpha q", see what
    # those before have written; then the entries of products, such as "r inverse r", are summed up.
    def __init__(self, arrays: str, numbers: str, *updates: str, sums: Sequence[str] = ()) -> None:
        names = [*arrays.split(), *numbers.split()]
        self.arrays, self.numbers = len(arrays.split()), len(numbers.split())

        def places(product: str) -> tuple[int, ...]:
            return tuple(map(names.index, product.strip("- ").split()))

        self.updates = list[tuple[int, list[Addend]]]()  # place of the array that is written, and what is
        for target, _, total in (update.partition(" =") for update in updates):
            terms = [term for term in total.replace(" - ", " + -").split(" + ") if term]
            self.updates.append((names.index(target), [("-" in term, places(term)) for term in terms]))
        self.sums = [places(product) for product in sums]

    @cached_property
    def without_sums(self) -> Pass:
        """Its updates alone."""
        alone = copy(self)
        alone.sums = []
        return alone


@cache
def combination(count: int) -> Pass:
    """The sum of some vectors times numbers, in another one or one of them."""
    names = [f"x{i}" for i in range(count)], [f"a{i}" for i in range(count)]
    total = " + ".join(f"{a} {x}" for x, a in zip(*names, strict=True))
    return Pass(" ".join([*names[0], "out"]), " ".join(names[1]), f"out = {total}")


# Conjugate gradients, each without and with the inverse diagonal of a preconditioner.
_STEP = "x = x + alpha p", "r = r - alpha q"
RESIDUAL = (
    Pass("x p r q", "alpha", *_STEP, sums=["r r"]),
    Pass("x p r q inverse", "alpha", *_STEP, sums=["r r", "r inverse r"]),
)
DIRECTION = Pass("p z", "beta", "p = beta p + z"), Pass("p z inverse", "beta", "p = z inverse + beta p")
# Explicit time steps; weights are those of a diagonal mass.
LEAPFROG = Pass("force weights now before", "two square", "force = two now - before + square force weights")
LOW_STORAGE = Pass("u q force weights", "A h B", "q = A q + h force weights", "u = u + B q")
