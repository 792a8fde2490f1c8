"""InverseMass: functionals as functions, element by element."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lu_solve

from ..errors import StateError
from ..field import Field
from ..memory import HOST
from .projection import FwdTrans, _conversion


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

    def __call__(self, field: Field, out: Field | None = None) -> Field:
        """Solve the mass system of every element.

        Parameters
        ----------
        field : Field
            State "dual".
        out : Field, optional
            Overwritten and returned.

        Returns
        -------
        Field
            State "coeff".

        Raises
        ------
        StateError
            If a field has the wrong state, space or number of components.
        SolverError
            If the mass system of an element does not converge.
        """
        if not isinstance(field, Field) or field.space is not self.space:
            raise StateError("InverseMass takes a field on its own space")
        if field.state != "dual":
            raise StateError(f"InverseMass takes a 'dual' field, got {field.state!r}; apply Mass or another form first")
        if out is None:
            out = self.space.empty("coeff", field.components)
        elif out.space is not self.space or out.state != "coeff" or out.components != field.components:
            raise StateError(f"out of InverseMass must be a 'coeff' field with {field.components} component(s)")
        for number, (block, source, target) in enumerate(zip(self.space.blocks, field.data, out.data, strict=True)):
            mass, _ = self._made[number]
            values = np.asarray(source.read(HOST), dtype=np.float64)
            conversion = _conversion(block.basis)
            rhs = lu_solve(conversion, values.reshape(-1, block.n_modes).T, trans=1).T
            coefficients = self._solve(block, mass, np.ascontiguousarray(rhs).reshape(values.shape))
            flat = lu_solve(conversion, coefficients.reshape(-1, block.n_modes).T).T
            target.write(HOST)[...] = flat.reshape(values.shape)
        return out
