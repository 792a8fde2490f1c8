"""The NumPy kernels' chunks: results do not depend on them, and what is held at a time stays bounded."""

import tracemalloc

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.numpy import pipeline
from hpfem.mesh import box
from tests.operators.reference import random_field
from tests.operators.ways import ways
from tests.samples import NAMES, dimension

MIB = 2**20


def bent(name, counts):
    """Deformed cells."""
    return box(name, counts).elevated(2).transformed(lambda x: x + 0.02 * np.sin(3 * np.roll(x, 1, axis=1)))


@pytest.mark.parametrize("kind", ["affine", "deformed"])
@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_chunks(monkeypatch, name, kind, rng):
    counts = (7, 1, 1)[: dimension(name)]
    space = hp.Space(box(name, counts) if kind == "affine" else bent(name, counts), 2, quadrature="collapsed")
    d = space.dim
    coeff, vector = random_field(space, rng, "coeff", 2), random_field(space, rng, "phys", 2 * d)

    def coupled(u, du, k, x):
        return [u[0] * u[1], k * u[1] + x[0]], [u[0] * du[1], du[0]]

    def results():
        found = []
        for way in ways("numpy"):
            found.append(hp.Helmholtz(space, lam=lambda *x: 1 + x[0], **way)(coeff))
            found.append(hp.IProductWRTDerivBase(space, **way)(vector))
            found.append(hp.PhysDeriv(space, **way)(vector))
            found.append(hp.BwdTrans(space, **way)(coeff))
            form = hp.WeakForm(space, coupled, components=2, fields={"k": lambda *x: x[1]}, **way)
            found.append(form(coeff))
        return [a for field in found for a in field.arrays]

    whole = results()
    for lanes in (1, 3, 5):
        monkeypatch.setattr(pipeline, "chunk_lanes", lambda problem, lanes=lanes: lanes)
        for found, expected in zip(results(), whole, strict=True):
            assert np.allclose(found, expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max())


def test_chunks_fill_the_block_evenly():
    for elements in (1, 95, 97, 1000, 5000):
        space = hp.Space(box("quad", (elements, 1)), 3)
        kernel = hp.Mass(space, backend="numpy").choices[0].kernel
        chunks = -(-elements // kernel.lanes)
        assert 1 <= kernel.lanes <= 512
        assert chunks * kernel.lanes - elements < chunks


def peak(action):
    """Bytes allocated at most while something is done, beyond what stays."""
    tracemalloc.start()
    try:
        result = action()
        now, highest = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return highest - now, now, result


@pytest.mark.parametrize("strategy", ["stdmat", "sumfac"])
def test_scratch_of_an_application_does_not_grow_with_the_block(strategy, rng):
    found = []
    for columns in (20, 80):
        space = hp.Space(bent("quad", (columns, 100)), 6)
        u, out = random_field(space, rng), space.zeros("dual")
        operator = hp.AdvectionDiffusionReaction(space, [1.0, 2.0], strategy=strategy, backend="numpy")
        operator(u, out=out)
        found.append(peak(lambda operator=operator, u=u, out=out: operator(u, out=out))[0])
    # 8000 elements of 64 points are 4 MiB a field; a chunk's arrays are 160 kB each.
    assert max(found) < 2 * MIB
    assert found[1] < 1.5 * found[0] + 0.1 * MIB


def test_scratch_of_a_kernel_and_its_factors_is_bounded(rng):
    space = hp.Space(bent("hex", (20, 20, 20)), 4)
    factors = 8 * space.n_cells * space.blocks[0].n_points * 7
    transient, kept, operator = peak(lambda: hp.Helmholtz(space, lam=1.0, backend="numpy"))
    # What stays: the factors and the buffers of one chunk; what passes: chunks of Jacobians.
    assert kept < factors + 60 * MIB
    assert transient < 250 * MIB
    assert operator.choices[0].kernel.lanes < 600


def test_stale_lanes_of_a_short_chunk_do_no_harm(monkeypatch, rng):
    monkeypatch.setattr(pipeline, "chunk_lanes", lambda problem: 4)
    space = hp.Space(bent("quad", (5, 1)), 2)
    u = random_field(space, rng)
    for way in ways("numpy"):
        operator = hp.WeakForm(space, lambda u, du: (1.0 / u, du / u), **way)
        broken = u.copy()
        broken.arrays[0][:, :4] = 0.0
        first = np.empty_like(u.arrays[0])
        with np.errstate(all="ignore"):  # the operator would refuse the broken elements' results
            operator.choices[0].kernel.apply(broken.arrays[0], first)
        # The last element shares its chunk with what was left of the broken ones.
        assert np.isfinite(first[:, 4]).all()
        again = operator(u)
        assert np.isfinite(again.arrays[0]).all()
        assert np.array_equal(again.arrays[0][:, 4], first[:, 4])
