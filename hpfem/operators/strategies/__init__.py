"""Strategies, in a file per backend or of their own; importing this package registers them."""

from .cpu import CpuDense, CpuPlain, CpuStdMat, CpuSumFac
from .cuda import CudaStdMat, CudaSumFac, CudaSumFacTop
from .cuda_dense import CudaDense
from .provider import (
    Choice,
    Pick,
    Strategy,
    choose,
    register_strategy,
    strategy_names,
    title,
)
from .stdmat import NumpyStdMat
from .sumfac import NumpySumFac

register_strategy(NumpySumFac())
register_strategy(NumpyStdMat())
register_strategy(CpuSumFac())
register_strategy(CpuDense())
register_strategy(CpuStdMat())
register_strategy(CpuPlain())
register_strategy(CudaSumFacTop())
register_strategy(CudaSumFac())
register_strategy(CudaStdMat())
register_strategy(CudaDense())

__all__ = [
    "Choice",
    "Pick",
    "Strategy",
    "choose",
    "register_strategy",
    "strategy_names",
    "title",
]
