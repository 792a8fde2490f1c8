r"""The tetrahedron: tet = cone(tri).

      3
      |\ `.
      | \   `.             xi_3  xi_2
      |  2    `.             |  /
      | /  `.   `.           | /
      0 -------- 1           +--- xi_1    xi_1 + xi_2 + xi_3 <= -1

The apex is vertex 3; eta_3 is collapsed there and eta_2 on the edge 2-3. Modes (p, q, r), p slowest: triangle mode (p, q)
times C_{mu,r}(eta_3) with mu the degree of the triangle mode; in the rows of the triangle's vertex modes the second
mode is the shared apex mode. Count (P+1)(P+2)(P+3)/6.
"""

from __future__ import annotations

from .shape import cone
from .tri import TRI

TET = cone(TRI, "tet")
