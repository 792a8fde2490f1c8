"""Operators on spaces: the standard ones, users' weak forms, projection."""

from .forward_transform import FwdTrans
from .operator import Operator
from .riesz import InverseMass
from .standard import (
    AdvectionDiffusionReaction,
    BwdTrans,
    Helmholtz,
    IProductWRTBase,
    IProductWRTDerivBase,
    Laplacian,
    Mass,
    PhysDeriv,
    WeakForm,
)
from .tuner import Tuning, tune

__all__ = [
    "AdvectionDiffusionReaction",
    "BwdTrans",
    "FwdTrans",
    "Helmholtz",
    "IProductWRTBase",
    "IProductWRTDerivBase",
    "InverseMass",
    "Laplacian",
    "Mass",
    "Operator",
    "PhysDeriv",
    "Tuning",
    "WeakForm",
    "tune",
]
