"""The exceptions of hpfem: one base class, one subclass per kind of trouble.

    HpfemError
    ├── ArgumentError   an argument that cannot be used as it is (also a ValueError); `NotFinite`, of a user's function
    ├── MeshError       a mesh file or mesh that cannot be read or used
    ├── StateError      a field in the wrong state, space, dtype or number of components
    ├── NotSuitable     a strategy cannot serve an operator on a block
    ├── DeviceError     no usable compiler, GPU or driver for a backend; `OutOfMemory`, also a MemoryError, if no room
    └── SolverError     a solver that did not reach its tolerance or met a breakdown; `NewtonError`

and `HpfemWarning`, a Python warning: a result is correct, but not all that was asked for.
Every message names what is wrong, where, and what to do.
"""

from typing import Any

from hpfem.shapes.errors import ArgumentError, HpfemError

__all__ = [
    "ArgumentError",
    "DeviceError",
    "HpfemError",
    "HpfemWarning",
    "MeshError",
    "NewtonError",
    "NotFinite",
    "NotSuitable",
    "SolverError",
    "StateError",
]


class NotFinite(ArgumentError):
    """Values of a user's pointwise function that are not finite, where it is evaluated."""


class MeshError(HpfemError):
    """A mesh file or a mesh that cannot be read or used; the message names the file, the element and the reason."""


class StateError(HpfemError):
    """A field whose state, space, dtype or number of components is not what an operation takes."""


class NotSuitable(HpfemError):
    """A strategy's answer that it cannot serve an operator on a block; the message is the reason."""


class DeviceError(HpfemError):
    """A backend that cannot run on this machine: no compiler, no GPU, no driver."""


class SolverError(HpfemError):
    """A solver that broke down or did not reach its tolerance."""


class NewtonError(SolverError):
    """Newton's method that stopped: `u` is the last good iterate, a field, and `info` the history."""

    u: Any = None
    info: Any = None


class HpfemWarning(UserWarning):
    """Data or a result that a user should know more about: the message says what was done and what to do."""
