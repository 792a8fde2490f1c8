"""The readable reference backend: batched matrix products over chunks of elements, elements fastest."""

from .dense import Dense
from .pipeline import NumpyKernel
from .pointwise import Evaluator
from .sumfac import SumFac

__all__ = ["Dense", "Evaluator", "NumpyKernel", "SumFac"]
