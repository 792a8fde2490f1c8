"""StdMat: dense reference matrices, one matrix product for many elements ([Xing] Alg. 1, 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from hpfem.shapes import Tabulation
from hpfem.shapes.arrays import Floats


class Dense:
    """Values, or `gradients` without collocation, of a chunk of elements by dense matrices; scratch by `allocate`."""

    def __init__(self, tabulation: Tabulation, lanes: int, dtype: DTypeLike, gradients: bool) -> None:
        n_modes = len(tabulation.dense)
        self._work_size = (n_modes if gradients else 0, lanes), dtype
        self._test = np.ascontiguousarray(tabulation.dense, dtype)
        self._trial = np.ascontiguousarray(tabulation.dense.T, dtype)
        if gradients:
            derivatives = tabulation.dense_gradient
            self._trial_gradient = np.ascontiguousarray(derivatives.transpose(0, 2, 1).reshape(-1, n_modes), dtype)
            self._test_gradient = np.ascontiguousarray(self._trial_gradient.T)

    def allocate(self) -> None:
        """Make the scratch."""
        self._work = np.empty(*self._work_size)

    def evaluate(self, modes: Floats, out: Floats) -> None:
        """Evaluate at the points; modes [n_modes, lanes], out [Q, lanes]."""
        np.matmul(self._trial, modes, out=out)

    def evaluate_gradient(self, modes: Floats, value: Floats | None, out: Floats) -> None:
        """Differentiate by collapsed coordinates at the points; see `evaluate`; out [dim, Q, lanes]."""
        np.matmul(self._trial_gradient, modes, out=out.reshape(-1, out.shape[-1]))
        if value is not None:
            self.evaluate(modes, value)

    def test_value(self, values: Floats, out: Floats) -> None:
        """Test with the basis; values [Q, lanes], out [n_modes, lanes]."""
        np.matmul(self._test, values, out=out)

    def test_gradients(self, value: Floats | None, fluxes: Floats, out: Floats) -> None:
        """Test with the derivatives of the basis, and its values; see `test_value`; fluxes [dim, Q, lanes]."""
        np.matmul(self._test_gradient, fluxes.reshape(-1, fluxes.shape[-1]), out=out)
        if value is not None:
            self.test_value(value, self._work)
            out += self._work
