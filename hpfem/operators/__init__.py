"""Operators on spaces: the standard ones, users' weak forms, projection."""

from ..tuning import Tuning
from .on_boundary import BoundaryForm
from .operator import Operator, OperatorOptions
from .registry import OPERATORS
from .standard import (
    AdvectionDiffusionReaction,
    AtPoints,
    BwdTrans,
    FwdTrans,
    Helmholtz,
    InverseMass,
    IProductWRTBase,
    IProductWRTDerivBase,
    Laplacian,
    Mass,
    PhysDeriv,
    WeakForm,
)
from .tuner import tune

__all__ = [
    "OPERATORS",
    "AdvectionDiffusionReaction",
    "AtPoints",
    "BoundaryForm",
    "BwdTrans",
    "FwdTrans",
    "Helmholtz",
    "IProductWRTBase",
    "IProductWRTDerivBase",
    "InverseMass",
    "Laplacian",
    "Mass",
    "Operator",
    "OperatorOptions",
    "PhysDeriv",
    "Tuning",
    "WeakForm",
    "tune",
]
