"""Pictures and grids: what is in them, their names and limits, and one line where something is missing."""

import importlib.util
import os
import subprocess
import sys
from ctypes.util import find_library
from io import BytesIO

import matplotlib.image
import numpy as np
import pytest

import hpfem as hp
from hpfem import ArgumentError, StateError
from hpfem.cli import main
from hpfem.shapes import SHAPES
from hpfem.view import solid
from tests import samples
from tests.vtu.reading import Grid, evaluate

needs_pyvista = pytest.mark.skipif(importlib.util.find_spec("pyvista") is None, reason="pyvista is absent")
needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is absent")
NAMES = [name for name, shape in SHAPES.items() if shape.dim > 1]
FLAT = "meshes/curved_mixed_2d.msh"
SOLID = "meshes/curved_mixed.msh"


@pytest.fixture(scope="session")
def opengl():
    """Skips where nothing can be drawn in 3-D."""
    pytest.importorskip("pyvista", reason="pyvista is absent")
    if solid.missing_opengl():
        pytest.skip("OpenGL is absent")


def colours(png):
    """Different colours of a PNG file that are more than a hundred pixels each."""
    pixels = matplotlib.image.imread(BytesIO(png))[:, :, :3]
    assert np.isfinite(pixels).all()
    counts = np.bincount((255 * pixels).astype(int).reshape(-1, 3) @ [1, 256, 65536])
    return np.count_nonzero(counts > 100)


def flat_field(components=1):
    """A field on curved cells in the plane."""
    space = hp.Space(hp.read_mesh(FLAT), 4)
    return space.project(lambda x, y: [np.sin(3 * x) * y, x, y][:components] if components > 1 else np.sin(3 * x) * y)


def sides(mesh):
    """The outer facets, as cells and facets of these."""
    outside = mesh.facets.boundary
    return zip(mesh.facets.cells[outside, 0], mesh.facets.local[outside, 0], strict=True)


