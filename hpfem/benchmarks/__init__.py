"""Measurements: throughput relative to the machine's limits, and comparisons of algorithms.

A benchmark element by element is a line in `problems`, one of continuous functions a `BakeOff` in `bake_off`. Other
phases are a class like `MeasuredOperator` in `global_phases`, whose `phases` prepares each; runs, files, tables and
figures need no change.
"""

from typing import Any

from ..backends.base import BACKENDS
from ..backends.roofline import Roofline
from ..backends.timer import HostTimer, Timer, Timing, measure
from ..support.files import write_json
from ..support.log import warn
from ..support.machine import machine_description
from .bake_off import BAKE_OFFS, BakeOff
from .cases import BOX_SHAPES, DEFAULT_DOFS, SOLID_SHAPES, BenchSettings, Case, SuiteSettings, check_settings
from .comparison import ComparisonRow, compare_algorithms
from .global_phases import MeasuredOperator
from .parts import merge_results, settings_of, suite_document
from .problems import BENCHMARKS, BOTH, GEOMETRIES, problem_bytes, problem_mesh, problem_sizes, problem_space
from .results import Measurement, document, read_results
from .runner import Runner, ThroughputRun, measure_rooflines
from .threads import thread_limit

__all__ = [
    "BAKE_OFFS",
    "BENCHMARKS",
    "BOTH",
    "BOX_SHAPES",
    "DEFAULT_DOFS",
    "GEOMETRIES",
    "SOLID_SHAPES",
    "BakeOff",
    "BenchSettings",
    "Case",
    "ComparisonRow",
    "HostTimer",
    "MeasuredOperator",
    "Measurement",
    "Roofline",
    "Runner",
    "SuiteSettings",
    "ThroughputRun",
    "Timer",
    "Timing",
    "check_settings",
    "compare_algorithms",
    "document",
    "machine_description",
    "measure",
    "merge_results",
    "problem_bytes",
    "problem_mesh",
    "problem_sizes",
    "problem_space",
    "read_results",
    "settings_of",
    "suite_document",
    "thread_limit",
    "write_json",
]

# Earlier names: the present objects and names.
_EARLIER: dict[str, tuple[Any, str]] = {
    "TARGETS": (BACKENDS, "TARGETS[name] is hpfem.choose_backend(name): it has timer() and roofline(dtype, quick)"),
    "SuiteRun": (Runner, "SuiteRun is Runner, and its records() suite_records(runner.measurements)"),
    "Task": (Case, "Task is Case"),
    "suite_rooflines": (measure_rooflines, "suite_rooflines is measure_rooflines"),
    "suite_tasks": (SuiteSettings.cases, "suite_tasks(settings) is settings.cases()"),
}


def __getattr__(name: str) -> Any:
    if name not in _EARLIER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    now, instead = _EARLIER[name]
    warn(f"hpfem.benchmarks.{instead}")
    return now
