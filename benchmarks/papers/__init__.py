"""The papers' experiments repeated with our kernels, with our numbers beside theirs.

A module in `experiments/` declares experiments: cases, protocol, units, formulas and every number that the paper
publishes, with its place. `variants/` holds kernels that only experiments need, and the experiments that need them:
nothing imports it, so that it can be deleted. Those of a GPU are compiled and launched by `variants/gpu.py`, through
CuPy alone; tests run them on the host (`tests/papers/host_variants.py`). Both are found here by looking into the
folders. All import hpfem, which imports none of them.
"""

from importlib import import_module
from pkgutil import walk_packages

from .experiment import EXPERIMENTS, Counts, Device, Experiment, Published, Series, Statement
from .pictures import draw
from .report import page
from .results import done_of, merge, read_reproduction, reproduction_document
from .run import Reproduction

__all__ = [
    "EXPERIMENTS",
    "Counts",
    "Device",
    "Experiment",
    "Published",
    "Reproduction",
    "Series",
    "Statement",
    "done_of",
    "draw",
    "merge",
    "page",
    "read_reproduction",
    "reproduction_document",
]

for _found in walk_packages(__path__, f"{__name__}."):
    if _found.name.split(".")[2] in ("experiments", "variants"):
        import_module(_found.name)
