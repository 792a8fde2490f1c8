"""Backends, each in a folder that registers it; other packages register theirs with `BACKENDS.add`."""

from .base import BACKENDS, Backend, choose_backend, vectors_of, vectors_on
from .cpu import backend as _cpu  # noqa: F401
from .cuda import backend as _cuda  # noqa: F401
from .numpy import backend as _numpy  # noqa: F401 - first: what others fall back to

__all__ = ["BACKENDS", "Backend", "choose_backend", "vectors_of", "vectors_on"]
