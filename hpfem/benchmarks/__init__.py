"""Measurements: throughput relative to the machine's limits, and comparisons of algorithms.

A benchmark element by element is a line in `problems`, one of continuous functions a `BakeOff` in `bake_off`. Other
phases are a class like `MeasuredOperator` in `global_phases`, whose `phases` prepares each; runs, files, tables and
figures need no change.
"""

from ..backends.roofline import Roofline
from ..backends.timer import HostTimer, Timer, Timing, measure
from ..support.files import write_json
from ..support.machine import machine_description
from .cases import BOX_SHAPES, DEFAULT_DOFS, SOLID_SHAPES, BenchSettings
from .comparison import ComparisonRow, compare_algorithms
from .problems import BENCHMARKS, BOTH, GEOMETRIES
from .results import Measurement, document, read_results
from .runner import Runner
from .threads import thread_limit

__all__ = [
    "BENCHMARKS",
    "BOTH",
    "BOX_SHAPES",
    "DEFAULT_DOFS",
    "GEOMETRIES",
    "SOLID_SHAPES",
    "BenchSettings",
    "ComparisonRow",
    "HostTimer",
    "Measurement",
    "Roofline",
    "Runner",
    "Timer",
    "Timing",
    "compare_algorithms",
    "document",
    "machine_description",
    "measure",
    "read_results",
    "thread_limit",
    "write_json",
]