class TestFlat:
    """By matplotlib."""

    def test_a_field(self, tmp_path):
        u = flat_field()
        picture = u.plot(tmp_path / "u.png", name="temperature")
        axes, bar = picture.figure.axes
        [drawn] = [c for c in axes.collections if c.get_array() is not None]
        values = drawn.get_array()
        assert np.isfinite(values).all() and drawn.get_clim() == (values.min(), values.max())
        assert (values.min(), values.max()) == pytest.approx((0, 1.1364), abs=2e-3)
        assert bar.get_ylabel() == "temperature" and axes.get_title() == ""
        assert colours((tmp_path / "u.png").read_bytes()) > 50
        assert len(axes.collections) == 2

    def test_without_edges(self):
        assert len(flat_field().plot(edges=False).figure.axes[0].collections) == 1

    @pytest.mark.parametrize(
        ("component", "name", "function"),
        [
            (None, "|u|", lambda x, y: np.sqrt((np.sin(3 * x) * y) ** 2 + x**2 + y**2)),
            (0, "u[0]", lambda x, y: np.sin(3 * x) * y),
            (-1, "u[-1]", lambda x, y: y),
        ],
    )
    def test_components(self, component, name, function):
        axes, bar = flat_field(3).plot(component=component).figure.axes
        drawn = next(c for c in axes.collections if c.get_array() is not None)
        triangles = drawn._triangulation
        assert np.abs(drawn.get_array() - function(triangles.x, triangles.y)).max() < 2e-3
        assert bar.get_ylabel() == name

    def test_limits_and_colours(self):
        axes = flat_field().plot(limits=(-2, 3), cmap="magma").figure.axes[0]
        drawn = next(c for c in axes.collections if c.get_array() is not None)
        assert drawn.get_clim() == (-2, 3) and drawn.get_cmap().name == "magma"

    def test_a_constant_has_a_colour(self):
        space = hp.Space(hp.box("quad", 2), 2)
        assert colours(space.project(lambda x, y: 0 * x + 3).plot()._repr_png_()) >= 2

    def test_values_at_points_are_projected_and_functionals_refused(self):
        u = flat_field()
        coefficients, values = (
            next(c.get_array() for c in field.plot().figure.axes[0].collections if c.get_array() is not None)
            for field in (u, hp.BwdTrans(u.space)(u))
        )
        assert np.abs(coefficients - values).max() < 1e-12
        with pytest.raises(StateError, match="'dual'.*no values at points"):
            hp.Mass(u.space)(u).plot()

    def test_single_precision(self):
        space = hp.Space(hp.read_mesh(FLAT), 3, dtype="float32")
        assert colours(space.project(lambda x, y: x).plot()._repr_png_()) > 50

    def test_a_mesh_has_the_names_of_regions_and_boundaries(self, tmp_path):
        picture = hp.read_mesh(FLAT).plot(tmp_path / "mesh.png")
        [legend] = picture.figure.legends
        assert [text.get_text() for text in legend.get_texts()] == ["left", "right", "xmax", "xmin", "ymax", "ymin"]
        assert colours((tmp_path / "mesh.png").read_bytes()) >= 6

    @pytest.mark.parametrize(("by", "names"), [("regions", ["left", "right"]), ("boundaries", 4)])
    def test_a_mesh_by(self, by, names):
        texts = [text.get_text() for text in hp.read_mesh(FLAT).plot(by=by).figure.legends[0].get_texts()]
        assert texts == names or len(texts) == names

    def test_a_mesh_without_names_has_no_legend(self):
        cells = [("quad", 1, [[0, 1, 2, 3]])]
        mesh = hp.Mesh.from_cells([[0, 0], [1, 0], [0, 1], [1, 1]], cells)
        assert mesh.plot().figure.legends == []
        some = hp.Mesh.from_cells([[0, 0], [1, 0], [0, 1], [1, 1]], cells, boundaries={"low": [[[0, 1]]]})
        assert [text.get_text() for text in some.plot().figure.legends[0].get_texts()] == ["low"]

    @pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
    def test_formats(self, suffix, tmp_path):
        flat_field().plot().save(tmp_path / f"u.{suffix}")
        begin = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix]
        assert (tmp_path / f"u.{suffix}").read_bytes().startswith(begin)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"path": "u.jpg"}, "pictures are written as .png, .pdf, .svg"),
            ({"component": 1}, "component of a field with 1"),
            ({"component": "x"}, "component"),
            ({"name": 3}, "name of a field"),
            ({"edges": "no"}, "edges"),
            ({"cmap": "virids"}, "unknown map of colours 'virids'"),
            ({"limits": (1, 0)}, "limits are the values at both ends"),
            ({"limits": "ab"}, "limits"),
        ],
    )
    def test_faults_are_reported(self, options, message):
        with pytest.raises(ArgumentError, match=message):
            flat_field().plot(**options)

    def test_a_field_that_is_not_finite_is_refused(self):
        u = flat_field()
        u.arrays[0][0, 0, 0] = np.nan
        with pytest.raises(ArgumentError, match=r"not finite in element \d+"):
            u.plot()

    def test_a_mesh_is_coloured_by_its_named_sets(self):
        with pytest.raises(ArgumentError, match="unknown what a mesh is coloured by|regions"):
            hp.read_mesh(FLAT).plot(by="cells")


