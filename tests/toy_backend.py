"""A backend in another package: forms by their definition, a point at a time, to show what a backend needs."""

import numpy as np

from hpfem.backends import Backend
from hpfem.backends.strategy import Strategy, with_source
from hpfem.forms.cost import operator_flops
from hpfem.forms.evaluate import evaluate
from hpfem.forms.form import BlockKernel
from hpfem.geometry.factors import expansion


class ToyKernel(BlockKernel):
    """Dense tables of all points, the pointwise function on all elements at once."""

    def __init__(self, problem):
        self.problem, self.strategy = problem, "toy"
        self.flops = operator_flops(problem, "stdmat")

    def factors(self):
        """Determinants with weights [E, Q] and inverses d eta_a/dx_i [E, d, D, Q]."""
        p = self.problem
        stored = p.geometry.factors("jacobian")[..., 0]
        if p.geometry.affine:
            stored = np.einsum("fqk,ek->efq", expansion(p.geometry, "jacobian"), stored[..., 0])
        return stored[:, -1], stored[:, :-1].reshape(len(stored), p.shape.dim, p.geometry.space_dim, -1)

    def derivative(self, values, axis, transposed=False):
        """Collocated derivative along a direction of values [E, Q]."""
        counts, matrix = self.problem.tabulation.rule.counts, self.problem.tabulation.differentiation[axis]
        grid = values.reshape(len(values), *counts)
        return np.moveaxis(np.tensordot(matrix.T if transposed else matrix, grid, (1, 1 + axis)), 0, 1 + axis).reshape(
            values.shape
        )

    def apply(self, source, out):
        """Evaluate, apply, test."""
        p = self.problem
        weights, inverse = self.factors()
        for first in range(0, len(source), p.coupled):
            given = np.asarray(source[first : first + p.coupled], dtype=np.float64)
            results = self.pointwise(*self.evaluate(given, inverse), inverse)
            start = first // p.coupled * p.given
            out[start : start + p.given] = self.test(*results, weights, inverse)

    def evaluate(self, given, inverse):
        """Values [c, E, Q] and gradients in x [c, D, E, Q] at the points."""
        p, form = self.problem, self.problem.form
        u = given @ p.tabulation.dense if form.from_modes else given
        if not form.trial_gradient:
            return u, None
        axes = range(p.shape.dim)
        if p.collocated:
            du = np.array([[self.derivative(values, a) for a in axes] for values in u])
        else:
            du = np.array([[values @ p.tabulation.dense_gradient[a] for a in axes] for values in given])
        return u, np.einsum("caeq,eaiq->cieq", du, inverse)

    def pointwise(self, u, du, inverse):
        """What multiplies values [c, E, Q] and gradients in x [c, D, E, Q]."""
        p, form, trace = self.problem, self.problem.form, self.problem.form.trace
        if trace is None:
            parts = u if du is None else du.reshape(-1, *u.shape[1:])
            return (None, parts[None]) if form.test_gradient else (parts, None)
        points = p.geometry.factors("points")[..., 0].swapaxes(0, 1) if trace.uses_point else None
        source = {
            "u": lambda c: u[c],
            "du": lambda c, i: du[c, i],
            "x": lambda i: points[i],
            "field": lambda name, c: np.asarray(p.fields[name].values[c], dtype=np.float64),
            "param": lambda name: p.parameters[name],
        }
        found = evaluate(trace, lambda key: source[key[0]](*key[1:]), np.float64)

        def at(node):
            return found[node.index] * np.ones(u.shape[1:])

        value = None if trace.value is None else np.array([at(node) for node in trace.value])
        flux = None
        if trace.flux is not None:
            flux = np.array([[at(node) for node in vector] for vector in trace.flux])
        elif trace.scaled is not None:
            flux = np.array([sum(at(scale) * du[c] for c, scale in terms.items()) for terms in trace.scaled])
        return value, flux

    def test(self, value, flux, weights, inverse):
        """Moments with the basis and its gradients, or the values themselves."""
        p, form = self.problem, self.problem.form
        if not form.to_modes:
            return value
        total = 0.0 if value is None else (value * weights) @ p.tabulation.dense.T
        if flux is None:
            return total
        fluxes = np.einsum("cieq,eaiq->caeq", flux * weights, inverse)
        for a in range(p.shape.dim):
            if p.collocated:
                along = np.array([self.derivative(values, a, transposed=True) for values in fluxes[:, a]])
                total = total + along @ p.tabulation.dense.T
            else:
                total = total + fluxes[:, a] @ p.tabulation.dense_gradient[a].T
        return total


class ToyStrategy(Strategy):
    """The only one."""

    name, special = "toy", False

    def build(self, problem, options=None):
        """Serve everything."""
        return ToyKernel(with_source(self, problem, options))

    def cost(self, problem):
        """The same for all."""
        return 1.0


class ToyBackend(Backend):
    """On the host, with one strategy."""

    name = "toy"
    strategies = (ToyStrategy(),)

    def missing(self):
        """Nothing."""
        return None
