"""Small meshes of every shape for the tests, and integrals over them by other means than the package's.

All boxes are the unit square or cube before they are moved, so that integrals over them are known.
"""

import numpy as np
import pytest

from hpfem.mesh import Mesh, box

NAMES_2D = ("quad", "tri")
NAMES_3D = ("hex", "prism", "pyramid", "tet")
NAMES = NAMES_2D + NAMES_3D
# One cell or few, an odd number of them where the shape allows it.
COUNTS = {"quad": (3, 1), "tri": (3, 1), "hex": (3, 1, 1), "prism": (3, 1, 1), "pyramid": (1, 1, 1), "tet": (1, 1, 1)}

# A rotation, a shear and different scales: nothing is parallel to an axis.
SKEW = np.array([[1.1, 0.4, -0.2], [-0.3, 0.8, 0.5], [0.25, -0.35, 1.3]])
SHIFT = np.array([0.3, -0.2, 0.1])


def dimension(name):
    """Dimension of a shape."""
    return 2 if name in NAMES_2D else 3


def straight(name, counts=None):
    """Unit square or cube, cut into cells of a shape whose sides are parallel to the axes."""
    return box(name, counts or COUNTS[name])


def skewed(mesh):
    """An affine copy: rotated, sheared, stretched and moved."""
    d = mesh.points.shape[1]
    return mesh.transformed(lambda x: x @ SKEW[:d, :d].T + SHIFT[:d])


def bulge(x, amount):
    """A map of the unit box to itself, smooth and one to one; it keeps every side of the box in its plane."""
    inner = x * (1 - x)
    others = 1.3 * np.roll(x, 1, axis=1) + 0.7 * np.roll(x, -1, axis=1)
    return x + amount * inner * (1 + np.sin(2 * others + 0.5))


def tapered(name, amount=0.35):
    """Straight cells that are not affine (but for simplices): the vertices moved, the unit box filled as before."""
    counts = {"pyramid": (2, 1, 1), "tet": (2, 1, 1), "tri": (2, 2)}.get(name, (2,) * dimension(name))
    return box(name, counts).transformed(lambda x: bulge(x, amount) if name not in FLAT else x)


def curved(name, order=3, amount=0.25):
    """Cells of a higher geometry order that fill a bent box."""
    counts = {"pyramid": (1, 1, 1), "tet": (1, 1, 1), "hex": (1, 1, 1), "prism": (1, 1, 1)}.get(name, (2, 1))

    def bend(x):
        y = bulge(x, amount)
        return y + 0.15 * np.sin(1.5 * np.roll(y, 1, axis=1) + 0.3)

    return box(name, counts).elevated(order).transformed(bend)


# Shapes whose straight cells are all affine.
FLAT = ("tri", "tet")


def sphere_patch(name, order=6, counts=(2, 3)):
    """Part of the unit sphere, longitudes 0 to 1 and heights -0.4 to 0.6: area 1."""
    flat = box(name, counts).elevated(order)

    def wrap(x):
        phi, z = x[:, 0], x[:, 1] - 0.4
        r = np.sqrt(1 - z**2)
        return np.stack([r * np.cos(phi), r * np.sin(phi), z], axis=1)

    return flat.transformed(wrap)


def plane_in_space(name, counts=(2, 2)):
    """The unit square, rotated into a plane of space: affine cells on a surface."""
    normal = np.linalg.qr(SKEW)[0]
    return box(name, counts).transformed(lambda x: x @ normal[:, :2].T)


class Polynomial:
    """A polynomial of a total degree with random coefficients, and its gradient.

    Parameters
    ----------
    rng : numpy.random.Generator
    dim : int
    degree : int
    """

    def __init__(self, rng, dim, degree):
        grid = np.indices((degree + 1,) * dim).reshape(dim, -1).T
        self.powers = grid[grid.sum(axis=1) <= degree]
        self.scales = rng.uniform(-1, 1, len(self.powers)) / (1 + self.powers.sum(axis=1))

    def __call__(self, *x):
        return self._sum(self.scales, self.powers, x)

    def derivative(self, i, *x):
        """Derivative by x_i."""
        here = self.powers[:, i] > 0
        lowered = self.powers[here] - np.eye(len(x), dtype=int)[i]
        return self._sum(self.scales[here] * self.powers[here, i], lowered, x)

    @staticmethod
    def _sum(scales, powers, x):
        table = [[np.ones(np.shape(x_k))] for x_k in x]
        for x_k, row in zip(x, table, strict=True):
            for _ in range(powers.max(initial=0)):
                row.append(row[-1] * x_k)
        total = np.zeros(np.shape(x[0]))
        for scale, own in zip(scales, powers, strict=True):
            term = table[0][own[0]]
            for row, p in zip(table[1:], own[1:], strict=True):
                term = term * row[p]
            total += scale * term
        return total


def box_integral(function, dim, n=20, matrix=None, shift=None):
    """Integral of a function over the unit box, or over an affine image of it, by Gauss' rule."""
    z, w = np.polynomial.legendre.leggauss(n)
    x = np.stack(np.meshgrid(*[(z + 1) / 2] * dim, indexing="ij")).reshape(dim, -1)
    weights = np.ones(1)
    for _ in range(dim):
        weights = np.multiply.outer(weights, w / 2).ravel()
    if matrix is not None:
        x = matrix @ x + shift[:, None]
        weights = weights * abs(np.linalg.det(matrix))
    return float(weights @ function(*x))


def norm_error(found, expected):
    """Largest difference over the largest value, of arrays on the host or on a GPU."""
    found, expected = (own.get() if hasattr(own, "get") else np.asarray(own) for own in (found, expected))
    scale = max(np.abs(expected).max(), 1e-300)
    return np.abs(found - expected).max() / scale


__all__ = [
    "COUNTS", "FLAT", "NAMES", "NAMES_2D", "NAMES_3D", "SHIFT", "SKEW", "Mesh", "Polynomial", "box_integral", "bulge",
    "curved", "dimension", "norm_error", "plane_in_space", "skewed", "sphere_patch", "straight", "tapered",
]  # fmt: skip


def long(*cases):
    """Parameters of cases that only the long tests run; a tuple has one for each name."""
    given = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*case, marks=pytest.mark.long) for case in given]