@needs_pyvista
@pytest.mark.usefixtures("opengl")
class TestSolid:
    """By pyvista."""

    def drawn(self, monkeypatch):
        """What is handed to pyvista, as it is drawn."""
        import pyvista as pv

        found, add = [], pv.Plotter.add_mesh

        def keep(self, mesh, **options):
            found.append((mesh, options))
            return add(self, mesh, **options)

        monkeypatch.setattr(pv.Plotter, "add_mesh", keep)
        return found

    def test_a_field(self, tmp_path, monkeypatch):
        found = self.drawn(monkeypatch)
        mesh = hp.read_mesh(SOLID)
        hp.Space(mesh, 3).project(lambda x, y, z: x - z).plot(tmp_path / "u.png")
        (surface, options), (lines, _) = found
        values = options["scalars"]
        corners = [len(mesh.cells[mesh.locations[0][c]].shape.facets[f].vertices) for c, f in sides(mesh)]
        assert surface.n_cells == 9**2 * sum(n - 2 for n in corners)
        assert len(values) == surface.n_points and np.isfinite(values).all()
        x = np.asarray(surface.points)
        assert np.abs(values - (x[:, 0] - x[:, 2])).max() < 2e-2
        assert options["clim"] == (values.min(), values.max())
        assert options["scalar_bar_args"]["title"].strip() == "u"
        assert lines.n_cells == sum(corners) // 2  # each edge is one of two facets
        assert colours((tmp_path / "u.png").read_bytes()) > 50

    @pytest.mark.parametrize("name", [*(n for n, s in SHAPES.items() if s.dim == 3)])
    def test_every_shape(self, name):
        assert colours(hp.Space(samples.curved(name), 2).project(lambda x, y, z: x * y).plot()._repr_png_()) > 20

    @pytest.mark.parametrize("name", ["quad", "tri"])
    def test_a_surface_in_space(self, name):
        assert colours(hp.Space(samples.sphere_patch(name), 2).project(lambda x, y, z: x).plot()._repr_png_()) > 20

    @pytest.mark.parametrize(("by", "count"), [(None, 6), ("boundaries", 6), ("regions", 2)])
    def test_a_mesh(self, by, count, monkeypatch):
        found = self.drawn(monkeypatch)
        assert colours(hp.read_mesh(SOLID).plot(by=by, edges=False)._repr_png_()) >= min(count, 3)
        assert len(found) == count and len({options["color"] for _, options in found}) == count

    def test_only_png(self):
        with pytest.raises(ArgumentError, match="in 3-D are written as .png"):
            hp.read_mesh(SOLID).plot("mesh.pdf")

    def test_no_messages_about_displays(self, capfd):
        hp.box("hex", 1).plot()
        assert capfd.readouterr() == ("", "")

    def test_without_opengl_one_line_says_what_to_install(self, monkeypatch):
        monkeypatch.setattr(solid, "missing_opengl", lambda: True)
        with pytest.raises(ArgumentError, match="needs OpenGL, which is missing.*libegl1"):
            hp.box("hex", 1).plot()


