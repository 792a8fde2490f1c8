"""Operators on spaces: the standard ones, users' weak forms, projection."""

from ..tuning import Tuning
from .energy import Energy
from .node_gradient import node_gradient
from .on_boundary import BoundaryForm
from .operator import Operator, OperatorOptions
from .sums import OperatorSum
from .table import *  # noqa: F403
from .transforms import InverseMass
from .tuner import OPERATORS, tune
from .weak_form import AtPoints, WeakForm

__all__ = [
    "OPERATORS",
    "AtPoints",
    "BoundaryForm",
    "Energy",
    "InverseMass",
    "Operator",
    "OperatorOptions",
    "OperatorSum",
    "Tuning",
    "WeakForm",
    "node_gradient",
    "tune",
]
__all__ += OPERATORS
