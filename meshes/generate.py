"""Generate the meshes of this folder: `python -m meshes.generate [NAME ...]`.

All but three are built on a lattice (lattice.py) and curved by a map: exact arithmetic, so the same bytes everywhere.
`ball`, `disc` and `channel` are unstructured, made by the gmsh wheel (extra `mesh`, version in the file); they are left
as they are where gmsh cannot be imported.

    cube_mixed        unit cube, all four 3-D shapes, every cell affine              4.1
    cube_distorted    the same with vertices above z = 1/2 moved, cells interleaved  2.2
    bench_mixed       unit cube, a few thousand cells of each 3-D shape              4.1
    curved_hex, curved_prism, curved_pyramid, curved_tet, curved_mixed               order 3, the box of `bend`
    pipe_mixed        a pipe of radii 1/2 and 1 and length 1, all four shapes        order 3
    square_mixed      unit square, quads and triangles, affine                       2.2
    curved_quad, curved_tri, curved_mixed_2d                                         order 3, the box of `bend_2d`
    ball              unit ball, tets                                                order 3, by gmsh
    disc              unit disc, quads and triangles                                 order 2, by gmsh
    channel           a cylinder in a channel: quads around it, triangles outside    order 3, by gmsh

`bend` and `bend_2d` are cubic polynomials, which cells of order 3 represent exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import ArgumentError
from meshes.lattice import LatticeMesh, lattice_mesh
from meshes.msh import COMMENT, write_msh

FOLDER = Path(__file__).resolve().parent
Array = NDArray[Any]
Letters = dict[tuple[int, ...], str]
SIDES = (("xmin", "xmax"), ("ymin", "ymax"), ("zmin", "zmax"))

# Rows of cubes along z; a block of three rows is j = 0, 1, 2 at one i.
MIXED = "HHS zzz SHS  HSX SYS XSX  HST SHS TST"


def bend(X: Array) -> Array:
    """Bend the unit cube; coordinates [..., 3], real or complex."""
    x, y, z = X[..., 0], X[..., 1], X[..., 2]
    return np.stack([x + y * y * z / 4 - z * z / 8, y + x * (1 - x) * z / 2, z + x * y / 8 + x * x * x / 8], axis=-1)


def bend_2d(X: Array) -> Array:
    """Bend the unit square; coordinates [..., 2], real or complex."""
    x, y = X[..., 0], X[..., 1]
    return np.stack([x + y * y * (1 - x) / 4, y + x * (1 - x) / 2 + x * x * y / 8], axis=-1)


def distort(X: Array) -> Array:
    """Move the inside of the upper half of the unit cube; the border stays."""
    x, y, z = X[..., 0], X[..., 1], X[..., 2]
    bubble = 64 * x * (1 - x) * y * (1 - y) * np.where(z > 0.5, (1 - z) * (z - 0.5), 0)
    shift = bubble[..., None] * np.stack([0.5 - y, z - x, x - 0.4], axis=-1)
    return X + np.round(shift, 6)


def pipe(X: Array) -> Array:
    """Roll lattice coordinates (radius [0, 2], angle [0, 8) in eighths of a turn, height [0, 2]) into a pipe.

    Only +, ×, / and √ are used, which round the same everywhere: t is the tangent of half the angle in the eighth, by
    its series.
    """
    eighth, angle = np.divmod(X[..., 1], 1.0)
    half = angle * np.pi / 8
    series = np.zeros_like(half)
    for coefficient in (21844 / 6081075, 1382 / 155925, 62 / 2835, 17 / 315, 2 / 15, 1 / 3, 1.0):
        series = series * half * half + coefficient
    t = series * half
    direction = np.stack([1 - t * t, 2 * t], axis=-1) / (1 + t * t)[..., None]
    for turn, cosine in ((4.0, -1.0), (2.0, 0.0), (1.0, np.sqrt(0.5))):
        sine = np.sqrt(1 - cosine * cosine)
        x, y = direction[..., 0], direction[..., 1]
        rotated = np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=-1)
        direction = np.where((eighth % (2 * turn) >= turn)[..., None], rotated, direction)
    radius = 0.5 + X[..., :1] / 4
    return np.concatenate([radius * direction, X[..., 2:] / 2], axis=-1)


def from_rows(rows: str) -> Letters:
    """Letters of cubes from blocks of rows (see MIXED); without a double space, of squares."""
    blocks = [block.split() for block in rows.split("  ")]
    if len(blocks) == 1:
        return {(i, j): letter for i, row in enumerate(blocks[0]) for j, letter in enumerate(row)}
    size = product(range(len(blocks)), range(len(blocks[0])), range(len(blocks[0][0])))
    return {(i, j, k): blocks[i][j][k] for i, j, k in size}


def everywhere(letter: str, *size: int) -> Letters:
    """One letter for a whole box."""
    return dict.fromkeys(product(*map(range, size)), letter)


def slabs(letters: str, width: int) -> Letters:
    """Slab i of the box has letter i throughout."""
    return {(i, j, k): letter for i, letter in enumerate(letters) for j, k in product(range(width), repeat=2)}


def unit_box(
    letters: Letters, order: int, map: Callable[[Array], Array] | None = None, two: bool = False
) -> LatticeMesh:
    """Mesh the unit cube or square, and move its nodes; one region, or `two`: "left" and "right"."""
    size = np.array([max(axis) + 1 for axis in zip(*letters)])

    def region(cube: tuple[int, ...]) -> str:
        return "domain" if not two else "left" if 2 * cube[0] < size[0] - 1 else "right"

    mesh = lattice_mesh(letters, order, region, SIDES[: len(size)])
    mesh.points = mesh.points / size
    if map is not None:
        mesh.points = map(mesh.points)
    return mesh


def pipe_mesh() -> LatticeMesh:
    """Mesh the pipe: around it two sectors of hexes, one of stars, two of tets, one of stars, two of prisms."""
    around = "HHSTTSZz"
    letters: Letters = {(i, j, k): around[j] for i, j, k in product(range(2), range(8), range(2))}
    sides = (("inside", "outside"), ("", ""), ("bottom", "top"))
    mesh = lattice_mesh(letters, 3, lambda cube: "wall", sides, periodic=1)
    mesh.points = pipe(mesh.points)
    return mesh


LATTICE: dict[str, tuple[str, Callable[[], LatticeMesh]]] = {
    "cube_mixed": ("4.1", lambda: unit_box(from_rows(MIXED), 1)),
    "cube_distorted": ("2.2", lambda: unit_box(from_rows(MIXED), 1, distort, two=True)),
    "bench_mixed": ("4.1", lambda: unit_box(slabs("HHHHHHZzZzSSTTTT", 16), 1)),
    "curved_hex": ("4.1", lambda: unit_box(everywhere("H", 3, 2, 2), 3, bend)),
    "curved_prism": ("2.2", lambda: unit_box(everywhere("Z", 2, 2, 2), 3, bend)),
    "curved_pyramid": ("4.1", lambda: unit_box(everywhere("P", 2, 2, 1), 3, bend)),
    "curved_tet": ("2.2", lambda: unit_box(everywhere("T", 2, 2, 2), 3, bend)),
    "curved_mixed": ("2.2", lambda: unit_box(from_rows(MIXED), 3, bend, two=True)),
    "pipe_mixed": ("4.1", pipe_mesh),
    "square_mixed": ("2.2", lambda: unit_box(from_rows("HHTS TSHT HTSH SHTT"), 1)),
    "curved_quad": ("4.1", lambda: unit_box(everywhere("H", 3, 3), 3, bend_2d)),
    "curved_tri": ("2.2", lambda: unit_box(everywhere("T", 3, 3), 3, bend_2d)),
    "curved_mixed_2d": ("4.1", lambda: unit_box(from_rows("HHTS TSHT HTSH SHTT"), 3, bend_2d, two=True)),
}


def make_ball(gmsh: Any) -> None:
    """Mesh the unit ball by tets of order 3."""
    gmsh.model.occ.addSphere(0, 0, 0, 1)
    gmsh.model.occ.synchronize()
    gmsh.model.addPhysicalGroup(3, [1], name="ball")
    gmsh.model.addPhysicalGroup(2, [1], name="sphere")
    gmsh.option.setNumber("Mesh.MeshSizeMin", 0.5)
    gmsh.option.setNumber("Mesh.ElementOrder", 3)
    gmsh.option.setNumber("Mesh.HighOrderOptimize", 1)
    gmsh.model.mesh.generate(3)


def make_disc(gmsh: Any) -> None:
    """Mesh the unit disc by quads and triangles of order 2."""
    gmsh.model.occ.addDisk(0, 0, 0, 1, 1)
    gmsh.model.occ.synchronize()
    gmsh.model.addPhysicalGroup(2, [1], name="disc")
    gmsh.model.addPhysicalGroup(1, [1], name="circle")
    gmsh.option.setNumber("Mesh.MeshSizeMax", 0.4)
    gmsh.option.setNumber("Mesh.RecombineAll", 1)
    gmsh.option.setNumber("Mesh.RecombinationAlgorithm", 0)
    gmsh.option.setNumber("Mesh.ElementOrder", 2)
    gmsh.option.setNumber("Mesh.MshFileVersion", 2.2)
    gmsh.model.mesh.generate(2)


def make_channel(gmsh: Any) -> None:
    """Mesh the channel of the benchmark of Schäfer and Turek (1996): 2.2 x 0.41, a cylinder of 0.1 at (0.2, 0.2)."""
    geo, ring = gmsh.model.geo, ((0.05, 0.02), (0.1, 0.04))
    middle = geo.addPoint(0.2, 0.2, 0)
    turns = [np.array([np.cos(a), np.sin(a)]) for a in np.pi / 4 + np.pi / 2 * np.arange(4)]
    circles = []
    for radius, size in ring:
        ends = [geo.addPoint(0.2 + radius * x, 0.2 + radius * y, 0, size) for x, y in turns]
        circles.append((ends, [geo.addCircleArc(ends[i], middle, ends[(i + 1) % 4]) for i in range(4)]))
    (inner, wall), (outer, front) = circles
    spokes = [geo.addLine(a, b) for a, b in zip(inner, outer)]
    quads = []
    for i in range(4):
        loop = geo.addCurveLoop([spokes[i], front[i], -spokes[(i + 1) % 4], -wall[i]])
        quads.append(geo.addPlaneSurface([loop]))
        for curve in (wall[i], front[i]):
            geo.mesh.setTransfiniteCurve(curve, 5)
        geo.mesh.setTransfiniteCurve(spokes[i], 3, "Progression", 1.6)
        geo.mesh.setTransfiniteSurface(quads[i])
        geo.mesh.setRecombine(2, quads[i])
    corners = [
        geo.addPoint(x, y, 0, size) for x, y, size in ((0, 0, 0.1), (2.2, 0, 0.12), (2.2, 0.41, 0.12), (0, 0.41, 0.1))
    ]
    sides = [geo.addLine(corners[i], corners[(i + 1) % 4]) for i in range(4)]
    rest = geo.addPlaneSurface([geo.addCurveLoop(sides), geo.addCurveLoop(front)])
    # Finer where the wake is.
    wake = [geo.addPoint(x, 0.2, 0, size) for x, size in ((0.4, 0.05), (0.8, 0.07), (1.3, 0.09))]
    geo.synchronize()
    gmsh.model.mesh.embed(0, wake, 2, rest)
    gmsh.model.addPhysicalGroup(2, [*quads, rest], name="fluid")
    for curves, name in (([sides[3]], "inlet"), ([sides[1]], "outlet"), (sides[::2], "walls"), (wall, "cylinder")):
        gmsh.model.addPhysicalGroup(1, curves, name=name)
    gmsh.option.setNumber("Mesh.ElementOrder", 3)
    gmsh.model.mesh.generate(2)


UNSTRUCTURED: dict[str, Callable[[Any], None]] = {"ball": make_ball, "disc": make_disc, "channel": make_channel}


def import_gmsh() -> Any | None:
    """Import the gmsh wheel; None where it or a system library that it needs is missing."""
    try:
        return import_module("gmsh")
    except (ImportError, OSError):
        return None


def generate(name: str, folder: Path) -> Path:
    """Write one mesh; those that are unstructured need gmsh."""
    path = folder / f"{name}.msh"
    if name in LATTICE:
        version, make = LATTICE[name]
        mesh = make()
        write_msh(path, mesh.points, mesh.facets, mesh.cells, mesh.order, version)
        return path
    gmsh = import_gmsh()
    if gmsh is None:
        raise ArgumentError(f"{name} is made by gmsh, which cannot be imported: install '.[mesh]' and libGLU")
    gmsh.initialize(["gmsh", "-v", "2", "-nt", "1"])
    UNSTRUCTURED[name](gmsh)
    gmsh.write(str(path))
    gmsh.finalize()
    comment = f"$Comments\n{COMMENT}\nMade by gmsh {gmsh.__version__}.\n$EndComments\n"
    path.write_text(comment + path.read_text(encoding="ascii"), encoding="ascii")
    return path


def main(names: list[str]) -> None:
    """Write the named meshes, all that can be made here without names."""
    possible = [*LATTICE, *(UNSTRUCTURED if import_gmsh() else ())]
    for name in names or possible:
        path = generate(name, FOLDER)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
