"""Pictures of measured numbers, drawn without a display; commands that draw none do not load matplotlib."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

SUFFIXES = (".png", ".pdf", ".svg")


def plot_results(results: Mapping[str, Any], folder: str | os.PathLike[str], suffix: str = ".png") -> list[Path]:
    """Draw every figure of a result file.

    Parameters
    ----------
    results : mapping
        See `hpfem.benchmarks.read_results`.
    folder : path
        Where the files go; made if it is not there.
    suffix : str
        ".png", ".pdf" or ".svg".

    Returns
    -------
    list of Path

    Raises
    ------
    ArgumentError
        For another suffix.
    """
    from .comparison import plot_comparison
    from .scaling import plot_scaling
    from .throughput import plot_throughput

    if suffix not in SUFFIXES:
        raise ArgumentError(f"pictures are written as {', '.join(SUFFIXES)}, not {suffix!r}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    draw = {"hpfem-compare": plot_comparison, "hpfem-scale": plot_scaling}
    return draw.get(results["format"], plot_throughput)(results, folder, suffix)


__all__ = ["SUFFIXES", "plot_results"]
