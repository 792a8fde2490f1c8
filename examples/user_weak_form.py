"""Physics of your own: the residual of the Allen-Cahn equation, -k laplace(u) + u^3 - u = 0, in weak form.

python examples/user_weak_form.py
python examples/user_weak_form.py --backend cuda
"""

import argparse
from pathlib import Path

import numpy as np

import hpfem as hp

MESH = Path(__file__).resolve().parent.parent / "meshes" / "curved_mixed.msh"


# A weak form is the factor of the test function, and the factor of its gradient, at one point. `u` is the value
# there, `du` the gradient in x, `k` a coefficient: a number, a function of the coordinates or a field.
def allen_cahn(u, du, k):
    """(u^3 - u, v) + (k grad u, grad v)."""
    return u**3 - u, k * du


# Its linearisation about a field w takes w as one more coefficient.
def linearised(u, du, k, w):
    """((3 w^2 - 1) u, v) + (k grad u, grad v)."""
    return (3 * w**2 - 1) * u, k * du


def main(path=MESH, order=4, backend="auto"):
    """Check the residual against the energy it is the derivative of, and the linearisation against the residual.

    Returns
    -------
    dict
        "rest": norm of the residual of u = 1, a solution; "energy_error", "linear_error": relative errors of difference
        quotients, of second order in their step.
    """
    space = hp.Space(hp.read_mesh(path), order, backend=backend)

    def conductivity(x, y, z):
        return 0.1 + 0.05 * x * y

    residual = hp.WeakForm(space, allen_cahn, fields={"k": conductivity})
    space.comm.print(residual.explain())

    one = space.project(lambda x, y, z: 1.0)
    rest = residual(one)
    u = space.project(lambda x, y, z: np.sin(x + 2 * y) + z)
    direction = space.project(lambda x, y, z: np.cos(x * y) - z)

    # The residual is the derivative of the energy: k/2 |grad u|^2 + (u^2 - 1)^2 / 4, integrated.
    k = space.evaluate(conductivity)

    def energy(field):
        value = hp.BwdTrans(space)(field)
        derivative = hp.PhysDeriv(space)(value)
        stretch = sum(space.integrate(k * derivative.component(i) * derivative.component(i)) for i in range(space.dim))
        well = value * value - 1
        return stretch / 2 + space.integrate(well * well) / 4

    step = 1e-4
    quotient = (energy(u + step * direction) - energy(u - step * direction)) / (2 * step)
    derivative = residual(u).dot(direction)
    energy_error = abs(quotient - derivative) / abs(derivative)

    # Newton's method would solve with this operator.
    tangent = hp.WeakForm(space, linearised, fields={"k": conductivity, "w": u})
    quotient = (residual(u + step * direction) - residual(u - step * direction)) / (2 * step)
    difference = tangent(direction) - quotient
    linear_error = np.sqrt(difference.dot(difference) / quotient.dot(quotient))

    rest_norm = np.sqrt(rest.dot(rest))
    space.comm.print(f"residual of u = 1: {rest_norm:.1e}; energy {energy_error:.1e}, linearisation {linear_error:.1e}")
    return {"rest": rest_norm, "energy_error": energy_error, "linear_error": linear_error}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The residual of the Allen-Cahn equation.")
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    main(backend=parser.parse_args().backend)
