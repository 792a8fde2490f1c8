"""Packages imported at their first use: GPU machines lack them, and collect these tests without running them."""

from importlib import import_module


class Lazy:
    """A module."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute == "__wrapped__":  # pytest asks while it collects
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


h5py, vtk, numpy_support = Lazy("h5py"), Lazy("vtk"), Lazy("vtkmodules.util.numpy_support")
