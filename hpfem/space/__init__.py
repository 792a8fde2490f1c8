"""Spaces of functions on a mesh, and fields of their values."""

from .block import Block
from .field import Field
from .regions import ByRegion, by_region
from .sides import facet_sides
from .space import Space

__all__ = ["Block", "ByRegion", "Field", "Space", "by_region", "facet_sides"]
