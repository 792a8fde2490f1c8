"""Vectors whose entries several processes share; see `sharing`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.shapes.cached import cached_property

from .iteration import DeviceIteration
from .sharing import Messages, Sharing
from .vectors import VectorSpace


class SharedVectors(VectorSpace):
    """A mix-in for vector spaces, with the sharing of the entries of one component."""

    sharing: Sharing

    @cached_property
    def iteration(self) -> DeviceIteration | None:
        """Tools of the device for several processes; collective at its first use; see `VectorSpace`."""
        own = super().iteration
        return None if own is None else own.shared(self.sharing)

    @cached_property
    def _here(self) -> tuple[Any, Any]:
        """Entries that are sent and ghosts as arrays of the device."""
        return self.from_host(self.sharing.sent), self.from_host(self.sharing.ghosts)

    @cached_property
    def _messages(self) -> Messages:
        return self.messages(self.sharing)

    def _by_component(self, vectors: Any) -> Any:
        """Entries of each component, [..., components, size]."""
        return vectors.reshape(*vectors.shape[:-1], -1, max(1, self.sharing.size))

    def _of_shared(self, rows: Any) -> Any:
        return rows[:, self._here[0]]

    def summed(self, rows: Any) -> Any:
        """Add up the contributions of processes to shared entries, in place; see `Unshared.summed`."""
        whole = rows if rows.ndim == 2 else self._by_component(rows)
        self.summing(lambda: self._of_shared(whole))(whole)
        return rows

    def without(self, held: NDArray[np.bool_]) -> SharedVectors:
        """Vectors that share fewer entries; see `Unshared.without`."""
        fewer = copy(self)
        for name in ("iteration", "_here", "_mine", "_messages"):
            vars(fewer).pop(name, None)
        fewer.sharing = self.sharing.without(held)
        return fewer

    def summing(self, own: Callable[[], Any]) -> Callable[..., Any]:
        """Begin to add up; see `Unshared.summing`."""
        messages = self._messages
        finish = messages.started(lambda: messages.packed(own()), self.sharing.parts)

        def end(rows: Any, apart: bool = False, **more: Any) -> Any:
            finish(partial(messages.combine, rows, **more), apart)
            return rows

        return end

    def agreeing(self, rows: Any) -> Callable[[], Any]:
        """Begin to take the owners' values, in place; see `Unshared.agreeing`."""
        whole = rows if rows.ndim == 2 else self._by_component(rows)
        return partial(self.summing(lambda: self._of_shared(whole)), whole, apart=True, owners=True)

    def agreed(self, rows: Any) -> Any:
        """Take the owners' values, in place; see `Unshared.agreed`."""
        self.agreeing(rows)()
        return rows

    @cached_property
    def _mine(self) -> Any:
        """Whether this process owns each entry, as an array of the device."""
        return self.from_host(self.sharing.owned)

    def owned(self, rows: Any) -> Any:
        """The part that this process owns, a new array; see `Unshared.owned`."""
        return (self._by_component(rows) * self._mine).reshape(rows.shape)

    def _owned(self, a: Any, b: Any) -> Any:
        """Sum of products over the entries that this process owns."""
        whole, ghosts = super().inner(a, b), self._here[1]
        if not len(ghosts):
            return whole
        mine, other = (self._by_component(v)[..., ghosts] for v in (a, b))
        return whole - super().inner(mine.reshape(*a.shape[:-1], -1), other.reshape(-1))

    def total(self, numbers: Any) -> Any:
        """Sum over processes; see `Unshared.total`."""
        return self._messages.total(numbers)

    def inner(self, a: Any, b: Any) -> Any:
        """Sums of products; see `VectorSpace.inner`."""
        return self.total(self._owned(a, b))

    def max_norm(self, vector: Any) -> float:
        """Largest absolute value, on the host; see `VectorSpace.max_norm`."""
        return self.comm.max(super().max_norm(vector))

    def count(self, vector: Any) -> int:
        """Number of entries; see `Unshared.count`."""
        ghosts = self._by_component(vector)[:, self._here[1]].size
        return int(self.comm.sum(vector.size - ghosts))


def shared_vectors(vectors: VectorSpace, sharing: Sharing | None) -> VectorSpace:
    """Vectors with shared entries, on the device of others."""
    if sharing is None:
        return vectors
    kind = type(vectors)
    made: SharedVectors = type(f"Shared{kind.__name__}", (SharedVectors, kind), {})(vectors.device)
    made.sharing = sharing
    return made
