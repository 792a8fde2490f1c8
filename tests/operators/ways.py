"""The ways to compute an operator on a backend, for tests that compare them."""

from hpfem.backends import BACKENDS
from hpfem.errors import NotSuitable
from hpfem.forms.form import ALGORITHMS

# Strategies that serve some problems only, and say NotSuitable to the others.
SPECIAL = {
    ("cpu", "dense"), ("cpu", "kronecker"), ("cpu", "orthogonal"), ("cpu", "fused"), ("cpu", "numpy"),
    ("cuda", "sumfac"), ("cuda", "dense"), ("cuda", "fused"), ("cuda", "kronecker"),
}  # fmt: skip


def ways(backend, gradients=True):
    """Keyword arguments of `Operator` for every strategy and, where there are gradients, algorithm of a backend."""
    algorithms = ALGORITHMS if gradients else ("auto",)
    return [
        {"strategy": strategy, "algorithm": algorithm, "backend": backend}
        for strategy in BACKENDS[backend].strategy_names
        if (backend, strategy) not in SPECIAL
        for algorithm in algorithms
    ]


def special(backend, make):
    """Pairs (strategy, operator) of the strategies that serve some problems only, where they serve this one.

    Parameters
    ----------
    backend : str
    make : callable
        Keyword arguments `strategy` and `backend` -> Operator.
    """
    for strategy in BACKENDS[backend].strategy_names:
        if (backend, strategy) in SPECIAL:
            try:
                yield strategy, make(strategy=strategy, backend=backend)
            except NotSuitable:
                continue
