"""Backends, each in a folder that registers it; other packages register theirs with `BACKENDS.add`."""

from .base import BACKENDS, Backend, choose_backend, vectors_of, vectors_on
from .numpy import backend as _numpy  # noqa: F401

# isort: split
# The order in which they are listed: the reference, then these.
from .cpu import backend as _cpu  # noqa: F401
from .cuda import backend as _cuda  # noqa: F401

__all__ = ["BACKENDS", "Backend", "choose_backend", "vectors_of", "vectors_on"]
