"""Measured numbers: throughput against the machine's limits, and algorithms against each other."""

from ..tuning import HostTimer, Timer
from . import cuda
from .comparison import ComparisonRow, compare_algorithms
from .problems import BENCHMARKS, GEOMETRIES, problem_bytes, problem_mesh, problem_sizes, problem_space
from .results import document, read_results
from .roofline import TARGETS, Roofline, Target, host_roofline
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
from .timing import Timing, measure

__all__ = [
    "BENCHMARKS",
    "BOX_SHAPES",
    "DEFAULT_DOFS",
    "GEOMETRIES",
    "SOLID_SHAPES",
    "TARGETS",
    "BenchSettings",
    "ComparisonRow",
    "HostTimer",
    "Measurement",
    "Roofline",
    "SuiteRun",
    "SuiteSettings",
    "Target",
    "Task",
    "ThroughputRun",
    "Timer",
    "Timing",
    "check_settings",
    "compare_algorithms",
    "cuda",
    "document",
    "host_roofline",
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
