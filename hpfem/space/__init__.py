"""Spaces of functions on a mesh, and fields of their values."""

from .field import Field
from .space import Block, Space

__all__ = ["Block", "Field", "Space"]
