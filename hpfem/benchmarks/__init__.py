"""Measurements: throughput relative to the machine's limits, and comparisons of algorithms.

A benchmark element by element is a line in `problems`, one of continuous functions a `BakeOff` in `bake_off`. Other
phases are a class like `MeasuredOperator` in `global_phases`, whose `phases` prepares each; runs, files, tables and
figures need no change.
"""

from ..backends.timer import Timing, measure
from ..support.files import write_json
from ..support.machine import machine_description
from .cases import BOX_SHAPES, SOLID_SHAPES, BenchSettings
from .comparison import ComparisonRow, compare_algorithms
from .problems import BENCHMARKS, GEOMETRIES
from .results import Measurement, document, read_results
from .runner import Runner
from .threads import thread_limit

__all__ = [
    "BENCHMARKS",
    "BOX_SHAPES",
    "GEOMETRIES",
    "SOLID_SHAPES",
    "BenchSettings",
    "ComparisonRow",
    "Measurement",
    "Runner",
    "Timing",
    "compare_algorithms",
    "document",
    "machine_description",
    "measure",
    "read_results",
    "thread_limit",
    "write_json",
]
