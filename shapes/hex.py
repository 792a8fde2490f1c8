r"""The hexahedron: hex = quad x segment.

        6 -------- 7
       /|         /|
      4 -------- 5 |      xi_3  xi_2
      | 2 -------|-3        |  /
      |/         |/         | /
      0 -------- 1          +--- xi_1

Vertices in tensor order, xi_1 fastest. Modified modes (p, q, r), p slowest: A_p(xi_1) A_q(xi_2) A_r(xi_3).
Count (P+1)^3. Mode order at P = 3:

    r    p = 0           p = 1           p = 2           p = 3
    3 |  3  7 11 15   | 19 23 27 31   | 35 39 43 47   | 51 55 59 63
    2 |  2  6 10 14   | 18 22 26 30   | 34 38 42 46   | 50 54 58 62
    1 |  1  5  9 13   | 17 21 25 29   | 33 37 41 45   | 49 53 57 61
    0 |  0  4  8 12   | 16 20 24 28   | 32 36 40 44   | 48 52 56 60
      +------------   +------------   +------------   +------------
    q    0  1  2  3      0  1  2  3      0  1  2  3      0  1  2  3
"""

from __future__ import annotations

from .quad import QUAD
from .shape import product

HEX = product(QUAD, "hex")
