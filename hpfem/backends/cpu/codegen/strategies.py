"""The strategies of compiled matrices: what writes their kernel, and their expected time; a new one is a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....forms.form import BlockProblem
from ....forms.kronecker import check_kronecker
from ....forms.linear import check_linear
from ....forms.orthogonal import check_orthogonal
from .dense import dense_cost, write_dense
from .fused import check_fused, fused_cost, write_fused
from .indexed import Indexed
from .ir import Program
from .kronecker import kronecker_cost, write_kronecker
from .orthogonal import orthogonal_cost, write_orthogonal


class Compiled(NamedTuple):
    """A row: `write` takes a problem, lanes, the fetches of `Prefetch`, and the entities if it is indexed."""

    write: Callable[[BlockProblem, int, int, Indexed], Program]
    cost: Callable[[BlockProblem], float]  # operations, relative to those of collocated sum factorisation
    check: Callable[[BlockProblem], None]  # refuses what `write` cannot
    tensor: bool = False  # needs rules of one direction
    merges: bool = False  # reads merged factors, where these are possible


COMPILED = {
    "dense": Compiled(write_dense, dense_cost, check_linear),
    "kronecker": Compiled(write_kronecker, kronecker_cost, check_kronecker, tensor=True),
    "orthogonal": Compiled(write_orthogonal, orthogonal_cost, check_orthogonal),
    "fused": Compiled(write_fused, fused_cost, check_fused, merges=True),
}
