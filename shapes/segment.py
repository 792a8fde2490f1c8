r"""The segment [-1, 1]: segment = point x [-1, 1].

    0 -------- 1   --> xi_1
   -1         +1

Modified modes A_p(xi_1), p = 0..P: vertex 0, vertex 1, then the interior. Count P + 1. Mode order at P = 3:

    p    |  0  1  2  3
    mode |  0  1  2  3
"""

from __future__ import annotations

from .shape import POINT, product

SEGMENT = product(POINT, "segment")
