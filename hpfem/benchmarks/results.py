"""Measurements and their result files: JSON with the machine and the settings, checked when read again."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from hpfem.shapes.arguments import shown

from ..backends.timer import Timing
from ..errors import ArgumentError
from ..forms.form import BlockProblem
from ..support.files import file_path, path_text, read_file
from .turns import Gain

BENCH, COMPARE, SCALE = "hpfem-bench", "hpfem-compare", "hpfem-scale"
VERSION = 1

# Entries that plots and tables need; what has no type below is a text.
_COMMON = "shape geometry strategy algorithm order n_dofs dofs_per_second collocation"
_FIELDS = {
    BENCH: f"benchmark {_COMMON} fraction bound",
    COMPARE: f"backend quadrature {_COMMON} seconds low high flops nbytes difference behind fastest",
    SCALE: "shape geometry scaling backend order ranks n_dofs wanted seconds dofs_per_second",
}
_TYPES: Mapping[str, Any] = {
    **dict.fromkeys("seconds low high dofs_per_second flops nbytes difference fraction wanted".split(), (int, float)),
    **dict.fromkeys(("order", "ranks", "n_dofs"), int),
    **{"behind": list, "collocation": (list, type(None)), "fastest": bool},
}
# Entries that phases without a model do not have.
_BOUND = ("fraction", "bound")
# Other possible entries of a file, with their types.
_OTHERS: Mapping[str, type] = {"settings": dict, "machine": dict, "runs": list, "skipped": list, "wrong": list}


def rounded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Round the floats of a record to seven digits: more digits are noise, and files stay small."""
    return {name: float(f"{value:.7g}") if isinstance(value, float) else value for name, value in record.items()}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One point of a throughput curve."""

    # What was measured. The algorithm is "collocated" too where there are no gradients.
    benchmark: str
    operator: str
    shape: str
    geometry: str
    strategy: str
    algorithm: str
    backend: str
    basis: str
    dtype: str
    # Size; `n_dofs` is cells × modes, of a problem on continuous functions its unknowns.
    order: int
    n_cells: int
    n_modes: int
    n_points: int
    n_dofs: int
    # Of one application, or of the phase: median, quartiles and extremes over `repeats` timings of `calls` calls.
    seconds: float
    low: float
    high: float
    best: float
    worst: float
    repeats: int
    calls: int
    dofs_per_second: float  # n_dofs / seconds
    # Nominal operations and compulsory bytes of one application (`hpfem.forms.cost`) or of the phase
    # (`hpfem.benchmarks.global_phases`); not of whole solves, as the following.
    flops: float | None = None
    nbytes: float | None = None
    # "bandwidth" or "flops", and the share of it.
    bound: str | None = None
    fraction: float | None = None
    # Of a problem on continuous functions: "application", "iteration" of conjugate gradients, or "csr", SciPy's product
    # with the assembled matrix; of a whole solve those of `hpfem.benchmarks.whole_solve`.
    phase: str | None = None
    # Of a whole solve; the norm of its true residual is over that of the right-hand side.
    iterations: int | None = None
    residual: float | None = None
    # Largest difference to NumPy's result, of a problem on continuous functions to SciPy's product, relative to the
    # largest entry.
    error: float | None = None
    # Whether strategy "auto" takes this strategy and algorithm; of kernels alone, as the following.
    chosen: bool | None = None
    collocation: Gain | None = None  # how many times as fast the same strategy is collocated, timed in turns
    factors: str | None = None  # where the kernel has geometric factors from, in `hpfem.geometry.FactorSource`
    # Of the strategy's kernels; the factors, where another source than the strategy's default was asked for.
    variant: str | None = None
    source: str | None = None
    # Of the fastest strategy, or of the fastest with each source of factors, applied for seconds without a pause.
    sustained_seconds: float | None = None
    sustained_fraction: float | None = None

    @classmethod
    def of(cls, problem: BlockProblem, timing: Timing, n_dofs: int, **more: Any) -> Self:
        """Make it of what a kernel computes and its timing; as `Measurement`."""
        low, high = timing.quartiles
        return cls(
            **{name: getattr(timing, name) for name in ("best", "worst", "repeats", "calls")},
            **{name: getattr(problem, name) for name in ("n_modes", "n_points")},
            operator=problem.form.name,
            basis=problem.tabulation.basis.name,
            factors=problem.source,
            n_dofs=n_dofs,
            seconds=timing.median,
            low=low,
            high=high,
            dofs_per_second=n_dofs / timing.median,
            **more,
        )

    def as_dict(self) -> dict[str, Any]:
        """Make a record for result files, without entries that were not measured; see `document`."""
        return rounded({name: value for name, value in asdict(self).items() if value is not None})


def document(file_format: str, results: Sequence[Mapping[str, Any]], complete: bool, **about: Any) -> dict[str, Any]:
    """Make a document from results and information about them.

    Parameters
    ----------
    file_format : str
        `BENCH`, `COMPARE` or `SCALE`.
    results : sequence of dict
        Measurements or rows.
    complete : bool
        False if the run was interrupted.
    **about
        Machine, settings, limits, ...

    Returns
    -------
    dict
        For `hpfem.support.files.write_json`.
    """
    return {"format": file_format, "version": VERSION, "complete": complete, **about, "results": list(results)}


def read_results(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a result file.

    Parameters
    ----------
    path : path
        Written by `hpfem bench`, `hpfem compare` or `hpfem scale`.

    Returns
    -------
    dict

    Raises
    ------
    ArgumentError
        If it is not a complete result file; the message says what is wrong.
    """
    file, path = file_path(path), path_text(path)
    try:
        content = json.loads(read_file(file).decode("utf-8"))
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not JSON ({error}); give a file written by hpfem bench or compare") from None
    file_format = content.get("format") if isinstance(content, dict) else None
    if not isinstance(file_format, str) or file_format not in _FIELDS:
        raise ArgumentError(f"{path} is not a result of hpfem bench or compare: its 'format' is {shown(file_format)}")
    if content.get("version") != VERSION:
        raise ArgumentError(f"{path} is of version {shown(content.get('version'))}; this hpfem reads version {VERSION}")
    results = content.get("results")
    if not isinstance(results, list) or not results:
        raise ArgumentError(f"{path} holds no results")
    entries = [entry if isinstance(entry, dict) else {} for entry in results]
    wanted = _FIELDS[file_format].split()
    if any("phase" in entry for entry in entries):
        wanted.append("phase")  # for one problem; every measurement has one
    for number, entry in enumerate(entries):
        for name in wanted:
            if "phase" in entry and name in _BOUND and name not in entry:
                continue
            value, types = entry.get(name), _TYPES.get(name, str)
            if not isinstance(value, types) or isinstance(value, bool) != (types is bool) or not _in_range(name, value):
                raise ArgumentError(f"{path}: results[{number}] has {name} = {shown(value)}, not what hpfem writes")
    for name, type_ in _OTHERS.items():
        if not isinstance(content.get(name, type_()), type_):
            raise ArgumentError(f"{path}: its {name} are {shown(content[name])}, not what hpfem writes")
    return content


def _in_range(name: str, value: Any) -> bool:
    """Whether a number, or three, can be drawn: finite, and positive except for differences."""
    if isinstance(value, list):
        return len(value) == 3 and all(isinstance(part, float | int) and _in_range(name, part) for part in value)
    if value is None or isinstance(value, (str, bool)):
        return True
    return bool(value <= sys.float_info.max and (value >= 0 if name == "difference" else value > 0))
