"""Spaces of functions on a mesh, and fields of their values."""

from .block import Block
from .field import Field
from .space import Space

__all__ = ["Block", "Field", "Space"]
