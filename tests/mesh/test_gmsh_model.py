"""Meshes of a model in gmsh's memory: recorded answers, and gmsh itself where it is installed."""

import sys

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, MeshError
from hpfem.mesh import from_gmsh, read_mesh
from meshes import generate
from tests.mesh.recorded_model import FOLDER, RecordedModel

GMSH = generate.import_gmsh()


def same(one, other):
    """Whether two meshes are equal, up to the order in which the cells, points and names come."""
    a, b = one.summary(), other.summary()
    for name in ("regions", "boundaries", "edge_sets", "point_sets", "counts", "kinds", "orders"):
        assert dict(getattr(a, name)) == dict(getattr(b, name)), name
    assert (a.n_vertices, a.n_points, a.periodic, a.n_stray) == (b.n_vertices, b.n_points, b.periodic, b.n_stray)
    assert a.volume == pytest.approx(b.volume, rel=1e-14)
    assert a.worst_scaled_jacobian == pytest.approx(b.worst_scaled_jacobian)
    rows = [own.points[np.lexsort(own.points.round(9).T)] for own in (one, other)]
    np.testing.assert_allclose(*rows, rtol=0, atol=1e-14)


@pytest.mark.parametrize("periodic", [False, True])
def test_a_model_is_read_as_its_file(periodic):
    """Hexes and prisms of order 2 in regions that overlap, with paired sides."""
    found = from_gmsh(RecordedModel("model_cube_order2"), periodic=periodic)
    same(found, read_mesh(FOLDER / "cube_41_binary_order2.msh", periodic=periodic))
    assert set(found.regions) == {"left", "right", "all"} and found.periodic == periodic


def test_a_model_without_groups():
    same(from_gmsh(RecordedModel("model_pyramids_order3")), read_mesh(FOLDER / "pyramids_41_text_order3.msh"))


def test_cells_in_no_group_are_left_out_if_others_are_in_one():
    model = RecordedModel("model_cube_order2")
    whole = from_gmsh(model)
    in_all = next(int(key[len("getPhysicalName[3, ") : -1]) for key, name in model.answers.items() if name == "all")
    for key, groups in model.answers.items():
        if key.startswith("getPhysicalGroupsForEntity[3"):
            model.answers[key] = [group for group in groups if group != in_all]
    with pytest.warns(hp.HpfemWarning, match="physical names of no elements are left out: all"):
        assert from_gmsh(model).n_cells == whole.n_cells
    left = next(key for key in model.answers if key.startswith("getPhysicalGroupsForEntity[3"))
    model.answers[left] = []
    for key, name in model.answers.items():
        if name == "right":
            model.answers[key] = ""  # it is known by its number then
    with pytest.warns(hp.HpfemWarning, match="left out: left, all|left out: all, left"):
        found = from_gmsh(model)
    assert all(name.isdigit() for name in found.regions)
    assert found.summary().counts == {"prism": whole.summary().counts["prism"]}


def test_what_is_no_mesh_is_refused(monkeypatch):
    with pytest.raises(ArgumentError, match=r"takes gmsh\.model, got 'cube\.msh'; files go to read_mesh"):
        from_gmsh("cube.msh")
    model = RecordedModel("model_cube_order2")
    elements = [key for key in model.answers if key.startswith("getElements[3")]
    _, tags, nodes = model.answers[elements[0]]
    model.answers[elements[0]] = [[20], tags, nodes]  # incomplete triangles of order 3
    with pytest.raises(MeshError, match=rf"element {tags[0][0]} is of gmsh type 20, which cannot be used"):
        from_gmsh(model)
    for key in model.answers:
        if key.startswith("getElements"):
            model.answers[key] = [[], [], []]
    with pytest.raises(MeshError, match=r"the model has no elements; call gmsh\.model\.mesh\.generate\(3\) first"):
        from_gmsh(model)
    monkeypatch.setitem(sys.modules, "gmsh", None)
    with pytest.raises(ArgumentError, match="from_gmsh takes gmsh, which is not installed: pip install 'gmsh'"):
        from_gmsh()


def test_gmsh_itself():
    if GMSH is None:
        with pytest.raises(ArgumentError, match=r"from_gmsh takes gmsh, which (is not installed|cannot be imported)"):
            from_gmsh()
        return
    with pytest.raises(ArgumentError, match="gmsh has no model"):
        from_gmsh()
    GMSH.initialize(["gmsh", "-nt", "1", "-v", "1"], readConfigFiles=False, interruptible=False)
    try:
        with pytest.raises(MeshError, match="the model has no elements"):
            from_gmsh()
        for name in ("curved_mixed", "disc", "square_mixed"):
            GMSH.clear()
            GMSH.merge(str(generate.FOLDER / f"{name}.msh"))
            same(from_gmsh(), read_mesh(generate.FOLDER / f"{name}.msh"))
    finally:
        GMSH.finalize()
