"""The version of hpfem."""

__version__ = "0.1.0"