@needs_pyvista
@pytest.mark.skipif(find_library("OSMesa") is not None, reason="OSMesa is here")
def test_vtk_does_not_end_a_process_without_opengl(tmp_path):
    command = [sys.executable, "-m", "hpfem", "view", SOLID, "-o", str(tmp_path / "a.png")]
    without = {**os.environ, "VTK_DEFAULT_OPENGL_WINDOW": "vtkOSOpenGLRenderWindow"}
    done = subprocess.run(command, env=without, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "OpenGL" in done.stderr


@needs_pyvista
class TestGrids:
    """As grids of pyvista."""

    @pytest.mark.parametrize("name", NAMES)
    def test_a_field(self, name):
        space = hp.Space(samples.curved(name, 2), 3)
        grid = space.project(lambda *x: [x[0], x[1]]).to_pyvista(name="v")
        assert grid["v"].shape == (grid.n_points, 3) and set(grid["cell"]) == set(range(space.n_cells))
        assert (grid.n_cells == space.n_cells) == (name != "pyramid")
        assert np.all(grid["v"][:, 2] == 0)

    def test_linear_cells(self):
        mesh = hp.box("hex", 2)
        grid = hp.Space(mesh, 3).project(lambda x, y, z: x * y * z).to_pyvista(subdivide=4)
        assert grid.n_cells == 8 * 4**3 and grid["u"].ndim == 1
        assert np.abs(grid["u"] - np.prod(grid.points, axis=1)).max() < 1e-12
        assert grid.slice("x").area == pytest.approx(1)

    @pytest.mark.parametrize("order", [1, 2, 3])
    @pytest.mark.parametrize("name", NAMES)
    def test_a_mesh(self, name, order, rng):
        mesh = samples.curved(name, order)
        grid = mesh.to_pyvista()
        assert np.array_equal(grid.points[:, : mesh.dim], mesh.points)
        assert (grid.n_cells == mesh.n_cells) == (name != "pyramid" or order == 1)
        if grid.n_cells > mesh.n_cells:  # curved cells in straight pieces
            return
        x, _, owners = evaluate(Grid(grid, {"x": grid.points}, {}, {}), "x", rng)
        space = hp.Space(mesh, 1)
        found = zip(*space.locator.find(x[:, : mesh.dim])[:2], strict=True)
        assert [space.blocks[b].elements[e] for b, e in found] == grid["cell"][owners].tolist()

    def test_regions_have_names(self):
        grid = hp.read_mesh(SOLID).to_pyvista()
        assert set(grid["region"]) == {1, 2} and {"left", "right"} <= set(grid.field_data)


class TestMissing:
    """One line says what to install."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda mesh: mesh.plot(),
            lambda mesh: mesh.to_pyvista(),
            lambda mesh: hp.Space(mesh, 1).project(lambda x, y, z: x).plot(),
            lambda mesh: hp.Space(mesh, 1).project(lambda x, y, z: x).to_pyvista(),
        ],
    )
    def test_pyvista(self, call, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyvista", None)
        with pytest.raises(ArgumentError, match=r"takes pyvista, which is not installed: pip install 'hpfem\[view\]'"):
            call(hp.box("hex", 1))

    def test_the_command(self, monkeypatch, capsys, tmp_path):
        monkeypatch.setitem(sys.modules, "pyvista", None)
        assert main(["view", SOLID, "-o", str(tmp_path / "a.png")]) == 2
        assert capsys.readouterr().err.count("\n") == 1


class TestFiles:
    """`hpfem view`."""

    def view(self, capsys, *arguments):
        """Exit code, and what was said."""
        code = main(["view", *map(str, arguments)])
        return code, "".join(capsys.readouterr())

    def test_a_mesh(self, capsys, tmp_path):
        assert self.view(capsys, FLAT, "-o", tmp_path / "a.png") == (0, f"written {tmp_path / 'a.png'}\n")
        assert colours((tmp_path / "a.png").read_bytes()) >= 6

    @pytest.mark.parametrize("order", [1, 4])
    def test_a_vtu_file_looks_as_the_field(self, order, capsys, tmp_path):
        u = hp.Space(hp.read_mesh(FLAT), order).project(lambda x, y: [np.sin(3 * x), y])
        hp.write_vtu(tmp_path / "u.vtu", {"a": u[1], "v": u})
        assert self.view(capsys, tmp_path / "u.vtu", "-o", tmp_path / "v.png", "--field", "v")[0] == 0
        u.plot(tmp_path / "expected.png", name="v")
        a, b = (matplotlib.image.imread(tmp_path / f"{name}.png") for name in ("v", "expected"))
        # Shared edges are drawn twice from a file, in which no cell knows its neighbours.
        assert a.shape == b.shape and np.mean(np.abs(a - b)) < 0.01
        assert self.view(capsys, tmp_path / "u.vtu", "-o", tmp_path / "a.png")[0] == 0

    @needs_pyvista
    @pytest.mark.usefixtures("opengl")
    def test_a_vtu_file_of_solids(self, capsys, tmp_path):
        u = hp.Space(hp.read_mesh(SOLID), 3).project(lambda x, y, z: x * y)
        hp.write_vtu(tmp_path / "u.vtu", u)
        assert self.view(capsys, tmp_path / "u.vtu", "-o", tmp_path / "u.png", "--no-edges")[0] == 0
        assert colours((tmp_path / "u.png").read_bytes()) > 50

    @needs_h5py
    def test_a_checkpoint(self, capsys, tmp_path):
        hp.save(tmp_path / "run", {"p": flat_field(), "v": flat_field(2)})
        for options in ([], ["--field", "v"], ["--field", "v", "--component", 1, "--cmap", "magma"]):
            assert self.view(capsys, tmp_path / "run", "-o", tmp_path / "a.png", *options)[0] == 0
            assert colours((tmp_path / "a.png").read_bytes()) > 50

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["absent.msh", "-o", "a.png"], "absent.msh"),
            ([FLAT, "-o", "a.gif"], "written as .png, .pdf, .svg"),
            ([FLAT, "-o", "absent/a.png"], "no folder absent"),
            ([FLAT, "-o", "a.png", "--field", "u"], "no fields, but a mesh only"),
            (["README.md", "-o", "a.png"], "README.md"),
        ],
    )
    def test_bad_input_is_one_line(self, arguments, message, capsys):
        code, said = self.view(capsys, *arguments)
        assert code == 2 and message in said and said.count("\n") == 1

    def test_an_unknown_field_is_named(self, capsys, tmp_path):
        hp.write_vtu(tmp_path / "u.vtu", {"a": flat_field()})
        code, said = self.view(capsys, tmp_path / "u.vtu", "-o", tmp_path / "u.png", "--field", "b")
        assert code == 2 and "unknown field 'b'; valid: a" in said
