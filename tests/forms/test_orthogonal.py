"""Matrices of an orthonormal basis: few entries, and together the element's matrix."""

from dataclasses import replace

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import NotSuitable
from hpfem.forms.orthogonal import check_orthogonal, orthogonal_flops, orthogonal_matrices
from hpfem.geometry.jacobians import symmetric_pairs
from hpfem.shapes import SHAPES
from hpfem.shapes.basis import make_basis
from hpfem.shapes.quadrature import default_counts, quadrature
from tests.forms.test_kronecker import first_matrix, problem_of
from tests.samples import curved, straight

SUITABLE = ("tri", "prism", "tet")


@pytest.mark.parametrize(
    ("name", "order", "entries"),
    [
        ("tri", 3, (45, 40)),
        ("tri", 8, (286, 275)),
        ("tet", 3, (167, 197)),
        ("tet", 6, (1374, 1870)),
        ("prism", 3, (360, 500)),
    ],
)
def test_they_have_few_entries(name, order, entries):
    problem = problem_of(name, order)
    B, D = orthogonal_matrices(problem.tabulation.basis)
    assert (np.count_nonzero(B), np.count_nonzero(D)) == entries
    # Of a prism only products of highest order in both factors are missing.
    lower = len(B) - (order + 1) if name == "prism" else make_basis("orthogonal", SHAPES[name], order - 1).n_modes
    assert D.shape == (SHAPES[name].dim, lower, len(B))
    mass = replace(problem, form=hp.Mass(hp.Space(straight(name), order)).form)
    assert orthogonal_flops(mass) == 2 * (2 * entries[0] + len(B))
    laplacian = replace(problem, form=hp.Laplacian(hp.Space(straight(name), order)).form)
    assert orthogonal_flops(laplacian) == 2 * (2 * entries[1] + len(D) ** 2 * D.shape[1])
    assert orthogonal_flops(problem) == orthogonal_flops(mass) + orthogonal_flops(laplacian)


@pytest.mark.parametrize("name", SUITABLE)
@pytest.mark.parametrize("family", ["modified", "orthogonal"])
def test_their_products_are_the_exact_integrals(name, family):
    """By another rule."""
    shape = SHAPES[name]
    for order in range(1, 9 if shape.dim < 3 else 5):
        basis = make_basis(family, shape, order)
        rule = quadrature(shape, default_counts(shape, order, 2))
        values, gradient = basis.evaluate_eta(rule.eta), basis.gradient(shape.collapse(rule.eta))
        B, D = orthogonal_matrices(basis)
        mass = (values * rule.weights) @ values.T
        stiffness = np.einsum("imq,q,jnq->ijmn", gradient, rule.weights, gradient)
        assert np.abs(B.T @ B - mass).max() < 1e-13 * np.abs(mass).max()
        assert np.abs(np.einsum("irm,jrn->ijmn", D, D) - stiffness).max() < 1e-12 * np.abs(stiffness).max()


@pytest.mark.parametrize(
    ("shape", "quadrature"),
    [
        (shape, rule)
        for shape in ("tet", "tri", "prism")
        for rule in ("collapsed", "simplex")
        if (shape, rule) != ("prism", "simplex")
    ],
)
def test_their_products_are_the_matrix_of_an_element(shape, quadrature):
    problem = problem_of(shape, 3, quadrature=quadrature)
    check_orthogonal(problem)
    B, D = orthogonal_matrices(problem.tabulation.basis)
    found, metric, mass = first_matrix(problem, "stdmat" if quadrature == "simplex" else "sumfac")
    total = 1.3 * mass * B.T @ B
    for factor, (i, j) in zip(metric, symmetric_pairs(len(D)), strict=True):
        for a, b in {(i, j), (j, i)}:
            total = total + factor * D[a].T @ D[b]
    assert np.abs(found - total).max() < 1e-13 * np.abs(total).max()


def test_what_has_none_is_refused():
    for problem, reason in (
        (problem_of("tet", 3, mesh=curved("tet", order=2)), "not affine"),
        (problem_of("tet", 3, "collocated"), "algorithm='noncollocated'"),
        (problem_of("tri", 3, quadrature="collocated"), "does not integrate products"),
        *((problem_of(shape, 2), "'kronecker' is for") for shape in ("quad", "hex")),
        (problem_of("pyramid", 2), "derivatives of modes are not in the space"),
        (problem_of("tet", 9), "too many entries"),
        (problem_of("tet", 6, basis="lagrange"), "too many entries"),
    ):
        with pytest.raises(NotSuitable, match=reason):
            check_orthogonal(problem)
