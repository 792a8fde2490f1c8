"""Measured numbers: throughput against the machine's limits, and algorithms against each other."""

from typing import Any

from ..backends.base import BACKENDS
from ..backends.roofline import Roofline
from ..backends.timer import HostTimer, Timer, Timing, measure
from ..support.log import warn
from .comparison import ComparisonRow, compare_algorithms
from .problems import BENCHMARKS, GEOMETRIES, problem_bytes, problem_mesh, problem_sizes, problem_space
from .results import document, read_results
from .suite import SuiteRun, SuiteSettings, Task, suite_rooflines, suite_tasks
from .suite_results import merge_results, settings_of, suite_document
from .threads import thread_limit
from .throughput import (
    BOX_SHAPES,
    DEFAULT_DOFS,
    SOLID_SHAPES,
    BenchSettings,
    Measurement,
    ThroughputRun,
    check_settings,
)

__all__ = [
    "BENCHMARKS",
    "BOX_SHAPES",
    "DEFAULT_DOFS",
    "GEOMETRIES",
    "SOLID_SHAPES",
    "BenchSettings",
    "ComparisonRow",
    "HostTimer",
    "Measurement",
    "Roofline",
    "SuiteRun",
    "SuiteSettings",
    "Task",
    "ThroughputRun",
    "Timer",
    "Timing",
    "check_settings",
    "compare_algorithms",
    "document",
    "measure",
    "merge_results",
    "problem_bytes",
    "problem_mesh",
    "problem_sizes",
    "problem_space",
    "read_results",
    "settings_of",
    "suite_document",
    "suite_rooflines",
    "suite_tasks",
    "thread_limit",
]


def __getattr__(name: str) -> Any:
    if name != "TARGETS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn("hpfem.benchmarks.TARGETS[name] is hpfem.choose_backend(name): it has timer() and roofline(dtype, quick)")
    return BACKENDS
