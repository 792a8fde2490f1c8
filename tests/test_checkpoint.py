"""Fields saved and loaded again, bit by bit."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem import checkpoint
from hpfem.errors import ArgumentError, StateError
from tests.operators.reference import random_field
from tests.samples import NAMES, curved

MESHES = Path(__file__).parent.parent / "meshes"
needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is absent")


def same_mesh(a, b):
    """Whether two meshes are the same to the last bit."""
    assert np.array_equal(a.points, b.points) and a.points.dtype == b.points.dtype
    for mine, theirs in zip(a.cells, b.cells, strict=True):
        assert (mine.shape, mine.order) == (theirs.shape, theirs.order)
        for name in ("nodes", "indices", "vertices", "edges", "faces"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
    for name in ("regions", "boundary_sides", "boundaries"):
        mine, theirs = getattr(a, name), getattr(b, name)
        assert list(mine) == list(theirs)
        assert all(np.array_equal(mine[key], theirs[key]) for key in mine)
    for name in ("n_vertices", "name", "n_mirrored", "n_stray", "periodic"):
        assert getattr(a, name) == getattr(b, name)
    assert (a.numbers is None) == (b.numbers is None)
    assert a.numbers is None or np.array_equal(a.numbers, b.numbers)


def same(a, b):
    """Whether two fields are the same to the last bit."""
    assert (a.state, a.components, a.dtype) == (b.state, b.components, b.dtype)
    assert all(np.array_equal(p, q) for p, q in zip(a.arrays, b.arrays, strict=True))
    for name in ("orders", "basis", "quadrature"):
        assert getattr(a.space, name) == getattr(b.space, name)
    same_mesh(a.space.mesh, b.space.mesh)


@needs_h5py
@pytest.mark.parametrize("name", NAMES)
def test_every_shape_and_state(name, tmp_path, rng):
    space = hp.Space(curved(name, 2), 3)
    fields = {state: random_field(space, rng, state, 2) for state in ("coeff", "phys", "dual")}
    hp.save(tmp_path / "a.h5", fields)
    found = hp.load(tmp_path / "a.h5")
    assert list(found) == list(fields)
    for state, field in fields.items():
        same(found[state], field)
    assert found["coeff"].space is found["phys"].space
    x = space.mesh.points[:3]
    assert np.array_equal(found["coeff"].at(x), fields["coeff"].at(x))


@needs_h5py
@pytest.mark.parametrize(
    "options", [{"quadrature": "gauss"}, {"quadrature": 2}, {"dtype": "float32"}, {"basis": "lagrange"}]
)
def test_spaces_of_all_kinds(options, tmp_path, rng):
    mesh = hp.read_mesh("meshes/curved_mixed.msh")
    field = random_field(hp.Space(mesh, 2, **options), rng)
    hp.save(str(tmp_path / "a.h5"), field)
    (found,) = hp.load(tmp_path / "a.h5", backend="numpy").items()
    assert found[0] == "u" and found[1].space.backend == "numpy"
    same(found[1], field)


@needs_h5py
def test_several_spaces_and_meshes_and_names_of_any_letters(tmp_path, rng):
    mesh = hp.box(("hex", "tet"), (6, 3, 3), periodic=("x", "y"))
    one, two = hp.Space(mesh, {"hex": 2, "tet": 3, "pyramid": 2}), hp.Space(mesh, 1)
    other = hp.Space(hp.read_mesh("meshes/pipe_mixed.msh").refined(), 1)
    fields = {
        "a/b": random_field(one, rng),
        "ü ": random_field(two, rng),
        "": random_field(other, rng),
        ".": random_field(one, rng),
    }
    hp.save(tmp_path / "a.h5", fields)
    found = hp.load(tmp_path / "a.h5")
    for name, field in fields.items():
        same(found[name], field)
    assert found["a/b"].space is found["."].space and found["ü "].space.mesh is found["a/b"].space.mesh
    hp.solve_helmholtz(found["ü "].space, 1.0, 1.0, bar=False)


@needs_h5py
def test_a_computation_goes_on_as_if_nothing_had_happened(tmp_path):
    space = hp.Space(hp.read_mesh("meshes/cube_mixed.msh"), 3)
    operator = hp.Helmholtz(space, lam=2.0)
    u = space.project(lambda x, y, z: np.sin(x) * y + z)
    hp.save(tmp_path / "a.h5", operator(u))
    v = hp.load(tmp_path / "a.h5")["u"]
    field = v.space.field("coeff", list(v.arrays))
    again = space.field("coeff", list(operator(u).arrays))
    same(hp.Helmholtz(v.space, lam=2.0)(field), operator(again))


@needs_h5py
def test_an_old_file_stays_where_writing_fails(tmp_path):
    space = hp.Space(hp.box("quad", 2), 2)
    hp.save(tmp_path / "a.h5", space.project(lambda x, y: x))
    before = (tmp_path / "a.h5").read_bytes()
    with pytest.raises(StateError):
        hp.save(tmp_path / "a.h5", space.empty("coeff"))
    assert (tmp_path / "a.h5").read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(ArgumentError, match="there is no folder"):
        hp.save(tmp_path / "no" / "a.h5", space.zeros("coeff"))


@needs_h5py
def test_files_of_earlier_versions():
    """Of one process they are read; parts, which have another table now, are refused."""
    fields = hp.load(MESHES / "channel_flow.h5")
    assert fields and all(np.isfinite(own).all() for field in fields.values() for own in field.arrays)
    with pytest.raises(ArgumentError, match="earlier version: save"):
        checkpoint._read_part({"shared": {}}, 2, hp.ALONE)


@needs_h5py
def test_damaged_files_and_others(tmp_path):
    import h5py

    space = hp.Space(hp.box("quad", 2), 2)
    path = tmp_path / "a.h5"
    hp.save(path, space.project(lambda x, y: x))
    whole = path.read_bytes()
    for end in range(0, len(whole), len(whole) // 30):
        path.write_bytes(whole[:end])
        with pytest.raises(ArgumentError, match="cannot be loaded|was not written by"):
            hp.load(path)
    path.write_bytes(whole)
    with h5py.File(path, "r+") as file:
        file["spaces/0"].attrs["blocks"] = [1]
    with pytest.raises(ArgumentError, match="orders cells otherwise"):
        hp.load(path)
    with h5py.File(path, "w") as file:
        file["x"] = 1
    with pytest.raises(ArgumentError, match="was not written by"):
        hp.load(path)
    with pytest.raises(ArgumentError, match="No such file"):
        hp.load(tmp_path / "absent.h5")


@needs_h5py
@pytest.mark.parametrize("fields", [{}, None, [1], {"a": 1}, {1: None}, {"a\0": "field"}])
def test_what_is_not_saved(fields, tmp_path):
    if isinstance(fields, dict) and "field" in fields.values():
        fields = {"a\0": hp.Space(hp.box("quad", 1), 1).zeros("coeff")}
    with pytest.raises(ArgumentError):
        hp.save(tmp_path / "a.h5", fields)
    assert not list(tmp_path.iterdir())


def test_without_h5py_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    u = hp.Space(hp.box("quad", 1), 1).zeros("coeff")
    for call in (lambda: hp.save(tmp_path / "a.h5", u), lambda: hp.load(tmp_path / "a.h5")):
        with pytest.raises(
            ArgumentError, match=r"takes h5py, which is not installed: pip install 'hpfem\[checkpoint\]'$"
        ):
            call()
