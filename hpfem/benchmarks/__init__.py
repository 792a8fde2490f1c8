"""Measurements: throughput relative to the machine's limits, and comparisons of algorithms.

A benchmark element by element is a line in `problems`, one of continuous functions a `BakeOff` in `bake_off`. Other
phases are a class like `MeasuredOperator` in `global_phases`, whose `phases` prepares each; runs, files, tables and
figures need no change.
"""

from ..backends.roofline import Roofline
from ..backends.timer import HostTimer, Timer, Timing, measure
from ..support.files import write_json
from ..support.machine import machine_description
from .bake_off import BAKE_OFFS, BakeOff
from .cases import BOX_SHAPES, DEFAULT_DOFS, SOLID_SHAPES, BenchSettings, Case, SuiteSettings, check_settings
from .comparison import ComparisonRow, compare_algorithms
from .global_phases import MeasuredOperator
from .parts import merge_results, settings_of, suite_document
from .problems import BENCHMARKS, BOTH, GEOMETRIES, problem_bytes, problem_mesh, problem_sizes, problem_space
from .results import Measurement, document, read_results
from .runner import Runner, ThroughputRun
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
