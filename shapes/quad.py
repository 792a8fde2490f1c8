r"""The quadrilateral: quad = segment x segment.

    2 -------- 3
    |          |      xi_2
    |          |      |
    0 -------- 1      +-- xi_1

Vertices in tensor order 00, 10, 01, 11. Modified modes (p, q), p slowest: A_p(xi_1) A_q(xi_2). Count (P+1)^2.
Mode order at P = 3:

    q
    3 |  3  7 11 15
    2 |  2  6 10 14
    1 |  1  5  9 13
    0 |  0  4  8 12
      +------------
    p    0  1  2  3
"""

from __future__ import annotations

from .segment import SEGMENT
from .shape import product

QUAD = product(SEGMENT, "quad")
