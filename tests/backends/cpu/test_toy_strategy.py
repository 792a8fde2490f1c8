"""A strategy of compiled kernels is a file and a row: all of hpfem takes it up."""

from functools import partial

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.cpu import backend
from hpfem.backends.cpu.codegen.strategies import COMPILED
from hpfem.backends.cpu.runtime import kernel
from hpfem.errors import NotSuitable
from hpfem.mesh import box
from tests.backends.cpu.toy_strategy import ROW
from tests.operators.reference import random_field
from tests.operators.ways import special
from tests.samples import NAMES, curved, norm_error, skewed, straight


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """Add the row to the table, and to what was made of it when hpfem was imported."""
    for name, row in ROW.items():
        monkeypatch.setitem(COMPILED, name, row)
        monkeypatch.setitem(kernel._WRITERS, name, row.write)
        own = BACKENDS["cpu"].strategies
        monkeypatch.setattr(BACKENDS["cpu"], "strategies", (*own, backend.CpuCompiled(name)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_chosen_and_agrees(name, dtype, rng):
    space = hp.Space(skewed(straight(name)), 3, dtype=dtype)
    found, expected = hp.Mass(space, backend="cpu"), hp.Mass(space, backend="numpy")
    assert {choice.strategy for choice in found.choices} == {"toy"} and "toy" in found.explain()
    u = random_field(space, rng, "coeff", 2)
    for a, b in zip(found(u).arrays, expected(u).arrays, strict=True):
        assert norm_error(a, b) < (1e-12 if dtype == np.float64 else 1e-5)


def test_it_says_what_it_does_not_serve(rng):
    for mesh, make, why in ((curved("hex", 2), hp.Mass, "affine"), (straight("hex"), hp.Laplacian, "mass matrix only")):
        space = hp.Space(mesh, 2, backend="cpu")
        with pytest.raises(NotSuitable, match=why):
            make(space, strategy="toy")
        assert "toy" not in {choice.strategy for choice in make(space).choices}
        assert "toy" not in {strategy for strategy, _ in special("cpu", partial(make, space))}


def test_products_with_shared_unknowns(rng):
    c0 = {name: hp.C0Space(hp.Space(box("hex", (2, 2, 2)), 3, backend=name)) for name in ("numpy", "cpu")}
    found, expected = (hp.GlobalOperator(hp.Mass(c0[name].space), c0[name]) for name in ("cpu", "numpy"))
    assert {choice.strategy for choice in found.operator.choices} == {"toy"}
    x = rng.standard_normal(c0["cpu"].size)
    assert norm_error(found(x), expected(x)) < 1e-13


def test_its_results_are_tuned():
    space = hp.Space(box("quad", (3, 2)), 2, backend="cpu")
    [result] = hp.tune(space, ["Mass"], seconds=5.0)
    assert any(config.strategy == "toy" for config in result.seconds)
