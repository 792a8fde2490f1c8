"""A backend that another package registers: all of hpfem takes it up."""

import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.mesh import box
from hpfem.shapes import SHAPES
from tests.backends.problems import FORMS, make_space
from tests.operators.reference import random_field
from tests.samples import norm_error
from tests.toy_backend import ToyBackend


@pytest.fixture(autouse=True)
def toy():
    """Register it, and take it away again."""
    BACKENDS.add("toy", ToyBackend())
    yield BACKENDS["toy"]
    BACKENDS.pop("toy")


@pytest.mark.parametrize("deformed", [False, True])
@pytest.mark.parametrize("shape", [name for name in SHAPES if SHAPES[name].dim > 1])
def test_all_forms(shape, deformed, rng):
    space = make_space(SHAPES[shape], 2, deformed)
    for name, make in FORMS.items():
        for algorithm in ("collocated", "noncollocated"):
            expected, found = (make(space, backend=b, algorithm=algorithm) for b in ("numpy", "toy"))
            assert {choice.strategy for choice in found.choices} == {"toy"}
            form = found.form
            u = random_field(space, rng, form.source, 2 if form.components == 2 else form.coupled(space.dim))
            for a, b in zip(found(u).arrays, expected(u).arrays, strict=True):
                assert norm_error(a, b) < 1e-12, name


def test_a_solution(rng):
    space = hp.Space(box(("hex", "tet"), (2, 2, 2)), 3, quadrature="collapsed", backend="toy")
    u = hp.solve_helmholtz(
        space, lam=1.0, f=lambda x, y, z: x * y + z, neumann=None, dirichlet=lambda x, y, z: x * y + z
    )
    assert hp.l2_error(u, lambda x, y, z: x * y + z) < 1e-10
    assert hp.choose_backend("toy").roofline("float64", quick=True).bandwidth > 1e8


def test_its_results_are_tuned():
    space = hp.Space(box("quad", (3, 2)), 2, backend="toy")
    [result] = hp.tune(space, ["Mass"], seconds=5.0)
    assert result.record.winner[0] == "toy" or result.record.winner.strategy == "toy"
    assert "measured here" in hp.Mass(space).explain()
