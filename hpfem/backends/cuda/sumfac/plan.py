"""Which problems suit one element per thread, and the sizes of its kernel."""

from __future__ import annotations

from ....errors import NotSuitable
from ....forms.form import BlockProblem
from ..codegen.tables import Levels

# Threads, and so elements, of a block, and elements whose factors are stored side by side: a warp's.
THREADS, GROUP = 64, 32
# Numbers of 8 bytes that a thread may keep in registers, and points of an element whose loops are unrolled.
NUMBERS, POINTS = 90, 150


def check_sumfac(problem: BlockProblem, levels: Levels) -> None:
    """Say why a problem is not one for the kernel.

    Parameters
    ----------
    problem : BlockProblem
    levels : Levels
        Of the problem's tabulation, directions in its order.

    Raises
    ------
    NotSuitable
        If an element does not fit a thread, or the form differentiates at the points.
    """
    form, dim = problem.form, problem.shape.dim
    if form.gradients and problem.collocated:
        raise NotSuitable("one element per thread is noncollocated; use algorithm='noncollocated'")
    if form.components > 1:
        raise NotSuitable("one element per thread couples no components")
    numbers = levels.n_modes * (1 + levels.trivial)
    numbers += levels.n_nodes * (4 if dim > 2 and form.gradients else 2)
    numbers += 2 * levels.n_rows * (dim if form.gradients else 1)
    numbers = numbers * problem.dtype.itemsize // 8
    if problem.n_points > POINTS:
        raise NotSuitable(f"one element has {problem.n_points} points, {POINTS} are unrolled in a thread's registers")
    if numbers > NUMBERS:
        raise NotSuitable(f"one element needs {numbers} numbers in a thread's registers, {NUMBERS} fit")


def shared_bytes(problem: BlockProblem) -> int:
    """Count the shared memory of a block: its coefficients.

    Parameters
    ----------
    problem : BlockProblem

    Returns
    -------
    int
    """
    return THREADS * (problem.n_modes | 1) * problem.dtype.itemsize
