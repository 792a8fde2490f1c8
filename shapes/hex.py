r"""The hexahedron: hex = quad x segment.

        6 -------- 7
       /|         /|
      4 -------- 5 |      xi_3  xi_2
      | 2 -------|-3        |  /
      |/         |/         | /
      0 -------- 1          +--- xi_1

Vertices in tensor order, xi_1 fastest. Modes (p, q, r), p slowest: A_p(xi_1) A_q(xi_2) A_r(xi_3). Count (P+1)^3.
"""

from __future__ import annotations

from .quad import QUAD
from .shape import product

HEX = product(QUAD, "hex")
