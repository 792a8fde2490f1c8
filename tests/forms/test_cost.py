"""Models of work against counts of what is done: products counted as they are called, arrays by their sizes."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.forms.cost import operator_bytes, operator_flops, pointwise_flops, stage_flops
from hpfem.geometry.factors import KINDS
from hpfem.shapes import Tabulation, default_counts, make_basis, quadrature
from tests.cases import SHAPES_2D, SHAPES_3D, each_shape
from tests.operators.reference import random_field
from tests.samples import NAMES, curved, dimension, skewed, straight

SHAPES = SHAPES_2D + SHAPES_3D


@pytest.fixture
def products(monkeypatch):
    """Operations of the matrix products called since the last clearing, as a list."""
    counted = []
    matmul = np.matmul

    def counting(a, b, *args, **kwargs):
        result = matmul(a, b, *args, **kwargs)
        counted.append(2 * result.size * a.shape[-1])
        return result

    monkeypatch.setattr(np, "matmul", counting)
    return counted


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
@pytest.mark.parametrize("strategy", ["stdmat", "sumfac"])
@pytest.mark.parametrize("name", NAMES)
def test_products_are_as_many_as_the_model_says(products, name, strategy, basis, rng):
    space = hp.Space(curved(name), 4, basis, "collapsed")
    d = dimension(name)
    fields = {
        "coeff": random_field(space, rng),
        "phys": random_field(space, rng, "phys"),
        "vector": random_field(space, rng, "phys", d),
    }
    cases = [
        ("coeff", lambda **o: hp.BwdTrans(space, **o)),
        ("phys", lambda **o: hp.IProductWRTBase(space, **o)),
        ("phys", lambda **o: hp.PhysDeriv(space, **o)),
        ("vector", lambda **o: hp.IProductWRTDerivBase(space, **o)),
        ("coeff", lambda **o: hp.Mass(space, **o)),
        ("coeff", lambda **o: hp.Laplacian(space, **o)),
        ("coeff", lambda **o: hp.Helmholtz(space, 1.0, **o)),
        ("coeff", lambda **o: hp.AdvectionDiffusionReaction(space, [1.0] * d, **o)),
        ("coeff", lambda **o: hp.WeakForm(space, lambda du: du[0], test=("value",), **o)),
        ("coeff", lambda **o: hp.WeakForm(space, lambda u: [u] * d, test=("grad",), **o)),
        ("coeff", lambda **o: hp.WeakForm(space, lambda u, du: (du[0], du), **o)),
    ]
    for state, make in cases:
        for algorithm in ("collocated", "noncollocated"):
            operator = make(strategy=strategy, algorithm=algorithm, backend="numpy")
            products.clear()
            operator(fields[state])
            problem = operator.choices[0].kernel.problem
            per = space.blocks[0].n_elements * (d if state == "vector" else 1)
            coupled = d if state == "vector" else 1
            model = operator_flops(problem, strategy) - pointwise_flops(problem)
            assert sum(products) * coupled == model * per, (operator.name, algorithm)
            assert operator.flops == operator_flops(problem, strategy) * space.blocks[0].n_elements


def test_pointwise_operations_by_hand():
    space = hp.Space(curved("hex"), 2, backend="numpy")
    q = space.blocks[0].n_points

    def count(operator):
        return pointwise_flops(operator.choices[0].kernel.problem) / q

    # Weight; metric times gradient: 9 multiplications, 6 additions; lam u and its weight.
    assert count(hp.Mass(space)) == 1
    assert count(hp.Laplacian(space)) == 15
    assert count(hp.Helmholtz(space, lam=2.0)) == 17
    # The coefficient times the gradient: 3 more.
    assert count(hp.Helmholtz(space, lam=2.0, diffusivity=3.0)) == 20
    assert count(hp.WeakForm(space, lambda du: np.sin(2.0) * du, test=("grad",))) == 18
    assert count(hp.BwdTrans(space)) == 0
    assert count(hp.IProductWRTBase(space)) == 1
    # Inverse Jacobian: 3 x (3 + 2).
    assert count(hp.PhysDeriv(space)) == 15
    # Weights on 3 components, then the transposed Jacobian.
    assert count(hp.IProductWRTDerivBase(space)) == 18
    # Gradient, u du_0, its weight.
    assert count(hp.WeakForm(space, lambda u, du: u * du[0], test=("value",))) == 17


@each_shape(SHAPES)
def test_growth_with_the_order(shape):
    def flops(order, strategy):
        tabulation = Tabulation(make_basis("modified", shape, order), quadrature(shape, default_counts(shape, order)))
        stages = stage_flops(tabulation, strategy)
        return np.array([stages.value, stages.gradient, stages.along])

    low, high = (10, 20) if shape.dim == 3 else (20, 40)
    d = shape.dim
    for strategy, expected in (("sumfac", [d + 1, d + 1, d + 1]), ("stdmat", [2 * d, 2 * d, d + 1])):
        # P + 1 modes and P + 1 or P + 2 points a direction.
        derivatives = np.log(flops(high, strategy) / flops(low, strategy)) / np.log((high + 1.5) / (low + 1.5))
        assert np.all(np.abs(derivatives - expected) < 0.15), strategy


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bytes_are_those_of_the_arrays(name, dtype, rng):
    for mesh in (curved(name), skewed(straight(name))):
        space = hp.Space(mesh, 3, quadrature="collapsed", dtype=dtype, backend="numpy")
        (block,) = space.blocks
        coeff, phys = random_field(space, rng), random_field(space, rng, "phys")
        vector = random_field(space, rng, "phys", space.dim)
        k = space.evaluate(lambda *x: 1 + x[0])
        factors = {kind: block.geometry.factors(kind, 1, dtype).nbytes for kind in KINDS}
        cases = [
            (hp.BwdTrans(space), coeff.nbytes + phys.nbytes),
            (hp.IProductWRTBase(space), phys.nbytes + coeff.nbytes + factors["wJ"]),
            (hp.PhysDeriv(space), phys.nbytes + vector.nbytes + factors["jacobian"]),
            (hp.Mass(space), 2 * coeff.nbytes + factors["wJ"]),
            (hp.Laplacian(space), 2 * coeff.nbytes + factors["metric"]),
            (hp.Helmholtz(space, lam=1.0), 2 * coeff.nbytes + factors["metric"]),
            (hp.Helmholtz(space, lam=k, diffusivity=k), 2 * (coeff.nbytes + phys.nbytes) + factors["metric"]),
            (hp.AdvectionDiffusionReaction(space, vector), 2 * coeff.nbytes + vector.nbytes + factors["jacobian"]),
            (
                hp.WeakForm(space, lambda u, x: u * x[0], test=("value",)),
                2 * coeff.nbytes + factors["wJ"] + factors["points"],
            ),
        ]
        for operator, expected in cases:
            assert operator.nbytes == expected, operator.name
            problem = operator.choices[0].kernel.problem
            assert operator_bytes(problem) * block.n_elements == expected
        # Components share geometry and fields.
        problem = hp.Helmholtz(space, lam=k, diffusivity=k).choices[0].kernel.problem
        for n in (1, 3):
            expected = 2 * n * coeff.nbytes + 2 * phys.nbytes + factors["metric"]
            assert n * operator_bytes(problem, n) * block.n_elements == pytest.approx(expected, rel=5e-3)
        # Per component of the input: the vector goes in, its D-th part comes out.
        derivative = hp.IProductWRTDerivBase(space)
        per = phys.nbytes + coeff.nbytes / space.dim + factors["jacobian"]
        assert derivative.nbytes == pytest.approx(per, rel=2e-3)
