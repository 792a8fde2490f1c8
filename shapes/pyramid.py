r"""The pyramid: pyramid = cone(quad).

      4
      |\ `.
      | \   `.             xi_3  xi_2
      |  2 -----3            |  /
      | /      /             | /
      0 ----- 1              +--- xi_1    xi_1 + xi_3 <= 0,  xi_2 + xi_3 <= 0

The apex (vertex 4) is above vertex 0; eta_3 is collapsed there. Modified modes (p, q, r), p slowest: A_p(eta_1)
A_q(eta_2) times A_r(eta_3) for p and q below 2, times C_{mu,r}(eta_3) with mu = max(p, q) elsewhere. The second mode of
the four vertex rows is the apex mode, which they share. Count (P+1)(P+2)(2P+3)/6: the optimal space of
[Bergot]. Mode order at P = 3:

    r    p = 0           p = 1           p = 2           p = 3
    3 |  3  6         | 12 15         |               |
    2 |  2  5         | 11 14         |               |
    1 |  1  1  8      |  1  1 17      | 20 22 24      |
    0 |  0  4  7  9   | 10 13 16 18   | 19 21 23 25   | 26 27 28 29
      +------------   +------------   +------------   +------------
    q    0  1  2  3      0  1  2  3      0  1  2  3      0  1  2  3
"""

from __future__ import annotations

from .quad import QUAD
from .shape import cone

PYRAMID = cone(QUAD, "pyramid")
