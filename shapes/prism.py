r"""The prism: prism = tri x segment.

          5
        / | \
      3 ------ 4          xi_3  xi_2
      |   2    |            |  /
      | /   \  |            | /
      0 ------ 1            +--- xi_1     xi_1 + xi_2 <= 0

The triangle in (xi_1, xi_2) extruded along xi_3. Modified modes (p, q, r), p slowest: triangle mode (p, q) times
A_r(xi_3); the triangle's apex mode is shared by the rows p = 0 and 1. Count (P+1)^2 (P+2)/2. Mode order at P = 3:

    r    p = 0           p = 1           p = 2     p = 3
    3 |  3  7 11 15   | 19  7 23 27   | 31 35   | 39
    2 |  2  6 10 14   | 18  6 22 26   | 30 34   | 38
    1 |  1  5  9 13   | 17  5 21 25   | 29 33   | 37
    0 |  0  4  8 12   | 16  4 20 24   | 28 32   | 36
      +------------   +------------   +------   +---
    q    0  1  2  3      0  1  2  3      0  1      0
"""

from __future__ import annotations

from .shape import product
from .tri import TRI

PRISM = product(TRI, "prism")
