"""What functions may be given by mistake: of no type that anybody wants, or of the right type but not to be meant."""

from typing import Any

import numpy as np


class Unprintable:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Hostile:
    """An object that promises an array and gives none."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("no array")


def _raises(*arguments: Any) -> Any:
    return np.zeros((3, 5))


# One of every kind.
FIXED: tuple[Any, ...] = (
    None, "a", "", "\0", "é" * 5000, b"a", True, 0, 1, -5, 7, 10**9, 10**400, -(10**5000), 0.5, float("nan"),
    float("inf"), -float("inf"), 1e-320, 1e300, 1j, [], {}, (), set(), [[]], [1, [2, 3]], [None], ["a", 1], {"a": None},
    {1: 2}, {"hex": "a"}, object(), Unprintable(), Hostile(), object, len, lambda: None, lambda *x: None,
    lambda *x: "a", _raises, lambda *x: 1j, lambda x, y: np.nan, lambda x, y: [x, "a"], range(3), iter([1]), slice(2),
    Ellipsis, NotImplemented, np.array(1), np.array([]), np.zeros(3), np.zeros((2, 2)), np.zeros((1, 2, 3, 4)),
    np.array([1, "a"]), np.array([object()]), np.array([1j, 2]), np.array(["a", "b"]), np.full((4, 2), np.nan),
    np.array([True, False]), np.array([10**30, 1], dtype=object), np.ma.masked_array([1.0, 2.0], [True, False]),
    np.float32(np.inf), np.float64(2.5), np.int8(-1), np.uint64(2**64 - 1), np.datetime64("2020-01-01"),
    np.dtype("float64"), np.dtype("float16"), complex("nan"), np.zeros(2, dtype=[("a", int)]), np.zeros((3, 0)),
    np.array(None),
)  # fmt: skip
