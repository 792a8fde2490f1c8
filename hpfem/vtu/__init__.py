"""Fields as VTU files, for ParaView and other programs built on VTK."""

from .writer import write_vtu

__all__ = ["write_vtu"]
