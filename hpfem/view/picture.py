"""A drawn picture, for a notebook or a file."""

from __future__ import annotations

from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ..support.files import atomic_path, file_path, path_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture:
    """A picture. A notebook shows it.

    Parameters
    ----------
    drawn : Figure or bytes
        A figure of matplotlib, or a PNG file.

    Attributes
    ----------
    figure : Figure or None
        Figure of matplotlib, which can be changed before it is shown or saved; None in three dimensions.
    """

    def __init__(self, drawn: Figure | bytes) -> None:
        self.figure = None if isinstance(drawn, bytes) else drawn
        self._png = drawn if isinstance(drawn, bytes) else b""

    def _repr_png_(self) -> bytes:
        """The content of a PNG file."""
        if self.figure is None:
            return self._png
        file = BytesIO()
        self.figure.savefig(file, format="png", bbox_inches="tight")
        return file.getvalue()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file, whole or not at all.

        Parameters
        ----------
        path : path
            It ends in .png, in two dimensions also in .pdf or .svg.

        Raises
        ------
        ArgumentError
            If it ends otherwise, or cannot be written.
        """
        target = check_picture(path, flat=self.figure is not None)
        with atomic_path(target) as temporary, open(temporary, "wb") as file:
            if self.figure is None or target.suffix == ".png":
                file.write(self._repr_png_())
            else:
                self.figure.savefig(file, format=target.suffix[1:], bbox_inches="tight")


def check_picture(path: str | PathLike[str], flat: bool) -> Path:
    """Check the name of a picture before it is drawn."""
    target = file_path(path)
    known = (".png", ".pdf", ".svg") if flat else (".png",)
    if target.suffix not in known:
        of = "" if flat else " in 3-D"
        raise ArgumentError(f"cannot write {path_text(path)}: pictures{of} are written as {', '.join(known)}")
    return target
