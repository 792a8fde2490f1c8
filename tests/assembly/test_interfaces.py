"""Conditions on interfaces: named facets between cells take all kinds of data, once, and have a flux."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import Mesh, box
from tests.samples import NAMES, curved, dimension

TWO = Path(__file__).resolve().parents[1] / "mesh/data/cases/interface.msh"
# Conditions on an interface in the middle between walls at 0, all with the solution of a source 1.
CONDITIONS = {
    "neumann": {"neumann": {"interface": 1.0}},
    "robin": {"robin": {"interface": (2.0, lambda x, *_: 1 + x)}},
    "dirichlet": {"dirichlet": {"interface": 0.5}},
}


def divided(mesh, choose):
    """The same cells, those whose middle `choose` takes in region "in", the others in "out", an "interface" between."""
    middles = np.empty((mesh.n_cells, mesh.points.shape[1]))
    for group in mesh.cells:
        middles[group.indices] = mesh.points[group.nodes].mean(axis=1)
    inside, facets = choose(*middles.T), mesh.facets
    between = (facets.cells[:, 1] >= 0) & (inside[facets.cells[:, 0]] != inside[facets.cells[:, 1]])
    sides = np.column_stack([facets.cells[between, 0], facets.local[between, 0]])
    regions = {"in": np.flatnonzero(inside), "out": np.flatnonzero(~inside)}
    return replace(mesh, regions=regions).with_sides({**mesh.boundary_sides, "interface": sides})


def bar(name, n=2):
    """A box from 0 to 2 with an interface at 1."""
    mesh = box(name, (2 * n,) + (1,) * (dimension(name) - 1), comm=hp.ALONE)
    return divided(mesh.transformed(lambda x: x * ([2] + [1] * (x.shape[1] - 1))), lambda x, *_: x < 1)


def heated(mesh, order, ends, conditions, **options):
    """The problem with walls at 0, and its solution."""
    walls = dict.fromkeys(ends, 0.0)
    given = {**conditions, "dirichlet": walls | conditions.get("dirichlet", {})}
    problem = hp.Problem(hp.Space(mesh, order, backend="numpy"), lam=0.0, bar=False, **given, **options)
    return problem, problem.solve()


@pytest.mark.parametrize(("kind", "order"), [("neumann", 1), ("robin", 2), ("neumann", 3), ("dirichlet", 4)])
def test_the_solution_of_a_source_on_an_interface_is_exact(kind, order):
    """-u'' = 0, u = 0 at both ends, a source 1 between: u = 1/2 there, in a file and in boxes of all shapes."""
    meshes = [(bar(name), ("xmin", "xmax")) for name in (NAMES if order == 2 else NAMES[order - 1 : order])]
    for mesh, ends in [(hp.read_mesh(TWO), ("left", "right")), *meshes]:
        problem, u = heated(mesh, order, ends, CONDITIONS[kind])
        assert hp.l2_error(u, lambda x, *_: np.minimum(x, 2 - x) / 2) < 1e-11
        # What is produced on the interface flows out at the ends.
        fluxes = [problem.flux(u, name) for name in ("interface", *ends)]
        assert fluxes == pytest.approx([1.0, -0.5, -0.5], abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_an_interface_counts_once_on_curved_cells(name):
    """As the boundary of the cells on either of its sides alone."""
    mesh = curved(name) if name in ("prism", "pyramid", "tet") else curved(name).refined()
    mesh = divided(mesh, lambda x, *_: x < np.median(x) + 1e-9)
    assert len(mesh.boundaries["interface"])

    def sums(mesh):
        c0 = hp.C0Space(hp.Space(mesh, 3, backend="numpy"))
        bc = hp.BoundaryConditions(c0, robin={"interface": (lambda x, *_: 1 + x**2, lambda x, *y: x * y[0])})
        one, x = c0.project(1.0), c0.project(lambda x, *_: x)
        own = c0.space.integrate_boundary(lambda x, *_: x**2, "interface")
        form = hp.WeakForm(c0.space, lambda u, a: a * u**2, test="value", fields={"a": 2.0}, on="interface")
        return [bc.load @ one, x @ (bc.matrix @ one), own, c0.gather(form(c0.scatter(x))) @ one]

    whole = sums(mesh)
    for region in ("in", "out"):
        part = np.zeros(mesh.n_cells, dtype=bool)
        part[mesh.regions[region]] = True
        cells = [(g.shape.name, g.order, g.nodes[part[g.indices]]) for g in mesh.cells]
        number = np.cumsum(part) - 1
        facets = mesh.boundaries["interface"]
        column = np.where(part[mesh.facets.cells[facets, 0]], 0, 1)
        sides = np.column_stack([number[mesh.facets.cells[facets, column]], mesh.facets.local[facets, column]])
        assert sums(Mesh.from_cells(mesh.points, cells).with_sides({"interface": sides})) == pytest.approx(whole)


def test_what_differs_on_both_sides_is_refused_on_an_interface():
    mesh = bar("quad")
    c0 = hp.C0Space(hp.Space(mesh, 2))
    for data in (lambda x, y, nx, ny: x * nx, lambda x, y: [x, y]):
        with pytest.raises(hp.ArgumentError, match="neumann 'interface': the normal is not unique between two cells"):
            hp.BoundaryConditions(c0, neumann={"interface": data})
    for function, test in ((lambda du: du[0], "value"), (lambda u: [u, u], "grad")):
        with pytest.raises(hp.ArgumentError, match="'interface' lies between cells in part: its gradient"):
            hp.WeakForm(c0.space, function, test=test, on="interface")
