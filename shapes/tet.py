r"""The tetrahedron: tet = cone(tri).

      3
      |\ `.
      | \   `.             xi_3  xi_2
      |  2    `.             |  /
      | /  `.   `.           | /
      0 -------- 1           +--- xi_1    xi_1 + xi_2 + xi_3 <= -1

The apex is vertex 3; eta_3 is collapsed there and eta_2 on the edge 2-3. Modified modes (p, q, r), p slowest: triangle
mode (p, q) times A_r(eta_3) if it is a vertex mode, else times C_{mu,r}(eta_3) with mu its degree. The second mode of
the vertex rows is the apex mode, which they share. Count (P+1)(P+2)(P+3)/6. Mode order at P = 3:

    r    p = 0           p = 1           p = 2     p = 3
    3 |  3  6         | 12  6         |         |
    2 |  2  5         | 11  5         |         |
    1 |  1  1  8      |  1  1 14      | 17      |
    0 |  0  4  7  9   | 10  4 13 15   | 16 18   | 19
      +------------   +------------   +------   +---
    q    0  1  2  3      0  1  2  3      0  1      0
"""

from __future__ import annotations

from .shape import cone
from .tri import TRI

TET = cone(TRI, "tet")
