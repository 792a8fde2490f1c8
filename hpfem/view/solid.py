"""Pictures of solids and of surfaces in space, by pyvista, without a display."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from io import BytesIO
from typing import Any

import numpy as np

from hpfem.shapes.arrays import Array, Indices

from ..errors import ArgumentError
from ..support.optional import needed
from .paint import Paint
from .surface import Surface

_WHAT = "a picture in 3-D"
_SIZE = [1200, 900]
_BAR = {
    "vertical": True,
    "color": "black",
    "n_labels": 5,
    "fmt": "%.3g",
    "title_font_size": 22,
    "label_font_size": 18,
    "position_x": 0.88,
    "position_y": 0.2,
    "height": 0.6,
    "width": 0.06,
}


def draw_solid(surface: Surface, paint: Paint, edges: bool) -> bytes:
    """Draw a surface in space."""
    pv = needed("pyvista", _WHAT, "hpfem[view]")
    with _quiet():
        if missing_opengl():
            raise ArgumentError(
                f"{_WHAT} needs OpenGL, which is missing; install Mesa: apt install libegl1 libgl1-mesa-dri"
            )
        theme = pv.themes.DocumentTheme()
        scene = pv.Plotter(off_screen=True, window_size=_SIZE, line_smoothing=True, lighting="none", theme=theme)
        try:
            scene.add_light(pv.Light(light_type="headlight"))
            _add_surface(pv, scene, surface, paint)
            if edges:
                _add_lines(pv, scene, surface)
            scene.enable_anti_aliasing("ssaa")
            scene.camera.zoom(0.93)  # so that no corner is cut off
            file = BytesIO()
            scene.screenshot(file)
            return file.getvalue()
        finally:
            scene.close()


def _add_surface(pv: Any, scene: Any, surface: Surface, paint: Paint) -> None:
    def add(triangles: Indices, values: Array | None = None, **how: Any) -> None:
        mesh = pv.PolyData.from_regular_faces(surface.points, triangles)
        actor = scene.add_mesh(mesh, scalars=values, smooth_shading=True, ambient=0.5, diffuse=0.55, **how)
        # The surface is drawn behind the lines on it.
        actor.mapper.SetResolveCoincidentTopologyToPolygonOffset()
        actor.mapper.SetRelativeCoincidentTopologyPolygonOffsetParameters(2, 2)

    if paint.values is not None:
        bar = {"title": f"{paint.name}\n", **_BAR}
        add(surface.triangles, paint.values, cmap=paint.colours, clim=paint.limits, scalar_bar_args=bar)
        return
    for number, (_, colour) in enumerate(paint.fills):
        own = surface.triangles[paint.labels == number]
        if len(own):
            add(own, color=colour)
    legend = [(name, colour) for name, colour in paint.fills if name]
    if legend:
        size = (0.2, 0.04 * len(legend))
        scene.add_legend(legend, face="rectangle", size=size, loc="upper right", font_family="arial")


def _add_lines(pv: Any, scene: Any, surface: Surface) -> None:
    n, k = surface.lines.shape[:2]
    rows = np.column_stack([np.full(n, k), np.arange(n * k).reshape(n, k)])
    lines = pv.PolyData(surface.lines.reshape(n * k, -1), lines=rows.ravel())
    scene.add_mesh(lines, color="black", line_width=1.0, opacity=0.6, lighting=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide VTK's messages about displays that it has tried."""
    from vtkmodules.vtkCommonCore import vtkLogger

    before = vtkLogger.GetCurrentVerbosityCutoff()
    vtkLogger.SetStderrVerbosity(vtkLogger.VERBOSITY_OFF)
    try:
        yield
    finally:
        vtkLogger.SetStderrVerbosity(before)


def missing_opengl() -> bool:
    """Whether VTK would end the process: its last choice of a window needs OSMesa."""
    import vtkmodules.vtkRenderingOpenGL2  # noqa: F401  what makes windows
    from vtkmodules.vtkRenderingCore import vtkRenderWindow

    return vtkRenderWindow().GetClassName() == "vtkOSOpenGLRenderWindow" and find_library("OSMesa") is None
