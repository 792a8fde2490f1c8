"""Operators from their definition: dense element matrices in local coordinates, without the package's kernels.

Values and gradients come from `Basis.evaluate` and `Basis.gradient`, the geometry from the nodes of the cells; nothing
is collapsed, factorised or chunked.
"""

import numpy as np

from hpfem.shapes import equispaced_nodes, make_basis, quadrature


class BlockReference:
    """A block's tables: B[m, q], G[e, i, m, q] (gradients in x), wJ[e, q], x[i, e, q].

    Parameters
    ----------
    space : Space
    number : int
        Of the block.
    """

    def __init__(self, space, number):
        block = space.blocks[number]
        shape = block.shape
        groups = [g for g in space.mesh.aligned if g.shape is shape and np.isin(block.elements, g.indices).all()]
        group = groups[0]
        row = {cell: i for i, cell in enumerate(group.indices.tolist())}
        nodes = space.mesh.points[group.nodes[[row[cell] for cell in block.elements.tolist()]]]
        xi = shape.collapse(block.rule.eta)
        # Lagrange functions of the equispaced nodes, through the geometry's own space.
        geometry = make_basis("orthogonal", shape, group.order)
        inverse = np.linalg.inv(geometry.evaluate(equispaced_nodes(shape, group.order)))
        self.x = np.einsum("eni,nq->ieq", nodes, inverse @ geometry.evaluate(xi))
        derivatives = np.einsum("nm,amq->anq", inverse, geometry.gradient(xi))
        jacobian = np.einsum("eni,anq->eqia", nodes, derivatives)
        gram = np.einsum("eqia,eqib->eqab", jacobian, jacobian)
        self.wJ = block.rule.weights * np.sqrt(np.linalg.det(gram))
        inverse_jacobian = np.linalg.pinv(jacobian)
        self.B = block.basis.evaluate(xi)
        self.G = np.einsum("eqai,amq->eimq", inverse_jacobian, block.basis.gradient(xi))

    def trial(self, coefficients):
        """Values [c, e, q] and gradients [c, i, e, q] of coefficients [c, e, m]."""
        return (
            np.einsum("cem,mq->ceq", coefficients, self.B),
            np.einsum("cem,eimq->cieq", coefficients, self.G, optimize=True),
        )

    def test(self, value=None, flux=None):
        """(value, phi) + (flux, grad phi) for value [c, e, q] and flux [c, i, e, q]."""
        total = 0.0
        if value is not None:
            total = total + np.einsum("ceq,eq,mq->cem", value, self.wJ, self.B, optimize=True)
        if flux is not None:
            total = total + np.einsum("cieq,eq,eimq->cem", flux, self.wJ, self.G, optimize=True)
        return total


def references(space):
    """One `BlockReference` per block."""
    return [BlockReference(space, number) for number in range(len(space.blocks))]


def random_field(space, rng, state="coeff", components=1):
    """A field of random numbers."""
    sizes = [block.n_points if state == "phys" else block.n_modes for block in space.blocks]
    shapes = [(components, block.n_elements, n) for block, n in zip(space.blocks, sizes, strict=True)]
    return space.field(state, [rng.uniform(-1, 1, shape).astype(space.dtype) for shape in shapes])


def fine_points(block, n):
    """A Gauss rule of n points a direction on a block's cells: xi, x [D, E, Q], weights [E, Q], dxi/dx [E, Q, d, D]."""
    shape = block.shape
    rule = quadrature(shape, [n] * shape.dim, ["gauss"] * shape.dim)
    xi = shape.collapse(rule.eta)
    geometry = make_basis("orthogonal", shape, block.geometry.order)
    coefficients = block.geometry.coefficients
    x = np.einsum("eim,mq->ieq", coefficients, geometry.evaluate(xi))
    jacobian = np.einsum("eim,amq->eqia", coefficients, geometry.gradient(xi), optimize=True)
    return xi, x, rule.weights * np.linalg.det(jacobian), np.linalg.inv(jacobian)


def fine_integrals(space, u, w, n=16):
    """Integrals of u w and grad u . grad w of two fields over curved cells, by a Gauss rule of n points a direction."""
    mass = stiffness = 0.0
    for number, block in enumerate(space.blocks):
        xi, _, weights, inverse = fine_points(block, n)
        values = [field.arrays[number][0] @ block.basis.evaluate(xi) for field in (u, w)]
        derivatives = [
            np.einsum("em,amq,eqai->eqi", f.arrays[number][0], block.basis.gradient(xi), inverse, optimize=True)
            for f in (u, w)
        ]
        mass += np.sum(weights * values[0] * values[1])
        stiffness += np.einsum("eq,eqi,eqi->", weights, *derivatives, optimize=True)
    return mass, stiffness
