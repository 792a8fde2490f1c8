"""What objects look like when they are printed, and in a notebook."""

import pytest

import hpfem as hp
from hpfem.support.notebook import Printed


@pytest.fixture(scope="module")
def shown():
    """One of everything that is looked at, with texts that must be in what is printed."""
    mesh = hp.box(("quad", "tri"), (2, 2))
    space = hp.Space(mesh, 3, backend="numpy")
    c0 = hp.C0Space(space)
    u = hp.solve_helmholtz(space, 1.0, 1.0, c0=c0, bar=False)
    return {
        "mesh": (mesh, ["<Mesh box: 2 quad of order 1, 4 tri", "regions: quad (2), tri (4)", "boundaries: xmin (2)"]),
        "group": (mesh.cells[0], ["CellGroup(2 quad of order 1)"]),
        "summary": (mesh.summary(), ["box: 2-D mesh, 6 cells", "boundaries: xmin (2)"]),
        "coeff": (u, ["Field('coeff', components=1", "coefficients of the 'modified' basis, not values; u(points)"]),
        "phys": (space.zeros("phys"), ["values at the quadrature points", "on Space(6 cells"]),
        "nodal": (hp.Space(mesh, 2, "lagrange").zeros("coeff"), ["coefficients of the 'lagrange' basis\n"]),
        "info": (u.info, ["preconditioner jacobi, residual", "iterations"]),
        "conditions": (
            hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}),
            [f"BoundaryConditions(7 of {c0.size} unknowns given, 2 Dirichlet facets)"],
        ),
        "tuning": (hp.Mass(space).tune(0.5)[0], ["Mass, 2 affine quad, P=3", "elements timed", " us  "]),
    }


NAMES = ["mesh", "group", "summary", "coeff", "phys", "nodal", "info", "conditions", "tuning"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed(shown, name):
    thing, texts = shown[name]
    for text in texts:
        assert text in str(thing)
    assert len(repr(thing)) < 2000 and "object at 0x" not in repr(thing)
    assert len(str(thing)) < 2000
    html = thing._repr_html_()
    assert html.startswith("<pre>") and html.endswith("</pre>") and "<Mesh" not in html
    assert isinstance(thing, Printed)
