"""The ways to compute an operator on a backend, for tests that compare them."""

from hpfem.kernels.form import ALGORITHMS
from hpfem.operators.strategies import strategy_names


def ways(backend, gradients=True):
    """Keyword arguments of `Operator` for every strategy and, where there are gradients, algorithm of a backend."""
    algorithms = ALGORITHMS if gradients else ("auto",)
    return [
        {"strategy": strategy, "algorithm": algorithm, "backend": backend}
        for strategy in strategy_names(backend)
        for algorithm in algorithms
    ]
