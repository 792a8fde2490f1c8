"""A strategy of compiled matrices, as another file of hpfem/backends/cpu/codegen would have it, and its row."""

from hpfem.backends.cpu.codegen.affine import write_affine
from hpfem.backends.cpu.codegen.line import matrix_product
from hpfem.backends.cpu.codegen.strategies import Compiled
from hpfem.errors import NotSuitable
from hpfem.forms.linear import check_linear
from hpfem.geometry.factors import expansion


def toy_cost(problem):
    """Less than anything."""
    return 0.0


def check_toy(problem):
    """A mass matrix of affine elements."""
    check_linear(problem)
    if problem.form.gradients:
        raise NotSuitable("the toy has a mass matrix only")


def write_toy(problem, lanes, prefetch=False, indexed=False):
    """The mass matrix, entry by entry."""
    check_toy(problem)
    values = problem.tabulation.dense
    mass = (values * expansion(problem.geometry, "wJ")[0, :, 0]) @ values.T

    def product_of(group):
        [scale] = group.scales.values()
        given = group.b.load_fiber(group.modes, 1, problem.n_modes)
        for i, number in enumerate(matrix_product(group.b, mass, given)):
            group.b.store(group.b.mul(scale, number), group.results, i)

    return write_affine(problem, lanes, prefetch, indexed, 0, product_of)


ROW = {"toy": Compiled(write_toy, toy_cost, check_toy)}
