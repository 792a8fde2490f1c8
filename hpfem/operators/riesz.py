"""InverseMass: functionals as functions, element by element."""

from __future__ import annotations

import numpy as np

from .forward_transform import Array, FwdTrans, converted


class InverseMass(FwdTrans):
    """Riesz representation: the function whose mass inner products are a functional, element by element.

    It makes a "dual" field, such as the result of Helmholtz, a function that can be plotted. It is the inverse of Mass;
    of other functionals the function is in general discontinuous between elements.

    Parameters
    ----------
    space : Space
    strategy, backend
        See `FwdTrans`.
    """

    input_state, output_state = "dual", "coeff"

    def _moments(self, number: int, values: Array) -> Array:
        """The functional on the orthogonal basis instead of the block's."""
        block = self.space.blocks[number]
        columns = values.reshape(-1, block.n_modes).T
        rhs = converted(block.basis, columns, transposed=True).T
        return np.ascontiguousarray(rhs).reshape(values.shape)
