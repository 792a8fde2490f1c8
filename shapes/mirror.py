"""Modes and points under the reflection eta_1 -> -eta_1: even and odd modes need half of the tables each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .arrays import Array, Indices
from .quadrature import PointRule
from .tabulation import Tabulation

# Largest difference, relative to their size, of modes that are mirror images up to rounding.
ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class Mirror:
    """Even and odd modes: each is a mode of the basis, or half of the sum or difference of two mirror images."""

    even: int
    odd: int
    paired: int  # the first even and odd modes, half of the sum and of the difference of two modes
    first: Indices  # [max(even, odd)], the first of the two modes, or the i-th even one; -1: none
    second: Indices  # the second one, or the i-th odd one; -1: none
    pairs: int  # of points that are images
    singles: int  # points on the mirror

    def of_modes(self, values: Array) -> tuple[Array, Array]:
        """Even and odd modes from those of the basis; values [n_modes, ...] -> even, odd [even, ...]."""
        n = self.paired
        even, odd = values[self.first[: self.even]].copy(), values[self.second[: self.odd]].copy()
        even[:n], odd[:n] = (even[:n] + odd[:n]) / 2, (even[:n] - odd[:n]) / 2
        return even, odd


def without_mirror(tabulation: Tabulation) -> Mirror:
    """All modes even, all points on the mirror: no symmetry is used."""
    n = tabulation.basis.n_modes
    return Mirror(n, 0, 0, np.arange(n), np.full(n, -1), 0, len(tabulation.rule))


@lru_cache(maxsize=64)
def mirror_of(tabulation: Tabulation) -> Mirror | None:
    """Sort modes by their image under the reflection."""
    rule, values = tabulation.rule, tabulation.dense
    if not isinstance(rule, PointRule):
        return None
    points = np.arange(len(rule))
    n = rule.pairs
    points[:n], points[n : 2 * n] = points[n : 2 * n].copy(), points[:n].copy()
    even, odd, pairs = list[int](), list[int](), list[tuple[int, int]]()
    for mode, image in enumerate(values[:, points]):
        close = ROUNDING * np.abs(image).max()
        found = np.flatnonzero(np.abs(values - image).max(axis=1) <= close)
        if len(found) == 1:
            if found[0] == mode:
                even.append(mode)
            elif found[0] > mode:
                pairs.append((mode, int(found[0])))
        elif np.abs(values[mode] + image).max() <= close:
            odd.append(mode)
        else:
            return None
    n_even, n_odd = len(pairs) + len(even), len(pairs) + len(odd)
    first, second = np.full((2, max(n_even, n_odd)), -1)
    first[:n_even] = [*(pair[0] for pair in pairs), *even]
    second[:n_odd] = [*(pair[1] for pair in pairs), *odd]
    return Mirror(n_even, n_odd, len(pairs), first, second, n, len(rule) - 2 * n)
