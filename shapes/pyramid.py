r"""The pyramid: pyramid = cone(quad).

      4
      |\ `.
      | \   `.             xi_3  xi_2
      |  2 -----3            |  /
      | /      /             | /
      0 ----- 1              +--- xi_1

The apex (vertex 4) is above vertex 0; eta_3 is collapsed there. Modes (p, q, r), p slowest: A_p(eta_1) A_q(eta_2)
C_{mu,r}(eta_3) with mu = max(p, q, 1); in the four vertex rows the second mode is the shared apex mode.
Count (P+1)(P+2)(2P+3)/6: the optimal space of Bergot, Cohen & Durufle (2010).
"""

from __future__ import annotations

from .quad import QUAD
from .shape import cone

PYRAMID = cone(QUAD, "pyramid")
