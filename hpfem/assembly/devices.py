"""Sparse matrices and vectors in a device's memory: SciPy's where arrays are NumPy's, CuPy's where they are CuPy's."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes.arguments import reals

from ..backends.cuda.runtime.device import CudaDevice
from ..memory import HOST, Device, PairArray


def array_module(array: Any) -> Any:
    """The module whose functions work on an array: numpy or cupy."""
    owner = type(array).__module__.partition(".")[0]
    return np if owner != "cupy" else import_module("cupy")


def as_vector(given: Any, what: str) -> Any:
    """An array of floats of NumPy or of a device as it is, anything else as one of NumPy.

    Parameters
    ----------
    given : array_like
    what : str
        What messages call it.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        If it is no array of real numbers.
    """
    if (type(given) is np.ndarray or array_module(given) is not np) and given.dtype.kind == "f":
        return given
    return reals(given, what)


def has_indexed(device: Device) -> bool:
    """Whether kernels for index tables (`hpfem.backends.cuda.vectors.indexed`) run where a device's arrays are."""
    return isinstance(device, CudaDevice)


def asymmetry(apply: Callable[[Any], Any], u: Any, v: Any) -> float:
    """How far an operator is from a symmetric one: |(u, A v) - (v, A u)| over |A u| + |A v|.

    Parameters
    ----------
    apply : callable
        x -> A x.
    u, v : array, [n]
        Random vectors.

    Returns
    -------
    float
        About rounding if the operator is symmetric.
    """
    Au, Av = apply(u), apply(v)
    size = float(Au @ Au) ** 0.5 + float(Av @ Av) ** 0.5
    return abs(float(u @ Av) - float(v @ Au)) / size if size else 0.0


def sparse_on(matrix: Any, device: Device) -> Any:
    """A SciPy CSR matrix, as one that multiplies arrays of a device.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array
    device : Device

    Returns
    -------
    csr_array, or cupyx.scipy.sparse.csr_matrix on a device of CuPy arrays
    """
    if array_module(device.empty((1,), matrix.dtype)) is np:
        return matrix
    return import_module("cupyx.scipy.sparse").csr_matrix(matrix)


def vector_on(vector: np.ndarray[Any, Any], device: Device, dtype: DTypeLike | None = None) -> Any:
    """A host vector as an array of a device; one counted transfer unless the device is the host.

    Parameters
    ----------
    vector : ndarray
    device : Device
    dtype : dtype, optional
        Of the result; that of the vector when left out.

    Returns
    -------
    array of the device
    """
    return PairArray.of(np.ascontiguousarray(vector, dtype)).read(device)


def vector_home(vector: Any, device: Device) -> np.ndarray[Any, Any]:
    """A vector on a device as a host array; one counted transfer unless the device is the host."""
    return np.array(PairArray.of(vector, device).read(HOST))
