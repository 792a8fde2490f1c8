"""Factors in the kernels' layouts, made by NumPy, by a module of arrays that are not NumPy's, and by CuPy."""

from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cuda.codegen.layout import lines_padded, stored_factors
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.geometry.factors import KINDS
from hpfem.mesh import box
from tests.samples import NAMES, NAMES_2D, dimension, norm_error, skewed, straight

COUNTS = {"quad": (3, 2), "tri": (3, 2), "hex": (3, 2, 1), "prism": (3, 1, 1), "pyramid": (1, 1, 1), "tet": (2, 1, 1)}


class Foreign:
    """An array that NumPy can neither read nor compute with, as CuPy's."""

    __array_ufunc__ = None

    def __init__(self, values):
        self.values = values

    def __array__(self, *args, **options):
        raise TypeError("an array of a device became one of NumPy")

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return Foreign(self.values[index])

    def __setitem__(self, index, value):
        self.values[index] = native(value)

    @property
    def shape(self):
        return self.values.shape

    def reshape(self, *shape):
        return Foreign(self.values.reshape(*shape))

    def transpose(self, *axes):
        return Foreign(self.values.transpose(*axes))

    def __neg__(self):
        return Foreign(-self.values)

    def __add__(self, other):
        return Foreign(self.values + native(other))

    def __sub__(self, other):
        return Foreign(self.values - native(other))

    def __mul__(self, other):
        return Foreign(self.values * native(other))

    def __truediv__(self, other):
        return Foreign(self.values / native(other))

    def __matmul__(self, other):
        return Foreign(self.values @ native(other))

    def __itruediv__(self, other):
        self.values /= native(other)
        return self

    __radd__, __rmul__ = __add__, __mul__


def native(value):
    """NumPy's array of a foreign one; numbers stay, NumPy's arrays are refused."""
    if isinstance(value, Foreign):
        return value.values
    assert isinstance(value, int | float), f"{type(value)} met an array of a device"
    return value


FOREIGN = SimpleNamespace(
    asarray=lambda a: Foreign(np.array(a)),
    empty=lambda shape, dtype=np.float64: Foreign(np.full(shape, np.nan, dtype)),
    empty_like=lambda a: Foreign(np.full_like(native(a), np.nan)),
    matmul=lambda a, b: Foreign(native(a) @ native(b)),
    einsum=lambda text, a, b: Foreign(np.einsum(text, native(a), native(b))),
    moveaxis=lambda a, old, new: Foreign(np.moveaxis(native(a), old, new)),
    maximum=lambda a, b: Foreign(np.maximum(native(a), native(b))),
    sqrt=lambda a: Foreign(np.sqrt(native(a))),
)


def case(mesh, dtype, elements, order=2):
    """Problem and tables of the mass on a mesh, and the elements of a group."""
    problem = hp.Mass(hp.Space(mesh, order, dtype=dtype), backend="numpy").choices[0].kernel.problem
    return problem, Levels.of(problem), elements


def deformed(name, order):
    """Some cells of a geometry order; simplices of order 1 are affine."""
    return (
        box(name, COUNTS[name])
        .elevated(order)
        .transformed(lambda x: x + 0.1 * np.sin(1.7 * np.roll(x, 1, axis=1) * x + 0.4))
    )


def by_index(problem, levels, elements, kind):
    """The layout from its definition: line (j Q3 + k) E + e of a group."""
    factors = problem.geometry.factors(kind, 1, problem.dtype)[..., 0]  # [element, factor, point]
    if problem.geometry.affine and kind not in ("points", "map"):
        return factors[..., None]
    (q1, q2, q3), e = levels.counts, elements
    n, groups = factors.shape[1], -(-len(factors) // e)
    if kind == "map":
        out = np.zeros((groups * e, n, 1), problem.dtype)
        out[: len(factors)] = factors
        return out.reshape(groups, e, n, 1).transpose(0, 2, 3, 1)
    out = np.zeros((groups, q1, n, lines_padded(levels, e)), problem.dtype)
    element, i, j, k = np.meshgrid(np.arange(len(factors)), *(np.arange(q) for q in (q1, q2, q3)), indexing="ij")
    for f in range(n):
        point = (k * q2 + j) * q1 + i if levels.reverse else (i * q2 + j) * q3 + k
        out[element // e, i, f, (j * q3 + k) * e + element % e] = factors[element, f, point]
    return out


def close(found, expected):
    """Whether arrays agree to rounding."""
    return norm_error(found, expected) < (1e-14 if expected.dtype == np.float64 else 2e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_layouts_by_either_module(name, order, kind, dtype):
    mesh = deformed(name, order) if order else skewed(straight(name))
    for elements in (1, 4, 7):
        made = case(mesh, dtype, elements)
        size = 40 * dimension(name) ** 2 * len(made[0].tabulation.rule)
        expected = by_index(*made, kind)
        on_host = stored_factors(*made, kind)
        assert on_host.dtype == dtype
        assert on_host.shape == expected.shape
        assert close(on_host, expected)
        for chunk in (None, 1, size // 10, size):  # elements at a time: all, the least, some, more
            elsewhere = stored_factors(*made, kind, FOREIGN, FOREIGN.empty, chunk)
            assert elsewhere.values.dtype == dtype
            assert close(elsewhere.values, expected)
            padding = elsewhere.values[..., elements * made[1].counts[1] * made[1].counts[2] :]
            assert not padding.size or elsewhere.shape[-1] == 1 or not padding.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES_2D)
def test_surfaces_by_either_module(name, kind):
    bent = deformed(name, 2).transformed(lambda x: np.column_stack([x, 0.3 * x[:, 0] ** 2]))
    made = case(bent, np.float64, 4)
    expected = by_index(*made, kind)
    assert close(stored_factors(*made, kind), expected)
    assert close(stored_factors(*made, kind, FOREIGN, FOREIGN.empty, 200).values, expected)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [*NAMES, "surface"])
def test_factors_made_on_the_device(name, dtype, monkeypatch):
    from hpfem.backends.cuda.runtime import kernel

    monkeypatch.setattr(kernel, "HOST_BYTES", 0)
    monkeypatch.setattr(kernel, "DEVICE_CHUNK", 2000)
    if name == "surface":
        meshes = [deformed("tri", 2).transformed(lambda x: np.column_stack([x, 0.3 * x[:, 0] ** 2]))]
    else:
        meshes = [skewed(straight(name)), *(deformed(name, order) for order in (1, 2, 3))]
    for mesh in meshes:
        made = case(mesh, dtype, 4)
        for kind in KINDS:
            found = kernel.device_factors(*made, kind).get()
            assert norm_error(found, by_index(*made, kind)) < (1e-13 if dtype == np.float64 else 2e-7)
