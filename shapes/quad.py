r"""The quadrilateral: quad = segment x segment.

    2 -------- 3
    |          |      xi_2
    |          |      |
    0 -------- 1      +-- xi_1

Vertices in tensor order 00, 10, 01, 11. Modes (p, q), p slowest: A_p(xi_1) A_q(xi_2). Count (P+1)^2.
"""

from __future__ import annotations

from .segment import SEGMENT
from .shape import product

QUAD = product(SEGMENT, "quad")
