"""p-multigrid for symmetric elliptic forms on cells of all shapes; `cycle` puts the parts together.

energies    mean diffusion and reaction of every cell, and classes of cells with similar means
smoother    one step of Jacobi's method in a basis of functions of low energy, which differ from class to class
lines       groups of functions that stretched cells couple strongly
groups      factors of their matrices, layer by layer
chebyshev   several steps, as the best polynomial of one
irregular   the vector from which the largest eigenvalue is estimated
algebraic   the vertices alone: algebraic multigrid, with constants or rigid motions as near-null space
cycle       orders P, P/2, .., 1, and the V-cycle through them

Inside the cycle cells that are nearly affine are taken as affine. A GPU runs the cycle as one graph, a CPU as a
recording (`backends/cpu/runtime/recording.py`).
"""

from .cycle import Multigrid

__all__ = ["Multigrid"]
