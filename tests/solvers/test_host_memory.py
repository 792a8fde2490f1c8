"""From a mesh to a solution on a device: no array of all points on the host, and nothing like it is moved."""

import gc
import tracemalloc

import numpy as np
import pytest

import hpfem as hp
from hpfem.memory import count_transfers
from hpfem.mesh import box

ORDER, MORE = 2, 10


def bent(n):
    return box("hex", (n, n, n)).elevated(2).transformed(lambda x: x + 0.02 * np.sin(3 * x[:, ::-1]))


def exact(x, y, z):
    return x * y + z**2


def solved(mesh, backend):
    """Set-up with coefficients that are functions, a solution, its error; the bytes of a number at all points."""
    space = hp.Space(mesh, ORDER, quadrature=MORE, backend=backend)
    problem = hp.Problem(
        space, lambda x, y, z: 1 + x**2, exact, diffusivity=lambda x, y, z: 2 + y, tol=1e-8, preconditioner="jacobi"
    )
    u = problem.solve(lambda x, y, z: (1 + x**2) * exact(x, y, z) - 2 * (2 + y) - x)
    assert hp.l2_error(u, exact) < 1e-4
    return 4 * space.n_cells * space.blocks[0].n_points


def measured(backend, n=16):
    """On n^3 cells: peak of NumPy's memory, what was moved, and the bytes of float32 at all points.

    There are so many points that all else, as modes at the points of one element, is small beside a number at each;
    pieces of some elements are smaller too.
    """
    solved(bent(3), backend)  # imports and compiles
    mesh = bent(n)
    gc.collect()
    tracemalloc.start()
    try:
        with count_transfers() as moved:
            everywhere = solved(mesh, backend)
        return tracemalloc.get_traced_memory()[1], moved, everywhere
    finally:
        tracemalloc.stop()


@pytest.mark.cuda
def test_no_array_of_all_points_is_made_on_the_host():
    peak, moved, everywhere = measured("cuda")
    assert peak < everywhere
    assert moved.bytes_to_host < everywhere and moved.bytes_to_device < everywhere


def test_one_that_is_made_is_found():
    """Where the host computes there are such arrays: coefficients and factors of the geometry."""
    peak, moved, everywhere = measured("cpu", 8)
    assert peak > 2 * everywhere and moved.total == 0
