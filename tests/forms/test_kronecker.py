"""Matrices of one direction: sparse, the quadrature's own, and with those of other directions the element's matrix."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss

import hpfem as hp
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.errors import NotSuitable
from hpfem.forms.kronecker import check_kronecker, functions_of, kronecker_flops, matrices_of_directions
from hpfem.geometry.jacobians import symmetric_pairs
from hpfem.shapes import SEGMENT
from hpfem.shapes.basis import make_basis
from tests.samples import curved, skewed, straight


def problem_of(shape, order, algorithm="noncollocated", mesh=None, **options):
    """Helmholtz on skewed cells."""
    options = {"quadrature": "collapsed"} | options
    space = hp.Space(skewed(straight(shape)) if mesh is None else mesh, order, **options)
    return replace(hp.Helmholtz(space, 1.3, backend="numpy").choices[0].kernel.problem, algorithm=algorithm)


def first_matrix(problem, strategy="sumfac"):
    """The matrix of the first element, and its metric and mass factors."""
    n = problem.n_modes
    source = np.zeros((n, problem.n_elements, n))
    source[np.arange(n), 0, np.arange(n)] = 1
    out = np.empty_like(source)
    NumpyKernel(problem, strategy).apply(source, out)
    *metric, mass = problem.geometry.factors("metric", 1, np.float64)[0].ravel()
    return out[:, 0].T, metric, mass


@pytest.mark.parametrize("shape", ["hex", "quad"])
def test_they_are_sparse(shape):
    """Three entries of the mass and one of the stiffness matrix in a row of an interior function, at every order."""
    for order in range(3, 16):
        problem = problem_of(shape, order)
        S = matrices_of_directions(problem.tabulation, True)
        counts = tuple(np.count_nonzero(m) for m in S[0])
        assert counts == (3 * order + 5, 2 * order + 4, 2 * order + 4, order + 3)
        assert functions_of(problem) == order + 1 and np.array_equal(S[1], S[0])
        assert np.array_equal(matrices_of_directions(problem.tabulation, False), S[:, :1])
        assert kronecker_flops(problem) < (110 if shape == "hex" else 41) * problem.n_modes


@pytest.mark.parametrize("order", [1, 4, 8])
def test_they_are_the_exact_integrals(order):
    """By another rule, and another way to the functions: those of a segment."""
    z, weights = leggauss(order + 3)
    basis = make_basis("modified", SEGMENT, order)
    sides = basis.evaluate(z[:, None]), basis.gradient(z[:, None])[0]
    exact = [np.einsum("mq,q,nq->mn", one, weights, other) for one in sides for other in sides]
    found = matrices_of_directions(problem_of("quad", order).tabulation, True)
    assert np.abs(found - exact).max() < 1e-13 * np.abs(exact).max()


@pytest.mark.parametrize("shape", ["hex", "quad"])
@pytest.mark.parametrize("quadrature", [None, "gauss", "collocated"])
def test_their_products_are_the_matrix_of_an_element(shape, quadrature):
    """Also by a rule that is not exact."""
    problem = problem_of(shape, 3, quadrature=quadrature)
    d, (found, metric, mass) = problem.shape.dim, first_matrix(problem)
    S = matrices_of_directions(problem.tabulation, True)
    total = 1.3 * mass * reduce(np.kron, [S[k][0] for k in range(d)])
    for factor, (i, j) in zip(metric, symmetric_pairs(d), strict=True):
        for a, b in {(i, j), (j, i)}:
            total = total + factor * reduce(np.kron, [S[k][2 * (a == k) + (b == k)] for k in range(d)])
    assert np.abs(found - total).max() < 1e-13 * np.abs(total).max()


def test_what_has_none_is_refused():
    for problem, reason in (
        (problem_of("hex", 3, mesh=curved("hex", order=2)), "not affine"),
        (problem_of("hex", 3, "collocated"), "algorithm='noncollocated'"),
        (problem_of("tet", 3, quadrature="simplex"), "no product of rules"),
        (problem_of("hex", 3, basis="lagrange"), "use basis='modified'"),
        *(
            (problem_of(shape, order), "no product of one-dim")
            for shape in ("prism", "pyramid", "tet", "tri")
            for order in (1, 2, 3)
        ),
    ):
        with pytest.raises(NotSuitable, match=reason):
            check_kronecker(problem)
